"""Texts, names of nodes, names of modules and of what is in them."""

import os
import socket
import sys

import pytest
from kombu import Queue
from sidekiq_celery import platforms, utils
from sidekiq_celery.utils import imports, nodenames, text
from sidekiq_celery.utils.imports import NotAPackage, find_module, instantiate, qualname, symbol_by_name
from sidekiq_celery.utils.nodenames import default_nodename, host_format, nodename, nodesplit, worker_direct
from sidekiq_celery.utils.saferepr import saferepr

from sidekiq_py import redaction


class Thing:
    """Something to be found by its name."""

    def __init__(self, *args, **kwargs):
        self.given = args, kwargs


@pytest.mark.parametrize("name", [f"{__name__}:Thing", f"{__name__}.Thing", Thing])
def test_a_symbol_is_found_by_its_name(name):
    """With a colon or a dot; what is no text stands for itself."""
    assert symbol_by_name(name) is Thing


def test_a_symbol_may_have_an_alias_or_a_default():
    """Without a default it is an error."""
    assert symbol_by_name("thing", {"thing": f"{__name__}:Thing"}) is Thing
    assert symbol_by_name("no.such:Thing", default=3) == 3
    assert symbol_by_name("os") is __import__("os")
    with pytest.raises(ImportError):
        symbol_by_name("no.such:Thing")
    with pytest.raises(AttributeError):
        symbol_by_name("os:no_such")


def test_celerys_own_names_lead_here():
    """Settings files keep them."""
    assert symbol_by_name("celery.app.base:Celery").__module__ == "sidekiq_celery.app.base"


def test_a_class_is_called_by_its_name():
    """With arguments."""
    assert instantiate(f"{__name__}.Thing", 1, two=2).given == ((1,), {"two": 2})


def test_things_say_their_names():
    """Classes, functions and objects."""
    assert qualname(Thing) == f"{__name__}.Thing"
    assert qualname(Thing()) == f"{__name__}.Thing"
    assert qualname(test_things_say_their_names) == f"{__name__}.test_things_say_their_names"


def test_a_module_in_the_working_directory_is_found(tmp_path, monkeypatch):
    """And the directory is not left in the path."""
    (tmp_path / "found_there.py").write_text("value = 3")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])

    module = imports.import_from_cwd("found_there")

    assert module.value == 3
    assert imports.module_file(module).endswith("found_there.py")
    assert str(tmp_path) not in sys.path
    del sys.modules["found_there"]


def test_a_name_through_a_module_is_told():
    """It is no package."""
    with pytest.raises(NotAPackage, match="imports"):
        find_module("sidekiq_celery.utils.imports.deeper")
    with pytest.raises(ModuleNotFoundError):
        find_module("no_such_package.module")


def test_node_names_are_name_and_host():
    """Either may be lacking."""
    assert nodename("worker", "host") == "worker@host"
    assert nodesplit("worker@host") == ["worker", "host"]
    assert nodesplit("host") == (None, "host")
    assert default_nodename("w@h") == "w@h"
    assert default_nodename(None) == f"celery@{nodenames.gethostname()}"
    assert nodenames.anon_nodename("h").endswith("@h")


def test_a_host_s_name_that_is_not_utf_8_can_be_sent(monkeypatch):
    """Each task names its sender: otherwise calls on such a host, and remote control of its workers, would fail."""
    monkeypatch.setattr(socket, "gethostname", lambda: os.fsdecode(b"caf\xe9"))

    # As in a new process; this one has looked already.
    assert nodenames.gethostname.__wrapped__() == "caf?"


def test_node_names_are_formatted():
    """`%h`, `%n`, `%d` and a percent sign; what is unknown is told."""
    assert host_format("%n@%h %d 100%%", "web.example.org") == "web@web.example.org example.org 100%"
    assert nodenames.node_format("%n.log %p", "w1@host") == "w1.log w1@host"
    with pytest.raises(ValueError, match="Unknown format %x"):
        host_format("%x", "h")


def test_a_worker_has_a_queue_of_its_own():
    """By its node name; a queue stays."""
    queue = worker_direct("w1@host")

    assert (queue.name, queue.routing_key, queue.exchange.name) == ("w1@host.dq2", "w1@host", "C.dq2")
    assert isinstance(queue, Queue)
    assert worker_direct(queue) is queue


def test_texts_are_cut():
    """At a length, and the module of a task's name."""
    assert text.abbr("hello", 4) == "h..."
    assert text.abbr("hello", 9) == "hello"
    assert text.abbr(None, 4) == "???"
    assert text.truncate("one two three", 8) == "one two..."
    assert text.truncate("short") == "short"


def test_repeated_modules_are_left_out():
    """Behind their first mention, where they begin a name."""
    shown = "app.tasks.add(2) | app.tasks.mul(3) | myapp.tasks.sub(4)"

    assert text.remove_repeating_from_task("app.tasks.add", shown) == "app.tasks.add(2) | mul(3) | myapp.tasks.sub(4)"


def test_texts_are_laid_out():
    """Joined, indented, wrapped, in the plural."""
    assert text.join(["a", "", "b"]) == "a\nb"
    assert text.indent("a\nb", 2) == "  a\n  b"
    assert text.dedent("    a\n  b") == "a\n  b"
    assert text.ensure_newlines("a\n", 2) == "a\n\n"
    assert text.fill_paragraphs("one two", 4) == "one\ntwo"
    assert (text.pluralize(1, "day"), text.pluralize(2, "day")) == ("day", "days")
    assert text.str_to_list("a,b") == ["a", "b"]
    assert text.match_case("Abc", "X") == "ABC"
    assert "'a': 1" in text.pretty({"a": 1})
    io = text.WhateverIO(b"a")
    io.seek(0, 2)
    io.write(b"b")
    assert io.getvalue() == "ab"


def test_signals_of_the_system_have_names():
    """With and without `SIG`."""
    assert platforms.signals.signum("TERM") == platforms.signals.signum("SIGTERM") == 15
    assert platforms.signal_name(15) == "TERM"
    assert platforms.signals.supported("INT")
    assert not platforms.signals.supported("NONE")


def test_old_flat_names_are_found():
    """As code for old releases imports them."""
    assert utils.gen_unique_id() != utils.uuid()
    assert utils.get_cls_by_name is symbol_by_name
    assert utils.noop(1, a=2) is None
    with pytest.raises(AttributeError, match="no_such"):
        _ = utils.no_such


@pytest.mark.parametrize(
    ("value", "limit", "shown"),
    [
        ([1, "b", {"k": (2,)}], None, "[1, 'b', {'k': (2,)}]"),
        (["v" * 100, 1, 2], 10, "['vvvvvvvvv...', ...]"),
        ({"a": ["v" * 100]}, 10, "{'a': ['vvv...']}"),
        ([1, [2]], 4, "[1, , ...]"),
        ("It's two words", 10, "'It\\'s two...'"),
        ([[[[1]], frozenset()]], None, "[[[[...]], frozenset()]]"),
        ({1: {"é".encode(): b"\xff\x00"}}, None, "{1: {b'é': b'ff00'}}"),
        ({frozenset({1})}, None, "{frozenset({1})}"),
    ],
)
def test_a_safe_text_of_a_value_is_cut_as_celerys_is(value, limit, shown):
    """Brackets are closed, bytes are read as text, and what is nested too deeply is left out."""
    assert saferepr(value, limit) == shown


def test_a_safe_text_of_a_value_that_contains_itself_ends():
    """However deep a text may go."""
    loop: list[object] = [1]
    loop.append(loop)

    assert saferepr(loop, maxlevels=0) == f"[1, <Recursion on list with id={id(loop)}>]"
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert saferepr(deep, maxlevels=0) == "[" * 5001 + "]" * 5001


def test_a_safe_text_of_a_broken_value_says_so():
    """A log line or an event must not make a task fail that has succeeded."""

    class Odd(dict[str, int]):
        def items(self):
            raise KeyError("gone")

    assert saferepr([1, Odd()]) == "<Unrepresentable <class 'list'>: KeyError('gone')>"


@pytest.mark.parametrize("secret", ["it's a secret", b"it's a secret", 'say "it\'s"'])
def test_a_secret_is_found_in_a_safe_text_with_all_of_its_quotes(secret):
    """Redaction reads the text that a message has, and looks for the quote that ends the value."""
    text = saferepr({"password": secret, "n": 1})

    assert redaction.current().value(text, "proj.add") == "{'password': '[redacted]', 'n': 1}"

"""Declaring jobs as functions, and what their handles do."""

import asyncio
import functools
import importlib
import inspect
import json
import pickle
import pydoc
import sys
import threading
import traceback
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py.errors import ArgumentTypeError, JobDeclarationError, PayloadError
from sidekiq_py.jobs.decorators import registry
from tests.client.conftest import Pushed


@sidekiq.job(queue="low")
def declared_here(name: str, count: int = 1) -> str:
    """Says what it was given."""
    return f"{name} {count}"


@sidekiq.job
def declared_bare(name: str) -> None:
    """Declared without parentheses."""


def module_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> ModuleType:
    """Import a module of *text*."""
    name = "jobs_of_this_test"
    (tmp_path / f"{name}.py").write_text(f"import sidekiq_py as sidekiq\n{text}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def test_a_job_is_named_by_module_and_function() -> None:
    """Also when it is declared without parentheses."""
    found = registry.find("tests.jobs.test_decorators.declared_here")

    assert found is declared_here.definition
    assert declared_bare.definition.name == "tests.jobs.test_decorators.declared_bare"


def test_an_unknown_name_is_not_found() -> None:
    """And nothing is imported for it."""
    assert registry.find("os.system") is None


def test_a_plain_call_is_the_function_s() -> None:
    """The handle is in the function's place."""
    assert declared_here("bob", count=2) == "bob 2"


def test_the_handle_bears_the_function_s_name_and_docstring() -> None:
    """As `functools.wraps` leaves them."""
    assert (declared_here.__name__, declared_here.__doc__) == ("declared_here", "Says what it was given.")
    assert declared_here.__wrapped__("al") == "al 1"


def test_attributes_of_the_function_change_no_push(configured: str, pushed: Pushed) -> None:
    """The handle bears them, too, and has some of its own."""

    def function(number: int) -> None: ...

    vars(function).update(colour="red", _options={"queue": "other"}, _interval=100.0, _is_sync=True)
    job = sidekiq.job(name="Attributed")(function)

    job.perform_bulk([[1]])
    job.set(retry=False).perform_async(2)

    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [[1], [2]]
    assert vars(job)["colour"] == "red"


def test_a_handle_can_be_pickled() -> None:
    """By its name, for process pools."""
    assert pickle.loads(pickle.dumps(declared_here)) is declared_here


def test_options_stand_in_the_order_of_declaration() -> None:
    """The order is part of the bytes."""

    @sidekiq.job(name="A", tags=("x",), retry=3, queue="q", unique_for=60, retry_for=timedelta(hours=1))
    def job() -> None: ...

    assert list(job.definition.options.items()) == [
        ("tags", ["x"]),
        ("retry", 3),
        ("queue", "q"),
        ("unique_for", 60),
        ("retry_for", 3600),
    ]


def test_tags_may_come_from_a_generator() -> None:
    """It can be read only once."""

    @sidekiq.job(name="A", tags=(tag for tag in ["x"]))  # type: ignore[call-overload]
    def job() -> None: ...

    assert job.definition.options == {"tags": ["x"]}


def test_time_limits_are_no_part_of_the_payload() -> None:
    """They are for the process that runs the job."""

    @sidekiq.job(name="A", timeout=5, hard_timeout=timedelta(minutes=1))
    def job() -> None: ...

    definition = job.definition
    assert (definition.timeout_seconds, definition.hard_timeout_seconds, definition.options) == (5.0, 60.0, {})


def test_an_async_function_is_known_as_one() -> None:
    """The engine runs it on its loop."""

    @sidekiq.job(name="A")
    async def job() -> None: ...

    assert (job.definition.is_async, declared_here.definition.is_async) == (True, False)


def test_the_function_itself_is_what_a_run_calls() -> None:
    """Nothing is made for a run."""
    assert declared_here.definition.bind({}, lambda: False) is declared_here.__wrapped__


def test_blocks_for_retries_are_kept_with_the_job() -> None:
    """And stay functions under their own names."""

    @sidekiq.job(name="A")
    def job() -> None: ...

    @job.retry_in
    def delay(count: int, error: BaseException, payload: dict[str, Any]) -> int:
        return 10

    @job.retries_exhausted
    def on_exhausted(payload: dict[str, Any], error: BaseException) -> None: ...

    assert (job.definition.retry_in_block, job.definition.exhausted_block) == (delay, on_exhausted)


def test_a_method_is_not_a_job() -> None:
    """Its `self` would be the first argument of every push."""
    with pytest.raises(JobDeclarationError, match=r"Mailer\.send is a method, .* let the class inherit from"):

        class Mailer:
            @sidekiq.job(name="Send")
            def send(self, to: str) -> None: ...


def test_a_method_of_an_object_is_a_job() -> None:
    """It has its `self`."""
    event = threading.Event()

    job = sidekiq.job(name="SetEvent")(event.set)

    job()
    assert event.is_set()


def test_a_static_method_is_a_job() -> None:
    """Also if it calls one of its own variables `self`."""

    class Mailer:
        @staticmethod
        @sidekiq.job(name="Send")
        def send() -> str:
            self = "sent"
            return self

    assert Mailer.send() == "sent"


def test_arguments_that_do_not_fit_end_in_one_traceback() -> None:
    """That of `inspect` before it would hide the line of the program."""
    with pytest.raises(ArgumentTypeError) as raised:
        declared_here.perform_async()  # type: ignore[call-arg]

    assert "inspect" not in "".join(traceback.format_exception(raised.value))


def test_a_hook_that_cannot_be_called_is_refused() -> None:
    """At the declaration, not at the first failure."""
    job = sidekiq.job(name="A")(lambda: None)

    with pytest.raises(JobDeclarationError, match=r"retry_in has 5; .* \(count, exception, payload\)"):
        job.retry_in(5)  # type: ignore[type-var]
    with pytest.raises(JobDeclarationError, match=r"retries_exhausted has 'later'; .* \(payload, exception\)"):
        job.retries_exhausted("later")  # type: ignore[type-var]


def test_a_block_that_nothing_would_await_is_refused(configured: str) -> None:
    """Also for an `async def` job."""

    @sidekiq.job(name="A")
    async def job() -> None: ...

    async def later(*_: Any) -> int:
        return 5

    with pytest.raises(JobDeclarationError, match=r"retry_in has .* an `async def`, which nothing would await"):
        job.retry_in(later)  # type: ignore[type-var]
    with pytest.raises(JobDeclarationError, match=r"retries_exhausted has .* an `async def`"):
        job.retries_exhausted(later)


def test_a_name_that_is_declared_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names both places."""
    text = "@sidekiq.job(name='Twice')\ndef one(): ...\n@sidekiq.job(name='Twice')\ndef two(): ...\n"

    with pytest.raises(JobDeclarationError, match=r"one in .*and again by two in"):
        module_with(tmp_path, monkeypatch, text)


def test_a_module_may_be_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs take the place of their former selves."""
    module = module_with(tmp_path, monkeypatch, "@sidekiq.job(name='Again')\ndef one(): ...\n")

    importlib.reload(module)

    assert registry.find("Again") is module.one.definition


def test_a_script_may_be_imported_beside_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `__main__` and under its name it is the same file."""
    module = module_with(tmp_path, monkeypatch, "@sidekiq.job(name='Script')\ndef one(): ...\n")
    main = ModuleType("__main__")
    main.__file__ = module.__file__
    monkeypatch.setitem(sys.modules, "__main__", main)

    exec(compile(Path(str(module.__file__)).read_text(), str(module.__file__), "exec"), main.__dict__)

    assert registry.find("Script") is main.__dict__["one"].definition


@pytest.mark.parametrize("name", ["delay", "push", "apply_async", "perform_later"])
def test_another_library_s_call_is_answered_with_ours(name: str) -> None:
    """Of a function's job, of a Ruby job, and of one with other options."""
    for job in (declared_bare, sidekiq.ruby_job("Greet"), declared_bare.set(queue="low")):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; to enqueue the job, call perform_async"):
            getattr(job, name)


def test_a_ruby_job_needs_the_class_s_name() -> None:
    """The message says whose name it is."""
    with pytest.raises(JobDeclarationError, match=r"ruby_job\(5\): give the name of the Ruby class"):
        sidekiq.ruby_job(5)  # type: ignore[arg-type]


def test_a_job_in_main_needs_a_name() -> None:
    """`__main__` is another module in every program."""

    def work() -> None: ...

    work.__module__, work.__qualname__ = "__main__", "work"

    with pytest.raises(JobDeclarationError, match="name='work'"):
        sidekiq.job(work)


def test_a_job_inside_a_function_needs_a_name() -> None:
    """No other process could find it."""
    with pytest.raises(JobDeclarationError, match="inside a function"):

        @sidekiq.job
        def work() -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": ""}, "the queue's name"),
        ({"queue": 5}, "the queue's name"),
        ({"retry": -1}, "how many retries"),
        ({"retry": "3"}, "how many retries"),
        ({"backtrace": "all"}, "how many lines"),
        ({"tags": "x"}, "a list of strings"),
        ({"dead": "no"}, "True or False"),
        ({"retry_for": -5}, "seconds"),
        ({"timeout": 0}, "above 0"),
        ({"hard_timeout": True}, "above 0"),
        ({"timeout": 60, "hard_timeout": timedelta(seconds=5)}, "make timeout the shorter one"),
        ({"at": 5}, "one push"),
        ({"unique": object()}, "JSON cannot carry"),
        ({"name": ""}, "give a string"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(options: dict[str, Any], said: str) -> None:
    """When the module is imported, and not when the job fails."""
    with pytest.raises(JobDeclarationError, match=said):
        sidekiq.job(**{"name": "A", **options})(lambda: None)


def test_a_class_is_no_function() -> None:
    """The message says what to inherit from."""
    with pytest.raises(JobDeclarationError, match=r"sidekiq_py\.Job"):
        sidekiq.job(name="A")(dict)


def test_a_name_is_given_by_keyword() -> None:
    """Where Celery's users and Ruby's may put it first."""
    with pytest.raises(JobDeclarationError, match="name='Mail'"):
        sidekiq.job("Mail")  # type: ignore[call-overload]


def test_keywords_find_their_places(configured: str, pushed: Pushed) -> None:
    """A payload's args are positional; later defaults are left to the worker."""

    @sidekiq.job(name="A")
    def job(a: int, b: int = 2, c: int = 3, d: int = 4) -> None: ...

    job.perform_async(1, c=5)
    job.perform_async(a=1)

    assert [json.loads(raw)["args"] for raw in pushed.queue()] == [[1, 2, 5], [1]]


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"z": 1}), ((1, 2), {"a": 1}), ((1,), {"only": 1})]
)
def test_arguments_that_the_function_cannot_take_are_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], configured: str, pushed: Pushed
) -> None:
    """Where they are given, and not 25 times in a worker."""

    @sidekiq.job(name="A")
    def job(a: int, b: int = 2, *, only: int = 0) -> None: ...

    with pytest.raises(ArgumentTypeError, match="A takes"):
        job.perform_async(*args, **kwargs)
    assert pushed.queue() == []


def test_each_job_of_a_bulk_push_must_fit(configured: str) -> None:
    """All of a slice are looked at before it is sent."""

    @sidekiq.job(name="A")
    def job(a: int) -> None: ...

    with pytest.raises(ArgumentTypeError, match="too many"):
        job.perform_bulk([[1], [1, 2]])


def test_a_function_with_any_number_of_arguments_takes_any(configured: str, pushed: Pushed) -> None:
    """As its decorators may leave it."""

    @sidekiq.job(name="A")
    def job(*args: int) -> None: ...

    job.perform_async()
    job.perform_async(1, 2, 3)

    assert len(pushed.queue()) == 2


def test_names_of_ruby_jobs_that_are_made_up_at_run_time_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program remembers the classes that it does not implement, but not without end."""
    monkeypatch.setattr(registry, "elsewhere", set())

    for number in range(10_001):
        sidekiq.ruby_job(f"Tenant{number}::Report")

    assert len(registry.elsewhere) == 10_000


def test_a_ruby_job_takes_any_arguments_but_no_names(configured: str, pushed: Pushed) -> None:
    """Its parameters are not known here."""
    emailer = sidekiq.ruby_job("Billing::Emailer", queue="mailers")

    emailer.perform_async(42, "x")

    with pytest.raises(ArgumentTypeError, match="pass positional arguments"):
        emailer.perform_async(user=1)
    assert json.loads(pushed.queue("mailers")[0])["class"] == "Billing::Emailer"


def test_set_can_be_said_again(configured: str, pushed: Pushed) -> None:
    """The later word counts, and the first handle is left as it was."""
    low = declared_here.set(queue="low", tags=["a"])
    other = low.set({"queue": "other"})

    other.perform_async("x")
    low.perform_async("x")

    assert (len(pushed.queue("other")), len(pushed.queue("low"))) == (1, 1)
    assert json.loads(pushed.queue("other")[0])["tags"] == ["a"]


@pytest.mark.parametrize("later", ["at", "wait", "wait_until"])
@pytest.mark.parametrize("earlier", ["at", "wait", "wait_until"])
def test_the_last_time_that_set_is_given_counts(earlier: str, later: str, configured: str, pushed: Pushed) -> None:
    """Whichever names they go by, they are one setting. Source: Sidekiq 8.1.7, job.rb, `Setter#set`."""
    sidekiq.ruby_job("A").set({earlier: 3e9}).set({later: 4e9}).perform_async()

    [(_, score)] = pushed.schedule()
    assert score == 4e9


@pytest.mark.parametrize("later", ["wait", "wait_until"])
@pytest.mark.parametrize("earlier", ["at", "wait", "wait_until"])
def test_set_without_a_time_leaves_the_earlier_one(earlier: str, later: str, configured: str, pushed: Pushed) -> None:
    """A program hands on what it was given, which may be None. Source: Sidekiq 8.1.7, job.rb, `Setter#set`."""
    sidekiq.ruby_job("A").set({earlier: 3e9}).set({later: None}).perform_async()

    [(_, score)] = pushed.schedule()
    assert score == 3e9


def test_a_call_for_a_past_time_leaves_the_time_of_set(configured: str, pushed: Pushed) -> None:
    """Ruby's `perform_in` sets a time only if it lies ahead. Source: Sidekiq 7.3.2 and 8.1.7, job.rb, `Setter#at`."""
    sidekiq.ruby_job("A").set(wait_until=4e9).perform_in(-1)

    [(_, score)] = pushed.schedule()
    assert score == 4e9


@pytest.mark.parametrize("version", ["6.0", "6.2", "8.1"])
def test_set_wait_writes_the_keys_in_the_order_of_set(version: str, redis_url: str, pushed: Pushed) -> None:
    """As `set` does without a time: `perform_async` decides the order, not that the job waits."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version=version)

    sidekiq.ruby_job("A").set(wait=1_000).perform_async()

    [(raw, _)] = pushed.schedule()
    assert raw.startswith(b'{"retry":true,"queue":"default","args":[],"class":"A"')


def test_an_item_s_class_brings_the_options_of_set(configured: str, pushed: Pushed) -> None:
    """They extend the declared ones, as in a call."""

    @sidekiq.job(name="A", tags=["a"])
    def job() -> None: ...

    job.perform_async()
    sidekiq.Client().push({"class": job.set(queue="low", retry_for=timedelta(hours=1)), "args": []})

    [payload] = map(json.loads, pushed.queue("low"))
    assert (payload["class"], payload["tags"], payload["retry_for"]) == ("A", ["a"], 3600)


def test_a_function_that_wraps_a_job_stands_for_it(configured: str, pushed: Pushed) -> None:
    """As a decorator above `@sidekiq.job` makes it."""

    @functools.wraps(declared_here)
    def logged(*args: Any) -> None: ...

    sidekiq.Client().push({"class": logged, "args": ["x"]})

    assert len(pushed.queue("low")) == 1


def test_the_options_of_set_are_checked_when_they_are_needed(configured: str) -> None:
    """Not by tools that look at an object; and an option that says nothing counts as left out."""
    setter = declared_here.set(wait=5)
    assert hasattr(setter, "__sidekiq_job__")
    inspect.getmembers(setter)

    sidekiq.Client().push({"class": declared_here.set(wait=None, pool=None, sync=False), "args": ["x"]})
    with pytest.raises(JobDeclarationError, match="tags=None; give a list of strings"):
        sidekiq.Client().push({"class": declared_here.set(tags=None), "args": ["x"]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "option", [{"at": 2e9}, {"wait": 5}, {"wait_until": 2e9}, {"sync": True}, {"pool": "redis://x"}, {"jid": "j"}]
)
def test_an_option_of_a_single_push_cannot_be_kept(option: dict[str, Any], configured: str) -> None:
    """A job that is pushed later, such as a periodic one, would ignore it without a word."""
    with pytest.raises(JobDeclarationError, match=next(iter(option))):
        sidekiq.Client().push({"class": declared_here.set(option), "args": ["x"]})


def test_set_sync_runs_the_job_here(configured: str, pushed: Pushed) -> None:
    """As Ruby's `set(sync: true)`."""
    ran: list[int] = []

    @sidekiq.job(name="A")
    def job(n: int) -> None:
        ran.append(n)

    job.set(sync=True).perform_async(5)

    assert (ran, pushed.queue()) == ([5], [])


def test_sync_that_is_off_stays_in_the_payload(configured: str, pushed: Pushed) -> None:
    """As with Ruby's `set(sync: false)`."""
    sidekiq.ruby_job("A").set(sync=False).perform_async()

    [raw] = pushed.queue()
    assert raw.startswith(b'{"retry":true,"queue":"default","sync":false,"args":[],"class":"A","jid":"')


def test_set_sync_runs_the_jobs_of_a_bulk_push_here_too(configured: str, pushed: Pushed) -> None:
    """In a test, or in a console, a push of many must not behave otherwise than a push of one."""
    ran: list[int] = []

    @sidekiq.job(name="A")
    def job(n: int) -> None:
        ran.append(n)

    jids = job.set(sync=True).perform_bulk([[1], [2]])
    jids += asyncio.run(job.set(sync=True).aperform_bulk([[3]]))

    assert (ran, jids, pushed.queue()) == ([1, 2, 3], [None, None, None], [])
    with pytest.raises(PayloadError, match="give a list of lists"):
        job.set(sync=True).perform_bulk([4])
    with pytest.raises(PayloadError, match="give a list of lists"):
        job.set(sync=True).perform_bulk(None)  # type: ignore[arg-type]


def test_a_push_shows_the_parameters_of_the_job_s_function(configured: str) -> None:
    """To `inspect`, to `help` and to editors that run the program; also after `set`, and of a class."""

    @sidekiq.job(name="A")
    def job(name: str, count: int = 1, *rest: int) -> bool:
        return True

    class Worker(sidekiq.Job, name="B"):
        def perform(self, interval: int, /) -> None: ...

    shown = {
        name: str(inspect.signature(getattr(job, name)))
        for name in ("perform_async", "perform_in", "perform_at", "perform_inline", "aperform_async", "aperform_in")
    }

    takes = "name: str, count: int = 1, *rest: int"
    assert shown == {
        "perform_async": f"({takes}) -> str | None",
        "perform_in": f"(interval: float | datetime.timedelta, {takes}) -> str | None",
        "perform_at": f"(when: float | datetime.datetime, {takes}) -> str | None",
        "perform_inline": f"({takes}) -> bool | None",
        "aperform_async": f"({takes}) -> str | None",
        "aperform_in": f"(interval: float | datetime.timedelta, {takes}) -> str | None",
    }
    assert inspect.signature(job.set(queue="low").perform_async) == inspect.signature(job.perform_async)
    assert inspect.iscoroutinefunction(job.aperform_async)
    assert f"perform_async({takes}) -> str | None" in pydoc.plain(pydoc.render_doc(job.perform_async))
    assert str(inspect.signature(Worker.perform_async)) == "(interval: int, /) -> str | None"
    assert str(inspect.signature(Worker.perform_in)).startswith("(_interval: float | datetime.timedelta, interval: int")


def test_a_ruby_job_s_parameters_are_not_known(configured: str) -> None:
    """It shows that it takes anything."""
    assert str(inspect.signature(sidekiq.ruby_job("A").perform_in)).startswith(
        "(interval: float | datetime.timedelta, *"
    )

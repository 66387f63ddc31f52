"""Bytes made once and filled in are the bytes that the long way makes."""

from random import Random
from typing import Any

import pytest

from sidekiq_py.errors import ArgumentTypeError, PayloadError
from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.json_dialect import dump_args, dumps
from sidekiq_py.wire.payload import bulk_payload, call_item, encode, for_queue, normalize
from sidekiq_py.wire.push_template import ItemTemplate, PushTemplate
from tests.wire.values import random_text, random_value

VERSIONS = ["6.0.0", "6.0.4", "6.3.0", "6.4.0", "6.4.1", "7.3.2", "8.1.7"]


def _some_options(random: Random) -> dict[str, Any]:
    options: dict[str, Any] = {"queue": random.choice(["low", "%b", "é"]), "retry": random.choice([True, 5, None])}
    options |= {"tags": ["50%", "x"], "backtrace": 3, random_text(random): random_value(random)}
    return {key: options[key] for key in random.sample(list(options), random.randint(0, len(options)))}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("style", FloatText)
def test_a_template_renders_what_normalize_and_for_queue_make(version: str, style: FloatText) -> None:
    """Single and bulk pushes, with options that look like parts of a template."""
    dialect = Dialect.pinned(version, style)
    random = Random(version)
    for _ in range(40):
        options, args = _some_options(random), [random_value(random, 2) for _ in range(2)]
        created, enqueued = 1.7e9 + random.random() * 1e8, 1.7e9 + random.random() * 1e8
        jid = random.choice(["0123456789abcdef01234567", "8c1f-%b", 'a"b\\é'])
        told: dict[str, Any] = {"dialect": dialect, "now": created, "jid": jid, "class_options": options}

        template = PushTemplate("Some::Job", options, dialect)
        text = dump_args(args, style)
        stamp, later_stamp = dialect.stamp(created), dialect.stamp(enqueued)

        call = normalize(call_item("Some::Job", args, dialect=dialect), **told)
        assert template.render(text, jid, stamp, later_stamp) == for_queue(call, dialect=dialect, now=enqueued)
        whole = normalize({"class": "Some::Job", "args": [args]}, **told)
        job = bulk_payload(whole, args, jid=jid, dialect=dialect, now=created)
        assert template.bulk([text], [jid], stamp, later_stamp).render() == [
            for_queue(job, dialect=dialect, now=enqueued)
        ]
        job = bulk_payload(whole, args, jid=jid, dialect=dialect, now=created, at=5.0)
        assert template.render_bulk_scheduled([text], [jid], stamp) == [encode(job, dialect=dialect, now=enqueued)[1]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("style", FloatText)
def test_an_item_with_a_key_of_its_own_is_rendered_as_it_would_be_pushed(version: str, style: FloatText) -> None:
    """With the key and without it, whatever else stands in the item."""
    dialect = Dialect.pinned(version, style)
    random = Random(version)
    for _ in range(40):
        options, args = _some_options(random), [random_value(random, 2) for _ in range(2)]
        own = {random_text(random): random_value(random)}
        now = 1.7e9 + random.random() * 1e8
        item = {"queue": "low", "class": "Some::Job", "args": [], "jid": "-", "retry": 5, "own": {}}
        template = ItemTemplate(item, options, dialect, "own")
        told: dict[str, Any] = {"dialect": dialect, "now": now, "jid": "-", "class_options": options}
        filled = {**item, "args": args, "jid": "8c1f-%b", "own": own}
        text, own_text, stamp = dump_args(args, style), dumps(own, style), dialect.stamp(now)

        with_key = template.render(text, "8c1f-%b", own_text, stamp)
        without_key = template.render(text, "8c1f-%b", b"", stamp)

        assert with_key == for_queue(normalize(filled, **told), dialect=dialect, now=now)
        del filled["own"]
        assert without_key == for_queue(normalize(filled, **told), dialect=dialect, now=now)


def test_a_slice_is_rendered_job_by_job() -> None:
    """In order, each with its own arguments and id."""
    template = PushTemplate("K", {}, Dialect.pinned("8"))

    first, second = template.bulk([b"[1]", b"[2]"], ["a", "b"], 1, 2).render()

    assert first == b'{"retry":true,"queue":"default","class":"K","args":[1],"jid":"a","created_at":1,"enqueued_at":2}'
    assert second == b'{"retry":true,"queue":"default","class":"K","args":[2],"jid":"b","created_at":1,"enqueued_at":2}'


def test_a_slice_with_too_few_ids_is_refused() -> None:
    """Jobs must not vanish because of it."""
    with pytest.raises(ValueError, match="shorter"):
        PushTemplate("K", {}, Dialect.pinned("8")).bulk([b"[1]", b"[2]"], ["a"], 1, 2).render()


@pytest.mark.parametrize("key", ["jid", "args", "created_at", "enqueued_at"])
def test_what_belongs_to_one_push_is_no_option(key: str) -> None:
    """A call that sets it takes the long way."""
    with pytest.raises(PayloadError, match=f"{key} belongs to one push, not to the options of K"):
        PushTemplate("K", {key: "x"}, Dialect.pinned("7"))


def test_options_that_are_no_job_s_are_refused_when_the_template_is_made() -> None:
    """Not at the first push."""
    with pytest.raises(PayloadError, match="queue is ''"):
        PushTemplate("K", {"queue": ""}, Dialect.pinned("7"))
    with pytest.raises(ArgumentTypeError, match="is a set"):
        PushTemplate("K", {"tags": [{1}]}, Dialect.pinned("7"))

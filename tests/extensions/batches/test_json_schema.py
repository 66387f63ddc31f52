"""What front ends read of batches is as `docs/batches.schema.json` says."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import sidekiq_py as sidekiq
from tests.extensions.batches.conftest import Program
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY

SCHEMA = json.loads((REPOSITORY / "docs" / "batches.schema.json").read_text())
TYPES = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None), "array": list,
    "object": dict,
}  # fmt: skip


def violations(value: Any, schema: Mapping[str, Any], path: str = "$") -> Iterator[str]:
    """Where *value* is not as the schema has it; of JSON Schema it knows the words that the file uses."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        if all(list(violations(value, one, path)) for one in schema["anyOf"]):
            yield f"{path} is {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path} is {value!r}"
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    is_fitting = any(isinstance(value, TYPES[name]) for name in names)  # type: ignore[arg-type]
    if names and (not is_fitting or (isinstance(value, bool) and "boolean" not in names)):
        yield f"{path} is {value!r}, and no {' or '.join(names)}"
        return
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        yield from (f"{path} has no {name}" for name in schema["required"] if name not in value)
        yield from (f"{path} has {name}" for name in value if name not in known)
        for name in value.keys() & known.keys():
            yield from violations(value[name], known[name], f"{path}.{name}")
    if isinstance(value, list) and "items" in schema:
        for at, one in enumerate(value):
            yield from violations(one, schema["items"], f"{path}[{at}]")


def definition(name: str) -> Mapping[str, Any]:
    """Of one of the things that front ends read."""
    found: Mapping[str, Any] = SCHEMA["$defs"][name]
    return found


def refuse() -> None:
    """The input is bad."""
    raise sidekiq.JobFailed("row 3 has no e-mail")


@pytest.mark.parametrize("track", [True, False])
def test_a_batch_and_its_rows_are_as_the_schema_says(app: Program, worker: Any, *, track: bool) -> None:
    """With jobs that waited, succeeded, failed, and said how far they are; and with a child."""
    app.deeds["refuse"] = refuse
    app.deeds["say"] = lambda: sidekiq.current_job().progress(at=1, total=3, message="a third")
    batch = sidekiq.Batch(description="customers.csv", track=track)
    messages = app.client.pubsub(ignore_subscribe_messages=True)
    messages.subscribe(f"sidekiq_py:batch:{batch.bid}:changes")
    # The server's word that it listens.
    messages.get_message(timeout=5)
    batch.on("complete", app.callback)

    with batch.jobs():
        for name in ("ok", "fail", "refuse", "say"):
            app.deed.perform_async(name)
        app.deed.perform_in(3600, "ok")
        open_one = batch.status().as_dict()
        with sidekiq.Batch().on("success", app.callback).jobs():
            app.deed.perform_async("ok")
    # Four have ended, one waits for its time; the child's callback is a member, too.
    eventually(lambda: batch.status().pending == 3 and batch.status().dead == 1 and batch.status().failures == 1)

    for told in (open_one, batch.status().as_dict()):
        assert list(violations(json.loads(json.dumps(told)), definition("status"))) == []
        assert ("jobs" in told) == track
    page = batch.rows.page().as_dict()
    assert list(violations(json.loads(json.dumps(page)), definition("page"))) == []
    assert len(page["rows"]) == (6 if track else 0)
    changes = []
    while message := messages.get_message(timeout=0.2):
        changes.append(json.loads(message["data"]))
    messages.close()
    assert [text for change in changes for text in violations(change, definition("change"))] == []
    assert bool(changes) == track


def test_a_wrong_value_does_not_pass() -> None:
    """The look itself sees what is missing, too much, or of another type."""
    page = {"rows": [{"number": "1"}], "next": None, "more": 1}

    found = list(violations(page, definition("page")))

    assert "$ has more" in found
    assert "$.rows[0].number is '1', and no integer" in found
    assert "$.rows[0] has no state" in found

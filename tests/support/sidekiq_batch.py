"""Histories of the gem sidekiq-batch, as `record_sidekiq_batch.rb` records them, gone through by our ends."""

import json
import re
from typing import Any

import redis

from sidekiq_py.extension import JobEnd, Pool, write
from sidekiq_py.extensions.sidekiq_batch.extension import SidekiqBatchExtension
from sidekiq_py.wire.dialect import Dialect

State = dict[str, Any]

_NOW = 1_700_000_000.5
_JID = re.compile(r'"jid":"[0-9a-f]{24}"')
_TIME = re.compile(r'"(created|enqueued)_at":[0-9.]+')
_BATCH = re.compile(r"BID-([A-Za-z0-9_-]{14})(-[a-z-]+)?")


def restore(client: redis.Redis, state: State) -> None:
    """Write *state* into an empty Redis."""
    client.flushdb()
    for key, value in state.items():
        if isinstance(value, dict):
            client.hset(key, mapping=value)
        elif not key.startswith("queue:"):
            client.sadd(key, *value)
        else:
            client.rpush(key, *value)


def read(client: redis.Redis) -> State:
    """All of Redis, as the recording has it."""
    found: State = {}
    for name in client.keys("*"):
        key = name.decode()
        if client.type(name) == b"hash":
            found[key] = {field.decode(): value.decode() for field, value in client.hgetall(name).items()}
        elif client.type(name) == b"list":
            found[key] = [line.decode() for line in client.lrange(name, 0, -1)]
        else:
            found[key] = [member.decode() for member in client.smembers(name)]
    return found


def comparable(state: State, known: set[str]) -> State:
    """
    *state* without what is drawn anew each time: ids and times of callbacks, and of the batches that they are in; and
    without what the gem writes to batches that are gone.

    Args:
        known: The ids of the batches that were opened, and of their jobs.
    """
    state = {key: value for key, value in state.items() if _is_there(key, state)}
    names: dict[str, str] = {}
    for key in state:
        match = _BATCH.fullmatch(key)
        if match and not match[2] and match[1] not in known:
            [line] = state[f"{key}-callbacks-complete"]
            options = json.loads(line)["opts"]
            names[match[1]] = f"<callbacks of {options['bid']} {options['event']}>"
    found: State = {}
    for key, value in state.items():
        name, is_drawn = key, False
        for bid, given in names.items():
            name, is_drawn = name.replace(bid, given), is_drawn or bid in key
        if isinstance(value, dict):
            kept = dict(value)
            if is_drawn:
                kept["created_at"] = "a time"
            if kept.get("parent_bid", "") not in {"", *known}:
                kept["parent_bid"] = "a batch of callbacks"
            found[name] = kept
        elif name.endswith(("-jids", "-failed")):
            found[name] = sorted(jid if jid in known else "a callback" for jid in value)
        else:
            found[name] = sorted(_named(line, names) for line in value)
    return found


def _is_there(key: str, state: State) -> bool:
    match = _BATCH.fullmatch(key)
    return match is None or "created_at" in state.get(f"BID-{match[1]}", {})


def _named(text: str, names: dict[str, str]) -> str:
    """A job's callback, which alone names such a batch."""
    if '"Sidekiq::Batch::Callback::Worker"' in text:
        text = _TIME.sub(r'"\1_at":0', _JID.sub('"jid":"drawn"', text))
        for bid, name in names.items():
            text = text.replace(bid, name)
        # Of one that has run its batch is gone.
        text = re.sub(r'"bid":"[A-Za-z0-9_-]{14}"', '"bid":"gone"', text)
    return names.get(text, text)


def compare(client: redis.Redis, pool: Pool, history: dict[str, Any], dialect: Dialect) -> None:
    """Go through *history*, and compare all of Redis after each step."""
    jids = (member for key, members in history["before"].items() if key.endswith("-jids") for member in members)
    known = {*history["bids"].values(), *jids}
    extension = SidekiqBatchExtension()
    restore(client, history["before"])
    recorded = dict(history["before"])
    for step in history["steps"]:
        recorded = {**recorded, **step["changed"]}
        recorded = {key: value for key, value in recorded.items() if value is not None}
        payload = _payload_of(read(client), step["job"], history["bids"])
        kind: Any = "success" if step["outcome"] == "ok" else "retry"
        [effect] = extension.end(JobEnd(kind, payload, b"", payload["queue"], _NOW, dialect))
        pool.run(lambda link, effect=effect: write(link, [effect]))  # type: ignore[misc]
        assert comparable(read(client), known) == comparable(recorded, known), step["job"]


def _payload_of(state: State, name: str, bids: dict[str, str]) -> dict[str, Any]:
    """Of `a/0` the job 0 of the batch a; of `a:complete/0` its first callback."""
    whose, number = name.split("/")
    batch, _, event = whose.partition(":")
    jobs = [json.loads(line) for key in state if key.startswith("queue:") for line in reversed(state[key])]
    if event:
        callbacks = [job for job in jobs if job["class"].startswith("Sidekiq::Batch") and job["args"][3] == bids[batch]]
        found: dict[str, Any] = [job for job in callbacks if job["args"][1] == event][int(number)]
        return found
    return next(job for job in jobs if job["args"] == [batch, int(number)])

"""
A running job in the hash `<identity>:work` (`workers` up to 6.4.1), which has a field per thread and is written at each
heartbeat.
"""

from typing import Any, NamedTuple

from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.json_dialect import dumps, loads_or_none


class WorkEntry(NamedTuple):
    """
    The job that a thread is running.

    Args:
        queue: The queue's name, without the prefix of the key.
        payload: The job's bytes, as they were fetched.
        run_at: Seconds since the epoch; `None` if the entry does not say.
    """

    queue: str
    payload: bytes
    run_at: float | None


def dump_work(queue: str, payload: bytes, run_at: int, *, dialect: Dialect) -> bytes:
    """
    The value of a field.

    Args:
        queue: The queue the job was fetched from.
        payload: The job's bytes.
        run_at: When it was started, in whole seconds since the epoch in every release.
        dialect: The release to follow.

    Source: Sidekiq 6.0.2 to 8.1.7, processor.rb, `stats`.
    """
    if not dialect.work_payload_is_text:
        return b'{"queue":%b,"payload":%b,"run_at":%d}' % (dumps(queue, dialect.float_text), payload, run_at)
    text = payload.decode(errors="replace")
    return dumps({"queue": queue, "payload": text, "run_at": run_at}, dialect.float_text)


def parse_work(raw: bytes) -> WorkEntry | None:
    """
    Parse an entry of any release: before 6.0.2 the payload is an object, later a string. Returns `None` if it is not an
    entry.
    """
    entry = loads_or_none(raw)
    if not isinstance(entry, dict) or not isinstance(entry.get("queue"), str):
        return None
    payload = _payload_bytes(entry.get("payload"))
    if payload is None:
        return None
    run_at = entry.get("run_at")
    return WorkEntry(entry["queue"], payload, run_at if type(run_at) in (int, float) else None)


def _payload_bytes(payload: Any) -> bytes | None:
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, dict):
        try:
            return dumps(payload, FloatText.RUBY)
        except ValueError:  # it has 1E400, which is read as infinite
            return None
    return None

"""
Jobs that are larger than `worker_max_body_bytes`: they go to the dead set, and are neither parsed nor run.

Parsing a job takes several times its size in memory, and anyone who can write to Redis can write a large job.
"""

import json
from typing import Any

from sidekiq_celery import states
from sidekiq_celery._workflow.never import result_stored
from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import InvalidTaskError
from sidekiq_py.extension import Effect

_ID_KEY = b'"jid":"'
_SEARCHED_BYTES = 16 * 1024


def refusal_of(app: App, raw: bytes) -> tuple[str, list[Effect]]:
    """
    The error message for a job, and the effects to write with its end: a failure as its result, if its id is found.

    Args:
        raw: The job's bytes.
    """
    text = (
        f"the job has {len(raw):,} bytes, and worker_max_body_bytes is {int(app.conf.worker_max_body_bytes):,}: pass "
        "large values by reference, such as a path or a key, or raise the setting and retry it from the dead set"
    )
    task_id = id_at_an_end(raw)
    return text, result_stored(app, "", task_id, InvalidTaskError(text), states.FAILURE)


def id_at_an_end(raw: bytes) -> str | None:
    """
    The jid of a job, if it is near the beginning or the end of its text.

    Arguments may contain objects with the same key. So the text before the key, or after it, must be the rest of one
    object.
    """
    head = raw[:_SEARCHED_BYTES]
    at = head.find(_ID_KEY)
    if at > 0 and _object(head[:at] + b'"":0}') is not None:
        end = head.find(b'"', at + len(_ID_KEY))
        return _text(_object(b"{" + head[at : end + 1] + b"}"))
    tail = raw[-_SEARCHED_BYTES:]
    at = tail.rfind(b"," + _ID_KEY)
    return _text(_object(b"{" + tail[at + 1 :])) if at >= 0 else None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return read if type(read) is dict else None


def _text(found: dict[str, Any] | None) -> str | None:
    jid = None if found is None else found.get("jid")
    return jid if type(jid) is str and jid else None

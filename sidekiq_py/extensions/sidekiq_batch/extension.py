"""
The hooks: which jobs are the gem's, and what their ends write.

Sidekiq Pro and the gem sidekiq-batch put their batch's id under the same key, `bid`. A batch of the gem stands in Redis
as the hash `BID-<bid>`, which Pro never writes: where it is, the job is run and its end written as the gem would.
Where it is not, nobody knows whose the job is, and it is turned away as ever.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extension import Effect, EndKind, Extension, JobEnd, Payload, Pool, Verb
from sidekiq_py.payloads import dumps

KEY = "bid"
CALLBACK = "Sidekiq::Batch::Callback::Worker"
"""The gem's job that calls `on_complete` or `on_success` of a Ruby class."""

_LIBRARY = (Path(__file__).parent / "lua" / "sidekiq_batch.lua").read_text("utf-8")

# The library is made when a command of it comes, as the script also ends jobs of no such batch.
END = Verb(
    "SIDEKIQBATCH_END",
    f"""(function()
local function library()
{_LIBRARY}
return look, run
end
return {{
  look = function(key, words) local look = library() return look(key, words) end,
  run = function(key, words) local _, run = library() return run(key, words) end,
}}
end)()""",
)

# What people delete or kill, or a middleware of the client stops, the gem never hears of.
_OUTCOMES: Mapping[EndKind, str] = {
    "success": "ok",
    "retry": "failed",
    "dead": "failed",
    "discarded": "failed",
    "dropped": "failed",
    "interrupted": "failed",
    "invalidated": "failed",
}
# Each takes some hundred bytes.
_MOST_KNOWN = 10_000


class SidekiqBatchExtension(Extension):
    """The gem's batches. Loaded wherever sidekiq_py is installed."""

    name = "sidekiq_batch"
    phase = "count"
    # Workers that lack this extension watch the key anyhow.
    payload_keys: ClassVar[Mapping[str, str]] = {KEY: ""}
    verbs: ClassVar[Sequence[Verb]] = (END,)

    def __init__(self) -> None:
        # Batches that were there once: a job that comes when its batch is through is the gem's, too.
        self._known: set[str] = set()

    def takes_over(self, payload: Payload, pool: Pool) -> bool:
        """A job of a batch of the gem that is in Redis. Its callbacks are Ruby's classes, which only Ruby can call."""
        bid = payload[KEY]
        if not isinstance(bid, str) or payload.get("class") == CALLBACK:
            return False
        if bid not in self._known:
            if not _exists(pool, bid):
                return False
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known.add(bid)
        return True

    def end(self, end: JobEnd) -> Iterable[Effect]:
        """Count it as the gem does. The script writes nothing where the batch is gone, or is none of the gem's."""
        bid, outcome = end.payload.get(KEY), _OUTCOMES.get(end.kind)
        was_killed_by_hand = end.kind == "dead" and end.error is None
        if not isinstance(bid, str) or outcome is None or was_killed_by_hand:
            return ()
        stamp = dumps(end.dialect.stamp(end.now), end.dialect.float_text)
        return ((END.name, key_of(bid), bid, outcome, end.jid, repr(end.now), stamp, secrets.token_hex(16)),)


def _exists(pool: Pool, bid: str) -> bool:
    """Whoever may not look leaves the job to Ruby."""
    try:
        return bool(pool.command("EXISTS", key_of(bid)))
    except RedisReplyError as error:
        if error.code != "NOPERM":
            raise
        return False


def key_of(bid: str) -> str:
    """The hash of a batch."""
    return f"BID-{bid}"

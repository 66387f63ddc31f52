"""
The hooks: which jobs belong to the gem, and what is written when they end.

Sidekiq Pro and the gem sidekiq-batch store their batch's id under the same key, `bid`. The gem keeps a batch in the
hash `BID-<bid>`, which Pro never writes. If that hash exists, the job is run and settled as the gem would. If not, it
is unknown whose job it is, and it is turned away as usual.
"""

import os
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

# The library is only created when a command needs it, because the script also settles jobs without such a batch.
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

# The gem takes no notice of jobs that people delete or kill, or that a client middleware stops.
_OUTCOMES: Mapping[EndKind, str] = {
    "success": "ok",
    "retry": "failed",
    "dead": "failed",
    "discarded": "failed",
    "dropped": "failed",
    "interrupted": "failed",
    "invalidated": "failed",
}
# Each takes about a hundred bytes.
_MOST_KNOWN = 10_000


class SidekiqBatchExtension(Extension):
    """Support for the gem's batches. Loaded wherever sidekiq_py is installed."""

    name = "sidekiq_batch"
    phase = "count"
    # No text: workers without this extension turn jobs with this key away anyway.
    payload_keys: ClassVar[Mapping[str, str]] = {KEY: ""}
    verbs: ClassVar[Sequence[Verb]] = (END,)

    def __init__(self) -> None:
        # Batches that existed once. A job that comes after its batch has finished belongs to the gem, too.
        self._known: set[str] = set()

    def takes_over(self, payload: Payload, pool: Pool) -> bool:
        """
        True for a job of a gem's batch that is in Redis, except callbacks: they are Ruby classes, which only Ruby can
        call.
        """
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
        """Count it as the gem does. The script writes nothing if the batch is gone or is not the gem's."""
        bid, outcome = end.payload.get(KEY), _OUTCOMES.get(end.kind)
        was_killed_by_hand = end.kind == "dead" and end.error is None
        if not isinstance(bid, str) or outcome is None or was_killed_by_hand:
            return ()
        stamp = dumps(end.dialect.stamp(end.now), end.dialect.float_text)
        return ((END.name, key_of(bid), bid, outcome, end.jid, repr(end.now), stamp, os.urandom(16).hex()),)


def _exists(pool: Pool, bid: str) -> bool:
    """True if the batch exists. A user without the right to look leaves the job to Ruby."""
    try:
        return bool(pool.command("EXISTS", key_of(bid)))
    except RedisReplyError as error:
        if error.code != "NOPERM":
            raise
        return False


def key_of(bid: str) -> str:
    """The key of a batch's hash."""
    return f"BID-{bid}"

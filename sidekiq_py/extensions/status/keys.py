"""
The hash of a job's status, and the command that writes to it.

Up to 3.0.3, the gem has two other times: `update_time`, which each write sets, and `working_at`, the start of a run. A
hash that has the former gets both.

Source: sidekiq-status 3.0.3 and 4.0.0, storage.rb, client_middleware.rb, server_middleware.rb, worker.rb. All values
    are strings; all times are whole seconds since the epoch.
"""

from typing import TYPE_CHECKING, Any

from sidekiq_py.extension import Command, Verb
from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_dialect import dumps

if TYPE_CHECKING:
    # This loads all of the data API, so it is only imported if a job is declared with a status.
    from sidekiq_py.api.job_record import JobRecord

TTL_SECONDS = 30 * 60
PREFIX = "sidekiq:status:"


def of(jid: str) -> str:
    """The key of a job's status."""
    return PREFIX + jid


# A longer lifetime that a program gave its job is kept. The channel's name has the namespace of the key.
WRITE = Verb(
    "STATUS_WRITE",
    """{
  look = function(key)
    local is = redis.call('TYPE', key).ok
    if is ~= 'hash' and is ~= 'none' then return 'WRONGTYPE ' .. key .. ' is a ' .. is .. ', and not a hash' end
  end,
  run = function(key, words)
    redis.call('HSET', key, unpack(words, 2))
    if redis.call('HGET', key, 'update_time') then
      redis.call('HSET', key, 'update_time', words[3])
      for at = 4, #words, 2 do
        if words[at] == 'started_at' then redis.call('HSET', key, 'working_at', words[at + 1]) end
      end
    end
    if redis.call('TTL', key) < tonumber(words[1]) then redis.call('EXPIRE', key, words[1]) end
    local from, to = string.find(key, 'sidekiq:status:', 1, true)
    return redis.call('PUBLISH', string.sub(key, 1, from - 1) .. 'status_updates', string.sub(key, to + 1))
  end,
}""",
)

# The same for the script that settles the job: a status that cannot be written does not keep the job in flight.
END = Verb("STATUS_END", "{run = function(key, words) pcall(VERBS.STATUS_WRITE.run, key, words) end}")


def write(jid: str, now: float, fields: dict[str, Any], *, verb: Verb = WRITE) -> Command:
    """The command that writes *fields* and the time, and notifies subscribers."""
    # A lone surrogate, as in a file name, must not make the script fail that also settles the job.
    words = [str(part).encode(errors="backslashreplace") for pair in fields.items() for part in pair]
    return (verb.name, of(jid), TTL_SECONDS, "updated_at", int(now), *words)


def first_fields(record: "JobRecord", dialect: Dialect, enqueued_at: float) -> dict[str, Any]:
    """
    What a push writes.

    Source: sidekiq-status 4.0.0, client_middleware.rb, which writes an empty object if there are no arguments.
    """
    args = record.display_args
    older = {"update_time": int(enqueued_at)} if dialect.has_older_status_gem else {}
    return {
        "jid": record.jid,
        "status": "queued",
        "worker": record.display_class or record.klass,
        "args": dumps(args, dialect.float_text).decode() if args else "{}",
        "enqueued_at": int(enqueued_at),
        **older,
    }

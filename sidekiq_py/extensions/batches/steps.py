"""
The atomic steps that change a batch: run on their own, or as commands of the scripts that push and settle jobs.

`lua/batch.lua` describes what they do and what the keys hold.
"""

from functools import cache
from pathlib import Path
from typing import Any

from sidekiq_py.errors import RedisReplyError
from sidekiq_py.extensions.batches.errors import of_refusal
from sidekiq_py.extensions.batches.pretending import pretending
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.push import advised
from sidekiq_py.redis_access.job_path.verbs import Verb

FOLDER = Path(__file__).parent / "lua"

LIBRARY = (
    (FOLDER / "batch.lua")
    .read_text("utf-8")
    .replace("--@other_steps\n", (FOLDER / "other_steps.lua").read_text("utf-8"))
)
_STEP = (FOLDER / "step.lua").read_text("utf-8")

# The library is only created when a batch's command needs it, because the script also settles jobs outside of batches.
VERB = Verb(
    "BATCH_STEP",
    f"""(function()
local made, batch
local function library()
  if not made then made = (function()
{LIBRARY}
return {{batch_of = batch_of, look = look, run = run}}
end)() end
  return made
end
local function call(phase, key, words)
  local step = table.remove(words, 1)
  if not batch or batch.key ~= key then batch = library().batch_of(key) end
  return library()[phase](step, batch, words)
end
return {{
  look = function(key, words) return call('look', key, words) end,
  run = function(key, words) return call('run', key, words) end,
}}
end)()""",
)

ALL = "sidekiq_py:batches"
RUNNING = "sidekiq_py:batches:running"
INVALID = "sidekiq_py:batches:invalid"

# The steps that come before a push, for which a full Redis refuses the push, too.
_BEFORE_PUSHES = ("open", "reserve")

# The reply of `open` for a batch that keeps rows.
TRACKED = 2

RUBY_PROCESSES = "sidekiq_py:batches:ruby"

RECOVER_RUBY = Script.of_text("recover_ruby", (FOLDER / "recover_ruby.lua").read_text("utf-8"))


def ruby_runs_key(identity: str) -> str:
    """The key of the hash of the jobs that a Ruby process is running: jid to the job's bytes."""
    return f"sidekiq_py:batches:ruby:{identity}"


def recover_ruby(pool: Pool, identity: str) -> tuple[int, int]:
    """
    Push the jobs that a Ruby process was running when it died. Returns how many, and how many entries stay because
    another program has written them, or their queue's key.

    Raises:
        RedisError: As for `Pool.run`.
    """
    names = [RUBY_PROCESSES, ruby_runs_key(identity), identity, "queues"]
    pushed, left = pool.run(lambda link: RECOVER_RUBY.run(link, names, [identity]))
    return int(pushed), int(left)


def key(bid: str) -> str:
    """The key of a batch's hash, and the prefix of its other keys."""
    return f"sidekiq_py:batch:{bid}"


def blocks_key(bid: str) -> str:
    """The key of the hash of reserved blocks of numbers."""
    return f"{key(bid)}:blocks"


def pushes_key(bid: str, token: str) -> str:
    """The key of the hash that exists while the owner of the token may push with transactions."""
    return f"{key(bid)}:pushes:{token}"


def channel(bid: str) -> str:
    """The channel on which the changes of a tracked batch are published."""
    return f"{key(bid)}:changes"


@cache
def step_script() -> Script:
    """The script that runs a step on its own. It is long, and most processes never need it."""
    return Script.of_text("batch_step", LIBRARY + _STEP)


def command(step: str, bid: str, *words: Any) -> Command:
    """A step as a command of the script that pushes or settles jobs."""
    return (VERB.name, key(bid), step, *words)


def may_push(bid: str, *words: Any) -> Command:
    """The command that runs this step. The server must know the script, as it does once a batch was opened."""
    return step_script().call([key(bid)], ["may_push", *words])


def call(pool: Pool, step: str, bid: str, *words: Any, idempotent: bool = True) -> Any:
    """
    Run a step on its own.

    Args:
        idempotent: True if it may be sent again after a lost reply.

    Raises:
        BatchError: The batch refused the step.
        RedisError: As for `Pool.run`.
    """
    held = pretending()
    if held is not None:
        return held.run(step, bid, words)
    try:
        return pool.run(lambda link: step_script().run(link, [key(bid)], [step, *words]), idempotent=idempotent)
    except RedisReplyError as refusal:
        raise of_refusal(str(refusal)) or (advised(refusal) if step in _BEFORE_PUSHES else refusal) from refusal

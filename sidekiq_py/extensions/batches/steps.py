"""
The steps that change a batch, each atomic: by themselves, or as commands of the scripts that push and end jobs.

What they do and what the keys hold stands in `lua/batch.lua`.
"""

from pathlib import Path
from typing import Any

from sidekiq_py.extensions.batches.pretended import pretending
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.job_path.failed_jobs import Command
from sidekiq_py.redis_access.job_path.verbs import Verb

FOLDER = Path(__file__).parent / "lua"

LIBRARY = (FOLDER / "batch.lua").read_text("utf-8")

STEP = Script.of_text("batch_step", LIBRARY + (FOLDER / "step.lua").read_text("utf-8"))

# The library is made when a batch's command comes, as the script also ends jobs that are in none.
VERB = Verb(
    "BATCH_STEP",
    f"""(function()
local made
local function library()
  if not made then made = (function()
{LIBRARY}
return {{batch_of = batch_of, look = look, run = run}}
end)() end
  return made
end
local function call(phase, key, words)
  local step = table.remove(words, 1)
  return library()[phase](step, library().batch_of(key), words)
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

# What `open` replies of a batch that keeps rows.
TRACKED = 2

RUBY_PROCESSES = "sidekiq_py:batches:ruby"

RECOVER_RUBY = Script.of_text("recover_ruby", (FOLDER / "recover_ruby.lua").read_text("utf-8"))


def ruby_runs_key(identity: str) -> str:
    """The hash of what a Ruby process runs: jid to the job's bytes."""
    return f"sidekiq_py:batches:ruby:{identity}"


def recover_ruby(pool: Pool, identity: str) -> int:
    """
    Push what a Ruby process was running when it died; how many jobs.

    Raises:
        RedisError: As `Pool.run` does.
    """
    names = [RUBY_PROCESSES, ruby_runs_key(identity), identity, "queues"]
    return int(pool.run(lambda link: RECOVER_RUBY.run(link, names, [identity])))


def key(bid: str) -> str:
    """The hash of a batch; its other keys begin so."""
    return f"sidekiq_py:batch:{bid}"


def blocks_key(bid: str) -> str:
    """The hash of the blocks of numbers that were given out."""
    return f"{key(bid)}:blocks"


def pushes_key(bid: str, token: str) -> str:
    """The hash that is there while whose token it is may push by transactions."""
    return f"{key(bid)}:pushes:{token}"


def channel(bid: str) -> str:
    """Where the changes of a tracked batch are published."""
    return f"{key(bid)}:changes"


def command(step: str, bid: str, *words: Any) -> Command:
    """A step as a command of the script that pushes or ends jobs."""
    return (VERB.name, key(bid), step, *words)


def check_call(step: str, bid: str, *words: Any) -> Command:
    """The command of a step by itself; of a server that knows the script, as one does where a batch was opened."""
    return STEP.call([key(bid)], [step, *words])


def call(pool: Pool, step: str, bid: str, *words: Any, idempotent: bool = True) -> Any:
    """
    A step by itself.

    Args:
        idempotent: It may be sent again after a lost reply.

    Raises:
        RedisError: As `Pool.run` does.
        BatchError: Of a batch of a testing mode.
    """
    held = pretending()
    if held is not None:
        return held.run(step, bid, words)
    return pool.run(lambda link: STEP.run(link, [key(bid)], [step, *words]), idempotent=idempotent)

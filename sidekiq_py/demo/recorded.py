"""
The demo without Ruby: puts recordings of real Sidekiq into Redis byte for byte, and lets Python continue from there.

The recordings are taken from `ruby_fixtures/payloads/`. Their clock was fixed at 14 November 2023.
"""

import json
import time
from importlib.resources import files
from typing import NamedTuple

from sidekiq_py.api import Queue, RetrySet
from sidekiq_py.demo import recorded_jobs
from sidekiq_py.demo.crash import kill_and_recover
from sidekiq_py.demo.payload_view import members
from sidekiq_py.demo.programs import PythonConsole
from sidekiq_py.demo.record import NotSeenError
from sidekiq_py.demo.stage import Sent, Stage
from sidekiq_py.demo.step import Step
from sidekiq_py.wire import keys

JOBS = "sidekiq_py.demo.recorded_jobs"
QUEUE = "default"
SIDEKIQ_VERSION = "6.4.1"
NO_RUBY = (
    "Sidekiq is not installed here (on Debian: apt-get install ruby-sidekiq; elsewhere: install Ruby, then "
    "gem install sidekiq)"
)

_DIFFERS_EACH_TIME = ("jid", "created_at", "enqueued_at")


class Recording(NamedTuple):
    """
    What real Sidekiq wrote to Redis in one situation.

    Args:
        call: The line of Ruby; "" if it was not a push.
        score: The score of a member of a sorted set, else "".
    """

    call: str
    key: str
    payload: str
    score: str

    @property
    def jid(self) -> str:
        """The job's id."""
        return str(json.loads(self.payload)["jid"])


def recording(situation: str) -> Recording:
    """Load one of the recordings that come with the package."""
    whole = json.loads((files("sidekiq_py.demo") / "recorded" / f"{situation}.json").read_text("utf-8"))
    [payload] = whole["members"]
    return Recording(whole["input"].get("ruby", ""), whole["key"], payload, *(whole.get("scores") or [""]))


class Recorded:
    """
    The steps without Ruby.

    Args:
        stage: The stage, without any workers yet.
        reason: Why there is no Ruby.
    """

    runs, failures = 7, 1

    def __init__(self, stage: Stage, reason: str) -> None:
        self._stage = stage
        self._reason = reason
        self._python = PythonConsole(
            FixtureJob=recorded_jobs.fixture_job,
            CriticalJob=recorded_jobs.critical_job,
            Queue=Queue,
            RetrySet=RetrySet,
            time=time,
        )
        self._worker = stage.start_python(JOBS, QUEUE)

    def introduce(self) -> None:
        """Show which workers take part."""
        self._stage.wait_for_heartbeats()
        self._stage.screen.row(
            "ruby",
            f"{self._reason}. What real Sidekiq {SIDEKIQ_VERSION} wrote is played from a recording, byte for byte",
        )
        self._stage.introduce_python(self._worker, "FixtureJob", QUEUE)

    def steps(self) -> list[Step]:
        """The steps, in order."""
        return [
            Step("Python writes what Ruby writes", self._same_bytes),
            Step("Ruby's bytes are in the queue, Python runs them", self._ruby_to_python),
            Step("A job that failed in Ruby is retried by Python", self._failed_in_ruby),
            Step("A job from Ruby fails in Python and goes through the retry set", self._fails_in_python),
            Step("Scheduled jobs come due, Ruby's and Python's", self._scheduled),
            Step("Python is killed in the middle of a job, and nothing is lost", self._killed),
        ]

    def _same_bytes(self) -> None:
        recorded = recording("perform_async_custom_queue")
        self._stage.screen.say("The same call in both languages; Ruby's was recorded:")
        self._stage.screen.code("ruby", recorded.call, "(recorded)")
        self._stage.screen.redis(f"LPUSH {recorded.key}", recorded.payload)
        jid = str(self._python.run(recorded.call))
        seen = self._stage.tape.wait_for("LPUSH", recorded.key, jid)
        self._stage.screen.code("python", recorded.call, json.dumps(jid))
        self._stage.screen.redis(seen.line, seen.payload, before=recorded.payload)
        if _masked(seen.payload) != _masked(recorded.payload):
            raise NotSeenError("Python wrote different bytes than Ruby")
        # No worker serves this queue.
        line = 'Queue("critical").clear()'
        self._stage.screen.code("python", line, str(self._python.run(line)))
        self._stage.screen.seen("The same line, the same bytes; only the id and the times differ (~).")

    def _ruby_to_python(self) -> None:
        job = self._play("perform_async_every_json_type")
        self._stage.performed(self._worker, job, "FixtureJob ran with 15 arguments")
        self._stage.screen.seen("Python ran Ruby's bytes, big integers and all.")

    def _failed_in_ruby(self) -> None:
        self._stage.screen.say(
            "Real Ruby ran a job, and it raised. This is what Ruby put into the retry set, which is sorted by time:"
        )
        job = self._play("first_failure")
        self._stage.screen.say(
            "The score is the time of the next attempt. It has passed, so a poller moves the job to its queue at once:"
        )
        self._stage.enqueued_again(job, queue=QUEUE)
        self._stage.performed(self._worker, job, "FixtureJob ran")
        self._stage.screen.seen("Ruby failed, Python ran the retry.")

    def _fails_in_python(self) -> None:
        stage = self._stage
        (stage.folder / recorded_jobs.BROKEN).touch()
        job = self._play("push_by_name")
        stage.screen.say("Python runs it, and it raises. The worker puts it into the retry set, and records the error:")
        waiting = stage.failed(job, self._worker)
        (stage.folder / recorded_jobs.BROKEN).unlink()
        line = "next(iter(RetrySet())).reschedule(time.time() + 1)"
        stage.hurry(self._python, line, waiting, cause="The cause of the error is gone.")
        stage.enqueued_again(waiting, queue=QUEUE)
        stage.performed(self._worker, job, "FixtureJob ran")
        stage.screen.seen("Python failed, and ran the retry.")

    def _scheduled(self) -> None:
        stage = self._stage
        job = self._play("perform_in")
        stage.screen.say(
            "Its score is the time at which it is due. It has passed, so a poller moves the job to its queue at once:"
        )
        stage.enqueued_again(job, queue=QUEUE)
        stage.performed(self._worker, job, "FixtureJob ran")
        job = stage.schedule(self._python, 'FixtureJob.perform_in(3, "ok", 1)')
        stage.screen.say("When it is due, a poller moves it to its queue:")
        stage.due(job, queue=QUEUE)
        stage.performed(self._worker, job, "FixtureJob ran")
        stage.screen.seen("Python ran what Ruby had scheduled, and what it scheduled itself.")

    def _killed(self) -> None:
        (self._stage.folder / recorded_jobs.SLOW).touch()
        job = self._stage.enqueue(self._python, 'FixtureJob.perform_async("slow")', queue=QUEUE)
        kill_and_recover(
            self._stage,
            job,
            self._worker,
            start=lambda: self._stage.start_python(JOBS, QUEUE),
            begun="FixtureJob takes its time",
            let_go=recorded_jobs.SLOW,
            done="FixtureJob ran",
        )
        self._stage.screen.seen("The job outlived its worker and ran.")

    def _play(self, situation: str) -> Sent:
        """Put a recording into Redis, byte for byte as Ruby wrote it."""
        recorded = recording(situation)
        screen, pool = self._stage.screen, self._stage.pool
        if recorded.call:
            screen.code("ruby", recorded.call, "(recorded)")
        if recorded.score:
            pool.command("ZADD", recorded.key, recorded.score, recorded.payload)
        else:
            pool.batch(
                [("SADD", keys.QUEUES, recorded.key.partition(":")[2]), ("LPUSH", recorded.key, recorded.payload)]
            )
        seen = self._stage.tape.wait_for("LPUSH|ZADD", recorded.key, recorded.jid)
        screen.redis(seen.line, seen.payload)
        return Sent(recorded.jid, seen)


def _masked(payload: str) -> list[tuple[str, str]]:
    """The members in order, without the values that differ from run to run."""
    return [(name, "" if name in _DIFFERS_EACH_TIME else text) for name, text in members(payload).items()]

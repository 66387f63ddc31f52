"""
The demo with real Ruby: a shop whose Rails application mails receipts in Ruby and checks orders for fraud in Python.

Each side enqueues what the other runs.
"""

import time

import sidekiq_py as sidekiq
from sidekiq_py.api import ProcessSet, RetrySet
from sidekiq_py.demo.crash import kill_and_recover
from sidekiq_py.demo.programs import Console, Program, PythonConsole, Ruby, RubyConsole
from sidekiq_py.demo.record import NotSeenError
from sidekiq_py.demo.stage import Stage
from sidekiq_py.demo.step import Step

JOBS = "sidekiq_py.demo.jobs"
PYTHON_QUEUE, RUBY_QUEUE = "python", "mailers"


class Live:
    """
    The steps with real Ruby.

    Args:
        stage: The stage, without any workers yet.
        ruby: The versions of this machine's Ruby.
        console: The Ruby console.
    """

    runs, failures = 12, 2

    def __init__(self, stage: Stage, ruby: Ruby, console: RubyConsole) -> None:
        self._stage = stage
        self._ruby_versions = ruby
        self._ruby = console
        self._python = PythonConsole(
            SendReceipt=sidekiq.ruby_job("SendReceipt", queue=RUBY_QUEUE),
            ProcessSet=ProcessSet,
            RetrySet=RetrySet,
            sidekiq=sidekiq,
            time=time,
        )
        self._ruby_worker = stage.start_ruby(RUBY_QUEUE)
        self._python_worker = stage.start_python(JOBS, PYTHON_QUEUE)

    def introduce(self) -> None:
        """Show which workers take part."""
        self._stage.wait_for_heartbeats()
        versions = self._ruby_versions
        self._stage.screen.row(
            "ruby",
            f"Sidekiq {versions.sidekiq_version} on Ruby {versions.version}, pid {self._ruby_worker.pid}, "
            f'runs SendReceipt from the queue "{RUBY_QUEUE}"',
        )
        self._stage.introduce_python(self._python_worker, "FraudCheck", PYTHON_QUEUE)

    def steps(self) -> list[Step]:
        """The steps, in order."""
        return [
            Step("Each side sees the other's worker", self._see_each_other),
            Step("Python enqueues, Ruby runs it", self._python_to_ruby),
            Step("Ruby enqueues, Python runs it", self._ruby_to_python),
            Step("A job fails in Ruby and goes through the retry set", self._fails_in_ruby),
            Step("A job fails in Python and goes through the retry set", self._fails_in_python),
            Step("Scheduled jobs come due, one in each language", self._scheduled),
            Step("A batch of jobs in both languages calls back when all are done", self._batch),
            Step("Python is killed in the middle of a job, and nothing is lost", self._killed),
        ]

    def _see_each_other(self) -> None:
        self._stage.screen.say("A worker registers itself in Redis, and sends a heartbeat every few seconds.")
        wanted = {worker.pid for worker in self._stage.workers}
        for console, line in (
            (self._python, "[process.pid for process in ProcessSet()]"),
            (self._ruby, 'Sidekiq::ProcessSet.new.map { |process| process["pid"] }'),
        ):
            pids = console.run(line)
            if set(pids) != wanted:
                raise NotSeenError(f"{line} is {pids}, not the workers {sorted(wanted)}")
            self._stage.screen.code(console.language, line, str(pids))
        self._stage.screen.seen("Both data APIs, and so Ruby's Web UI, show both workers.")

    def _python_to_ruby(self) -> None:
        self._stage.screen.say(
            "A queue is a list in Redis, and a job is JSON: the class to run, its arguments, an id. A program pushes "
            "it on one end, and a worker takes it from the other."
        )
        job = self._stage.enqueue(
            self._python, 'SendReceipt.perform_async("A-1001", "ann@example.com")', queue=RUBY_QUEUE
        )
        self._stage.performed(self._ruby_worker, job, "receipt for A-1001")
        self._stage.screen.seen("Ruby ran what Python wrote, and could not tell the difference.")

    def _ruby_to_python(self) -> None:
        job = self._stage.enqueue(self._ruby, 'FraudCheck.perform_async("A-1001", 99.5)', queue=PYTHON_QUEUE)
        self._stage.performed(self._python_worker, job, "order A-1001")
        self._stage.screen.seen("Python ran what Ruby wrote.")

    def _fails_in_ruby(self) -> None:
        self._goes_round(
            self._python,
            'jid = SendReceipt.perform_async("A-1002", "cy@example.com")',
            queue=RUBY_QUEUE,
            worker=self._ruby_worker,
            cause="mail_server_down",
            hurry=(self._python, "RetrySet().find_job(jid).reschedule(time.time() + 1)"),
            repaired="The mail server is back up.",
            done="receipt for A-1002",
        )
        self._stage.screen.seen("Ruby failed, Python moved the retry, Ruby ran it.")

    def _fails_in_python(self) -> None:
        self._goes_round(
            self._ruby,
            'jid = FraudCheck.perform_async("A-1003", 12.0)',
            queue=PYTHON_QUEUE,
            worker=self._python_worker,
            cause="model_missing",
            hurry=(self._ruby, "Sidekiq::RetrySet.new.find_job(jid).reschedule(Time.now.to_f + 1)"),
            repaired="The model is available now.",
            done="order A-1003",
        )
        self._stage.screen.seen("Python failed, Ruby moved the retry, Python ran it.")

    def _goes_round(
        self,
        console: Console,
        line: str,
        *,
        queue: str,
        worker: Program,
        cause: str,
        hurry: tuple[Console, str],
        repaired: str,
        done: str,
    ) -> None:
        stage = self._stage
        (stage.folder / cause).touch()
        job = stage.enqueue(console, line, queue=queue)
        stage.screen.say(
            f"{worker.label.title()} runs it, and it raises. The worker puts it into the retry set, which is sorted by "
            "time, and records the error:"
        )
        waiting = stage.failed(job, worker)
        (stage.folder / cause).unlink()
        stage.hurry(hurry[0], hurry[1], waiting, cause=repaired)
        stage.enqueued_again(waiting, queue=queue)
        stage.performed(worker, job, done)

    def _scheduled(self) -> None:
        stage = self._stage
        stage.screen.say("Jobs for later wait in another sorted set, by the time at which they are due.")
        to_ruby = stage.schedule(self._python, 'SendReceipt.perform_in(3, "A-1004", "di@example.com")')
        to_python = stage.schedule(self._ruby, 'FraudCheck.perform_in(3, "A-1005", 7.25)')
        stage.screen.say("Three seconds later a poller moves them to their queues:")
        for job, queue, worker, done in (
            (to_ruby, RUBY_QUEUE, self._ruby_worker, "receipt for A-1004"),
            (to_python, PYTHON_QUEUE, self._python_worker, "order A-1005"),
        ):
            stage.due(job, queue=queue)
            stage.performed(worker, job, done)
        stage.screen.seen("Each ran the job that the other had scheduled.")

    def _batch(self) -> None:
        stage = self._stage
        stage.screen.say(
            "A batch groups jobs that belong together. Ruby opens one with a job for each language, and names a Python "
            "job to enqueue once both have succeeded:"
        )
        for line in (
            'batch = SidekiqPy::Batch.new.on(:success, {"class" => "DayClosed", "queue" => "python"}, "Monday")',
            'batch.jobs { SendReceipt.perform_async("A-1007", "eve@x.org"); FraudCheck.perform_async("A-1007", 3.5) }',
        ):
            self._ruby.run(line)
            stage.screen.code(self._ruby.language, line, None)
        bid = str(self._ruby.run("batch.bid"))
        for queue, worker, done in (
            (RUBY_QUEUE, self._ruby_worker, "receipt for A-1007"),
            (PYTHON_QUEUE, self._python_worker, "order A-1007"),
        ):
            job = stage.pushed(f'"sidekiq_py_batch":["{bid}"', queue=queue)
            stage.performed(worker, job, done)
        stage.screen.say("The job that finished last enqueued the callback, in the same script that settled it:")
        callback = stage.pushed('"DayClosed"', queue=PYTHON_QUEUE)
        stage.performed(self._python_worker, callback, "Monday is closed")
        line = f'sidekiq.Batch.find("{bid}").status().state'
        state = self._python.run(line)
        if state != "success":
            raise NotSeenError(f"{line} is {state!r}")
        stage.screen.code(self._python.language, line, repr(state))
        stage.screen.seen("Two languages, one batch, one callback.")

    def _killed(self) -> None:
        (self._stage.folder / "slow_bureau").touch()
        job = self._stage.enqueue(self._ruby, 'FraudCheck.perform_async("A-1006", 12000.0)', queue=PYTHON_QUEUE)
        kill_and_recover(
            self._stage,
            job,
            self._python_worker,
            start=lambda: self._stage.start_python(JOBS, PYTHON_QUEUE),
            begun="asking the credit bureau",
            let_go="slow_bureau",
            done="order A-1006",
        )
        self._stage.screen.seen("The job outlived its worker and ran.")

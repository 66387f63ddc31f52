"""start, done and fail: by the short way, through the program's own logging, and at a job's own level."""

import asyncio
import io
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from sidekiq_py import tid
from sidekiq_py.cli.log_setup import pick_format, set_up_logging
from sidekiq_py.engine.report.job_context import JobContext
from sidekiq_py.engine.report.job_logger import JobLogger
from sidekiq_py.engine.report.line_handler import LineHandler
from sidekiq_py.logs import PlainFormatter, running_payload

PAYLOAD = {"class": "HardWorker", "jid": "7", "args": []}
SetUp = Callable[..., io.StringIO]


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Logging as in a fresh program, put back after the test."""
    root, ours = logging.getLogger(), [logging.getLogger("sidekiq"), logging.getLogger("sidekiq.job")]
    before = [(logger, logger.level, logger.handlers[:], logger.filters[:]) for logger in (root, *ours)]
    yield
    running_payload.set(None)
    for logger, level, handlers, filters in before:
        logger.setLevel(level)
        logger.handlers[:], logger.filters[:] = handlers, filters


class Runs:
    """What a worker says of its runs; *is_on*: with the job log."""

    def __init__(self, *, is_on: bool = True) -> None:
        self._context = JobContext()
        self._log = JobLogger(self._context, "me:1:abc") if is_on else None

    def start(self, payload: dict[str, object]) -> None:
        self._context.enter(payload)
        self._emit("sidekiq.job.start", payload=payload)

    def done(self, seconds: float) -> None:
        self._emit("sidekiq.job.stop", payload=running_payload.get(), seconds=seconds)

    def fail(self, seconds: float) -> None:
        self._emit("sidekiq.job.exception", payload=running_payload.get(), seconds=seconds)

    def leave(self) -> None:
        self._context.leave()

    def _emit(self, name: str, **measurements: object) -> None:
        if self._log is not None:
            self._log(name, {"identity": "me:1:abc", **measurements})


def forget_pytests_handlers() -> None:
    """pytest listens at the root logger while a test runs; a worker's root logger is bare."""
    logging.getLogger().handlers.clear()


@pytest.fixture
def set_up() -> SetUp:
    """Sets up a worker's logging; returns what it writes."""

    def set_up(**options: object) -> io.StringIO:
        stream = io.StringIO()
        forget_pytests_handlers()
        settings = {"format_name": "plain", "level": logging.INFO, "generation": 7, "environment": {}, **options}
        set_up_logging(stream=stream, **settings)  # type: ignore[arg-type]
        return stream

    return set_up


def test_a_run_is_told_in_two_lines(set_up: SetUp) -> None:
    """The second has the seconds it took, to the millisecond."""
    log = set_up()
    logger = Runs()

    logger.start(PAYLOAD)
    logger.done(0.12349)
    logger.leave()

    started, done = log.getvalue().splitlines()
    assert started.endswith(f"tid={tid.current()} class=HardWorker jid=7 INFO: start")
    assert done.endswith("class=HardWorker jid=7 elapsed=0.123 INFO: done")


def test_a_failure_and_what_is_said_about_it_bear_the_job(set_up: SetUp) -> None:
    """Up to `leave` every line belongs to the job."""
    log = set_up()
    logger = Runs()

    logger.start(PAYLOAD)
    logger.fail(1.0)
    logging.getLogger("sidekiq").warning("it raised")
    logger.leave()
    logging.getLogger("sidekiq").warning("between jobs")

    _, fail, raised, between = log.getvalue().splitlines()
    assert fail.endswith("class=HardWorker jid=7 elapsed=1.0 INFO: fail")
    assert raised.endswith("class=HardWorker jid=7 WARN: it raised")
    assert "jid" not in between


def test_without_job_log_the_programs_lines_still_name_the_job(set_up: SetUp) -> None:
    """`--no-job-log` takes away two lines, not the context."""
    log = set_up()
    logger = Runs(is_on=False)

    logger.start(PAYLOAD)
    logging.getLogger("app").info("working")
    logger.done(0.1)

    [line] = log.getvalue().splitlines()
    assert line.endswith("class=HardWorker jid=7 INFO: working")


def test_jobs_of_another_worker_in_this_process_are_not_logged(set_up: SetUp) -> None:
    """Two embedded workers hear each other's events, and each job has its two lines once."""
    log = set_up()
    mine = JobLogger(JobContext(), "me:1:abc")

    for identity in ("me:1:abc", "other:1:def"):
        mine("sidekiq.job.start", {"payload": {**PAYLOAD, "jid": identity}, "identity": identity})

    [line] = log.getvalue().splitlines()
    assert "jid=me:1:abc" in line


def test_tasks_on_one_event_loop_log_as_themselves(set_up: SetUp) -> None:
    """Each asyncio task has a job and a tid of its own."""
    log = set_up()
    logger = Runs()

    async def run(slot: int) -> None:
        tid.take_slot(slot)
        logger.start({"class": "Sleeper", "jid": str(slot)})
        await asyncio.sleep(0)
        logger.done(0.0)

    async def run_both() -> None:
        await asyncio.gather(run(1), run(2))

    asyncio.run(run_both())

    facts = [line.split("tid=")[1].split(" elapsed")[0].split(" INFO")[0] for line in log.getvalue().splitlines()]
    names = [tid.of_thread(threading.get_ident(), slot=slot) for slot in (1, 2)]
    assert facts == [f"{name} class=Sleeper jid={slot}" for slot, name in enumerate(names, 1)] * 2


def test_a_handler_of_the_program_gets_records(set_up: SetUp) -> None:
    """Whoever listens beside us hears of every job: error trackers, test tools, files."""
    log = set_up()
    records: list[logging.LogRecord] = []
    listener = logging.Handler()
    listener.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(listener)
    logger = Runs()

    logger.start(PAYLOAD)
    logger.done(0.5)

    assert [record.getMessage() for record in records] == [
        "start class=HardWorker jid=7",
        "done class=HardWorker jid=7 elapsed=0.5",
    ]
    assert log.getvalue().splitlines()[1].endswith("class=HardWorker jid=7 elapsed=0.5 INFO: done")


def test_a_program_that_set_up_logging_keeps_it() -> None:
    """`basicConfig` or `dictConfig` in the program's code stays as it is."""
    own = io.StringIO()
    forget_pytests_handlers()
    logging.basicConfig(stream=own, format="%(name)s|%(message)s")

    handler = set_up_logging(format_name=None, level=logging.INFO, generation=7, environment={})
    Runs().start(PAYLOAD)

    assert handler is None
    assert own.getvalue() == "sidekiq.job|start class=HardWorker jid=7\n"


_DISABLES_LOGGERS = """
import logging.config
from sidekiq_py.cli.log_setup import set_up_logging
from sidekiq_py.engine.report.job_log_level import JOB_LOGGER_NAME
jobs = logging.getLogger(JOB_LOGGER_NAME)
terminal = {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}
logging.config.dictConfig({"version": 1, "handlers": {"terminal": terminal}, "root": {"handlers": ["terminal"]}})
set_up_logging(format_name=None, level=logging.INFO, generation=7, environment={})
logging.getLogger("sidekiq").warning("Job raised exception")
jobs.warning("fail")
"""


def test_a_program_that_disables_existing_loggers_still_hears_of_errors() -> None:
    """`dictConfig` and Django's `LOGGING` do so unless told otherwise. In its own interpreter, to spare pytest's."""
    ran = subprocess.run([sys.executable, "-c", _DISABLES_LOGGERS], capture_output=True, text=True, check=True)

    assert ran.stdout == "Job raised exception\nfail\n"


def test_a_payload_cannot_forge_a_line_in_a_programs_own_format() -> None:
    """Such a format writes the message as it is."""
    own = io.StringIO()
    forget_pytests_handlers()
    logging.basicConfig(stream=own, format="%(name)s|%(message)s")
    set_up_logging(format_name=None, level=logging.INFO, generation=7, environment={})

    Runs().start({"class": "X\r\nsidekiq.job|done class=Y", "jid": "\x1b[31m"})

    assert own.getvalue() == "sidekiq.job|start class=X\\r\\nsidekiq.job|done class=Y jid=\\x1b[31m\n"


def test_a_payload_cannot_forge_a_line_of_the_job_log(set_up: SetUp) -> None:
    """On the path without records."""
    log = set_up()

    Runs().start({"class": "X\r\n2026-11-26T00:00:00Z FAKE", "jid": "7"})

    [line] = log.getvalue().splitlines()
    assert line.endswith(r"class=X\r\n2026-11-26T00:00:00Z FAKE jid=7 INFO: start")


def test_a_format_asked_for_by_name_replaces_a_terminal_handler() -> None:
    """A file handler of the program stays, and nothing comes out twice on the terminal."""
    forget_pytests_handlers()
    logging.basicConfig(format="theirs %(message)s")
    memory = logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(memory)

    handler = set_up_logging(format_name="json", level=logging.INFO, generation=7, environment={})

    assert logging.getLogger().handlers == [memory, handler]


def test_a_quieter_logger_says_nothing(set_up: SetUp) -> None:
    """The level of `sidekiq.job` is the program's to set."""
    log = set_up()
    logging.getLogger("sidekiq.job").setLevel(logging.WARNING)

    Runs().start(PAYLOAD)

    assert log.getvalue() == ""


def test_a_job_with_a_level_of_its_own_says_more_than_others(set_up: SetUp) -> None:
    """`log_level: debug` opens this job's lines alone, and only while it runs."""
    log = set_up(level=logging.WARNING)
    logger, app = Runs(), logging.getLogger("app")

    logger.start({**PAYLOAD, "log_level": "debug"})
    app.debug("mine")
    other = threading.Thread(target=lambda: (logger.start({"class": "Other", "jid": "8"}), app.info("not mine")))
    other.start()
    other.join()
    logger.leave()
    app.info("after")

    lines = log.getvalue().splitlines()
    assert [line.split(" ", 3)[3] for line in lines] == [
        "class=HardWorker jid=7 INFO: start",
        "class=HardWorker jid=7 DEBUG: mine",
    ]
    assert logging.getLogger().level == logging.WARNING


def test_a_job_with_a_higher_level_says_less(set_up: SetUp) -> None:
    """`log_level: error` silences even start and done."""
    log = set_up()
    logger = Runs()

    logger.start({**PAYLOAD, "log_level": 3})
    logging.getLogger("app").warning("unheard")
    logger.done(0.1)
    logger.leave()
    logging.getLogger("app").warning("heard")

    [line] = log.getvalue().splitlines()
    assert line.endswith("WARN: heard")


def test_an_unknown_level_is_named_and_ignored(set_up: SetUp) -> None:
    """A mistyped level costs a line, not the job."""
    log = set_up()

    Runs().start({**PAYLOAD, "log_level": "loud"})

    warning, started = log.getvalue().splitlines()
    assert warning.endswith("WARN: Invalid log level: 'loud'")
    assert started.endswith("INFO: start")


def test_a_level_works_in_a_program_with_its_own_logging() -> None:
    """There our own loggers are opened, and the program's are left alone."""
    own = io.StringIO()
    forget_pytests_handlers()
    logging.basicConfig(stream=own, format="%(message)s", level=logging.WARNING)
    logger = Runs()

    logger.start({**PAYLOAD, "log_level": "debug"})
    logging.getLogger("sidekiq").debug("ours")
    logging.getLogger("app").info("theirs")
    logger.leave()

    assert own.getvalue().splitlines() == ["start class=HardWorker jid=7", "ours"]


@pytest.mark.parametrize(
    ("environment", "generation", "is_terminal", "expected"),
    [
        ({}, 7, True, "pretty"),
        ({}, 7, False, "pretty"),
        ({}, 8, True, "pretty"),
        ({}, 8, False, "plain"),
        ({"NO_COLOR": "1"}, 8, True, "plain"),
        ({"DYNO": "worker.1"}, 7, False, "without-timestamp"),
    ],
)
def test_the_format_follows_terminal_and_platform(
    environment: dict[str, str], generation: int, is_terminal: bool, expected: str
) -> None:
    """Heroku stamps lines itself; colour is for people."""
    assert pick_format(environment, generation, is_terminal=is_terminal) == expected


def test_the_short_way_is_left_when_logging_is_patched(set_up: SetUp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Error trackers patch `Logger.callHandlers` to see every record."""
    set_up()
    seen: list[str] = []
    monkeypatch.setattr(logging.Logger, "callHandlers", lambda _, record: seen.append(record.getMessage()))

    Runs().start(PAYLOAD)

    assert seen == ["start class=HardWorker jid=7"]


def test_only_a_line_handler_of_ours_is_written_to_directly() -> None:
    """A subclass may do more than write."""
    stream = io.StringIO()
    forget_pytests_handlers()

    class Counting(LineHandler):
        count = 0

        def emit(self, record: logging.LogRecord) -> None:
            self.count += 1
            super().emit(record)

    handler = Counting(PlainFormatter(), stream)
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)

    Runs().start(PAYLOAD)

    assert handler.count == 1

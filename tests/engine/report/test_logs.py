"""Log lines: Ruby's formats, on the standard library's logging."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sidekiq_py import logs, redaction, tid
from sidekiq_py.hooks import Hooks
from sidekiq_py.redaction import Redaction
from sidekiq_py.wire.json_writer import write_integer
from tests.support.missing_tools import skip_or_fail

AT = 1_700_000_000.25
PAYLOAD = {"class": "HardWorker", "jid": "b4a577edbccf1d805744efa9", "args": [], "queue": "default"}

_RUBY_PROGRAM = Path(__file__).with_name("ruby_log_lines.rb")
_NAMES = {"Pretty": "pretty", "WithoutTimestamp": "without-timestamp", "JSON": "json"}
_SITUATIONS: list[tuple[dict[str, Any], float | None, str]] = [
    (PAYLOAD, None, "start"),
    (PAYLOAD, 0.125, "done"),
    (PAYLOAD, 0.0, "fail"),
    ({**PAYLOAD, "wrapped": "MailJob"}, 12.5, "done"),
    ({**PAYLOAD, "wrapped": "MailJob", "display_class": "Mail"}, None, "start"),
    ({**PAYLOAD, "bid": "b-1", "tags": ["a", "b"]}, None, "start"),
    ({**PAYLOAD, "bid": None, "tags": []}, None, 'ünïcode "quoted" \\ and\ttab'),
    ({"class": "NoJid", "jid": None, "tags": None}, None, "two\nlines"),
]


@pytest.fixture
def as_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is said by process 1, thread `thread`."""
    monkeypatch.setattr(tid, "current", lambda: "thread")
    monkeypatch.setattr(logs.os, "getpid", lambda: 1)


@pytest.fixture(scope="module")
def lines_of_ruby() -> list[dict[str, str]]:
    """What Ruby Sidekiq writes in each of the situations, by the format's name."""
    questions = [{"payload": payload, "elapsed": elapsed, "message": text} for payload, elapsed, text in _SITUATIONS]
    command = ["ruby", "-W0", str(_RUBY_PROGRAM)]
    try:
        ran = subprocess.run(
            command, input="\n".join(map(json.dumps, questions)), capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        skip_or_fail("no Ruby; on Debian: apt-get install ruby-sidekiq", switch="SIDEKIQ_PY_REQUIRE_RUBY")
    if "LoadError" in ran.stderr:
        skip_or_fail("no Ruby Sidekiq; on Debian: apt-get install ruby-sidekiq", switch="SIDEKIQ_PY_REQUIRE_RUBY")
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture
def in_job() -> Iterator[None]:
    """The test runs as if it were a job."""
    mark = logs.running_payload.set(PAYLOAD)
    yield
    logs.running_payload.reset(mark)


@pytest.mark.ruby
@pytest.mark.usefixtures("as_thread")
@pytest.mark.parametrize("number", range(len(_SITUATIONS)))
@pytest.mark.parametrize("ruby_name", list(_NAMES))
def test_a_line_is_that_of_ruby_sidekiq_6(lines_of_ruby: list[dict[str, str]], ruby_name: str, number: int) -> None:
    """Whatever parses a Rails team's logs parses ours."""
    payload, elapsed, message = _SITUATIONS[number]
    formatter = logs.FORMATTERS[_NAMES[ruby_name]]()

    line = formatter.line("INFO", AT, formatter.context(payload, elapsed), message)

    assert line + "\n" == lines_of_ruby[number][ruby_name]


@pytest.mark.usefixtures("as_thread")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pretty", "\x1b[1;34mINFO \x1b[0m 2023-11-14T22:13:20.250Z pid=1 tid=thread jid=7 class=A elapsed=0.5: done"),
        ("plain", "INFO 2023-11-14T22:13:20.250Z pid=1 tid=thread jid=7 class=A elapsed=0.5: done"),
        ("without-timestamp", "\x1b[1;34mINFO \x1b[0m pid=1 tid=thread jid=7 class=A elapsed=0.5: done"),
        (
            "json",
            '{"ts":"2023-11-14T22:13:20.250Z","pid":1,"tid":"thread","lvl":"INFO","msg":"done",'
            '"ctx":{"jid":"7","class":"A","elapsed":0.5}}',
        ),
    ],
)
def test_sidekiq_8_puts_the_level_and_the_jid_first(name: str, expected: str) -> None:
    """Source: Sidekiq 8.1.7, logger.rb."""
    formatter = logs.FORMATTERS[name](generation=8)

    line = formatter.line("INFO", AT, formatter.context({"class": "A", "jid": "7"}, 0.5), "done")

    assert line == expected


def test_sidekiq_8_shows_the_attributes_it_is_told_to() -> None:
    """`logged_job_attributes` names keys of the payload; one that is there and null shows as nothing."""
    formatter = logs.FORMATTERS["plain"](generation=8, attributes=("tenant", "bid", "tags"))

    context = formatter.context({"class": "A", "jid": "7", "tenant": 5, "bid": None}, None)

    assert context == " jid=7 class=A tenant=5 bid="


@pytest.mark.usefixtures("as_thread", "in_job")
def test_a_line_logged_inside_a_job_says_whose_it_is() -> None:
    """The program's own messages bear the job's class and jid without its doing."""
    record = logging.LogRecord("app", logging.WARNING, "app.py", 1, "%d rows left", (3,), None)
    record.created = AT

    line = logs.PrettyFormatter().format(record)

    assert line == (
        "2023-11-14T22:13:20.250Z pid=1 tid=thread class=HardWorker jid=b4a577edbccf1d805744efa9 WARN: 3 rows left"
    )


@pytest.mark.usefixtures("as_thread")
def test_a_line_outside_of_jobs_names_none() -> None:
    """Between jobs nothing is said of one."""
    record = logging.LogRecord("app", logging.CRITICAL, "app.py", 1, "gone", (), None)
    record.created = AT

    assert logs.PrettyFormatter().format(record) == "2023-11-14T22:13:20.250Z pid=1 tid=thread FATAL: gone"
    assert json.loads(logs.JsonFormatter().format(record)).keys() == {"ts", "pid", "tid", "lvl", "msg"}


def test_an_exception_comes_out_with_its_traceback() -> None:
    """In JSON it has fields of its own, which log tools can search and group by; `msg` is the message alone."""
    try:
        raise ValueError("broken")
    except ValueError as error:
        record = logging.LogRecord("app", logging.ERROR, "app.py", 1, "job failed", (), (type(error), error, None))

    text = logs.PlainFormatter().format(record)
    parsed = json.loads(logs.JsonFormatter().format(record))

    assert text.endswith("ERROR: job failed\nValueError: broken")
    assert parsed["msg"] == "job failed"
    assert (parsed["error_class"], parsed["error_message"]) == ("ValueError", "broken")
    assert parsed["error_backtrace"] == "ValueError: broken"


@pytest.mark.parametrize("name", ["plain", "json"])
def test_a_long_message_of_an_error_is_cut_as_a_stored_one_is(name: str) -> None:
    """An error that quotes a whole reply of 5 MB would be in the log twice."""
    formatter, lines = logs.FORMATTERS[name](), []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(formatter.format(record))

    handler = Lines()
    logs.log.addHandler(handler)
    try:
        raise ValueError("a line\n" * 700_000)
    except ValueError as error:
        Hooks().report(error, {"context": "Job raised exception", "job": {"class": "A"}})
    finally:
        logs.log.removeHandler(handler)

    [text] = lines
    assert len(text) < 50_000
    assert text.count("a line") > 2 * 1_400
    assert "(4,900,000 characters)" in text


def test_an_error_of_a_job_names_class_and_queue_in_json(caplog: pytest.LogCaptureFixture) -> None:
    """As fields beside Ruby's, so that a log tool can group failures by job and by queue."""
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads("")

    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(
            raised.value,
            {"context": "Job raised exception", "job": {"class": "Import", "jid": "7", "queue": "low", "args": []}},
        )

    parsed = json.loads(logs.JsonFormatter().format(caplog.records[0]))

    assert parsed.keys() >= {"ts", "pid", "tid", "lvl", "msg"}
    assert {key: parsed[key] for key in ("error_class", "error_message", "job_class", "queue")} == {
        "error_class": "json.decoder.JSONDecodeError",
        "error_message": "Expecting value: line 1 column 1 (char 0)",
        "job_class": "Import",
        "queue": "low",
    }
    assert parsed["error_backtrace"].startswith("Traceback (most recent call last):")
    assert "json.decoder.JSONDecodeError: Expecting value" in parsed["error_backtrace"]


def test_an_outage_has_error_fields_and_no_job_in_json(caplog: pytest.LogCaptureFixture) -> None:
    """What is not there is left out, not written as null."""
    with caplog.at_level(logging.WARNING, "sidekiq"):
        Hooks().report(OSError("refused"), {"context": "heartbeat"})

    parsed = json.loads(logs.JsonFormatter().format(caplog.records[0]))

    assert set(parsed) == {"ts", "pid", "tid", "lvl", "msg", "error_class", "error_message"}


def test_json_carries_what_is_no_json() -> None:
    """A log line must come out whatever a payload holds."""
    formatter = logs.JsonFormatter()

    context = formatter.context({"class": "A", "jid": "\ud800", "tags": [2**80, {1, 2}]}, None)

    assert json.loads(context)["tags"][0] == 2**80


@pytest.mark.parametrize("name", logs.FORMAT_NAMES)
@pytest.mark.parametrize("key", ["jid", "wrapped", "bid", "tags"])
def test_integers_that_python_does_not_print_come_out_in_full(name: str, key: str) -> None:
    """More than 4,300 digits: if the line raised in the job's run, the job would never run."""
    value = int("0x" + "f" * 5000, 16)

    context = logs.FORMATTERS[name]().context(
        {"class": "A", "jid": "7", key: [value] if key == "tags" else value}, None
    )

    assert write_integer(value) in context


@pytest.mark.parametrize("key", ["class", "queue"])
def test_an_error_of_a_job_with_such_an_integer_is_logged(caplog: pytest.LogCaptureFixture, key: str) -> None:
    """If its line failed after the job's retry is written, no error handler would hear of it."""
    errors: list[BaseException] = []
    hooks = Hooks()
    hooks.on_error(lambda error, context: errors.append(error))
    value = int("0x" + "f" * 5000, 16)

    with caplog.at_level(logging.WARNING, "sidekiq"):
        hooks.report(OSError("refused"), {"context": "Job raised exception", "job": {"class": "A", key: value}})

    assert caplog.records[0].__dict__["job_class" if key == "class" else key] == write_integer(value)
    assert len(errors) == 1


@pytest.mark.usefixtures("in_job")
def test_the_filter_gives_other_formatters_the_job() -> None:
    """A program's own format can show `%(jid)s`."""
    record = logging.LogRecord("app", logging.INFO, "app.py", 1, "hello", (), None)

    assert logs.JobContextFilter().filter(record)

    shown = logging.Formatter("%(tid)s %(job_class)s %(jid)s %(message)s").format(record)
    assert shown == f"{tid.current()} HardWorker b4a577edbccf1d805744efa9 hello"


FORGED = "\x1b[31mX\r\n2026-11-26T00:00:00Z FAKE\x9b LINE\u202e\u2028"
ESCAPED = r"\x1b[31mX\r\n2026-11-26T00:00:00Z FAKE\x9b LINE\u202e\u2028"


def of_ours(message: str, *, name: str = "sidekiq", **extra: object) -> logging.LogRecord:
    """A record of the logger `sidekiq`, or of another one."""
    record = logging.LogRecord(name, logging.WARNING, "here.py", 1, "%s", (message,), None)
    record.__dict__.update(extra)
    return record


@pytest.mark.parametrize("generation", [7, 8])
@pytest.mark.parametrize("name", ["pretty", "plain", "without-timestamp"])
@pytest.mark.parametrize("key", ["class", "wrapped", "jid", "bid", "tags"])
def test_a_payload_cannot_forge_a_line(name: str, generation: int, key: str) -> None:
    """Nor send escapes to the terminal of whoever reads the log."""
    formatter = logs.FORMATTERS[name](generation=generation)
    payload = {**PAYLOAD, key: [FORGED] if key == "tags" else FORGED}

    with logs.log_context(payload):
        line = formatter.format(of_ours("late"))

    assert line.removeprefix("\x1b[1;33mWARN \x1b[0m").isprintable()
    assert ESCAPED in line


def test_a_message_of_ours_is_one_line() -> None:
    """An error's text may come from a payload."""
    assert logs.PlainFormatter().format(of_ours(f"no job {FORGED}")).endswith(f" WARN: no job {ESCAPED}")
    assert logs.PlainFormatter().format(of_ours(FORGED, name="sidekiq.web")).endswith(f" WARN: {ESCAPED}")
    # A file in UTF-8 cannot take the byte of a name that is not.
    assert logs.PlainFormatter().format(of_ours("no queue caf\udce9")).endswith(" WARN: no queue caf\\udce9")


def test_a_message_of_the_program_stays_as_it_is() -> None:
    """It may have colours and several lines on purpose."""
    shown = logs.PlainFormatter().format(of_ours("two\nlines in \x1b[31mred", name="app"))

    assert shown.endswith(" WARN: two\nlines in \x1b[31mred")


def test_a_dump_keeps_its_lines_and_loses_its_control_characters() -> None:
    """As the dump of all threads, whose lines may name a job's class."""
    shown = logs.PlainFormatter().format(of_ours("one\n\ttwo \x1b[31m\r", **logs.SEVERAL_LINES))

    assert shown.endswith("WARN: one\n\ttwo \\x1b[31m\\r")


def test_a_traceback_keeps_its_lines_and_loses_its_control_characters() -> None:
    """The text of the error may come from a payload."""
    record = of_ours("it failed", name="app")
    record.exc_info = (ValueError, ValueError("red \x1b[31m\nmore"), None)

    assert logs.PlainFormatter().format(record).endswith("WARN: it failed\nValueError: red \\x1b[31m\nmore")


@pytest.mark.parametrize("text", ["Straße \N{NO-BREAK SPACE}5", "👩\u200d💻", "全\u3000角", "مرحبا", "a\\nb", "\ue000"])
def test_ordinary_text_is_not_escaped(text: str) -> None:
    """Whatever the language; a backslash is not doubled."""
    formatter = logs.PlainFormatter()

    assert formatter.context({"class": text, "jid": "7"}, None) == f" class={text} jid=7"
    assert formatter.format(of_ours(text)).endswith(f"WARN: {text}")


def test_json_needs_no_escapes_of_ours() -> None:
    """Its strings have them, and readers get the text back."""
    with logs.log_context({**PAYLOAD, "class": FORGED}):
        line = logs.JsonFormatter().format(of_ours(FORGED))

    assert "\n" not in line
    assert (json.loads(line)["msg"], json.loads(line)["ctx"]["class"]) == (FORGED, FORGED)


def test_the_filter_gives_other_formatters_one_line() -> None:
    """`%(jid)s` of a program's own format cannot forge a line either."""
    record = of_ours("hello", name="app")
    with logs.log_context({**PAYLOAD, "jid": FORGED, "class": FORGED}):
        logs.JobContextFilter().filter(record)

    assert (record.__dict__["jid"], record.__dict__["job_class"]) == (ESCAPED, ESCAPED)


@pytest.mark.parametrize(
    ("name", "number"),
    [("debug", 10), ("WARN", 30), ("fatal", 50), (0, 10), (4, 50), (True, None), ("loud", None)],
)
def test_levels_have_rubys_names_and_numbers(name: object, number: int | None) -> None:
    """A payload's `log_level` may be either."""
    assert logs.level_number(name) == number


def test_an_integer_that_python_does_not_print_is_no_level() -> None:
    """A payload's `log_level` of more than 4,300 digits must not keep its job from running."""
    assert logs.level_number(10**5000) is None


def test_a_number_comes_with_its_noun() -> None:
    """One job, not 1 jobs."""
    assert [logs.counted(number, "job") for number in (0, 1, 1200)] == ["0 jobs", "1 job", "1,200 jobs"]


@pytest.fixture
def handled_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[logging.LogRecord], None]], None]:
    """Lines of this library go to a handler of the program with this `emit`, and nowhere else."""

    def use(emit: Callable[[logging.LogRecord], None]) -> None:
        handler = logging.Handler()
        monkeypatch.setattr(handler, "emit", emit)
        monkeypatch.setattr(logs.log, "handlers", [handler])
        monkeypatch.setattr(logs.log, "propagate", False)
        # Tests do without it.
        monkeypatch.setattr(logs.log, "handle", logs._handle_although_handlers_raise, raising=False)

    return use


def test_what_a_handler_raises_does_not_show_a_hidden_error(
    handled_by: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be printed as the context of the handler's own error."""

    def emit(record: logging.LogRecord) -> None:
        raise RuntimeError("the log server is gone")

    monkeypatch.setattr(redaction, "_current", Redaction(jobs={"HardWorker": ["error_message"]}))
    handled_by(emit)
    try:
        int("hunter2")
    except ValueError as error:
        Hooks().report(error, {"context": "Job raised exception", "job": PAYLOAD})

    shown = capsys.readouterr().err
    assert "RuntimeError: the log server is gone" in shown
    assert "hunter2" not in shown.replace('int("hunter2")', "")


def test_an_error_of_a_handler_that_cannot_be_reported_is_let_go(
    handled_by: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard error of a Celery worker leads to the same handlers: a stop would end at its first line."""

    def fail(*_: Any) -> None:
        raise RuntimeError("the log server is gone")

    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=fail, flush=fail))
    handled_by(fail)

    logs.log.warning("hello")


def test_a_handler_that_logs_here_itself_ends_with_a_recursion_error(handled_by: Callable[..., None]) -> None:
    """Reported at each of its hundreds of levels, it would go on for ever with two lines a level."""
    calls = 0

    def emit(record: logging.LogRecord) -> None:
        nonlocal calls
        calls += 1
        if calls < 10_000:
            logs.log.warning("one")
            logs.log.warning("two")

    handled_by(emit)
    with pytest.raises(RecursionError):
        logs.log.warning("hello")

    assert calls < 1000


def test_a_programs_own_class_of_loggers_handles_the_lines() -> None:
    """Such a class may change or drop lines in `handle`."""
    program = (
        "import logging\n"
        "class Marking(logging.Logger):\n"
        "    def handle(self, record):\n"
        "        record.msg = 'marked ' + record.msg\n"
        "        super().handle(record)\n"
        "logging.setLoggerClass(Marking)\n"
        "from sidekiq_py.logs import log\n"
        "log.warning('hello')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ran.stderr == "marked hello\n"

"""`top`: what it shows at any size, what its keys do on a real terminal, and `--once`."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sidekiq_py import program
from sidekiq_py.api import OverviewReader
from sidekiq_py.cli import top_view
from sidekiq_py.cli.top_view import SECTIONS, State, screen, worst_first
from tests.cli.test_queues import process
from tests.support.waiting import eventually


@pytest.fixture
def fleet(redis_client):
    """A Ruby and a Python process, two queues, a running job, three retries, and 12 jobs a second."""
    process(redis_client, "rails:1:aaaaaaaaaaaa", "default", "mailers", version="8.1.7")
    process(redis_client, "app:2:bbbbbbbbbbbb", "low", labels=["sidekiq_py"], version="8.1.7")
    redis_client.hset("rails:1:aaaaaaaaaaaa", mapping={"beat": time.time(), "busy": 1})
    redis_client.hset("app:2:bbbbbbbbbbbb", "beat", time.time())
    job = {"class": "Billing::ChargeCard", "args": ["card-42"], "jid": "0123456789abcdef01234567"}
    work = {"queue": "default", "payload": json.dumps(job), "run_at": int(time.time()) - 65}
    redis_client.hset("rails:1:aaaaaaaaaaaa:work", "t1", json.dumps(work))
    redis_client.sadd("queues", "default", "low")
    for number in range(7):
        redis_client.lpush("queue:low", json.dumps({**job, "jid": str(number), "queue": "low"}))
    for number in range(3):
        redis_client.zadd("retry", {json.dumps({**job, "jid": f"r{number}", "queue": "low", "retry": True}): 4e9})
    redis_client.mset({"stat:processed": 1234, "stat:failed": 5})
    return redis_client


@pytest.fixture
def overview(fleet, redis_url):
    """The overview of this fleet, as `top` reads it."""
    reader = OverviewReader(pool=redis_url)
    now = time.time()
    reader.read(now=now - 10)
    fleet.incrby("stat:processed", 120)
    yield reader.read(now=now)
    program.reset()


def shown(lines):
    """The texts of the lines."""
    return "\n".join(line.text for line in lines)


def test_a_wide_screen_shows_all_of_it(overview):
    """Numbers, rates, and the three tables."""
    text = shown(screen(overview, State(), 160, 30))

    assert re.search(r"12\.0/s processed  0\.0/s failed", text)
    assert "1 of 0 busy  7 enqueued  3 retries  0 dead" in text
    assert "7 enqueued  1 retry  0 dead" in shown(screen(replace(overview, retries=1), State(), 160, 30))
    assert re.search(r"rails:1:aaaaaaaaaaaa +ruby +8\.1\.7 +1/0 .* default,mailers", text)
    assert re.search(r"app:2:bbbbbbbbbbbb +python", text)
    assert re.search(r"low +7 ", text)
    assert re.search(r'1m \d+s +Billing::ChargeCard +ruby +default +\["card-42"\]', text)


@pytest.mark.parametrize("width", [10, 20, 40, 60, 79, 100])
@pytest.mark.parametrize("height", [1, 3, 8, 14, 24])
@pytest.mark.parametrize("has_help", [False, True])
def test_a_screen_of_any_size_is_filled_and_not_exceeded(overview, width, height, has_help):
    """The least important columns are dropped first, and then texts are cut."""
    for section in SECTIONS:
        lines = screen(overview, State(section=section, has_help=has_help), width, height)

        assert len(lines) == height
        assert max(len(line.text) for line in lines) <= width


def test_a_narrow_screen_keeps_what_matters(overview):
    """Names, how busy, how long: 40 columns are the width of a phone."""
    text = shown(screen(overview, State(), 40, 30))

    assert "rails:1" in text
    assert "1/0" in text
    assert "Billing" in text
    assert "VERSION" not in text


def test_a_low_screen_shows_the_chosen_section(overview):
    """Tab shows the next section."""
    state = State()
    first = shown(screen(overview, state, 80, 10))
    state.turn(1)
    second = shown(screen(overview, state, 80, 10))

    assert ("PROCESS (2)" in first, "QUEUE (2)" in first) == (True, False)
    assert ("PROCESS (2)" in second, "QUEUE (2)" in second) == (False, True)


def test_the_selected_row_stays_in_view(fleet, redis_url):
    """Among hundreds of rows, and even if others appear before it."""
    fleet.sadd("queues", *(f"q{number:03}" for number in range(300)))
    reader = OverviewReader(pool=redis_url)
    overview = reader.read()
    state = State(section="queues", selected={"queues": "q150"})

    selected = [line.text.split()[0] for line in screen(overview, state, 80, 30) if line.style == "selected"]
    fleet.sadd("queues", "a-new-one")
    reader.read()
    after = [line.text.split()[0] for line in screen(reader.read(), state, 80, 30) if line.style == "selected"]
    state.move(overview, 1)

    assert (selected, after, state.selected["queues"]) == (["q150"], ["q150"], "q151")


def test_what_needs_attention_is_at_the_top_of_the_screen(fleet, redis_url):
    """Among thousands of queues and processes, the worst would otherwise be off the screen."""
    fleet.sadd("queues", *(f"q{number:03}" for number in range(300)))
    fleet.lpush("queue:q200", *["{}"] * 20)
    fleet.lpush("queue:q150", json.dumps({"class": "A", "args": [], "enqueued_at": time.time() - 3600}))
    fleet.set("queue:q299", "no list")
    process(fleet, "silent:9:cccccccccccc", "low", version="8.1.7")

    overview = worst_first(OverviewReader(pool=redis_url).read())

    assert [queue.name for queue in overview.queues[:5]] == ["q299", "q150", "q200", "low", "default"]
    assert [one.identity.partition(":")[0] for one in overview.processes] == ["silent", "app", "rails"]


def test_the_row_that_is_shown_as_selected_stays_selected(fleet, redis_url):
    """The key p must not pause a queue that has just come to the top."""
    reader, state = OverviewReader(pool=redis_url), State(section="queues")
    screen(worst_first(reader.read()), state, 80, 30)
    fleet.lpush("queue:default", *["{}"] * 20)

    overview = worst_first(reader.read())

    assert overview.queues[0].name == "default"
    assert state.chosen(overview, "queues") == "low"


def test_only_the_rows_on_the_screen_are_formatted(fleet, redis_url, monkeypatch):
    """With 20,000 running jobs, each press of a key would otherwise take most of a second."""
    job = {"class": "A", "args": [1], "jid": "x"}
    work = json.dumps({"queue": "low", "payload": json.dumps(job), "run_at": 1})
    fleet.hset("rails:1:aaaaaaaaaaaa:work", mapping={f"t{number:03}": work for number in range(500)})
    overview, formatted = OverviewReader(pool=redis_url).read(), []
    monkeypatch.setattr(top_view, "shown", lambda job: formatted.append(job) or job)

    text = shown(screen(overview, State(section="jobs"), 120, 40))

    assert "RUNNING (501)" in text
    assert 0 < len(formatted) < 40


def test_hostile_names_move_no_cursor(fleet, redis_url):
    """Payloads come from anywhere."""
    process(fleet, "evil:1:cc", "\x1b[2Jqueue")
    fleet.sadd("queues", "\x1b]0;title\x07")
    work = {"queue": "x\ny", "payload": json.dumps({"class": "A\x1b[31m", "args": ["\x07"]}), "run_at": 1}
    fleet.hset("evil:1:cc:work", "t", json.dumps(work))

    text = shown(screen(OverviewReader(pool=redis_url).read(), State(), 200, 40))

    assert not re.search("[\x00-\x09\x0b-\x1f]", text)


def test_once_prints_it_and_exits(run, fleet):
    """As wide as necessary, with rates measured over the sample."""
    shown = run("top", "--once", "--sample", "0.05").output

    assert "/s processed" in shown
    assert "rails:1:aaaaaaaaaaaa" in shown
    assert '["card-42"]' in shown


@pytest.mark.parametrize("option", ["--sample", "--every"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300"])
def test_what_nobody_can_wait_for_is_refused(run, option, seconds):
    """A comparison with nan is always false, and the system cannot wait for inf."""
    result = run("top", "--once", option, seconds)

    assert result.exit_code == 2
    assert f"{seconds} is not a number of seconds to wait; give at most 31,622,400" in result.output


def test_once_as_json(run, fleet):
    """One document with numbers, queues, processes and running jobs."""
    document = json.loads(run("top", "--once", "--json", "--sample", "0").output)

    assert datetime.fromisoformat(document["at"]).tzinfo is UTC
    assert (document["processed"], document["retries"], document["rates"]) == (1234, 3, None)
    assert [(queue["name"], queue["size"]) for queue in document["queues"]] == [("default", 0), ("low", 7)]
    assert [one["is_python"] for one in document["processes"]] == [True, False]
    assert [(job["class"], job["language"]) for job in document["jobs"]] == [("Billing::ChargeCard", "ruby")]


def test_without_a_terminal_it_says_what_to_do(run, fleet):
    """A pipe only works with --once."""
    result = run("top")

    assert (result.exit_code, "sidekiq-py top --once" in result.output) == (2, True)
    assert run("top", "--json").exit_code == 2


class Terminal:
    """`sidekiq-py top` on a pseudo-terminal."""

    def __init__(self, process: subprocess.Popen[bytes], controller: int) -> None:
        self.process = process
        self._controller = controller
        self.output = ""

    def read(self) -> str:
        """All output so far."""
        while select.select([self._controller], [], [], 0)[0]:
            try:
                self.output += os.read(self._controller, 65536).decode(errors="replace")
            except OSError:
                break
        return self.output

    def until(self, text: str) -> None:
        """Wait until this text has appeared since the last key."""
        eventually(lambda: text in self.read())

    def press(self, keys: str) -> None:
        """Press keys."""
        self.read()
        self.output = ""
        os.write(self._controller, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Resize the window."""
        fcntl.ioctl(self._controller, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def settings(self) -> list[object]:
        """The terminal's settings, which a program must leave as it found them."""
        return termios.tcgetattr(self._controller)


@contextmanager
def on_screen(redis_url: str, rows: int = 30, columns: int = 120, **variables: str) -> Iterator[Terminal]:
    """Starts `top`, and stops it at the end of the block."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    usual = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "sidekiq_py", "top", "--every", "0.1"],
        env={**usual, "REDIS_URL": redis_url, "TERM": "xterm", "LC_ALL": "C.UTF-8", **variables},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    shown = Terminal(process, controller)
    try:
        yield shown
    finally:
        process.kill()
        process.wait(30)
        os.close(terminal)
        os.close(controller)


def test_it_shows_what_comes_and_quits(redis_url, fleet):
    """The terminal is left as it was before."""
    with on_screen(redis_url) as top:
        before = top.settings()
        top.until("rails:1:aaaaaaaaaaaa")
        top.until("low")
        fleet.sadd("queues", "brand-new")
        top.until("brand-new")
        top.press("q")
        assert top.process.wait(30) == 0
        assert top.settings() == before


def test_a_picture_that_does_not_change_sends_nothing(redis_url, fleet):
    """So it does not flicker: only the clock and changes are sent."""
    with on_screen(redis_url) as top:
        top.until("? keys")
        top.until("q quit")
        top.press("")
        eventually(lambda: len(top.read()) > 20)

        assert "rails:1" not in top.read()
        assert "\x1b[2J" not in top.read()


def test_keys_are_shown_by_a_question_mark(redis_url, fleet):
    """The same key hides them."""
    with on_screen(redis_url) as top:
        top.until("PROCESS (2)")
        top.press("?")
        top.until("quiet the selected process")
        top.press("?")
        top.until("PROCESS (2)")


@pytest.mark.parametrize(
    ("keys", "question", "sent"), [("u", "Quiet app:2:", b"TSTP"), ("js", "Stop rails:1:", b"TERM"), ("d", "", b"TTIN")]
)
def test_a_process_is_told_by_a_key(redis_url, fleet, keys, question, sent):
    """Quiet and stop ask first; any key but y means no."""
    identity = "rails:1:aaaaaaaaaaaa" if "j" in keys else "app:2:bbbbbbbbbbbb"
    with on_screen(redis_url) as top:
        top.until("PROCESS (2)")
        if question:
            top.press(keys)
            top.until(question)
            top.press("n")
            assert not fleet.exists(f"{identity}-signals")
            top.press(keys[-1])
            top.until(question)
            top.press("y")
        else:
            top.press(keys)
        eventually(lambda: fleet.lrange(f"{identity}-signals", 0, -1) == [sent])
        top.until("within ten seconds")


def test_a_selected_job_stands_for_its_process(overview):
    """A queue selects no process, so that no key acts on something the user has not looked at."""
    found = {section: State(section=section).chosen_process(overview) for section in SECTIONS}

    assert found == {"processes": "app:2:bbbbbbbbbbbb", "queues": None, "jobs": "rails:1:aaaaaaaaaaaa"}


def test_a_key_for_what_is_not_selected_does_nothing(redis_url, fleet):
    """The message says how to select one."""
    with on_screen(redis_url) as top:
        top.until("PROCESS (2)")
        top.press("p")
        top.until("Select a queue first")
        top.press("\ts")
        top.until("Select a process")
        assert fleet.exists("paused") == 0


def test_a_queue_is_paused_by_a_key_and_goes_on(redis_url, fleet):
    """The Ruby process that ignores the pause is named."""
    with on_screen(redis_url) as top:
        top.until("QUEUE (2)")
        top.press("\tjp")
        top.until("default is paused. Ruby processes without Sidekiq Pro keep fetching: rails:1:aaaaaaaaaaaa")
        assert fleet.smembers("paused") == {b"default"}
        top.press("p")
        # Without "is", which the last message has at the same place: what stays is not sent again.
        top.until("no longer paused.")
        assert fleet.exists("paused") == 0


def test_retries_are_enqueued_by_a_key(redis_url, fleet):
    """After a question that shows their number."""
    with on_screen(redis_url) as top:
        top.until("3 retries")
        top.press("r")
        top.until("Retry all 3 retries now? y/n")
        top.press("y")
        top.until("3 retries enqueued.")
        assert (fleet.zcard("retry"), fleet.llen("queue:low")) == (0, 10)


def test_the_question_about_a_single_retry_does_not_say_all(redis_url, fleet):
    """One retry is the only one."""
    fleet.zremrangebyrank("retry", 1, -1)

    with on_screen(redis_url) as top:
        top.until("1 retry")
        top.press("r")
        top.until("Retry the only retry now? y/n")


def test_it_follows_the_size_of_its_window(redis_url, fleet):
    """Down to the size of a phone, and back."""
    with on_screen(redis_url) as top:
        top.until("VERSION")
        top.press("")
        top.resize(10, 30)
        os.kill(top.process.pid, signal.SIGWINCH)
        top.until("PROCESS (2)")
        assert "VERSION" not in top.read()
        top.press("")
        top.resize(30, 120)
        os.kill(top.process.pid, signal.SIGWINCH)
        top.until("VERSION")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_leaves_the_terminal_in_order(redis_url, fleet, number, code):
    """Ctrl-C works like q."""
    with on_screen(redis_url) as top:
        before = top.settings()
        top.until("PROCESS (2)")
        top.process.send_signal(number)
        assert top.process.wait(30) == code
        assert top.settings() == before


def test_an_outage_is_told_and_passes(new_redis_server):
    """The last screen stays, and keys still work."""
    server = new_redis_server()
    with on_screen(server.url) as top:
        top.until("PROCESS (0)")
        server.kill()
        top.until("Trying again")
        server.start()
        top.until("sidekiq-py top")
        top.press("q")
        assert top.process.wait(30) == 0


def test_a_terminal_that_has_no_screen_is_told_what_to_do(redis_url, fleet):
    """For example the terminal of an editor or of a CI job."""
    with on_screen(redis_url, TERM="dumb") as top:
        assert top.process.wait(30) == 1
        top.until("sidekiq-py top --once")

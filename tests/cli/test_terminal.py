"""What the program does on a real terminal: questions and progress bars."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence

import pytest

LATER = 4_000_000_000


def on_terminal(redis_url: str, arguments: Sequence[str], typed: str = "") -> tuple[int, str, str]:
    """The exit code, standard output, and what the terminal showed of standard error."""
    controller, terminal = pty.openpty()
    os.write(controller, typed.encode())
    process = subprocess.Popen(
        [sys.executable, "-m", "sidekiq_py", *arguments],
        env={**os.environ, "REDIS_URL": redis_url, "TERM": "xterm"},
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    )
    os.close(terminal)
    output, _ = process.communicate(timeout=30)
    shown = b""
    try:
        while part := os.read(controller, 65536):
            shown += part
    except OSError:
        # Linux reports an error at the end of a terminal that no process has open any more.
        pass
    os.close(controller)
    return process.returncode, output, shown.decode()


def fill(redis_client, count):
    """Put jobs into `retry`."""
    job = {"retry": True, "queue": "default", "class": "Boom", "args": []}
    redis_client.zadd("retry", {json.dumps({**job, "jid": str(n)}): LATER + n for n in range(count)})


def test_a_long_operation_shows_a_bar(redis_url, redis_client):
    """On standard error, so that standard output can be piped."""
    fill(redis_client, 500)

    code, output, shown = on_terminal(redis_url, ["retries", "retry", "--all"])

    assert (code, output) == (0, "500 jobs enqueued.\n")
    assert "Retry" in shown
    assert "100%" in shown


def test_a_search_inside_redis_shows_a_bar(redis_url, redis_client):
    """While matching jobs are counted, and while they are moved."""
    fill(redis_client, 5000)

    code, output, shown = on_terminal(redis_url, ["retries", "delete", "--match", '"jid": "77"'], typed="y\n")

    assert (code, output.strip()) == (0, "1 job deleted.")
    assert "Look through" in shown
    assert "Delete 1 retry that matches? [y/N]" in shown
    assert shown.count("100%") >= 2


def test_a_list_with_a_filter_shows_a_bar(redis_url, redis_client):
    """A search through a million jobs takes a minute on a slow link. Without a filter, nothing is looked through."""
    fill(redis_client, 500)

    code, output, shown = on_terminal(redis_url, ["retries", "list", "--class", "Nope"])

    assert (code, output) == (0, "No jobs found.\n")
    assert "Look through" in shown
    assert "100%" in shown
    assert "Look through" not in on_terminal(redis_url, ["retries", "list"])[2]


def test_deleting_many_asks_first(redis_url, redis_client):
    """Answering no changes nothing."""
    fill(redis_client, 3)

    code, output, shown = on_terminal(redis_url, ["retries", "delete", "--all"], typed="n\n")

    # click 8.1.0 writes the space after the question there.
    assert (code, output.strip(" ")) == (1, "")
    assert "Delete all 3 retries? [y/N]" in shown
    assert redis_client.zcard("retry") == 3


def test_the_question_says_how_many_fit(redis_url, redis_client):
    """They are counted before the question, with a bar for the time that this takes."""
    fill(redis_client, 3)
    redis_client.zadd("retry", {'{"class":"Mail","args":[],"jid":"mail"}': LATER})

    code, output, shown = on_terminal(redis_url, ["retries", "delete", "--class", "Boom"], "n\n")

    assert (code, output.strip()) == (1, "")
    assert "Look through" in shown
    assert "Delete all 3 retries that match? [y/N]" in shown
    assert redis_client.zcard("retry") == 4


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["retries", "delete", "--class", "Nope"], "0 jobs deleted.\n"),
        (["dead", "delete", "--all"], "0 jobs deleted.\n"),
        (["queues", "clear", "low", "--class", "Nope"], "0 jobs deleted.\n"),
        (["queues", "move", "low", "high", "--create", "--class", "Nope"], "0 jobs moved to high.\n"),
    ],
)
def test_nothing_is_asked_about_no_jobs(redis_url, redis_client, arguments, printed):
    """The command says that it did nothing."""
    fill(redis_client, 3)
    redis_client.sadd("queues", "low")

    code, output, shown = on_terminal(redis_url, arguments, typed="n\n")

    assert (code, output, "[y/N]" in shown) == (0, printed, False)


def test_yes_means_yes(redis_url, redis_client):
    """The jobs are deleted."""
    fill(redis_client, 3)

    code, output, _ = on_terminal(redis_url, ["retries", "delete", "--all"], typed="y\n")

    assert (code, output.lstrip(" ")) == (0, "3 jobs deleted.\n")
    assert redis_client.zcard("retry") == 0


@pytest.mark.parametrize(("typed", "expected"), [("n\n", (1, "", "Old")), ("y\n", (0, "daily: replaced\n", "New"))])
def test_who_replaces_a_periodic_job_is_asked(redis_url, redis_client, typed, expected):
    """With what it is that would be lost."""
    redis_client.sadd("cron_jobs:default", "cron_job:default:daily")
    redis_client.hset("cron_job:default:daily", mapping={"name": "daily", "klass": "Old", "cron": "0 9 * * *"})

    code, output, shown = on_terminal(redis_url, ["cron", "add", "daily", "0 4 * * *", "New"], typed=typed)

    assert "Replace daily, a periodic job of Ruby's (Old at 0 9 * * *)? [y/N]" in shown
    assert (code, output.lstrip(" "), redis_client.hget("cron_job:default:daily", "klass").decode()) == expected


def test_no_bar_is_mixed_into_json(redis_url, redis_client):
    """A program reads the output."""
    fill(redis_client, 500)

    code, output, shown = on_terminal(redis_url, ["retries", "kill", "--all", "--yes", "--json"])

    assert (code, json.loads(output)["moved"], shown) == (0, 500, "")


def show_on_screen(redis_url: str, arguments: Sequence[str], columns: int) -> list[str]:
    """The lines of standard output that a terminal with so many columns shows."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "sidekiq_py", *arguments],
        env={**variables, "REDIS_URL": redis_url, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=terminal,
    )
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(controller, 65536):
            shown += part
    except OSError:
        # As above: no process has the terminal open any more.
        pass
    os.close(controller)
    assert process.wait(30) == 0
    return shown.decode().splitlines()


@pytest.mark.parametrize("columns", [1, 11])
def test_the_doctor_speaks_in_any_pane(redis_url, columns):
    """A terminal that is narrower than the label of a finding breaks its lines."""
    lines = show_on_screen(redis_url, ["doctor"], columns)

    assert "Processes" in "\n".join(lines)


@pytest.mark.parametrize("columns", [80, 100])
def test_a_list_fits_the_terminal(redis_url, redis_client, columns):
    """Long classes, arguments and errors are cut; ids are not."""
    job = {
        "class": "Billing::Invoices::SendReminderJob",
        "args": ["x" * 60],
        "queue": "default",
        "jid": "0123456789abcdef01234567",
        "error_class": "ValueError",
        "error_message": "y" * 80,
    }
    redis_client.zadd("retry", {json.dumps(job): LATER})

    lines = show_on_screen(redis_url, ["retries", "list"], columns)

    assert max(map(len, lines)) == columns
    assert lines[1].startswith(job["jid"])
    assert lines[1].count("…") == 3


def test_a_list_that_is_piped_is_not_cut_to_a_terminal(redis_url, redis_client):
    """Scripts read the output."""
    job = {"class": "C" * 39, "args": ["x" * 30], "queue": "default", "jid": "1", "error_class": "E" * 50}
    redis_client.zadd("retry", {json.dumps(job): LATER})

    _, output, _ = on_terminal(redis_url, ["retries", "list"])

    assert job["class"] in output
    assert "x" * 30 in output
    assert job["error_class"] in output


@pytest.mark.parametrize("arguments", [["stats"], ["dead", "--json"], ["--help"]], ids=lambda arguments: arguments[0])
def test_a_full_disk_is_told_in_one_sentence(redis_url, arguments):
    """And by the exit code: a script must not take half the output for all of it."""
    with open("/dev/full", "w") as full:
        done = _run(redis_url, arguments, stdout=full)

    assert done.returncode == 1
    assert done.stderr == "Error: The output could not be written: No space left on device.\n"


def test_a_command_runs_without_standard_output(redis_url, redis_client):
    """As some daemons and cron jobs start programs."""
    done = _run(redis_url, ["push", "Report"], closing=">&-")

    assert (done.returncode, done.stderr) == (0, "")
    assert redis_client.llen("queue:default") == 1


def test_programs_that_a_job_starts_can_print_without_standard_output(redis_url, tmp_path):
    """The command's own stream that discards is theirs, too."""
    ended = tmp_path / "ended"
    (tmp_path / "prints.py").write_text(
        f"import pathlib, subprocess\npathlib.Path({str(ended)!r}).write_text(str(subprocess.call(['echo', 'x'])))\n"
    )
    done = _run(redis_url, ["push", "Report", "-r", "prints"], closing="<&- >&-", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert ended.read_text() == "0"


def test_a_question_is_not_asked_without_standard_input(redis_url, redis_client):
    """The command says what to do instead, as where the input is no terminal."""
    redis_client.sadd("queues", "default")
    done = _run(redis_url, ["queues", "delete", "default"], closing="<&-")

    assert done.returncode == 2
    assert "there is no terminal to ask on; add --yes" in " ".join(done.stderr.split())


def _run(redis_url, arguments, *, closing="", **options):
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-m", "sidekiq_py", *arguments],
        env={**os.environ, "REDIS_URL": redis_url},
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
        **options,
    )

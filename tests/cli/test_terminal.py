"""What the program does on a real terminal: it asks, and shows progress."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence

LATER = 4_000_000_000


def on_terminal(redis_url: str, arguments: Sequence[str], typed: str = "") -> tuple[int, str, str]:
    """Exit code, standard output, and what the terminal showed on standard error."""
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
        # Linux reports the end of a terminal that nobody holds any more as an error.
        pass
    os.close(controller)
    return process.returncode, output, shown.decode()


def fill(redis_client, count):
    """Puts jobs into `retry`."""
    job = {"retry": True, "queue": "default", "class": "Boom", "args": []}
    redis_client.zadd("retry", {json.dumps({**job, "jid": str(n)}): LATER + n for n in range(count)})


def test_a_long_operation_shows_a_bar(redis_url, redis_client):
    """On standard error, so that standard output can be piped."""
    fill(redis_client, 500)

    code, output, shown = on_terminal(redis_url, ["retries", "retry", "--all"])

    assert (code, output) == (0, "500 jobs enqueued.\n")
    assert "Retry" in shown
    assert "100%" in shown


def test_deleting_many_asks_first(redis_url, redis_client):
    """No means no."""
    fill(redis_client, 3)

    code, output, shown = on_terminal(redis_url, ["retries", "delete", "--all"], typed="n\n")

    assert (code, output) == (1, "")
    assert "Delete all 3 jobs of 'retry'? [y/N]" in shown
    assert redis_client.zcard("retry") == 3


def test_yes_means_yes(redis_url, redis_client):
    """And they are gone."""
    fill(redis_client, 3)

    code, output, _ = on_terminal(redis_url, ["retries", "delete", "--all"], typed="y\n")

    assert (code, output) == (0, "3 jobs deleted.\n")
    assert redis_client.zcard("retry") == 0


def test_no_bar_is_mixed_into_json(redis_url, redis_client):
    """A program reads what comes."""
    fill(redis_client, 500)

    code, output, shown = on_terminal(redis_url, ["retries", "kill", "--all", "--yes", "--json"])

    assert (code, json.loads(output)["moved"], shown) == (0, 500, "")

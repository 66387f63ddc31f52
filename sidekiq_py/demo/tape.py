"""Records every command about jobs that Redis receives during the demo, and waits for particular ones."""

import threading
from typing import NamedTuple

from sidekiq_py.demo.record import Record
from sidekiq_py.redis_access.connection.monitor import SeenCommand, watch
from sidekiq_py.redis_access.connection.pool import Pool

# The private server stops long before this.
_TIMEOUT_SECONDS = 3600.0
_NAMES = frozenset((b"LPUSH", b"RPUSH", b"ZADD", b"ZINCRBY"))


class JobCommand(NamedTuple):
    """
    One command that put a job somewhere.

    Args:
        position: The position on the tape.
        at_seconds: When it ran by the server's clock, in seconds since the epoch.
        number: The score of ZADD or the increment of ZINCRBY, else "".
        payload: The job's bytes.
    """

    position: int
    at_seconds: float
    name: str
    key: str
    number: str
    payload: str

    @property
    def line(self) -> str:
        """The command without the payload."""
        return " ".join(word for word in (self.name, self.key, self.number) if word)


class Tape:
    """
    Records the commands that a server receives.

    Args:
        pool: Connections to the server.
    """

    def __init__(self, pool: Pool) -> None:
        self._record: Record[JobCommand] = Record()
        self._begin = 0
        commands = watch(pool.new_link(timeout_seconds=_TIMEOUT_SECONDS))

        def look_on() -> None:
            for command in commands:
                if command.words and command.words[0].upper() in _NAMES:
                    self._record.add(_job_command(self._record.position(), command))

        threading.Thread(target=look_on, name="sidekiq.demo/tape", daemon=True).start()

    def begin(self) -> None:
        """Look only at commands that arrive from now on."""
        self._begin = self._record.position()

    def wait_for(self, names: str, key: str, jid: str, *, after: JobCommand | None = None) -> JobCommand:
        """
        Wait for the first command on *key* about a job.

        Args:
            names: The command's name, such as `LPUSH`; separate several by `|`.
            jid: The job's id, or any other text in its bytes.
            after: Look only at commands after this one; else at all since `begin`.

        Raises:
            NotSeenError: No such command arrived in time.
        """
        wanted = names.split("|")
        return self._record.wait_for(
            lambda seen: seen.name in wanted and seen.key == key and jid in seen.payload,
            f"{names} {key} of {jid}",
            since=self._begin if after is None else after.position + 1,
        )


def _job_command(position: int, command: SeenCommand) -> JobCommand:
    words = [word.decode("utf-8", "backslashreplace") for word in command.words]
    # redis-rb sends the names in lower case.
    name = words[0].upper()
    number = words[2] if name.startswith("Z") else ""
    return JobCommand(position, command.at_seconds, name, words[1], number, words[-1])

"""The programs of the demo: a worker and a console in each language."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import sidekiq_py
from sidekiq_py.demo.record import NotSeenError, Record
from sidekiq_py.embedded import end, tied_to_this_process

_RUBY_FOLDER = Path(__file__).parent / "ruby"
_STOP_SECONDS = 12.0
_ASK_SECONDS = 30.0
# A child of the program may keep its output open.
_READ_SECONDS = 2.0


class Program:
    """
    One child process and the lines that it prints.

    Args:
        name: The name for messages.
        label: The label that the screen shows before its output.
        command: The program and its arguments.
        folder: The working directory.
        environment: All of its environment variables.
    """

    def __init__(
        self, name: str, label: str, command: Sequence[str], *, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.label = label
        self.lines: Record[str] = Record()
        self._begin = 0
        self._process = subprocess.Popen(
            tied_to_this_process(command),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C must reach only the demo, which then stops its programs in order.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"sidekiq.demo/{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True while the process runs."""
        return self._process.poll() is None

    def write_line(self, line: str) -> None:
        """Write a line to its standard input."""
        stdin = self._process.stdin
        if stdin is None or not self.is_running:
            raise NotSeenError(f"{self.name} has exited; the end of its output:\n{self.tail()}")
        stdin.write(line + "\n")
        stdin.flush()

    def begin(self) -> None:
        """Look only at output that is printed from now on."""
        self._begin = self.lines.position()

    def said(self, jid: str, text: str) -> str:
        """
        Wait for a line about a job that contains *text*; returns the line from *text* on.

        Raises:
            NotSeenError: No such line was printed in time.
        """
        what = f"{self.name} printing {text!r} of {jid}"
        line = self.lines.wait_for(lambda line: f"jid={jid}" in line and text in line, what, since=self._begin)
        return line[line.rindex(text) :]

    def tail(self) -> str:
        """The last lines of the output."""
        if not self.is_running:
            # They may not have been read yet.
            self._reader.join(_READ_SECONDS)
        return "\n".join(self.lines.last(15)) or "(it printed nothing)"

    def stop(self) -> int:
        """Send TERM and wait for the process to exit; returns its exit code."""
        code = end(self._process, _STOP_SECONDS)
        self._close()
        return code

    def kill(self) -> None:
        """Kill the process and everything that it has started, as a crash would (SIGKILL)."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _read(self) -> None:
        stdout = self._process.stdout
        for line in stdout or ():
            self.lines.add(line.rstrip("\n"))

    def _close(self) -> None:
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class Ruby(NamedTuple):
    """
    The Ruby of this machine.

    Args:
        version: The version of Ruby.
        sidekiq_version: The version of the Sidekiq gem.
    """

    version: str
    sidekiq_version: str


def find_ruby() -> Ruby | None:
    """Find Ruby with Sidekiq; returns None if it is not installed."""
    if shutil.which("ruby") is None or shutil.which("sidekiq") is None:
        return None
    question = 'require "sidekiq"; print RUBY_VERSION, " ", Sidekiq::VERSION'
    answer = subprocess.run(
        ["ruby", "-e", question], capture_output=True, text=True, check=False, timeout=_ASK_SECONDS
    ).stdout.split()
    return Ruby(*answer) if len(answer) == 2 else None


def write_ruby_support(folder: Path) -> None:
    """Write the file that Ruby needs for batches, as `sidekiq-py ruby-support > sidekiq_py.rb` does."""
    with (folder / "sidekiq_py.rb").open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "sidekiq_py", "ruby-support"],
            stdout=file,
            check=True,
            timeout=_ASK_SECONDS,
            env={**os.environ, "PYTHONPATH": _python_path()},
        )


def python_worker(jobs: str, queue: str, *, redis_url: str, folder: Path) -> Program:
    """Start `sidekiq-py worker -r <jobs> -q <queue>`."""
    command = [sys.executable, "-m", "sidekiq_py", "worker", "-r", jobs, "-q", queue, "-c", "2", "-t", "5"]
    variables = {**_environment(redis_url, folder), "PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"}
    return Program("the Python worker", "python", command, folder=folder, environment=variables)


def ruby_worker(queue: str, *, redis_url: str, folder: Path) -> Program:
    """Start `sidekiq -r <jobs> -q <queue>`."""
    command = ["sidekiq", "-r", str(_RUBY_FOLDER / "jobs.rb"), "-q", queue, "-c", "2", "-t", "5"]
    return Program("the Ruby worker", "ruby", command, folder=folder, environment=_environment(redis_url, folder))


class RubyConsole:
    """A Ruby program that runs the lines it is given. It enqueues jobs as a Rails application would."""

    language = "ruby"

    def __init__(self, *, redis_url: str, folder: Path) -> None:
        command = ["ruby", str(_RUBY_FOLDER / "console.rb")]
        self._program = Program("Ruby", "ruby", command, folder=folder, environment=_environment(redis_url, folder))

    def run(self, line: str) -> Any:
        """
        Run a line of Ruby; returns its value, transferred as JSON.

        Raises:
            NotSeenError: Ruby raised an error or did not answer.
        """
        position = self._program.lines.position()
        self._program.write_line(line)
        answer = self._program.lines.wait_for(
            lambda text: text.startswith("=> "), f"Ruby's answer to {line}", since=position
        )
        value = json.loads(answer.removeprefix("=> "))
        if "error" in value:
            raise NotSeenError(f"Ruby raised {value['error']} in {line}")
        return value["value"]

    def stop(self) -> None:
        """Stop the program."""
        self._program.kill()


class PythonConsole:
    """
    Runs lines of Python in this process, so that the screen shows exactly the code that ran.

    Args:
        names: The names that the lines can use.
    """

    language = "python"

    def __init__(self, **names: Any) -> None:
        self._names = names

    def run(self, line: str) -> Any:
        """Evaluate an expression; returns its value. `name = expression` also keeps it for later lines."""
        name, assigns, expression = line.partition(" = ")
        value = eval(expression if assigns else line, self._names)
        if assigns:
            self._names[name] = value
        return value


Console = RubyConsole | PythonConsole


def _python_path() -> str:
    """The import path for child processes, because the demo may run from a source tree that is not installed."""
    return os.pathsep.join(filter(None, [str(Path(sidekiq_py.__file__).parents[1]), os.environ.get("PYTHONPATH")]))


def _environment(redis_url: str, folder: Path) -> dict[str, str]:
    # These would point a program to another Redis, or to other keys.
    elsewhere = ("REDIS_PROVIDER", "SIDEKIQ_NAMESPACE")
    kept = {name: value for name, value in os.environ.items() if name not in elsewhere}
    return {**kept, "REDIS_URL": redis_url, "SIDEKIQ_DEMO_FOLDER": str(folder)}

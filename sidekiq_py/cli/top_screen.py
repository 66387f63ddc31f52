"""
`top` on a terminal: curses paints, one thread reads Redis, and one thread at a time runs the command of a key.

curses sends only the difference between the old and the new screen, so nothing flickers.
"""

import curses
import locale
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import click

from sidekiq_py.api import Overview, OverviewReader, Process, ProcessSet, Queue, RetrySet
from sidekiq_py.cli.top_view import Line, State, Style, screen, worst_first
from sidekiq_py.errors import SidekiqError
from sidekiq_py.logs import counted

_LOOK_MS = 100
_ESCAPE = 27
_KEYS_OF_HELP = {ord("?"), ord("h")}


def run(reader: OverviewReader, first: Overview, every_seconds: float) -> None:
    """
    Show the view until the user quits.

    Args:
        first: The overview to show first.
        every_seconds: How long to wait between two reads of Redis.

    Raises:
        ClickException: The terminal cannot show a full screen.
    """
    locale.setlocale(locale.LC_ALL, "")
    feed = _Feed(reader, first, every_seconds)
    # By default, TERM would end the process and leave the terminal in the state that curses has set.
    before = signal.signal(signal.SIGTERM, _leave)
    window = _open()
    try:
        feed.start()
        _Screen(window, feed).loop()
    except KeyboardInterrupt:
        # A way to quit, like q: the program did what it was asked to, so it exits with 0. So do procps' top and htop.
        pass
    finally:
        feed.stop()
        curses.endwin()
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _open() -> curses.window:
    os.environ.setdefault("ESCDELAY", "25")
    try:
        curses.setupterm()
        if not curses.tigetstr("cup"):
            raise curses.error("it cannot position the cursor")
        window = curses.initscr()
    except curses.error as error:
        name = os.environ.get("TERM") or "not set"
        raise click.ClickException(
            f"this terminal (TERM is {name}) cannot show a full screen: {error}. Use sidekiq-py top --once"
        ) from error
    curses.noecho()
    curses.cbreak()
    window.keypad(True)
    window.timeout(_LOOK_MS)
    # Some terminals cannot hide the cursor.
    with suppress(curses.error):
        curses.curs_set(0)
    return window


class _Feed:
    """Reads Redis repeatedly in a thread, so that a Redis that hangs does not block the keys."""

    def __init__(self, reader: OverviewReader, first: Overview, every_seconds: float) -> None:
        self.overview = worst_first(first)
        self.trouble = ""
        self.version = 0
        self._reader = reader
        self._every_seconds = every_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sidekiq.top/feed", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading, without waiting for a read in progress."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_seconds):
            try:
                self.overview, self.trouble = worst_first(self._reader.read()), ""
            except SidekiqError as error:
                self.trouble = f"{error} Trying again."
            self.version += 1


class _Work:
    """
    Runs the command of a key in a thread, one at a time.

    Attributes:
        message: The progress or the result, for the last line.
        is_busy: True while a command runs.
        stopping: Set to make a long command stop between two round trips.
    """

    def __init__(self) -> None:
        self.message = ""
        self.is_busy = False
        self.stopping = threading.Event()

    def start(self, act: Callable[[], str]) -> None:
        """Run *act*, which returns the message to show when it is done."""
        if self.is_busy:
            self.message = "Wait until the last command is done, or press x to stop it."
            return
        self.is_busy = True
        self.stopping.clear()

        def run() -> None:
            try:
                said = act()
            except SidekiqError as error:
                said = str(error)
            finally:
                # Before the message is set: the user may press the next key as soon as it shows.
                self.is_busy = False
            self.message = said

        threading.Thread(target=run, name="sidekiq.top/command", daemon=True).start()

    def report(self, done: int) -> None:
        """Show the progress."""
        self.message = f"{counted(done, 'retry', 'retries')} processed. Press x to stop."


class _Screen:
    """Handles keys and paints the screen, in a loop."""

    def __init__(self, window: curses.window, feed: _Feed) -> None:
        self._window = window
        self._feed = feed
        self._work = _Work()
        self._state = State()
        self._question: tuple[str, Callable[[], str]] | None = None
        self._styles = _styles()

    def loop(self) -> None:
        """Run until the user quits."""
        shown: object = None
        while True:
            key = self._window.getch()
            if key == ord("q") and self._question is None:
                return
            if key != -1:
                self._press(key)
            picture = (self._feed.version, self._work.message, self._question)
            if key != -1 or picture != shown:
                shown = picture
                self._paint()

    def _press(self, key: int) -> None:
        if key == curses.KEY_RESIZE:
            return
        if self._question is not None:
            (_, act), self._question = self._question, None
            self._work.message = ""
            if key in (ord("y"), ord("Y")):
                self._work.start(act)
            return
        state, overview = self._state, self._feed.overview
        if not self._work.is_busy:
            self._work.message = ""
        if key in _KEYS_OF_HELP or (state.has_help and key == _ESCAPE):
            state.has_help = not state.has_help
        elif key in (ord("\t"), curses.KEY_RIGHT):
            state.turn(1)
        elif key in (curses.KEY_BTAB, curses.KEY_LEFT):
            state.turn(-1)
        elif key in (curses.KEY_DOWN, ord("j")):
            state.move(overview, 1)
        elif key in (curses.KEY_UP, ord("k")):
            state.move(overview, -1)
        elif key == ord("x"):
            self._work.stopping.set()
        elif key == ord("r"):
            self._retry(overview)
        elif key == ord("p"):
            self._pause(overview)
        elif key in (ord("u"), ord("s"), ord("d")):
            self._signal(chr(key), overview)

    def _retry(self, overview: Overview) -> None:
        if not overview.retries:
            self._work.message = "The retry set is empty."
            return

        def retry() -> str:
            result = RetrySet().retry_all(self._work.report, stop=self._work.stopping.is_set)
            refused = f", {result.refused:,} could not be" if result.refused else ""
            return f"{counted(result.moved, 'retry', 'retries')} enqueued{refused}."

        retries = "the only retry" if overview.retries == 1 else f"all {overview.retries:,} retries"
        self._question = (f"Retry {retries} now? y/n", retry)

    def _pause(self, overview: Overview) -> None:
        # Only in the section of queues: elsewhere the user does not see which queue is selected.
        name = self._state.chosen(overview, "queues") if self._state.section == "queues" else None
        if name is None:
            self._work.message = "Select a queue first: press Tab to go to the queues."
            return

        def pause() -> str:
            queue = Queue(name)
            if queue.unpause():
                return f"{name} is no longer paused."
            queue.pause()
            ruby = [process.identity for process in ProcessSet().serving(name) if not process.is_python]
            others = f" Ruby processes without Sidekiq Pro keep fetching: {', '.join(ruby)}" if ruby else ""
            return f"{name} is paused.{others}"

        self._work.start(pause)

    def _signal(self, key: str, overview: Overview) -> None:
        identity = self._state.chosen_process(overview)
        process = next((one for one in overview.processes if one.identity == identity), None)
        if process is None:
            self._work.message = "Select a process, or a job that it runs, first: press Tab for the next section."
        elif key == "d":
            message = f"{process.identity} will log its threads' backtraces on {process.hostname}, within ten seconds."
            self._work.start(_signal_action(Process.dump_threads, process, message))
        elif key == "u":
            message = f"{process.identity} will fetch no more jobs, within ten seconds."
            self._question = (f"Quiet {process.identity}? y/n", _signal_action(Process.quiet, process, message))
        else:
            message = f"{process.identity} will begin to stop within ten seconds, and give its jobs time to finish."
            self._question = (f"Stop {process.identity}? y/n", _signal_action(Process.stop, process, message))

    def _paint(self) -> None:
        height, width = self._window.getmaxyx()
        self._state.trouble = self._feed.trouble
        self._state.message = self._question[0] if self._question else self._work.message
        # Leave the last column free: a character there would make some terminals scroll.
        lines = screen(self._feed.overview, self._state, width - 1, height)
        self._window.erase()
        for row, line in enumerate(lines):
            self._put(row, line, width)
        self._window.refresh()

    def _put(self, row: int, line: Line, width: int) -> None:
        text = line.text.ljust(width - 1) if line.style == "selected" else line.text
        encoding = locale.getpreferredencoding(False)
        text = text.encode(encoding, "replace").decode(encoding)
        # If the terminal has just become smaller, the next paint fits.
        with suppress(curses.error):
            self._window.addnstr(row, 0, text, width - 1, self._styles[line.style])


def _signal_action(signal_to: Callable[[Process], None], process: Process, message: str) -> Callable[[], str]:
    def send() -> str:
        signal_to(process)
        return message

    return send


def _styles() -> dict[Style, int]:
    styles: dict[Style, int] = {
        "": curses.A_NORMAL,
        "title": curses.A_BOLD,
        "heading": curses.A_BOLD | curses.A_UNDERLINE,
        "selected": curses.A_REVERSE,
        "warning": curses.A_BOLD,
        "dim": curses.A_DIM,
    }
    # https://no-color.org
    if not os.environ.get("NO_COLOR"):
        with suppress(curses.error):
            curses.start_color()
            curses.use_default_colors()
            curses.init_pair(1, curses.COLOR_YELLOW, -1)
            curses.init_pair(2, curses.COLOR_CYAN, -1)
            styles["warning"] = curses.color_pair(1)
            styles["heading"] = curses.color_pair(2) | curses.A_BOLD
    return styles

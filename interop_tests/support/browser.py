"""
A real headless browser: Chromium from a folder (`interop_tests.roots browser`), driven by Selenium.

Nothing is downloaded: the driver is the one that Debian ships with it, and this process starts it.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement

from interop_tests import roots
from tests.support.child_process import tail, tied_to_this_process
from tests.support.waiting import eventually

START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 10.0
_DRIVER_TRIES = 5
_TEXT_TRIES = 5
PAGE_TIMEOUT_SECONDS = 60.0

# Without a sandbox, because it runs in its own namespace and may be root there. The pipe needs no name for this host.
_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-lcd-text",
    "--remote-debugging-pipe",
)
_FONTS = """
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <alias><family>monospace</family><prefer><family>Liberation Mono</family></prefer></alias>
  <match><edit name="family" mode="append_last"><string>Liberation Sans</string></edit></match>
</fontconfig>
"""
# In one step, because a live page may change its rows while they are read.
_CELLS = """
return [...document.querySelectorAll("table")[arguments[0]].rows].map(
  row => [...row.querySelectorAll("td")].map(cell => cell.innerText.trim()))
"""
_HAS_COME = "return !window.isLeft && document.readyState === 'complete' && document.body !== null"
_STARTED = re.compile(r"started successfully on port (\d+)")


def why_missing() -> str | None:
    """Why no browser is available, in a sentence; None if there is one."""
    if roots.find("browser") is not None:
        return None
    return "there is no browser here; get it by: python -m interop_tests.roots browser"


class Browser:
    """
    One Chromium window with its own profile; both are removed at the end of the context.

    Args:
        width: The width of the window, in CSS pixels.
        height: The height of the window.
    """

    def __init__(self, *, width: int = 1280, height: int = 900) -> None:
        self._size = width, height
        self._folder = Path(tempfile.mkdtemp(prefix="sidekiq-py-browser-"))
        self._log = self._folder / "driver.log"
        self._driver_process: subprocess.Popen[bytes] | None = None
        self._driver: WebDriver | None = None

    def __enter__(self) -> Self:
        root = roots.find("browser")
        if root is None:
            raise RuntimeError(why_missing())
        try:
            port = self._start_driver(root)
            self._driver = webdriver.Remote(f"http://127.0.0.1:{port}", options=self._options())
            self._driver.set_page_load_timeout(PAGE_TIMEOUT_SECONDS)
        except BaseException:
            self._close()
            raise
        return self

    def _start_driver(self, root: roots.Root) -> int:
        """
        Start the driver, and return its port. The driver picks a port that is free for IPv6 and uses the same one for
        IPv4. If another process has it there, the driver exits. That happens on a machine with thousands of open
        connections.
        """
        for _ in range(_DRIVER_TRIES):
            with self._log.open("wb") as log:
                self._driver_process = subprocess.Popen(
                    tied_to_this_process(root.command("chromedriver", "--port=0")),
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "FONTCONFIG_FILE": str(self._fonts())},
                )
            try:
                port: int = eventually(self._port, within_seconds=START_TIMEOUT_SECONDS)
                return port
            except RuntimeError as error:
                ended = error
        raise ended

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def driver(self) -> WebDriver:
        """The Selenium driver of the window."""
        if self._driver is None:
            raise RuntimeError("the browser was not started; use it as a context manager")
        return self._driver

    def visit(self, url: str) -> str:
        """Open a page. Returns the text that it shows."""
        self.driver.get(url)
        eventually(self._has_come, within_seconds=PAGE_TIMEOUT_SECONDS)
        return self.text

    @property
    def text(self) -> str:
        """The text that the page shows; it is read again if the page changes in the meantime."""
        for _ in range(_TEXT_TRIES):
            with contextlib.suppress(StaleElementReferenceException):
                return self.find("body").text
        return self.find("body").text

    def find(self, selector: str) -> WebElement:
        """The first element that matches a CSS selector; if there is none, the error shows the page."""
        found = self.find_all(selector)
        if not found:
            raise AssertionError(f"no {selector} at {self.driver.current_url}, which shows:\n{self.text}")
        return found[0]

    def find_all(self, selector: str) -> list[WebElement]:
        """All elements that match a CSS selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def rows(self, table: int = 0) -> list[list[str]]:
        """The text of the cells in each row of a table, without its head; tables are counted from 0."""
        cells: list[list[str]] = self.driver.execute_script(_CELLS, table)
        return [row for row in cells if row]

    def press(self, selector: str) -> str:
        """
        Click a button or a link, confirm if the page asks, and wait for the next page. Returns the text shown.

        Sidekiq's releases ask with a script, which some Debian packages omit.
        """
        return self.leave(lambda: self.find(selector).click())

    def leave(self, act: Callable[[], object]) -> str:
        """Do something that leads to another page, and wait for that page. Returns the text shown."""
        self.driver.execute_script("window.isLeft = true")
        act()
        eventually(self._has_come, within_seconds=PAGE_TIMEOUT_SECONDS)
        return self.text

    def photograph(self, path: Path, *, width: int | None = None) -> None:
        """
        Write the whole page as PNG, without its background image, which is only noise.

        Args:
            width: In CSS pixels; by default the width of this window.
        """
        self.driver.execute_script("document.body.style.backgroundImage = 'none'")
        width = width or self._size[0]
        self.driver.set_window_size(width, self._size[1])
        frame = "window.outerHeight - window.innerHeight"
        height = int(self.driver.execute_script(f"return document.documentElement.scrollHeight + {frame}"))
        self.driver.set_window_size(width, height)
        path.write_bytes(self.driver.get_screenshot_as_png())
        self.driver.set_window_size(*self._size)

    def _options(self) -> webdriver.ChromeOptions:
        options = webdriver.ChromeOptions()
        # The script at /usr/bin/chromium needs more programs than the folder has.
        options.binary_location = "/usr/lib/chromium/chromium"
        # Accept the prompt whenever it appears: on a busy machine that may be after the click has returned, and the
        # first access to the page would dismiss it.
        options.unhandled_prompt_behavior = "accept"
        width, height = self._size
        for switch in (*_SWITCHES, f"--window-size={width},{height}", f"--user-data-dir={self._folder / 'profile'}"):
            options.add_argument(switch)
        return options

    def _fonts(self) -> Path:
        # The folder's packages are not configured, so nothing else maps font names to fonts.
        path = self._folder / "fonts.conf"
        path.write_text(_FONTS)
        return path

    def _port(self) -> int | None:
        assert self._driver_process is not None
        if self._driver_process.poll() is not None:
            raise RuntimeError(f"chromedriver ended at once; its log:\n{tail(self._log)}")
        started = _STARTED.search(self._log.read_text(errors="replace"))
        return int(started[1]) if started else None

    def _has_come(self) -> bool:
        # Between two pages there is a moment without a body, and one in which the driver has no page at all.
        try:
            return bool(self.driver.execute_script(_HAS_COME))
        except WebDriverException:
            return False

    def _close(self) -> None:
        if self._driver is not None:
            with contextlib.suppress(WebDriverException):
                self._driver.quit()
        if self._driver_process is not None:
            self._driver_process.terminate()
            try:
                self._driver_process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                self._driver_process.kill()
                self._driver_process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

"""Jobs that the command line's tests run in a worker."""

import logging
import os
import time

import sidekiq_py as sidekiq


@sidekiq.job(name="Note")
def note(text: str) -> None:
    """Write a text to the program's own log and to standard output."""
    logging.getLogger("app").info("noted %s", text)
    print(f"printed {text} in {os.environ['RAILS_ENV']}")


@sidekiq.job(name="Sleep")
def sleep(seconds: float) -> None:
    """Take a while."""
    time.sleep(seconds)


@sidekiq.job(name="Die")
def die() -> None:
    """End the process as a crash would."""
    os._exit(3)

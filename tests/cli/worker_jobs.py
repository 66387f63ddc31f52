"""Jobs that the tests of the command line let a worker run."""

import logging
import os
import time

import sidekiq_py as sidekiq


@sidekiq.job(name="Note")
def note(text: str) -> None:
    """Says a text in the program's own log and on standard output."""
    logging.getLogger("app").info("noted %s", text)
    print(f"printed {text} in {os.environ['RAILS_ENV']}")


@sidekiq.job(name="Sleep")
def sleep(seconds: float) -> None:
    """Takes a while."""
    time.sleep(seconds)


@sidekiq.job(name="Die")
def die() -> None:
    """Ends the process as a crash would."""
    os._exit(3)

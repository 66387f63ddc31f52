"""The file that a Ruby application copies, for its jobs to be steps of workflows."""

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner
from sidekiq_celery._extension import CeleryExtension
from sidekiq_celery.bin.celery import celery

from tests.support.worker_process import REPOSITORY, SOURCE_ROOTS

STEPS = REPOSITORY / "compat" / "sidekiq_celery" / "ruby" / "sidekiq_celery_steps.rb"


def test_the_ruby_file_is_printed(tmp_path: Path) -> None:
    """Byte for byte, from anywhere and without an app, so that it may be sent to where it belongs."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS)), "LC_ALL": "C"}

    printed = subprocess.run(
        [sys.executable, "-m", "sidekiq_celery", "ruby-steps"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=True,
    )

    assert printed.stdout == STEPS.read_bytes()


def test_the_extension_hands_the_same_file_to_sidekiq_py() -> None:
    """Whoever prints the Ruby code of all extensions has it, too."""
    assert CeleryExtension().ruby_code() == STEPS.read_text()


def test_an_app_that_cannot_be_imported_is_in_nobodys_way() -> None:
    """As where the environment names one that is elsewhere."""
    done = CliRunner().invoke(celery, ["-A", "no_such_app", "ruby-steps"])

    assert done.output == STEPS.read_text()


def test_help_says_where_the_ruby_file_belongs() -> None:
    """In Rails that is all there is to do."""
    done = CliRunner().invoke(celery, ["ruby-steps", "--help"])

    assert "sidekiq-celery ruby-steps > config/initializers/sidekiq_celery_steps.rb" in done.output

"""What is checked in under `ruby_fixtures/payloads` is what real Sidekiq writes today."""

import os
import subprocess
from pathlib import Path

import pytest

from interop_tests.support.ruby import RUBY_FIXTURES, RubyRelease

CHECKED_IN = RUBY_FIXTURES / "payloads"


@pytest.fixture(scope="module")
def recorded(ruby_release: RubyRelease, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh recording of the release, in a temporary folder."""
    folder = tmp_path_factory.mktemp("payloads")
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"} | dict(
        ruby_release.environment
    )
    subprocess.run(
        [*ruby_release.ruby, str(ruby_release.fixtures / "record.rb"), "--into", str(folder)],
        check=True,
        env=environment,
    )
    return folder / ruby_release.sidekiq_version


def test_a_new_recording_has_the_same_situations(ruby_release: RubyRelease, recorded: Path) -> None:
    """No situation was added, renamed or dropped without recording it."""
    checked_in = CHECKED_IN / ruby_release.sidekiq_version

    assert sorted(path.name for path in recorded.iterdir()) == sorted(path.name for path in checked_in.iterdir())


def test_a_new_recording_is_the_same_byte_for_byte(ruby_release: RubyRelease, recorded: Path) -> None:
    """A difference means that the gem, or a library below it, writes something else now: `record.rb` shows what."""
    checked_in = CHECKED_IN / ruby_release.sidekiq_version
    names = sorted(path.name for path in recorded.iterdir() if (checked_in / path.name).exists())

    drifted = [name for name in names if (recorded / name).read_bytes() != (checked_in / name).read_bytes()]

    assert [(name, (recorded / name).read_text()) for name in drifted] == [
        (name, (checked_in / name).read_text()) for name in drifted
    ]

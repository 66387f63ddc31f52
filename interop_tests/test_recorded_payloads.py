"""What is checked in under `ruby_fixtures/payloads` is what real Sidekiq writes today."""

import os
import subprocess
from pathlib import Path

import pytest

from interop_tests.support.ruby import RubyRelease
from tests.support.redis_server import RedisServer


@pytest.fixture(scope="module")
def recorded(ruby_release: RubyRelease, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh recording of the release, in a temporary folder."""
    redis_server.client().flushall()
    folder = tmp_path_factory.mktemp("payloads")
    environment = {**os.environ, **ruby_release.environment, "REDIS_URL": redis_server.url}
    subprocess.run(
        [*ruby_release.ruby, str(ruby_release.fixtures / "record.rb"), "--into", str(folder)],
        check=True,
        env=environment,
    )
    return folder / ruby_release.sidekiq_version


def test_a_new_recording_has_the_same_situations(ruby_release: RubyRelease, recorded: Path) -> None:
    """No situation was added, renamed or dropped without recording it."""
    checked_in = ruby_release.payloads

    assert sorted(path.name for path in recorded.iterdir()) == sorted(path.name for path in checked_in.iterdir())


def test_a_new_recording_is_the_same_byte_for_byte(ruby_release: RubyRelease, recorded: Path) -> None:
    """A difference means that the gem, or a library below it, writes something else now: `record.rb` shows what."""
    checked_in = ruby_release.payloads
    names = sorted(path.name for path in recorded.iterdir() if (checked_in / path.name).exists())

    drifted = [name for name in names if (recorded / name).read_bytes() != (checked_in / name).read_bytes()]

    assert [(name, (recorded / name).read_text()) for name in drifted] == [
        (name, (checked_in / name).read_text()) for name in drifted
    ]

"""What is checked in under `ruby_fixtures/payloads` is what real Sidekiq writes today."""

import re
from pathlib import Path

import pytest

from interop_tests.record import record
from interop_tests.support.ruby import RubyRelease

# A suite brings newer libraries from time to time; which ones wrote a file is for its reader.
_VERSIONS = re.compile(r'^ +"(sidekiq|ruby|json|active_job)": "[^"]*",?$', re.M)
# Where a suite has moved on to a release that was not recorded, the nearest older one stands for it.
_VERSION_IN_INFO = re.compile(r'\\"version\\":\\"[^"\\]*\\"')


@pytest.fixture(scope="module")
def recorded(ruby_release: RubyRelease, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh recording of the release, in a temporary folder."""
    return record(ruby_release, into=tmp_path_factory.mktemp("payloads"))


def test_a_new_recording_has_the_same_situations(ruby_release: RubyRelease, recorded: Path) -> None:
    """No situation was added, renamed or removed without recording it."""
    checked_in = ruby_release.payloads

    assert sorted(path.name for path in recorded.iterdir()) == sorted(path.name for path in checked_in.iterdir())


def test_a_new_recording_is_the_same_byte_for_byte(ruby_release: RubyRelease, recorded: Path) -> None:
    """A difference means that the gem, or a library that it uses, now writes something else: `record.rb` shows what."""
    checked_in = ruby_release.payloads
    names = sorted(path.name for path in recorded.iterdir() if (checked_in / path.name).exists())
    is_exact = checked_in.name == ruby_release.sidekiq_version

    drifted = [name for name in names if text(recorded / name, is_exact) != text(checked_in / name, is_exact)]

    assert [(name, (recorded / name).read_text()) for name in drifted] == [
        (name, (checked_in / name).read_text()) for name in drifted
    ]


def text(path: Path, is_exact: bool) -> str:
    """A recording without the versions that wrote it; the one in a heartbeat stays where it is the release's own."""
    content = _VERSIONS.sub("", path.read_text())
    return content if is_exact else _VERSION_IN_INFO.sub("", content)

"""The example in `ruby_fixtures/README.md` runs as it stands there."""

import re
import subprocess
import sys

from interop_tests.support.recordings import RECORDED
from interop_tests.support.ruby import RUBY_FIXTURES


def test_the_example_holds_a_writer_against_every_release() -> None:
    """With nothing but the standard library."""
    [program] = re.findall(r"```python\n(.*?)```", (RUBY_FIXTURES / "README.md").read_text(), re.S)

    ran = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=RUBY_FIXTURES.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert ran.stdout.splitlines() == [f"same bytes as Sidekiq {release}" for release in RECORDED]

"""
axe-core, which checks a page for accessibility problems; it is kept in the cache next to the Debian roots.

    python -m interop_tests.support.axe

fetches it with npm, about 600 kB. It is not part of the project and is never shipped: it only runs in the browser of
the tests.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from interop_tests import roots
from interop_tests.support.browser import Browser

VERSION = "4.14.1"
FETCH_TIMEOUT_SECONDS = 120

_MEMBER = "package/axe.min.js"
_RUN = "const done = arguments[arguments.length - 1]; axe.run().then(done, (error) => done(String(error)));"


def path() -> Path:
    """The path of axe-core in the cache."""
    return roots.folder() / f"axe-core-{VERSION}.js"


def why_missing() -> str | None:
    """Why axe-core is not available, in a sentence; None if it is."""
    return None if path().exists() else "axe-core is not here; get it by: python -m interop_tests.support.axe"


def fetch() -> Path:
    """Fetch axe-core with npm if necessary, and return its path."""
    target = path()
    if target.exists():
        return target
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"axe-core@{VERSION}"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=FETCH_TIMEOUT_SECONDS)
        [package] = Path(folder).glob("*.tgz")
        with tarfile.open(fileobj=io.BytesIO(package.read_bytes())) as archive:
            member = archive.extractfile(_MEMBER)
            assert member is not None
            script = member.read()
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(".new")
    fresh.write_bytes(script)
    fresh.rename(target)
    return target


def complaints(browser: Browser) -> list[str]:
    """The violations of the default rules on the open page: the rule, and the elements."""
    # The page's own policy allows no scripts from elsewhere, but it does not apply to the driver's scripts.
    browser.driver.execute_script(path().read_text())
    browser.driver.set_script_timeout(60)
    found: Any = browser.driver.execute_async_script(_RUN)
    if isinstance(found, str):
        raise AssertionError(f"axe-core failed: {found}")
    return [
        f"{violation['id']}: {violation['help']}: {json.dumps([node['html'] for node in violation['nodes']][:3])}"
        for violation in found["violations"]
    ]


if __name__ == "__main__":
    kept = fetch()
    print(f"axe-core {VERSION} {hashlib.sha256(kept.read_bytes()).hexdigest()[:12]} at {kept}", file=sys.stdout)

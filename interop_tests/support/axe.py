"""
axe-core, the rules by which a page is looked at for what keeps people out; kept in the cache beside the Debian roots.

    python -m interop_tests.support.axe

fetches it by npm, some 600 kB. It is no part of the project and is never shipped: it runs in the tests' browser alone.
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
    """Where it is kept."""
    return roots.folder() / f"axe-core-{VERSION}.js"


def why_missing() -> str | None:
    """Why it is not here, in a sentence; None when it is."""
    return None if path().exists() else "axe-core is not here; get it by: python -m interop_tests.support.axe"


def fetch() -> Path:
    """Fetch it by npm, unless it is here; where it is."""
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
    """What the default rules report about the page that is open: the rule, and the elements."""
    # The page's own policy lets no script in that comes from elsewhere; the driver's scripts are not asked.
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

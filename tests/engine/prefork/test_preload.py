"""What the parent of `--processes` loads for its children, and what it leaves to them."""

import signal
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PROGRAM = """
import os, sys
from pathlib import Path

here = Path(__file__).parent
before = set(sys.modules)
import sidekiq_py as sidekiq

@sidekiq.job
def report(): ...

@sidekiq.on("startup")
def note():
    (here / "writing").write_text("\\n".join(sorted(set(sys.modules) - before)))
    (here / "writing").rename(here / "loaded")
"""

FOREIGN = """
import os
from pathlib import Path
from sidekiq_py.extension import Extension

with open(Path(__file__).parent / "imported", "a") as file:
    file.write(f"{os.getpid()} {os.getppid()}\\n")


class Foreign(Extension):
    name = "foreign"
"""


def install(folder: Path, name: str, extension: str) -> None:
    """A package with an entry point."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[sidekiq_py.extensions]\n{name} = {extension}\n")


@pytest.fixture
def parent(redis_url: str, tmp_path: Path) -> WorkerProcess:
    """With one child, and an extension of a package of its own."""
    (tmp_path / "shop.py").write_text(PROGRAM)
    (tmp_path / "foreign_extension.py").write_text(FOREIGN)
    install(tmp_path, "foreign", "foreign_extension:Foreign")
    worker = WorkerProcess(
        "shop", redis_url=redis_url, arguments=["--processes", "1"], environment={"PYTHONPATH": str(tmp_path)}
    )
    worker.start()
    return worker


def test_a_child_finds_all_of_the_library_loaded(parent: WorkerProcess, tmp_path: Path) -> None:
    """But for what its program asks for: with 200 children the rest would take most of 29 seconds."""
    eventually((tmp_path / "loaded").exists)

    loaded = (tmp_path / "loaded").read_text().split()
    parent.kill()

    # What an extension imports only when a worker asks it what it maintains.
    maintenance = {"sidekiq_py.extensions.batches.ruby_runs", "sidekiq_py.extensions.batches.lifecycle_events"}
    ours = ("sidekiq_py.extensions", "sidekiq_celery", "redis", "encodings")
    assert {name for name in loaded if name.startswith(ours)} <= maintenance


def test_a_child_imports_extensions_of_others_itself(parent: WorkerProcess, tmp_path: Path) -> None:
    """They may import the program, of which a parent loads nothing."""
    eventually((tmp_path / "loaded").exists)

    imported = (tmp_path / "imported").read_text().splitlines()
    pid = parent.pid
    parent.kill()

    [(_, its_parent)] = [line.split() for line in imported]
    assert its_parent == str(pid)


def test_a_child_finds_extensions_where_its_program_alone_looks(redis_url: str, tmp_path: Path) -> None:
    """As a worker without a parent does: a folder with the program's own copies of packages."""
    vendored = tmp_path / "vendored"
    vendored.mkdir()
    (tmp_path / "shop.py").write_text(f"import sys\nsys.path.append({str(vendored)!r})\n{PROGRAM}")
    (vendored / "foreign_extension.py").write_text(FOREIGN)
    install(vendored, "foreign", "foreign_extension:Foreign")
    worker = WorkerProcess("shop", redis_url=redis_url, arguments=["--processes", "1"], python_path=[tmp_path])

    worker.start()

    eventually((tmp_path / "loaded").exists)
    assert (vendored / "imported").exists()
    worker.kill()


def test_hup_finds_what_was_installed_meanwhile(parent: WorkerProcess, tmp_path: Path) -> None:
    """And one that cannot be imported harms nobody: each child says so."""
    eventually((tmp_path / "loaded").exists)
    (tmp_path / "later_extension.py").write_text(FOREIGN.replace("imported", "later").replace("foreign", "later"))
    install(tmp_path, "later", "later_extension:Foreign")
    install(tmp_path, "gone", "sidekiq_py.extensions.gone:Gone")

    parent.send_signal(signal.SIGHUP)

    eventually((tmp_path / "later").exists)
    eventually(lambda: "the extension gone (sidekiq_py.extensions.gone:Gone) cannot be used" in parent.log)
    parent.send_signal(signal.SIGTERM)
    assert parent.wait() == 0

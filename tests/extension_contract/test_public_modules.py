"""The modules on which packages above sidekiq_py build."""

import subprocess
import sys
import threading
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import sidekiq_py
from sidekiq_py.loaded_extensions import LoadedExtensions

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["extension", "payloads", "pushing", "worker", "consumer"])
def test_every_public_name_is_there_and_its_module_says_what_it_is_for(name: str) -> None:
    """A name that is listed and missing would only be noticed by who imports it."""
    module = import_module(f"sidekiq_py.{name}")

    assert module.__doc__
    assert [one for one in module.__all__ if not hasattr(module, one)] == []


@pytest.mark.parametrize("name", ["extension", "payloads", "pushing"])
def test_who_pushes_loads_no_engine(name: str) -> None:
    """Nor does an extension that has no worker."""
    program = (
        f"import sys, sidekiq_py.{name}; print([one for one in sys.modules if one.startswith('sidekiq_py.engine')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )

    assert done.stdout.strip() == "[]"


def test_the_release_is_that_of_the_installed_package() -> None:
    """Read when it is asked for: few programs do."""
    assert sidekiq_py.__version__ == version("sidekiq-py")


def test_the_names_of_extensions_are_there_for_all_threads_that_ask_first() -> None:
    """As in a web server whose first requests come together."""
    extensions, together, found = LoadedExtensions(), threading.Barrier(8), []

    def ask() -> None:
        together.wait()
        found.append(extensions.lookup("Batch", lambda extension: extension.public_names))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == ["sidekiq_py.extensions.batches.batch"] * 8


def test_the_private_redis_of_tests_is_loaded_by_who_asks_for_it() -> None:
    """Most tests need none."""
    program = (
        "import sys, sidekiq_py.testing as testing\n"
        "assert 'sidekiq_py.embedded' not in sys.modules\n"
        "with testing.PrivateRedis() as server:\n"
        "    print(server.url)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )

    assert done.stdout.startswith("redis://")

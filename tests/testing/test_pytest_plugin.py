"""The pytest plug-in, tested in a separate pytest."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.support.documents import python_examples

ROOT = Path(__file__).parents[2]


def python(*arguments, cwd=ROOT):
    """Run Python with the project on its path; returns its output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        # If the project is installed, its entry point would load the plug-in a second time.
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'compat'}", "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_fixture_keeps_jobs_in_memory(tmp_path):
    """Each test has its own jobs, from all threads, and the report shows the failure's message."""
    tmp_path.joinpath("test_program.py").write_text(
        """
import threading
import sidekiq_py as sidekiq

@sidekiq.job(name="Mailer")
def mail(to): ...

def test_a_push_is_kept(sidekiq_jobs):
    threading.Thread(target=mail.perform_async, args=["bob"]).run()
    sidekiq_jobs.assert_enqueued(mail, args=["bob"])

def test_each_test_has_its_own(sidekiq_jobs):
    sidekiq_jobs.refute_enqueued(mail)
    mail.perform_async("al")
    sidekiq_jobs.assert_enqueued(mail, args=["bob"])
"""
    )

    report = python("-m", "pytest", "-q", "-p", "sidekiq_py.pytest_plugin", "-p", "no:cacheprovider", cwd=tmp_path)

    assert "1 failed, 1 passed" in report
    assert "no Mailer with args ['bob'] is enqueued." in report
    assert "Mailer('al') on queue 'default'  <- args differ" in report
    assert "enqueued.py" not in report, "the library's own lines say nothing to who reads a failed test"


OFF_REDIS = """
import asyncio
import pytest
import sidekiq_py as sidekiq
from sidekiq_py import testing
from sidekiq_py.api import Queue
from sidekiq_py.errors import RedisConnectionError, WrongModeError

sidekiq.configure(redis_url="redis://127.0.0.1:1/0")

@sidekiq.job(name="Mailer")
def mail(to): ...

mail.perform_async("enqueued while the file is imported")

@pytest.mark.parametrize("to", ["bob", "al"])
def test_pushes_are_kept_and_each_test_begins_with_none(to):
    mail.perform_async(to)
    asyncio.run(mail.aperform_async(to))
    testing.assert_enqueued(mail, args=[to], count=2)
    assert testing.drain() == 2

def test_the_fixture_still_works(sidekiq_jobs):
    mail.perform_async("bob")
    sidekiq_jobs.assert_enqueued(mail)
    with pytest.raises(WrongModeError, match="do not nest"), testing.inline():
        pass

def test_nothing_else_reaches_redis():
    with pytest.raises(WrongModeError, match="kept off Redis"):
        Queue("default").size

def test_who_asks_for_redis_reaches_it(sidekiq_redis):
    with pytest.raises(RedisConnectionError):
        mail.perform_async("bob")
"""


@pytest.mark.parametrize("switch", ["--sidekiq-off-redis", "--override-ini=sidekiq_off_redis=true"])
def test_a_whole_run_is_kept_off_redis(tmp_path, switch):
    """With a flag or a setting: no server listens on port 1, and only a test that uses Redis notices."""
    tmp_path.joinpath("test_program.py").write_text(OFF_REDIS)

    report = python(
        "-m", "pytest", "-q", "-p", "sidekiq_py.pytest_plugin", "-p", "no:cacheprovider", switch, cwd=tmp_path
    )

    assert "5 passed" in report, report


def test_loading_the_plug_in_loads_no_more_than_its_package():
    """pytest loads it in every project that has the library installed."""
    report = python(
        "-c",
        "import sys, pytest, sidekiq_py; before = set(sys.modules); import sidekiq_py.pytest_plugin; "
        "print(sorted(set(sys.modules) - before))",
    )

    assert report.strip() == "['sidekiq_py.pytest_plugin']"


def test_the_entry_point_names_the_module():
    """As registered in `pyproject.toml`."""
    import tomllib

    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]
    [(name, target)] = project["entry-points"]["pytest11"].items()

    assert EntryPoint(name, target, "pytest11").load().sidekiq_jobs is not None
    assert name == "sidekiq_py"


@pytest.mark.parametrize("module", ["sidekiq_py.testing", "sidekiq_py.active_job"])
def test_testing_loads_without_a_worker(module):
    """The engine is not loaded in a program's tests."""
    report = python("-c", f"import sys, {module}; print([m for m in sys.modules if m.startswith('sidekiq_py.engine')])")

    assert report.strip() == "[]"


def test_the_examples_of_the_documentation_pass(tmp_path):
    """Runs docs/testing.md as a file of tests."""
    tmp_path.joinpath("test_page.py").write_text(python_examples("testing.md"))

    report = python("-m", "pytest", "-q", "-p", "sidekiq_py.pytest_plugin", "-p", "no:cacheprovider", cwd=tmp_path)

    assert "4 passed" in report, report

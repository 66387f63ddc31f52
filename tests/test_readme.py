"""What the README prints runs as it stands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import redis

from tests.support.missing_tools import skip_or_fail
from tests.support.waiting import eventually
from tests.support.worker_process import REPOSITORY, SOURCE_ROOTS, WorkerProcess

README = (REPOSITORY / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of that language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def run(*command: str, redis_url: str, folder: Path) -> None:
    """Run a command with the project on its path; it must succeed."""
    environment = {**os.environ, "REDIS_URL": redis_url, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_first_door_enqueues_for_ruby(redis_url: str, redis_client: redis.Redis, tmp_path: Path) -> None:
    """From Python and from the shell."""
    in_python = blocks("python")[0]
    [in_shell] = re.findall(r"`sidekiq-py (push .*?)`", README)

    run(sys.executable, "-c", in_python, redis_url=redis_url, folder=tmp_path)
    run(sys.executable, "-m", "sidekiq_py", *shlex.split(in_shell), redis_url=redis_url, folder=tmp_path)

    jobs = [json.loads(raw) for raw in redis_client.lrange("queue:mailers", 0, -1)]
    assert [(job["class"], job["args"]) for job in jobs] == [("SendReceipt", ["A-1001", "ann@example.com"])] * 2
    assert redis_client.zcard("schedule") == 1


@pytest.mark.ruby
def test_the_second_door_runs_what_both_languages_enqueue(redis_url: str, tmp_path: Path) -> None:
    """The module, the worker's command, and the Ruby and Python code of the page."""
    if shutil.which("sidekiq") is None:
        skip_or_fail("no Ruby Sidekiq; on Debian: apt-get install ruby-sidekiq", switch="SIDEKIQ_PY_REQUIRE_RUBY")
    [_, module, in_python] = blocks("python")
    [in_ruby] = blocks("ruby")
    [flags] = re.findall(r"^sidekiq-py worker -r fraud (.*)$", README, re.MULTILINE)
    (tmp_path / "fraud.py").write_text(module)

    with WorkerProcess("fraud", redis_url=redis_url, arguments=shlex.split(flags), python_path=[tmp_path]) as worker:
        run("ruby", "-r", "sidekiq", "-e", in_ruby, redis_url=redis_url, folder=tmp_path)
        run(sys.executable, "-c", in_python, redis_url=redis_url, folder=tmp_path)

        assert eventually(lambda: worker.log.count("order A-1001 over 99.5 looks honest") == 2)


PAGES = [
    *sorted(REPOSITORY.glob("*.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "examples").rglob("*.md")),
]


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Where links may lead within a page: GitHub's names of its headings."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    texts = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w -]", "", text).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of every page, and the heading that it names."""
    links = re.findall(r"\]\((?!https?://)([^)\s]+)\)", prose(page))
    targets = [
        (link, page.parent / path if path else page, name) for link in links for path, _, name in [link.partition("#")]
    ]

    assert [link for link, path, _ in targets if not path.exists()] == []
    assert [link for link, path, name in targets if name and path.suffix == ".md" and name not in anchors(path)] == []


def test_the_figures_on_speed_are_those_of_the_benchmarks() -> None:
    """Nobody copies a number by hand that `make bench` no longer finds."""
    [table] = re.findall(r"^## How fast is it\?\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    measured = (REPOSITORY / "docs" / "benchmarks.md").read_text()
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]

    # The first column says what was done: 100,000 jobs.
    figures = [
        figure for row in rows for figure in re.findall(r"\d[\d,.]*\d|\d", row.partition("|")[2].partition("|")[2])
    ]

    assert len(figures) > len(rows)
    assert [figure for figure in figures if figure not in measured] == []


def test_the_line_on_reliability_is_that_of_the_report() -> None:
    """The README quotes what `make kill-report` has written."""
    report = (REPOSITORY / "docs" / "reliability.md").read_text()
    [quoted] = re.findall(r"^> (.* without a reason\.)$", README, re.MULTILINE)

    assert quoted == report.splitlines()[2]


def test_the_readme_names_every_extra() -> None:
    """What `pip install` can add; `dev` is for those who work on the library itself."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    [named] = re.findall(r"The extras are .*?\.\n", README, re.DOTALL)

    assert set(re.findall(r"`(\w+)`", named)) == set(project["optional-dependencies"]) - {"dev"}

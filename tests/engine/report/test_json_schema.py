"""The JSON lines of a real worker, against the schema in the docs."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from tests.support.waiting import eventually
from tests.support.worker_process import WorkerProcess

PAGE = Path(__file__).resolve().parents[3] / "docs" / "running_a_worker.md"
TYPES = {"string": str, "integer": int, "number": (int, float), "object": dict, "array": list}

JOBS = """
import logging
import sidekiq_py as sidekiq

@sidekiq.job(name="Fine", tags=["billing"])
def fine():
    logging.getLogger("app").warning("within")

@sidekiq.job(name="Boom", retry=False)
async def boom():
    raise ValueError("boom")
"""


def schema() -> list[dict[str, tuple[str, str]]]:
    """Of a line, and of its `ctx`: key to type and where it stands."""
    section = PAGE.read_text().split("### JSON\n")[1].split("\n## ")[0]
    return [
        {
            key: (kind, place)
            for key, kind, place in re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \|", table, re.MULTILINE)
        }
        for table in section.split("| Key |")[1:]
    ]


def check(found: dict[str, Any], documented: dict[str, tuple[str, str]]) -> None:
    """Each key is documented with its type, and those of every line are there."""
    for key, value in found.items():
        assert isinstance(value, TYPES[documented[key][0]]), (key, value)
    assert {key for key, (_, place) in documented.items() if place.startswith("every line")} <= found.keys()


@pytest.mark.parametrize("version", ["7.3.2", "8.1.7"])
def test_each_line_has_the_documented_keys_and_no_others(
    start_worker: Callable[..., WorkerProcess], tmp_path: Path, redis_url: str, version: str
) -> None:
    """Lines of the worker itself, of the program, and about an error."""
    tmp_path.joinpath("logging_jobs.py").write_text(JOBS)
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version=version)
    arguments = ["--log-format", "json", "--sidekiq-version", version, "--extension-key", "bid=run"]
    worker = start_worker("logging_jobs", arguments=arguments)
    sidekiq.Client().push({"class": "Fine", "args": [], "bid": "b-1", "tags": ["billing"]})
    sidekiq.Client().push({"class": "Boom", "args": [], "retry": False})
    eventually(lambda: '"msg":"fail"' in worker.log and '"msg":"done"' in worker.log and "error_class" in worker.log)
    worker.stop()

    lines = [json.loads(line) for line in worker.log.splitlines()]
    of_lines, of_context = schema()
    for line in lines:
        check(line, of_lines)
        if "ctx" in line:
            check(line["ctx"], of_context)
    assert {key for line in lines for key in line} == of_lines.keys()
    assert {key for line in lines for key in line.get("ctx", ())} == of_context.keys()

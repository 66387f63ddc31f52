"""
Random canvases, nested to depth 4, with Celery and under the alias: how many differ, and how.

    python -m interop_tests.celery_tools.canvases [--count 1000] [--seed 1]

docs/celery_reference.md lists the kinds of difference, each with its reason. The exit code is 1 if there is any other.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.real_celery import python_with_celery
from tests.support.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs")

NAMED = {
    "order of results",
    "group_index",
    "what stands behind a group",
    "never ran, or has no end, in Celery",
    "parent or root of a body",
    "root of an errback",
    "nesting in a chain within",
    "group of a step behind a replaced one",
    "error that an errback is given",
    "refused by Celery",
}


def main(arguments: Sequence[str]) -> int:
    """Run both sides. Returns 0 if they only differ in the documented ways."""
    parser = argparse.ArgumentParser(prog="python -m interop_tests.celery_tools.canvases", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with ThreadPoolExecutor() as both:
        celerys, ours = both.map(lambda side: _ran(side, options.count, options.seed), ("celery", "alias"))
    found: Counter[str] = Counter()
    for number, (one, other) in enumerate(zip(celerys, ours, strict=True)):
        kinds = differences(one, other)
        found.update(kinds or ["same"])
        for kind in kinds - NAMED:
            print(f"{number} {kind}: {one['text']}\n  celery: {one['ended']}\n  alias:  {other['ended']}")
    for kind, count in found.most_common():
        print(f"{count:5} {kind}")
    return 1 if found.keys() - NAMED - {"same"} else 0


def _ran(side: str, count: int, seed: int) -> list[dict[str, Any]]:
    python = python_with_celery()
    module = {"celery": "celery", "alias": "sidekiq_celery"}[side]
    with RedisServer() as server, tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "seen"
        seen.write_text("")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (PROGRAMS, ROOT, ROOT / "compat"))),
            "REDIS_URL": server.url,
            "SIDE": side,
            "SEEN": str(seen),
        }
        words = [python, "-m", module, "-A", "canvas_program", "worker", "-P", "threads", "-c", "8", "-l", "critical"]
        worker = subprocess.Popen(
            words, cwd=PROGRAMS, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            client = f"import canvas_program as program; program.wait(); program.main({count}, {seed})"
            subprocess.run([python, "-c", client], cwd=PROGRAMS, env=environment, check=True)
        finally:
            worker.kill()
            worker.wait()
        return [json.loads(line) for line in seen.read_text().splitlines()]


def differences(celerys: dict[str, Any], ours: dict[str, Any]) -> set[str]:
    """The kinds of difference between the two sides for one canvas."""
    if celerys["refused"] or ours["refused"]:
        return (
            set()
            if celerys["refused"] == ours["refused"]
            else {"refused by Celery"}
            if celerys["refused"]
            else {"refused here"}
        )
    kinds = _in_runs(celerys, ours)
    if celerys["ended"] != ours["ended"]:
        if "PENDING" in json.dumps(celerys["ended"]):
            kinds.add("never ran, or has no end, in Celery")
        elif not kinds:
            kinds.add("order of results" if _sorted(celerys["ended"]) == _sorted(ours["ended"]) else "result")
    return kinds


def _in_runs(celerys: dict[str, Any], ours: dict[str, Any]) -> set[str]:
    def differ(of_run: Callable[[dict[str, str], list[Any]], Any]) -> bool:
        return _counted(celerys, of_run) != _counted(ours, of_run)

    keys = [Counter(run[1] for run in side["log"]) for side in (celerys, ours)]
    if keys[0] != keys[1]:
        some_more, some_less = bool(keys[0] - keys[1]), bool(keys[1] - keys[0])
        return (
            {"what stands behind a group"}
            if some_more
            else {"never ran, or has no end, in Celery"}
            if some_less
            else set()
        )
    if differ(lambda ids, run: (run[1], json.dumps(run[2]))):
        if differ(lambda ids, run: (run[1], json.dumps(_sorted(run[2])))):
            told = differ(lambda ids, run: (run[1], run[2] if run[0] == "told" else None))
            return {"error that an errback is given" if told else "what stands behind a group"}
        return {"order of results"}
    looks: dict[str, Callable[[dict[str, str], list[Any]], Any]] = {
        "group of a step behind a replaced one": lambda ids, run: (run[1], run[6]),
        "group_index": lambda ids, run: (run[1], run[7]),
        "nesting in a chain within": lambda ids, run: (run[1], run[8]),
        "parent or root of a body": lambda ids, run: run[0] != "told" and (run[1], ids.get(run[4]), ids.get(run[5])),
        "root of an errback": lambda ids, run: run[0] == "told" and (run[1], ids.get(run[5])),
    }
    return {kind for kind, look in looks.items() if differ(look)}


def _counted(side: dict[str, Any], of_run: Callable[[dict[str, str], list[Any]], Any]) -> Counter[str]:
    ids: dict[str, str] = {}
    for run in side["log"]:
        if run[0] != "told":
            ids.setdefault(run[3], run[1])
    return Counter(json.dumps(of_run(ids, run)) for run in side["log"])


def _sorted(value: Any) -> Any:
    return sorted(map(_sorted, value), key=json.dumps) if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

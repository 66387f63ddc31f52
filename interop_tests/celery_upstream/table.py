"""The page of counts."""

import ast
from collections.abc import Mapping
from pathlib import Path

from interop_tests.celery_upstream import expectations
from interop_tests.celery_upstream.source import VERSION

_HEAD = f"""# Celery's own tests

`make celery-tests` writes this page. The tests are those of Celery {VERSION}, fetched from PyPI and run unchanged under
the import alias: everything that they import as `celery` is `sidekiq_celery`. The integration tests run against a real
Redis and a real `sidekiq-celery worker`. The run fails if a test fails that is not counted below, or if a test passes
that is, and does so again when it is repeated. The lists are in `interop_tests/celery_upstream`. Two checks that
Celery's suite makes after each test are left out (that no thread is left over, and that its consumer's flags are
unchanged). Private names of Celery that do not exist here are replaced by stand-ins that fail when they are used.
"""


def written(folder: Path, found: Mapping[str, Mapping[str, str]]) -> str:
    """
    The page as Markdown.

    Args:
        folder: The folder that contains `t/`.
        found: A mapping from a part to the outcome of each of its tests.
    """
    lines = [_HEAD, "| Tests | Pass | Differ | Skipped |", "|---|--:|--:|--:|"]
    for name, outcomes in found.items():
        counts = [sum(one == kind for one in outcomes.values()) for kind in ("passed", "failed", "skipped")]
        lines.append(f"| {name} | " + " | ".join(map(str, counts)) + " |")
    for name in found:
        lines += ["", f"## {name.capitalize()} tests that differ", "", "| Tests | Why |", "|--:|---|"]
        lines += [
            f"| {len(reason.tests)} | **{reason.name}.** {reason.why} |"
            for reason in sorted(expectations.reasons(name), key=lambda one: -len(one.tests))
        ]
    lines += ["", "## Not run", "", "These are test functions; each of them may be several tests.", ""]
    lines += ["| Functions | What they test |", "|--:|---|"]
    lines += [
        f"| {sum(_functions(folder / 't' / file) for file in files)} | **{name}** (`{'`, `'.join(files)}`). {why} |"
        for name, why, files in expectations.left_out()
    ]
    return "\n".join(lines) + "\n"


def _functions(path: Path) -> int:
    """The number of test functions in a file, or in all files of a folder."""
    files = path.rglob("test_*.py") if path.is_dir() else [path]
    return sum(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
    )

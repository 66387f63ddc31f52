"""Every module and name that README, docs and the help of commands tell of can be imported."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = [*(ROOT / "sidekiq_py" / "cli").glob("*.py"), *(ROOT / "compat" / "sidekiq_celery" / "bin").glob("*.py")]

_OF_EXTRAS = ("django", "opentelemetry", "sentry_sdk", "sqlalchemy", "starlette")

_PATH = re.compile(r"(?<![\w./-])(sidekiq_(?:py|celery)(?:\.[A-Za-z_]\w*)+)(?![\w/-])")
_IMPORT = re.compile(r"^\s*from (sidekiq_(?:py|celery)[\w.]*) import ([\w ,]+)$", re.MULTILINE)
# Names of keys, loggers, files and settings that look like paths.
_NO_MODULES = re.compile(r"\.(lua|rb|md|toml|yml|json|pid|log|sock)$")


def documented() -> list[str]:
    """Each path, once."""
    texts = [page.read_text() for page in PAGES]
    texts += [text for file in COMMANDS for text in re.findall(r'"""(.*?)"""', file.read_text(), re.DOTALL)]
    found = {path for text in texts for path in _PATH.findall(text)}
    for text in texts:
        for module, names in _IMPORT.findall(text):
            found |= {f"{module}.{name.split(' as ')[0].strip()}" for name in names.split(",") if name.strip()}
    # Stands for any module of Celery.
    return sorted(path for path in found - {"sidekiq_celery.x"} if not _NO_MODULES.search(path))


@pytest.mark.parametrize("path", documented())
def test_what_is_documented_can_be_imported(path: str) -> None:
    """As a module, or as an attribute of one. What needs an extra that is not installed here is left out."""
    names = path.split(".")
    known = len(names)
    try:
        while known > 1 and not _is_module(".".join(names[:known])):
            known -= 1
        found = import_module(".".join(names[:known]))
        for name in names[known:]:
            found = getattr(found, name)
    except ImportError as error:
        missing = error.__cause__ if isinstance(error.__cause__, ModuleNotFoundError) else error
        if not (missing.name or "").startswith(_OF_EXTRAS):
            raise
        pytest.skip(f"{missing.name} is not installed")


def _is_module(path: str) -> bool:
    try:
        return find_spec(path) is not None
    except ModuleNotFoundError:
        return False

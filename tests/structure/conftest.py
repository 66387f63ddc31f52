"""A package of few lines, on the path."""

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_numbers = itertools.count()


@pytest.fixture
def make_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], str]:
    """Writes a package of these modules, each with its text, in which `{package}` stands for its name; that name."""

    def make(modules: dict[str, str]) -> str:
        name = f"package_to_measure_{next(_numbers)}"
        for module, text in {"__init__": "", **modules}.items():
            path = tmp_path / name / f"{module}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{package}", name))
        monkeypatch.syspath_prepend(str(tmp_path))
        return name

    assert not any(module.startswith("package_to_measure") for module in sys.modules)
    return make

"""What an installation without extras brings."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

_PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
_NAME = re.compile(r"[\w.-]+")


def test_all_that_kombu_s_transport_for_redis_imports_is_required() -> None:
    """Kombu has it in its extra `redis`; remote control and our transport import it."""
    required = {_name_of(text) for text in tomllib.loads(_PYPROJECT.read_text())["project"]["dependencies"]}
    wanted = {_name_of(text) for text in requires("kombu") or () if re.search(r"extra == ['\"]redis['\"]", text)}

    assert "redis" in wanted
    assert wanted <= required


def _name_of(requirement: str) -> str:
    found = _NAME.match(requirement)
    assert found is not None
    return found[0].lower()

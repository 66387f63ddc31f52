"""The examples of a page of documentation, to be run by a test."""

import re
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def python_examples(page: str) -> str:
    """All Python examples of a page of `docs/`, one after the other."""
    text = _DOCS.joinpath(page).read_text()
    return "\n\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))

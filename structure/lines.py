"""Counts lines of Python code, without blank lines, comments and docstrings. Scripts and recorded data do not count."""

import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def lines_of_code(paths: Iterable[Path]) -> int:
    """The number of lines of code in all *paths* together."""
    return sum(_count(path.read_text()) for path in paths)


def _count(text: str) -> int:
    total = 0
    statement: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            # A statement that is only a string is a docstring, perhaps that of an attribute.
            if any(part.type != tokenize.STRING for part in statement):
                total += len({line for part in statement for line in range(part.start[0], part.end[0] + 1)})
            statement = []
        elif token.type not in _NO_CODE:
            statement.append(token)
    return total

"""
Characters that a terminal or a log obeys instead of showing them. Payloads come from anywhere and may have them in any
text: with a newline, the name of a class would forge a line of the log, and with an escape it would move the cursor.
"""

import re

UNSEEN = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff"
"""
For a character class of a regular expression: DEL, C1 controls, line separators, and marks that change the direction
of writing, so that a text looks like another one. The C0 controls are not among them, because JSON escapes those.
"""
# Surrogates stand for the bytes of a name that is not UTF-8; a file in UTF-8 cannot take them.
_UNSAFE_IN_A_LINE = re.compile(f"[\x00-\x1f{UNSEEN}\ud800-\udfff]")
UNSAFE_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{UNSEEN}\ud800-\udfff]")
"""Those that text of several lines may not have: all but tabs and newlines."""
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def escaped(text: str) -> str:
    r"""*text* on one line: its control characters are spelled out, as in `\n`, `\x1b` and `\u202e`."""
    return text if text.isprintable() else _UNSAFE_IN_A_LINE.sub(lambda found: spelled(found[0]), text)


def escaped_lines(text: str) -> str:
    """Like `escaped`, for text of several lines: tabs and newlines stay."""
    return UNSAFE_IN_LINES.sub(lambda found: spelled(found[0]), text)


def spelled_or_byte(letter: str) -> str:
    r"""As `spelled`, and a surrogate that stands for a byte as that byte: `\xff`."""
    return f"\\x{ord(letter) - 0xDC00:02x}" if "\udc80" <= letter <= "\udcff" else spelled(letter)


def spelled(letter: str) -> str:
    r"""One character, spelled out: `\n`, `\x1b`, `\u202e`."""
    if letter in _SHORT:
        return _SHORT[letter]
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

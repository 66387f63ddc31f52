"""What a cell of a table shows of a text."""

from itertools import product

import pytest

from sidekiq_py.cli import output

PARTS = ("", "a", "bc", " ", "\n  ", "\x1b")
"""Parts of texts: words, white space and what a terminal would obey."""


@pytest.mark.parametrize("width", range(-1, 8))
def test_a_text_is_cut_to_the_width_after_its_white_space_is_joined(width: int) -> None:
    """Whatever lies around the end: a word, white space or a control character."""
    for text in map("".join, product(PARTS, repeat=5)):
        line = output.plain(" ".join(text.split()))

        assert output.shortened(text, width) == output.cut(line, width), repr(text)


def test_a_large_text_is_not_looked_at_beyond_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each character costs time, and one job may have 50 MB of them."""
    seen, plain = [], output.plain
    monkeypatch.setattr(output, "plain", lambda text: seen.append(len(text)) or plain(text))

    for text in ("x" * 100_000, "x " * 100_000, " " * 100_000 + "x" * 100_000):
        assert output.shortened(text, 40).endswith("…")

    assert max(seen) <= 41

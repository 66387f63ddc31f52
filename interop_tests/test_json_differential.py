"""
Random JSON through each release's json gem and through ours: the same bytes, the same acceptance, or a rejection that
`docs/wire_format.md` names.

The values and texts are the same in every run. `SIDEKIQ_PY_DIFFERENTIAL_SEED` draws others,
`SIDEKIQ_PY_DIFFERENTIAL_COUNT` more or fewer of them than 10,000 for each release, or 100,000 with `-m long`.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

import pytest

from interop_tests.support.json_peer import REFUSED, JsonPeer, tokens_of
from interop_tests.support.ruby import RubyRelease
from sidekiq_py.errors import ArgumentValueError, JsonParseError
from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.json_dialect import dump_args_many, dumps, loads
from tests.wire.texts import random_json_text
from tests.wire.values import nested, random_value

SEED = os.environ.get("SIDEKIQ_PY_DIFFERENTIAL_SEED", "1")
COUNT = os.environ.get("SIDEKIQ_PY_DIFFERENTIAL_COUNT")
COUNTS = [int(COUNT)] if COUNT else [10_000, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
BATCH = 1000
SHOWN = 5

Report = Callable[[object], None]
Drawn = TypeVar("Drawn")

_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F]", re.S
)
_LONG_EXPONENT = re.compile(rb"[eE][+-]?[0-9]{10}")
# What json refuses since 3.0, and reading here still takes: another release may have written it.
_STRICT_SINCE_3 = {
    "a comment": re.compile(rb"unexpected token '/[/*]"),
    "a duplicate key": re.compile(rb"duplicate key"),
    "an unknown escape": re.compile(rb"invalid escape character in string"),
}


@pytest.fixture
def peer(ruby_release: RubyRelease) -> Iterator[JsonPeer]:
    """The json gem of the release."""
    with JsonPeer(ruby_release) as running:
        yield running


@pytest.fixture
def float_text(ruby_release: RubyRelease) -> FloatText:
    """What is written for the release when nothing else is set."""
    return Dialect.pinned(ruby_release.sidekiq_version).float_text


@pytest.mark.parametrize("count", COUNTS)
def test_values_are_written_as_ruby_writes_them(
    peer: JsonPeer, float_text: FloatText, report: Report, count: int
) -> None:
    """
    Ruby gets the values themselves, not JSON. What both write is read back here as the same value; as the argument
    of a job, alone or in bulk, a value has the same text.
    """
    differences: list[tuple[object, ...]] = []
    for values in _batches(_random_value, count):
        spelled = [tokens_of(value) for value in values]
        peer.send_values(spelled)
        ours = [dumps(value, float_text) for value in values]
        read_back = [tokens_of(loads(text)) for text in ours]
        in_bulk = dump_args_many([[value] for value in values], float_text)
        for value, text, bulk, theirs, again in zip(spelled, ours, in_bulk, peer.receive(), read_back, strict=True):
            if text != theirs or again != value or bulk != b"[%b]" % theirs:
                differences.append((value, text, theirs, bulk, again))

    report(f"json {peer.gem}: {count:,} values written by both, {len(differences)} differences")
    _refuse(differences)


@pytest.mark.parametrize("count", COUNTS)
def test_texts_are_judged_as_ruby_judges_them(
    peer: JsonPeer, float_text: FloatText, report: Report, count: int
) -> None:
    """
    Foreign spelling, leniencies, damage and limits: both read the same value and write it back alike, or reject it.
    """
    counts: Counter[str] = Counter()
    differences: list[tuple[object, ...]] = []
    for texts in _batches(random_json_text, count):
        peer.send_texts(texts)
        judged = [_judge(text, float_text) for text in texts]
        for text, ours, theirs in zip(texts, judged, peer.receive(), strict=True):
            verdict = _compare(text, ours, theirs, peer.numbers)
            counts[verdict or "differences"] += 1
            if verdict is None:
                differences.append((text, ours, theirs))

    told = ", ".join(f"{number:,} {verdict}" for verdict, number in counts.most_common())
    report(f"json {peer.gem}: {count:,} texts: {told}; {len(differences)} differences")
    _refuse(differences)


def _batches(draw: Callable[[Random], Drawn], count: int) -> Iterator[list[Drawn]]:
    """The same for each release; a batch is drawn for itself, so that one alone can be tried again."""
    for first in range(0, count, BATCH):
        random = Random(f"{SEED}/{first}")
        yield [draw(random) for _ in range(min(BATCH, count - first))]


def _refuse(differences: list[tuple[object, ...]]) -> None:
    if differences:
        shortest = sorted(differences, key=lambda difference: len(str(difference)))[:SHOWN]
        shown = "\n\n".join("\n  ".join(map(repr, difference)) for difference in shortest)
        pytest.fail(f"{len(differences)} differences with seed {SEED}; the shortest:\n{shown}", pytrace=False)


def _random_value(random: Random) -> object:
    choice = random.random()
    if choice < 0.01:
        return nested(random.randint(90, 98))  # within its list of arguments, within its payload
    return random_value(random, 4 if choice < 0.9 else 7)


def _judge(text: bytes, float_text: FloatText) -> bytes:
    """What we make of a text, as `json_peer.rb` says it."""
    try:
        value = loads(text)
    except JsonParseError as error:
        return REFUSED + str(error).encode()
    try:
        written = dumps(value, float_text)
    except ArgumentValueError:
        written = REFUSED
    return tokens_of(value).encode() + b"\t" + written


def _compare(text: bytes, ours: bytes, theirs: bytes, gem: tuple[int, ...]) -> str | None:
    """Which documented outcome this is; None if it is none."""
    if ours.startswith(REFUSED) and theirs.startswith(REFUSED):
        return "refused by both"
    if ours.startswith(REFUSED):
        return _why_only_we_refuse(text, ours, theirs, gem)
    if theirs.startswith(REFUSED):
        return _why_only_ruby_refuses(theirs, gem)
    if ours == theirs:
        return "read and written again alike"
    if gem >= (3,) and _LONG_EXPONENT.search(text):
        return "with an exponent that json 3 misreads"
    value, written = theirs.split(b"\t", 1)
    if ours == value + b"\t" + REFUSED and written.startswith(REFUSED):
        return "read alike and written again by neither"
    return None


def _why_only_we_refuse(text: bytes, ours: bytes, theirs: bytes, gem: tuple[int, ...]) -> str | None:
    if ours.startswith(b"!not UTF-8") and text.decode(errors="replace").encode() != text:
        return "refused by us for bytes that are not UTF-8"
    if b"lone surrogate" in ours and _LONE_SURROGATE.search(text.replace(rb"\\", b"--")):
        return "refused by us for a lone surrogate"
    if gem >= (3,) and b"nested deeper than 100" in ours and b"\t!JSON::NestingError: nesting of 101" in theirs:
        return "refused by us for 101 levels"
    return None


def _why_only_ruby_refuses(theirs: bytes, gem: tuple[int, ...]) -> str | None:
    if gem >= (3,):
        for reason, message in _STRICT_SINCE_3.items():
            if message.search(theirs):
                return f"refused by Ruby alone for {reason}"
    return None

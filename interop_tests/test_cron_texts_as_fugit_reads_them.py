"""10,000 random cron texts and 500 chosen ones, asked of real fugit and of us, where the clocks change in six zones."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from interop_tests import roots
from interop_tests.support.cron_texts import MINUTE, ask_fugit, at_random, changes, chosen
from sidekiq_py.extensions.periodic.cron_text import CronTextError, parse
from sidekiq_py.extensions.periodic.ticks import next_time, previous_time, upcoming
from tests.support.missing_tools import skip_or_fail

RANDOM_TEXTS = 10_000
SEED = 2024
SWITCH = "SIDEKIQ_PY_REQUIRE_RUBY"
MINUTES = 40
TICKS = 10
# A process of Ruby for each.
AT_ONCE = 2


@pytest.fixture(scope="module")
def root() -> roots.Root:
    """bookworm, which has fugit 1.5.2."""
    found = roots.find("bookworm")
    if found is None:
        skip_or_fail("fugit 1.5.2 is not here; get it by: python -m interop_tests.roots bookworm", switch=SWITCH)
    return found


def question(number: int, text: str, zone: str) -> dict[str, Any]:
    """Each minute around one of the zone's changes, then a second after each of our next ten ticks, and before it."""
    change = changes(zone)[number % 2]
    start = change - MINUTES // 3 * MINUTE
    moments = [start + minute * MINUTE for minute in range(MINUTES)]
    try:
        ticks = list(islice(upcoming(parse(text), start), TICKS))
    except CronTextError:
        ticks = []
    return {"cron": text, "at": [*moments, *(tick + 1 for tick in ticks), *ticks], "ticks": ticks, "next": 0}


def differences(asked: Sequence[dict[str, Any]], answers: Sequence[dict[str, Any]]) -> list[str]:
    """What fugit says otherwise than we."""
    found = []
    for one, answer in zip(asked, answers, strict=True):
        text = one["cron"]
        try:
            cron = parse(text)
        except CronTextError as error:
            if "refused" not in answer:
                found.append(f"{text}: fugit reads it, and we say: {error}")
            continue
        if "refused" in answer:
            found.append(f"{text}: fugit says {answer['refused']}")
            continue
        for at, theirs in zip(one["at"], answer["previous"], strict=True):
            ours = previous_time(cron, at)
            # Where no tick is found within 2,048 steps fugit raises.
            if ours != (None if isinstance(theirs, str) else theirs):
                found.append(f"{text} before {at}: {theirs}, and not {ours}")
                break
        found += [f"{text}: {tick} is no tick" for tick in one["ticks"] if previous_time(cron, tick + 1) != tick]
    return found


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_tick_is_fugit_s(root: roots.Root) -> None:
    """The last tick minute by minute, and that each of the next ten ticks is one, with none in between."""
    texts = [*chosen(), *at_random(RANDOM_TEXTS, SEED)]
    asked = [question(number, text, zone) for number, (text, zone) in enumerate(texts)]
    portions = [asked[start : start + 250] for start in range(0, len(asked), 250)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = [answer for answers in pool.map(lambda part: ask_fugit(root, part), portions) for answer in answers]

    assert differences(asked, told) == []


def test_what_is_asked_covers_what_was_promised() -> None:
    """500 chosen texts, six zones, each with two changes of the clocks."""
    texts = list(chosen())
    assert len(texts) >= 500
    assert {len(changes(zone)) for _, zone in texts} == {2}
    assert len({zone for _, zone in texts}) == 6
    assert next_time(parse(texts[0][0]), 0.0) is not None

"""The page of the reliability report says what was played, and no more."""

from collections import Counter
from pathlib import Path

from kill_report import page
from kill_report.__main__ import next_campaign
from kill_report.campaigns import CAMPAIGNS
from kill_report.record import Record, Round, Subject

SUBJECT = Subject("sources", "abc1234")


def played(campaign: str, **values: object) -> Round:
    """A round that was kept."""
    return Round(campaign, seed=1, sources=SUBJECT.sources, commit=SUBJECT.commit, **values)  # type: ignore[arg-type]


def test_a_round_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    """Those of other sources are left out."""
    record = Record(tmp_path)
    one = played("threads", jobs=7, faults=Counter({"SIGKILL: worker with threads": 2}))
    record.add(one)
    record.add(Round("threads", seed=2, sources="others"))

    assert list(record.rounds(SUBJECT.sources)) == [one]


def test_the_next_campaign_is_the_one_that_is_furthest_from_its_end(tmp_path: Path) -> None:
    """Until its time is up; when all are complete there is none."""
    record = Record(tmp_path)
    for name, campaign in CAMPAIGNS.items():
        for _ in range(campaign.rounds - (name == "clocks")):
            record.add(played(name))

    found = next_campaign(record, SUBJECT, {}, 900)

    assert found is CAMPAIGNS["clocks"]
    assert next_campaign(record, SUBJECT, {"clocks": 901.0}, 900) is None
    record.add(played("clocks"))
    assert next_campaign(record, SUBJECT, {}, 900) is None


def test_the_page_adds_up_and_does_not_claim_the_goal_before_it_is_reached() -> None:
    """SIGKILLs are told from other faults, and steps from each other."""
    faults = Counter({"SIGKILL: worker with threads": 900, "SIGKILL: at a step: settle sent": 100, "hard limit": 5})

    text = page.text([played("threads", jobs=999_999, faults=faults), played("clocks", jobs=1)])

    assert "1,000,000 jobs under 1,000 SIGKILLs and 5 other faults: none lost, none run twice without a reason." in text
    assert "It has **not been reached yet**." in text
    assert "| SIGKILL: at a named step of a job's life | 100 |" in text
    assert "settle sent (100)" in text


def test_the_page_says_what_was_lost_and_which_rounds_failed() -> None:
    """A loss stands in the first line, as does a repeat without a reason."""
    bad = played("threads", jobs=10, lost=2, repeats=Counter({"unexplained": 3}), problem="lost: (4, 5)")

    text = page.text([bad])

    assert page.headline([bad]).endswith("2 lost, 3 run twice without a reason.")
    assert "- threads, seed 1, load average 0: lost: (4, 5)" in text


def test_a_round_that_did_not_come_to_its_end_counts_for_nothing() -> None:
    """It is listed with its last line; its jobs are in no sum, and another one has to be played."""
    broken = played(
        "threads", jobs=500, problem="Traceback (most recent call last):\n  …\nAssertionError: no job ended\n"
    )

    text = page.text([broken, played("clocks", jobs=1)])

    assert "| Jobs | 1 |" in text
    assert "- threads, seed 1, load average 0: AssertionError: no job ended" in text

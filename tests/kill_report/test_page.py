"""The page of the reliability report says what was played, and no more."""

from collections import Counter
from pathlib import Path

from kill_report import page
from kill_report.__main__ import next_round
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


def test_the_next_round_is_one_that_was_not_played(tmp_path: Path) -> None:
    """Until the time of its campaign is up; when all are complete there is none."""
    record = Record(tmp_path)
    for name, campaign in CAMPAIGNS.items():
        for number in range(campaign.rounds):
            if (name, number) != ("clocks", 1):
                record.add(played(name, number=number))
    record.add(played("clocks", number=0))

    found = next_round(record, SUBJECT, {}, 900)

    assert found is not None
    assert (found.campaign, found.number) == (CAMPAIGNS["clocks"], 1)
    assert next_round(record, SUBJECT, {}, 900) is None, "another process plays it"
    found.claim.close()
    assert next_round(record, SUBJECT, {"clocks": 901.0}, 900) is None
    record.add(played("clocks", number=1))
    assert next_round(record, SUBJECT, {}, 900) is None
    again = next_round(record, SUBJECT, {}, 900, only="clocks")
    assert again is not None
    again.claim.close()
    assert again.number != 0, "the round that was played most often"


def test_two_processes_play_every_round_once(tmp_path: Path) -> None:
    """What a round tries depends on its number, so a number that two of them took would leave another one out."""
    records = Record(tmp_path), Record(tmp_path)
    numbers: list[int] = []
    while len(numbers) < CAMPAIGNS["restarts"].rounds:
        found = [next_round(record, SUBJECT, {}, 900, only="restarts") for record in records]
        for one in filter(None, found):
            numbers.append(one.number)
            records[0].add(played("restarts", number=one.number))
            one.claim.close()

    assert sorted(numbers) == [*range(CAMPAIGNS["restarts"].rounds)]


def test_a_campaign_is_complete_when_each_of_its_rounds_was_played() -> None:
    """The same one twice proves nothing about the other."""
    rounds = [played("clocks", number=number) for number in range(CAMPAIGNS["clocks"].rounds)]

    assert f"| {len(rounds)} of {len(rounds)}, complete |" in page.text(rounds)
    assert f"| {len(rounds) - 1} of {len(rounds)} |" in page.text([*rounds[1:], rounds[1]])


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

"""Run rounds until all campaigns are complete or the time is up, and write the page."""

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

from kill_report import page
from kill_report.books import UNEXPLAINED
from kill_report.campaigns import CAMPAIGNS, Campaign
from kill_report.record import Record, Round, Subject
from kill_report.stage import Stage
from tests.support.worker_process import REPOSITORY

FOLDER = REPOSITORY / ".kill-report"
PAGE = REPOSITORY / "docs" / "reliability.md"
README = REPOSITORY / "README.md"
MOST_OPEN_FILES = 4096


def play(campaign: Campaign, seed: int, scale: float, number: int = 0, keep: Path | None = None) -> Round:
    """
    Run one round, with its own Redis and processes.

    Args:
        number: The round's number in its campaign, from 0.
        keep: The folder in which to keep the round's files if something went wrong.
    """
    one = Round(campaign.name, seed, number)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="sidekiq-py-kill-report-"))
    with ExitStack() as exits:
        exits.callback(shutil.rmtree, folder, ignore_errors=True)
        stage = Stage(folder, random.Random(seed), scale, number, exits)
        try:
            verdict = stage.verdict(campaign.play(stage))
        # A round that does not finish proves nothing, but is reported.
        except Exception:  # noqa: BLE001
            one.problem = traceback.format_exc()
        else:
            one.lost = len(verdict.lost)
            one.repeats = verdict.repeats
            one.unended_in_dead = verdict.unended_in_dead
            for pid, seconds in verdict.recovery_seconds.items():
                one.recovery_ms.setdefault(stage.kinds[pid], []).append(round(1000 * seconds))
            wrong = {"lost": verdict.lost, "two runs at a time": verdict.together}
            problems = [f"{what}: {numbers[:20]}" for what, numbers in wrong.items() if numbers] + stage.wrong
            if one.repeats[UNEXPLAINED]:
                problems.append(f"{one.repeats[UNEXPLAINED]} repeats are unexplained")
            one.problem = "; ".join(problems)
        one.jobs = len(stage.expected) + stage.jobs_in_batches + stage.dropped.total()
        one.faults, one.notes, one.dropped = +stage.faults, +stage.notes, +stage.dropped
        one.servers = sorted(set(stage.servers))
        if one.problem and keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copytree(folder, keep / f"{campaign.name}-{seed}", dirs_exist_ok=True, ignore=_no_sockets)
    one.seconds = round(time.monotonic() - began, 1)
    one.load = round(os.getloadavg()[0], 1)
    return one


def _no_sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if not (Path(folder) / name).is_file() and not (Path(folder) / name).is_dir()}


def played(record: Record, subject: Subject) -> Counter[tuple[str, int]]:
    """How often each round was finished, by its campaign's name and its number."""
    return Counter((one.campaign, one.number) for one in record.rounds(subject.sources) if one.is_closed)


class Claimed(NamedTuple):
    """A round to play, which no other process plays meanwhile. Close *claim* once it is stored."""

    campaign: Campaign
    number: int
    claim: IO[str]


def next_round(
    record: Record, subject: Subject, spent: dict[str, float], limit_seconds: float, only: str | None = None
) -> Claimed | None:
    """
    Claim a round that was not played yet. It belongs to the campaign with the smallest share of its rounds done among
    those that have time left.

    Args:
        only: The campaign to choose from, even if it is complete; then the round was played least often.

    Returns:
        None if there is no such round.
    """
    campaigns = [CAMPAIGNS[only]] if only is not None else [*CAMPAIGNS.values()]
    done = played(record, subject)

    def share(campaign: Campaign) -> float:
        return sum((campaign.name, number) in done for number in range(campaign.rounds)) / campaign.rounds

    for campaign in sorted(campaigns, key=share):
        if spent.get(campaign.name, 0.0) >= limit_seconds:
            continue
        for times, number in sorted((done[campaign.name, number], number) for number in range(campaign.rounds)):
            if (times and only is None) or (claim := record.claim(campaign.name, number)) is None:
                continue
            if times == played(record, subject)[campaign.name, number]:
                return Claimed(campaign, number, claim)
            # Another process has played it in between.
            claim.close()
    return None


def main(arguments: list[str]) -> int:
    """Run the report. Returns 1 if something was lost, or ran twice without a reason."""
    parser = argparse.ArgumentParser(prog="python -m kill_report", description=__doc__)
    parser.add_argument("--campaign", choices=[*CAMPAIGNS], help="run only this campaign, even if it is complete")
    parser.add_argument("--minutes", type=float, default=15, help="the time limit for each campaign (default: 15)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="scales the number of jobs and faults in a round (default: 1)"
    )
    parser.add_argument("--page-only", action="store_true", help="only write the page, from the stored rounds")
    chosen = parser.parse_args(arguments)
    # For a server with thousands of connections, and a proxy in front of it.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MOST_OPEN_FILES, hard), hard))
    subject = Subject.here()
    record = Record(FOLDER)
    spent: dict[str, float] = {}
    while not chosen.page_only:
        following = next_round(record, subject, spent, 60 * chosen.minutes, chosen.campaign)
        if following is None:
            break
        campaign, number, claim = following
        with claim:
            one = play(campaign, random.randrange(2**32), chosen.scale, number, FOLDER / "problems")
            one.sources, one.commit = subject.sources, subject.commit
            record.add(one)
        spent[campaign.name] = spent.get(campaign.name, 0.0) + one.seconds
        faults = ", ".join(f"{count} {kind}" for kind, count in one.faults.items())
        print(f"{campaign.name}: {one.jobs:,} jobs, {faults}; {one.seconds:.0f} s {one.problem}", flush=True)
        page.write(PAGE, README, list(record.rounds(subject.sources)))
    rounds = list(record.rounds(subject.sources))
    page.write(PAGE, README, rounds)
    return 1 if any(one.problem for one in rounds) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

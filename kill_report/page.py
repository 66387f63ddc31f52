"""docs/reliability.md: the results of all rounds with one state of the sources, and nothing that was not run."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from kill_report.campaigns import CAMPAIGNS
from kill_report.campaigns.named_steps import STEPS
from kill_report.record import Round

GOAL_JOBS = 1_000_000
GOAL_KILLS = 1_000
KILL = "SIGKILL: "
STEP = "SIGKILL: at a step: "

_QUOTED = re.compile(r"^> .* without a reason\.$", re.MULTILINE)

_PAGE = """# Reliability

{headline}

Written by `make kill-report` from {rounds:,} rounds on {dates}: commit `{commits}`, Python {pythons},
{servers}, on {cores} cores. The machine was shared
(load averages of {loads} at the ends of the rounds), so the times to recovery are those of a machine that is short of
CPU.

| | |
|---|---|
{totals}

{goal}

## Campaigns

A campaign is complete with the number of rounds in the second column. Repeats are runs too many; each has a reason
[below](#why-jobs-ran-twice).

| Campaign | Rounds | Jobs | Faults | Lost | Repeats | Unexplained |
|---|---|---|---|---|---|---|
{campaigns}

## Faults

| Fault | Times |
|---|---|
{faults}

{steps}

## Why jobs ran twice

| Reason | Runs too many |
|---|---|
{repeats}

A job that was running when its process was killed runs again, and so does one whose end had not reached Redis yet
([delivery](delivery.md)). What Redis or Ruby's own fetch forgot is not among the losses above; it was found by looking
for the job in the server's log:

| Forgotten by | Jobs |
|---|---|
{dropped}

## Time to recovery

From a kill until the last of the jobs that it cut off had started again in another process. Counted are kills that cut
off jobs, and after which no other process was killed meanwhile. With *others at work* that is the recovery itself;
elsewhere the next worker often has to start first, which on a busy machine takes longer than all else.

| Process | Kills | Median | Nine of ten within | Longest |
|---|---|---|---|---|
{recovery}

## What else was counted

| | |
|---|---|
{notes}

## Rounds with a problem

{problems}

## How it is measured

- A round starts a Redis and workers of its own. Each job writes a line into a file, outside Redis, when it starts and
  when it ends. In the end every job that was enqueued must have ended, or stand in Redis (those that fail for good
  stand in `dead`). A job is *lost* if it did neither.
- A repeat is *explained* if its first run was under way, or had ended less than a second ago, when its process was
  killed; when its machine was cut off for longer than its lease; or when its server was killed under an `appendfsync`
  that does not keep each write. All other repeats are *unexplained*, and so are two runs of a job that overlap without
  such a reason.
- Programs that enqueue are killed, too: what a push has returned for must run.
- Chains and chords, batches and periodic jobs have books of their own: each task once, each callback once, each second
  one tick.
- A round that did not come to its end is listed above with its reason, and counts for nothing.
- A SIGKILL of a parent together with its children counts once.
- `make kill-report` goes on where it stopped; `make kill-report ARGUMENTS="--campaign threads --minutes 10"` plays one
  campaign. The rounds are kept in `.kill-report/`, and count for as long as what a worker or a client loads stays as it
  is (the dashboard, the demo and `doctor` may change). A small round of each campaign runs with the tests.
"""


def write(page: Path, readme: Path, rounds: Sequence[Round]) -> None:
    """Write the page, and its first line where the README quotes it. Does nothing until a round has ended."""
    if closed := [one for one in rounds if one.is_closed]:
        page.write_text(text(rounds))
        readme.write_text(_QUOTED.sub(f"> {headline(closed)}", readme.read_text(), count=1))


def text(played: Sequence[Round]) -> str:
    """The text of the page."""
    rounds = [one for one in played if one.is_closed]
    faults = _sum(rounds, "faults")
    repeats = _sum(rounds, "repeats")
    kills = kills_in(faults)
    steps = {name.removeprefix(STEP): count for name, count in faults.items() if name.startswith(STEP)}
    others = Counter({name: count for name, count in faults.items() if not name.startswith(STEP)})
    if steps:
        others["SIGKILL: at a named step of a job's way"] = sum(steps.values())
    loads = sorted(one.load for one in rounds)
    totals = {
        "Jobs": f"{sum(one.jobs for one in rounds):,}",
        "SIGKILLs of processes": f"{kills:,}",
        "Other faults": f"{faults.total() - kills:,}",
        "Jobs lost": f"{sum(one.lost for one in rounds):,}",
        "Repeats, explained": f"{repeats.total() - repeats['unexplained']:,}",
        "Repeats, unexplained": f"{repeats['unexplained']:,}",
        "Campaigns that are complete": f"{sum(_is_complete(name, rounds) for name in CAMPAIGNS)} of {len(CAMPAIGNS)}",
    }
    dates = sorted({one.date[:10] for one in rounds})
    return _PAGE.format(
        headline=headline(rounds),
        rounds=len(rounds),
        dates=dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        commits="`, `".join(dict.fromkeys(one.commit for one in rounds)),
        pythons=", ".join(sorted({one.python for one in rounds})),
        servers=", ".join(sorted({server for one in rounds for server in one.servers})),
        cores=os.cpu_count(),
        loads=f"{loads[0]:.0f} to {loads[-1]:.0f}",
        totals=_rows(totals),
        goal=_goal(rounds, kills),
        campaigns="\n".join(_campaign_row(name, rounds) for name in CAMPAIGNS),
        faults=_counted(others),
        steps=_steps(steps),
        repeats=_counted(repeats),
        dropped=_counted(_sum(rounds, "dropped")),
        recovery=_recovery(rounds),
        notes=_counted(_sum(rounds, "notes") + Counter({"jobs in `dead` before their end": _unended(rounds)})),
        problems=_problems(played),
    )


def headline(rounds: Sequence[Round]) -> str:
    """The results in one line, which the README quotes."""
    faults = _sum(rounds, "faults")
    kills = kills_in(faults)
    lost = sum(one.lost for one in rounds) or "none"
    unexplained = _sum(rounds, "repeats")["unexplained"] or "none"
    jobs, others = sum(one.jobs for one in rounds), faults.total() - kills
    return (
        f"{jobs:,} jobs under {kills:,} SIGKILLs and {others:,} other faults: "
        f"{lost} lost, {unexplained} run twice without a reason."
    )


def kills_in(faults: Mapping[str, int]) -> int:
    """The number of SIGKILLs of our processes among the faults; those of servers are counted as restarts."""
    return sum(count for name, count in faults.items() if name.startswith(KILL))


def _sum(rounds: Sequence[Round], name: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in rounds:
        total.update(getattr(one, name))
    return total


def _unended(rounds: Sequence[Round]) -> int:
    return sum(one.unended_in_dead for one in rounds)


def _is_complete(name: str, rounds: Sequence[Round]) -> bool:
    return sum(one.campaign == name for one in rounds) >= CAMPAIGNS[name].rounds


def _goal(rounds: Sequence[Round], kills: int) -> str:
    jobs = sum(one.jobs for one in rounds)
    is_reached = jobs >= GOAL_JOBS and kills >= GOAL_KILLS and all(_is_complete(name, rounds) for name in CAMPAIGNS)
    goal = f"The goal is {GOAL_JOBS:,} jobs and {GOAL_KILLS:,} SIGKILLs with every campaign complete"
    return f"{goal}: it is reached." if is_reached else f"{goal}: it is **not reached yet**."


def _campaign_row(name: str, rounds: Sequence[Round]) -> str:
    mine = [one for one in rounds if one.campaign == name]
    repeats = _sum(mine, "repeats")
    played = f"{len(mine)} of {CAMPAIGNS[name].rounds}{', complete' if _is_complete(name, rounds) else ''}"
    cells = (
        CAMPAIGNS[name].title,
        played,
        f"{sum(one.jobs for one in mine):,}",
        f"{_sum(mine, 'faults').total():,}",
        f"{sum(one.lost for one in mine):,}",
        f"{repeats.total() - repeats['unexplained']:,}",
        f"{repeats['unexplained']:,}",
    )
    return f"| {' | '.join(cells)} |"


def _steps(steps: Mapping[str, int]) -> str:
    if not steps:
        return "No worker was killed at a named step yet."
    found = ", ".join(f"{name} ({count})" for name, count in sorted(steps.items()))
    return f"Steps of a job's way at which workers were killed, {len(steps)} of {len(STEPS)}: {found}."


def _recovery(rounds: Sequence[Round]) -> str:
    by_kind: dict[str, list[int]] = {}
    for one in rounds:
        for kind, found in one.recovery_ms.items():
            by_kind.setdefault(kind, []).extend(found)
    rows = []
    for kind, found in sorted(by_kind.items()):
        times = sorted(found)
        cells = [f"{times[int(share * (len(times) - 1))] / 1000:.1f} s" for share in (0.5, 0.9, 1)]
        rows.append(f"| {kind} | {len(times)} | {' | '.join(cells)} |")
    return "\n".join(rows or ["| none yet | 0 | | | |"])


def _problems(rounds: Sequence[Round]) -> str:
    found = [
        f"- {one.campaign}, seed {one.seed}, load average {one.load:.0f}: {one.problem.strip().splitlines()[-1]}"
        for one in rounds
        if one.problem
    ]
    return "\n".join(found) or "None."


def _rows(values: Mapping[str, str]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in values.items())


def _counted(counter: Mapping[str, int]) -> str:
    found = {name: f"{count:,}" for name, count in sorted(counter.items(), key=lambda item: -item[1]) if count}
    return _rows(found or {"none": "0"})

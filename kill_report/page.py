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

`make kill-report` wrote this page from {rounds:,} rounds on {dates}: commit `{commits}`, Python {pythons},
{servers}, on {cores} cores. The machine was shared
(load averages of {loads} at the end of each round), so the recovery times are those of a machine that is short of CPU.

| | |
|---|---|
{totals}

{goal}

## Campaigns

Each campaign injects one kind of fault. It is complete once it has played the number of rounds in the second column.
Repeats are extra runs of jobs; [Why jobs ran twice](#why-jobs-ran-twice) gives their reasons.

| Campaign | Rounds | Jobs | Faults | Lost | Repeats | Unexplained |
|---|---|---|---|---|---|---|
{campaigns}

## Faults

| Fault | Count |
|---|---|
{faults}

{steps}

## Why jobs ran twice

| Reason | Extra runs |
|---|---|
{repeats}

A job that was running when its process was killed runs again. So does a job that had finished but was not yet
acknowledged in Redis ([Delivery](delivery.md)). Jobs that Redis or Ruby's own fetch lost do not count as losses above.
Redis lost a job if the server's log does not contain it. Ruby's fetch (BRPOP) keeps no copy of the jobs that it takes:

| Lost by | Jobs |
|---|---|
{dropped}

## Time to recovery

The time from a kill until the last of the jobs that it interrupted had started again in another process. A kill
counts if it interrupted jobs and no other process was killed before they had restarted. In the rows with *others at
work*, this is the recovery itself. In the other rows the next worker often has to start first, and on a busy machine
that takes longer than everything else.

| Process | Kills | Median | 90th percentile | Longest |
|---|---|---|---|---|
{recovery}

## Other counts

| | |
|---|---|
{notes}

## Rounds with a problem

{problems}

## How it is measured

- Each round starts its own Redis and workers. A job writes a line to a file, outside Redis, when it starts and when it
  ends. At the end of the round, every enqueued job must either have finished or still be in Redis; jobs that fail for
  good are in the set `dead`. A job that did neither is *lost*.
- A repeat is *explained* if the job's first run was in progress, or had ended less than a second before, when one of
  three things happened: its process was killed, its machine was cut off or stood still for longer than its lease, or
  its server was killed with an `appendfsync` that does not sync every write. Time in which the machine stood still or
  was cut off, or the process waited for a CPU, does not count. All other repeats are *unexplained*, and so are two runs
  of a job that overlap without such a reason.
- A Redis that was killed while it wrote its append-only file rewrites the file when it is back, as
  [Delivery](delivery.md#what-rediss-settings-decide) advises.
- Programs that enqueue are killed, too. Once a push has returned, its job must run.
- Chains and chords, batches and periodic jobs have additional checks: each task runs once, each callback is enqueued
  once, and there is one tick for every second.
- A round that did not finish is listed above with its reason, and its results do not count.
- Killing a parent together with its children counts as one SIGKILL.
- `make kill-report` continues where it stopped, and `make kill-report ARGUMENTS="--campaign threads --minutes 10"` runs
  a single campaign. Rounds are stored in `.kill-report/`. They count for as long as the code that workers and clients
  load does not change; the dashboard, the demo and `doctor` may change. The tests run a small round of each campaign.
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
        others["SIGKILL: at a named step of a job's life"] = sum(steps.values())
    loads = sorted(one.load for one in rounds)
    totals = {
        "Jobs": f"{sum(one.jobs for one in rounds):,}",
        "SIGKILLs of processes": f"{kills:,}",
        "Other faults": f"{faults.total() - kills:,}",
        "Jobs lost": f"{sum(one.lost for one in rounds):,}",
        "Explained repeats": f"{repeats.total() - repeats['unexplained']:,}",
        "Unexplained repeats": f"{repeats['unexplained']:,}",
        "Complete campaigns": f"{sum(_is_complete(name, rounds) for name in CAMPAIGNS)} of {len(CAMPAIGNS)}",
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
        notes=_counted(_sum(rounds, "notes") + Counter({"jobs in `dead` that never finished": _unended(rounds)})),
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
    return _numbers(name, rounds).issuperset(range(CAMPAIGNS[name].rounds))


def _numbers(name: str, rounds: Sequence[Round]) -> set[int]:
    """Which rounds of a campaign were finished. What a round tries depends on its number."""
    return {one.number for one in rounds if one.campaign == name and one.is_closed}


def _goal(rounds: Sequence[Round], kills: int) -> str:
    jobs = sum(one.jobs for one in rounds)
    is_reached = jobs >= GOAL_JOBS and kills >= GOAL_KILLS and all(_is_complete(name, rounds) for name in CAMPAIGNS)
    goal = f"The goal is {GOAL_JOBS:,} jobs and {GOAL_KILLS:,} SIGKILLs, with every campaign complete"
    return f"{goal}. It has been reached." if is_reached else f"{goal}. It has **not been reached yet**."


def _campaign_row(name: str, rounds: Sequence[Round]) -> str:
    mine = [one for one in rounds if one.campaign == name]
    repeats = _sum(mine, "repeats")
    played = f"{len(_numbers(name, rounds))} of {CAMPAIGNS[name].rounds}"
    if _is_complete(name, rounds):
        played += ", complete"
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
        return "No worker has been killed at a named step yet."
    found = ", ".join(f"{name} ({count})" for name, count in sorted(steps.items()))
    return f"Workers were killed at {len(steps)} of the {len(STEPS)} named steps of a job's life: {found}."


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

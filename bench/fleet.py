"""
What does a job cost Redis in a fleet?

Processes with five threads each, ours and the real Sidekiq's, take turns on one Redis, which has its own core;
everything else shares the other one. A `backlog` is pushed before the fleet sees it. A `trickle` of 200 jobs per second
comes from one client, the same for both sides (SADD and LPUSH in one round trip, as Sidekiq's client pushes), and its
pushes are part of the cost. Costs exclude those of the same fleet at rest. All processes of a fleet share a core, so it
drains more slowly than one whose processes have a core each.

    python -m bench.fleet [--pairs 3] [--cells 20x5ms,2xnoop] [--loads backlog] [--sides ours,ruby]
    python -m bench.fleet --processes-per-parent 4 --cells 20x5ms    # ours with --processes 4
    python -m bench.fleet --three-queues --cells 20x5ms              # three weighted queues
    python -m bench.fleet --tasks nap_kept --cells 2x5ms             # tasks beside the real Celery's; nap: no result
    python -m bench.fleet --together --cells 20x5ms                  # both sides at once, each on a Redis of its own
    python -m bench.fleet --counting                                 # jobs that each send a command of their own
    python -m bench.fleet --simulate 100,1000,5000                   # how many jobs one Redis core carries
"""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby, product
from operator import attrgetter

from bench import fleet_simulation, fleet_together
from bench.fleet_counters import MEASURES, Cost, Counters, interval, ratio
from bench.fleet_loads import (
    TRICKLE_PER_SECOND,
    Work,
    at_rest,
    counting_seconds,
    of_backlog,
    of_jobs,
    of_tasks,
    of_trickle,
    warm_up,
)
from bench.fleet_monitor import recorded, sent_shares
from bench.fleet_sides import SIDES, Server, Shape, fleet, has_ruby, pinned_server, ruby_release

LOADS = ("backlog", "trickle")
THREE_QUEUES = (("critical", 3), ("default", 2), ("low", 1))


@dataclass(frozen=True, slots=True)
class Cell:
    """
    A fleet size and a job length.

    Attributes:
        processes: The number of processes, with five threads each.
        milliseconds: How long a job sleeps; 0 for a job that does nothing.
    """

    processes: int
    milliseconds: int

    @classmethod
    def named(cls, name: str) -> "Cell":
        """
        Parse a name such as `20x5ms` or `2xnoop`.

        Raises:
            ValueError: It is not the name of a cell.
        """
        processes, _, length = name.partition("x")
        milliseconds = "0" if length == "noop" else length.removesuffix("ms")
        if not processes.isdigit() or not milliseconds.isdigit():
            raise ValueError(
                f"{name} is not a cell; write the number of processes and the length of a job, such as 20x5ms or 2xnoop"
            )
        return cls(int(processes), int(milliseconds))

    def __str__(self) -> str:
        """The cell's name."""
        return f"{self.processes}x{self.milliseconds}ms" if self.milliseconds else f"{self.processes}xnoop"

    @property
    def in_words(self) -> str:
        """The cell as the page names it."""
        return f"{self.processes} processes, {f'{self.milliseconds} ms' if self.milliseconds else 'no-op'}"

    @property
    def backlog(self) -> int:
        """The number of jobs that keeps both sides busy for a second or more."""
        return 6_000 if self.milliseconds >= 50 else 10_000 if self.milliseconds else 20_000


CELLS = tuple(Cell.named(name) for name in ("2xnoop", "2x5ms", "20xnoop", "20x5ms", "20x50ms", "60x50ms"))


@dataclass(frozen=True, slots=True)
class Finding:
    """
    The result of one fleet in one cell.

    Attributes:
        cell: The fleet's size and job.
        load: `backlog` or `trickle`.
        side: The side that was measured.
        cost: The cost per job.
        jobs_per_second: The rate in the measured time.
        rest_share: The share of a Redis core that the fleet uses with nothing to do.
    """

    cell: Cell
    load: str
    side: str
    cost: Cost
    jobs_per_second: float
    rest_share: float

    def __str__(self) -> str:
        """The result in one line."""
        costs = ", ".join(f"{measure} {getattr(self.cost, measure):.2f}" for measure in MEASURES)
        rate, rest = f"{self.jobs_per_second:,.0f} jobs a second", f"at rest {self.rest_share:.2%}"
        return f"{self.side:5} {self.cell} {self.load}: {costs}, {rate}, {rest}"


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What to measure.

    Attributes:
        cells: The cells; those of one size share a fleet.
        loads: `backlog`, `trickle`.
        sides: The sides, in this order, and in reverse order in every second pair.
        pairs: The number of repetitions.
        rest_seconds: How long to observe a fleet at rest: longer than Ruby's pause of 10 s between beats.
        trickle_seconds: How long jobs trickle in.
        scale: A factor for the number of jobs in a backlog.
        queues: The queues' names and weights.
        per_parent: For ours, how many children a parent process has; 0 for no parent.
        task: For `sidekiq_celery` and `celery`, the task to run: `nap`, or `nap_kept`, which has a result; empty for
            jobs.
    """

    cells: tuple[Cell, ...] = CELLS
    loads: tuple[str, ...] = LOADS
    sides: tuple[str, ...] = SIDES
    pairs: int = 3
    rest_seconds: float = 11
    trickle_seconds: float = 5
    scale: float = 1
    queues: tuple[tuple[str, int], ...] = (("default", 0),)
    per_parent: int = 0
    task: str = ""

    def shape(self, processes: int) -> Shape:
        """The shape of a fleet."""
        return Shape(processes, queues=self.queues, per_parent=self.per_parent, runs_tasks=bool(self.task))

    def work(self, cell: Cell, side: str, server: Server) -> Work:
        """The work for a cell."""
        if self.task:
            return of_tasks(side, self.task, cell.milliseconds, server)
        queues = [name for name, _ in self.queues]
        return of_jobs("Nap" if cell.milliseconds else "NoOp", cell.milliseconds, queues)


def findings(plan: Plan) -> Iterator[Finding]:
    """Yield the findings one by one."""
    with pinned_server() as server:
        for number in range(plan.pairs):
            for processes, cells in groupby(sorted(plan.cells, key=_size), key=_size):
                of_this_size = list(cells)
                for side in plan.sides if number % 2 == 0 else plan.sides[::-1]:
                    with fleet(side, plan.shape(processes), server):
                        yield from _of_one_fleet(plan, of_this_size, side, server)


def _size(cell: Cell) -> int:
    return cell.processes


def _of_one_fleet(plan: Plan, cells: list[Cell], side: str, server: Server) -> Iterator[Finding]:
    of_load: dict[str, Callable[[Work, Server, int], Counters]] = {"backlog": of_backlog, "trickle": of_trickle}
    works = [plan.work(cell, side, server) for cell in cells]
    warm_up(works[0], server, cells[0].processes)
    rest = at_rest(server, plan.rest_seconds)
    for cell, work in zip(cells, works, strict=True):
        for load in plan.loads:
            is_backlog = load == "backlog"
            count = int(cell.backlog * plan.scale if is_backlog else TRICKLE_PER_SECOND * plan.trickle_seconds)
            with recorded("127.0.0.1", server.port) as recording:
                of_load[load](work, server, max(50, count // 20))
            counters = of_load[load](work, server, count)
            cost = Cost.of(counters, rest, count, sent_shares(recording.seen))
            yield Finding(cell, load, side, cost, count / counters.seconds, rest.cpu_us / rest.seconds / 1e6)


def table(found: list[Finding]) -> list[tuple[str, str]]:
    """One row for each cell, load and measure."""
    rows = []
    for cell, load in dict.fromkeys((finding.cell, finding.load) for finding in found):
        here = [finding for finding in found if (finding.cell, finding.load) == (cell, load)]
        for measure in MEASURES:
            what = f"fleet {cell}, {load}: {measure} per job"
            rows.append((what, beside(here, attrgetter(f"cost.{measure}"), "{:.2f}")))
        rows.append(
            (f"fleet {cell}, {load}: jobs per second", beside(here, lambda one: one.jobs_per_second, "{:,.0f}"))
        )
    for processes in dict.fromkeys(map(_size, (finding.cell for finding in found))):
        here = [finding for finding in found if finding.cell.processes == processes]
        rows.append(
            (
                f"fleet of {processes} at rest: percent of a Redis core",
                beside(here, lambda one: one.rest_share * 100, "{:.2f}"),
            )
        )
    return rows


def beside(found: list[Finding], value: Callable[[Finding], float], form: str) -> str:
    """The medians of both sides, and the ratio of ours to theirs."""
    return in_words(_of_sides(found, value), form)


def _of_sides(found: list[Finding], value: Callable[[Finding], float]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for one in sorted(found, key=lambda one: one.side != "ours"):
        values.setdefault(one.side, []).append(value(one))
    return values


def in_words(values: dict[str, list[float]], form: str) -> str:
    """The median of each side, and the ratio of ours to the other's, as text."""
    parts = [f"{side} {form.format(interval(ones)[0])}" for side, ones in values.items() if ones]
    others = [ones for side, ones in values.items() if side != "ours"]
    ours_to_theirs = ratio(values.get("ours", []), others[0]) if others else ""
    return ", ".join([*parts, f"ratio {ours_to_theirs}"] if ours_to_theirs else parts)


def together(plan: Plan, rounds: int) -> Iterator[tuple[str, str]]:
    """One row for each cell and load, with both sides measured at once."""
    for cell in plan.cells:
        for load in plan.loads:
            queues = [name for name, _ in plan.queues]
            work = of_jobs("Nap" if cell.milliseconds else "NoOp", cell.milliseconds, queues)
            is_backlog = load == "backlog"
            yield (
                f"fleet {cell}, {load}: µs of Redis's CPU per job",
                fleet_together.row(
                    plan.shape(cell.processes),
                    work,
                    of_backlog if is_backlog else of_trickle,
                    count=int(cell.backlog * plan.scale if is_backlog else TRICKLE_PER_SECOND * plan.trickle_seconds),
                    rounds=rounds,
                    sides=plan.sides,
                ),
            )


# Job -> what sets its row apart.
_COUNTING_JOBS = {"Count": "", "CountBare": ", here over a bare connection"}


def counting(sides: tuple[str, ...], pairs: int, sizes: tuple[int, ...], count: int) -> list[tuple[str, str, str]]:
    """
    Fleets with three threads per process whose jobs each send one HINCRBY: the seconds until the last one is done, on
    each side, and the ratio. Once with redis-py's client, and once over a bare connection.
    """
    rows = []
    with pinned_server() as server:
        for processes, (job, how) in product(sizes, _COUNTING_JOBS.items()):
            seconds: dict[str, list[float]] = {side: [] for side in sides}
            for number in range(pairs):
                for side in sides if number % 2 == 0 else sides[::-1]:
                    with fleet(side, Shape(processes, threads=3), server):
                        counting_seconds(server, 20 * processes, job)
                        seconds[side].append(counting_seconds(server, count, job))
            name = f"{processes} x 3 threads, {count:,} jobs of one HINCRBY{how}"
            rows.append((name, *_compared(seconds, "{:.1f}", " s")))
    return rows


COLUMNS = (
    "Fleet, job, load",
    "Redis's CPU per job, ours / theirs",
    "Ratio",
    "… with the cost at rest",
    "Ratio",
    "Commands per job, ours / theirs",
)


def summary(found: list[Finding], what: str = "") -> list[tuple[str, ...]]:
    """One row of the page for each cell and load, and one for each size at rest."""
    rows: list[tuple[str, ...]] = []
    for cell, load in dict.fromkeys((finding.cell, finding.load) for finding in found):
        here = [finding for finding in found if (finding.cell, finding.load) == (cell, load)]
        rows.append(
            (
                f"{cell.in_words}{what}, {_LOADS_IN_WORDS[load]}",
                *_compared(_of_sides(here, lambda one: one.cost.cpu_us), "{:.0f}", " µs"),
                *_compared(_of_sides(here, lambda one: one.cost.gross_us), "{:.0f}", " µs"),
                _compared(_of_sides(here, lambda one: one.cost.sent), "{:.1f}")[0],
            )
        )
    for processes in dict.fromkeys(map(_size, (finding.cell for finding in found))):
        here = [finding for finding in found if finding.cell.processes == processes]
        shares = _compared(_of_sides(here, lambda one: one.rest_share * 100), "{:.2f}", " % of a core")
        rows.append((f"{processes} processes{what}, at rest", "", "", *shares, ""))
    return rows


_LOADS_IN_WORDS = {"backlog": "backlog", "trickle": f"{TRICKLE_PER_SECOND} jobs per second and their pushes"}


def _compared(values: dict[str, list[float]], form: str, unit: str = "") -> tuple[str, str]:
    """The medians of the sides, ours first, and the ratio of ours to the other's."""
    medians = " / ".join(form.format(interval(ones)[0]) for ones in values.values())
    ours, *others = values.values()
    return medians + unit, ratio(ours, others[0]) if others else ""


def run() -> list[tuple[str, ...]]:
    """The rows of the table."""
    sides = SIDES if has_ruby() else SIDES[:1]
    rows = summary(list(findings(Plan(sides=sides, pairs=2))))
    middle = (Cell(20, 5),)
    rows += summary(list(findings(Plan(middle, sides=sides, pairs=2, queues=THREE_QUEUES))), ", three weighted queues")
    rows += summary(list(findings(Plan(middle, sides=sides, pairs=2, per_parent=4))), ", `--processes 4`")
    if find_spec("celery"):
        for task, what in (("nap", "without"), ("nap_kept", "with")):
            plan = Plan((Cell(2, 5),), sides=("ours", "celery"), pairs=2, scale=0.2, task=task)
            rows += summary(list(findings(plan)), f", Celery tasks {what} results (theirs: Celery)")
    return rows + [(*row, "", "", "") for row in counting(sides, 1, (20, 60), 50_000)]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--cells", default=",".join(map(str, CELLS)))
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--sides")
    parser.add_argument("--rest-seconds", type=float, default=11)
    parser.add_argument("--trickle-seconds", type=float, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of the number of jobs")
    parser.add_argument("--three-queues", action="store_true")
    parser.add_argument("--processes-per-parent", type=int, default=0)
    parser.add_argument("--tasks", choices=("nap", "nap_kept"), default="")
    parser.add_argument("--counting", action="store_true")
    parser.add_argument("--together", action="store_true", help="both sides at once, --pairs times")
    parser.add_argument("--simulate", help="so many processes, as 100,1000,5000")
    given = parser.parse_args()
    # If it is stopped by TERM, it still stops its server and its fleet.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sides = tuple(given.sides.split(",")) if given.sides else ("ours", "celery") if given.tasks else SIDES
    if "ruby" in sides:
        print(f"Ruby: Sidekiq {ruby_release()}", flush=True)
    if given.counting:
        counted = counting(sides, given.pairs, (20, 60), int(50_000 * given.scale))
        rows = [(name, f"{medians}, ratio {of_both}") for name, medians, of_both in counted]
    elif given.simulate:
        simulated = fleet_simulation.rows(sides, tuple(map(int, given.simulate.split(","))), given.pairs)
        rows = [(name, " | ".join(values)) for name, *values in simulated]
    else:
        plan = Plan(
            tuple(map(Cell.named, given.cells.split(","))),
            tuple(given.loads.split(",")),
            sides,
            given.pairs,
            given.rest_seconds,
            given.trickle_seconds,
            given.scale,
            THREE_QUEUES if given.three_queues else (("default", 0),),
            given.processes_per_parent,
            given.tasks,
        )
        found = []
        if given.together:
            rows = list(together(plan, given.pairs))
        else:
            for finding in findings(plan):
                found.append(finding)
                print(finding, file=sys.stderr, flush=True)
            rows = table(found)
    for name, value in rows:
        print(f"{name:55} {value}")


if __name__ == "__main__":
    main()

"""The bench of fleets: what it reckons with, and that one tiny fleet can be measured."""

import math
import runpy
import sys

import pytest

pytest.importorskip("starlette")

from bench import drain, push
from bench.__main__ import QUESTIONS, Section, question_of, with_section
from bench.fleet import Cell, Plan, findings, summary, table
from bench.fleet_counters import Cost, Counters, interval, ratio
from bench.fleet_monitor import Seen, parsed, sent_shares
from bench.fleet_simulation import turns


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
def test_the_help_of_a_benchmark_says_what_it_measures_and_runs_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some run for half an hour on all cores."""
    monkeypatch.setattr(sys, "argv", [name, "--help"])

    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=True)

    assert ended.value.code == 0
    assert question_of(QUESTIONS[name]) in capsys.readouterr().out


def test_a_cost_is_what_the_work_took_above_the_fleet_at_rest() -> None:
    """The idle fleet's share of the time is taken off before the rest is shared out among the jobs."""
    rest = Counters(10.0, 1_000.0, 20, {"blmove": 10}, {"blmove": 100})
    work = Counters(5.0, 2_500.0, 110, {"blmove": 5, "evalsha": 200}, {"blmove": 50, "evalsha": 1_000})

    cost = Cost.of(work, rest, jobs=100, sent_shares={})

    assert cost == Cost(cpu_us=20.0, gross_us=25.0, commands=2.0, sent=2.0, evalsha=2.0, command_us=10.0, reads=1.0)


def test_what_a_script_or_a_transaction_holds_counts_once() -> None:
    """Commands that scripts send are no commands of a client, and their time is in the script's already."""
    rest = Counters(1.0, 0.0, 0)
    work = Counters(1.0, 0.0, 0, {"evalsha": 10, "hset": 40, "exec": 10}, {"evalsha": 90, "hset": 40, "exec": 95})

    cost = Cost.of(work, rest, jobs=10, sent_shares={"evalsha": 1.0, "hset": 0.25, "exec": 1.0})

    assert (cost.commands, cost.sent, cost.command_us) == (6.0, 3.0, 10.0)


@pytest.mark.parametrize(("count", "low", "high"), [(1, 0, 0), (3, 0, 2), (6, 0, 5), (9, 1, 7), (20, 5, 14)], ids=str)
def test_an_interval_leaves_out_what_chance_alone_would_reach(count: int, low: int, high: int) -> None:
    """As in the tables of the sign test: of 9 draws the second lowest and second highest, of 20 the sixth."""
    middle, *ends = interval([float(number) for number in range(count)][::-1])

    assert (middle, ends) == ((count - 1) / 2, [low, high])


def test_a_ratio_to_nothing_is_left_out() -> None:
    """Ruby sends no scripts; so many times none says nothing."""
    assert ratio([2.0, 3.0], [1.0, 1.0]) == "2.50 (2.00 to 3.00)"
    assert ratio([2.0], [0.0]) == ""


def test_a_line_of_monitor_is_read_as_it_was_sent() -> None:
    """Bytes that MONITOR writes as escapes come back."""
    line = rb'+1795346938.603365 [0 127.0.0.1:59180] "SET" "a \"b\"\\" "\x00\xff\r\n"'

    assert parsed(line) == Seen(1795346938.603365, "127.0.0.1:59180", (b"SET", b'a "b"\\', b"\x00\xff\r\n"))


def test_commands_of_one_write_are_one_turn() -> None:
    """What runs back to back came in one write, a script's own commands between; a pause or another client ends it."""
    seen = [
        Seen(1.0, "a:1", (b"EVALSHA", b"x")),
        Seen(1.00001, "lua", (b"HDEL", b"k", b"f")),
        Seen(1.00002, "a:1", (b"PING",)),
        Seen(1.5, "a:1", (b"PING",)),
        Seen(1.50001, "b:2", (b"PING",)),
        Seen(1.50002, "a:1", (b"PING",)),
    ]

    found = turns(seen, {"a:1": 0})

    assert [(turn.commands, math.floor(turn.after * 10)) for turn in found] == [(2, 0), (1, 5), (1, 5)]
    assert found[0].bytes == b"*2\r\n$7\r\nEVALSHA\r\n$1\r\nx\r\n*1\r\n$4\r\nPING\r\n"
    assert sent_shares(seen) == {"evalsha": 1.0, "hdel": 0.0, "ping": 1.0}


def test_a_look_at_the_other_process_becomes_one_at_all() -> None:
    """An MGET that named the one other process of the recording names each of the simulated ones."""
    [turn] = turns([Seen(1.0, "a:1", (b"MGET", b"lease:b"))], {"a:1": 0})

    assert turn.at_size(b"b", [b"x", b"y"]).bytes == b"*3\r\n$4\r\nMGET\r\n$7\r\nlease:x\r\n$7\r\nlease:y\r\n"


def test_a_cell_is_named_by_processes_and_length() -> None:
    """And what is no cell is told how to write one."""
    assert [str(Cell.named(name)) for name in ("20x5ms", "2xnoop")] == ["20x5ms", "2xnoop"]
    with pytest.raises(ValueError, match="20x5ms"):
        Cell.named("20 x five")


def section(question: str, cost: str) -> Section:
    """A section with one row."""
    return Section(question, "Measured here.", ("", "Result"), [("push", cost)])


PUSH, DRAIN = map(question_of, (push, drain))


def test_each_question_has_a_section_of_the_page() -> None:
    """In the order of the benchmarks, whichever was run last."""
    text = with_section(with_section("", section(PUSH, "5 µs")), section(DRAIN, "7 µs"))

    assert text.startswith("# Benchmarks\n")
    assert f"\n\n## {PUSH}\n\nMeasured here.\n\n|  | Result |\n| --- | --- |\n| push | 5 µs |\n" in text
    assert text.index(DRAIN) < text.index(PUSH)


def test_a_section_replaces_the_one_before_and_leaves_the_others() -> None:
    """Notes that people wrote stay at the end of the page."""
    notes = "## Notes\n\nA push is fast.\n\n### Why\n\nIt is short.\n"
    old = with_section(with_section("", section(PUSH, "7 µs")), section(DRAIN, "7 µs")) + "\n" + notes

    new = with_section(old, section(PUSH, "5 µs"))

    assert new == old.replace("| push | 7 µs |\n\n## Notes", "| push | 5 µs |\n\n## Notes")
    assert new.endswith("| push | 5 µs |\n\n" + notes)


def test_a_tiny_fleet_is_measured() -> None:
    """Its jobs take Redis's time, no less with the rest left in than without; the table names both loads."""
    plan = Plan((Cell(1, 1),), sides=("ours",), pairs=1, rest_seconds=0.5, trickle_seconds=0.5, scale=0.02)

    found = list(findings(plan))

    assert [(str(one.cell), one.load, one.side) for one in found] == [
        ("1x1ms", "backlog", "ours"),
        ("1x1ms", "trickle", "ours"),
    ]
    # No more is certain: what rest takes off is drawn from half a second, and may be more than all that was sent.
    assert all(one.cost.gross_us >= one.cost.cpu_us and one.cost.gross_us > 0 for one in found)
    assert all(one.rest_share > 0 and one.jobs_per_second > 0 for one in found)
    assert dict(table(found))["fleet 1x1ms, trickle: sent per job"] == f"ours {found[1].cost.sent:.2f}"
    rows = {name: cells for name, *cells in summary(found)}
    assert rows["1 processes, 1 ms, 200 jobs per second and their pushes"][0] == f"{found[1].cost.cpu_us:.0f} µs"
    assert rows["1 processes, 1 ms, 200 jobs per second and their pushes"][4] == f"{found[1].cost.sent:.1f}"

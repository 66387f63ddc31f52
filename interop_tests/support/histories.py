"""
Random histories of jobs: what programs push, what workers and pollers do, and which buttons people press.

A step is a dict: `now` (epoch s), `draw` (the first number for job ids) and `do`, which is one of

- `perform_async`, `perform_in`: a `job` with `args`, options to `set`, an `interval`;
- `push`: an `item`; `write`: a `text` that another program puts into `key`, with or without a `score`;
- `run`: the next job of `queue`; `promote`: all jobs that are due;
- `entry`: a `deed` on an entry of a `set`, by its `number` counted from the lowest score; `reschedule` has `at`;
- `all`: a `deed` on a whole `set`; `delete_queued`, `clear_queue`: of a `queue`.
"""

import json
import operator
from typing import Any

from hypothesis import strategies as st

Step = dict[str, Any]

# A fraction that Ruby's `Time.at(seconds).to_f` returns unchanged; with 0.75 the last bit differs.
START = 1_700_000_000.123456
GAPS_SECONDS = [0, 0, 0, 1, 5, 16, 16, 40, 130, 700]

QUEUES = ["default", "default", "default", "low", "low", "slow"]
JOBS = [
    "FixtureJob",
    "RetryFalseJob",
    "RetryZeroJob",
    "RetryThreeJob",
    "RetryInJob",
    "BacktraceJob",
    "NeverDeadJob",
    "RetryQueueJob",
    "ExhaustedJob",
]
MESSAGES = ["boom", "", "caf\u00e9 \U0001f600 \u2028", 'a "quote" \\ \n\t\x01</script>', "\u00e9" * 10_001]
VALUES = [
    None, True, 0, -1, 2**63, -(2**63) - 1, 10**30, 1.5, -0.0, 1e-7, 1e15, 1e16, 1e22, 1e23, 5e-324, 1700000000.123456,
    "", "\u2028\u00e9", "\x00\x1f\x7f", "\U0001f600", [], {}, [[{"k": [1.0]}]], {"b": 1, "a": 2**70},
]  # fmt: skip

values = st.sampled_from(VALUES)
queues = st.sampled_from(QUEUES)
jobs = st.sampled_from(JOBS)
failing = st.tuples(st.just("raise"), st.sampled_from(MESSAGES)).map(list)
fine = st.tuples(st.just("ok"), values).map(list)
args = st.one_of(failing, failing, fine)
numbers = st.integers(min_value=0, max_value=7)
sets = st.sampled_from(["schedule", "retry", "dead"])
waiting_sets = st.sampled_from(["schedule", "retry"])
scores = st.sampled_from([1_700_000_010.5, 1_700_000_100, 1_700_050_000.25])
intervals = st.sampled_from([1, 0.5, 30, 65.25, 300, 100_000, 1_700_000_090, 1_700_000_200.5, -5])
moments = st.sampled_from([1_699_999_000.5, 1_700_000_050, 1_700_000_300.25, 4_000_000_000])

options = st.fixed_dictionaries(
    {},
    optional={
        "queue": queues,
        "retry": st.sampled_from([True, False, 0, 1, 5]),
        "backtrace": st.sampled_from([True, False, 2]),
        "dead": st.booleans(),
        "retry_queue": queues,
        "retry_for": st.sampled_from([10, 3600]),
        "tags": st.just(["a", "\u00e9"]),
        "note": values,
    },
)

items = st.builds(operator.or_, st.fixed_dictionaries({"class": jobs, "args": args}), options)

_JID = "<jid>"
_STORED = {
    "queue": queues,
    "retry": st.sampled_from([True, False, None, 0, 3, "3"]),
    "created_at": st.sampled_from([1_699_990_000.5, 1_699_990_000_500]),
    "retry_count": st.sampled_from([0, 1, 2, 24]),
    "failed_at": st.sampled_from([1_699_990_000.5, 1_699_999_999_500]),
    "error_message": st.sampled_from(MESSAGES[:4]),
    "error_class": st.just("OldError"),
    "backtrace": st.sampled_from([True, 1, False]),
    "dead": st.just(False),
    "traceparent": st.just("00-ab"),
    "\u00e9\u2028": values,
}


@st.composite
def stored_texts(draw: st.DrawFn) -> str:
    """A payload as another program may have written it, with its own keys, order and formatting."""
    job = draw(st.fixed_dictionaries({"class": jobs, "args": args}, optional=_STORED))
    job["jid"] = _JID
    names = draw(st.permutations(list(job)))
    spelling: dict[str, Any] = draw(
        st.sampled_from([{"separators": (",", ":"), "ensure_ascii": False}, {}, {"separators": (" ,", ":\n")}])
    )
    return json.dumps({name: job[name] for name in names}, **spelling)


def _step(kind: str, **parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    """A step of one kind; `set_options` is optional."""
    options_of_push = {"set": parts.pop("set_options")} if "set_options" in parts else {}
    return st.fixed_dictionaries({"do": st.just(kind), **parts}, optional=options_of_push)


# Each with its weight: jobs have to live for a while, or there is nothing to compare.
_KINDS: list[tuple[int, st.SearchStrategy[Step | None]]] = [
    (1, st.none()),
    (4, _step("perform_async", job=jobs, args=args, set_options=options.filter(bool))),
    (3, _step("perform_in", job=jobs, args=args, interval=intervals, set_options=options.filter(bool))),
    (2, _step("push", item=items)),
    (1, _step("write", key=queues.map("queue:{}".format), text=stored_texts())),
    (2, _step("write", key=sets, text=stored_texts(), score=scores)),
    (12, _step("run", queue=queues)),
    (5, _step("promote")),
    (2, _step("entry", set=waiting_sets, number=numbers, deed=st.sampled_from(["retry", "kill", "add_to_queue"]))),
    (1, _step("entry", set=st.just("dead"), number=numbers, deed=st.sampled_from(["retry", "add_to_queue"]))),
    (1, _step("entry", set=sets, number=numbers, deed=st.just("delete"))),
    (2, _step("entry", set=waiting_sets, number=numbers, deed=st.just("reschedule"), at=moments)),
    (1, _step("all", set=st.sampled_from(["retry", "dead"]), deed=st.just("retry_all"))),
    (1, _step("all", set=st.just("retry"), deed=st.just("kill_all"))),
    (1, _step("delete_queued", queue=queues, number=numbers)),
    (1, _step("clear_queue", queue=queues)),
]
steps = st.sampled_from([kind for weight, kind in _KINDS for _ in range(weight)]).flatmap(lambda kind: kind)


@st.composite
def histories(draw: st.DrawFn, least: int = 30, most: int = 90) -> list[Step]:
    """Steps in order of time. Steps can be empty, so that a failing history can shrink to a few steps."""
    now = START
    history: list[Step] = []
    for step in filter(None, draw(st.lists(steps, min_size=least, max_size=most))):
        now = round(now + draw(st.sampled_from(GAPS_SECONDS)), 6)
        timed = {**step, "now": now, "draw": 100 * len(history)}
        if "text" in step:
            # If two jobs have the same id and score, Ruby's buttons lose one of them.
            timed["text"] = step["text"].replace(_JID, f"written-{len(history)}")
        history.append(timed)
    return history

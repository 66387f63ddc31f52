"""The Busy page: processes and their running jobs, with buttons to quiet, stop or dump one process or all of them."""

import re
from collections.abc import Callable, Sequence

from starlette.responses import Response

from sidekiq_py.api import OverviewScope, Process, ProcessSet
from sidekiq_py.api.job_record import moment
from sidekiq_py.api.processes import is_silent, seconds_since_beat
from sidekiq_py.errors import SidekiqError
from sidekiq_py.logs import counted
from sidekiq_py.web.access import Need
from sidekiq_py.web.handlers import Handler
from sidekiq_py.web.visit import Visit
from sidekiq_py.wire.process_info import PYTHON_LABEL

_SHOWN = 100
_FEW_QUEUES = 8
_MOST_CAPSULES = 20
_MOST_LABELS = 10
_ADVICE = {
    "quiet": "Running jobs finish, and no others are fetched until a restart.",
    "stop": "No more jobs are fetched. Running jobs may finish within the process's shutdown timeout, usually 25 "
    "seconds; then they go back to their queues and run again.",
}
_SIGNALS: dict[str, tuple[Callable[[Process], None], str]] = {
    "quiet": (Process.quiet, "{} will fetch no more jobs"),
    "stop": (Process.stop, "{} will finish running jobs and exit"),
    "dump": (Process.dump_threads, "{} will log what each thread is doing"),
}


def busy(visit: Visit) -> Response:
    """The page."""
    seen = visit.server.watch.look("/busy", OverviewScope(queues=lambda _names: ()), is_live=visit.is_live)
    start, works_start = visit.query_number("from"), visit.query_number("works")
    silent = {process.identity for process in seen.processes if is_silent(process, seen.at)}
    # Silent ones first, as in `top`: among a hundred nobody would find them.
    in_order = sorted(seen.processes, key=lambda process: (process.identity not in silent, _natural(process.identity)))
    processes = in_order[start : start + _SHOWN]
    works = seen.works[works_start : works_start + _SHOWN]
    return visit.page(
        "busy.html",
        seen=seen,
        processes=[
            (
                process,
                _labels(process),
                _served(process),
                seen.in_flight_of(process.identity),
                process.identity in silent,
                moment(seen.at - seconds_since_beat(process, seen.at)),
            )
            for process in processes
        ],
        silent=len(silent),
        utilization=len(seen.works) / seen.concurrency if seen.concurrency else 0.0,
        rss_kb=sum(process.rss_kb for process in seen.processes),
        works=[(work, visit.shown(work.job)) for work in works],
        start=start,
        works_start=works_start,
        shown=_SHOWN,
        few=_FEW_QUEUES,
        advice=_ADVICE,
    )


def signal(visit: Visit) -> Response:
    """
    Quiet, stop or dump one process, or all of them.

    All of them only with `all=1`: a form in which the identity got lost must not stop the fleet.
    """
    action, identity, everything = visit.field("action"), visit.field("identity"), visit.field("all") == "1"
    if action not in _SIGNALS:
        return visit.redirect("/busy", "There is no such action; nothing was done.")
    if bool(identity) == everything:
        advice = "Send the identity of one process, or all=1 for all processes. Nothing was done."
        return visit.error(400, "Which process?", advice)
    if action == "stop" or (action == "quiet" and everything):
        question = f"{action.capitalize()} {identity if identity else 'all processes'}?"
        asked = visit.question(question, _ADVICE[action], path="/busy/signal", back="/busy")
        if asked is not None:
            return asked
    processes = ProcessSet(clean=False, pool=visit.pool)
    if identity:
        found = processes.find(identity)
        chosen = [] if found is None else [found]
    else:
        chosen = list(processes)
    if not chosen:
        return visit.redirect("/busy", "The process has exited; nothing was done.")
    visit.audit(action, identity or "all processes", f"{len(chosen)} of them" if not identity else "")
    send, sentence = _SIGNALS[action]
    done, refused = 0, 0
    for process in chosen:
        try:
            send(process)
            done += 1
        except SidekiqError:
            # The process is embedded in another program, and only that program can stop it.
            refused += 1
    what = sentence.format(identity if identity else counted(done, "process", "processes"))
    notice = f"{what}, starting at the next heartbeat." if done else "Nothing was done."
    if refused:
        notice += f" {refused} cannot be controlled from here: embedded in another program."
    return visit.redirect_back(notice, "/busy")


HANDLERS = (
    Handler("GET", "/busy", busy, Need.VIEW, "/busy", is_live=True),
    Handler("POST", "/busy/signal", signal, Need.OPERATE, "/busy"),
)


def _labels(process: Process) -> list[str]:
    """The labels that people have given it."""
    return [label for label in process.labels if label != PYTHON_LABEL][:_MOST_LABELS]


def _served(process: Process) -> list[tuple[str, Sequence[str]]]:
    """Its queues; if there are several capsules, those of each with its name and threads."""
    if len(process.capsules) < 2:
        return [("", process.queues)]
    return [
        (", ".join(part for part in (one.name, _threads(one.concurrency)) if part), tuple(one.weights))
        for one in process.capsules[:_MOST_CAPSULES]
    ]


def _threads(count: int) -> str:
    """Before Sidekiq 8.0.9, a process does not say how many threads a capsule has."""
    return counted(count, "thread") if count else ""


def _natural(text: str) -> list[int | str]:
    """A sort key that places `web-2` before `web-10`. Source: Sidekiq 8.1.7, web/helpers.rb, `sorted_processes`."""
    return [int(part) if part.isascii() and part.isdigit() else part for part in re.split(r"([0-9]{1,18})", text)]

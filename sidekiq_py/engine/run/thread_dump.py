"""A readable dump of what every thread is doing, for the log: on the signal TTIN and the Web UI's button."""

import asyncio
import sys
import threading
from collections.abc import Iterable, Iterator
from traceback import StackSummary, extract_stack
from types import FrameType
from typing import Any

from sidekiq_py import tid
from sidekiq_py.clock import now_seconds
from sidekiq_py.engine.run.work_state import RunningJob, WorkState
from sidekiq_py.logs import counted
from sidekiq_py.wire.control_characters import escaped
from sidekiq_py.wire.payload import parse_job_or_empty

_THIS_FILE = __file__
# The frame of what can be awaited, and what it awaits itself: coroutines, generators, async generators.
_AWAITING = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))


def thread_dump(state: WorkState, tasks: Iterable[tuple[str, StackSummary]] = ()) -> str:
    """
    Describe all threads of this process, busy ones first, then the jobs on the event loop.

    Args:
        state: Knows which thread runs which job.
        tasks: One line for each job on the event loop, and where the job waits.
    """
    jobs = {job.tid: job for job in state.snapshot()}
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = sorted(frames.items(), key=lambda item: (tid.of_thread(item[0]) not in jobs, names.get(item[0], "")))
    now = now_seconds()
    parts = [f"{counted(len(threads), 'thread')}, {counted(len(jobs), 'job')} running"]
    for ident, frame in threads:
        name = tid.of_thread(ident)
        parts.append(_thread(name, names.get(ident, "unknown to Python"), jobs.pop(name, None), frame, now))
    # The jobs that are left run on the event loop; their tid is the name of a slot.
    parts += [f"On the event loop: TID-{name} {_job(job, now)}" for name, job in jobs.items()]
    parts += ["\n".join([f"Task: {escaped(text)}", *_lines(stack)]) for text, stack in tasks]
    return "\n".join(parts)


def awaited_stack(task: asyncio.Task[Any] | None) -> StackSummary:
    """Where a task waits: its coroutine, what that awaits, and so on. `Task.get_stack` has only the first of them."""
    # What a program's own task factory returns may be another kind of future.
    coroutine = getattr(task, "get_coro", lambda: None)()
    return StackSummary.extract(_awaited_frames(coroutine))


def _awaited_frames(awaited: Any) -> Iterator[tuple[FrameType, int]]:
    while kind := next((kind for kind in _AWAITING if hasattr(awaited, kind[0])), None):
        frame = getattr(awaited, kind[0])
        if frame is None:
            return  # it has just ended
        yield frame, frame.f_lineno
        awaited = getattr(awaited, kind[1])


def _thread(name: str, title: str, job: RunningJob | None, frame: FrameType, now: float) -> str:
    head = f"Thread TID-{name} {title}" + (f" runs {_job(job, now)}" if job is not None else "")
    lines = _lines(extract_stack(frame))
    return "\n".join([head, *lines]) if lines else f"{head}\n  <no backtrace available>"


def _lines(stack: StackSummary) -> list[str]:
    """In Ruby's order: the innermost frame comes first."""
    return [
        f"  {entry.filename}:{entry.lineno} in {entry.name}: {entry.line or ''}".rstrip(": ")
        for entry in reversed(stack)
        if entry.filename != _THIS_FILE
    ]


def _job(job: RunningJob, now: float) -> str:
    """The job's class, jid, queue and running time. Its bytes need not be a valid payload."""
    payload = parse_job_or_empty(job.unit.raw)
    shown = payload.get("wrapped") or payload.get("class") or "an unreadable job"
    text = f"{shown} jid={payload.get('jid')} queue={job.unit.queue} for {now - job.started_at:.1f} s"
    return escaped(text)

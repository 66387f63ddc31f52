"""A picture of a process that a person can read."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from traceback import StackSummary
from typing import Any

from sidekiq_py import tid
from sidekiq_py.clock import monotonic
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.run.thread_dump import awaited_stack, thread_dump
from sidekiq_py.engine.run.work_state import WorkState


def test_a_busy_thread_shows_its_job_and_where_it_is() -> None:
    """The busy ones stand first, each with class, jid, queue and seconds, then the newest call."""
    state, entered, leave = WorkState(), threading.Event(), threading.Event()

    def a_long_query() -> None:
        unit = UnitOfWork(b'{"class":"Report","jid":"7","args":[]}', "slow", None, b"1:slow", False, 0.0)
        state.running[tid.current()] = (unit, monotonic() - 2)
        entered.set()
        leave.wait()

    thread = threading.Thread(target=a_long_query, name="sidekiq.default/processor")
    thread.start()
    entered.wait()

    dump = thread_dump(state)
    leave.set()
    thread.join()

    count, head, *stack = dump.splitlines()
    assert count.endswith("threads, 1 job running")
    name = tid.of_thread(thread.ident or 0)
    assert head == f"Thread TID-{name} sidekiq.default/processor runs Report jid=7 queue=slow for 2.0 s"
    assert "in wait" in stack[0]
    assert any("in a_long_query: leave.wait()" in line for line in stack)
    assert "MainThread" in dump


def test_jobs_on_the_event_loop_are_listed() -> None:
    """They have slots for names, and no thread of their own."""
    state = WorkState()
    unit = UnitOfWork(b'{"class":"Mail","wrapped":"NewsJob","jid":"8"}', "mail", None, b"", False, 0.0)
    state.running["slot1"] = (unit, monotonic())

    dump = thread_dump(state, [("NewsJob <Task pending>", StackSummary())])

    assert "On the event loop: TID-slot1 NewsJob jid=8 queue=mail for 0.0 s" in dump
    assert dump.endswith("Task: NewsJob <Task pending>")


def test_a_job_on_the_event_loop_shows_where_it_waits() -> None:
    """Down to the innermost call that awaits, as a thread does. The task by itself names only the outermost one."""

    async def an_answer() -> None:
        await asyncio.Event().wait()

    async def answers() -> AsyncIterator[int]:
        await an_answer()
        yield 1

    async def a_job() -> None:
        async for _ in answers():
            pass

    async def dump_of(coroutine: Coroutine[Any, Any, None]) -> list[str]:
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(0)
        dump = thread_dump(WorkState(), [("Mail", awaited_stack(task))])
        task.cancel()
        return dump.partition("Task: Mail\n")[2].splitlines()

    waits, serves = asyncio.run(dump_of(an_answer())), asyncio.run(dump_of(a_job()))

    assert [line.partition(" in ")[2] for line in waits] == [
        "wait: await fut",
        "an_answer: await asyncio.Event().wait()",
    ]
    assert serves[-1].endswith("in a_job: async for _ in answers()")


def test_a_future_of_the_program_s_own_task_factory_has_no_stack() -> None:
    """The dump must not fail."""
    future: Any = Future()

    assert list(awaited_stack(future)) == []


def test_a_job_has_one_line_whatever_its_payload_has() -> None:
    """It cannot forge the line of another thread."""
    state = WorkState()
    raw = b'{"class":"Mail\\nThread TID-1 idle","jid":"\\u001b[31m","args":[]}'
    state.running["slot1"] = (UnitOfWork(raw, "mail", None, b"", False, 0.0), monotonic())

    dump = thread_dump(state, [("Mail\nThread TID-2 <Task>", StackSummary())])

    assert r"On the event loop: TID-slot1 Mail\nThread TID-1 idle jid=\x1b[31m queue=mail" in dump
    assert dump.endswith(r"Task: Mail\nThread TID-2 <Task>")


def test_a_job_that_cannot_be_read_does_not_break_the_dump() -> None:
    """The bytes of a job may be anything."""
    state = WorkState()
    state.running[tid.current()] = (UnitOfWork(b"\xff not JSON", "q", None, b"", False, 0.0), monotonic())

    assert "an unreadable job jid=None queue=q" in thread_dump(state)

"""What events say of a cluster."""

import pickle
from itertools import count
from typing import Any

import pytest
from sidekiq_celery import states
from sidekiq_celery.events.state import State, Task, Worker, heartbeat_expires

NOW = 4_000_000_000.0
"""In the future, so that whoever was heard of then is alive."""
_clock = count(1)


def event(kind: str, hostname: str = "w1@here", **fields: Any) -> dict[str, Any]:
    """An event as a receiver hands it on."""
    times = {"timestamp": NOW, "local_received": NOW, "clock": next(_clock)}
    return {"type": kind, "hostname": hostname, **times, **fields}


def state_after(*kinds: str, uuid: str = "1", **fields: Any) -> State:
    """A state after events of one task."""
    state = State()
    for kind in kinds:
        state.event(event(f"task-{kind}", uuid=uuid, **fields))
    return state


def test_a_worker_lives_until_it_says_otherwise_or_nothing() -> None:
    """Twice its heartbeat's time may pass."""
    state = State()

    (worker, is_new), what = state.event(event("worker-online", freq=2.0, pid=7))
    assert (worker.alive, worker.status_string, is_new, what) == (True, "ONLINE", True, "online")
    assert (worker.id, worker.heartbeat_expires) == ("w1@here.7", NOW + 4)
    state.event(event("worker-offline"))
    assert list(state.alive_workers()) == []

    state.event(event("worker-heartbeat", "old@here", timestamp=1000.0, local_received=1000.0))
    assert not state.workers["old@here"].alive
    assert heartbeat_expires(100, freq=60) == 220


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["received"], states.RECEIVED),
        (["received", "started"], states.STARTED),
        (["received", "started", "succeeded"], states.SUCCESS),
        (["started", "failed"], states.FAILURE),
        (["started", "retried"], states.RETRY),
        (["started", "retried", "received", "started"], states.STARTED),
        (["received", "revoked"], states.REVOKED),
        (["sent"], states.PENDING),
        (["received", "progress"], "PROGRESS"),
        (["succeeded", "started", "received"], states.SUCCESS),
        (["received", "sent"], states.RECEIVED),
    ],
)
def test_a_tasks_state_is_the_one_that_comes_last_logically(kinds: list[str], expected: str) -> None:
    """In whatever order events arrive."""
    assert state_after(*kinds).tasks["1"].state == expected


def test_a_late_event_still_tells_what_it_alone_knows() -> None:
    """The name of a task that has ended by then; not a state."""
    state = state_after("succeeded", result="3")
    state.event(event("task-received", uuid="1", name="proj.add", args="(1, 2)", hostname="other@here"))

    task = state.tasks["1"]
    assert (task.state, task.name, task.args, task.result, task.ready) == ("SUCCESS", "proj.add", "(1, 2)", "3", True)
    assert state.task_count == 1


def test_a_client_is_no_worker() -> None:
    """Who sends a task is its client."""
    state = state_after("sent", hostname="gen1@here")

    assert (state.tasks["1"].client, state.tasks["1"].origin, dict(state.workers)) == ("gen1@here", "gen1@here", {})


def test_tasks_are_found_by_time_name_and_worker() -> None:
    """The latest first, by the senders' logical clocks."""
    state = State()
    for number, (name, clock) in enumerate([("a", 10), ("b", 30), ("a", 20)]):
        about = {"uuid": str(number), "name": name, "hostname": f"{name}@here"}
        state.event(event("task-received", **about) | {"clock": clock})

    assert [uuid for uuid, _ in state.tasks_by_time()] == ["1", "2", "0"]
    assert [uuid for uuid, _ in state.tasks_by_time(reverse=False)] == ["0", "2", "1"]
    assert [uuid for uuid, _ in state.tasks_by_type("a")] == ["2", "0"]
    assert [uuid for uuid, _ in state.tasks_by_worker("a@here", limit=1)] == ["2"]
    assert {task.uuid for task in state.tasks_by_type["a"]} == {"0", "2"}
    assert [uuid for uuid, _ in state.itertasks(limit=2)] == ["0", "1"]
    assert state.task_types() == ["a", "b"]


def test_tasks_know_their_parents_and_children() -> None:
    """Whichever is heard of first."""
    state = State()
    state.event(event("task-received", uuid="child", name="b", parent_id="parent", root_id="parent"))
    state.event(event("task-received", uuid="parent", name="a", root_id="parent"))

    child, parent = state.tasks["child"], state.tasks["parent"]
    assert (child.parent, child.root, list(parent.children)) == (parent, parent, [child])


def test_memory_is_bounded() -> None:
    """The tasks and workers that were not heard of for longest are forgotten."""
    state = State(max_tasks_in_memory=10, max_workers_in_memory=2)
    for number in range(100):
        state.event(event("task-received", f"w{number}@here", uuid=str(number), name="a", parent_id=f"p{number}"))

    assert len(state.tasks) == 10
    assert len(state.workers) == 2
    assert len(state._taskheap) <= 10 * State.heap_multiplier
    assert len(state._tasks_to_resolve) <= 10


def test_pictures_and_clearing() -> None:
    """`clear` keeps tasks that have not ended; `freeze_while` may clear behind."""
    state = state_after("received", "succeeded")
    state.event(event("task-started", uuid="2"))

    assert state.freeze_while(lambda: len(state.tasks)) == 2
    state.clear()
    assert (list(state.tasks), dict(state.workers), state.event_count) == (["2"], {}, 0)
    state.clear_tasks(ready=False)
    assert list(state.tasks) == []


def test_who_listens_is_told_of_workers_and_events() -> None:
    """A callback for each event, two for workers that come and go, handlers for groups of a program's own."""
    seen: list[Any] = []
    state = State(
        callback=lambda _, event: seen.append(event["type"]),
        on_node_join=lambda worker: seen.append(("join", worker.hostname)),
        on_node_leave=lambda worker: seen.append(("leave", worker.hostname)),
    )
    state.handlers["custom"] = lambda what, event: f"handled {what}"

    state.event(event("worker-online"))
    state.event(event("worker-offline"))
    assert state.event(event("custom-mood")) == ("handled mood", "mood")

    expected = ["worker-online", ("join", "w1@here"), "worker-offline", ("leave", "w1@here"), "custom-mood"]
    assert seen == expected
    assert dict(state.workers) == {}


def test_a_state_is_kept_and_read_again() -> None:
    """As monitors do between two starts."""
    state = state_after("received", "started", name="proj.add")
    state.event(event("worker-heartbeat", active=1, loadavg=[1, 2, 3]))

    again = pickle.loads(pickle.dumps(state))

    assert again.tasks["1"] == Task(uuid="1")
    assert again.tasks["1"].state == states.STARTED
    assert again.workers["w1@here"] == Worker("w1@here")
    assert (again.workers["w1@here"].active, again.workers["w1@here"].alive) == (1, True)
    assert [uuid for uuid, _ in again.tasks_by_time()] == ["1"]
    assert len(again.tasks_by_type["proj.add"]) == 1


def test_clocks_of_machines_that_differ_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """From sixteen seconds on. Each event has other times, and a busy worker sends thousands of them."""
    worker = Worker("drifting@here")
    for sent_at in (NOW, NOW + 2):
        worker.event("heartbeat", sent_at, sent_at + 100)

    assert [record.getMessage()[:40] for record in caplog.records] == ["Substantial drift from drifting@here: it"]

"""Processes of every release are shown, and hear of signals."""

import json
import tracemalloc
from datetime import UTC, datetime

import pytest

from sidekiq_py.api import Process, ProcessSet, WorkSet
from sidekiq_py.errors import SidekiqError
from tests.api.conftest import T0


@pytest.fixture
def beat(redis_client):
    """Writes a heartbeat: `beat("host:1:abc", {"concurrency": 5}, busy=2)`."""

    def write(identity, info, **fields):
        info = {"hostname": "host", "started_at": T0, "pid": 7, "tag": "app", "identity": identity, **info}
        redis_client.sadd("processes", identity)
        redis_client.hset(identity, mapping={"info": json.dumps(info), "beat": T0, "quiet": "false", **fields})

    return write


def test_a_process_of_6_4_is_read(pool, beat):
    """Concurrency in `info`, no version, no capsules."""
    beat("h:7:a", {"concurrency": 5, "queues": ["low", "high"], "labels": []}, busy=2, rss=1000, rtt_us=99)

    [process] = ProcessSet()

    assert isinstance(process, Process)
    assert (process.identity, process.hostname, process.pid, process.tag) == ("h:7:a", "host", 7, "app")
    assert (process.concurrency, process.busy, process.rss_kb, process.rtt_us) == (5, 2, 1000, 99)
    assert (process.queues, process.version, process.is_stopping) == (("low", "high"), None, False)
    assert process.started_at == process.beat_at == datetime.fromtimestamp(T0, UTC)
    assert not process.is_python


def test_a_process_of_8_1_is_read(pool, beat):
    """Concurrency in a field of its own, queues in capsules."""
    capsules = {
        "default": {"concurrency": 3, "mode": "weighted", "weights": {"a": 2, "b": 1}},
        "one": {"concurrency": 1, "mode": "strict", "weights": {"a": 0}},
    }
    beat("h:8:a", {"capsules": capsules, "version": "8.1.7", "embedded": False}, concurrency=4, quiet="true")

    [process] = ProcessSet()

    assert (process.concurrency, process.queues, process.version) == (4, ("a", "b"), "8.1.7")
    assert [(c.name, c.concurrency, c.mode) for c in process.capsules] == [
        ("default", 3, "weighted"),
        ("one", 1, "strict"),
    ]
    assert process.is_stopping


def test_totals_over_all_processes(pool, beat):
    """Threads and memory; junk in one process's `info` does not hide the others."""
    beat("h:1:a", {"concurrency": 5}, rss=100)
    beat("h:2:b", {}, concurrency=3, rss=50)
    beat("h:3:c", {})
    ProcessSet()

    processes = ProcessSet()

    assert (processes.size, processes.total_concurrency, processes.total_rss_kb) == (3, 8, 150)
    assert processes["h:2:b"].concurrency == 3
    assert processes.find("h:9:z") is None
    with pytest.raises(KeyError):
        processes["h:9:z"]


def test_junk_in_a_heartbeat_hides_only_that_process(pool, beat, redis_client):
    """A page of processes must not break."""
    beat("h:1:a", {"concurrency": 5}, busy="x", rss="", rtt_us="1e3")
    redis_client.sadd("processes", "h:2:b")
    redis_client.hset("h:2:b", "info", "not json")

    [process] = ProcessSet()

    assert (process.busy, process.rss_kb, process.rtt_us) == (0, 0, 1000)


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e400", "9" * 400, "9" * 30])
def test_a_number_out_of_every_range_hides_no_process(pool, beat, number):
    """Nor one in `info`, where JSON has no bounds."""
    beat("h:1:a", {"concurrency": 10**4000, "pid": -(10**400)}, busy=number, rss=number, rtt_us=number, beat=number)
    beat("h:2:b", {"started_at": 10**400}, concurrency=number)
    beat("h:3:c", {"started_at": 1e18, "concurrency": 5}, busy=2)

    processes = {process.identity: process for process in ProcessSet()}

    for process in processes.values():
        numbers = (process.busy, process.concurrency, process.rss_kb, process.rtt_us, process.pid)
        assert all(len(str(one)) < 400 for one in numbers)
        assert process.beat_at.tzinfo is UTC
    assert processes["h:1:a"].concurrency == 0
    assert processes["h:2:b"].started_at is None
    assert (processes["h:3:c"].started_at, processes["h:3:c"].busy) == (None, 2)


def test_making_the_set_cleans_it_unless_told_otherwise(pool, beat, redis_client):
    """A process that died a minute ago is not listed, and is taken out of the registry."""
    beat("h:1:a", {})
    redis_client.sadd("processes", "h:2:dead")

    assert (ProcessSet(clean=False).size, len(list(ProcessSet(clean=False)))) == (2, 1)
    assert ProcessSet().size == 1


def test_a_process_whose_name_is_not_utf_8_is_cleaned_away_once_it_is_dead(pool, beat, redis_client):
    """And not before; other names stay what they are."""
    beat("h:1:a", {})
    redis_client.sadd("processes", b"caf\xe9:1:a", b"dead\xe9:1:a")
    redis_client.hset(b"caf\xe9:1:a", mapping=redis_client.hgetall("h:1:a"))

    assert {process.identity for process in ProcessSet()} == {"caf\udce9:1:a", "h:1:a"}
    assert redis_client.smembers("processes") == {b"caf\xe9:1:a", b"h:1:a"}


@pytest.mark.parametrize(("button", "name"), [("quiet", b"TSTP"), ("stop", b"TERM"), ("dump_threads", b"TTIN")])
def test_a_signal_waits_for_the_next_heartbeat(pool, beat, redis_client, button, name):
    """In the list that the process looks at, which expires if nobody does."""
    beat("h:1:a", {})
    [process] = ProcessSet()

    getattr(process, button)()

    assert redis_client.lrange("h:1:a-signals", 0, -1) == [name]
    assert 0 < redis_client.ttl("h:1:a-signals") <= 60


def test_an_embedded_process_is_not_quieted_or_stopped_from_outside(pool, beat, redis_client):
    """It is part of another program, which a signal would hit."""
    beat("h:1:a", {"embedded": True})
    [process] = ProcessSet()

    for button in (process.quiet, process.stop):
        with pytest.raises(SidekiqError, match="embedded"):
            button()
    assert not redis_client.exists("h:1:a-signals")


def test_the_leader_is_the_one_that_enterprise_elected(pool, beat, redis_client):
    """Read only; the open-source release has none."""
    beat("h:1:a", {})
    assert ProcessSet().leader == ""

    redis_client.set("dear-leader", "h:1:a")

    assert ProcessSet().leader == "h:1:a"
    assert ProcessSet()["h:1:a"].is_leader


def test_jobs_in_flight_are_counted_over_the_epochs_of_a_process(pool, beat, redis_client):
    """An owner is an identity and an epoch."""
    beat("h:1:a", {})
    redis_client.hset("sidekiq_py:owners", mapping={"h:1:a:0": "{}", "h:1:a:1": "{}", "h:11:a:0": "{}"})
    for owner in ("h:1:a:0", "h:1:a:1", "h:11:a:0"):
        redis_client.hset(f"sidekiq_py:inflight:{owner}", "1.0:default", "{}")

    assert ProcessSet()["h:1:a"].in_flight == 2


def test_running_jobs_are_read_under_both_names_of_the_hash_each_once(pool, beat, redis_client, payload):
    """`workers` up to 6.4.1, `work` after; a process of ours may write both."""
    beat("h:1:a", {}, busy=1)
    beat("h:2:b", {}, busy=2)
    entry = {"queue": "low", "run_at": 1_700_000_005, "payload": payload("j1").decode()}
    for suffix in ("work", "workers"):
        redis_client.hset(f"h:1:a:{suffix}", "t1", json.dumps(entry))
    older = {"queue": "high", "run_at": 1_700_000_001, "payload": json.loads(payload("j2"))}
    redis_client.hset("h:2:b:workers", mapping={"t2": json.dumps(older), "t3": "junk"})
    redis_client.hset("h:3:gone:work", "t9", json.dumps(entry))
    redis_client.sadd("processes", "h:3:gone")

    works = list(WorkSet())

    assert [(process, thread, work.job.jid) for process, thread, work in works] == [
        ("h:2:b", "t2", "j2"),
        ("h:1:a", "t1", "j1"),
    ]
    assert (works[1][2].queue, works[1][2].run_at) == ("low", datetime.fromtimestamp(1_700_000_005, UTC))
    assert WorkSet().size == len(WorkSet()) == 3
    assert WorkSet().find_work("j1").process_id == "h:1:a"
    assert WorkSet().find_work("j9") is None


def test_a_running_job_is_found_without_reading_all_of_them_at_once(pool, beat, redis_client, payload):
    """Sixty thousand running jobs took 110 MB. Of two runs of a job, the longer one is found."""
    filler = "x" * 5000
    for number in range(400):
        beat(f"h:{number}:a", {}, busy=5)
        run = {"queue": "low", "run_at": 1_700_001_000 - number, "payload": payload("wanted", args=[filler]).decode()}
        redis_client.hset(f"h:{number}:a:work", mapping={f"t{thread}": json.dumps(run) for thread in range(5)})

    tracemalloc.start()
    try:
        found = WorkSet().find_work("wanted")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found.process_id == "h:399:a"
    assert peak < 400 * 5 * len(filler) / 2


def test_processes_are_shown_while_redis_is_full(pool, beat, redis_client):
    """Whoever wants to know what fills it has to see them; those that are gone are removed later."""
    beat("h:7:a", {"concurrency": 5})
    redis_client.config_set("maxmemory", "1")
    try:
        assert [process.identity for process in ProcessSet()] == ["h:7:a"]
    finally:
        redis_client.config_set("maxmemory", "0")


@pytest.mark.parametrize("key", ["h:2:b", "h:2:b:work"])
def test_a_key_of_a_wrong_type_hides_no_other_process(pool, beat, redis_client, payload, key):
    """Nor what the others run; the process stays registered, because nobody knows whether it lives."""
    for identity in ("h:1:a", "h:2:b"):
        beat(identity, {"concurrency": 5}, busy=1)
        entry = {"queue": "low", "run_at": 1_700_000_005, "payload": payload(identity).decode()}
        redis_client.hset(f"{identity}:work", "t1", json.dumps(entry))
    redis_client.delete(key)
    redis_client.set(key, "a string")

    assert "h:1:a" in [process.identity for process in ProcessSet()]
    assert "h:1:a" in [identity for identity, _, _ in WorkSet()]
    assert WorkSet().size >= 1
    assert ProcessSet(clean=False).size == 2

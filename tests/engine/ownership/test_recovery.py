"""Recovery: only from the dead, each job once, and the job that kills its process not for ever."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar

import pytest
import redis

from sidekiq_py.config import Config
from sidekiq_py.engine.ownership import recovery as recovery_module
from sidekiq_py.engine.ownership.host import ProcessPlace, parse_registration, registration
from sidekiq_py.engine.ownership.owner import Ownership
from sidekiq_py.engine.ownership.recovery import Recovery
from sidekiq_py.errors import PoisonPillError
from sidekiq_py.extension import Effect, Extension, JobEnd
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.redis_access.connection.link import Link
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path.recover import FORGET_SUSPECTS, SUSPECT_TTL_SECONDS
from sidekiq_py.redis_access.reads.in_flight_counts import counts
from sidekiq_py.wire import keys
from sidekiq_py.wire.dialect import Dialect
from tests.engine.fetch.in_flight_jobs import digest, fetch, held, push
from tests.support.child_process import tied_to_this_process
from tests.support.process_states import state_of
from tests.support.redis_server import RedisServer
from tests.support.waiting import eventually

DEAD = "other:2:def:1"
HERE = ProcessPlace.here()
ELSEWHERE = registration(ProcessPlace("another boot", "n", 7, 8), ["default", "low"])
GONE = registration(ProcessPlace(HERE.boot, HERE.pid_namespace, HERE.pid, HERE.start + 1), ["default", "low"])
T0 = 1_700_000_000.0


class Clocks:
    """The two clocks of recovery, set by hand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = T0
        self.monotonic = 1000.0
        patch.setattr(recovery_module, "now_seconds", lambda: self.now)
        patch.setattr(recovery_module, "monotonic", lambda: self.monotonic)

    def pass_seconds(self, seconds: float) -> None:
        """Let time go by."""
        self.now += seconds
        self.monotonic += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Time stands still until it is told."""
    return Clocks(monkeypatch)


@pytest.fixture
def dead_lettered() -> list[tuple[bytes, BaseException]]:
    """What death handlers were told."""
    return []


@pytest.fixture
def recovery(pool: Pool, clocks: Clocks, dead_lettered: list[tuple[bytes, BaseException]]) -> Iterator[Recovery]:
    """Of a living process; a beat every five seconds."""
    own = pool.new_link()
    ownership = Ownership("me:1:abc", ["default"], 30)
    yield Recovery(
        Config(),
        own,
        ownership,
        dialect=Dialect.unknown,
        on_dead_lettered=lambda raw, error, death: dead_lettered.append((raw, error)),
    )
    own.close()


def hold(link: Link, about: str = ELSEWHERE, *, batch: int = 1, **options: Any) -> list[bytes]:
    """Let the other process take what is queued; the fields."""
    return [field for field, _ in fetch(link, owner=DEAD, registration=about, batch=batch, **options)]


def end_lease(client: redis.Redis) -> None:
    """As if 30 seconds had gone by."""
    client.delete(f"sidekiq_py:lease:{DEAD}")


def test_a_lease_must_be_missed_twice_two_beats_apart(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks
) -> None:
    """The first look only remembers: after an outage every lease is gone while all workers live."""
    push(redis_client, "a")
    hold(link)
    end_lease(redis_client)

    assert recovery.look() == 0
    clocks.pass_seconds(9.9)
    assert recovery.look() == 0
    clocks.pass_seconds(0.2)
    assert recovery.look() == 1
    assert redis_client.lrange("queue:default", 0, -1) == [b"a"]


def test_a_lease_that_came_back_counts_as_never_missed(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks
) -> None:
    """Two misses in a row are asked for."""
    push(redis_client, "a")
    hold(link)
    end_lease(redis_client)
    recovery.look()
    redis_client.set(f"sidekiq_py:lease:{DEAD}", "1")
    clocks.pass_seconds(6)
    recovery.look()
    end_lease(redis_client)

    clocks.pass_seconds(6)
    assert recovery.look() == 0
    assert len(held(redis_client, DEAD)) == 1


def test_what_was_missed_before_a_beat_without_a_look_counts_for_nothing(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks
) -> None:
    """The lease may have come back, and run out again, while another process was the lookout."""
    push(redis_client, "a")
    hold(link)
    end_lease(redis_client)
    recovery.look()
    recovery.forget_silent()
    clocks.pass_seconds(60)

    assert recovery.look() == 0
    clocks.pass_seconds(11)
    assert recovery.look() == 1


def test_what_was_missed_before_a_broken_connection_counts_for_nothing(
    pool: Pool, clocks: Clocks, link: Link, redis_client: redis.Redis
) -> None:
    """While Redis was away nobody could renew."""
    own = pool.new_link()
    recovery = Recovery(Config(), own, Ownership("me:1:abc", [], 30), dialect=Dialect.unknown)
    push(redis_client, "a")
    hold(link)
    end_lease(redis_client)
    recovery.look()
    own.close()

    clocks.pass_seconds(60)
    assert recovery.look() == 0
    clocks.pass_seconds(11)
    assert recovery.look() == 1
    own.close()


def test_a_process_that_is_gone_from_this_machine_is_dead_at_once(
    recovery: Recovery, link: Link, redis_client: redis.Redis
) -> None:
    """Its number may belong to another process by now."""
    push(redis_client, "a")
    hold(link, GONE)

    assert recovery.look() == 1
    assert redis_client.hgetall("sidekiq_py:owners") == {}


@pytest.fixture
def busy_process() -> Iterator[ProcessPlace]:
    """One of this machine that computes without end."""
    process = subprocess.Popen(tied_to_this_process([sys.executable, "-c", "while True: pass"]))
    yield replace(HERE, pid=process.pid, start=start_of(process.pid))
    process.kill()
    process.wait()


def start_of(pid: int) -> int:
    """When a process was started, in clock ticks since boot."""
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[19])


def test_the_name_of_a_process_may_be_any_bytes() -> None:
    """The kernel cuts it off after 15 bytes, which may be within a character."""
    comm = Path("/proc/self/comm")
    before = comm.read_bytes().removesuffix(b"\n")
    comm.write_bytes(b"caf\xc3")
    try:
        assert ProcessPlace.here() == HERE
    finally:
        comm.write_bytes(before)


def work_on(process: ProcessPlace) -> None:
    """Wait until it has used more CPU time."""
    before = process.cpu_ticks()
    eventually(lambda: process.cpu_ticks() != before)


def test_a_process_that_computes_without_a_word_is_left_alone(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks, busy_process: ProcessPlace
) -> None:
    """A job that keeps Python's lock keeps the lease from being renewed; it must not run a second time beside it."""
    push(redis_client, "a")
    hold(link, registration(busy_process, ["default"]))
    end_lease(redis_client)

    for _ in range(5):
        assert recovery.look() == 0
        clocks.pass_seconds(11)
        work_on(busy_process)

    assert len(held(redis_client, DEAD)) == 1


def test_a_process_that_is_frozen_counts_as_silent(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks, busy_process: ProcessPlace
) -> None:
    """It uses no CPU time; once it is thawed it finds that its jobs were given to others."""
    push(redis_client, "a")
    hold(link, registration(busy_process, ["default"]))
    end_lease(redis_client)
    os.kill(busy_process.pid, signal.SIGSTOP)
    eventually(lambda: state_of(busy_process.pid) == "T")

    assert recovery.look() == 0
    clocks.pass_seconds(11)
    assert recovery.look() == 1


def test_a_process_that_lives_on_without_its_worker_is_not_waited_for_for_ever(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks, busy_process: ProcessPlace
) -> None:
    """A web server whose embedded worker left while Redis was away goes on computing."""
    push(redis_client, "a")
    hold(link, registration(busy_process, ["default"]))
    end_lease(redis_client)
    recovery.look()
    clocks.pass_seconds(3601)
    work_on(busy_process)

    assert recovery.look() == 1


def test_a_process_that_goes_on_under_a_later_epoch_has_left_its_earlier_one(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks, busy_process: ProcessPlace
) -> None:
    """The earlier one is in the registry again once Redis, empty for a while, was restored from a backup."""
    about = registration(busy_process, ["default"])
    push(redis_client, "a")
    hold(link, about)
    end_lease(redis_client)
    fetch(link, owner="other:2:def:3", registration=about)

    assert recovery.look() == 0
    clocks.pass_seconds(11)
    work_on(busy_process)
    assert recovery.look() == 1
    assert redis_client.hkeys("sidekiq_py:owners") == [b"other:2:def:3"]


def test_a_process_of_this_machine_that_lives_is_left_alone(
    recovery: Recovery, link: Link, redis_client: redis.Redis
) -> None:
    """Also an earlier epoch of this very process."""
    push(redis_client, "a")
    hold(link, registration(HERE, ["default"]))

    assert recovery.look() == 0
    assert len(held(redis_client, DEAD)) == 1


def test_a_parent_s_word_is_enough(recovery: Recovery, link: Link, redis_client: redis.Redis) -> None:
    """The lease still stands then."""
    push(redis_client, "a")
    hold(link)

    assert recovery.declare_dead(DEAD) == 1
    assert recovery.declare_dead(DEAD) == 0
    assert recovery.declare_dead("never heard of") == 0


def test_jobs_come_back_in_their_order_and_their_queues_are_known(
    recovery: Recovery, link: Link, redis_client: redis.Redis
) -> None:
    """The first taken is the first to run again, before those that were never taken."""
    push(redis_client, *[f"{number:03}" for number in range(500)])
    push(redis_client, "x", queue="low")
    hold(link, max_jobs=450)
    hold(link, batch=2, max_jobs=1)

    recovery.declare_dead(DEAD)

    assert redis_client.lrange("queue:default", 0, -1)[::-1] == [f"{number:03}".encode() for number in range(500)]
    assert redis_client.smembers("queues") == {b"default"}


def test_the_log_names_the_first_ten_recovered_jobs(
    recovery: Recovery, link: Link, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """So a search for a job's id says why it ran twice."""
    push(redis_client, *[f'{{"class":"A","args":[],"jid":"j{number}"}}' for number in range(12)], "unreadable")
    hold(link, max_jobs=13)

    with caplog.at_level("INFO", "sidekiq"):
        recovery.declare_dead(DEAD)

    named = re.search(rf"recovered 13 jobs \((.+) and 4 more\) of {DEAD}", caplog.text)
    assert named is not None
    assert len(set(named[1].split(", ")) & {f"j{number}" for number in range(12)}) == 9


def test_the_log_cuts_ids_that_are_too_long(
    recovery: Recovery, link: Link, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten ids of a megabyte made a line of ten."""
    push(redis_client, f'{{"class":"A","args":[],"jid":"{"j" * 100_000}"}}')
    hold(link, max_jobs=1)

    with caplog.at_level("INFO", "sidekiq"):
        recovery.declare_dead(DEAD)

    assert f"recovered 1 job ({'j' * 100}) of {DEAD}" in caplog.text


def test_a_look_at_many_owners_does_not_read_the_boot_of_this_machine_for_each(
    recovery: Recovery, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 3,000 processes, the one that looks at them all opened 6,000 files with each beat: 0.2 s of CPU."""
    redis_client.hset("sidekiq_py:owners", mapping={f"other:{number}:def:1": ELSEWHERE for number in range(50)})
    read: list[Path] = []
    read_text = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: (read.append(path), read_text(path))[1])

    recovery.look()

    assert len(read) <= 1


def test_the_inboxes_of_an_owner_are_emptied_in_one_script(
    recovery: Recovery, link: Link, redis_client: redis.Redis
) -> None:
    """A script for each queue made three round trips for each job, with thousands of processes of many queues."""
    served = [f"queue-{number}" for number in range(20)]
    hold(link, registration(ProcessPlace("another boot", "n", 7, 8), served))
    for name in served:
        redis_client.lpush(f"sidekiq_py:inbox:{DEAD}:{name}", f"job of {name}")

    with redis_client.monitor() as monitor:
        assert recovery.declare_dead(DEAD) == len(served)
        redis_client.ping()
        commands = [one["command"] for one in takewhile(lambda one: one["command"] != "PING", monitor.listen())]

    scripts = [at for at, command in enumerate(commands) if command.startswith("EVAL")]
    moved = [at for at, command in enumerate(commands) if command.startswith("RPUSH")]
    assert len(moved) == len(served)
    assert len([at for at in scripts if moved[0] < at < moved[-1]]) == 0
    assert [redis_client.lrange(f"queue:{name}", 0, -1) for name in served] == [
        [f"job of {name}".encode()] for name in served
    ]


def test_large_jobs_in_the_inboxes_of_an_owner_go_back_in_several_scripts(
    recovery: Recovery, link: Link, redis_client: redis.Redis
) -> None:
    """A script blocks Redis while it runs, and each of these jobs takes it milliseconds."""
    served = [f"queue-{number}" for number in range(4)]

    def scripts(owner: str, size: int) -> int:
        fetch(link, owner=owner, registration=registration(ProcessPlace("another boot", "n", 7, 8), served))
        for name in served:
            redis_client.lpush(f"sidekiq_py:inbox:{owner}:{name}", name.ljust(size))
        redis_client.config_resetstat()
        assert recovery.declare_dead(owner) == len(served)
        calls = redis_client.info("commandstats")
        return sum(calls[name]["calls"] for name in ("cmdstat_eval", "cmdstat_evalsha") if name in calls)

    scripts(DEAD, 10)
    assert scripts("other:2:def:2", 3_000_000) == scripts("other:2:def:3", 10) + len(served) - 1


def test_an_inbox_is_emptied_and_looked_at_again(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks
) -> None:
    """Redis may have moved a job there in the last instant, or after it."""
    hold(link)
    inbox = f"sidekiq_py:inbox:{DEAD}:low"
    redis_client.lpush(inbox, "first")
    assert recovery.declare_dead(DEAD) == 1
    redis_client.lpush(inbox, "second")
    clocks.pass_seconds(30)

    assert recovery.look() == 1
    assert redis_client.lrange("queue:low", 0, -1) == [b"first", b"second"]


def test_who_departed_is_forgotten_after_a_minute(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks
) -> None:
    """But not with something of his still to be brought back."""
    hold(link)
    recovery.declare_dead(DEAD)
    clocks.pass_seconds(59)
    recovery.look()
    assert redis_client.hexists("sidekiq_py:departed", DEAD)

    clocks.pass_seconds(2)
    recovery.look()
    assert redis_client.exists("sidekiq_py:departed") == 0


def test_a_job_that_was_settled_meanwhile_is_not_brought_back(
    recovery: Recovery, link: Link, redis_client: redis.Redis
) -> None:
    """Each is moved only if it is still in flight."""
    push(redis_client, "a", "b")
    first, _ = hold(link)
    redis_client.hdel(f"sidekiq_py:inflight:{DEAD}", first)

    assert recovery.declare_dead(DEAD) == 1
    assert redis_client.lrange("queue:default", 0, -1) == [b"b"]


def test_a_job_that_cannot_go_back_does_not_keep_the_others(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks
) -> None:
    """It stays in flight, and is tried again."""
    push(redis_client, "a", queue="odd")
    push(redis_client, "b")
    hold(link, max_jobs=9)
    fetch(link, ("odd", 0), owner=DEAD, registration="", batch=2)
    redis_client.set("queue:odd", "a string")

    assert recovery.declare_dead(DEAD) == 1
    clocks.pass_seconds(100)
    assert recovery.look() == 0
    redis_client.delete("queue:odd")
    assert recovery.look() == 1
    assert redis_client.lrange("queue:odd", 0, -1) == [b"a"]


def test_a_queue_that_may_not_be_written_does_not_keep_the_other_jobs(
    link: Link, redis_client: redis.Redis, redis_server: RedisServer
) -> None:
    """Redis refuses the whole script for one such key; jobs in flight and in inboxes of other queues go back."""
    push(redis_client, "stuck", queue="forbidden")
    push(redis_client, *(f"{n}" for n in range(9)))
    hold(link, max_jobs=9)
    fetch(link, ("forbidden", 0), owner=DEAD, registration="", batch=2)
    redis_client.hset("sidekiq_py:owners", DEAD, registration(ProcessPlace("b", "n", 7, 8), ["forbidden", "low"]))
    redis_client.lpush(f"sidekiq_py:inbox:{DEAD}:forbidden", "stuck too")
    redis_client.lpush(f"sidekiq_py:inbox:{DEAD}:low", "moved too")
    rules = "on >secret +@all ~sidekiq_py:* ~queues ~dead ~processes ~other* ~queue:default ~queue:low"
    redis_client.execute_command("ACL", "SETUSER", "recovering", *rules.split())
    pool = Pool(RedisSettings(redis_server.url.replace("redis://", "redis://recovering:secret@")))
    recovery = Recovery(Config(), pool.new_link(), Ownership("me:1:abc", [], 30), dialect=Dialect.unknown)

    moved = recovery.declare_dead(DEAD)

    recovery.close()
    redis_client.execute_command("ACL", "DELUSER", "recovering")
    assert moved == 10
    assert redis_client.llen("queue:default") == 9
    assert redis_client.lrange("queue:low", 0, -1) == [b"moved too"]
    assert list(held(redis_client, DEAD).values()) == [b"stuck"]


def test_what_others_wrote_does_not_keep_the_jobs_of_the_dead(
    recovery: Recovery, link: Link, redis_client: redis.Redis, pool: Pool
) -> None:
    """A hash of another type, names and fields that are none, a record that counts nothing."""
    push(redis_client, "a")
    hold(link)
    redis_client.hset(f"sidekiq_py:inflight:{DEAD}", mapping={"no field": "x", b"1.1:\xff": "y"})
    redis_client.hset("sidekiq_py:departed", mapping={"foreign:1:a:1": "1 {}", b"\xff": "1 {}", "odd:1:a:1": "when?"})
    redis_client.set("sidekiq_py:inflight:foreign:1:a:1", "a string")
    redis_client.hset("sidekiq_py:owners", b"\xff", "{}")
    redis_client.hset("sidekiq_py:suspects", digest(b"a"), "many:times")

    assert recovery.declare_dead(DEAD) == 1
    assert redis_client.lrange("queue:default", 0, -1) == [b"a"]
    assert set(held(redis_client, DEAD).values()) == {b"x", b"y"}
    assert counts(pool) == []


@pytest.mark.parametrize(
    "about",
    [
        "[" * 5000,
        '{"boot":"","pidns":"","pid":1E400,"start":0,"queues":[]}',
        '{"boot":"","pidns":"","pid":1,"start":0,"queues":["\\ud800"]}',
        '{"boot":"","pidns":"","pid":1,"start":0,"queues":["caf\\udce9"]}',
    ],
)
def test_an_entry_that_no_owner_wrote_does_not_keep_the_jobs_of_the_dead(
    recovery: Recovery, link: Link, redis_client: redis.Redis, about: str
) -> None:
    """Neither among the living nor among the departed."""
    push(redis_client, "a")
    hold(link, GONE)
    redis_client.hset("sidekiq_py:owners", "foreign:1:a:1", about)
    redis_client.hset("sidekiq_py:departed", "foreign:2:a:1", f"1 {about}")
    redis_client.rpush(b"sidekiq_py:inbox:foreign:2:a:1:caf\xe9", "x")

    assert recovery.look() == 1


@pytest.mark.parametrize("field", ["123:default", ".:default", "1.2.3:default", f"{'9' * 5000}.0:default"])
def test_a_field_that_is_nearly_one_of_ours_does_not_keep_the_jobs_of_the_dead(
    recovery: Recovery, link: Link, redis_client: redis.Redis, field: str
) -> None:
    """It stays where it is, and the jobs beside it go back."""
    push(redis_client, "a")
    hold(link)
    redis_client.hset(f"sidekiq_py:inflight:{DEAD}", field, "x")

    assert recovery.declare_dead(DEAD) == 1
    assert held(redis_client, DEAD) == {field.encode(): b"x"}


def test_an_owner_that_says_nothing_readable_is_recovered_by_its_lease(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks
) -> None:
    """Whoever wrote it."""
    push(redis_client, "a")
    hold(link, "not json")
    end_lease(redis_client)
    recovery.look()
    clocks.pass_seconds(11)

    assert recovery.look() == 1


# ---- poison pills


def die_with(job: bytes, recovery: Recovery, link: Link, client: redis.Redis, *, batch: int) -> None:
    """A process takes what is queued and dies; its jobs come back."""
    client.hdel("sidekiq_py:departed", DEAD)
    hold(link, batch=batch, max_jobs=10)
    assert job in held(client, DEAD).values()
    recovery.declare_dead(DEAD)


def test_the_third_death_after_a_start_mark_goes_to_dead(
    recovery: Recovery, link: Link, redis_client: redis.Redis, dead_lettered: list[tuple[bytes, BaseException]]
) -> None:
    """The first death only makes a suspect of it: whether it had started nobody knows."""
    push(redis_client, "poison")
    for batch in range(1, 5):
        assert redis_client.zcard("dead") == 0
        die_with(b"poison", recovery, link, redis_client, batch=batch)

    assert redis_client.zrange("dead", 0, -1, withscores=True) == [(b"poison", T0)]
    assert redis_client.llen("queue:default") == 0
    assert redis_client.exists("sidekiq_py:suspects") == 0
    [(raw, error)] = dead_lettered
    assert raw == b"poison"
    assert isinstance(error, PoisonPillError)


def test_a_poison_pill_says_in_dead_why_it_is_there(
    recovery: Recovery, link: Link, redis_client: redis.Redis, dead_lettered: list[tuple[bytes, BaseException]]
) -> None:
    """The Web UI shows it; all else in the payload is as it was, and no suspect is left behind."""
    job = '{"class":"Die","args":[1.0,"ä"],"jid":"1","error_class":"ValueError","retry_count":0}'
    push(redis_client, job)
    for batch in range(1, 5):
        die_with(job.encode(), recovery, link, redis_client, batch=batch)

    [member] = redis_client.zrange("dead", 0, -1)
    payload = json.loads(member)
    assert payload.pop("error_message").startswith("the process died 3 times while this job ran")
    assert payload.pop("error_class") == "sidekiq_py.errors.PoisonPillError"
    assert payload == {"class": "Die", "args": [1.0, "ä"], "jid": "1", "retry_count": 0}
    assert b'"args":[1.0,"\xc3\xa4"]' in member
    assert redis_client.exists("sidekiq_py:suspects") == 0
    assert [raw for raw, _ in dead_lettered] == [job.encode()]


def test_the_log_shows_no_hidden_value_of_a_poison_pill(
    recovery: Recovery, link: Link, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it is dead, and where Redis refuses to take it into the dead set."""
    for key, jid in (("dead", "stuck"), ("other", "gone")):
        redis_client.set(key, "in the way")
        job = json.dumps({"class": "Die", "args": [{"password": "hunter2"}], "jid": jid})
        push(redis_client, job)
        for batch in range(1, 5):
            die_with(job.encode(), recovery, link, redis_client, batch=batch)
        redis_client.flushdb()

    about = [line for line in caplog.messages if "[redacted]" in line]
    assert [jid for line in about for jid in ("stuck", "gone") if jid in line] == ["stuck", "gone"]
    assert "hunter2" not in caplog.text


def test_a_poison_pill_goes_to_dead_where_an_extension_fails(
    pool: Pool, link: Link, redis_client: redis.Redis, clocks: Clocks
) -> None:
    """What went wrong is reported, as wherever an extension fails."""

    class Failing(Extension):
        name = "failing"
        payload_keys: ClassVar[Mapping[str, str]] = {"extra": "nothing"}

        def end(self, end: JobEnd) -> Iterable[Effect]:
            raise ValueError("no")

    extensions, own, job = LoadedExtensions(), pool.new_link(), '{"class":"Die","args":[],"jid":"1","extra":1}'
    extensions.use(Failing())
    reported: list[tuple[BaseException, dict[str, Any]]] = []
    recovery = Recovery(
        Config(),
        own,
        Ownership("me:1:abc", ["default"], 30),
        dialect=Dialect.unknown,
        extensions=extensions,
        report=lambda error, context: reported.append((error, context)),
    )
    push(redis_client, job)
    for batch in range(1, 5):
        die_with(job.encode(), recovery, link, redis_client, batch=batch)
    own.close()

    assert redis_client.zcard("dead") == 1
    [(error, context)] = reported
    assert str(error) == "the extension 'failing' failed in end: ValueError: no"
    assert (context["context"], context["jobstr"]) == ("The job is kept in dead", job.encode())


def test_a_poison_pill_that_dead_refuses_is_named_once_and_stays(
    recovery: Recovery, link: Link, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """With what to do; it goes there when that is repaired, and holds up no other job."""
    push(redis_client, "poison")
    for batch in range(1, 4):
        die_with(b"poison", recovery, link, redis_client, batch=batch)
    redis_client.set("dead", "x")

    die_with(b"poison", recovery, link, redis_client, batch=4)
    assert recovery.look() == 0
    [line] = [line.getMessage() for line in caplog.records if "cannot be moved to the dead set" in line.getMessage()]
    assert "Fix this error (`sidekiq-py doctor` shows keys of a wrong type)" in line
    redis_client.delete("dead")

    assert recovery.look() == 1
    assert redis_client.zrange("dead", 0, -1) == [b"poison"]


def test_jobs_in_a_buffer_bear_no_death(recovery: Recovery, link: Link, redis_client: redis.Redis) -> None:
    """However often the process dies around them."""
    innocents = [f"innocent {number}" for number in range(9)]
    push(redis_client, "poison", *innocents)
    die_with(b"poison", recovery, link, redis_client, batch=1)
    for batch in range(2, 5):
        die_with(b"poison", recovery, link, redis_client, batch=batch)

    assert redis_client.zrange("dead", 0, -1) == [b"poison"]
    assert redis_client.llen("queue:default") == 9
    assert all(bytes(record).startswith(b"0:") for record in redis_client.hvals("sidekiq_py:suspects"))


@pytest.mark.parametrize(("hours", "is_dead"), [(71, True), (73, False)])
def test_deaths_count_for_72_hours(
    recovery: Recovery, link: Link, redis_client: redis.Redis, clocks: Clocks, hours: int, is_dead: bool
) -> None:
    """A job that dies once a week is no poison."""
    push(redis_client, "poison")
    for batch in range(1, 4):
        die_with(b"poison", recovery, link, redis_client, batch=batch)
    clocks.pass_seconds(hours * 3600)

    die_with(b"poison", recovery, link, redis_client, batch=4)

    assert (redis_client.zcard("dead") == 1) is is_dead
    if not is_dead:
        assert redis_client.hget("sidekiq_py:suspects", digest(b"poison")) == f"1:{clocks.now:.3f}".encode()


def test_suspects_are_remembered_for_72_hours(recovery: Recovery, link: Link, redis_client: redis.Redis) -> None:
    """No longer: the key goes by itself."""
    push(redis_client, "poison")
    die_with(b"poison", recovery, link, redis_client, batch=1)

    assert 0 < redis_client.ttl("sidekiq_py:suspects") <= SUSPECT_TTL_SECONDS


def test_a_suspect_that_nobody_clears_is_forgotten_after_72_hours(
    recovery: Recovery, redis_client: redis.Redis, clocks: Clocks
) -> None:
    """Its job was run by Ruby, which knows no suspects; others keep the key alive."""
    old, young = f"0:{T0 - SUSPECT_TTL_SECONDS - 1:.3f}", f"2:{T0 - SUSPECT_TTL_SECONDS + 1:.3f}"
    redis_client.hset("sidekiq_py:suspects", mapping={"old": old, "young": young})

    recovery.look()
    assert redis_client.hkeys("sidekiq_py:suspects") == [b"young"]
    clocks.pass_seconds(3601)
    recovery.look()
    assert redis_client.exists("sidekiq_py:suspects") == 0


def test_a_suspect_that_somebody_wrote_of_meanwhile_is_kept(link: Link, redis_client: redis.Redis) -> None:
    """Its job brought down another process between the look and the forgetting."""
    redis_client.hset("sidekiq_py:suspects", "job", "1:2")

    assert FORGET_SUSPECTS.run(link, [keys.SUSPECTS], ["job", "0:1"]) == 0
    assert redis_client.hgetall("sidekiq_py:suspects") == {b"job": b"1:2"}


# ---- many at once


def depart(client: redis.Redis, *names: str, jobs: int = 1, left_at: float = T0, queue: str = "default") -> None:
    """Workers that have left so many jobs each."""
    for name in names:
        client.hset(keys.DEPARTED, name, f"{left_at:.3f} {ELSEWHERE}")
        for number in range(jobs):
            client.hset(keys.in_flight(name), f"1.{number}:{queue}", f"{name} {number}")


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever something is sent."""
    sent: list[int] = []
    send = Link.send

    def counted(link: Link, packed: Any) -> None:
        sent.append(1)
        send(link, packed)

    monkeypatch.setattr(Link, "send", counted)
    return sent


def test_departed_owners_are_asked_about_together(
    recovery: Recovery, redis_client: redis.Redis, clocks: Clocks, round_trips: list[int]
) -> None:
    """Two round trips for each of 1,200 owners would take longer than a lease where one takes 40 ms."""
    names = [f"gone:{number}:abc:1" for number in range(150)]
    depart(redis_client, *names, jobs=0)
    depart(redis_client, "gone:stuck:abc:1", queue="foreign")
    redis_client.set("queue:foreign", "no list")
    recovery.look()
    round_trips.clear()

    recovery.look()
    assert len(round_trips) < 15
    round_trips.clear()
    clocks.pass_seconds(61)
    recovery.look()
    assert len(round_trips) < 15
    assert redis_client.hkeys(keys.DEPARTED) == [b"gone:stuck:abc:1"]


def test_the_dead_are_fenced_together(recovery: Recovery, redis_client: redis.Redis, round_trips: list[int]) -> None:
    """A machine with a hundred children is gone at once."""
    for number in range(100):
        redis_client.hset(keys.OWNERS, f"here:{number}:abc:1", GONE)
    redis_client.script_flush()

    recovery.look()

    assert redis_client.hlen(keys.OWNERS) == 0
    assert redis_client.hlen(keys.DEPARTED) == 100
    assert len(round_trips) < 15


def test_a_look_that_is_cut_short_goes_on_where_it_stopped(recovery: Recovery, redis_client: redis.Redis) -> None:
    """Each owner gets its turn, also beside one whose jobs are many and one whose job cannot go back."""
    redis_client.set("queue:foreign", "no list")
    depart(redis_client, "a:many:abc:1", jobs=900)
    depart(redis_client, "b:stuck:abc:1", queue="foreign")
    depart(redis_client, "c:one:abc:1", "d:one:abc:1")
    looks = []

    for _ in range(12):
        looks.append(recovery.look(within_seconds=0))
        assert recovery.has_more or not redis_client.hlen(keys.in_flight("a:many:abc:1"))

    assert looks[0] == 200
    assert redis_client.exists(keys.in_flight("c:one:abc:1"), keys.in_flight("d:one:abc:1")) == 0
    back = redis_client.lrange("queue:default", 0, -1)
    # The turns of those with one job come before the many have all gone back.
    assert back.index(b"c:one:abc:1 0") < 601
    assert recovery.look() + sum(looks) == 902
    assert not recovery.has_more
    assert redis_client.hlen(keys.in_flight("b:stuck:abc:1")) == 1


def test_whom_the_parent_names_comes_before_the_others(
    recovery: Recovery, link: Link, redis_client: redis.Redis
) -> None:
    """However many are under way."""
    depart(redis_client, *[f"gone:{number}:abc:1" for number in range(20)], jobs=2)
    recovery.look(within_seconds=0)
    push(redis_client, "urgent", queue="low")
    fetch(link, ("low", 0), owner=DEAD, registration=ELSEWHERE)
    assert held(redis_client, DEAD)

    assert recovery.declare_dead(DEAD, within_seconds=0) == 1
    assert redis_client.lrange("queue:low", 0, -1) == [b"urgent"]
    assert recovery.has_more


# ---- where a process lives


def test_this_process_is_not_dead() -> None:
    """And says so in JSON that it reads back."""
    about = registration(HERE, ["default"])

    assert parse_registration(about.encode()) == (HERE, ["default"])
    assert json.loads(about)["pid"] == os.getpid()
    assert not HERE.is_provably_dead()


@pytest.fixture
def outer_proc(tmp_path: Path) -> Path:
    """As it is seen in a PID namespace of its own with the `/proc` around it: this process has another number there."""
    name, _, numbers = Path("/proc/self/stat").read_text().rpartition(")")
    words = numbers.split()
    outer = str(os.getpid() + 1_000_000)
    for folder, start in ((outer, words[19]), (f"{outer}/task/{outer}", words[19]), (str(os.getpid()), "77")):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "stat").write_text(f"{name}) {' '.join([*words[:19], start, *words[20:]])}\n")
    (tmp_path / "self").symlink_to(outer)
    return tmp_path


def test_where_proc_is_that_of_another_namespace_the_start_is_this_process_s(outer_proc: Path) -> None:
    """Under its number stands somebody else there, whose start would be taken for its own."""
    assert ProcessPlace.here(outer_proc) == HERE


def test_a_process_knows_its_start_as_others_see_it(outer_proc: Path) -> None:
    """qemu makes up the file of the process itself: by that, others would take it for dead and run its jobs twice."""
    made_up = outer_proc / "self" / "stat"
    made_up.write_text(f"1 (python) R {'0 ' * 18}78 {'0 ' * 30}\n")

    assert ProcessPlace.here(outer_proc) == HERE


def test_where_proc_is_that_of_another_namespace_nobody_is_taken_for_dead_by_it(outer_proc: Path) -> None:
    """A number that is nobody's is proof all the same."""
    child = subprocess.Popen(tied_to_this_process([sys.executable, "-c", "input()"]), stdin=subprocess.PIPE)
    place = replace(HERE, pid=child.pid, start=start_of(child.pid))

    assert not HERE.is_provably_dead(outer_proc)
    assert HERE.cpu_ticks(outer_proc) is None
    assert not place.is_provably_dead(outer_proc)
    child.communicate()
    assert place.is_provably_dead(outer_proc)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_was_killed_and_not_waited_for_is_dead() -> None:
    """A zombie runs nothing."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.write(write, registration(ProcessPlace.here(), []).encode())
        os._exit(0)
    os.close(write)
    place, _ = parse_registration(os.read(read, 4096))
    os.close(read)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert place.pid == pid
    assert place.is_provably_dead()
    os.waitpid(pid, 0)
    assert place.is_provably_dead()


@pytest.mark.parametrize("changed", ["boot", "pid_namespace"])
def test_a_process_elsewhere_is_never_provably_dead(changed: str) -> None:
    """Its number means nothing here."""
    nobody = ProcessPlace(HERE.boot, HERE.pid_namespace, 2**22 + 1, 1)

    assert nobody.is_provably_dead()
    assert not replace(nobody, **{changed: "other"}).is_provably_dead()  # type: ignore[arg-type]


def test_a_look_costs_few_commands_however_many_processes_there_are(
    recovery: Recovery, redis_client: redis.Redis
) -> None:
    """Every process looks after every other: a command for each would be too many."""
    names = [f"other:{number}:def:1" for number in range(300)]
    redis_client.hset("sidekiq_py:owners", mapping=dict.fromkeys(names, ELSEWHERE))
    redis_client.mset({f"sidekiq_py:lease:{name}": "1" for name in names})
    gone = f"{T0:.3f} {ELSEWHERE}"
    redis_client.hset("sidekiq_py:departed", mapping={f"gone:{number}:def:1": gone for number in range(300)})
    recovery.look()
    before = redis_client.info("stats")["total_commands_processed"]

    recovery.look()

    assert redis_client.info("stats")["total_commands_processed"] - before < 10

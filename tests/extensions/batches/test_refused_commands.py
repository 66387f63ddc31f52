"""Steps of batches for a Redis user who may not use one of their commands: refused or written as a whole."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.client import sync_client
from sidekiq_py.errors import SidekiqError
from sidekiq_py.extensions.batches import adding, steps
from sidekiq_py.extensions.batches.member import KEY as MEMBER_KEY
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.scripts import Script
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.extensions.batches.conftest import Program

COMMANDS = sorted(set(re.findall(r"redis\.p?call\(\s*'(\w+)'", steps.LIBRARY)))


class Clerk:
    """A user of Redis who has lost the right to one command."""

    def __init__(self, app: Program, redis_url: str, command: str) -> None:
        self._app, self._command = app, command
        self.url = redis_url.replace("://", "://clerk:pw@")
        self.may_all(True)
        self.pool = Pool(RedisSettings(self.url))

    def may_all(self, does: bool) -> None:
        """Give the right back, or withdraw it."""
        rights = () if does else (f"-{self._command.lower()}",)
        self._app.client.execute_command("ACL", "SETUSER", "clerk", "on", ">pw", "~*", "&*", "+@all", *rights)

    def step(self, name: str, bid: str, *words: Any) -> None:
        """Run a step without the right; if that is refused, repeat it with the right."""
        self.may_all(False)
        try:
            steps.call(self.pool, name, bid, *words)
        except SidekiqError:
            self.may_all(True)
            steps.call(self.pool, name, bid, *words)
        finally:
            self.may_all(True)


@pytest.fixture(params=COMMANDS)
def clerk(app: Program, redis_url: str, request: pytest.FixtureRequest) -> Iterator[Clerk]:
    """One for each command that batches use."""
    if int(app.client.info("server")["redis_version"].split(".")[0]) < 7:
        pytest.skip("a script can tell what its user may not run since Redis 7.0")
    one = Clerk(app, redis_url, request.param)
    yield one
    one.pool.close()
    app.client.acl_deluser("clerk")


@pytest.mark.parametrize("track", [False, True])
def test_a_batch_ends_although_each_step_was_refused_at_first(app: Program, clerk: Clerk, track: bool) -> None:
    """A step that was written in part would be repeated in vain, and the batch would wait for ever."""
    parent, child = sidekiq.Batch(), sidekiq.Batch(track=track)
    child.on("success", app.callback)
    child.on("complete", app.callback)
    with parent.jobs(), child.jobs():
        for _ in range(4):
            app.deed.perform_async("ok")
    app.client.delete("queue:default")

    clerk.step("ends", child.bid, "failed", 0, "a", '{"error":"x"}')
    clerk.step("ends", child.bid, "failed", 1, "b", "")
    clerk.step("ends", child.bid, "succeeded", 0, "a")
    clerk.step("ends", child.bid, "succeeded", 2, "c")
    clerk.step("succeed_all", child.bid, 1, 3)

    # Callbacks that could not be pushed wait among the batch's keys.
    steps.call(clerk.pool, "deliver_late", child.bid)
    status = child.status()
    assert (status.state, status.pending, status.failures) == ("success", 0, 0)
    callbacks = app.waiting()
    assert len({job["jid"] for job in callbacks}) == len(callbacks) == 2
    for job in callbacks:
        clerk.step("ends", parent.bid, "succeeded", job[MEMBER_KEY][1], job["jid"])
    assert parent.status().state == "success"


def test_a_job_joins_once(app: Program, clerk: Clerk) -> None:
    """Its member must not be counted again each time that the step is sent."""
    batch = sidekiq.Batch(track=True)
    with batch.jobs():
        app.deed.perform_async("ok")

    clerk.step("join", batch.bid, "queue", "default", '{"jid":"j"}', '{"jid":"j"}')

    assert len(app.waiting()) == batch.status().total == batch.status().pending == 2


def test_a_push_is_refused_or_counted(app: Program, clerk: Clerk) -> None:
    """Otherwise a batch ends before its jobs, or waits for jobs that were not pushed."""
    program.configure(redis_url=clerk.url, sidekiq_version="7")
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
        clerk.may_all(False)
        with suppress(SidekiqError):
            app.deed.perform_async("ok")
        with suppress(SidekiqError):
            app.deed.perform_bulk([["ok"], ["ok"]])
        clerk.may_all(True)
    sync_client.current().close()

    status = batch.status()
    assert (status.total, status.pending, status.state) == (len(app.waiting()), len(app.waiting()), "running")


def test_a_push_by_ruby_s_script_is_refused_or_counted(app: Program, clerk: Clerk) -> None:
    """It checks its own commands, because `add` does not know the keys of queues."""
    script = Script.of_text("ruby_push", steps.LIBRARY + (steps.FOLDER / "ruby_push.lua").read_text("utf-8"))
    batch = sidekiq.Batch()
    with batch.jobs():
        app.deed.perform_async("ok")
        adds = adding.current()
        assert adds is not None
        place = adds.place(1)
        names = [steps.key(batch.bid), "queues", "queue:other"]
        added = [place.block, place.used, 1, 0, "0", adds.token, "", place.end, place.sender, place.mark, 0]
        pushes = [3, "SADD", 2, "other", 3, "LPUSH", 3, "{}"]
        clerk.may_all(False)
        with suppress(SidekiqError):
            clerk.pool.run(lambda link: script.run(link, names, [*added, *pushes]))
        clerk.may_all(True)

    assert batch.status().total == 1 + app.client.llen("queue:other")
    assert app.client.scard("queues") == batch.status().total


def test_a_batch_is_refused_or_opened(app: Program, clerk: Clerk) -> None:
    """Otherwise it ends while jobs are still added, or its parent does not wait for it."""
    program.configure(redis_url=clerk.url, sidekiq_version="7")
    parent, child = sidekiq.Batch(), sidekiq.Batch()
    with parent.jobs():
        clerk.may_all(False)
        with suppress(SidekiqError), child.jobs():
            clerk.may_all(True)
            app.deed.perform_async("ok")
        clerk.may_all(True)
    sync_client.current().close()

    jobs = app.waiting()
    assert (child.status().state if jobs else "open") in ("running", "open")
    assert parent.status().state == ("running" if jobs else "success")

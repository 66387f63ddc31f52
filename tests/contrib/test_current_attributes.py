"""Values that pass from a request to its jobs, and from Ruby to Python and back."""

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.active_job import perform_later
from sidekiq_py.client import sync_client
from sidekiq_py.contrib.current_attributes import Attributes, locale, persist, persist_locale, read
from sidekiq_py.errors import ConfigError
from sidekiq_py.middleware.running import arun, run
from sidekiq_py.registry import FunctionDefinition
from sidekiq_py.testing import fake
from sidekiq_py.wire.dialect import OLD_WRAPPER
from tests.support.missing_tools import skip_or_fail

PAIRS = [[{"_aj_serialized": "ActiveJob::Serializers::SymbolSerializer", "value": "user_id"}, 7]]

# Prints what Ruby's own middleware saves, and how it reads the payload from standard input.
_RUBY = """
require "json"; require "sidekiq"; require "sidekiq/middleware/current_attributes"
require "active_support/all"; require "active_job"; require "globalid"; ActiveJob::Base
class Current < ActiveSupport::CurrentAttributes
  attribute :user_id, :tenant
end
payload = JSON.parse($stdin.read)
loaded = nil
Sidekiq::CurrentAttributes::Load.new(Current).call(nil, payload, nil) { loaded = Current.attributes.dup }
Current.user_id = 7
saved = {}
Sidekiq::CurrentAttributes::Save.new(Current).call(nil, saved, nil, nil) {}
puts JSON.generate(loaded: loaded, saved: saved, pairs: ActiveJob::Arguments.serialize(Current.attributes))
"""


@pytest.fixture(autouse=True)
def own_program(redis_url: str) -> Iterator[None]:
    """A program for Sidekiq 7, without middleware before and after the test."""
    program.reset()
    program.configure(redis_url=redis_url, sidekiq_version="7")
    yield
    sync_client.current().close()
    locale.reset()
    program.reset()


def enqueued(**fields: Any) -> dict[str, Any]:
    """The payload of a job that is enqueued here and now."""
    payload: dict[str, Any] = {"class": "Any", "args": [], "queue": "default", "jid": "1", **fields}
    return program.client_middleware.invoke("Any", payload, "default", lambda: payload)  # type: ignore[no-any-return]


def perform(payload: dict[str, Any], job: Any) -> Any:
    """What *job* returns when a worker runs it with *payload*."""
    return run(FunctionDefinition("Any", {}, job, job), payload, "default", program.server_middleware)


def test_what_is_set_in_a_request_is_there_in_its_jobs_and_in_theirs() -> None:
    """The jobs that a job enqueues belong to the same request."""
    current = Attributes(user_id=None, tenant="none")
    persist(current)

    with current.set(user_id=7):
        first = enqueued()
    second = perform(first, lambda: (current.user_id, current.tenant, enqueued()))

    assert first["cattr"] == {"user_id": 7}
    assert second[:2] == (7, "none")
    assert second[2]["cattr"] == {"user_id": 7}
    assert current.user_id is None


def test_nothing_is_added_where_nothing_is_set() -> None:
    """Payloads do not change for programs and requests without values."""
    persist(Attributes(user_id=None))

    assert "cattr" not in enqueued()


def test_a_job_that_is_pushed_again_keeps_what_it_was_enqueued_with() -> None:
    """The poller's push goes through the same middleware, in a process with other values."""
    current = Attributes(user_id=None)
    persist(current)

    with current.set(user_id=8):
        assert enqueued(cattr={"user_id": 7})["cattr"] == {"user_id": 7}


def test_client_middleware_finds_a_job_s_own_values_when_it_is_pushed_again() -> None:
    """A retry went to the queue of no tenant, or of the tenant whose request pushed it again."""
    seen: list[tuple[Any, Any]] = []
    current, other = Attributes(tenant=None), Attributes(shard=None)

    @program.client_middleware.add
    def note(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        seen.append((current.tenant, other.shard))
        return call_next()

    persist(current, other)
    with current.set(tenant="acme"), other.set(shard=1):
        enqueued(cattr={"tenant": "zoë"})
        enqueued(cattr_1="not readable")
        after = (current.tenant, other.shard)
    enqueued()

    assert seen == [("zoë", 1), ("acme", 1), (None, None)]
    assert after == ("acme", 1)


def test_what_a_job_sets_does_not_reach_the_next_one() -> None:
    """Both run in the same thread."""
    current = Attributes(user_id=None)
    persist(current)

    def first() -> None:
        current.user_id = 99

    perform({"args": [], "cattr": {"user_id": 7}}, first)

    assert perform({"args": []}, lambda: current.user_id) is None


def test_several_groups_have_keys_by_their_order() -> None:
    """As Ruby numbers several classes."""
    one, two, three = Attributes(a=None), Attributes(b=None), Attributes(c=None)
    persist(one, two, three)

    one.a, three.c = 1, 3
    payload = enqueued()
    seen = perform({**payload, "cattr_1": {"b": 2}}, lambda: (one.a, two.b, three.c))

    assert (payload["cattr"], payload["cattr_2"], "cattr_1" in payload) == ({"a": 1}, {"c": 3}, False)
    assert seen == (1, 2, 3)


def test_names_that_only_the_other_side_declares_go_on_unseen() -> None:
    """Ruby, Python, Ruby: values that Python does not use must not be lost on the way."""
    current = Attributes(user_id=None)
    persist(current)
    payload = {"args": [], "cattr": {"user_id": 7, "shard": 3}}

    seen, following = perform(payload, lambda: (current.attributes, enqueued()))

    assert seen == {"user_id": 7}
    assert following["cattr"] == {"user_id": 7, "shard": 3}


@pytest.mark.parametrize("group", ["Myapp::Current", {"tenant": None}, Attributes])
def test_what_is_no_attributes_cannot_be_persisted(group: Any) -> None:
    """As `persist` in Ruby takes names of classes; each push would fail."""
    with pytest.raises(ConfigError, match=r"give Attributes, as in persist\(Attributes\(tenant=None\)\)"):
        persist(group)


def test_a_name_that_is_not_declared_is_refused_in_code() -> None:
    """A typo in the program is an error."""
    current = Attributes(user_id=None)

    with pytest.raises(AttributeError, match="there is no attribute 'shard'; declared are user_id"):
        current.shard = 3
    with pytest.raises(AttributeError), current.set(shard=3):
        pass
    with pytest.raises(ConfigError, match="'reset' cannot be the name"):
        Attributes(reset=1)


def test_sidekiq_8_gets_pairs_and_both_forms_are_read() -> None:
    """Older releases cannot read pairs, so they are written only for 8."""
    program.configure(sidekiq_version="8")
    current = Attributes(user_id=None)
    persist(current)
    current.user_id = 7

    assert enqueued()["cattr"] == PAIRS
    assert read(PAIRS) == read({"user_id": 7}) == {"user_id": 7}


def test_each_thread_and_each_task_has_its_own_values() -> None:
    """Requests and jobs run at the same time."""
    current = Attributes(user_id=None)
    persist(current)
    gate = threading.Barrier(2)
    seen: dict[int, Any] = {}

    def in_thread(user_id: int) -> None:
        current.user_id = user_id
        gate.wait()
        seen[user_id] = current.user_id

    async def in_task() -> Any:
        await asyncio.sleep(0)
        return current.user_id

    async def main() -> list[Any]:
        definition = FunctionDefinition("Any", {}, in_task, in_task, is_async=True)
        payloads = [{"args": [], "cattr": {"user_id": user_id}} for user_id in (3, 4)]
        return await asyncio.gather(
            *(arun(definition, payload, "default", program.server_middleware) for payload in payloads)
        )

    threads = [threading.Thread(target=in_thread, args=(user_id,)) for user_id in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == {1: 1, 2: 2}
    assert asyncio.run(main()) == [3, 4]
    assert current.user_id is None


def test_the_locale_goes_along() -> None:
    """A Rails job's language is set in our job, and in the jobs that ours enqueues."""
    persist_locale()

    payload = perform({"args": [], "locale": "de"}, lambda: (locale.name, enqueued()))

    assert payload[0] == "de"
    assert payload[1]["locale"] == "de"
    assert "locale" not in enqueued()
    assert perform({"args": []}, lambda: locale.name) is None


def test_an_active_job_has_the_locale_in_its_job_object() -> None:
    """Rails runs it in that locale, whatever Sidekiq's middleware has set before."""
    persist_locale()

    with fake() as enqueued, locale.set(name="de"):
        perform_later("Report")
        perform_later("Report", locale="fr")

    assert [job.payload["args"][0]["locale"] for job in enqueued] == ["de", "fr"]


def test_an_active_job_of_rails_runs_in_its_own_locale() -> None:
    """Most Rails programs do without Sidekiq's middleware for locales, as Active Job has its own."""
    persist_locale()
    payload = {"class": OLD_WRAPPER, "args": [{"job_class": "Report", "locale": "de"}]}

    assert perform(payload, lambda job: locale.name) == "de"
    assert perform({**payload, "locale": "fr"}, lambda job: locale.name) == "de"
    assert perform({**payload, "class": "Plain", "locale": "fr"}, lambda job: locale.name) == "fr"


def test_a_real_push_carries_them(redis_client: Any) -> None:
    """They are at the end of the payload, where Ruby's middleware puts them."""
    current = Attributes(user_id=None)
    persist(current)
    persist_locale()

    with current.set(user_id=7), locale.set(name="fr"):
        sidekiq.ruby_job("HardWorker").perform_async(1)

    raw = redis_client.lindex("queue:default", 0)
    payload = json.loads(raw)
    assert (payload["cattr"], payload["locale"]) == ({"user_id": 7}, "fr")


@pytest.mark.ruby
def test_ruby_reads_what_is_written_here_and_writes_the_same() -> None:
    """With Sidekiq 6.4.1's own middleware on both ends, and Rails' encoding of the pairs."""
    current = Attributes(user_id=None, tenant=None)
    persist(current)
    with current.set(user_id=7):
        payload = enqueued()
        program.configure(sidekiq_version="8")
        pairs = enqueued()["cattr"]

    advice = "no Ruby with Sidekiq and Rails; on Debian: apt-get install ruby-sidekiq ruby-activejob"
    command = ["ruby", "-W0", "-e", _RUBY]
    try:
        ran = subprocess.run(command, input=json.dumps(payload), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        skip_or_fail(advice, switch="SIDEKIQ_PY_REQUIRE_RUBY")
    if "LoadError" in ran.stderr:
        skip_or_fail(advice, switch="SIDEKIQ_PY_REQUIRE_RUBY")
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)

    assert answer["loaded"] == {"user_id": 7}
    assert answer["saved"]["cattr"] == payload["cattr"]
    assert answer["pairs"] == pairs

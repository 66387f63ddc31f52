"""Random calls of a client, made in Ruby and in Python: the same payloads in the same keys."""

import json
import os
import time
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from interop_tests.conftest import RunRuby
from interop_tests.support.ledger import masked
from interop_tests.support.random_calls import Call, RandomCalls
from interop_tests.support.ruby import RubyRelease

pytestmark = pytest.mark.usefixtures("python_client")

CALLS = 250
SEED = int(os.environ.get("FIXTURE_SEED", "8"))
# Whatever lies further ahead was named to the second in the call; the rest counts from the call itself.
NEXT_CENTURY = 3_900_000_000

RUBY = """
  Sidekiq.strict_args!(false) if Sidekiq.respond_to?(:strict_args!)
  flat = ->(reply) { reply.flatten.each_slice(2).map { |member, score| [member, score.to_f] } }
  states = calls.map do |told|
    Object.send(:remove_const, :RandomJob) if Object.const_defined?(:RandomJob)
    job = Object.const_set(:RandomJob, Class.new { include FIXTURE_JOB })
    job.sidekiq_options(told["options"])
    if told["item"]
      Sidekiq::Client.public_send(told["call"], told["by_class"] ? told["item"].merge("class" => job) : told["item"])
    else
      target = told["set"] ? job.set(told["set"].transform_keys(&:to_sym)) : job
      given = told["call"] == "perform_bulk" ? [told["args"]] : [*told["interval"], *told["args"]]
      target.public_send(told["call"], *given)
    end
    Sidekiq.redis do |conn|
      command = ["ZRANGE", "schedule", 0, -1, "WITHSCORES"]
      scheduled = Sidekiq::VERSION < "7" ? conn.call(command) : conn.call(*command)
      queues = conn.smembers("queues").sort.to_h { |queue| [queue, conn.lrange("queue:#{queue}", 0, -1)] }
      {"queues" => queues, "schedule" => flat.call(scheduled)}.tap { conn.flushdb }
    end
  end
  JSON.generate(states)
"""

TIMES_OF_SET = """
  job = Object.const_set(:RandomJob, Class.new { include FIXTURE_JOB })
  pairs.map do |earlier, later|
    job.set(earlier.transform_keys(&:to_sym)).set(later.transform_keys(&:to_sym)).perform_in(-1)
    Sidekiq.redis { |conn| conn.call("ZPOPMIN", "schedule") }.flatten.last.to_f
  end
"""

State = dict[str, Any]


def test_the_same_calls_leave_the_same_bytes(
    ruby_release: RubyRelease, ruby: RunRuby, redis_client: redis.Redis
) -> None:
    """`FIXTURE_SEED` selects other calls. Jids and times differ; their format does not."""
    source = RandomCalls(SEED, has_bulk=ruby_release.numbers >= (6, 3))
    calls = [source.call() for _ in range(CALLS)]
    began = time.time()

    theirs = json.loads(ruby(RUBY, calls=calls))
    redis_client.flushdb()
    ours = [made_in_python(call, redis_client) for call in calls]

    different = [
        (call, our, their)
        for call, our, their in zip(calls, ours, theirs, strict=True)
        if comparable(our, began) != comparable(their, began)
    ]
    assert different == []


@pytest.mark.releases(since="8.1")
def test_the_last_time_that_set_is_given_counts(ruby: RunRuby, redis_client: redis.Redis) -> None:
    """`at`, `wait` and `wait_until` are one setting; a call for a past time leaves it. 7.3 ignores a second `wait`."""
    names = ["at", "wait", "wait_until"]
    pairs: list[list[dict[str, Any]]] = [[{earlier: 3e9}, {later: 4e9}] for earlier in names for later in names]
    pairs += [[{earlier: 4e9}, {later: None}] for earlier in names for later in ("wait", "wait_until")]

    theirs = ruby(TIMES_OF_SET, pairs=pairs)
    ours = []
    for earlier, later in pairs:
        sidekiq.ruby_job("RandomJob").set(earlier).set(later).perform_in(-1)
        [(_, score)] = redis_client.zpopmin("schedule")
        ours.append(score)

    assert ours == theirs == [4e9] * len(pairs)


def made_in_python(call: Call, client: Any) -> State:
    """What the call leaves; Redis is empty again."""
    job: Any = sidekiq.ruby_job("RandomJob", custom=call["options"])
    if "item" in call:
        item = call["item"] | ({"class": job} if call["by_class"] else {})
        getattr(sidekiq.Client(), call["call"])(item)
    else:
        target = job.set(call["set"]) if "set" in call else job
        given = [call["args"]] if call["call"] == "perform_bulk" else call["args"]
        getattr(target, call["call"])(*([call["interval"]] if "interval" in call else []), *given)
    queues = sorted(name.decode() for name in client.smembers("queues"))
    state = {
        "queues": {name: [raw.decode() for raw in client.lrange(f"queue:{name}", 0, -1)] for name in queues},
        "schedule": [[raw.decode(), score] for raw, score in client.zrange("schedule", 0, -1, withscores=True)],
    }
    client.flushdb()
    return state


def comparable(state: State, began: float) -> State:
    """Without drawn jids and times; a score that counts from the call is rounded to ten minutes."""
    return {
        "queues": {name: [masked(raw.encode()) for raw in raws] for name, raws in state["queues"].items()},
        "schedule": sorted(
            (masked(raw.encode()), score if score > NEXT_CENTURY or score < began else round((score - began) / 600))
            for raw, score in state["schedule"]
        ),
    }

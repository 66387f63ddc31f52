"""Queues nobody works, and classes that nobody serves."""

import json
import time

import pytest
import redis

from sidekiq_py import program
from sidekiq_py.active_job import active_job
from sidekiq_py.active_job.declared import forget_active_jobs
from sidekiq_py.doctor import examine
from sidekiq_py.jobs import decorators
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry
from sidekiq_py.wire.dialect import NEW_WRAPPER, OLD_WRAPPER
from tests.doctor.conftest import Look, payload, push, python_process, ruby_process, run_advice


def program_with(*names: str, **options: object) -> Registry:
    """What a program declares."""
    declared = Registry()
    for name in names:
        declared.add(FunctionDefinition(name, dict(options), print, print))
    return declared


def test_jobs_wait_where_no_process_is_at_work(look: Look, redis_client: redis.Redis) -> None:
    """Said once for all queues."""
    push(redis_client, queue="low")
    push(redis_client, queue="mailers")

    found = look().the("unworked-queues")

    assert (found.level, found.subjects) == ("problem", ("low", "mailers"))
    assert found.seen == "2 jobs wait, and no process is running: low (1), mailers (1)."


def test_a_queue_that_no_process_works(look: Look, redis_client: redis.Redis) -> None:
    """With the flag that would help; empty queues do not count."""
    ruby_process(redis_client, queues=("default",))
    push(redis_client, queue="mailers")
    redis_client.sadd("queues", "empty")

    found = look().the("unworked-queues")

    assert found.seen == "1 job waits in `mailers`, and no process serves that queue."
    assert "-q mailers" in found.advice


def test_a_queue_that_workers_left_because_they_lack_an_extension(look: Look, redis_client: redis.Redis) -> None:
    """Another worker of the same kind would leave it, too."""
    ruby_process(redis_client, queues=("default",))
    redis_client.hset("sidekiq_py:extension_keys", "tenant", "the job would run for nobody")
    push(redis_client, queue="mailers", tenant="acme")

    advice = look().the("unworked-queues").advice

    assert "Its jobs have `tenant`, of an extension that is not loaded here" in advice
    assert "unless it is started with --extension-key tenant=run" in advice


def test_a_process_that_is_quiet_works_no_queue(look: Look, redis_client: redis.Redis) -> None:
    """It is named, as somebody may wonder; where jobs wait, and where they will be due."""
    identity = ruby_process(redis_client, queues=("default", "mailers"), is_quiet=True)
    push(redis_client)
    redis_client.zadd("retry", {json.dumps(payload(queue="mailers")): time.time() + 3600})

    diagnosis = look()

    assert f"{identity} did, but takes no new jobs" in diagnosis.the("unworked-queues").seen
    assert f"{identity} did, but takes no new jobs" in diagnosis.the("due-elsewhere").seen
    assert "takes no new jobs" in diagnosis["processes"][1].seen


def test_where_retries_will_go_is_looked_at(look: Look, redis_client: redis.Redis) -> None:
    """Before they are due."""
    ruby_process(redis_client)
    redis_client.zadd("retry", {json.dumps(payload(queue="gone")): time.time() + 3600})

    found = look().the("due-elsewhere")

    assert (found.level, found.subjects) == ("warning", ("gone",))


def test_a_paused_queue_is_a_note(look: Look, redis_url: str, redis_client: redis.Redis) -> None:
    """Sidekiq without Pro knows nothing of it."""
    ruby_process(redis_client)
    push(redis_client)
    redis_client.sadd("paused", "default")

    found = look().the("paused")

    assert (found.level, found.subjects) == ("note", ("default",))
    assert "`default` (1 job) is paused" in found.seen
    run_advice(found.advice, redis_url)
    assert look()["paused"] == []


@pytest.mark.parametrize("namespace", ["", "myapp"])
def test_the_printed_commands_work_for_a_queue_whose_name_begins_with_a_dash(
    redis_url: str, redis_client: redis.Redis, namespace: str
) -> None:
    """Such a name stands behind `--`, and all options before it."""
    start = f"{namespace}:" if namespace else ""
    if namespace:
        for key in (ruby_process(redis_client), "processes"):
            redis_client.rename(key, start + key)
    else:
        ruby_process(redis_client)
    for queue in ("-x", "default"):
        redis_client.lpush(f"{start}queue:{queue}", json.dumps(payload()))
    redis_client.sadd(f"{start}queues", "default")
    redis_client.sadd(f"{start}paused", "-x")
    pool = Pool(RedisSettings(redis_url, namespace=namespace))

    advice = {check.name: found.advice for check, found in examine(pool=pool).findings() if found.subjects == ("-x",)}
    pool.close()

    run_advice(advice["unlisted-queues"], redis_url)
    assert redis_client.sismember(f"{start}queues", "-x")
    run_advice(advice["paused"], redis_url)
    assert not redis_client.exists(f"{start}paused")
    run_advice(advice["unworked-queues"].replace(" TO", " default"), redis_url, "--yes")
    assert redis_client.llen(f"{start}queue:default") == 2


def test_jobs_that_have_waited_for_long(look: Look, redis_client: redis.Redis) -> None:
    """By Redis's clock, of a queue that is worked."""
    ruby_process(redis_client, queues=("default", "low"))
    push(redis_client, enqueued_at=time.time() - 3 * 86_400)
    push(redis_client, queue="low")

    found = look().the("latency")

    assert found.subjects == ("default",)
    assert "have waited up to 3 days; 1 process serves that queue (5 jobs at a time)" in found.seen


def test_jobs_that_have_waited_for_long_in_a_paused_queue(
    look: Look, redis_url: str, redis_client: redis.Redis
) -> None:
    """Somebody may have forgotten the pause, and --strict has to find it."""
    ruby_process(redis_client)
    push(redis_client, enqueued_at=time.time() - 7_200)
    redis_client.sadd("paused", "default")

    found = look().the("latency")

    assert (found.level, found.seen) == (
        "warning",
        "Jobs of `default` have waited up to 2 h, and that queue is paused.",
    )
    run_advice(found.advice, redis_url)
    assert not redis_client.exists("paused")


def test_jobs_that_are_overdue(look: Look, redis_url: str, redis_client: redis.Redis) -> None:
    """Nobody moves them."""
    redis_client.zadd("schedule", {json.dumps(payload()): time.time() - 600})
    redis_client.zadd("retry", {json.dumps(payload()): time.time() + 600})

    found = look().the("overdue")

    assert (found.level, found.subjects) == ("problem", ("schedule",))
    assert "for 10 min" in found.seen
    assert run_advice(found.advice, redis_url).output == "1 job enqueued.\n"
    assert redis_client.zcard("schedule") == 0


def test_a_queue_that_is_not_in_the_set_of_queues(look: Look, redis_url: str, redis_client: redis.Redis) -> None:
    """As a hand-made producer leaves it."""
    ruby_process(redis_client)
    redis_client.lpush("queue:default", json.dumps(payload()))

    found = look().the("unlisted-queues")

    assert "`default` (1 job) is not in the set `queues`" in found.seen
    run_advice(found.advice, redis_url)
    assert look()["unlisted-queues"] == []


def test_a_key_that_is_no_queue(look: Look, redis_client: redis.Redis) -> None:
    """Pushes there fail."""
    redis_client.sadd("queues", "default")
    redis_client.set("queue:default", "x")

    found = look().the("unlisted-queues")

    assert (found.level, found.subjects) == ("problem", ("default",))
    assert "is a string and not a list" in found.seen


def test_jobs_that_nobody_can_read(look: Look, redis_client: redis.Redis) -> None:
    """Text, an array, an object without a class."""
    ruby_process(redis_client)
    redis_client.sadd("queues", "default")
    redis_client.lpush("queue:default", "garbage", "[1]", '{"args":[]}', json.dumps(payload()))

    found = look().the("unreadable-jobs")

    assert "Of all 4 waiting jobs" in found.seen
    assert "3 in `queue:default`" in found.seen


def test_the_only_waiting_job_is_counted_in_the_singular(look: Look, redis_client: redis.Redis) -> None:
    """It is not "all 1 waiting jobs"."""
    redis_client.sadd("queues", "default")
    redis_client.lpush("queue:default", "garbage")

    found = look().the("unreadable-jobs")

    assert "Of 1 waiting job 1 is not a JSON object with a class: 1 in `queue:default`." in found.seen


def test_a_class_on_a_queue_of_python_processes_that_none_declares(look: Look, redis_client: redis.Redis) -> None:
    """Nobody can run it."""
    identity = python_process(redis_client, classes=("Sum",))
    push(redis_client, "Sum")
    push(redis_client, "Product")

    found = look().the("unserved-classes")

    assert (found.level, found.subjects) == ("problem", ("Product",))
    assert identity in found.seen
    assert "If it was renamed, declare its old name, too" in found.advice


def test_a_class_of_retries_alone(look: Look, redis_client: redis.Redis) -> None:
    """Its queue holds none of them now."""
    python_process(redis_client, classes=("Sum",))
    redis_client.zadd("retry", {'{"class":"Product","args":[],"jid":"a","queue":"default","retry":true}': 4e9})

    assert look().the("unserved-classes").seen.startswith("`default` holds or will get Product (")


def test_a_class_that_a_ruby_process_may_know(look: Look, redis_client: redis.Redis) -> None:
    """Python would fetch some of its jobs all the same."""
    python_process(redis_client, classes=("Sum",))
    ruby_process(redis_client)
    push(redis_client, "HardWorker")

    found = look().the("unserved-classes")

    assert (found.level, found.subjects) == ("warning", ("HardWorker",))
    assert "Ruby processes serve that queue and may know it" in found.seen


def test_a_class_on_a_queue_of_ruby_processes(look: Look, redis_client: redis.Redis) -> None:
    """They do not tell, and nothing speaks against it."""
    python_process(redis_client, classes=("Sum",), queues=("python",))
    ruby_process(redis_client)
    push(redis_client, "HardWorker")

    assert look()["unserved-classes"] == []


def test_a_python_process_that_does_not_tell(look: Look, redis_client: redis.Redis) -> None:
    """It may know any class."""
    python_process(redis_client, classes=None)
    push(redis_client, "Sum")

    assert look()["unserved-classes"] == []


def test_a_class_that_only_some_python_processes_declare(look: Look, redis_client: redis.Redis) -> None:
    """The others fail what they fetch of it."""
    python_process(redis_client, classes=("Sum", "Product"))
    other = python_process(redis_client, "app:10:ba9876543210", classes=("Product",))
    push(redis_client, "Sum")
    push(redis_client, "Product")

    found = look().the("unserved-classes")

    assert (found.level, found.subjects) == ("warning", ("Sum",))
    assert f"others do not ({other})" in found.seen


@pytest.mark.parametrize("name", ["", "a b", "a\x1bb"])
def test_a_queue_that_no_worker_can_be_told_to_serve(look: Look, redis_client: redis.Redis, name: str) -> None:
    """The advice must not be a flag that `worker` refuses."""
    python_process(redis_client)
    push(redis_client, "Sum", name)

    advice = look().the("unworked-queues").advice

    assert "-q" not in advice
    assert "Fix what pushes there: Python workers cannot serve" in advice
    assert "Then move its jobs to a queue that is served: sidekiq-py" in advice


def test_what_the_program_declares_counts_as_served(look: Look, redis_client: redis.Redis) -> None:
    """Before its workers are started anew."""
    python_process(redis_client, classes=())
    push(redis_client, "Sum")

    assert look()["unserved-classes"] != []
    assert look(declared=program_with("Sum"))["unserved-classes"] == []


@pytest.mark.parametrize("wrapper", [OLD_WRAPPER, NEW_WRAPPER])
def test_an_active_job_is_known_by_its_own_name(look: Look, redis_client: redis.Redis, wrapper: str) -> None:
    """Not by that of its wrapper."""
    python_process(redis_client, classes=("Billing::InvoiceJob",))
    for name in ("Billing::InvoiceJob", "Billing::ReminderJob"):
        push(redis_client, wrapper, wrapped=name, args=[{"job_class": name, "arguments": []}])

    assert look().the("unserved-classes").subjects == ("Billing::ReminderJob",)


def test_active_jobs_of_the_program_count_as_served(look: Look, redis_client: redis.Redis) -> None:
    """And are not said to go to the queue of their wrapper."""
    python_process(redis_client, classes=(), queues=("mailers",))
    push(redis_client, OLD_WRAPPER, "mailers", args=[{"job_class": "InvoiceJob", "arguments": []}])
    active_job("InvoiceJob")(lambda: None)
    # What other tests have declared is none of this program's.
    declared = Registry()
    for wrapper in (OLD_WRAPPER, NEW_WRAPPER):
        definition = decorators.registry.find(wrapper)
        assert definition is not None
        declared.add(definition)

    try:
        diagnosis = look(declared=declared)
    finally:
        forget_active_jobs()

    assert (diagnosis["unserved-classes"], diagnosis["declared-queues"]) == ([], [])


def test_jobs_that_failed_for_want_of_their_class(look: Look, redis_client: redis.Redis) -> None:
    """As both languages leave them in `retry`."""
    later = time.time() + 600
    ruby = payload("Sum", error_class="NameError", error_message="uninitialized constant Sum", retry_count=0)
    python = payload("HardWorker", error_class="sidekiq_py.errors.JobNotFoundError", error_message="x", retry_count=0)
    other = payload("Other", error_class="NameError", error_message="undefined local variable", retry_count=0)
    redis_client.zadd("retry", {json.dumps(job): later for job in (ruby, python, other)})

    found = look().the("refused-classes")

    assert found.subjects == ("HardWorker", "Sum")
    assert "2 retries failed" in found.seen
    assert "HardWorker (in Python), Sum (in Ruby)" in found.seen
    assert "If a class was renamed, declare its old name, too" in found.advice


def test_an_active_job_under_the_new_wrapper_before_an_old_sidekiq(look: Look, redis_client: redis.Redis) -> None:
    """It lacks that class."""
    ruby_process(redis_client, version="7.3.2")
    push(redis_client, NEW_WRAPPER, args=[{"job_class": "InvoiceJob", "arguments": []}])

    found = look().the("wrappers")

    assert (found.level, found.subjects) == ("problem", ("InvoiceJob",))


def test_a_job_of_the_program_whose_queue_nobody_works(look: Look, redis_client: redis.Redis) -> None:
    """Only a program that was loaded can be asked."""
    python_process(redis_client)

    found = look(declared=program_with("Sum", queue="slow")).the("declared-queues")

    assert found.seen == "Sum goes to `slow`, and no process serves that queue."
    assert look()["declared-queues"] == []


def test_the_default_options_of_the_program_count_for_its_jobs(look: Look, redis_client: redis.Redis) -> None:
    """Its pushes have them, too."""
    python_process(redis_client)
    program.configure(default_job_options={"queue": "slow", "unique_for": 60})

    diagnosis = look(declared=program_with("Sum"))

    assert diagnosis.the("declared-queues").seen == "Sum goes to `slow`, and no process serves that queue."
    assert diagnosis.the("declared-options").subjects == ("Sum",)


def test_an_option_that_an_old_sidekiq_does_not_know(look: Look, redis_client: redis.Redis) -> None:
    """`retry_for` came with 7.1.3."""
    ruby_process(redis_client, version=None)

    found = look(declared=program_with("Sum", retry_for=3600)).the("declared-options")

    assert "Sum declares `retry_for`, which Sidekiq before 7.0.2" in found.seen


def test_an_option_that_nothing_in_python_acts_on(look: Look, redis_client: redis.Redis) -> None:
    """It is for a product's middleware in Ruby."""
    found = look(declared=program_with("Sum", unique_for=60)).the("declared-options")

    assert (found.level, found.subjects) == ("note", ("Sum",))
    assert "`unique_for` (Sidekiq Enterprise)" in found.seen


@pytest.mark.parametrize(
    ("size", "level", "said"),
    [
        (9_100, "note", "9,100 of the 9,999 jobs that it keeps by default"),
        (9_999, "warning", "each job that dies removes the oldest"),
        (12_000, "note", "some program keeps more than the usual 9,999"),
    ],
)
def test_a_dead_set_that_is_full_or_nearly_so(
    look: Look, redis_url: str, redis_client: redis.Redis, size: int, level: str, said: str
) -> None:
    """From there on, jobs that die remove others that nobody has seen."""
    jobs = {json.dumps({"class": "A", "args": [], "jid": str(number)}): number for number in range(1, size + 1)}
    redis_client.zadd("dead", jobs)

    found = look().the("dead-set")

    assert found.level == level
    assert said in found.seen
    assert "jid" in run_advice(found.advice, redis_url, "--json", "--limit", "1").output


def test_a_dead_set_with_room_is_in_order(look: Look, redis_client: redis.Redis) -> None:
    """Dead jobs are what the dead set is for."""
    redis_client.zadd("dead", {str(number): number for number in range(8_000)})

    assert look()["dead-set"] == []

"""What the doctor says of the timetable."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py.api import CronJobs
from sidekiq_py.doctor import examine
from sidekiq_py.extensions.periodic.declared import declarations, declare
from sidekiq_py.extensions.periodic.layout import tick_text
from tests.doctor.conftest import python_process, ruby_process, run_advice
from tests.extensions.periodic.conftest import NOON
from tests.web.conftest import RoundTrips, round_trips

Start = Callable[..., None]
RoundTripsOf = Callable[[], AbstractContextManager[RoundTrips]]

__all__ = ["round_trips"]


def seen() -> list[tuple[str, str]]:
    """Level and sentence of each finding about periodic jobs."""
    return [
        (str(finding.level), finding.seen) for check, finding in examine().findings() if check.name == "periodic-jobs"
    ]


def found(level: str, part: str) -> bool:
    """Whether such a finding is there."""
    return any(level == one and part in text for one, text in seen())


def save(client: redis.Redis, key: str, **fields: str) -> None:
    """As Ruby saves a job."""
    name = key.rsplit(":", maxsplit=1)[-1]
    client.sadd("cron_jobs:default" if key.count(":") > 1 else "cron_jobs", key)
    client.hset(key, mapping={"name": name, "klass": "R", "cron": "0 9 * * * Etc/UTC", "status": "enabled", **fields})


def test_without_periodic_jobs_nothing_is_said() -> None:
    """The question does not apply."""
    assert seen() == []


def test_a_sound_timetable_is_in_order(start: Start) -> None:
    """One line."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()

    assert seen() == [("ok", "1 periodic job can be read.")]


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"cron": "61 * * * *"}, "character 1: '61' is not a valid minute"),
        ({"cron": "0 9 * * * Mars/Olympus"}, "Mars/Olympus is not a time zone"),
        ({"cron": ""}, "has no cron"),
    ],
)
def test_a_job_that_cannot_fire_is_a_problem(redis_client: redis.Redis, fields: dict[str, str], part: str) -> None:
    """With the position and the reason."""
    save(redis_client, "cron_job:default:bad", **fields)

    assert found("problem", part)


@pytest.mark.parametrize("text", ["every tuesday at 5 pm", "0 9 * * mon&tue"])
def test_a_text_that_only_ruby_reads_is_no_problem(text: str, redis_client: redis.Redis) -> None:
    """Ruby fires such a job, so nobody is told to remove it. A declaration in Python would have been refused."""
    save(redis_client, "cron_job:default:theirs", cron=text)

    assert found("note", "Ruby declares 1 periodic job with a cron text that cannot be read here: theirs")
    assert not [sentence for level, sentence in seen() if level == "problem"]


def test_a_key_of_another_type_is_a_problem(redis_client: redis.Redis) -> None:
    """Another program wrote it."""
    redis_client.sadd("cron_jobs", "cron_job:text")
    redis_client.set("cron_job:text", "x")

    assert found("problem", "is not a hash")


def test_two_layouts_of_ruby_fire_twice(redis_client: redis.Redis) -> None:
    """Releases 1.x and 2.x use other keys."""
    save(redis_client, "cron_job:a")
    save(redis_client, "cron_job:default:a")

    assert found("problem", "so each job fires twice")


def test_a_text_without_a_zone_is_a_warning(redis_client: redis.Redis) -> None:
    """Each Ruby process reads it in its own."""
    save(redis_client, "cron_job:default:a", cron="0 9 * * *")

    assert found("warning", "1 periodic job has no time zone: a")


def test_a_clock_that_went_back_is_a_warning(start: Start, redis_client: redis.Redis) -> None:
    """Ticks have fired that lie an hour ahead."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()
    redis_client.hset("sidekiq_py:cron:cron_job:default:n", "fired", str(NOON + 3600))

    assert found("warning", "60 min in the future: n")


def test_a_tick_that_ruby_took_and_never_pushed_is_a_warning(start: Start, redis_client: redis.Redis) -> None:
    """It was killed between the two."""
    save(redis_client, "cron_job:default:a")
    start()
    pushed, lost = NOON - 2 * 3600, NOON - 3600
    for tick in (pushed, lost):
        redis_client.zadd("cron_job:default:a:enqueued", {tick_text(tick): tick})
    redis_client.lpush("cron_job:default:a:jid_history", '{"jid":"x","enqueued":"2030-01-01 10:00:03 UTC"}')

    [text] = [text for level, text in seen() if level == "warning"]
    assert "1 tick of the periodic job `a` was claimed by a Ruby process and never pushed" in text
    assert "2030-01-01T11:00:00Z" in text
    assert CronJobs().find("a").lost_ticks()[0].timestamp() == lost


def test_the_printed_commands_can_be_copied(start: Start, redis_client: redis.Redis) -> None:
    """They end with the name, which may begin with a dash."""
    save(redis_client, "cron_job:default:-x", cron="61 * * * *")
    start()

    [advice] = [finding.advice for _, finding in examine().findings() if finding.subjects == ("-x",)]

    assert advice.endswith(": sidekiq-py cron remove -- -x")


def test_all_jobs_are_read_in_one_round_trip(
    start: Start, redis_client: redis.Redis, round_trips: RoundTripsOf
) -> None:
    """The doctor looks at two hundred; one by one, they would take 20 s on a link with 100 ms."""
    start()
    made = []
    for count in (10, 20):
        for number in range(count):
            save(redis_client, f"cron_job:default:a{number}")
        with round_trips() as counted:
            seen()
        made.append(counted.count)

    assert made[1] == made[0]


def test_a_declared_job_that_is_gone_is_a_warning(start: Start, redis_client: redis.Redis) -> None:
    """As sidekiq-cron 1.10 leaves it until a worker writes it again."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="m")
    start()
    redis_client.srem("cron_jobs:default", "cron_job:default:n")

    assert found("warning", "gone from the gem's keys: cron_job:default:n")


def test_one_program_under_a_new_tag_is_told_where_its_old_jobs_are(start: Start, redis_client: redis.Redis) -> None:
    """Its old table fires on beside the new one, and another name for a job would not stop that."""
    declare("0 9 * * *", "R", name="n", by="mail.jobs")
    start(redis_client.time()[0])
    declarations.clear()
    sidekiq.periodic("0 10 * * *", sidekiq.ruby_job("R"), name="n")
    start(redis_client.time()[0])

    [advice] = [finding.advice for _, finding in examine().findings() if "was recently declared by" in finding.seen]

    assert "one program whose tag (-g) or module has changed" in advice
    assert "`sidekiq-py cron list` shows shop:mail.jobs beside it" in advice


def test_two_programs_that_declare_one_name_are_named(
    start: Start, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Each takes the job from the other when it starts; also for the log. A week later it counts as moved."""
    declare("0 9 * * *", "R", name="n", by="mail.jobs")
    now = redis_client.time()[0]
    start(now)
    declarations.clear()
    sidekiq.periodic("0 10 * * *", sidekiq.ruby_job("R"), name="n")
    assert not found("warning", "declared by")

    start(now)
    start(now)

    here = "shop:tests.extensions.periodic.test_doctor"
    assert found("warning", f"`n` is declared by {here}, and was recently declared by shop:mail.jobs")
    assert sum("Give one of the two another name" in record.getMessage() for record in caplog.records) == 1
    redis_client.hset("sidekiq_py:cron:cron_job:default:n", "rival", f"{now - 8 * 86400} shop:mail.jobs")
    assert not found("warning", "declared by")


def test_a_job_that_this_user_may_not_read_is_not_called_broken(
    start: Start, redis_client: redis.Redis, redis_url: str
) -> None:
    """It may be in order, so nobody is told to remove it."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()
    redis_client.execute_command("ACL", "SETUSER", "half", "on", ">pw", "~*", "+@all", "-hgetall")
    try:
        report = examine(pool=redis_url.replace("redis://", "redis://half:pw@"))
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")

    [finding] = [finding for check, finding in report.findings() if check.name == "periodic-jobs"]
    assert finding.level == "unseen"
    assert "The periodic job `n` could not be looked at, because its keys cannot be read: NOPERM" in finding.seen
    assert "remove" not in finding.advice


def test_disabled_jobs_are_named_with_their_reason(start: Start) -> None:
    """A note."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()
    CronJobs().find("n").disable("holidays")

    assert found("note", "1 periodic job is disabled: n (holidays)")


def test_a_job_whose_program_runs_no_worker_is_named(start: Start, redis_client: redis.Redis, redis_url: str) -> None:
    """The workers of another program fire it on, although its own may be gone."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()
    python_process(redis_client, tag="mail")

    [finding] = [one for _, one in examine().findings() if "No worker of the program" in one.seen]

    assert (finding.level, finding.subjects) == ("note", ("n",))
    assert "n is running (shop:tests.extensions.periodic.test_doctor)" in finding.seen
    run_advice(finding.advice, redis_url, "--yes")
    assert redis_client.smembers("cron_jobs:default") == set()


def test_nothing_is_said_of_a_job_whose_program_runs_a_worker(start: Start, redis_client: redis.Redis) -> None:
    """Nor of one that a script has added, whose program is none of the workers'."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()
    CronJobs().add("0 9 * * *", "R", name="by hand")
    python_process(redis_client, tag="shop")

    assert not found("note", "No worker of the program")


def test_a_program_without_a_tag_is_known_as_well(start: Start, redis_client: redis.Redis) -> None:
    """Its declarations say `python`."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start(tag="")
    python_process(redis_client, tag="")

    assert CronJobs().find("n").declared_by.startswith("python:")
    assert not found("note", "No worker of the program")


def test_jobs_that_only_ruby_can_fire_for_now_are_counted(start: Start, redis_client: redis.Redis) -> None:
    """A Ruby process fires them only if it has loaded sidekiq-cron, which it does not tell."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("R"), name="n")
    start()
    ruby_process(redis_client)

    assert found("note", "No Python worker is running, so Python fires none of its 1 periodic job")

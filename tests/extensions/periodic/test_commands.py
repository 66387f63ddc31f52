"""`sidekiq-py cron`, and the data API behind it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from click.testing import CliRunner

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.api import CronJobs
from sidekiq_py.cli import main
from sidekiq_py.extension import Extension
from sidekiq_py.extensions.periodic import store
from tests.extensions.periodic.conftest import NOON
from tests.support.worker_process import REPOSITORY

Start = Callable[..., None]
Look = Callable[[float], list[str]]


@pytest.fixture
def run(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command line; what it prints, as JSON where that is asked for."""
    monkeypatch.setenv("REDIS_URL", redis_url)

    def invoke(*arguments: str, exit_code: int = 0) -> Any:
        result = CliRunner().invoke(main, ["cron", *arguments], prog_name="sidekiq-py")
        assert result.exit_code == exit_code, result.output
        return json.loads(result.stdout) if "--json" in arguments else result.output

    return invoke


def test_jobs_of_both_languages_are_listed(run: Callable[..., Any], start: Start, redis_client: redis.Redis) -> None:
    """With who declares them, and what is wrong with them."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="python")
    start()
    redis_client.sadd("cron_jobs:default", "cron_job:default:ruby", "cron_job:default:broken", "cron_job:default:text")
    redis_client.hset("cron_job:default:ruby", mapping={"name": "ruby", "klass": "R", "cron": "0 9 * * *"})
    redis_client.hset("cron_job:default:broken", "name", "broken")
    redis_client.set("cron_job:default:text", "no hash")

    listed = {job["name"]: job for job in run("list", "--json")}

    assert set(listed) == {"python", "ruby", "broken", "text"}
    assert listed["python"]["declared_by"].startswith("shop:")
    assert listed["ruby"]["is_python"] is False
    assert "has no klass and no cron" in listed["broken"]["problem"]
    assert "is not a hash" in listed["text"]["problem"]
    assert "python" in run()
    assert "broken" in run("list")


def test_the_shapes_of_json_stand_on_the_page(run: Callable[..., Any]) -> None:
    """Each key of each shape, in order."""
    page = " ".join((REPOSITORY / "docs" / "periodic.md").read_text().split())
    run("add", "nightly", "0 5 * * * Europe/Berlin", "Report")
    [listed] = run("list", "--json")
    pushed = run("run", "nightly", "--json")
    [ran] = run("history", "nightly", "--json")
    shown = run("show", "nightly", "--json")

    for shape in (listed, pushed, ran):
        assert f"{{{', '.join(shape)}}}" in page
    assert list(shown) == [*listed, "history", "runs", "lost"]
    for time in run("next", "nightly", "--json") + listed["next_ticks"]:
        assert "T05:00:00+0" in time


def test_all_are_disabled_and_enabled_but_what_was_disabled_before(
    run: Callable[..., Any], start: Start, redis_client: redis.Redis
) -> None:
    """Of both languages, as with the buttons of the gem's Web tab; a reason tells which ones to enable again."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="python")
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="loud")
    start()
    redis_client.sadd("cron_jobs:default", "cron_job:default:ruby", "cron_job:default:broken")
    ruby = {"name": "ruby", "klass": "R", "cron": "0 9 * * *", "status": "enabled"}
    redis_client.hset("cron_job:default:ruby", mapping=ruby)
    redis_client.hset("cron_job:default:broken", "name", "broken")
    run("disable", "loud", "--reason", "too loud")

    assert run("disable", "--all", "--reason", "deploy", "--yes") == "2 periodic jobs disabled.\n"
    assert redis_client.hget("cron_job:default:ruby", "status") == b"disabled"
    assert redis_client.hgetall("cron_job:default:broken") == {b"name": b"broken"}
    enabled = run("enable", "--all", "--reason", "deploy", "--yes", "--json")
    assert enabled == [{"name": "python", "enabled": True}, {"name": "ruby", "enabled": True}]
    assert redis_client.hget("cron_job:default:ruby", "status") == b"enabled"
    assert CronJobs().find("loud").reason == "too loud"
    assert run("enable", "--all", "--yes") == "1 periodic job enabled.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["disable"], "Give names, or --all: sidekiq-py cron disable --all"),
        (["enable", "report", "--all"], "Give names, or --all: sidekiq-py cron enable --all"),
        (["disable", "--all"], "disable --all asks for confirmation"),
        (["enable", "--all"], "enable --all asks for confirmation"),
        (["enable", "report", "--reason", "x"], "add --all"),
    ],
)
def test_what_is_wanted_of_all_must_be_clear(
    run: Callable[..., Any], start: Start, arguments: list[str], said: str
) -> None:
    """It stops the jobs of every program."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="report")
    start()

    assert said in run(*arguments, exit_code=2)

    assert CronJobs().find("report").is_enabled


def test_a_job_that_is_removed_meanwhile_keeps_none_of_the_others(
    start: Start, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are disabled all the same, and only they are counted."""
    for name in ("a", "b", "c"):
        CronJobs().add("@daily", "Report", name=name)
    jobs = CronJobs()
    stored = [job.stored for job in jobs]
    redis_client.delete("cron_job:default:b")

    changed = store.write_status(jobs.pool, stored, is_enabled=False, reason="", now=1.0)

    assert changed == [True, False, True]
    assert [redis_client.hget(f"cron_job:default:{name}", "status") for name in "abc"] == [
        b"disabled",
        None,
        b"disabled",
    ]


def test_what_other_extensions_keep_is_listed_below(run: Callable[..., Any], start: Start) -> None:
    """As Celery's beat does, for looking only."""

    class Beat(Extension):
        name = "beat"

        def entries(self, listing: str) -> list[dict[str, str]]:
            return [{"name": "add every 10 s", "cron": "every 10 s", "class": "tasks.add", "by": "beat"}]

    program.use(Beat())

    assert "tasks.add" in run("list")
    assert run("list", "--json")[0]["by"] == "beat"


def test_names_are_completed(run: Callable[..., Any], start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody remembers them at night."""
    sidekiq.periodic("0 3 * * *", sidekiq.ruby_job("Cleaner"), name="nightly")
    start()
    monkeypatch.setenv("_SIDEKIQ_PY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "sidekiq-py cron disable ni")
    monkeypatch.setenv("COMP_CWORD", "3")

    result = CliRunner().invoke(main, [], prog_name="sidekiq-py")

    assert result.output == "plain,nightly\n"


def test_a_job_is_disabled_with_a_reason_and_enabled(run: Callable[..., Any], start: Start) -> None:
    """The reason stands in every listing."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="report")
    start()

    assert run("disable", "report", "--reason", "source is down") == "report: disabled\n"
    assert "disabled: source is down" in run("list")
    assert run("enable", "report", "--json") == [{"name": "report", "enabled": True}]
    assert CronJobs().find("report").is_enabled
    assert CronJobs().find("report").reason == ""


def test_adding_a_job_does_not_read_the_whole_timetable(redis_client: redis.Redis) -> None:
    """Each of a thousand jobs that a program adds would take longer than the one before."""
    CronJobs().add("@daily", "Report", name="first")
    redis_client.config_resetstat()

    assert CronJobs().add("@daily", "Report", name="second").name == "second"

    commands = redis_client.info("commandstats")
    # The list of release 1.x, which is empty.
    assert commands["cmdstat_smembers"]["calls"] == 1
    assert redis_client.smembers("cron_jobs:default") == {b"cron_job:default:first", b"cron_job:default:second"}


def test_a_job_that_is_named_twice_is_reported_once(run: Callable[..., Any]) -> None:
    """A list that a shell puts together may have it twice."""
    CronJobs().add("@daily", "Report", name="report")

    assert run("disable", "report", "report") == "report: disabled\n"
    assert run("enable", "report", "report") == "report: enabled\n"
    assert run("remove", "report", "report", "--yes") == "report: removed\n"


def test_a_job_is_run_by_hand(run: Callable[..., Any], start: Start, redis_client: redis.Redis) -> None:
    """Also where it is disabled; the push stands in both histories."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="report", args=[7])
    start()
    run("disable", "report")

    jid = run("run", "report").strip()

    [raw] = redis_client.lrange("queue:default", 0, -1)
    assert json.loads(raw)["jid"] == jid
    assert [line["jid"] for line in CronJobs().find("report").history()] == [jid]
    [row] = run("history", "report", "--json")
    assert (row["jid"], row["tick"], row["outcome"]) == (jid, None, "pushed")


def test_ticks_to_come_are_shown(run: Callable[..., Any], start: Start) -> None:
    """Of a job, or of any text."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="report", tz="Europe/Berlin")
    start()

    assert len(run("next", "report", "-n", "3", "--json")) == 3
    assert run("next", "0 9 * * *", "--tz", "Europe/Berlin", "-n", "1").split()[1] == "09:00:00"
    assert "Error: cron text '61 * * * *', character 1: '61' is not a valid minute" in run(
        "next", "61 * * * *", exit_code=2
    )
    assert "Error: --tz: Berlin is not a time zone, such as Europe/Berlin" in run(
        "next", "0 9 * * *", "--tz", "Berlin", exit_code=2
    )


def test_ticks_that_fired_before_the_clock_was_set_back_are_not_to_come(
    run: Callable[..., Any], redis_client: redis.Redis
) -> None:
    """None fires twice. They were listed, although nothing fires for as long as the clock is behind."""
    run("add", "report", "* * * * * UTC", "Report")
    fired = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=3)
    redis_client.hset("sidekiq_py:cron:cron_job:default:report", "fired", int(fired.timestamp()))
    following = (fired + timedelta(minutes=1)).isoformat()

    assert run("list", "--json")[0]["next_ticks"] == [following]
    assert run("show", "report", "--json")["next_ticks"][0] == following
    assert run("next", "report", "-n", "1", "--json") == [following]
    assert "in 3d" in run("list") or "in 2d 23h" in run("list")


def test_the_ticks_of_a_disabled_job_are_not_shown_as_if_it_fired(run: Callable[..., Any], start: Start) -> None:
    """Who asks when the nightly report runs must not read 'at three' while someone has switched it off."""
    sidekiq.periodic("0 3 * * *", sidekiq.ruby_job("Report"), name="nightly")
    start()
    assert "disabled" not in run("next", "nightly")
    assert "next ticks" in run("show", "nightly")

    run("disable", "nightly")

    assert "nightly is disabled: it fires at none of these times until it is enabled." in run("next", "nightly")
    assert len(run("next", "nightly", "--json")) == 10
    assert "next ticks" not in run("show", "nightly")


def test_next_says_why_a_job_never_fires(run: Callable[..., Any], redis_client: redis.Redis) -> None:
    """Ruby, or anyone, may have stored a text that cannot be read; no output would look like no answer."""
    redis_client.sadd("cron_jobs:default", "cron_job:default:ruby")
    redis_client.hset("cron_job:default:ruby", mapping={"name": "ruby", "klass": "R", "cron": "@every 0.0001s"})

    said = run("next", "ruby", exit_code=1)

    assert "Error: the periodic job ruby never fires: cron text '@every 0.0001s'" in said


def test_next_does_not_say_that_a_text_that_only_ruby_reads_never_fires(
    run: Callable[..., Any], redis_client: redis.Redis
) -> None:
    """fugit reads more phrases than we do."""
    redis_client.sadd("cron_jobs:default", "cron_job:default:ruby")
    redis_client.hset("cron_job:default:ruby", mapping={"name": "ruby", "klass": "R", "cron": "every tuesday at 5 pm"})

    said = run("next", "ruby", exit_code=1)

    assert "Error: the next ticks of the periodic job ruby cannot be shown: only Ruby may be able to read" in said


@pytest.mark.parametrize("name", ["reprot", "2nd_report"])
def test_next_says_of_a_mistyped_name_that_there_is_no_such_job(
    name: str, run: Callable[..., Any], start: Start
) -> None:
    """It may also have been meant as a cron text, so both are said."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="report")
    start()

    said = run("next", name, exit_code=2)

    assert f"there is no periodic job {name!r}; there are: report." in said
    assert f"it cannot be read as a cron text: cron text {name!r}, character 1: " in said


def test_next_refuses_a_zone_that_would_not_count(run: Callable[..., Any], start: Start) -> None:
    """A job has a zone, and so may a text."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="report")
    start()

    of_job = run("next", "report", "--tz", "Europe/Berlin", exit_code=2)
    of_text = run("next", "0 9 * * * Europe/London", "--tz", "Europe/Berlin", exit_code=2)

    assert "--tz is for a cron text; report is a periodic job, with the text 0 9 * * * Etc/UTC" in of_job
    assert "the cron text names the zone Europe/London, and --tz another one; give one of them" in of_text
    assert run("next", "0 9 * * * Europe/Berlin", "--tz", "Europe/Berlin", "-n", "1").endswith("+0100\n")
    assert "--tz: UTC+2 is not a time zone; did you mean UTC?" in run("next", "0 9 * * *", "--tz", "UTC+2", exit_code=2)


def test_a_job_is_added_shown_and_removed(run: Callable[..., Any], redis_client: redis.Redis) -> None:
    """No program declares it."""
    run("add", "nightly", "0 3 * * *", "Cleaner", '["logs"]', "--overlap", "skip", "--catch-up", "1h", "--tz", "UTC")

    shown = run("show", "nightly", "--json")
    assert (shown["cron"], shown["args"], shown["overlap"]) == ("0 3 * * * UTC", ["logs"], "skip")
    assert (shown["catch_up_seconds"], shown["declared_by"], shown["is_python"]) == (3600.0, None, True)
    assert "nightly" in run("show", "nightly")
    assert run("remove", "nightly", "--yes") == "nightly: removed\n"
    assert not redis_client.keys("*nightly*")


def test_a_job_that_this_user_may_not_read_is_not_shown_as_disabled(
    run: Callable[..., Any], redis_client: redis.Redis, redis_url: str
) -> None:
    """Nothing is known of it: neither is it disabled, nor does it never fire."""
    run("add", "nightly", "0 3 * * *", "Cleaner")
    redis_client.execute_command("ACL", "SETUSER", "half", "reset", "on", ">pw", "~*", "+@all", "-hgetall")
    half = ("-u", redis_url.replace("redis://", "redis://half:pw@"))
    try:
        for words in (("show", "nightly"), ("next", "nightly")):
            shown = run(*words, *half, exit_code=1)
            assert "Error: the periodic job nightly cannot be shown: its keys cannot be read: NOPERM" in shown
            assert "docs/redis.md lists the rights that each program needs." in shown
        [job] = CronJobs(pool=half[1])
        assert job.to_dict()["enabled"] is None
    finally:
        redis_client.execute_command("ACL", "DELUSER", "half")


def test_ticks_are_those_of_a_parsed_text(run: Callable[..., Any]) -> None:
    """A text alone has no time zone yet."""
    with pytest.raises(TypeError, match=r"cron is '\* \* \* \* \*'; give it parsed, by .*cron_text\.parse"):
        CronJobs().next_ticks("* * * * *", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("span", "seconds"), [("30", 30.0), ("1.5", 1.5), ("5s", 5.0), ("1m30s", 90.0)])
def test_spans_of_an_added_job_are_written_alike(run: Callable[..., Any], span: str, seconds: float) -> None:
    """As with every other command."""
    run("add", "nightly", "0 3 * * *", "Cleaner", "--jitter", span, "--catch-up", span)

    shown = run("show", "nightly", "--json")

    assert (shown["jitter_seconds"], shown["catch_up_seconds"]) == (seconds, seconds)


def test_what_another_program_has_put_into_the_list_is_removed(
    run: Callable[..., Any], redis_client: redis.Redis
) -> None:
    """As the doctor recommends, also if its key does not look like one of a periodic job."""
    redis_client.sadd("cron_jobs", "odd")

    assert "odd" in run("list")
    assert run("remove", "odd", "--yes") == "odd: removed\n"

    assert not redis_client.exists("cron_jobs")


def test_nothing_is_removed_unasked(run: Callable[..., Any], redis_client: redis.Redis) -> None:
    """A script has nobody to ask, and is told of `--yes`."""
    run("add", "nightly", "0 3 * * *", "Cleaner")

    refused = run("remove", "nightly", exit_code=2)

    assert "remove asks for confirmation, and there is no terminal to ask on; add --yes" in refused
    assert "nightly" in run("list")


def test_a_job_that_is_there_is_not_replaced_unasked(run: Callable[..., Any], redis_client: redis.Redis) -> None:
    """Ruby's no more than Python's: a script has nobody to ask, and is told of `--yes`."""
    redis_client.sadd("cron_jobs:default", "cron_job:default:ruby")
    redis_client.hset("cron_job:default:ruby", mapping={"name": "ruby", "klass": "R", "cron": "0 9 * * *"})
    assert run("add", "nightly", "0 3 * * *", "Cleaner") == "nightly: added\n"
    before = redis_client.hgetall("cron_job:default:ruby")

    for name in ("ruby", "nightly"):
        refused = run("add", name, "0 4 * * *", "Other", exit_code=2)
        assert f"add would replace {name}, a periodic job of " in refused
        assert "so it asks for confirmation, and there is no terminal to ask on; add --yes" in refused
    assert "a periodic job of Ruby's (R at 0 9 * * *)" in run("add", "ruby", "0 4 * * *", "Other", exit_code=2)

    assert redis_client.hgetall("cron_job:default:ruby") == before
    assert CronJobs().find("nightly").klass == "Cleaner"


def test_a_job_is_replaced_with_yes(run: Callable[..., Any], start: Start) -> None:
    """And is said to be; what is wrong is said before, and a declared one stays."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="report")
    start()
    assert "declares a periodic job 'report'" in run("add", "report", "0 3 * * *", "Other", exit_code=2)
    assert "declares a periodic job 'report'" in run("add", "report", "0 3 * * *", "Other", "--yes", exit_code=2)
    run("add", "nightly", "0 3 * * *", "Cleaner", "--yes")

    assert "is not a valid minute" in run("add", "nightly", "61 * * * *", "Other", exit_code=2)
    assert "not a time zone" in run("add", "other", "0 3 * * *", "Other", "--tz", "Mars/Base", exit_code=2)
    assert run("add", "nightly", "0 4 * * *", "Other", "--yes") == "nightly: replaced\n"
    assert run("add", "nightly", "0 5 * * *", "Other", "-y", "--json") == [{"name": "nightly", "replaced": True}]

    assert CronJobs().find("nightly").cron == "0 5 * * * Etc/UTC"


def test_removing_a_declared_job_says_when_it_comes_back(run: Callable[..., Any], start: Start) -> None:
    """
    With the command that stops it, to be copied as it stands.

    But the program may be gone, or declare it no longer: then removing it was right, and nothing comes back.
    """
    for name in ("every morning", "-x"):
        sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name=name)
    start()

    said = run("remove", "--yes", "--", "every morning", "-x")

    assert f"every morning will come back if shop:{__name__} still declares it and a worker" in said
    assert "sidekiq-py cron disable 'every morning'\n" in said
    assert "sidekiq-py cron disable -- -x\n" in said


def test_a_name_that_nobody_has_says_which_there_are(run: Callable[..., Any], start: Start) -> None:
    """Names are long, and easily misspelled."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="report")
    start()

    assert "there is no periodic job 'reprot'; there are: report" in run("show", "reprot", exit_code=2)


def test_among_many_names_the_closest_is_suggested(run: Callable[..., Any], redis_client: redis.Redis) -> None:
    """An error that lists two thousand names hides what is wrong."""
    for number in range(21):
        redis_client.sadd("cron_jobs", f"cron_job:report-{number}")
        redis_client.hset(f"cron_job:report-{number}", mapping={"klass": "X", "cron": "* * * * *"})

    assert "there is no periodic job 'reprot-7'. Did you mean report-7? sidekiq-py cron list shows all" in run(
        "show", "reprot-7", exit_code=2
    )
    assert "there is no periodic job 'xyz' among 21. sidekiq-py cron list shows all" in run("show", "xyz", exit_code=2)


def test_the_history_tells_how_runs_ended(
    run: Callable[..., Any], start: Start, look: Look, redis_client: redis.Redis
) -> None:
    """Outcome and duration, as the worker that ran it said."""
    from tests.extensions.periodic.test_firing import end

    sidekiq.periodic("* * * * *", sidekiq.ruby_job("Report"), name="report", overlap="skip")
    start()
    [jid] = look(NOON + 60.5)
    look(NOON + 120.5)
    end(jid, how="retry")

    skipped, ran = run("history", "report", "--json")
    assert (skipped["outcome"], skipped["jid"]) == ("skipped", None)
    assert (ran["tick"], ran["outcome"], ran["seconds"]) == ("2030-01-01T12:01:00Z", "retry", 1.25)
    assert ran["pushed_at"] == "2030-01-01T12:01:00.500000+00:00"
    assert "1.25 s" in run("history", "report")


def test_a_history_without_runs_says_why_there_are_none(
    run: Callable[..., Any], start: Start, redis_client: redis.Redis
) -> None:
    """As far as Redis tells it."""
    sidekiq.periodic("0 13 * * *", sidekiq.ruby_job("Report"), name="report")
    start()
    save_as_ruby = {"klass": "R", "cron": "0 9 * * * Etc/UTC", "status": "enabled"}
    redis_client.sadd("cron_jobs:default", "cron_job:default:ruby", "cron_job:default:bad")
    redis_client.hset("cron_job:default:ruby", mapping={"name": "ruby", **save_as_ruby})
    redis_client.lpush("cron_job:default:ruby:jid_history", json.dumps({"enqueued": "2030-01-01 09:00", "jid": "1"}))
    redis_client.hset("cron_job:default:bad", mapping={"name": "bad", **save_as_ruby, "cron": "61 * * * *"})

    said = run("history", "report")
    assert "It is first due at 2030-01-01 13:00:00 +0000: what was due before 2030-01-01T12:00:00Z" in said
    start(NOON + 7200)
    assert "Its first tick was at 2030-01-01 13:00:00 +0000, and no Python worker has fired" in run("history", "report")
    run("disable", "report", "--reason", "holidays")
    assert "It is disabled: holidays.\n" in run("history", "report")
    assert "It is Ruby's, which fires it. Ruby last pushed it at 2030-01-01 09:00.\n" in run("history", "ruby")
    assert "It never fires: " in run("history", "bad")


def test_ticks_can_be_asked_for_and_a_job_run_at_a_moment(start: Start, redis_client: redis.Redis) -> None:
    """For tests of programs: no clock is waited for."""
    sidekiq.periodic("0 9 * * *", sidekiq.ruby_job("Report"), name="report", tz="Europe/Berlin")
    start()
    job = CronJobs().find("report")

    assert job.next_ticks(2, after=NOON)[0].isoformat() == "2030-01-02T09:00:00+01:00"
    assert job.previous_tick(before=datetime.fromtimestamp(NOON, UTC)).isoformat() == "2030-01-01T09:00:00+01:00"
    assert job.run(at=NOON) is not None
    assert CronJobs().find("report").last_enqueue_time == datetime.fromtimestamp(NOON, UTC)
    assert job.catch_up is None or isinstance(job.catch_up, timedelta)


def test_what_sidekiq_scheduler_keeps_is_listed_below(run: Callable[..., Any], redis_client: redis.Redis) -> None:
    """For looking only; what cannot be read is passed over."""
    schedules = {
        "a": '{"cron":"0 9 * * *","class":"A"}',
        "b": '{"every":["1h",{"first_in":"5m"}],"class":"B"}',
        "c": "{",
    }
    redis_client.hset("schedules", mapping=schedules)

    found = [(entry["name"], entry["cron"], entry["class"], entry["by"]) for entry in run("list", "--json")]

    by = "sidekiq-scheduler"
    assert found == [("a", "0 9 * * *", "A", by), ("b", "every 1h", "B", by)]


@pytest.mark.parametrize("key", ["sidekiq-scheduler:states", "sidekiq-scheduler:last_times"])
def test_entries_of_sidekiq_scheduler_are_listed_without_what_cannot_be_read(
    run: Callable[..., Any], redis_client: redis.Redis, key: str
) -> None:
    """A key of another program, or one that this user may not read, hides no schedule."""
    redis_client.hset("schedules", "a", '{"cron":"0 9 * * *","class":"A"}')
    redis_client.set(key, "foreign")

    [entry] = run("list", "--json")

    assert (entry["name"], entry["enabled"], entry["last_enqueue_time"]) == ("a", True, None)


def test_what_sidekiq_scheduler_does_not_fire_is_shown_as_disabled(
    run: Callable[..., Any], redis_client: redis.Redis
) -> None:
    """Its Web tab switches entries on and off in the hash of states, which counts more than the entry's own option."""
    schedules = {
        "off": '{"cron":"0 9 * * *","class":"A","enabled":false}',
        "on": '{"cron":"0 9 * * *","class":"A"}',
        "switched off": '{"cron":"0 9 * * *","class":"A","enabled":true}',
        "switched on": '{"cron":"0 9 * * *","class":"A","enabled":false}',
    }
    redis_client.hset("schedules", mapping=schedules)
    states = {"switched off": '{"enabled":false}', "switched on": '{"enabled":true}', "on": "{", "off": "[]"}
    redis_client.hset("sidekiq-scheduler:states", mapping=states)

    found = {entry["name"]: entry["enabled"] for entry in run("list", "--json")}

    assert found == {"off": False, "on": True, "switched off": False, "switched on": True}
    shown = [line.split("sidekiq-scheduler")[1].strip() for line in run("list").splitlines()[1:]]
    assert shown == ["disabled", "", "disabled", ""]


def test_what_needs_rails_is_not_pushed_by_hand(run: Callable[..., Any], redis_client: redis.Redis) -> None:
    """An Active Job's message is no payload that Ruby could run."""
    redis_client.sadd("cron_jobs:default", "cron_job:default:rails")
    fields = {
        "name": "rails",
        "klass": "R",
        "cron": "0 9 * * *",
        "message": '{"class":"R","args":[]}',
        "active_job": "1",
    }
    redis_client.hset("cron_job:default:rails", mapping=fields)

    assert "can only be run from Ruby, in its Web tab: it is an Active Job" in run("run", "rails", exit_code=2)
    assert redis_client.keys("queue:*") == []


def test_a_name_that_is_not_utf_8_is_shown_and_found(run: Callable[..., Any], redis_client: redis.Redis) -> None:
    """A shell passes its bytes, as `$'caf\\xe9'`; the others are listed beside it."""
    for name in (b"caf\xe9", b"good"):
        redis_client.sadd("cron_jobs", b"cron_job:" + name)
        redis_client.hset(b"cron_job:" + name, mapping={"name": name, "klass": "X", "cron": "* * * * *"})

    assert "caf\ufffd" in run("list")
    assert "good" in run("list")
    assert [job["name"] for job in run("list", "--json")] == ["caf\udce9", "good"]
    assert "caf\ufffd" in run("show", "caf\udce9")
    assert run("disable", "caf\udce9", "good") == "caf\ufffd: disabled\ngood: disabled\n"
    assert "there are: caf\\udce9, good" in run("show", "nope", exit_code=2)


def test_a_terminal_does_not_obey_the_names_in_an_error(run: Callable[..., Any], redis_client: redis.Redis) -> None:
    """They come from anything that may write to Redis, as everything that the commands print."""
    name = "\x1b]0;title\x07\nforged"
    redis_client.sadd("cron_jobs", f"cron_job:{name}")
    redis_client.hset(f"cron_job:{name}", mapping={"name": name, "klass": "X", "cron": "* * * * *"})

    assert r"there are: \x1b]0;title\x07\nforged" in run("show", "nope", exit_code=2)

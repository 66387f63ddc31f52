"""The doctor inspects a Redis that real Ruby processes and a Python worker share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from interop_tests.conftest import RUBY_SWITCH, RunRuby, StartPython, StartRuby
from interop_tests.support.ledger import GATE, LEDGER, open_gate
from interop_tests.support.ruby import RubyRelease, RubySidekiq, release, run_ruby, why_missing
from sidekiq_py import program
from sidekiq_py.doctor import Finding, Level, Report, examine
from tests.support.missing_tools import skip_or_fail
from tests.support.waiting import eventually

SECONDS = 60
FINDS_OUT = {"FIXTURE_SIDEKIQ_VERSION": None}


def found(report: Report, check_name: str) -> list[Finding]:
    """What a check found, but for what is in order."""
    return [
        finding for check, finding in report.findings() if check.name == check_name and finding.level is not Level.OK
    ]


def title(ruby: RubyRelease) -> str:
    """The release as its processes publish it."""
    return ruby.sidekiq_version if ruby.numbers >= (7, 0, 2) else "before 7.0.2"


@pytest.fixture(autouse=True)
def nothing_is_set(redis_url: str) -> Iterator[None]:
    """This program looks at the shared Redis and has told no release."""
    program.reset()
    program.configure(redis_url=redis_url)
    yield
    program.reset()


def test_a_healthy_mixed_fleet(
    ruby: RunRuby, ruby_release: RubyRelease, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Nothing is wrong; it lists the processes, and says that the release was detected from the Ruby process."""
    theirs = start_ruby()
    ours = start_python("-q", "python", environment=FINDS_OUT)
    ruby("FixtureJob.perform_in(3600, 'ok'); PythonJob.perform_in(3600, 'ok')")

    report = eventually(lambda: report if (report := examine()).is_healthy(strict=True) else None, SECONDS)

    [at_work] = found(report, "processes")
    assert set(at_work.subjects) == {theirs.identity, ours.identity}
    assert f"Ruby with Sidekiq {title(ruby_release)} (1 process)" in at_work.seen
    assert f"Python, writing for Sidekiq {title(ruby_release)} (1 process)" in at_work.seen
    [dialect] = found(report, "dialect")
    assert f"writes for Sidekiq {ruby_release.sidekiq_version}" in dialect.seen or ruby_release.numbers < (6, 4)
    assert f"the release of {theirs.identity}" in dialect.seen


def test_what_python_is_told_to_write_for_another_release(
    ruby_release: RubyRelease, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Recognized from its heartbeat; milliseconds for an old Ruby are a problem."""
    other = "7.3.2" if ruby_release.numbers >= (8,) else "8.1.7"
    start_ruby()
    ours = start_python("-q", "python", environment={"FIXTURE_SIDEKIQ_VERSION": other})

    [finding] = found(examine(), "writers")

    assert finding.subjects == (ours.identity,)
    assert finding.level is (Level.WARNING if ruby_release.numbers >= (8,) else Level.PROBLEM)


def test_a_class_that_no_process_of_its_queue_knows(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython
) -> None:
    """Detected while the job waits, and after each language has tried it."""
    start_ruby()
    ours = start_python("-q", "python", "-c", "1")
    ruby("PythonJob.perform_async('ledger_and_wait_for', key, 1, gate)", key=LEDGER, gate=GATE)
    eventually(lambda: redis_client.llen(LEDGER) == 1, SECONDS)
    ruby("%w[python default].each { |q| Sidekiq::Client.push('class' => 'NoSuchJob', 'args' => [], 'queue' => q) }")

    [waiting] = eventually(lambda: found(examine(), "unserved-classes"), SECONDS)
    open_gate(redis_client)
    [tried] = eventually(lambda: [f for f in found(examine(), "refused-classes") if "2 retries" in f.seen], SECONDS)

    assert (waiting.level, waiting.subjects) == (Level.PROBLEM, ("NoSuchJob",))
    assert ours.identity in waiting.seen
    assert tried.subjects == ("NoSuchJob",)


def test_a_queue_that_only_ruby_pushes_to(ruby: RunRuby, start_ruby: StartRuby, start_python: StartPython) -> None:
    """No process serves it."""
    start_ruby()
    start_python("-q", "default")
    ruby("PythonJob.perform_async('ok')")

    [finding] = found(examine(), "unworked-queues")

    assert finding.seen == "1 job waits in `python`, and no process serves that queue."


def test_a_ruby_process_whose_clock_is_ahead(start_ruby: StartRuby, tmp_path: Path) -> None:
    """A minute and a half, taken from its real heartbeat."""
    ahead = tmp_path / "ahead.rb"
    ahead.write_text(
        "class << Time; alias true_now now; def now(*given, **named); true_now(*given, **named) + 90; end; end"
    )
    theirs = start_ruby(environment={"RUBYOPT": f"-r{ahead}"})

    [finding] = found(examine(), "process-clocks")

    assert (finding.level, finding.subjects) == (Level.PROBLEM, (theirs.identity,))
    assert " s ahead of" in finding.seen


def test_two_releases_of_ruby_on_one_redis(redis_url: str, tmp_path: Path) -> None:
    """The newer one's milliseconds are a problem to the older, and both are named."""
    old, new = release("6.4"), release("8.1")
    for wanted in (old, new):
        if (reason := why_missing(wanted)) is not None:
            skip_or_fail(reason, switch=RUBY_SWITCH)
    with (
        RubySidekiq(old, redis_url=redis_url, log_path=tmp_path / "old.log") as older,
        RubySidekiq(new, redis_url=redis_url, log_path=tmp_path / "new.log", queues=["new"]) as newer,
    ):
        run_ruby(new, "FixtureJob.perform_in(3600, 'ok')", redis_url)
        report = examine()

    [mixed] = found(report, "mixed-releases")
    assert (mixed.level, set(mixed.subjects)) == (Level.WARNING, {older.identity, newer.identity})
    [units] = found(report, "time-units")
    assert (units.level, units.subjects) == (Level.PROBLEM, ("FixtureJob",))
    assert f"{older.identity} (Sidekiq before 7.0.2) reads them as seconds" in units.seen
    assert f"They may come from {newer.identity} (Sidekiq {new.sidekiq_version})" in units.seen


@pytest.mark.releases(before="7")
def test_the_timetable_of_sidekiq_cron_is_recognized(ruby: RunRuby) -> None:
    """As the real gem writes it."""
    ruby('periodic(name: "nightly", cron: "5 4 * * *", class: "FixtureJob", args: ["ok"])', also=("cron.rb",))

    [cron] = found(examine(), "products")

    assert cron.seen.startswith("sidekiq-cron: ")
    assert "cron_job:nightly" in cron.subjects


@pytest.mark.releases(before="7")
def test_what_gitlab_s_fetcher_left_of_a_killed_process_is_told(
    redis_client: redis.Redis, ruby: RunRuby, start_ruby: StartRuby
) -> None:
    """As the real gem writes it; while its process is alive, nothing is wrong."""
    ruby("FixtureJob.perform_async('ledger_and_wait_for', key, 1, gate)", key=LEDGER, gate=GATE)
    doomed = start_ruby(program="reliable_fetch.rb", concurrency=1)
    eventually(lambda: redis_client.llen(LEDGER) == 1, SECONDS)
    # Its heartbeat is written by a thread of its own, which may come later than the first job.
    eventually(lambda: found(examine(), "orphans-of-ruby") == [], SECONDS)
    doomed.kill()
    redis_client.delete(*redis_client.keys("reliable-fetcher-heartbeat-*"))

    [gone] = found(examine(), "orphans-of-ruby")

    assert "1 job is in working lists of GitLab's reliable fetcher" in gone.seen

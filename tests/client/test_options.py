"""Options of jobs: which names are known, and what becomes of others."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import redis

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.api import Queue
from sidekiq_py.cli.settings import Options, parse_queues, unknown_keys
from sidekiq_py.errors import ConfigError, JobDeclarationError, UnknownOptionWarning
from tests.client.conftest import Pushed


def declare(**options: Any) -> Any:
    """A job with these options."""
    return sidekiq.job(name="A", **options)(print)


@pytest.mark.parametrize(
    ("misspell", "message"),
    [
        (lambda: declare(quueue="low"), r"@job of A has the option 'quueue', .* did you mean 'queue'\?"),
        (lambda: declare(tiemout=5), r"did you mean 'timeout'\?"),
        (lambda: sidekiq.ruby_job("A", retires=5), r"ruby_job\('A'\) has the option 'retires', .* mean 'retry'\?"),
        (lambda: sidekiq.ruby_job("A").set(wiat=5), r"A.set has the option 'wiat', .* did you mean 'wait'\?"),
        (lambda: sidekiq.ruby_job("A").set({"wait_untli": 5}), r"did you mean 'wait_until'\?"),
        (lambda: type("A", (sidekiq.Job,), {"perform": print}, name="A", queu="low"), r"did you mean 'queue'\?"),
        (lambda: sidekiq.configure(default_job_options={"retrry": 3}), r"did you mean 'retry'\?"),
        (
            lambda: sidekiq.ruby_job("A", timeout=5),
            r"'timeout', which has no effect there\. Declare the time limit of a Python",
        ),
        (lambda: declare().set({"hard_timeout": 5}), r"A.set has the option 'hard_timeout', which has no effect there"),
        (lambda: sidekiq.configure(default_job_options={"timeout": 5}), r"which has no effect there"),
        (lambda: declare(tenant=5), r"'tenant', which Sidekiq does not know\. For a key of your own write custom={'te"),
        (lambda: declare(max_retries=5), r"did you mean 'retry'\?"),
        (lambda: declare().set(countdown=5), r"did you mean 'wait'\?"),
        (lambda: declare().set(eta=1e9), r"did you mean 'wait_until'\?"),
        (lambda: declare(countdown=5), r"'countdown', which Sidekiq does not know\. For a key of your own"),
    ],
)
def test_an_option_that_nobody_knows_is_warned_of_where_it_stands(misspell: Any, message: str) -> None:
    """With the one that was probably meant, and with the way to pass a key of one's own."""
    with pytest.warns(UnknownOptionWarning, match=message) as caught:
        misspell()

    assert [Path(warning.filename).name for warning in caught] == ["test_options.py"]


def test_keys_in_a_class_s_sidekiq_options_are_warned_of_only_if_they_look_misspelled() -> None:
    """Keys of one's own are usual there, as in Ruby; all of them go through."""

    class Own(sidekiq.Job):
        sidekiq_options = {"name": "Own", "tenant": 5, "throttle": {"limit": 3}}

        def perform(self) -> None: ...

    with pytest.warns(UnknownOptionWarning, match=r"sidekiq_options of .*Slip has the option 'quueue'"):

        class Slip(sidekiq.Job):
            sidekiq_options = {"name": "Slip", "quueue": "low"}

            def perform(self) -> None: ...

    assert Own.__sidekiq_job__.options == {"tenant": 5, "throttle": {"limit": 3}}  # type: ignore[attr-defined]
    assert Slip.__sidekiq_job__.options == {"quueue": "low"}  # type: ignore[attr-defined]


@pytest.mark.usefixtures("configured")
def test_keys_under_custom_stand_in_the_payload_without_a_warning(pushed: Pushed) -> None:
    """From the declaration and from each `set`, the later one over the earlier one."""
    job = declare(queue="low", custom={"tenant": 5, "zone": "a"})

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job.set(custom={"tenant": 6}).set(custom={"tags_of": "mine"}).perform_async()

    payload = json.loads(pushed.queue("low")[0])
    assert (payload["tenant"], payload["zone"], payload["tags_of"]) == (6, "a", "mine")
    assert "custom" not in payload


def test_custom_that_is_no_mapping_is_refused() -> None:
    """With the form that it has."""
    with pytest.raises(JobDeclarationError, match=r"custom is 5; give a mapping"):
        declare(custom=5)


@pytest.mark.parametrize("name", ["two words", "tab\tbed", "line\n", "nul\x00", "no\u00a0break"])
def test_a_queue_whose_name_has_white_space_or_control_characters_is_refused(name: str) -> None:
    """Wherever a program or a flag names one."""
    with pytest.raises(JobDeclarationError, match="must not have whitespace"):
        declare(queue=name)
    with pytest.raises(JobDeclarationError, match="must not have whitespace"):
        sidekiq.ruby_job("A").set(queue=name)
    with pytest.raises(JobDeclarationError, match="must not have whitespace"):
        sidekiq.ruby_job("A").set(retry_queue=name)
    with pytest.raises(ConfigError, match="must not have whitespace"):
        parse_queues([name], "queues", None)


@pytest.mark.parametrize("option", ["queue", "retry_queue"])
def test_such_a_name_is_refused_among_the_default_options(option: str, redis_url: str) -> None:
    """Every job without a queue of its own would go where no worker can be sent. The settings stay as they were."""
    sidekiq.configure(redis_url=redis_url, default_job_options={option: "low"})

    with pytest.raises(ConfigError, match=f"default_job_options has {option}='a b', .* must not have whitespace"):
        sidekiq.configure(default_job_options={option: "a b"})

    assert program.settings().default_job_options == {option: "low"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[("queue", None), ("queue", 5), ("queue", ""), ("retry", "yes"), ("retry", "5"), ("retry", -1)],
        *[("tags", "nightly"), ("dead", "no"), ("backtrace", "yes"), ("retry_for", "1h"), ("tenant", object())],
    ],
)
def test_default_options_are_checked_as_those_of_a_job(option: str, value: Any, redis_url: str) -> None:
    """Otherwise every push would fail, or a worker would ignore the option."""
    sidekiq.configure(redis_url=redis_url)

    with pytest.raises(ConfigError, match=f"default_job_options has .*{option}"):
        sidekiq.configure(default_job_options={option: value})


def test_a_default_option_of_none_is_none(redis_url: str, pushed: Pushed) -> None:
    """Sidekiq takes it as not given."""
    sidekiq.configure(redis_url=redis_url, sidekiq_version="8", default_job_options={"retry_for": None, "dead": None})

    sidekiq.ruby_job("A").perform_async()

    assert len(pushed.queue()) == 1


@pytest.mark.parametrize("retry", ["yes", "5", 1.5])
def test_set_takes_a_number_of_retries(retry: Any) -> None:
    """A worker reads any text as the usual 25."""
    with pytest.raises(JobDeclarationError, match=r"A\.set has retry=.*; give True, False, or how many retries"):
        sidekiq.ruby_job("A").set(retry=retry)


@pytest.mark.parametrize("options", ["low", 5, ["queue"]])
def test_set_takes_options_by_name(options: Any) -> None:
    """A text in their place is most likely a queue."""
    with pytest.raises(JobDeclarationError, match=r"give options by name, as in set\(queue='low'\), or a dict"):
        sidekiq.ruby_job("A").set(options)


@pytest.mark.usefixtures("configured")
def test_a_client_pushes_to_a_queue_with_any_name(pushed: Pushed) -> None:
    """As Ruby's does: the queue may be one that Ruby works on."""
    sidekiq.Client().push({"class": "A", "args": [], "queue": "a b"})
    sidekiq.Client().push_bulk({"class": "A", "args": [[]], "queue": "a b"})

    assert len(pushed.queue("a b")) == 2


def test_no_worker_serves_a_queue_whose_name_is_not_utf_8() -> None:
    """It could take such jobs out of Redis, and could not say where they belong."""
    with pytest.raises(ConfigError, match="is not UTF-8"):
        parse_queues(["caf\udce9"], "queues", None)


def test_a_queue_with_an_odd_name_that_stands_in_redis_is_read(redis_url: str, redis_client: redis.Redis) -> None:
    """Whoever pushed it: it is listed, and can be emptied."""
    sidekiq.configure(redis_url=redis_url)
    redis_client.sadd("queues", "two words")
    redis_client.lpush("queue:two words", b'{"class":"A","args":[],"jid":"1","queue":"two words"}')

    assert {queue.name: queue.size for queue in Queue.all()} == {"two words": 1}
    assert [job.jid for job in Queue("two words")] == ["1"]
    assert Queue("two words").clear()


def test_keys_of_the_file_that_mean_nothing_are_named_in_one_line(tmp_path: Path) -> None:
    """With what was probably meant; sections of other environments and a gem's settings are passed over."""
    values = {
        "quues": ["low"],
        "pidfile": "x",
        # For periodic jobs.
        "schedule": "jobs.yml",
        "cron_schedule_file": "cron.yml",
        "staging": {"concurrency": 3},
        "scheduler": {"schedule": {}},
        "capsuls": {"a": {}},
        "concurrency": 3,
        "capsules": {"mail": {"quueues": ["mail"], "concurrency": 1}},
    }

    line = unknown_keys(Options(values, "test", frozenset(), {}, tmp_path))

    assert line == (
        "the YAML file has unknown settings: quues (did you mean queues?), pidfile, "
        "capsuls (did you mean capsules?), capsules: mail: quueues (did you mean queues?); they have no effect, but "
        "plug-ins find them in Config.extra"
    )
    assert unknown_keys(Options({"queues": ["a"], "staging": {}}, "test", frozenset(), {}, tmp_path)) is None

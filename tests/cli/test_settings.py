"""How flags, file and environment become settings."""

import logging
from pathlib import Path
from typing import Any

import pytest

from sidekiq_py.cli import erb
from sidekiq_py.cli.settings import Options, make_config, read_all
from sidekiq_py.cli.yaml_file import parse_options
from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.errors import ConfigError
from sidekiq_py.program import Settings
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.wire.dialect import FloatText


def options(directory: Path, yaml: str = "", variables: dict[str, str] | None = None, **flags: Any) -> Options:
    """The options of a worker started in *directory* with a file that contains *yaml*."""
    if yaml:
        (directory / "config").mkdir()
        (directory / "config" / "sidekiq.yml").write_text(yaml)
    return read_all(flags, variables=variables or {}, directory=directory)


def config(directory: Path, yaml: str = "", **rest: Any) -> Config:
    """The settings that result."""
    return make_config(options(directory, yaml, **rest))


def test_without_a_word_the_defaults_of_sidekiq_7_and_8_hold(tmp_path: Path) -> None:
    """Five threads on the queue `default`, tagged with the directory's name."""
    settings = config(tmp_path)

    assert settings.capsules == (CapsuleConfig("default", 5, (QueueConfig("default"),)),)
    assert (settings.environment, settings.tag, settings.job_log) == ("development", tmp_path.name, True)


def test_the_file_beside_a_required_package_is_read(tmp_path: Path) -> None:
    """`-r shop` names a package, which is a directory. A file inside of it comes first, as in Ruby."""
    (tmp_path / "shop" / "config").mkdir(parents=True)

    assert config(tmp_path, "concurrency: 7", require=("shop",)).concurrency == 7

    (tmp_path / "shop" / "config" / "sidekiq.yml").write_text("concurrency: 8")
    assert options(tmp_path, require=("shop",)).values["concurrency"] == 8


def test_a_pinned_sidekiq_6_has_ten_threads(tmp_path: Path) -> None:
    """Each release has its own default."""
    assert config(tmp_path, sidekiq_version="6").concurrency == 10
    assert make_config(options(tmp_path), Settings(RedisSettings(), "6.0.4")).concurrency == 10


def test_queues_are_strict_weighted_or_random_by_their_weights(tmp_path: Path) -> None:
    """As the capsules of Sidekiq 7 and 8 decide it. A file's `name,weight` is parsed as on the command line."""
    modes = [
        config(tmp_path, queues=queues).capsules[0].mode
        for queues in (("a", "b"), ("a,3", "b"), ("a,1", "b,1"), ("a,0", "b"))
    ]

    assert modes == ["strict", "weighted", "random", "strict"]
    [capsule] = config(tmp_path, "queues: ['a,3', [b, 2], c, 'd, 4']").capsules
    assert capsule.queues == (QueueConfig("a", 3), QueueConfig("b", 2), QueueConfig("c"), QueueConfig("d", 4))


@pytest.mark.parametrize("queues", ["[]", "{}"])
def test_with_empty_queues_only_the_other_capsules_are_served(tmp_path: Path, queues: str) -> None:
    """As in Sidekiq 7 and 8, where the capsule `default` then has no work. Sidekiq 6 serves `default`."""
    yaml = f"queues: {queues}\ncapsules: {{mail: {{queues: [mailers], concurrency: 2}}}}"
    mail = CapsuleConfig("mail", 2, (QueueConfig("mailers"),))

    assert config(tmp_path, yaml).capsules == (mail,)
    pinned = config(tmp_path, sidekiq_version="6")
    assert pinned.capsules == (CapsuleConfig("default", 10, (QueueConfig("default"),)), mail)


def test_capsules_have_queues_and_threads_of_their_own(tmp_path: Path) -> None:
    """The top level is the capsule `default`. A name that is no text in YAML is written as in Ruby."""
    yaml = """
        :concurrency: 4
        :capsules:
          :unsafe:
            :queues: [[imports, 1], [exports, 1]]
            :concurrency: 1
          no: {queues: [mail]}
    """

    assert config(tmp_path, yaml).capsules == (
        CapsuleConfig("default", 4, (QueueConfig("default"),)),
        CapsuleConfig("unsafe", 1, (QueueConfig("imports", 1), QueueConfig("exports", 1))),
        CapsuleConfig("false", 4, (QueueConfig("mail"),)),
    )


def test_settings_that_only_a_python_worker_has_stand_in_the_file_too(tmp_path: Path) -> None:
    """The whole fleet can share one file, because Ruby keeps keys that it does not know."""
    yaml = """
        sidekiq_version: 8
        float_text: ruby
        fetcher: basic
        processes: 3
        max_memory_mb: 512
        async_concurrency: 500
        lease_seconds: 12.5
        skip_default_job_logging: true
        redis_url: redis://jobs:6379/2
        log_format: json
        log_level: warn
        logged_job_attributes: [bid, tenant]
        :scheduler: {tick: 5}
    """
    found = options(tmp_path, yaml)
    settings = make_config(found)

    assert (settings.sidekiq_version, settings.float_text) == ("8", FloatText.RUBY)
    assert (settings.fetcher, settings.processes, settings.max_memory_mb) == ("basic", 3, 512)
    assert (settings.async_concurrency, settings.lease_seconds, settings.job_log) == (500, 12.5, False)
    assert found.text("redis_url") == "redis://jobs:6379/2"
    assert (found.log_format, found.log_level) == ("json", logging.WARNING)
    assert found.logged_attributes == ("bid", "tenant")
    assert settings.extra == {"scheduler": {"tick": 5}}


def test_the_limit_of_iterable_jobs_stands_in_the_file(tmp_path: Path) -> None:
    """Sidekiq 8.0.8 and later read it there, too."""
    settings = config(tmp_path, ":max_iteration_runtime: 600")

    assert (settings.max_iteration_runtime_seconds, settings.extra) == (600, {})


def test_what_the_program_configured_goes_over_the_file(tmp_path: Path) -> None:
    """As with Ruby's `configure_server`; the flags are applied to the program again after its import."""
    found = options(tmp_path, "sidekiq_version: 7\nfloat_text: ruby")

    settings = make_config(found, Settings(RedisSettings(), "8", FloatText.JSON3))

    assert (settings.sidekiq_version, settings.float_text) == ("8", FloatText.JSON3)


def test_policies_for_keys_of_extensions_go_over_each_other_one_by_one(tmp_path: Path) -> None:
    """A flag for one key does not change what the file says about another."""
    yaml = """
        :extension_keys:
          bid: run
          :encrypt: :bury
    """
    found = options(tmp_path, yaml, extension_keys=("bid=bury", "overrated=run"))

    assert make_config(found).extension_keys == {"bid": "bury", "encrypt": "bury", "overrated": "run"}
    assert found.flagged_extension_keys == {"bid": "bury", "overrated": "run"}
    assert "extension_keys" in found.flags
    assert make_config(options(tmp_path / "elsewhere")).extension_keys == {}


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("bid", "--extension-key bid has no policy; write KEY=POLICY, as in bid=run"),
        ("bid=", "extension_keys: bid is ''; it must be one of refuse, run, bury"),
        ("unique_tokens=run", "extension_keys names 'unique_tokens'; did you mean unique_token?"),
        ("=run", "extension_keys names ''. Name a key of job payloads, such as bid"),
    ],
)
def test_an_unusable_flag_for_a_key_is_named(tmp_path: Path, flag: str, message: str) -> None:
    """A misspelled key would have no effect, and the jobs that should run would be refused."""
    with pytest.raises(ConfigError, match=message):
        options(tmp_path, extension_keys=(flag,))


@pytest.mark.parametrize(
    ("flags", "variables", "level"),
    [
        ({}, {}, logging.INFO),
        ({"verbose": True}, {}, logging.DEBUG),
        ({}, {"DEBUG_INVOCATION": "1"}, logging.DEBUG),
        ({"log_level": "ERROR", "verbose": True}, {}, logging.ERROR),
    ],
)
def test_the_log_level_follows_flags_and_systemd(
    tmp_path: Path, flags: dict[str, Any], variables: dict[str, str], level: int
) -> None:
    """`RestartMode=debug` of systemd sets a variable that Sidekiq 8 follows."""
    assert options(tmp_path, variables=variables, **flags).log_level == level


def test_a_release_directory_of_capistrano_is_not_the_tag(tmp_path: Path) -> None:
    """/srv/shop/releases/20261120 belongs to `shop`. Source: Sidekiq 8.1.7, component.rb, `default_tag`."""
    release = tmp_path / "shop" / "releases" / "20261120074200"
    release.mkdir(parents=True)

    assert config(release).tag == "shop"
    assert config(tmp_path, require=(str(release),)).tag == "shop"


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("concurrency: 0", "concurrency is 0; it must be a whole number, 1 or more"),
        ("concurrency: many", "concurrency is 'many'"),
        ("concurrency: yes", "concurrency is True"),
        (
            "concurrency: 99999999999999999999",
            "it must be 1,000 or less (threads share one interpreter: use --processes",
        ),
        ("capsules: {a: {concurrency: 1001}}", "capsule 'a' has concurrency 1001; it must be 1,000 or less"),
        ("async_concurrency: 100001", "async_concurrency is 100001; it must be 100,000 or less"),
        ("processes: 1001", "processes is 1001; it must be 1,000 or less"),
        ("queues: ['a,1,2']", "'a,1,2' is more than a name and a weight; give each queue by itself"),
        ("queues: [[a, 1, 2]]", "is more than a name and a weight"),
        ("timeout: -1", "timeout is -1; it must be a number greater than 0"),
        ("timeout: soon", "timeout is 'soon'"),
        ("queues: 5", "queues is 5; it must be a list"),
        ("queues: [[a, many]]", "queues: queue 'a' has weight 'many'"),
        ("queues: [critical: 3]", "queues: {'critical': 3} is a mapping; write a queue and its weight as"),
        ("queues: ['']", "queues: '' names no queue"),
        ("capsules: [a]", "capsules must map a name"),
        ("capsules: {a: 1}", "capsule a must hold queues and concurrency"),
        ("capsules: {a: {concurrency: 0}}", "capsules: a: concurrency is 0"),
        ("capsules: {a: {concurrency: 1}}", "capsule 'a' has no queues; give at least one"),
        ("fetcher: careful", "fetcher is 'careful'; it must be one of reliable, basic"),
        ("log_format: xml", "log_format is 'xml'; it must be one of pretty"),
        ("log_level: loud", "log_level is 'loud'"),
        ("max_memory_mb: 100", "max_memory_mb limits the children"),
        ("labels: [[a]]", "labels is"),
        ("sidekiq_version: next", "sidekiq_version is 'next'"),
        ("lease_seconds: 0.5", "lease_seconds is 0.5"),
        ("extension_keys: run", "extension_keys is 'run'; it must map keys to policies"),
        ("extension_keys: {bidd: run}", "extension_keys names 'bidd'; did you mean bid?"),
        ("extension_keys: {bid: yes}", "extension_keys: bid is True; it must be one of refuse, run, bury"),
    ],
)
def test_an_unusable_value_is_named_with_what_would_do(tmp_path: Path, yaml: str, message: str) -> None:
    """A worker that silently starts with other settings than requested does harm."""
    found = options(tmp_path, yaml)

    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        (make_config(found), found.log_level, found.log_format)


def test_rails_max_threads_must_be_a_number(tmp_path: Path) -> None:
    """As in Ruby, whose `Integer()` rejects it."""
    with pytest.raises(ConfigError, match="RAILS_MAX_THREADS is 'auto'"):
        options(tmp_path, variables={"RAILS_MAX_THREADS": "auto"})


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\nb: <%= Rails.env %>", 2, "'Rails'"),
        ("<%= Rails.env %>", 1, "or give the Python worker a file of its own"),
        ("<%= ENV['A'].presence || 5 %>", 1, ".presence"),
        ("\n\n<% if ENV['A'] %>", 3, "is a Ruby statement"),
        ("<%= Float(ENV['A']) %>", 1, "'Float'"),
        ('<%= ENV["A_#{1}"] %>', 1, "a string with #{}"),
        ("<%= ENV['A'] + 1 %>", 1, "at '+ 1'"),
        ("<%= ENV[A] %>", 1, "'A' where a string was expected"),
        ("<%= %>", 1, "a value is missing"),
        ("<%= ENV['A'] ENV['B'] %>", 1, "'ENV' is unexpected"),
        ("a: <%= 5", 1, "never closed"),
    ],
)
def test_other_ruby_is_refused_by_line(text: str, line: int, reason: str) -> None:
    """An error is better than guessing what Ruby would have made of it."""
    with pytest.raises(ConfigError) as refused:
        erb.render(text, {"A": "1"}, source="config/sidekiq.yml")

    assert f"config/sidekiq.yml, line {line}: " in str(refused.value)
    assert reason in str(refused.value)


@pytest.mark.parametrize("code", ["= ENV['A'].presence || 'redis://u:hunter2@db'", " url = 'redis://:hunter2@db'"])
def test_refused_ruby_is_shown_without_passwords(code: str) -> None:
    """The error ends up in a log."""
    with pytest.raises(ConfigError, match=r"redis://\*\*\*@db") as refused:
        erb.render(f"<%{code} %>", {}, source="config/sidekiq.yml")

    assert "hunter2" not in str(refused.value)


def test_ruby_in_a_yaml_comment_is_passed_over() -> None:
    """A value in a comment has no effect anyway."""
    assert erb.render("# <%= Rails.env %>\na: <%= 1 %>", {}, source="x") == "# \na: 1"


@pytest.mark.parametrize("text", ["- a", "just text"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    """Options must have names."""
    with pytest.raises(ConfigError, match=r"x holds a value of type .*; it must be a mapping"):
        parse_options(text, section="development", source="x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: 1\nb: !ruby/object:Gem::Installer {}",
            "x, line 2: the tag !ruby/object:Gem::Installer would create an object",
        ),
        ("a: !!python/object/apply:os.system [ls]", "would create an object"),
        ("a: 2026-01-01", "x, line 1: dates and times are not allowed here"),
        ("a:\n\t- b", "x, line 2"),
        ("a: !!int b", "x: a value does not fit its tag"),
        ("a: !!bool b", "x: a value does not fit its tag"),
    ],
)
def test_what_yaml_could_make_but_options_cannot_be_is_refused_by_line(text: str, message: str) -> None:
    """No tag creates an object."""
    with pytest.raises(ConfigError) as refused:
        parse_options(text, section="development", source="x")

    assert message in str(refused.value)

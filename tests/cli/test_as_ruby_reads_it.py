"""Runs the same flags, files and variables through Ruby Sidekiq's own command line and through ours."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidekiq_py.cli import erb
from sidekiq_py.cli.settings import make_config, read_all
from sidekiq_py.config import Config
from sidekiq_py.errors import ConfigError
from sidekiq_py.program import Settings
from sidekiq_py.redis_access.connection.settings import RedisSettings
from tests.cli.ruby_command_line import RubyCommandLine, RubyError, start_or_skip

pytestmark = pytest.mark.ruby

FILES = Path(__file__).with_name("sidekiq_yml")
ENVIRONMENTS = (
    {},
    {"RAILS_ENV": "production"},
    {"RACK_ENV": "production", "APP_ENV": "staging"},
    {"RAILS_MAX_THREADS": "17", "SET": "8"},
)
ENVIRONMENT_IDS = ("bare", "rails-env", "app-env", "variables")
# What no other test here looks at, and Ruby's own machinery.
_NOT_COMPARED = frozenset(
    (
        *("require", "environment", "verbose", "config_file"),
        *("error_handlers", "death_handlers", "lifecycle_events", "on_complex_arguments"),
    )
)
_FLAGS = (
    (["-c", "3"], {"concurrency": 3}),
    (["-t", "4", "-e", "production"], {"timeout": 4, "environment": "production"}),
    (["-q", "critical,3", "-q", "default"], {"queues": ["critical,3", "default"]}),
    (["-g", "blue", "-q", "only"], {"tag": "blue", "queues": ["only"]}),
)


@pytest.fixture(scope="module")
def ruby() -> Iterator[RubyCommandLine]:
    """A Ruby process with Sidekiq's command line."""
    with start_or_skip() as peer:
        yield peer


@pytest.mark.parametrize("variables", ENVIRONMENTS, ids=ENVIRONMENT_IDS)
@pytest.mark.parametrize("name", sorted(path.name for path in FILES.iterdir()))
def test_a_file_gives_the_options_that_ruby_makes_of_it(
    ruby: RubyCommandLine, name: str, variables: dict[str, str]
) -> None:
    """Symbols, aliases, sections and ERB give the same result as in Ruby."""
    variables = {"SET": "9", **variables}

    theirs = ruby.options(["-C", str(FILES / name)], env=variables, directory=FILES)
    ours = _ours({"config_file": FILES / name}, variables)

    assert _facts(ours) == _facts_of_ruby(theirs)


@pytest.mark.parametrize(
    ("flags", "given"), _FLAGS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_flags_go_over_the_file_as_in_ruby(ruby: RubyCommandLine, flags: list[str], given: dict[str, Any]) -> None:
    """A setting on the command line wins."""
    file = FILES / "environment_sections.yml"

    theirs = ruby.options(["-C", str(file), *flags], env={}, directory=FILES)
    ours = _ours({"config_file": file, **given}, {})

    assert _facts(ours) == _facts_of_ruby(theirs)


@pytest.mark.parametrize(
    "text",
    [
        "a: <%= ENV['SET'] -%>\nb",
        "  <%-# a comment -%>\nb",
        "<%# one -%>\nb<%# two %>\nc",
        "<%#= ENV['SET'] %>",
        "a <%% b %> %%>",
        "<%=1-%>\n\nb",
        "<%= ENV['UNSET'] %>|<%= ENV['UNSET'].to_i %>|<%= ENV['UNSET'].to_s %>",
        "<%= ' 1_0 pence'.to_i %> <%= 'none'.to_i %> <%= '-7'.to_i %> <%= 1_000 %> <%= 2.50 %>",
        '<%= ENV["UNSET"] || ENV.fetch("SET") || "x" %>',
        '<%= ENV.fetch("SET") { ENV.fetch("UNSET") } %>',
        "<%= false || nil %><%= true %>",
        '<%= Integer(ENV.fetch("SET", 5)) %> <%= Integer(ENV["UNSET"] || " -1_0 ") %> <%= Integer(ENV["SET"]).to_s %>',
        '<%= ENV["SET"] || Integer(ENV["UNSET"]) %> <%= Integer(2.9) %>',
        '<%= \'it\\\'s\' %> <%= "a \\"b\\"" %>',
    ],
)
def test_erb_comes_out_as_rubys_own(ruby: RubyCommandLine, text: str) -> None:
    """Values, conversions, comments and trims are the same as in Ruby."""
    assert erb.render(text, {"SET": "8"}, source="x.yml") == ruby.render(text, env={"SET": "8"})


@pytest.mark.parametrize(
    "text",
    [
        "concurrency: !ruby/object:Object {}",
        "started: 2026-01-01",
        "[:a, 1]",
        "a: [",
        "production: 5",
        "- a\n- b",
        "a: <%= ENV.fetch('UNSET') %>",
        "a: <%= Integer(ENV['UNSET']) %>",
        "a: <%= Integer('5 threads') %>",
        "a: <%= Integer('') %>",
    ],
)
def test_what_ruby_refuses_is_refused(ruby: RubyCommandLine, text: str, tmp_path: Path) -> None:
    """A file with which no Ruby worker starts is an error here, too."""
    (tmp_path / "x.yml").write_text(text)

    with pytest.raises(RubyError):
        ruby.options(["-C", "x.yml", "-e", "production"], env={}, directory=tmp_path)

    with pytest.raises(ConfigError, match=r"x\.yml"):
        read_all({"config_file": "x.yml", "environment": "production"}, variables={}, directory=tmp_path)


@pytest.mark.parametrize("place", ["config/sidekiq.yml", "config/sidekiq.yml.erb", "app/config/sidekiq.yml"])
def test_the_file_is_found_where_ruby_finds_it(ruby: RubyCommandLine, place: str, tmp_path: Path) -> None:
    """The file is looked for in the current directory, or in the required directory."""
    (tmp_path / "app").mkdir()
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text("concurrency: <%= 20 %>")
    flags = ["-r", "app"] if place.startswith("app") else []

    theirs = ruby.options(flags, env={}, directory=tmp_path)
    ours = _ours({"require": ("app",)} if flags else {}, {}, directory=tmp_path)

    assert ours.concurrency == theirs["concurrency"] == 20


def test_a_missing_file_is_an_error_as_in_ruby(ruby: RubyCommandLine, tmp_path: Path) -> None:
    """A worker must not start with settings other than those it was told to use."""
    with pytest.raises(RubyError, match=r"No such file gone\.yml"):
        ruby.options(["-C", "gone.yml"], env={}, directory=tmp_path)

    with pytest.raises(ConfigError, match=r"No such file .*gone\.yml"):
        read_all({"config_file": "gone.yml"}, variables={}, directory=tmp_path)


def test_a_queue_named_twice_is_refused_by_sidekiq_6(ruby: RubyCommandLine, tmp_path: Path) -> None:
    """Later releases add up the weights."""
    (tmp_path / "x.yml").write_text("queues: [a, b, a]")
    with pytest.raises(RubyError, match="cannot be defined twice"):
        ruby.options(["-C", "x.yml"], env={}, directory=tmp_path)
    options = read_all({"config_file": "x.yml"}, variables={}, directory=tmp_path)

    with pytest.raises(ConfigError, match="a cannot be defined twice"):
        make_config(options, Settings(RedisSettings(), "6"))

    assert make_config(options, Settings(RedisSettings(), "7")).capsules[0].queue_names == ("a", "b")


def _ours(flags: dict[str, Any], variables: dict[str, str], directory: Path = FILES) -> Config:
    return make_config(read_all(flags, variables=variables, directory=directory), Settings(RedisSettings(), "6.4.1"))


def _facts(config: Config) -> dict[str, Any]:
    [capsule] = config.capsules
    return {
        **config.extra,
        "queues": [queue.name for queue in capsule.queues for _ in range(max(queue.weight, 1))],
        "strict": capsule.mode == "strict",
        "concurrency": config.concurrency,
        "timeout": config.shutdown_timeout_seconds,
        "max_retries": config.max_retries,
        "dead_max_jobs": config.dead_max_jobs,
        "dead_timeout_in_seconds": config.dead_timeout_seconds,
        "average_scheduled_poll_interval": config.average_scheduled_poll_seconds,
        "poll_interval_average": config.poll_interval_average_seconds,
        "labels": list(config.labels),
        "tag": config.tag,
    }


def _facts_of_ruby(options: dict[str, Any]) -> dict[str, Any]:
    defaults_of_ours = {"max_retries": 25, "tag": FILES.name}
    return {**defaults_of_ours, **{name: value for name, value in options.items() if name not in _NOT_COMPARED}}

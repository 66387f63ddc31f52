"""
Releases of real Ruby Sidekiq, running code in them, and their worker processes.

A release is a value: the programs to call, and the prefix for them. `RELEASES` are those that the environment variable
`SIDEKIQ_PY_RELEASES` names ("6.0 6.4 7.3 8.1", or "all"); every test in this folder runs against each of them.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from interop_tests import roots
from interop_tests.roots import Versions
from tests.support.worker_process import REPOSITORY, SidekiqProcess

RUBY_FIXTURES = REPOSITORY / "ruby_fixtures"
RUN_TIMEOUT_SECONDS = 60.0

# In the C locale, Ruby treats the replies of Redis as ASCII.
UTF8 = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}

# A test's Ruby code is the body of a method, and its value is returned as JSON. The marker distinguishes it from what
# the code or a gem prints.
RESULT_MARKER = "==> result: "
WRAPPER = """
JSON.parse(ARGV.fetch(0)).each {{ |name, value| Object.define_method(name) {{ value }} }}
def code_of_the_test
{code}
end
value = code_of_the_test
$stdout.puts {marker} + JSON.generate([value])
"""


@dataclass(frozen=True, slots=True)
class RubyRelease:
    """
    One release of Sidekiq, and how to run it.

    Args:
        series: The name in `SIDEKIQ_PY_RELEASES`, such as "6.4".
        sidekiq_version: The value of `Sidekiq::VERSION`.
        suite: The Debian suite that it comes from.
        versions: The versions, including Ruby, the json gem and Rails; None if the root has not been built.
        ruby: The command that runs Ruby.
        sidekiq: The command that starts a worker.
        fixtures: The path of `ruby_fixtures/` as that Ruby sees it.
        environment: Additional environment variables, such as RUBYLIB or GEM_PATH.
    """

    series: str
    sidekiq_version: str
    suite: str
    versions: Versions | None = None
    ruby: tuple[str, ...] = ("ruby",)
    sidekiq: tuple[str, ...] = ("sidekiq",)
    fixtures: Path = RUBY_FIXTURES
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version for comparisons, such as (7, 3, 2)."""
        return tuple(int(part) for part in self.sidekiq_version.split(".")[:3])

    @property
    def work_key_suffix(self) -> str:
        """The suffix of the key for work in progress: `:workers` until 6.4.1, `:work` since then."""
        return ":workers" if self.numbers <= (6, 4, 1) else ":work"

    @property
    def payloads(self) -> Path:
        """The recorded payloads of this release, or of the nearest earlier one if the suite has a newer release."""
        recorded = {tuple(map(int, path.name.split("."))): path for path in (RUBY_FIXTURES / "payloads").iterdir()}
        return recorded[max(version for version in recorded if version <= self.numbers)]


# The Debian suite of each series, and the version to expect if the suite has not been unpacked yet.
_SUITES = {
    "6.0": ("bullseye", "6.0.4"),
    "6.4": ("bookworm", "6.4.1"),
    "7.3": ("trixie", "7.3.2"),
    "8.1": ("forky", "8.1.7"),
}
# The old release that most fleets run, and the newest one; the others are tested with `make interop`.
_USUAL = "6.4 8.1"


def all_series() -> tuple[str, ...]:
    """All available series."""
    return tuple(_SUITES)


def release(series: str) -> RubyRelease:
    """
    The release of a series, such as "7.3", whether or not it is installed; see `why_missing`.

    Raises:
        KeyError: No suite has that series.
    """
    suite, expected = _SUITES[series]
    root = roots.find(suite)
    if root is None:
        return RubyRelease(series=series, sidekiq_version=expected, suite=suite)
    return RubyRelease(
        series=series,
        sidekiq_version=root.versions.sidekiq,
        suite=suite,
        versions=root.versions,
        ruby=root.command("ruby"),
        sidekiq=root.command("sidekiq"),
    )


def _chosen() -> tuple[RubyRelease, ...]:
    names = os.environ.get("SIDEKIQ_PY_RELEASES", _USUAL)
    return tuple(release(series) for series in (_SUITES if names == "all" else names.split()))


RELEASES = _chosen()


def why_missing(wanted: RubyRelease) -> str | None:
    """Why the release cannot be used here, in a sentence; None if it can."""
    if wanted.versions is not None:
        return None
    return f"Ruby Sidekiq {wanted.series} is not here; get it by: python -m interop_tests.roots {wanted.suite}"


def with_public_gems(found: RubyRelease, folder: Path) -> RubyRelease:
    """A release whose load path includes the gems whose sources are in this folder (`.ci/gems`)."""
    folders = [str(path.resolve()) for path in sorted(folder.glob("*/lib"))]
    load_path = ":".join([*folders, str(RUBY_FIXTURES / "stand_ins")])
    return replace(found, environment={**found.environment, "RUBYLIB": load_path})


def run_ruby(
    release: RubyRelease,
    code: str,
    redis_url: str,
    *,
    active_job: bool = False,
    web: bool = False,
    also: Sequence[str] = (),
    **values: object,
) -> Any:
    """
    Run *code* in a Ruby that has loaded Sidekiq, its data API and `ruby_fixtures/jobs.rb`.

    Args:
        code: The body of a method; `return` works.
        redis_url: The Redis that Sidekiq talks to.
        active_job: True to also load `ruby_fixtures/active_jobs.rb`, which takes half a second more.
        web: True to load `ruby_fixtures/web_ui.rb`: Sidekiq's Web UI and a visitor for it.
        also: Other files in `ruby_fixtures/` to load.
        values: JSON values, which the code can use as methods of the same names.

    Returns:
        The code's last value, converted by way of JSON.

    Raises:
        AssertionError: Ruby failed; the message contains its output.
    """
    script = WRAPPER.format(code=code, marker=json.dumps(RESULT_MARKER))
    loaded = ["active_jobs.rb" if active_job else "jobs.rb", *(["web_ui.rb"] if web else []), *also]
    requires = [part for name in loaded for part in ("-r", str(release.fixtures / name))]
    ran = subprocess.run(
        [*release.ruby, "-r", "json", "-r", "sidekiq", "-r", "sidekiq/api", *requires, "-", json.dumps(values)],
        input=script,
        capture_output=True,
        check=False,
        timeout=RUN_TIMEOUT_SECONDS,
        encoding="utf-8",
        env={**os.environ, **UTF8, **release.environment, "REDIS_URL": redis_url},
    )
    results = [line for line in ran.stdout.split("\n") if line.startswith(RESULT_MARKER)]
    if ran.returncode != 0 or not results:
        raise AssertionError(f"Ruby failed ({ran.returncode}) in\n{code}\nstderr:\n{ran.stderr}\nstdout:\n{ran.stdout}")
    return json.loads(results[-1].removeprefix(RESULT_MARKER))[0]


class RubySidekiq(SidekiqProcess):
    """
    A real Ruby worker with the jobs of `ruby_fixtures/`.

    It polls its scheduled sets quickly. At the end of the context it is killed, because an orderly stop takes Ruby over
    two seconds; a test about stopping calls `stop` itself.

    Args:
        release: The Sidekiq release.
        redis_url: The Redis that it uses.
        queues: The values for `-q`, such as `"default"` or `"critical,3"`.
        concurrency: The number of threads.
        timeout_seconds: How long a stop waits for running jobs.
        poll_seconds: The average interval of its poller; None for Ruby's own, which takes 5 s to 20 s at first.
        active_job: True to load the Active Job classes too.
        namespace: The namespace in which it registers, which `ruby_fixtures/namespace.rb` sets.
    """

    def __init__(
        self,
        release: RubyRelease,
        *,
        redis_url: str,
        queues: Sequence[str] = ("default",),
        concurrency: int = 5,
        timeout_seconds: int = 5,
        poll_seconds: float | None = 0.1,
        active_job: bool = False,
        program: str | None = None,
        environment: Mapping[str, str | None] | None = None,
        log_path: Path | None = None,
        namespace: str | None = None,
    ) -> None:
        jobs = release.fixtures / (program or ("active_jobs.rb" if active_job else "jobs.rb"))
        command = [*release.sidekiq, "-r", str(jobs), "-c", str(concurrency), "-t", str(timeout_seconds), "-e", "test"]
        command += [part for queue in queues for part in ("-q", queue)]
        poll = {"FIXTURE_POLL_SECONDS": str(poll_seconds)} if poll_seconds is not None else {}
        super().__init__(
            command,
            redis_url=redis_url,
            environment={**UTF8, **release.environment, **poll, **(environment or {})},
            log_path=log_path,
            namespace=namespace,
        )

    def leave(self) -> None:
        """End the process by force."""
        if self.is_running:
            self.kill()

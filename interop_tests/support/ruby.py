"""
Releases of real Ruby Sidekiq, code run in them, and their worker processes.

A release is a value: which programs to call, and under which prefix. Another one (a chroot with Debian's next suite,
say) is another line in `RELEASES`; every test of this folder then runs against it as well.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.worker_process import REPOSITORY, SidekiqProcess

RUBY_FIXTURES = REPOSITORY / "ruby_fixtures"
RUN_TIMEOUT_SECONDS = 60.0

# In the C locale Ruby takes what Redis says for ASCII.
UTF8 = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}

# Ruby code of a test is the body of a method, and its value comes back as JSON. The marker keeps it apart from what the
# code or a gem prints.
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
    One release of Sidekiq and how to reach it.

    Args:
        name: As tests show it.
        sidekiq_version: What `Sidekiq::VERSION` must be; recorded payloads stand in the folder of this name.
        ruby: The command that runs Ruby, such as `("ruby",)` or `("chroot", "/srv/trixie", "ruby")`.
        sidekiq: The command that starts a worker.
        fixtures: Where `ruby_fixtures/` is, as that Ruby sees it (a chroot has it mounted somewhere).
        environment: More environment variables, such as RUBYLIB or GEM_PATH.
        install: How to get it, for the message when it is missing.
    """

    name: str
    sidekiq_version: str
    ruby: tuple[str, ...] = ("ruby",)
    sidekiq: tuple[str, ...] = ("sidekiq",)
    fixtures: Path = RUBY_FIXTURES
    environment: Mapping[str, str] = field(default_factory=dict)
    install: str = "on Debian 12: apt-get install ruby-sidekiq ruby-activejob"

    @property
    def work_key_suffix(self) -> str:
        """The end of the key with work in progress: `:workers` until 6.4.1, `:work` since."""
        major_minor_patch = tuple(int(part) for part in self.sidekiq_version.split(".")[:3])
        return ":workers" if major_minor_patch <= (6, 4, 1) else ":work"


RELEASES = (RubyRelease(name="6.4.1 from Debian", sidekiq_version="6.4.1"),)


@cache
def why_missing(release_name: str) -> str | None:
    """Why the release cannot be used here, in a sentence; None when it can. Asked once a run, as Ruby starts slowly."""
    release = next(known for known in RELEASES if known.name == release_name)
    question = 'require "sidekiq"; print Sidekiq::VERSION'
    try:
        answer = subprocess.run(
            [*release.ruby, "-e", question], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError as error:
        return f"Ruby Sidekiq {release.name}: {error}; {release.install}"
    if answer.returncode != 0:
        return f"Ruby Sidekiq {release.name} is not installed; {release.install}"
    if answer.stdout != release.sidekiq_version:
        return f"Ruby has Sidekiq {answer.stdout}, wanted is {release.sidekiq_version}; {release.install}"
    return None


def run_ruby(
    release: RubyRelease, code: str, redis_url: str, *, active_job: bool = False, web: bool = False, **values: object
) -> Any:
    """
    Run *code* in a Ruby that has loaded Sidekiq, its data API and `ruby_fixtures/jobs.rb`.

    Args:
        code: The body of a method; `return` works.
        redis_url: The Redis that Sidekiq talks to.
        active_job: Load `ruby_fixtures/active_jobs.rb` as well, which takes half a second more.
        web: Load `ruby_fixtures/web_ui.rb`: Sidekiq's Web UI and a visitor for it.
        values: JSON values that the code finds as the methods of the same names.

    Returns:
        The code's last value, by way of JSON.

    Raises:
        AssertionError: Ruby failed; the message holds what it printed.
    """
    script = WRAPPER.format(code=code, marker=json.dumps(RESULT_MARKER))
    loaded = ["active_jobs.rb" if active_job else "jobs.rb", *(["web_ui.rb"] if web else [])]
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

    It polls its scheduled sets quickly. At the end of the context it is killed, as an orderly stop takes Ruby over two
    seconds; a test that is about stopping calls `stop` itself.

    Args:
        release: Which Sidekiq.
        redis_url: The Redis it works on.
        queues: Each given as `-q`, such as `"default"` or `"critical,3"`.
        concurrency: Threads.
        timeout_seconds: How long a stop waits for running jobs.
        poll_seconds: The average interval of its poller; None is Ruby's own, which takes 5 s to 20 s at first.
        active_job: Load the Active Job classes too.
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
        environment: Mapping[str, str | None] | None = None,
        log_path: Path | None = None,
    ) -> None:
        jobs = release.fixtures / ("active_jobs.rb" if active_job else "jobs.rb")
        command = [*release.sidekiq, "-r", str(jobs), "-c", str(concurrency), "-t", str(timeout_seconds), "-e", "test"]
        command += [part for queue in queues for part in ("-q", queue)]
        poll = {"FIXTURE_POLL_SECONDS": str(poll_seconds)} if poll_seconds is not None else {}
        super().__init__(
            command,
            redis_url=redis_url,
            environment={**UTF8, **release.environment, **poll, **(environment or {})},
            log_path=log_path,
        )

    def leave(self) -> None:
        """End the process by force."""
        if self.is_running:
            self.kill()

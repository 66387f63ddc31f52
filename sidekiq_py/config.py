"""
A program's settings: frozen values, validated once, with every default in one place.

A worker runs with a `Config`; the client side needs only its `redis` and its dialect. `cli` builds the `Config` from
the command line, YAML and the environment.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from sidekiq_py.errors import ConfigError
from sidekiq_py.options import closest, complaint_about_queue
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.redis_access.job_path.failed_jobs import DeadLimits
from sidekiq_py.wire.dialect import Dialect, FloatText
from sidekiq_py.wire.extensions import EXTENSION_KEYS
from sidekiq_py.wire.json_writer import to_s
from sidekiq_py.wire.process_info import QueueMode, mode_of

ExtensionPolicy = Literal["refuse", "run", "bury"]
"""
What to do with a job that has an extension's key: *refuse* puts it back and stops serving its queue, *run* runs it,
*bury* moves it to `dead`.
"""

_EXTENSION_POLICIES = get_args(ExtensionPolicy)

# A higher number is most likely a typo: such a worker would hang at startup, or take the machine down with it.
_MOST_THREADS = 1_000
_MOST_ASYNC_JOBS = 100_000
_MOST_PROCESSES = 1_000


def _refuse_more(what: str, given: int, most: int, advice: str) -> None:
    if given > most:
        raise ConfigError(f"{what}; it must be {most:,} or less ({advice})")


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """A queue's name and weight; 0 means strict order."""

    name: str
    weight: int = 0

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a queue has an empty name; name it, as in -q critical,3")
        if self.weight < 0:
            raise ConfigError(f"queue {self.name!r} has weight {self.weight}; weights are 0 or more")

    @classmethod
    def parse(cls, given: object) -> "QueueConfig":
        """
        Parse a queue as flags, files and code write it: `"critical"`, `"critical,3"` or `("critical", 3)`.

        Raises:
            ConfigError: The name is missing or has whitespace, or the weight is not a whole number.
        """
        if isinstance(given, Mapping):
            raise ConfigError(f"{given!r} is a mapping; write a queue and its weight as [critical, 3] or critical,3")
        parts = given.split(",") if isinstance(given, str) else given
        name, *rest = parts if isinstance(parts, list | tuple) and parts else (parts,)
        if name in (None, "", [], ()):
            raise ConfigError(f"{given!r} names no queue; name it, as in critical,3")
        # YAML reads `no` as false, whose name in Ruby is "false".
        text = to_s(name)
        if (complaint := complaint_about_queue(text, f"queue is {name!r}")) is not None:
            raise ConfigError(f"{complaint}, and give each queue by itself, as in -q critical -q default")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"queue {name!r} is not UTF-8; workers cannot serve it, but `sidekiq-py queues` can move its jobs"
            ) from None
        if len(rest) > 1:
            raise ConfigError(
                f"{given!r} is more than a name and a weight; give each queue by itself, as in -q critical,3 -q default"
            )
        # Blanks around it are ignored, as by Ruby's `to_i`: `- critical, 2` in a sidekiq.yml.
        weight = str(rest[0]).strip() if rest else "0"
        if not weight.isdecimal():
            raise ConfigError(
                f"queue {name!r} has weight {weight!r}; weights are whole numbers, 0 or more. "
                "Give each queue by itself, as in -q critical,3 -q default"
            )
        return cls(text, int(weight))


@dataclass(frozen=True, slots=True)
class CapsuleConfig:
    """
    A group of queues with its own threads.

    Args:
        concurrency: How many jobs run at once in threads; at most 1,000.
        queues: The queues in order of precedence. If all weights are 0 the mode is strict, if all are 1 it is random,
            and otherwise it is weighted.
    """

    name: str = "default"
    concurrency: int = 5
    queues: tuple[QueueConfig, ...] = (QueueConfig("default"),)

    def __post_init__(self) -> None:
        if not isinstance(self.concurrency, int):
            raise ConfigError(f"capsule {self.name!r} has concurrency {self.concurrency!r}; give a whole number")
        if self.concurrency < 1:
            raise ConfigError(f"capsule {self.name!r} has concurrency {self.concurrency}; it must be 1 or more")
        _refuse_more(
            f"capsule {self.name!r} has concurrency {self.concurrency}",
            self.concurrency,
            _MOST_THREADS,
            "threads share one interpreter: use --processes N for more of them, or async def jobs",
        )
        if not self.queues:
            raise ConfigError(f"capsule {self.name!r} has no queues; give at least one")

    @property
    def mode(self) -> QueueMode:
        """How the next queue is chosen. Source: Sidekiq 8.1.7, capsule.rb."""
        return mode_of([queue.weight for queue in self.queues])

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The queue names without duplicates."""
        return tuple(dict.fromkeys(queue.name for queue in self.queues))

    @property
    def weights(self) -> dict[str, int]:
        """Maps each queue name to its weight; if a name is given twice, the weights add up."""
        totals: dict[str, int] = {}
        for queue in self.queues:
            totals[queue.name] = totals.get(queue.name, 0) + queue.weight
        return totals


@dataclass(frozen=True, slots=True)
class Config:
    """
    All settings of a worker process.

    Args:
        redis: How to reach Redis.
        sidekiq_version: Pins the dialect ("8", "7.3.2"); None detects it from the running Ruby processes.
        float_text: Overrides how floats are written, because a fleet may use any version of the json gem.
        capsules: Groups of queues and threads.
        async_concurrency: How many `async def` jobs run at once in the process.
        fetcher: "reliable" keeps a job in Redis until it is settled; "basic" is Ruby's BRPOP.
        shutdown_timeout_seconds: How long busy jobs may take to finish on shutdown before they are interrupted.
        max_iteration_runtime_seconds: How long a run of an iterable job may take before it stops and the job is pushed
            again, if its class has no `max_iteration_runtime` of its own; None means no limit.
        max_retries: The number of retries for `retry: true`.
        max_job_bytes: A larger job is not read but kept unchanged in `dead`; 0 means no limit.
        dead_max_jobs, dead_timeout_seconds: Limits of the dead set, which keeps at most `dead_max_jobs` - 1 entries, as
            in Ruby.
        average_scheduled_poll_seconds: Ruby's poll interval per process, used by processes without the poller lease.
        poll_seconds: How often the process that holds the poller lease checks for due jobs; half as often while
            no job comes due before its next check.
        lease_seconds: An owner that has not been heard from for longer may be recovered.
        beat_seconds: How often to renew the lease and the heartbeat; None means a sixth of the lease.
        buffer_seconds: Jobs are fetched ahead only if they will probably start within this time, or within that of four
            round trips to Redis.
        buffer_bytes: The most bytes that one batch may hold.
        processes: How many child processes the parent keeps running; None runs jobs in this process.
        max_memory_mb: A child whose resident memory exceeds this stops gracefully and is replaced; None means no limit.
        usr1_dumps_threads: If True, USR1 logs what each thread is doing, as in Celery; otherwise it quiets the worker,
            as in Sidekiq.
        extra: Settings from the YAML file that are unknown here, for plug-ins.
        extension_keys: What to do with jobs that have a key of Pro, Enterprise or a gem. A key that is not listed is
            refused.
        probe_port: The port that answers HTTP probes; None disables them.
        stall_seconds: If a loop is overdue by more than this, probes report the worker as not live.
        idle_waiters: Up to this many queues are waited for with blocking moves; if there are more, the rest are checked
            every `idle_poll_seconds`.
    """

    redis: RedisSettings = field(default_factory=RedisSettings)
    sidekiq_version: str | None = None
    float_text: FloatText | None = None
    capsules: tuple[CapsuleConfig, ...] = (CapsuleConfig(),)
    async_concurrency: int = 100
    fetcher: Literal["reliable", "basic"] = "reliable"
    shutdown_timeout_seconds: float = 25.0
    max_iteration_runtime_seconds: float | None = None
    max_retries: int = 25
    max_job_bytes: int = 0
    dead_max_jobs: int = 10_000
    dead_timeout_seconds: int = 180 * 24 * 3600
    average_scheduled_poll_seconds: float = 5.0
    poll_interval_average_seconds: float | None = None
    poll_seconds: float = 0.05
    lease_seconds: float = 30.0
    beat_seconds: float | None = None
    buffer_seconds: float = 0.010
    buffer_bytes: int = 4 * 1024 * 1024
    idle_waiters: int = 8
    idle_poll_seconds: float = 0.05
    environment: str = "development"
    tag: str = ""
    labels: tuple[str, ...] = ()
    job_log: bool = True
    embedded: bool = False
    usr1_dumps_threads: bool = False
    is_single_slot_child: bool = False
    processes: int | None = None
    max_memory_mb: int | None = None
    probe_port: int | None = None
    stall_seconds: float = 30.0
    extra: Mapping[str, object] = field(default_factory=dict)
    extension_keys: Mapping[str, ExtensionPolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.capsules:
            raise ConfigError("there is no capsule; a worker needs at least one queue and one thread")
        odd = next((one for one in self.capsules if not isinstance(one, CapsuleConfig)), None)
        if odd is not None:
            raise ConfigError(f"capsules has {odd!r}; give a tuple of CapsuleConfig")
        names = [capsule.name for capsule in self.capsules]
        if len(set(names)) != len(names):
            raise ConfigError(f"two capsules share a name: {', '.join(names)}")
        if not isinstance(self.redis, RedisSettings):
            # A URL may have a password.
            raise ConfigError(
                f"redis is of the type {type(self.redis).__name__}; give RedisSettings('redis://host:6379/0')"
            )
        if self.fetcher not in ("reliable", "basic"):
            raise ConfigError(f"fetcher is {self.fetcher!r}; it must be 'reliable' or 'basic'")
        if not isinstance(self.labels, (tuple, list, set, frozenset)):
            raise ConfigError(f"labels is {self.labels!r}; give a tuple, such as ('web',)")
        if not isinstance(self.tag, str):
            raise ConfigError(f"tag is {self.tag!r}; give a string")
        if type(self.max_retries) is not int or self.max_retries < 0:
            raise ConfigError(f"max_retries is {self.max_retries!r}; it must be a whole number, 0 or more")
        if self.shutdown_timeout_seconds <= 0:
            raise ConfigError(f"timeout is {self.shutdown_timeout_seconds}; it must be more than 0 seconds")
        if self.lease_seconds < 1:
            raise ConfigError(f"lease_seconds is {self.lease_seconds}; it must be at least 1")
        if self.async_concurrency < 1:
            raise ConfigError(f"async_concurrency is {self.async_concurrency}; it must be 1 or more")
        if self.processes is not None and self.processes < 1:
            raise ConfigError(f"processes is {self.processes}; it must be 1 or more")
        _refuse_more(
            f"async_concurrency is {self.async_concurrency}",
            self.async_concurrency,
            _MOST_ASYNC_JOBS,
            "use --processes N for more loops",
        )
        _refuse_more(
            f"processes is {self.processes}", self.processes or 0, _MOST_PROCESSES, "start workers on more machines"
        )
        if self.max_memory_mb is not None and (self.processes is None or self.max_memory_mb < 1):
            raise ConfigError("max_memory_mb limits the children of --processes N (1 or more); give both, or neither")
        if self.probe_port is not None and not 0 < self.probe_port < 65536:
            raise ConfigError(f"probe_port is {self.probe_port}; it must be 1 to 65535, as in --probe-port 7433")
        self.pinned_dialect()
        check_extension_keys(self.extension_keys)

    @property
    def lease_beat_seconds(self) -> float:
        """Seconds between two lease renewals."""
        return self.beat_seconds if self.beat_seconds is not None else self.lease_seconds / 6

    @property
    def concurrency(self) -> int:
        """The number of threads in all capsules."""
        return sum(capsule.concurrency for capsule in self.capsules)

    @property
    def queue_names(self) -> list[str]:
        """The queues of all capsules, each once."""
        return list(dict.fromkeys(name for capsule in self.capsules for name in capsule.queue_names))

    @property
    def dead_limits(self) -> DeadLimits:
        """The limits of the dead set, as what trims it takes them."""
        return DeadLimits(self.dead_max_jobs, self.dead_timeout_seconds)

    def pinned_dialect(self) -> Dialect | None:
        """The configured dialect, or None if it is detected."""
        return Dialect.asked_for(self.sidekiq_version, self.float_text, namespace=self.redis.namespace)


def check_extension_keys(given: Any) -> Mapping[str, ExtensionPolicy]:
    """
    Return *given* if it maps extension keys to policies.

    Raises:
        ConfigError: It is not a mapping, or has an unknown policy or a key that looks misspelled. Other unknown keys
            are allowed, because a program's own extensions have keys that are not known here.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"extension_keys is {given!r}; it must map keys to policies, as in {{'bid': 'run'}}")
    for key, policy in given.items():
        near = None if key in EXTENSION_KEYS else closest(str(key), EXTENSION_KEYS)
        if near is not None or type(key) is not str or not key:
            raise ConfigError(
                f"extension_keys names {key!r}"
                + (f"; did you mean {near}?" if near else ". Name a key of job payloads, such as bid")
            )
        if policy not in _EXTENSION_POLICIES:
            raise ConfigError(
                f"extension_keys: {key} is {policy!r}; it must be one of {', '.join(_EXTENSION_POLICIES)}"
            )
    return given


def redis_url_from_environment() -> str | None:
    """
    The URL from the variable that `REDIS_PROVIDER` names, or else from `REDIS_URL`; None if neither is set.

    Raises:
        ConfigError: `REDIS_PROVIDER` holds a URL, or names a variable that is not set, and neither is `REDIS_URL`.

    Source: Sidekiq 8.1.7, redis_connection.rb.
    """
    provider = os.environ.get("REDIS_PROVIDER")
    if not provider:
        return os.environ.get("REDIS_URL") or None
    if re.search(r"[:/]", provider):
        raise ConfigError(
            "REDIS_PROVIDER names the variable that holds the URL (REDIS_PROVIDER=MY_REDIS_URL); "
            "put the URL itself in REDIS_URL"
        )
    url = os.environ.get(provider, os.environ.get("REDIS_URL"))
    if url is None:
        raise ConfigError(f"REDIS_PROVIDER names {provider}, which is not set; set it to the Redis URL")
    return url

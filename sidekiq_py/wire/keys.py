"""The names of all Redis keys, each defined in one place. `docs/architecture.md` describes their contents."""

# Sidekiq's own. Source: Sidekiq 6.4.1 to 8.1.7.
QUEUES = "queues"
SCHEDULE = "schedule"
RETRY = "retry"
DEAD = "dead"
PROCESSES = "processes"
PAUSED = "paused"
STAT_PROCESSED = "stat:processed"
STAT_FAILED = "stat:failed"
PROCESS_CLEANUP = "process_cleanup"

# Our own. Ruby processes ignore them.
OWNERS = "sidekiq_py:owners"
DEPARTED = "sidekiq_py:departed"
SUSPECTS = "sidekiq_py:suspects"
DEATHS = "sidekiq_py:deaths"
POLLER_LEASE = "sidekiq_py:poller"
LOOKOUT_LEASE = "sidekiq_py:lookout"
REVOKED = "sidekiq_py:revoked"
NOTICES = "sidekiq_py:orders"
RUBY_INFOS = "sidekiq_py:ruby"
EXTENSION_KEYS = "sidekiq_py:extension_keys"
AUDIT = "sidekiq_py:audit"
BULK_RUNS = "sidekiq_py:bulk_runs"
INBOX_PREFIX = "sidekiq_py:inbox:"


def queue(name: str) -> str:
    """The list of a queue's jobs: newest at the head, next to run at the tail."""
    return "queue:" + name


def stat_processed_on(day: str) -> str:
    """The day's count of finished attempts; *day* is a UTC date as `YYYY-MM-DD`."""
    return f"stat:processed:{day}"


def stat_failed_on(day: str) -> str:
    """The day's count of attempts that raised; *day* is a UTC date as `YYYY-MM-DD`."""
    return f"stat:failed:{day}"


def work(identity: str, *, suffix: str = "work") -> str:
    """A process's running jobs by thread; *suffix* is `workers` up to Sidekiq 6.4.1."""
    return f"{identity}:{suffix}"


def signals(identity: str) -> str:
    """The list from which a process pops one signal at each beat."""
    return f"{identity}-signals"


def iteration(jid: str) -> str:
    """The state of an iterable job."""
    return f"it-{jid}"


def in_flight(owner: str) -> str:
    """
    The hash of jobs that an owner has in flight: maps `<batch>.<n>:<queue>` to the original bytes; the field is
    `<batch>.<n>!<queue>` for a suspect that is marked as started.
    """
    return f"sidekiq_py:inflight:{owner}"


def identity_of(owner: str) -> str:
    """The identity of an owner's process: an owner is `<identity>:<epoch>`."""
    return owner.rpartition(":")[0]


def kept(token: str) -> str:
    """A copy of a job that runs at most once under a hard limit, kept until it ends; or what its end wrote so far."""
    return f"sidekiq_py:kept:{token}"


def counted(token: str) -> str:
    """Which of its counts a process wrote last, so that none is written twice after a lost reply."""
    return f"sidekiq_py:counted:{token}"


def inbox(owner: str, queue_name: str) -> str:
    """The list of an owner's in-flight jobs that plain moves (LMOVE, BLMOVE) have brought from one queue."""
    return f"{INBOX_PREFIX}{owner}:{queue_name}"


def lease(owner: str) -> str:
    """The lease of an owner; it exists while the owner is alive."""
    return f"sidekiq_py:lease:{owner}"


def newest(machine: str) -> str:
    """The owner that registered last on a machine."""
    return f"sidekiq_py:newest:{machine}"


def declared(identity: str) -> str:
    """The JSON array of the classes that one of our processes can run; it expires like the heartbeat."""
    return f"sidekiq_py:declared:{identity}"


def trend(queue_name: str) -> str:
    """Samples of a queue's size, one per minute: `<epoch s>:<size>:<latency s>`, the newest at the end."""
    return f"sidekiq_py:trend:{queue_name}"


def bulk_run(run_id: str) -> str:
    """A bulk run, which changes many jobs: by whom, what, the progress, and a request to stop."""
    return f"sidekiq_py:bulk_run:{run_id}"

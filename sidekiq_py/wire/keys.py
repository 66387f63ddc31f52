"""The name of every Redis key, each made in one place. What each holds: `docs/architecture.md`."""

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

# Our own. No Ruby process minds them.
OWNERS = "sidekiq_py:owners"
DEPARTED = "sidekiq_py:departed"
SUSPECTS = "sidekiq_py:suspects"
DEATHS = "sidekiq_py:deaths"
POLLER_LEASE = "sidekiq_py:poller"
LOOKOUT_LEASE = "sidekiq_py:lookout"
REVOKED = "sidekiq_py:revoked"
ORDERS = "sidekiq_py:orders"
RUBY_INFOS = "sidekiq_py:ruby"
EXTENSION_KEYS = "sidekiq_py:extension_keys"
AUDIT = "sidekiq_py:audit"
BULK_RUNS = "sidekiq_py:bulk_runs"


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
    """The list a process pops one signal from at each beat."""
    return f"{identity}-signals"


def iteration(jid: str) -> str:
    """The state of an iterable job."""
    return f"it-{jid}"


def in_flight(owner: str) -> str:
    """Jobs an owner has taken: `<seq>:<queue>` to the original bytes; `<seq>!<queue>` once marked as started."""
    return f"sidekiq_py:inflight:{owner}"


def kept(token: str) -> str:
    """The job that runs at most once under a hard limit, kept until it ends; or what its end has written so far."""
    return f"sidekiq_py:kept:{token}"


def counted(token: str) -> str:
    """Which of its counts a process has written last, so that none is written twice after a lost reply."""
    return f"sidekiq_py:counted:{token}"


def inbox(owner: str, queue_name: str) -> str:
    """Where a blocking move lands a job, for the instant until it is claimed into `in_flight`."""
    return f"sidekiq_py:inbox:{owner}:{queue_name}"


def lease(owner: str) -> str:
    """Exists while an owner is alive."""
    return f"sidekiq_py:lease:{owner}"


def newest(machine: str) -> str:
    """The owner that has entered last on a machine."""
    return f"sidekiq_py:newest:{machine}"


def declared(identity: str) -> str:
    """The JSON array of the classes that a process of ours can run; lives as long as its heartbeat."""
    return f"sidekiq_py:declared:{identity}"


def trend(queue_name: str) -> str:
    """Samples of a queue's size, one a minute: `<epoch s>:<size>:<latency s>`, the newest at the end."""
    return f"sidekiq_py:trend:{queue_name}"


def bulk_run(run_id: str) -> str:
    """What somebody does to many jobs: who, what, how far, and whether to stop."""
    return f"sidekiq_py:bulk_run:{run_id}"

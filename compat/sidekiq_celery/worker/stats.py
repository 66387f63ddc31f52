"""A worker's counts and resource usage: `inspect stats`, `memsample` and `memdump`."""

import logging
import os
import resource
from collections import Counter
from typing import TYPE_CHECKING, Any

from sidekiq_celery._config.censoring import sanitize_url
from sidekiq_celery._pidbox.plain_values import plain
from sidekiq_celery.worker.control_channel import Recipient, on_message
from sidekiq_celery.worker.scaling import scaling_facts
from sidekiq_py.extension import now_seconds
from sidekiq_py.worker import rss_kb_of

if TYPE_CHECKING:
    from sidekiq_celery.worker.remote_control import RemoteControl

logger = logging.getLogger("celery.worker.control")

_USAGE = (
    *("utime", "stime", "maxrss", "ixrss", "idrss", "isrss", "minflt", "majflt", "nswap", "inblock", "oublock"),
    *("msgsnd", "msgrcv", "nsignals", "nvcsw", "nivcsw"),
)
_SECRETS = ("password",)


def stats_of(remote_control: "RemoteControl") -> dict[str, Any]:
    """The reply of `stats`."""
    facts = facts_of_parent(remote_control)
    children = remote_control.ask_children("counts")
    total = Counter(remote_control.counts_of_the_gone)
    for answer in children:
        total.update(answer.value or {})
    pids = sorted(answer.pid for answer in children)
    return {
        "total": dict(total),
        "pid": facts.get("pid", os.getpid()),
        "clock": str(remote_control.app.clock),
        "uptime": round(now_seconds() - remote_control.worker_started_at),
        "pool": _pool(remote_control.worker, facts.get("processes", pids)),
        "broker": _broker(remote_control.connection),
        "prefetch_count": remote_control.worker.concurrency,
        "rusage": facts.get("rusage", {}),
        **({"autoscaler": facts["autoscaler"]} if facts.get("autoscaler") else {}),
        **facts.get("steps", {}),
    }


def facts_of_parent(remote_control: "RemoteControl") -> dict[str, Any]:
    """
    Facts about the parent: `pid` and `rusage`. For a prefork worker also `processes`, and `owners`, which maps the
    children's pids to the owner names of their jobs in flight. Empty if the parent does not answer.
    """
    parent = remote_control.ask_parent("parent_facts")
    return parent.value if parent is not None and parent.value else {}


def _pool(worker: Any, pids: list[int]) -> dict[str, Any]:
    about: dict[str, Any] = {
        "implementation": f"{worker.pool_cls.__module__}:{worker.pool_cls.__name__}",
        "max-concurrency": len(pids) if worker.pool_name == "prefork" else worker.concurrency,
        "processes": pids,
        "max-tasks-per-child": worker.max_tasks_per_child or "N/A",
        "put-guarded-by-semaphore": False,
        "timeouts": [worker.soft_time_limit or 0, worker.time_limit or 0],
        "writes": "N/A",
    }
    if worker.pool_name == "threads":
        about["threads"] = worker.concurrency
    return about


def _broker(connection: Any) -> Any:
    if connection is None:
        return "N/A"
    about = {key: value for key, value in connection.info().items() if key not in _SECRETS}
    about["alternates"] = [sanitize_url(url) for url in about.get("alternates") or ()]
    about["hostname"] = sanitize_url(about.get("hostname"))
    return plain(about)


def _facts_of_steps(worker: Any) -> dict[str, Any]:
    """Collect what the program's bootsteps report about themselves."""
    try:
        facts: dict[str, Any] = plain(
            {**worker.blueprint.info(worker), **worker.consumer.blueprint.info(worker.consumer)}
        )
    except Exception:
        logger.exception("the info() of a bootstep failed")
        return {}
    return facts


def memory_text(remote_control: "RemoteControl") -> str:
    """Measure the memory of all processes that run tasks, and remember it for `memory_report`."""
    kilobytes = sum(answer.value or 0 for answer in remote_control.ask_children("memory"))
    text = f"{kilobytes / 1024:.2f}MB"
    remote_control.memory_samples.append(text)
    return text


def memory_report(remote_control: "RemoteControl", most: int) -> str:
    """List the last samples, one per line."""
    samples = list(remote_control.memory_samples)[-max(most, 1) :]
    return "".join(f"- rss (sample {number}): {text}\n" for number, text in enumerate(samples)) or "no memsample yet\n"


@on_message("parent_facts")
def parent_facts(recipient: Recipient) -> dict[str, Any]:
    """Facts about the process that the operating system sees as the worker."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    facts: dict[str, Any] = {"pid": os.getpid(), "rusage": {name: getattr(usage, f"ru_{name}") for name in _USAGE}}
    facts["autoscaler"] = scaling_facts(recipient)
    facts["steps"] = _facts_of_steps(recipient.worker)
    if recipient.supervisor is not None:
        children = [child for child in recipient.supervisor.children if child.is_staying]
        facts["processes"] = [child.pid for child in children]
        facts["owners"] = {str(child.pid): child.owners[-1] for child in children if child.owners}
    return facts


@on_message("memory")
def memory(recipient: Recipient) -> int:
    """KB of memory that this process uses."""
    return rss_kb_of(os.getpid())


@on_message("counts")
def counts(recipient: Recipient) -> dict[str, int]:
    """How often each task was tried in this process."""
    return {} if recipient.launcher is None else recipient.launcher.metrics.attempts()


@on_message("gone")
def note_gone(recipient: Recipient, counts: dict[str, int]) -> None:
    """Add up, in remote control's process, the counts that a child reports when it exits."""
    if recipient.counts_of_the_gone is not None:
        recipient.counts_of_the_gone.update(counts)

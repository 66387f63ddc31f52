"""Worker names: `<name>@<host>`."""

import os
import socket
from functools import lru_cache
from typing import Any

from sidekiq_celery.utils.text import simple_format

__all__ = (
    "anon_nodename",
    "default_nodename",
    "gethostname",
    "host_format",
    "node_format",
    "nodename",
    "nodesplit",
    "worker_direct",
)

NODENAME_SEP = "@"
NODENAME_DEFAULT = "celery"
WORKER_DIRECT_QUEUE_FORMAT = "{hostname}.dq2"
WORKER_DIRECT_EXCHANGE = "C.dq2"


@lru_cache(maxsize=1)
def gethostname() -> str:
    """This host's name, with question marks for bytes that are not UTF-8: no message with them could be sent."""
    return socket.gethostname().encode(errors="replace").decode()


def worker_direct(hostname: Any) -> Any:
    """Return the `kombu.Queue` for the worker with that node name. A queue stays as it is."""
    from kombu.entity import Exchange, Queue

    if isinstance(hostname, Queue):
        return hostname
    return Queue(WORKER_DIRECT_QUEUE_FORMAT.format(hostname=hostname), Exchange(WORKER_DIRECT_EXCHANGE), hostname)


def nodename(name: str, hostname: str) -> str:
    """Join a name and a host to a node name."""
    return f"{name}{NODENAME_SEP}{hostname}"


def anon_nodename(hostname: str | None = None, prefix: str = "gen") -> str:
    """Return a node name for a process that is not a worker, as used in a task's `origin`."""
    return nodename(f"{prefix}{os.getpid()}", hostname or gethostname())


def nodesplit(name: str) -> tuple[str | None, str] | list[str]:
    """Split a node name into name and host. The name is None if there is only a host."""
    parts = name.split(NODENAME_SEP, 1)
    return (None, parts[0]) if len(parts) == 1 else parts


def default_nodename(hostname: str | None, default_name: str = NODENAME_DEFAULT) -> str:
    """Complete a host or a part of a node name to a node name."""
    name, host = nodesplit(hostname or "")
    return nodename(name or default_name, host or gethostname())


def node_format(s: str, name: str, **extra: Any) -> str:
    """Replace `%h`, `%n`, `%d`, `%p`, `%i` and `%I` in *s* with the parts of a node name."""
    shortname, host = nodesplit(name)
    return host_format(s, host, shortname or NODENAME_DEFAULT, p=name, **extra)


def _process_index(prefix: str = "", default: str = "0") -> str:
    from sidekiq_celery.utils.log import current_process_index

    index = current_process_index()
    return f"{prefix}{index}" if index else default


def host_format(s: str, host: str | None = None, name: str | None = None, **extra: Any) -> str:
    """Replace `%h` (host), `%n` (its first part, or the name), `%d` (its domain), `%i` and `%I` in *s*."""
    full = host or gethostname()
    first, _, domain = full.partition(".")
    keys = {
        "h": full,
        "n": name or first,
        "d": domain,
        "i": _process_index,
        "I": lambda: _process_index("-", ""),
        **extra,
    }
    return simple_format(s, keys)

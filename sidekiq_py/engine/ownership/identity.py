"""Who a process is in Redis: `<hostname>:<pid>:<12 hex>`. Source: Sidekiq 8.1.7, component.rb, `identity`."""

import os
import secrets
import socket


def hostname() -> str:
    """The dyno's name where there is one, else the host's."""
    return os.environ.get("DYNO") or socket.gethostname()


def new_identity() -> str:
    """A name that no other process bears, in this process or a later one of the same number."""
    return f"{hostname()}:{os.getpid()}:{secrets.token_hex(6)}"

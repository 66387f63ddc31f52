"""The identity of a process in Redis: `<hostname>:<pid>:<12 hex>`. Source: Sidekiq 8.1.7, component.rb, `identity`."""

import os
import socket


def hostname() -> str:
    """
    Return the name of the Heroku dyno if there is one, else that of the host. Linux lets it contain any bytes; those
    that are not UTF-8 become question marks, because no command with them could be sent.
    """
    name = os.environ.get("DYNO") or socket.gethostname()
    return name.encode(errors="replace").decode()


def new_identity() -> str:
    """Return an identity that no other worker has, not even in this process or a later one with the same PID."""
    return f"{hostname()}:{os.getpid()}:{os.urandom(6).hex()}"

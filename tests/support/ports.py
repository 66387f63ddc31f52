"""Ports of 127.0.0.1 for servers that tests start."""

import secrets
import socket

# Below those that the kernel gives to outgoing connections (32768 on Linux, 49152 on macOS): it can take seconds until
# a program listens on its port.
_PORTS = range(20000, 32000)


def free_port() -> int:
    """A TCP port that nobody listens on now, and that no outgoing connection gets."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def held_port(port: int) -> socket.socket:
    """Keep others from *port* while its server is down, until the socket is closed. Who connects is refused."""
    holder = socket.socket()
    # What is left of the server's connections does not count.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", port))
    return holder

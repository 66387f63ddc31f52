"""
StatsD metrics with the names of Sidekiq Pro, sent over UDP in DogStatsD's format.

    from sidekiq_py.contrib import statsd

    statsd.start("localhost", 8125)                         # where jobs are declared, so that each worker calls it

- `jobs.count`: jobs that started; `jobs.success`, `jobs.failure`: how they ended
- `jobs.perform`: how long each job ran, in milliseconds
- `jobs.expired`: tasks that did not run because their `expires` had passed
- `queue.size`, `queue.latency` (seconds): for each queue, once a minute; one worker of the fleet sends them
- `batches.created`, `batches.complete`, `batches.success`: for both languages, within ten seconds; also sent by that
  worker

Metrics of jobs have the tags `worker:<class>` and `queue:<name>`, metrics of queues have `queue:<name>`. A lost packet
is not sent again: nothing waits for a reply.

Source: the wiki of Sidekiq, "Pro Metrics"; docs.datadoghq.com, "DogStatsD over the network".
"""

import os
import re
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from sidekiq_py import telemetry
from sidekiq_py.errors import ConfigError
from sidekiq_py.telemetry import BATCH, JOB_EXCEPTION, JOB_EXPIRED, JOB_START, JOB_STOP, QUEUE, Measurements
from sidekiq_py.wire.json_writer import display_text

_ID = "sidekiq_py.contrib.statsd"
_NAMES = tuple(event.name for event in (JOB_START, JOB_STOP, JOB_EXCEPTION, JOB_EXPIRED, QUEUE, BATCH))
# Sidekiq Pro has no metric for deaths.
_BATCH_EVENTS = ("created", "complete", "success")
_MOST_CHARACTERS = 200
# Characters that would end a value, a tag or a line.
_UNSAFE = re.compile(r"[\s|,#:@]")


def start(host: str = "localhost", port: int = 8125, *, namespace: str = "", tags: Sequence[str] = ()) -> None:
    """
    Send metrics from now on; a second call changes the address and the options.

    Args:
        namespace: The prefix of each name, such as `myapp` in `myapp.jobs.count`.
        tags: Tags to add to every metric, such as `["env:production"]`.

    Raises:
        ConfigError: *tags* is a text, or there is no such port.
        OSError: The host is unknown.
    """
    global _sender
    if isinstance(tags, str):
        raise ConfigError(f"tags is {tags!r}; give a list: [{tags!r}]")
    if isinstance(port, int) and not 0 < port < 65536:
        raise ConfigError(f"port is {port!r}; give a number from 1 to 65535")
    sender = _Sender(host, port, namespace, tags)
    stop()
    _sender = sender
    telemetry.attach(_ID, _NAMES, sender)


def stop() -> None:
    """Stop sending metrics; does nothing if none are sent."""
    global _sender
    telemetry.detach(_ID)
    if _sender is not None:
        _sender.close()
    _sender = None


class _Sender:
    """A telemetry handler that sends metrics to one address."""

    def __init__(self, host: str, port: int, namespace: str, tags: Sequence[str]) -> None:
        try:
            self._address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        except OSError as error:
            raise OSError(
                f"StatsD's host {host!r} cannot be found: {error.strerror}. The port is an argument of its own"
            ) from error
        self._prefix = f"{namespace}." if namespace else ""
        self._tags = "".join(f",{tag}" for tag in tags)
        self._lock = threading.Lock()
        self._pid = 0
        self._socket: socket.socket | None = None

    def __call__(self, name: str, measurements: Measurements) -> None:
        """Send the metrics for a telemetry event."""
        if name == QUEUE.name:
            tags = f"queue:{_tag(measurements['queue'])}{self._tags}"
            self._send(
                f"{self._prefix}queue.size:{measurements['size']}|g|#{tags}",
                f"{self._prefix}queue.latency:{measurements['latency_seconds']:.3f}|g|#{tags}",
            )
        elif name == BATCH.name:
            if measurements["event"] in _BATCH_EVENTS:
                tags = f"|#{self._tags[1:]}" if self._tags else ""
                self._send(f"{self._prefix}batches.{measurements['event']}:1|c{tags}")
        else:
            self._send_job_metrics(name, measurements)

    def _send_job_metrics(self, name: str, measurements: Measurements) -> None:
        tags = self._tags_of(measurements["payload"], measurements["queue"])
        if name == JOB_START.name:
            self._send(f"{self._prefix}jobs.count:1|c|#{tags}")
        elif name == JOB_STOP.name:
            self._send(self._perform(measurements, tags), f"{self._prefix}jobs.success:1|c|#{tags}")
        elif name == JOB_EXPIRED.name:
            self._send(f"{self._prefix}jobs.expired:1|c|#{tags}")
        elif measurements["is_failure"]:
            self._send(self._perform(measurements, tags), f"{self._prefix}jobs.failure:1|c|#{tags}")

    def close(self) -> None:
        """Close the socket."""
        with self._lock:
            sender, self._socket = self._socket, None
        if sender is not None:
            sender.close()

    def _perform(self, measurements: Measurements, tags: str) -> str:
        return f"{self._prefix}jobs.perform:{measurements['seconds'] * 1000:.3f}|ms|#{tags}"

    def _tags_of(self, payload: Mapping[str, Any], queue: str) -> str:
        job_class = display_text(payload.get("wrapped") or payload["class"])
        return f"worker:{_tag(job_class)},queue:{_tag(queue)}{self._tags}"

    def _send(self, *lines: str) -> None:
        sender = self._socket
        if sender is None or self._pid != os.getpid():
            sender = self._open()
        try:
            sender.send("\n".join(lines).encode("utf-8", "replace"))
        except (BlockingIOError, ConnectionRefusedError):
            # No one is listening there now, or the listener is too slow.
            pass

    def _open(self) -> socket.socket:
        """Open a socket for this process: a child forked from one that has sent would share its parent's socket."""
        with self._lock:
            before = self._socket
            if before is not None and self._pid == os.getpid():
                # Another thread opened it meanwhile, and may be sending.
                return before
            family, kind, protocol, _, address = self._address
            sender = socket.socket(family, kind, protocol)
            sender.setblocking(False)
            sender.connect(address)
            self._socket, self._pid = sender, os.getpid()
            if before is not None:
                before.close()
            return sender


def _tag(text: str) -> str:
    # A datagram has a size limit, and any program may push a class name of a megabyte.
    text = text[:_MOST_CHARACTERS]
    # Keep the colons of Ruby's class names: a tag's name ends at the first colon.
    return _UNSAFE.sub("_", text.replace("::", "\0")).replace("\0", "::")


_sender: _Sender | None = None

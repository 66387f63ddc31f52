"""kombu's poller over all channels of a connection, which also watches for jobs that are ready for a channel."""

from contextlib import suppress
from typing import Any

from kombu.transport.redis import MultiChannelPoller
from kombu.utils.eventio import READ

_READY = "SIDEKIQ"


class Cycle(MultiChannelPoller):
    """kombu's poller, with one more descriptor for each channel that consumes Sidekiq's queues."""

    def on_poll_start(self) -> None:
        """Called before the consumer waits."""
        super().on_poll_start()
        self._ask()

    def get(self, callback: Any, timeout: float | None = None) -> Any:
        """Wait without an event loop. Before kombu 5.7, that did not start with `on_poll_start`."""
        self._ask()
        return super().get(callback, timeout)

    def _ask(self) -> None:
        for channel in self._channels:
            fd = channel.ready_fd()
            if fd is not None and fd not in self._fd_to_chan:
                self._fd_to_chan[fd] = (channel, _READY)
                self.poller.register(fd, READ)

    def on_readable(self, fileno: int) -> Any:
        """Handle a readable descriptor."""
        channel, kind = self._fd_to_chan.get(fileno, (None, None))
        if kind == _READY:
            return channel.deliver_next()
        return super().on_readable(fileno)

    def discard(self, channel: Any) -> None:
        """Remove a channel that is being closed."""
        for fd, (other, kind) in list(self._fd_to_chan.items()):
            if other is channel and kind == _READY:
                self._let_go(fd, other)
        super().discard(channel)

    def close(self) -> None:
        """Close the poller with all its channels."""
        for fd, (other, kind) in list(self._fd_to_chan.items()):
            if kind == _READY:
                self._let_go(fd, other)
        super().close()

    def _let_go(self, fd: int, channel: Any) -> None:
        del self._fd_to_chan[fd]
        if channel.is_inherited:
            # The parent process shares the poller and is still waiting on this descriptor.
            return
        # Under an event loop, use the loop's function, which also removes its reader.
        unregister = getattr(self, "_unregister_from_poll", self.poller.unregister)
        with suppress(KeyError, ValueError, OSError):
            unregister(fd)

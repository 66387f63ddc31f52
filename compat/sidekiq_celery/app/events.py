"""`app.events`: dispatchers, receivers and states bound to the app."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sidekiq_celery.contract import App
from sidekiq_celery.utils.objects import cached_property

__all__ = ("Events",)


class Events:
    """
    Sends and receives an app's events.

    Args:
        app: The app.
    """

    receiver_cls: Any = "sidekiq_celery.events.receiver:EventReceiver"
    dispatcher_cls: Any = "sidekiq_celery.events.dispatcher:EventDispatcher"
    state_cls: Any = "sidekiq_celery.events.state:State"

    def __init__(self, app: App | None = None) -> None:
        self.app: Any = app

    @cached_property
    def Receiver(self) -> Any:
        """Receives events: `Receiver(connection, handlers={"*": call}).capture()`."""
        return self.app.subclass_with_self(self.receiver_cls, reverse="events.Receiver")

    @cached_property
    def Dispatcher(self) -> Any:
        """Sends events over a kombu connection."""
        return self.app.subclass_with_self(self.dispatcher_cls, reverse="events.Dispatcher")

    @cached_property
    def State(self) -> Any:
        """The state of a cluster, built from its events."""
        return self.app.subclass_with_self(self.state_cls, reverse="events.State")

    @contextmanager
    def default_dispatcher(
        self, hostname: str | None = None, enabled: bool = True, buffer_while_offline: bool = False
    ) -> Iterator[Any]:
        """
        A dispatcher for a few events. This process's outbox sends them a moment later, together with others, so the
        dispatcher neither waits for Redis nor raises.
        """
        from sidekiq_celery.events.outbox import outbox_of

        dispatcher = self.Dispatcher(
            self.app.connection_for_write(), hostname, enabled=False, buffer_while_offline=buffer_while_offline
        )
        with dispatcher:
            dispatcher.producer, dispatcher.enabled = outbox_of(self.app), enabled
            yield dispatcher

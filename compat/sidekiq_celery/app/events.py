"""`app.events`: dispatchers, receivers and states that are bound to the app."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from sidekiq_celery.contract import App

__all__ = ("Events",)


class Events:
    """
    Events of an app, sent and received.

    Args:
        app: Whose.
    """

    receiver_cls: Any = "sidekiq_celery.events.receiver:EventReceiver"
    dispatcher_cls: Any = "sidekiq_celery.events.dispatcher:EventDispatcher"
    state_cls: Any = "sidekiq_celery.events.state:State"

    def __init__(self, app: App | None = None) -> None:
        self.app: Any = app

    @cached_property
    def Receiver(self) -> Any:
        """Takes events: `Receiver(connection, handlers={"*": call}).capture()`."""
        return self.app.subclass_with_self(self.receiver_cls, reverse="events.Receiver")

    @cached_property
    def Dispatcher(self) -> Any:
        """Sends events by a connection of kombu."""
        return self.app.subclass_with_self(self.dispatcher_cls, reverse="events.Dispatcher")

    @cached_property
    def State(self) -> Any:
        """What events say of a cluster."""
        return self.app.subclass_with_self(self.state_cls, reverse="events.State")

    @contextmanager
    def default_dispatcher(
        self, hostname: str | None = None, enabled: bool = True, buffer_while_offline: bool = False
    ) -> Iterator[Any]:
        """
        A dispatcher for a few events. They are sent a moment later by this process's outbox, together with others: it
        neither waits for Redis nor raises.
        """
        from sidekiq_celery.events.outbox import outbox_of

        dispatcher = self.Dispatcher(
            self.app.connection_for_write(), hostname, enabled=False, buffer_while_offline=buffer_while_offline
        )
        with dispatcher:
            dispatcher.producer, dispatcher.enabled = outbox_of(self.app), enabled
            yield dispatcher

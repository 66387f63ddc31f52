"""
Events: what happens to workers and tasks, for monitors such as Flower.

They go through Redis as Celery's do on kombu's Redis transport, so our monitors and Celery's read both. A worker's
process puts them into its `outbox`, which sends them together. `EventDispatcher` sends one at a time through kombu,
which is only imported when one of these names is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sidekiq_celery._submodules import submodule

if TYPE_CHECKING:
    from sidekiq_celery.events.dispatcher import EventDispatcher
    from sidekiq_celery.events.event import Event, event_exchange, get_exchange, group_from
    from sidekiq_celery.events.receiver import EventReceiver

__all__ = ("Event", "EventDispatcher", "EventReceiver", "event_exchange", "get_exchange", "group_from")

_MODULES = {"EventDispatcher": "dispatcher", "EventReceiver": "receiver"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        return submodule(__name__, name)
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'event')}"), name)

"""
The Protocols for an app, a task and a task's call. Parts use these, so that no part imports the app.

The type is `Any` wherever the app itself does not say more. What only one part needs from an app is declared in that
part (`_config.configuring.Unread`). This module may import nothing from this package.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol


class Settings(Protocol):
    """`app.conf`: settings, readable as attributes and as items."""

    def __getattr__(self, name: str) -> Any: ...

    def __getitem__(self, key: str) -> Any: ...

    def get(self, key: str, default: Any = None) -> Any: ...

    def value_set_for(self, key: str) -> bool: ...


class App(Protocol):
    """An app: its settings, tasks and connections."""

    main: str | None
    _tasks: Any

    @property
    def conf(self) -> Settings: ...

    @property
    def loader(self) -> Any: ...

    @property
    def timezone(self) -> Any: ...

    def now(self) -> datetime: ...

    def either(self, default_key: str, *defaults: Any) -> Any: ...

    @property
    def Task(self) -> Any: ...

    @property
    def AsyncResult(self) -> Any: ...

    @property
    def tasks(self) -> Any: ...

    @property
    def current_worker_task(self) -> Any: ...

    def task(self, /, **options: Any) -> Callable[[Callable[..., Any]], Any]: ...

    def signature(self, *args: Any, **kwargs: Any) -> Any: ...

    def finalize(self, auto: bool = False) -> None: ...

    @property
    def amqp(self) -> Any: ...

    @property
    def backend(self) -> Any: ...

    @property
    def events(self) -> Any: ...

    @property
    def clock(self) -> Any: ...

    @property
    def pool(self) -> Any: ...

    @property
    def producer_pool(self) -> Any: ...

    def connection_for_read(self, url: str | None = None, **kwargs: Any) -> Any: ...

    def connection_for_write(self, url: str | None = None, **kwargs: Any) -> Any: ...

    def _another(self, main: str, changes: dict[str, Any]) -> "App": ...


class Request(Protocol):
    """`task.request`: the call that a task is running for."""

    called_directly: bool

    def __getattr__(self, name: str) -> Any: ...


class Task(Protocol):
    """The current task."""

    name: str

    @property
    def request(self) -> Request: ...

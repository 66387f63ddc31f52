"""
Values that belong to a request and to every job that results from it: the user, the tenant, the locale.

    current = Attributes(user_id=None, tenant=None)
    persist(current)

    current.user_id = 7              # in the request; it is 7 again in each job that is enqueued from here on

Rails does the same with `ActiveSupport::CurrentAttributes` and `Sidekiq::CurrentAttributes.persist`. Both sides read
each other's values, matched by the order in which the groups are persisted. `persist_locale` carries `I18n.locale` in
the same way.

The payload's keys are `cattr`, then `cattr_1`, `cattr_2` for further groups. Up to Sidekiq 7 the value is an object; in
Sidekiq 8 it is a list of pairs in Active Job's encoding. We read both; what we write follows the release. Source:
Sidekiq 6.4.1 to 8.1.7, middleware/current_attributes.rb and middleware/i18n.rb.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from types import MappingProxyType
from typing import Any

from sidekiq_py import program
from sidekiq_py.active_job.arguments import deserialize, serialize
from sidekiq_py.active_job.execution import job_object_of
from sidekiq_py.active_job.rails import Rails
from sidekiq_py.active_job.values import Symbol
from sidekiq_py.client import sync_client
from sidekiq_py.errors import ConfigError
from sidekiq_py.wire.dialect import NEW_WRAPPER, OLD_WRAPPER, Dialect

Payload = dict[str, Any]

LOCALE = "locale"


class Attributes:
    """
    Named values of the running request or job; each thread and each asyncio task has its own.

    Args:
        defaults: Every attribute and its default value.
    """

    __slots__ = ("_defaults", "_values")

    _defaults: dict[str, Any]
    _values: ContextVar[Mapping[str, Any]]

    def __init__(self, **defaults: Any) -> None:
        own = [name for name in defaults if hasattr(type(self), name)]
        if own:
            raise ConfigError(f"{own[0]!r} cannot be the name of an attribute; {type(self).__name__} uses it itself")
        object.__setattr__(self, "_defaults", defaults)
        object.__setattr__(self, "_values", ContextVar("sidekiq_current_attributes", default=MappingProxyType({})))

    def __repr__(self) -> str:
        return f"<Attributes {self.attributes}>"

    def __getattr__(self, name: str) -> Any:
        if name not in self._defaults:
            raise AttributeError(f"there is no attribute {name!r}; declared are {', '.join(self._defaults) or 'none'}")
        return self._values.get().get(name, self._defaults[name])

    def __setattr__(self, name: str, value: Any) -> None:
        getattr(self, name)
        self._values.set({**self._values.get(), name: value})

    @property
    def attributes(self) -> dict[str, Any]:
        """The declared attributes that have been set here."""
        return {name: value for name, value in self._values.get().items() if name in self._defaults}

    @property
    def carried(self) -> dict[str, Any]:
        """Like `attributes`, plus values that came with the job under undeclared names; they go on to the next job."""
        return dict(self._values.get())

    @contextmanager
    def set(self, **values: Any) -> Iterator[None]:
        """Set values for the duration of a block."""
        for name in values:
            getattr(self, name)
        mark = self._values.set({**self._values.get(), **values})
        try:
            yield
        finally:
            self._values.reset(mark)

    def reset(self) -> None:
        """Reset all values to their defaults, as at the end of a request."""
        self._values.set({})

    def begin(self, values: Mapping[str, Any]) -> Token[Mapping[str, Any]]:
        """Replace all values by these. Returns a mark for `end`."""
        return self._values.set(dict(values))

    def end(self, mark: Token[Mapping[str, Any]]) -> None:
        """Restore the values from before `begin`."""
        self._values.reset(mark)


locale = Attributes(name=None)
"""The language of the running request or job: `locale.name`."""


def persist(*groups: Attributes) -> None:
    """
    Store these attributes with every job that this program enqueues, and restore them in every job that it runs.

    Args:
        groups: The groups, in the order in which the Ruby side names its classes. Names that only the other side
            declares are passed on, too, so `persist(Attributes())` passes everything from a job to the jobs that it
            enqueues.

    Raises:
        ConfigError: One of them is no `Attributes`.
    """
    for group in groups:
        if not isinstance(group, Attributes):
            raise ConfigError(f"persist has {group!r}; give Attributes, as in persist(Attributes(tenant=None))")
    keeper = _Keeper({key_at(index): group for index, group in enumerate(groups)}, _write, read)
    _install(keeper)
    # Outermost, for all other client middleware. Source: 8.1.7 prepends it, too; in 7.3.2 it was not there.
    program.client_middleware.prepend(keeper.push_again)


def persist_locale() -> None:
    """
    Store `locale.name` with each job under the key `locale`, as Rails does, and restore it from there. An Active Job
    has it in its job object, too, which is where Rails looks.
    """
    _install(_LocaleKeeper({LOCALE: locale}, lambda values, dialect: values["name"], lambda stored: {"name": stored}))
    program.current_locale = lambda: locale.name


def key_at(index: int) -> str:
    """The payload's key for the group at *index*."""
    return "cattr" if index == 0 else f"cattr_{index}"


def read(stored: Any) -> dict[str, Any]:
    """
    The values under a payload's `cattr`, in either form.

    Raises:
        DeserializationError: A value cannot be read, or its record could not be found.
    """
    pairs = [list(pair) for pair in stored.items()] if isinstance(stored, dict) else stored
    return {str(name): value for name, value in deserialize(pairs)}


def _write(values: dict[str, Any], dialect: Dialect) -> Any:
    if not dialect.current_attributes_as_pairs:
        return values
    return serialize([[Symbol(name), value] for name, value in values.items()], Rails.beside(dialect))


class _Keeper:
    """The middleware for a set of keys: `save` is client middleware, the object itself is server middleware."""

    def __init__(
        self,
        groups: Mapping[str, Attributes],
        write: Callable[[dict[str, Any], Dialect], Any],
        load: Callable[[Any], dict[str, Any]],
    ) -> None:
        self._groups = groups
        self._write = write
        self._load = load

    def save(self, job: Any, payload: Payload, queue: str, call_next: Callable[[], Any]) -> Any:
        """
        Add the values that have been set here to the payload.

        A payload that already has the key keeps it: a retry or a due job is pushed by a process with other values.
        """
        for key, group in self._groups.items():
            values = group.carried
            if values and payload.get(key) is None:
                payload[key] = self._write(values, sync_client.current().detection.last)
        return call_next()

    def push_again(self, job: Any, payload: Payload, queue: str, call_next: Callable[[], Any]) -> Any:
        """Push a retry or a due job with the values that it was enqueued with, for client middleware that uses them."""
        marks = []
        try:
            for key, group in self._groups.items():
                # What cannot be read fails the job when it runs; here it would hold up the push.
                with suppress(Exception):
                    if payload.get(key) is not None:
                        marks.append((group, group.begin(self._load(payload[key]))))
            return call_next()
        finally:
            for group, mark in marks:
                group.end(mark)

    def __call__(self, job: Any, payload: Payload, queue: str, call_next: Callable[[], Any]) -> Any:
        """Run a job in a thread with the values that it was enqueued with, and undo what it sets."""
        marks = self._begin(payload)
        try:
            return call_next()
        finally:
            self._end(marks)

    async def acall(self, job: Any, payload: Payload, queue: str, call_next: Callable[[], Any]) -> Any:
        """Like `__call__`, for an `async def` job."""
        marks = self._begin(payload)
        try:
            return await call_next()
        finally:
            self._end(marks)

    def _begin(self, payload: Payload) -> list[Token[Mapping[str, Any]]]:
        stored = {key: self._stored(payload, key) for key in self._groups}
        values = [{} if stored[key] is None else self._load(stored[key]) for key in self._groups]
        return [group.begin(own) for group, own in zip(self._groups.values(), values, strict=True)]

    def _stored(self, payload: Payload, key: str) -> Any:
        return payload.get(key)

    def _end(self, marks: list[Token[Mapping[str, Any]]]) -> None:
        for group, mark in zip(self._groups.values(), marks, strict=True):
            group.end(mark)


class _LocaleKeeper(_Keeper):
    """The middleware for the locale: an Active Job runs in that of its job object, as in Rails."""

    def _stored(self, payload: Payload, key: str) -> Any:
        job = job_object_of(payload) if payload.get("class") in (OLD_WRAPPER, NEW_WRAPPER) else None
        return (job or {}).get(key) or payload.get(key)


def _install(keeper: _Keeper) -> None:
    program.client_middleware.add(keeper.save)
    # Outermost, so that the values are set when the program's own middleware runs. Source: 8.1.7 prepends it.
    program.server_middleware.prepend(keeper)

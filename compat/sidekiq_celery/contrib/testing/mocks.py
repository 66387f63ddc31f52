"""
Mocks for tests. The messages are Celery's, for code of a program that reads them; no worker does here. To run a task,
send it and let `start_worker` run it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from numbers import Real
from typing import Any, Self
from unittest.mock import Mock

from sidekiq_celery.utils.ids import uuid

__all__ = ("ContextMock", "TaskMessage", "TaskMessage1", "task_message_from_sig")


def TaskMessage(
    name: str,
    id: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    callbacks: Any = None,
    errbacks: Any = None,
    chain: Any = None,
    shadow: str | None = None,
    utc: bool | None = None,
    **options: Any,
) -> Any:
    """Create a message of protocol 2. Further *options* become headers."""
    id = id or uuid()
    body = (args, kwargs or {}, {"callbacks": callbacks, "errbacks": errbacks, "chain": chain})
    return _message(id, {"id": id, "task": name, "shadow": shadow, **options}, body)


def TaskMessage1(
    name: str,
    id: str | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    callbacks: Any = None,
    errbacks: Any = None,
    chain: Any = None,
    **options: Any,
) -> Any:
    """Create a message of protocol 1. Further *options* go into its body."""
    id = id or uuid()
    body = {"task": name, "id": id, "args": args, "kwargs": kwargs or {}, "callbacks": callbacks, "errbacks": errbacks}
    return _message(id, {}, {**body, **options})


def task_message_from_sig(app: Any, sig: Any, utc: bool = True, TaskMessage: Callable[..., Any] = TaskMessage) -> Any:
    """Create the message of a signature. This takes links and times out of its options."""
    sig.freeze()
    callbacks, errbacks, countdown, eta, expires = (
        sig.options.pop(name, None) for name in ("link", "link_error", "countdown", "eta", "expires")
    )
    return TaskMessage(
        sig.task,
        id=sig.id,
        args=sig.args,
        kwargs=sig.kwargs,
        callbacks=[dict(one) for one in callbacks] if callbacks else None,
        errbacks=[dict(one) for one in errbacks] if errbacks else None,
        eta=_moment(app, countdown or eta),
        expires=_moment(app, expires),
        utc=utc,
        **sig.options,
    )


def _message(id: str, headers: dict[str, Any], body: Any) -> Any:
    from kombu.serialization import dumps

    message = Mock(name=f"TaskMessage-{id}", headers=headers, payload=body)
    message.content_type, message.content_encoding, message.body = dumps(body, serializer="json")
    return message


def _moment(app: Any, given: Any) -> Any:
    moment = app.now() + timedelta(seconds=float(given)) if isinstance(given, Real) else given
    return moment.isoformat() if isinstance(moment, datetime) else moment


class _ContextMock(Mock):
    # `with` looks both up in the class.
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None


def ContextMock(*args: Any, **kwargs: Any) -> Any:
    """Create a mock for `with` statements. Entering it returns the mock itself."""
    mock: Any = _ContextMock(*args, **kwargs)
    mock.attach_mock(_ContextMock(), "__enter__")
    mock.attach_mock(_ContextMock(), "__exit__")
    mock.__enter__.return_value = mock
    # A true value would swallow exceptions.
    mock.__exit__.return_value = None
    return mock

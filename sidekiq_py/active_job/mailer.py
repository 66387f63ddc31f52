"""Enqueue mails for Rails to deliver, as Action Mailer's `deliver_later` does."""

from collections.abc import Mapping, Sequence
from typing import Any

from sidekiq_py.active_job.enqueue import aenqueue, enqueue, new_job
from sidekiq_py.active_job.values import Keywords, symbolize
from sidekiq_py.errors import PayloadError

DELIVERY_JOB = "ActionMailer::MailDeliveryJob"


def deliver_later(
    mailer: str,
    action: str,
    /,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    delivery_job: str = DELIVERY_JOB,
    delivery_method: str = "deliver_now",
    **options: Any,
) -> str | None:
    """
    Have Rails send a mail: `UserMailer.with(params).welcome(*args, **kwargs).deliver_later`.

    Args:
        mailer: The mailer's class, such as "UserMailer".
        action: Its method.
        args, kwargs: Arguments for the method.
        params: Arguments for `with`; their keys become symbols.
        delivery_job: The class that the mailer sets as its `delivery_job`.
        options: As for `perform_later`. The queue is "default", as under `load_defaults 6.1` and later; before that it
            was "mailers".

    Returns:
        As for `perform_later`.

    Raises:
        PayloadError: *mailer* or *action* is not a name. Otherwise as `perform_later`.

    Source: Rails 6.0 to 8.1, actionmailer/message_delivery.rb and parameterized.rb.
    """
    _refuse_nameless(mailer, action)
    keywords = _keywords(args, kwargs, params)
    return enqueue(new_job(delivery_job, mailer, action, delivery_method, keywords, **options))


async def adeliver_later(
    mailer: str,
    action: str,
    /,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    delivery_job: str = DELIVERY_JOB,
    delivery_method: str = "deliver_now",
    **options: Any,
) -> str | None:
    """`deliver_later`, awaited."""
    _refuse_nameless(mailer, action)
    keywords = _keywords(args, kwargs, params)
    return await aenqueue(new_job(delivery_job, mailer, action, delivery_method, keywords, **options))


def _refuse_nameless(mailer: Any, action: Any) -> None:
    if not isinstance(mailer, str) or not mailer:
        raise PayloadError(f"the mailer is {mailer!r}; give its class's name, such as 'UserMailer'")
    if not isinstance(action, str) or not action:
        raise PayloadError(f"the action of {mailer} is {action!r}; give its method's name, such as 'welcome'")


def _keywords(args: Sequence[Any], kwargs: Mapping[str, Any] | None, params: Mapping[str, Any] | None) -> Keywords:
    for_method = [*args, Keywords(kwargs)] if kwargs else list(args)
    # `with` puts the params first; without `with` there are none.
    return Keywords(args=for_method) if params is None else Keywords(params=symbolize(params), args=for_method)

"""Enqueue mails for Rails to deliver, as Action Mailer's `deliver_later` does."""

from collections.abc import Mapping, Sequence
from typing import Any

from sidekiq_py.active_job.enqueue import aenqueue, enqueue, new_job
from sidekiq_py.active_job.values import Keywords, symbolize

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

    Source: Rails 6.0 to 8.1, actionmailer/message_delivery.rb and parameterized.rb.
    """
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
    keywords = _keywords(args, kwargs, params)
    return await aenqueue(new_job(delivery_job, mailer, action, delivery_method, keywords, **options))


def _keywords(args: Sequence[Any], kwargs: Mapping[str, Any] | None, params: Mapping[str, Any] | None) -> Keywords:
    for_method = [*args, Keywords(kwargs)] if kwargs else list(args)
    # `with` puts the params first; without `with` there are none.
    return Keywords(args=for_method) if params is None else Keywords(params=symbolize(params), args=for_method)

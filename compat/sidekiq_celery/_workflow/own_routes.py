"""
Routes for the internal tasks that continue a workflow. They go to Python workers, even if the next step runs in Ruby.

Ruby processes serve the queues of Ruby steps and do not know our internal tasks. There, such a task would fail with a
`NameError`, and the workflow would end with it.
"""

from typing import Any

from sidekiq_celery._wire.context import Context
from sidekiq_celery._wire.ruby_headers import RUBY_OPTION, reporting_queue
from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.signature import maybe_signature
from sidekiq_celery.contract import App

_OF_ROUTES = ("queue", "exchange", "routing_key", "priority")


def route_of(app: App, body: Any, request: Context) -> dict[str, Any]:
    """
    The options that send an internal task to where *body* would go, if *body* is a task of this app.

    Otherwise *body* begins in Ruby or at an unknown place, and the internal task goes to the queue that this worker
    took its own task from.

    Args:
        body: A signature.
        request: The request of the task that has ended.
    """
    first = maybe_signature(body, app=app)
    while kinds.is_group(first) or kinds.is_chain(first) or kinds.is_chord(first):
        members = list(first.tasks)
        if not members:
            break
        first = maybe_signature(members[0], app=app)
    if RUBY_OPTION in first.options or first.task not in app.tasks:
        return _where_it_came_from(app, request)
    asked = {key: first.options[key] for key in _OF_ROUTES if first.options.get(key)}
    return {"route_name": first.task, **asked}


def _where_it_came_from(app: App, request: Context) -> dict[str, Any]:
    place = request.delivery_info or {}
    if not place.get("routing_key"):
        return {"queue": reporting_queue(app)}
    if place.get("exchange"):
        # A Celery client sent it like this, so its routing key need not be a queue's name.
        return {"exchange": place["exchange"], "routing_key": place["routing_key"]}
    return {"queue": place["routing_key"]}

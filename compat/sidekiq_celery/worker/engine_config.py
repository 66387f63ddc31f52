"""Translates a worker's options into the engine's."""

from typing import Any

from sidekiq_celery._config.broker import redis_settings
from sidekiq_celery._wire.priorities import levels, steps
from sidekiq_celery.contract import App
from sidekiq_celery.worker.pools import Slots
from sidekiq_py.worker import CapsuleConfig, Config, QueueConfig
from sidekiq_py.worker import settings as program_settings

_WARM_SECONDS = 7 * 24 * 3600.0
"""A warm shutdown waits for tasks however long they take. The engine needs a number, and this is it."""


def queue_names(app: App) -> list[str]:
    """The queues to fetch from. With priorities, all queues of one level come before those of the next."""
    names = list(app.amqp.queues.consume_from)
    by_level = zip(*(levels(name, steps(app)) for name in names), strict=True)
    return [name for level in by_level for name in level]


def queue_configs(app: App) -> list[QueueConfig]:
    """The same queues, with weights that express the order in which they are served."""
    weight = 0 if _is_strict(app) else 1
    return [QueueConfig(name, weight) for name in queue_names(app)]


def engine_config(app: App, slots: Slots) -> Config:
    """
    Build the engine's configuration.

    Raises:
        ImproperlyConfigured: The broker is not Redis.
    """
    settings = program_settings()
    has_broker = bool(app.conf.broker_read_url or app.conf.broker_write_url)
    return Config(
        redis=redis_settings(app, app.conf.broker_read_url) if has_broker else settings.redis,
        sidekiq_version=settings.sidekiq_version,
        float_text=settings.float_text,
        extension_keys=settings.extension_keys,
        capsules=(CapsuleConfig(concurrency=slots.threads, queues=tuple(queue_configs(app))),),
        async_concurrency=slots.coroutines,
        processes=slots.processes or None,
        is_single_slot_child=slots.processes > 0,
        shutdown_timeout_seconds=_WARM_SECONDS,
        usr1_dumps_threads=True,
        max_job_bytes=int(app.conf.worker_max_body_bytes or 0),
        # Tasks write log lines of their own.
        job_log=False,
    )


def _is_strict(app: App) -> bool:
    """True if queues are served strictly in order. By default they take turns, as in Celery on Redis."""
    options: Any = app.conf.broker_transport_options or {}
    return options.get("queue_order_strategy") in ("priority", "sorted")

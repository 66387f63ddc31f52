"""The settings that have no effect here, or only in part, or are misspelled, and logging them once."""

import logging
from typing import Any

from sidekiq_celery import signals
from sidekiq_celery._config.censoring import sanitize_url
from sidekiq_celery._config.defaults import _TO_NEW_KEY, OPTIONS
from sidekiq_celery.contract import App
from sidekiq_celery.utils.functional import maybe_list
from sidekiq_celery.utils.imports import own_name

logger = logging.getLogger("celery.app.effects")

_OTHER_SERVICES = (
    *("arangodb_", "azureblockblob_", "cassandra_", "cosmosdbsql_", "couchbase_", "elasticsearch_", "gcs_", "mongodb_"),
    *("s3_", "security_", "database_short_lived_sessions"),
)
_REASONS = {
    "a job stays in Redis until its end is written, and comes back when its process dies": (
        *("task_acks_on_failure_or_timeout", "task_acks_on_failure", "task_acks_on_timeout"),
        *("task_reject_on_worker_lost", "task_retry_on_worker_lost"),
    ),
    "nothing is prefetched: a job stays in Redis until a slot is free": (
        *("worker_prefetch_multiplier", "worker_disable_prefetch", "worker_enable_prefetch_count_reduction"),
        *("worker_eta_task_limit", "worker_detect_quorum_queues"),
    ),
    "jobs are Sidekiq's payloads": ("task_default_delivery_mode", "task_remote_tracebacks"),
    "queues are Redis lists": (
        *("task_default_queue_type", "task_create_missing_queue_type", "task_create_missing_queue_exchange_type"),
        *("task_default_exchange_type", "broker_native_delayed_delivery_queue_type"),
        *("result_exchange", "result_exchange_type", "result_persistent"),
    ),
    "the engine manages its own connections": (
        *("broker_heartbeat", "broker_heartbeat_checkrate", "broker_login_method", "broker_failover_strategy"),
        *("broker_channel_error_retry", "redis_retry_on_timeout", "redis_socket_keepalive"),
        *("redis_backend_health_check_interval", "redis_client_name", "result_backend_thread_safe"),
        "worker_cancel_long_running_tasks_on_connection_loss",
    ),
    "stored workflow data lasts for 30 days": ("result_chord_expires",),
    "a task that has succeeded is gone, and its first success is kept": ("worker_deduplicate_successful_tasks",),
    "an idle worker stops at once": ("worker_enable_soft_shutdown_on_idle",),
    "results in memory belong to the process": ("cache_backend_options",),
    "the log truncates arguments by length": ("task_repr_maxlevels",),
    "a chord's body is enqueued by the last part; nothing polls": (
        *("result_chord_retry_interval", "result_chord_join_timeout"),
    ),
    "revoked tasks are kept in Redis": ("worker_state_db",),
    "beat keeps its state in Redis": ("beat_schedule_filename", "beat_sync_every"),
    "the engine manages its own processes": (
        *("worker_agent", "worker_autoscaler", "worker_consumer", "worker_timer", "worker_timer_precision"),
        *("worker_pool_putlocks", "worker_pool_start_method", "worker_lost_wait", "worker_proc_alive_timeout"),
    ),
}
_REASON_BY_NAME = {name: reason for reason, names in _REASONS.items() for name in names}

# How similar a name must be to a setting. Settings of other packages and of programs are further away.
_NEAR = 0.9

_logged: set[str] = set()


def without_effect(name: str) -> str | None:
    """The reason why the setting *name* has no effect here. Returns None if it has one."""
    if name.startswith(_OTHER_SERVICES):
        return "that service is not used here"
    return _REASON_BY_NAME.get(name)


def settings_without_effect(app: App) -> dict[str, str]:
    """The settings that the program has set although they have no effect, each with the reason."""
    # Some of Celery's settings have no default, and so are not among OPTIONS.
    reasons = ((name, without_effect(name)) for name in OPTIONS | _REASON_BY_NAME)
    found = {name: reason for name, reason in reasons if reason and app.conf.value_set_for(name)}
    if own_name(str(app.conf.worker_autoscaler)) == OPTIONS["worker_autoscaler"].default:
        # The default class does scale; any other class has no effect.
        found.pop("worker_autoscaler", None)
    return found


def misspelled_settings(app: App) -> dict[str, str]:
    """The settings of the program that do not exist, but nearly so, each with the name that was probably meant."""
    from difflib import get_close_matches

    conf = app.conf.finalize()
    prefix = conf.prefix or ""
    found = {}
    # Their values are not read: an object with settings may have properties that cannot be read now.
    for name in conf.without_defaults():
        in_namespace = bool(prefix) and name.startswith(prefix)
        bare = name.removeprefix(prefix).lower() if in_namespace else name
        is_known = bare in OPTIONS or name in _TO_NEW_KEY or name.startswith("_")
        near = "" if is_known else next(iter(get_close_matches(bare, OPTIONS, 1, _NEAR)), "")
        # `task_router` beside `task_routes` is a name of the program's own.
        if near and not conf.value_set_for(near):
            found[name] = conf.names_of(near)[0] if in_namespace else near
    return found


def servers_left_out(app: App) -> dict[str, str]:
    """The servers in `broker_url` after the first one, to which kombu would fail over. Sentinels all count."""
    servers = ";".join(maybe_list(app.conf.broker_write_url) or ()).split(";")
    is_sentinel = servers[0].partition("://")[0].endswith("sentinel")
    return {"broker_url": ", ".join(map(sanitize_url, servers[1:]))} if len(servers) > 1 and not is_sentinel else {}


def log_settings_without_effect(app: App) -> None:
    """Log the settings without effect and those that are misspelled, each once per process."""
    left_out = _not_logged(servers_left_out(app))
    if left_out:
        logger.warning(
            "of the servers in broker_url, only the first one is used, not %s: each Redis has jobs of its own. For a "
            "failover, name sentinels: broker_url = 'sentinel://host1:26379;sentinel://host2:26379/0', and "
            "broker_transport_options = {'master_name': 'mymaster'}",
            left_out["broker_url"],
        )
    wrong = _not_logged(misspelled_settings(app))
    if wrong:
        named = "; ".join(f"{name} (did you mean {near}?)" for name, near in wrong.items())
        logger.warning("there are no such settings: %s", named)
    found = _not_logged(settings_without_effect(app))
    if found:
        logger.info(
            "settings without effect here: %s", "; ".join(f"{name} ({reason})" for name, reason in found.items())
        )


def _not_logged(found: dict[str, str]) -> dict[str, str]:
    """Those of the settings that have not been logged, which counts as done from now on."""
    new = {name: text for name, text in found.items() if name not in _logged}
    _logged.update(new)
    return new


def _log_for_worker(instance: Any = None, **_: Any) -> None:
    app = getattr(instance, "app", None)
    if app is not None:
        log_settings_without_effect(app)


def watch_workers() -> None:
    """Log them once a worker has set up its logging."""
    signals.celeryd_after_setup.connect(_log_for_worker, dispatch_uid="sidekiq_celery.effects")

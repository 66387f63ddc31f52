"""
Every setting that Celery knows: its default, its type and its old name.

Settings for other services (Cassandra, S3, …) are included, because settings files are shared, and a known name is not
a typo. `effects` lists the settings that have no effect.

Source: Celery 5.7.0, `celery.app.defaults`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar, NamedTuple

from sidekiq_celery.utils.serialization import strtobool

DEFAULT_PROCESS_LOG_FMT = "[%(asctime)s: %(levelname)s/%(processName)s] %(message)s"
DEFAULT_TASK_LOG_FMT = "[%(asctime)s: %(levelname)s/%(processName)s] %(task_name)s[%(task_id)s]: %(message)s"
DEFAULT_SECURITY_DIGEST = "sha256"

TYPES: dict[str, Callable[[Any], Any]] = {
    "string": str,
    "int": int,
    "float": float,
    "any": lambda value: value,
    "bool": strtobool,
    "dict": dict,
    "tuple": tuple,
    "list": list,
    "bytes": bytes,
}


@dataclass(frozen=True, slots=True)
class Option:
    """
    One setting.

    Args:
        default: The value if it is not set.
        type: A key of `TYPES`.
        old: The old name, if it is not made by the rule: the new one in capitals, with another prefix for some groups.
    """

    default: Any = None
    type: str = "string"
    old: str = ""

    typemap: ClassVar[Mapping[str, Callable[[Any], Any]]] = TYPES

    def to_python(self, value: Any) -> Any:
        """Convert a command-line string to the setting's type."""
        return TYPES[self.type](value)


OPTIONS: dict[str, Option] = {
    "accept_content": Option(("json",), "list", old="CELERY_ACCEPT_CONTENT"),
    "result_accept_content": Option(None, "list", old="RESULT_ACCEPT_CONTENT"),
    "enable_utc": Option(True, "bool"),
    "imports": Option((), "tuple", old="CELERY_IMPORTS"),
    "include": Option((), "tuple", old="CELERY_INCLUDE"),
    "timezone": Option(None, "string", old="CELERY_TIMEZONE"),
    "beat_enable_remote_control": Option(False, "bool"),
    "beat_remote_control_max_tick_age": Option(None, "float"),
    "beat_max_loop_interval": Option(0, "float"),
    "beat_schedule": Option({}, "dict"),
    "beat_scheduler": Option("sidekiq_celery.beat:PersistentScheduler", "string"),
    "beat_schedule_filename": Option("celerybeat-schedule", "string"),
    "beat_sync_every": Option(0, "int"),
    "beat_cron_starting_deadline": Option(None, "int"),
    "broker_url": Option(None, "string"),
    "broker_read_url": Option(None, "string"),
    "broker_write_url": Option(None, "string"),
    "broker_transport": Option(None, "string"),
    "broker_transport_options": Option({}, "dict"),
    "broker_connection_timeout": Option(4, "float"),
    "broker_connection_retry": Option(True, "bool"),
    "broker_connection_retry_on_startup": Option(None, "bool"),
    "broker_connection_max_retries": Option(100, "int"),
    "broker_channel_error_retry": Option(False, "bool"),
    "broker_failover_strategy": Option(None, "string"),
    "broker_heartbeat": Option(120, "int"),
    "broker_heartbeat_checkrate": Option(3.0, "int"),
    "broker_login_method": Option(None, "string"),
    "broker_native_delayed_delivery_queue_type": Option("quorum", "string"),
    "broker_pool_limit": Option(10, "int"),
    "broker_pool_acquire_timeout": Option(None, "float"),
    "broker_use_ssl": Option(False, "bool"),
    "broker_host": Option(None, "string"),
    "broker_port": Option(None, "int"),
    "broker_user": Option(None, "string"),
    "broker_password": Option(None, "string"),
    "broker_vhost": Option(None, "string"),
    "cache_backend": Option(None, "string"),
    "cache_backend_options": Option({}, "dict"),
    "cassandra_entry_ttl": Option(None, "float"),
    "cassandra_keyspace": Option(None, "string"),
    "cassandra_port": Option(None, "string"),
    "cassandra_read_consistency": Option(None, "string"),
    "cassandra_servers": Option(None, "list"),
    "cassandra_bundle_path": Option(None, "string"),
    "cassandra_table": Option(None, "string"),
    "cassandra_write_consistency": Option(None, "string"),
    "cassandra_auth_provider": Option(None, "string"),
    "cassandra_auth_kwargs": Option(None, "string"),
    "cassandra_options": Option({}, "dict"),
    "s3_access_key_id": Option(None, "string"),
    "s3_secret_access_key": Option(None, "string"),
    "s3_bucket": Option(None, "string"),
    "s3_base_path": Option(None, "string"),
    "s3_endpoint_url": Option(None, "string"),
    "s3_region": Option(None, "string"),
    "azureblockblob_container_name": Option("celery", "string"),
    "azureblockblob_retry_initial_backoff_sec": Option(2, "int"),
    "azureblockblob_retry_increment_base": Option(2, "int"),
    "azureblockblob_retry_max_attempts": Option(3, "int"),
    "azureblockblob_base_path": Option("", "string"),
    "azureblockblob_connection_timeout": Option(20, "int"),
    "azureblockblob_read_timeout": Option(120, "int"),
    "gcs_bucket": Option(None, "string"),
    "gcs_project": Option(None, "string"),
    "gcs_base_path": Option("", "string"),
    "gcs_ttl": Option(0, "float"),
    "control_queue_ttl": Option(300.0, "float"),
    "control_queue_expires": Option(10.0, "float"),
    "control_queue_exclusive": Option(True, "bool"),
    "control_queue_durable": Option(False, "bool"),
    "control_exchange": Option("celery", "string"),
    "couchbase_backend_settings": Option(None, "dict"),
    "arangodb_backend_settings": Option(None, "dict"),
    "mongodb_backend_settings": Option(None, "dict"),
    "cosmosdbsql_database_name": Option("celerydb", "string"),
    "cosmosdbsql_collection_name": Option("celerycol", "string"),
    "cosmosdbsql_consistency_level": Option("Session", "string"),
    "cosmosdbsql_max_retry_attempts": Option(9, "int"),
    "cosmosdbsql_max_retry_wait_time": Option(30, "int"),
    "event_queue_expires": Option(60.0, "float"),
    "event_queue_ttl": Option(5.0, "float"),
    "event_queue_prefix": Option("celeryev", "string"),
    "event_queue_exclusive": Option(True, "bool"),
    "event_queue_durable": Option(False, "bool"),
    "event_serializer": Option("json", "string"),
    "event_exchange": Option("celeryev", "string"),
    "redis_backend_use_ssl": Option(None, "dict"),
    "redis_db": Option(None, "int"),
    "redis_host": Option(None, "string"),
    "redis_max_connections": Option(None, "int"),
    "redis_username": Option(None, "string"),
    "redis_password": Option(None, "string"),
    "redis_port": Option(None, "int"),
    "redis_socket_timeout": Option(120.0, "float"),
    "redis_socket_connect_timeout": Option(None, "float"),
    "redis_retry_on_timeout": Option(False, "bool"),
    "redis_socket_keepalive": Option(False, "bool"),
    "result_backend": Option(None, "string"),
    "result_cache_max": Option(-1, "int", old="CELERY_MAX_CACHED_RESULTS"),
    "result_compression": Option(None, "string"),
    "result_exchange": Option("celeryresults", "string"),
    "result_exchange_type": Option("direct", "string"),
    "result_expires": Option(timedelta(days=1), "float", old="CELERY_TASK_RESULT_EXPIRES"),
    "result_chord_expires": Option(None, "float"),
    "result_failure_expires": Option(None, "float"),
    "result_persistent": Option(None, "bool"),
    "result_extended": Option(False, "bool"),
    "result_serializer": Option("json", "string"),
    "result_backend_transport_options": Option({}, "dict"),
    "result_chord_retry_interval": Option(1.0, "float"),
    "result_chord_join_timeout": Option(3.0, "float"),
    "result_backend_max_sleep_between_retries_ms": Option(10000, "int"),
    "result_backend_max_retries": Option(float("inf"), "float"),
    "result_backend_base_sleep_between_retries_ms": Option(10, "int"),
    "result_backend_always_retry": Option(False, "bool"),
    "elasticsearch_retry_on_timeout": Option(None, "bool"),
    "elasticsearch_max_retries": Option(None, "int"),
    "elasticsearch_timeout": Option(None, "float"),
    "elasticsearch_save_meta_as_text": Option(True, "bool"),
    "security_certificate": Option(None, "string"),
    "security_cert_store": Option(None, "string"),
    "security_key": Option(None, "string"),
    "security_key_password": Option(None, "bytes"),
    "security_digest": Option("sha256", "string"),
    "database_url": Option(None, "string", old="CELERY_RESULT_DBURI"),
    "database_engine_options": Option({"pool_pre_ping": True, "pool_recycle": 3600}, "dict"),
    "database_engine_callback": Option(None, "any", old="DATABASE_ENGINE_CALLBACK"),
    "database_short_lived_sessions": Option(False, "bool", old="CELERY_RESULT_DB_SHORT_LIVED_SESSIONS"),
    "database_table_schemas": Option(None, "dict", old="DATABASE_TABLE_SCHEMAS"),
    "database_table_names": Option(None, "dict", old="CELERY_RESULT_DB_TABLENAMES"),
    "database_create_tables_at_setup": Option(True, "bool", old="DATABASE_CREATE_TABLES_AT_SETUP"),
    "task_acks_late": Option(False, "bool"),
    "task_acks_on_failure_or_timeout": Option(True, "bool"),
    "task_acks_on_failure": Option(None, "bool"),
    "task_acks_on_timeout": Option(None, "bool"),
    "task_always_eager": Option(False, "bool"),
    "task_annotations": Option(None, "any"),
    "task_compression": Option(None, "string", old="CELERY_MESSAGE_COMPRESSION"),
    "task_create_missing_queues": Option(True, "bool"),
    "task_create_missing_queue_type": Option("classic", "string"),
    "task_create_missing_queue_exchange_type": Option(None, "string"),
    "task_inherit_parent_priority": Option(False, "bool"),
    "task_default_delivery_mode": Option(2, "string"),
    "task_default_queue": Option("celery", "string"),
    "task_default_queue_type": Option("classic", "string"),
    "task_default_exchange": Option(None, "string"),
    "task_default_exchange_type": Option("direct", "string"),
    "task_default_routing_key": Option(None, "string"),
    "task_default_rate_limit": Option(None, "string"),
    "task_default_priority": Option(None, "string"),
    "task_eager_propagates": Option(False, "bool", old="CELERY_EAGER_PROPAGATES_EXCEPTIONS"),
    "task_ignore_result": Option(False, "bool"),
    "task_store_eager_result": Option(False, "bool"),
    # Not in Celery: how many failed tasks stay in Sidekiq's dead set.
    "task_keep_failed": Option(1000, "int", old="TASK_KEEP_FAILED"),
    "task_protocol": Option(2, "int", old="CELERY_TASK_PROTOCOL"),
    "task_publish_retry": Option(True, "bool", old="CELERY_TASK_PUBLISH_RETRY"),
    "task_publish_retry_policy": Option(
        {"max_retries": 3, "interval_start": 0, "interval_max": 1, "interval_step": 0.2},
        "dict",
        old="CELERY_TASK_PUBLISH_RETRY_POLICY",
    ),
    "task_queues": Option(None, "dict"),
    "task_queue_max_priority": Option(None, "int"),
    "task_reject_on_worker_lost": Option(None, "bool"),
    "task_retry_on_worker_lost": Option(False, "bool"),
    "task_remote_tracebacks": Option(False, "bool"),
    "task_repr_maxlevels": Option(3, "int"),
    "task_routes": Option(None, "any"),
    "task_send_sent_event": Option(False, "bool", old="CELERY_SEND_TASK_SENT_EVENT"),
    "task_serializer": Option("json", "string", old="CELERY_TASK_SERIALIZER"),
    "task_soft_time_limit": Option(None, "float", old="CELERYD_TASK_SOFT_TIME_LIMIT"),
    "task_time_limit": Option(None, "float", old="CELERYD_TASK_TIME_LIMIT"),
    "task_store_errors_even_if_ignored": Option(False, "bool"),
    "task_track_started": Option(False, "bool"),
    "task_allow_error_cb_on_chord_header": Option(False, "bool"),
    "worker_agent": Option(None, "string"),
    "worker_autoscaler": Option("sidekiq_celery.worker.autoscale:Autoscaler", "string"),
    "worker_cancel_long_running_tasks_on_connection_loss": Option(False, "bool"),
    "worker_soft_shutdown_timeout": Option(0.0, "float"),
    "worker_enable_soft_shutdown_on_idle": Option(False, "bool"),
    "worker_concurrency": Option(None, "any"),
    "worker_consumer": Option("sidekiq_celery.worker.consumer:Consumer", "string"),
    "worker_direct": Option(False, "bool", old="CELERY_WORKER_DIRECT"),
    "worker_disable_rate_limits": Option(False, "bool", old="CELERY_DISABLE_RATE_LIMITS"),
    "worker_deduplicate_successful_tasks": Option(False, "bool"),
    "worker_enable_remote_control": Option(True, "bool", old="CELERY_ENABLE_REMOTE_CONTROL"),
    "worker_hijack_root_logger": Option(True, "bool"),
    "worker_log_color": Option(None, "bool"),
    "worker_log_datefmt": Option(None, "string"),
    "worker_log_format": Option(DEFAULT_PROCESS_LOG_FMT, "string"),
    "worker_lost_wait": Option(10.0, "float", old="CELERYD_WORKER_LOST_WAIT"),
    # Not in Celery: a larger job is not read; 0 for no limit.
    "worker_max_body_bytes": Option(32 * 1024 * 1024, "int", old="WORKER_MAX_BODY_BYTES"),
    "worker_max_memory_per_child": Option(None, "int"),
    "worker_max_tasks_per_child": Option(None, "int"),
    "worker_pool": Option("prefork", "string"),
    "worker_pool_putlocks": Option(True, "bool"),
    "worker_pool_restarts": Option(False, "bool"),
    "worker_pool_start_method": Option("fork", "string"),
    "worker_proc_alive_timeout": Option(4.0, "float"),
    "worker_prefetch_multiplier": Option(4, "int"),
    "worker_eta_task_limit": Option(None, "int"),
    "worker_enable_prefetch_count_reduction": Option(True, "bool"),
    "worker_disable_prefetch": Option(False, "bool"),
    "worker_redirect_stdouts": Option(True, "bool", old="CELERY_REDIRECT_STDOUTS"),
    "worker_redirect_stdouts_level": Option("WARNING", "string", old="CELERY_REDIRECT_STDOUTS_LEVEL"),
    "worker_send_task_events": Option(False, "bool", old="CELERY_SEND_EVENTS"),
    "worker_state_db": Option(None, "string"),
    "worker_task_log_datefmt": Option(None, "string"),
    "worker_task_log_format": Option(DEFAULT_TASK_LOG_FMT, "string"),
    "worker_timer": Option(None, "string"),
    "worker_timer_precision": Option(1.0, "float"),
    "worker_detect_quorum_queues": Option(True, "bool"),
}

DEFAULTS: dict[str, Any] = {name: option.default for name, option in OPTIONS.items()}
SETTING_KEYS = set(OPTIONS)

_OLD_PREFIXES = {"beat": "CELERYBEAT", "database": "CELERY_RESULT", "task": "CELERY", "worker": "CELERYD"} | {
    group: f"CELERY_{group.upper()}"
    for group in ("arangodb", "cache", "couchbase", "elasticsearch", "event", "mongodb", "redis", "result", "security")
}


def _old_name(name: str) -> str:
    group, _, rest = name.partition("_")
    prefix = _OLD_PREFIXES.get(group)
    return name.upper() if prefix is None else f"{prefix}_{rest.upper()}"


_TO_OLD_KEY = {name: option.old or _old_name(name) for name, option in OPTIONS.items()}
_TO_NEW_KEY = {old: new for new, old in _TO_OLD_KEY.items()}
_OLD_DEFAULTS = {_TO_OLD_KEY[name]: default for name, default in DEFAULTS.items()}
_OLD_SETTING_KEYS = set(_TO_NEW_KEY)

_GROUPS = (
    *("beat", "broker", "cache", "cassandra", "s3", "azureblockblob", "gcs", "control", "couchbase", "arangodb"),
    *("mongodb", "cosmosdbsql", "event", "redis", "result", "elasticsearch", "security", "database", "task", "worker"),
)


def _grouped() -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for name, option in OPTIONS.items():
        group, _, rest = name.partition("_")
        if group in _GROUPS and name != "result_accept_content":
            groups.setdefault(group, {})[rest] = option
        else:
            groups[name] = option
    return groups


NAMESPACES = _grouped()
"""The settings grouped by the first word of their names; settings without a group are at the top level."""


class searchresult(NamedTuple):
    """The setting that `find` found, and where."""

    namespace: str | None
    key: str
    type: Any


def flatten(d: dict[str, Any], root: str = "") -> Any:
    """Yield the full name and the setting for each entry of `NAMESPACES`."""
    for key, value in d.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{root}{key}_")
        else:
            yield f"{root}{key}", value


def find_option(name: str) -> Option:
    """
    The setting with that full name.

    Raises:
        KeyError: There is no such setting.
    """
    return OPTIONS[name.lower()]


@cache
def find(name: str, namespace: str = "celery") -> searchresult:
    """
    Find a setting by the end of its name, such as `always_eager`; settings of *namespace* come first.

    Raises:
        KeyError: There is no such setting.
    """
    wanted, first = name.lower(), namespace.lower()
    group = NAMESPACES.get(first)
    if isinstance(group, dict) and wanted in group:
        return searchresult(first, wanted, group[wanted])
    for known_as, value in NAMESPACES.items():
        if known_as == wanted:
            return searchresult(None, known_as, value)
        if isinstance(value, dict) and wanted in value:
            return searchresult(known_as, wanted, value[wanted])
    return searchresult(None, wanted, OPTIONS[wanted])

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

__all__ = ("DEFAULTS", "NAMESPACES", "SETTING_KEYS", "Option", "find", "flatten")

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
        old: The old name; empty if that is the new name in capitals.
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
    "result_accept_content": Option(None, "list"),
    "enable_utc": Option(True, "bool"),
    "imports": Option((), "tuple", old="CELERY_IMPORTS"),
    "include": Option((), "tuple", old="CELERY_INCLUDE"),
    "timezone": Option(None, "string", old="CELERY_TIMEZONE"),
    "beat_enable_remote_control": Option(False, "bool", old="CELERYBEAT_ENABLE_REMOTE_CONTROL"),
    "beat_remote_control_max_tick_age": Option(None, "float", old="CELERYBEAT_REMOTE_CONTROL_MAX_TICK_AGE"),
    "beat_max_loop_interval": Option(0, "float", old="CELERYBEAT_MAX_LOOP_INTERVAL"),
    "beat_schedule": Option({}, "dict", old="CELERYBEAT_SCHEDULE"),
    "beat_scheduler": Option("sidekiq_celery.beat:PersistentScheduler", "string", old="CELERYBEAT_SCHEDULER"),
    "beat_schedule_filename": Option("celerybeat-schedule", "string", old="CELERYBEAT_SCHEDULE_FILENAME"),
    "beat_sync_every": Option(0, "int", old="CELERYBEAT_SYNC_EVERY"),
    "beat_cron_starting_deadline": Option(None, "int", old="CELERYBEAT_CRON_STARTING_DEADLINE"),
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
    "cache_backend": Option(None, "string", old="CELERY_CACHE_BACKEND"),
    "cache_backend_options": Option({}, "dict", old="CELERY_CACHE_BACKEND_OPTIONS"),
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
    "couchbase_backend_settings": Option(None, "dict", old="CELERY_COUCHBASE_BACKEND_SETTINGS"),
    "arangodb_backend_settings": Option(None, "dict", old="CELERY_ARANGODB_BACKEND_SETTINGS"),
    "mongodb_backend_settings": Option(None, "dict", old="CELERY_MONGODB_BACKEND_SETTINGS"),
    "cosmosdbsql_database_name": Option("celerydb", "string"),
    "cosmosdbsql_collection_name": Option("celerycol", "string"),
    "cosmosdbsql_consistency_level": Option("Session", "string"),
    "cosmosdbsql_max_retry_attempts": Option(9, "int"),
    "cosmosdbsql_max_retry_wait_time": Option(30, "int"),
    "event_queue_expires": Option(60.0, "float", old="CELERY_EVENT_QUEUE_EXPIRES"),
    "event_queue_ttl": Option(5.0, "float", old="CELERY_EVENT_QUEUE_TTL"),
    "event_queue_prefix": Option("celeryev", "string", old="CELERY_EVENT_QUEUE_PREFIX"),
    "event_queue_exclusive": Option(True, "bool", old="CELERY_EVENT_QUEUE_EXCLUSIVE"),
    "event_queue_durable": Option(False, "bool", old="CELERY_EVENT_QUEUE_DURABLE"),
    "event_serializer": Option("json", "string", old="CELERY_EVENT_SERIALIZER"),
    "event_exchange": Option("celeryev", "string", old="CELERY_EVENT_EXCHANGE"),
    "redis_backend_use_ssl": Option(None, "dict", old="CELERY_REDIS_BACKEND_USE_SSL"),
    "redis_db": Option(None, "int", old="CELERY_REDIS_DB"),
    "redis_host": Option(None, "string", old="CELERY_REDIS_HOST"),
    "redis_max_connections": Option(None, "int", old="CELERY_REDIS_MAX_CONNECTIONS"),
    "redis_username": Option(None, "string", old="CELERY_REDIS_USERNAME"),
    "redis_password": Option(None, "string", old="CELERY_REDIS_PASSWORD"),
    "redis_port": Option(None, "int", old="CELERY_REDIS_PORT"),
    "redis_socket_timeout": Option(120.0, "float", old="CELERY_REDIS_SOCKET_TIMEOUT"),
    "redis_socket_connect_timeout": Option(None, "float", old="CELERY_REDIS_SOCKET_CONNECT_TIMEOUT"),
    "redis_retry_on_timeout": Option(False, "bool", old="CELERY_REDIS_RETRY_ON_TIMEOUT"),
    "redis_socket_keepalive": Option(False, "bool", old="CELERY_REDIS_SOCKET_KEEPALIVE"),
    "result_backend": Option(None, "string", old="CELERY_RESULT_BACKEND"),
    "result_cache_max": Option(-1, "int", old="CELERY_MAX_CACHED_RESULTS"),
    "result_compression": Option(None, "string", old="CELERY_RESULT_COMPRESSION"),
    "result_exchange": Option("celeryresults", "string", old="CELERY_RESULT_EXCHANGE"),
    "result_exchange_type": Option("direct", "string", old="CELERY_RESULT_EXCHANGE_TYPE"),
    "result_expires": Option(timedelta(days=1), "float", old="CELERY_TASK_RESULT_EXPIRES"),
    "result_chord_expires": Option(None, "float", old="CELERY_RESULT_CHORD_EXPIRES"),
    "result_failure_expires": Option(None, "float", old="CELERY_RESULT_FAILURE_EXPIRES"),
    "result_persistent": Option(None, "bool", old="CELERY_RESULT_PERSISTENT"),
    "result_extended": Option(False, "bool", old="CELERY_RESULT_EXTENDED"),
    "result_serializer": Option("json", "string", old="CELERY_RESULT_SERIALIZER"),
    "result_backend_transport_options": Option({}, "dict", old="CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS"),
    "result_chord_retry_interval": Option(1.0, "float", old="CELERY_RESULT_CHORD_RETRY_INTERVAL"),
    "result_chord_join_timeout": Option(3.0, "float", old="CELERY_RESULT_CHORD_JOIN_TIMEOUT"),
    "result_backend_max_sleep_between_retries_ms": Option(
        10000, "int", old="CELERY_RESULT_BACKEND_MAX_SLEEP_BETWEEN_RETRIES_MS"
    ),
    "result_backend_max_retries": Option(float("inf"), "float", old="CELERY_RESULT_BACKEND_MAX_RETRIES"),
    "result_backend_base_sleep_between_retries_ms": Option(
        10, "int", old="CELERY_RESULT_BACKEND_BASE_SLEEP_BETWEEN_RETRIES_MS"
    ),
    "result_backend_always_retry": Option(False, "bool", old="CELERY_RESULT_BACKEND_ALWAYS_RETRY"),
    "elasticsearch_retry_on_timeout": Option(None, "bool", old="CELERY_ELASTICSEARCH_RETRY_ON_TIMEOUT"),
    "elasticsearch_max_retries": Option(None, "int", old="CELERY_ELASTICSEARCH_MAX_RETRIES"),
    "elasticsearch_timeout": Option(None, "float", old="CELERY_ELASTICSEARCH_TIMEOUT"),
    "elasticsearch_save_meta_as_text": Option(True, "bool", old="CELERY_ELASTICSEARCH_SAVE_META_AS_TEXT"),
    "security_certificate": Option(None, "string", old="CELERY_SECURITY_CERTIFICATE"),
    "security_cert_store": Option(None, "string", old="CELERY_SECURITY_CERT_STORE"),
    "security_key": Option(None, "string", old="CELERY_SECURITY_KEY"),
    "security_key_password": Option(None, "bytes", old="CELERY_SECURITY_KEY_PASSWORD"),
    "security_digest": Option("sha256", "string", old="CELERY_SECURITY_DIGEST"),
    "database_url": Option(None, "string", old="CELERY_RESULT_DBURI"),
    "database_engine_options": Option(
        {"pool_pre_ping": True, "pool_recycle": 3600}, "dict", old="CELERY_RESULT_ENGINE_OPTIONS"
    ),
    "database_engine_callback": Option(None, "any"),
    "database_short_lived_sessions": Option(False, "bool", old="CELERY_RESULT_DB_SHORT_LIVED_SESSIONS"),
    "database_table_schemas": Option(None, "dict"),
    "database_table_names": Option(None, "dict", old="CELERY_RESULT_DB_TABLENAMES"),
    "database_create_tables_at_setup": Option(True, "bool"),
    "task_acks_late": Option(False, "bool", old="CELERY_ACKS_LATE"),
    "task_acks_on_failure_or_timeout": Option(True, "bool", old="CELERY_ACKS_ON_FAILURE_OR_TIMEOUT"),
    "task_acks_on_failure": Option(None, "bool", old="CELERY_ACKS_ON_FAILURE"),
    "task_acks_on_timeout": Option(None, "bool", old="CELERY_ACKS_ON_TIMEOUT"),
    "task_always_eager": Option(False, "bool", old="CELERY_ALWAYS_EAGER"),
    "task_annotations": Option(None, "any", old="CELERY_ANNOTATIONS"),
    "task_compression": Option(None, "string", old="CELERY_MESSAGE_COMPRESSION"),
    "task_create_missing_queues": Option(True, "bool", old="CELERY_CREATE_MISSING_QUEUES"),
    "task_create_missing_queue_type": Option("classic", "string", old="CELERY_CREATE_MISSING_QUEUE_TYPE"),
    "task_create_missing_queue_exchange_type": Option(None, "string", old="CELERY_CREATE_MISSING_QUEUE_EXCHANGE_TYPE"),
    "task_inherit_parent_priority": Option(False, "bool", old="CELERY_INHERIT_PARENT_PRIORITY"),
    "task_default_delivery_mode": Option(2, "string", old="CELERY_DEFAULT_DELIVERY_MODE"),
    "task_default_queue": Option("celery", "string", old="CELERY_DEFAULT_QUEUE"),
    "task_default_queue_type": Option("classic", "string", old="CELERY_DEFAULT_QUEUE_TYPE"),
    "task_default_exchange": Option(None, "string", old="CELERY_DEFAULT_EXCHANGE"),
    "task_default_exchange_type": Option("direct", "string", old="CELERY_DEFAULT_EXCHANGE_TYPE"),
    "task_default_routing_key": Option(None, "string", old="CELERY_DEFAULT_ROUTING_KEY"),
    "task_default_rate_limit": Option(None, "string", old="CELERY_DEFAULT_RATE_LIMIT"),
    "task_default_priority": Option(None, "string", old="CELERY_DEFAULT_PRIORITY"),
    "task_eager_propagates": Option(False, "bool", old="CELERY_EAGER_PROPAGATES_EXCEPTIONS"),
    "task_ignore_result": Option(False, "bool", old="CELERY_IGNORE_RESULT"),
    "task_store_eager_result": Option(False, "bool", old="CELERY_STORE_EAGER_RESULT"),
    # Not in Celery: how many failed tasks stay in Sidekiq's dead set.
    "task_keep_failed": Option(1000, "int"),
    "task_protocol": Option(2, "int", old="CELERY_TASK_PROTOCOL"),
    "task_publish_retry": Option(True, "bool", old="CELERY_TASK_PUBLISH_RETRY"),
    "task_publish_retry_policy": Option(
        {"max_retries": 3, "interval_start": 0, "interval_max": 1, "interval_step": 0.2},
        "dict",
        old="CELERY_TASK_PUBLISH_RETRY_POLICY",
    ),
    "task_queues": Option(None, "dict", old="CELERY_QUEUES"),
    "task_queue_max_priority": Option(None, "int", old="CELERY_QUEUE_MAX_PRIORITY"),
    "task_reject_on_worker_lost": Option(None, "bool", old="CELERY_REJECT_ON_WORKER_LOST"),
    "task_retry_on_worker_lost": Option(False, "bool", old="CELERY_RETRY_ON_WORKER_LOST"),
    "task_remote_tracebacks": Option(False, "bool", old="CELERY_REMOTE_TRACEBACKS"),
    "task_repr_maxlevels": Option(3, "int", old="CELERY_REPR_MAXLEVELS"),
    "task_routes": Option(None, "any", old="CELERY_ROUTES"),
    "task_send_sent_event": Option(False, "bool", old="CELERY_SEND_TASK_SENT_EVENT"),
    "task_serializer": Option("json", "string", old="CELERY_TASK_SERIALIZER"),
    "task_soft_time_limit": Option(None, "float", old="CELERYD_TASK_SOFT_TIME_LIMIT"),
    "task_time_limit": Option(None, "float", old="CELERYD_TASK_TIME_LIMIT"),
    "task_store_errors_even_if_ignored": Option(False, "bool", old="CELERY_STORE_ERRORS_EVEN_IF_IGNORED"),
    "task_track_started": Option(False, "bool", old="CELERY_TRACK_STARTED"),
    "task_allow_error_cb_on_chord_header": Option(False, "bool", old="CELERY_ALLOW_ERROR_CB_ON_CHORD_HEADER"),
    "worker_agent": Option(None, "string", old="CELERYD_AGENT"),
    "worker_autoscaler": Option("sidekiq_celery.worker.autoscale:Autoscaler", "string", old="CELERYD_AUTOSCALER"),
    "worker_cancel_long_running_tasks_on_connection_loss": Option(
        False, "bool", old="CELERYD_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS"
    ),
    "worker_soft_shutdown_timeout": Option(0.0, "float", old="CELERYD_SOFT_SHUTDOWN_TIMEOUT"),
    "worker_enable_soft_shutdown_on_idle": Option(False, "bool", old="CELERYD_ENABLE_SOFT_SHUTDOWN_ON_IDLE"),
    "worker_concurrency": Option(None, "any", old="CELERYD_CONCURRENCY"),
    "worker_consumer": Option("sidekiq_celery.worker.consumer:Consumer", "string", old="CELERYD_CONSUMER"),
    "worker_direct": Option(False, "bool", old="CELERY_WORKER_DIRECT"),
    "worker_disable_rate_limits": Option(False, "bool", old="CELERY_DISABLE_RATE_LIMITS"),
    "worker_deduplicate_successful_tasks": Option(False, "bool", old="CELERYD_DEDUPLICATE_SUCCESSFUL_TASKS"),
    "worker_enable_remote_control": Option(True, "bool", old="CELERY_ENABLE_REMOTE_CONTROL"),
    "worker_hijack_root_logger": Option(True, "bool", old="CELERYD_HIJACK_ROOT_LOGGER"),
    "worker_log_color": Option(None, "bool", old="CELERYD_LOG_COLOR"),
    "worker_log_datefmt": Option(None, "string", old="CELERYD_LOG_DATEFMT"),
    "worker_log_format": Option(DEFAULT_PROCESS_LOG_FMT, "string", old="CELERYD_LOG_FORMAT"),
    "worker_lost_wait": Option(10.0, "float", old="CELERYD_WORKER_LOST_WAIT"),
    # Not in Celery: a larger job is not read; 0 for no limit.
    "worker_max_body_bytes": Option(32 * 1024 * 1024, "int"),
    "worker_max_memory_per_child": Option(None, "int", old="CELERYD_MAX_MEMORY_PER_CHILD"),
    "worker_max_tasks_per_child": Option(None, "int", old="CELERYD_MAX_TASKS_PER_CHILD"),
    "worker_pool": Option("prefork", "string", old="CELERYD_POOL"),
    "worker_pool_putlocks": Option(True, "bool", old="CELERYD_POOL_PUTLOCKS"),
    "worker_pool_restarts": Option(False, "bool", old="CELERYD_POOL_RESTARTS"),
    "worker_pool_start_method": Option("fork", "string", old="CELERYD_POOL_START_METHOD"),
    "worker_proc_alive_timeout": Option(4.0, "float", old="CELERYD_PROC_ALIVE_TIMEOUT"),
    "worker_prefetch_multiplier": Option(4, "int", old="CELERYD_PREFETCH_MULTIPLIER"),
    "worker_eta_task_limit": Option(None, "int", old="CELERYD_ETA_TASK_LIMIT"),
    "worker_enable_prefetch_count_reduction": Option(True, "bool", old="CELERYD_ENABLE_PREFETCH_COUNT_REDUCTION"),
    "worker_disable_prefetch": Option(False, "bool", old="CELERYD_DISABLE_PREFETCH"),
    "worker_redirect_stdouts": Option(True, "bool", old="CELERY_REDIRECT_STDOUTS"),
    "worker_redirect_stdouts_level": Option("WARNING", "string", old="CELERY_REDIRECT_STDOUTS_LEVEL"),
    "worker_send_task_events": Option(False, "bool", old="CELERY_SEND_EVENTS"),
    "worker_state_db": Option(None, "string", old="CELERYD_STATE_DB"),
    "worker_task_log_datefmt": Option(None, "string", old="CELERYD_TASK_LOG_DATEFMT"),
    "worker_task_log_format": Option(DEFAULT_TASK_LOG_FMT, "string", old="CELERYD_TASK_LOG_FORMAT"),
    "worker_timer": Option(None, "string", old="CELERYD_TIMER"),
    "worker_timer_precision": Option(1.0, "float", old="CELERYD_TIMER_PRECISION"),
    "worker_detect_quorum_queues": Option(True, "bool", old="CELERYD_DETECT_QUORUM_QUEUES"),
}

DEFAULTS: dict[str, Any] = {name: option.default for name, option in OPTIONS.items()}
SETTING_KEYS = set(OPTIONS)

_TO_OLD_KEY = {name: option.old or name.upper() for name, option in OPTIONS.items()}
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

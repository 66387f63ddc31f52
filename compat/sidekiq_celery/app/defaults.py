"""Every setting and its default, at Celery's path."""

from datetime import timedelta

from sidekiq_celery._config.defaults import (
    _OLD_DEFAULTS,
    _OLD_SETTING_KEYS,
    _TO_NEW_KEY,
    _TO_OLD_KEY,
    DEFAULT_PROCESS_LOG_FMT,
    DEFAULT_SECURITY_DIGEST,
    DEFAULT_TASK_LOG_FMT,
    DEFAULTS,
    NAMESPACES,
    OPTIONS,
    SETTING_KEYS,
    TYPES,
    Option,
    find,
    find_option,
    flatten,
    searchresult,
)
from sidekiq_celery.utils.serialization import strtobool

__all__ = (
    "DEFAULTS",
    "DEFAULT_PROCESS_LOG_FMT",
    "DEFAULT_SECURITY_DIGEST",
    "DEFAULT_TASK_LOG_FMT",
    "NAMESPACES",
    "OPTIONS",
    "SETTING_KEYS",
    "TYPES",
    "_OLD_DEFAULTS",
    "_OLD_SETTING_KEYS",
    "_TO_NEW_KEY",
    "_TO_OLD_KEY",
    "Option",
    "find",
    "find_option",
    "flatten",
    "searchresult",
    "strtobool",
    "timedelta",
)

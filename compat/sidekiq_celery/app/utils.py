"""Settings, reports and pickled apps, under the names that they have in Celery."""

from sidekiq_celery._config.censoring import filter_hidden_settings, sanitize_url
from sidekiq_celery._config.settings import Settings, detect_settings
from sidekiq_celery._config.settings import new_key_to_old as _new_key_to_old
from sidekiq_celery._config.settings import old_key_to_new as _old_key_to_new
from sidekiq_celery.app.base import _unpickle_app_v2
from sidekiq_celery.app.bug_report import appstr, bugreport
from sidekiq_celery.app.finding import find_app

__all__ = (
    "Settings",
    "_new_key_to_old",
    "_old_key_to_new",
    "_unpickle_app_v2",
    "appstr",
    "bugreport",
    "detect_settings",
    "filter_hidden_settings",
    "find_app",
    "sanitize_url",
)

"""The loader for the default app, which exists when a program creates none."""

import os
import warnings
from typing import Any

from sidekiq_celery.exceptions import NotConfigured
from sidekiq_celery.loaders.base import BaseLoader
from sidekiq_celery.utils.collections import DictAttribute
from sidekiq_celery.utils.serialization import strtobool

__all__ = ("DEFAULT_CONFIG_MODULE", "Loader")

DEFAULT_CONFIG_MODULE = "celeryconfig"

C_WNOCONF = bool(strtobool(os.environ.get("C_WNOCONF", "false")))
"""True to warn if there is no settings module."""


class Loader(BaseLoader):
    """Takes settings from the module `celeryconfig`, or the one that `CELERY_CONFIG_MODULE` names."""

    def setup_settings(self, settingsdict: Any) -> Any:
        """Return the settings as a mapping."""
        return DictAttribute(settingsdict)

    def read_configuration(self, fail_silently: bool = True, *args: Any, env: str = "CELERY_CONFIG_MODULE") -> Any:
        """
        Read the settings. They are empty if there is no such module.

        Raises:
            ImportError: There is no such module, and *fail_silently* is false.
        """
        name = os.environ.get(env, DEFAULT_CONFIG_MODULE)
        try:
            module = self._import_config_module(name)
        except ImportError:
            if not fail_silently:
                raise
            if C_WNOCONF:
                text = f"there is no module {name}; create it, or name another one in {env}"
                warnings.warn(NotConfigured(text), stacklevel=2)
            return self.setup_settings({})
        self.configured = True
        return self.setup_settings(module)

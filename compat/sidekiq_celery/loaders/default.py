"""The loader of the app that is there when a program makes none."""

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
"""Warn where there is no module of settings."""


class Loader(BaseLoader):
    """Settings come from the module `celeryconfig`, or the one that `CELERY_CONFIG_MODULE` names."""

    def setup_settings(self, settingsdict: Any) -> Any:
        """The settings as a mapping."""
        return DictAttribute(settingsdict)

    def read_configuration(self, fail_silently: bool = True, *args: Any, env: str = "CELERY_CONFIG_MODULE") -> Any:
        """
        The settings; none where there is no such module.

        Raises:
            ImportError: There is none, and *fail_silently* is false.
        """
        name = os.environ.get(env, DEFAULT_CONFIG_MODULE)
        try:
            module = self._import_config_module(name)
        except ImportError:
            if not fail_silently:
                raise
            if C_WNOCONF:
                text = f"there is no module {name}; make it, or name another in {env}"
                warnings.warn(NotConfigured(text), stacklevel=2)
            return self.setup_settings({})
        self.configured = True
        return self.setup_settings(module)

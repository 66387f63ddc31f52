"""Starts the extensions of a worker, and has processes know which payload keys each other's extensions own."""

import logging

from sidekiq_py.clock import monotonic
from sidekiq_py.config import Config
from sidekiq_py.engine.run.foreign_features import ForeignFeatures
from sidekiq_py.errors import ExtensionError, RedisReplyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.loaded_extensions import LoadedExtensions
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes import extension_keys

_log = logging.getLogger("sidekiq")

_EXCHANGE_EVERY_SECONDS = 60.0


class ExtensionStart:
    """
    The extensions of one process.

    Args:
        foreign: Turns away jobs that bear a key whose extension is not here.
    """

    def __init__(self, extensions: LoadedExtensions, foreign: ForeignFeatures, pool: Pool, hooks: Hooks) -> None:
        self._extensions = extensions
        self._foreign = foreign
        self._pool = pool
        self._hooks = hooks
        self._exchange_at = 0.0

    def start(self, config: Config) -> None:
        """
        Start all of them.

        What Redis refuses one of them, as where it is full, stops no worker: it is there to empty it.

        Raises:
            RedisError: Redis is out of reach.
        """
        self.exchange_keys()
        for extension in self._extensions:
            try:
                extension.start(self._pool, config)
            except RedisReplyError as error:
                self._hooks.report(ExtensionError(extension.name, "start", error), {"context": "Extension"})

    def exchange_keys(self) -> None:
        """Tell others which payload keys the extensions here own, and hear of theirs; once a minute at most."""
        if monotonic() < self._exchange_at:
            return
        self._exchange_at = monotonic() + _EXCHANGE_EVERY_SECONDS
        owned = {key: text for extension in self._extensions for key, text in extension.payload_keys.items()}
        own = {key: text for key, text in owned.items() if text}
        try:
            announced = extension_keys.exchange(self._pool, own)
        except RedisReplyError as error:
            # A user with few rights, or a Redis that is full: other processes' extensions are watched for later.
            _log.debug("the payload keys of extensions are not exchanged now: %s", error)
            return
        self._foreign.learn(announced, own.keys())

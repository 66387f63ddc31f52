"""Starts a worker's extensions, and exchanges with other processes which payload keys their extensions own."""

from sidekiq_py.clock import monotonic
from sidekiq_py.config import Config
from sidekiq_py.engine.run.foreign_features import ForeignFeatures
from sidekiq_py.errors import ExtensionError, RedisReplyError
from sidekiq_py.extension import Extension
from sidekiq_py.hooks import Hooks
from sidekiq_py.loaded_extensions import LoadedExtensions, naming
from sidekiq_py.logs import log
from sidekiq_py.redis_access.connection.pool import Pool
from sidekiq_py.redis_access.processes import extension_keys

_EXCHANGE_EVERY_SECONDS = 60.0


class ExtensionStart:
    """
    The extensions of one process.

    Args:
        foreign: Turns away jobs with a payload key whose extension is not loaded here.
    """

    def __init__(self, extensions: LoadedExtensions, foreign: ForeignFeatures, pool: Pool, hooks: Hooks) -> None:
        self._extensions = extensions
        self._foreign = foreign
        self._pool = pool
        self._hooks = hooks
        self._exchange_at = 0.0
        self._unstarted: list[tuple[Extension, Config]] = []

    def start(self, config: Config) -> None:
        """
        Start all extensions.

        If Redis refuses a command of one of them, the worker starts nevertheless. A full Redis, for example, needs
        workers to drain it. If the cause passes by itself, as a failover does, it starts after a heartbeat.

        Raises:
            RedisError: Redis is unreachable.
        """
        self._exchange_keys()
        self._unstarted = [(extension, config) for extension in self._extensions]
        self._start_rest()

    def after_beat(self) -> None:
        """Redis takes commands: exchange the payload keys, and start what it has refused so far."""
        self._exchange_keys()
        self._start_rest()

    def _start_rest(self) -> None:
        for unstarted in list(self._unstarted):
            extension, config = unstarted
            try:
                with naming(extension, "start"):
                    extension.start(self._pool, config)
            except RedisReplyError as error:
                self._hooks.report(ExtensionError(extension.name, "start", error), {"context": "Extension"})
                if not error.is_lasting:
                    continue
            self._unstarted.remove(unstarted)

    def _exchange_keys(self) -> None:
        """Publish the payload keys that the extensions here own, and read those of others; at most once a minute."""
        if monotonic() < self._exchange_at:
            return
        self._exchange_at = monotonic() + _EXCHANGE_EVERY_SECONDS
        owned = {key: text for extension in self._extensions for key, text in extension.payload_keys.items()}
        own = {key: text for key, text in owned.items() if text}
        try:
            announced = extension_keys.exchange(self._pool, own)
        except RedisReplyError as error:
            # The user has few rights, or Redis is full. It is tried again later.
            log.debug("could not exchange the payload keys of extensions: %s", error)
            return
        self._foreign.learn(announced, own.keys())

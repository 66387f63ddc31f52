"""
Jobs that use a feature of Sidekiq Pro, Enterprise or a gem. They are turned away before they start, because only that
feature's own code, in Ruby, can end them correctly.

1. The payload carries a key of Pro, Enterprise or a gem. The key's policy decides; if there are several keys, the
   strictest policy wins. If the program has not chosen a policy for the key, an extension that knows how such a job
   ends may take it over.
2. `refuse`: this process stops serving the queue in every capsule, then puts the job back to where the next fetch finds
   it, and logs an error. If it put the job back first, this process would fetch it again, and the next such job too.
3. `bury`: the job's bytes go to `dead`. `run`: the job runs like any other.

The queue stays unserved until the process is restarted or told to serve it again, because there is no way to see
whether all such jobs are gone from it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence, Set

from sidekiq_py.clock import monotonic
from sidekiq_py.config import Config, ExtensionPolicy
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.fetch.waiters import BLOCK_SECONDS
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.errors import ExtensionKeyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.logs import log, log_context
from sidekiq_py.registry import Payload
from sidekiq_py.wire.extensions import EXTENSION_KEYS, extension_keys_of

_CAREFUL_FIRST: tuple[ExtensionPolicy, ...] = ("refuse", "bury")


class ForeignFeatures:
    """
    The policies of one process for such jobs, and the queues it has refused because of them.

    Args:
        config: The policies and queues of the process.
        hooks: Receives an error for each queue that this process stops serving.
        fetchers: Returns the fetchers of all capsules; called when they are needed.
        on_unserved: Called with the name of each queue that this process stops serving.
        is_stopping: True once the process takes no more jobs from any queue.
        takes_over: True if an extension runs and ends jobs that carry this key.

    Attributes:
        watched: The keys whose policy is not `run`, for a quick check of each payload.
    """

    def __init__(
        self,
        config: Config,
        hooks: Hooks,
        *,
        fetchers: Callable[[], Sequence[Fetcher]],
        on_unserved: Callable[[str], None],
        is_stopping: Callable[[], bool],
        takes_over: Callable[[str, Payload], bool],
    ) -> None:
        self._wanted = config.extension_keys
        self._meanings = {key: meaning.stands_for for key, meaning in EXTENSION_KEYS.items()}
        self._policies: dict[str, ExtensionPolicy] = {}
        self.watched: frozenset[str] = frozenset()
        self._watch()
        self._refused: set[str] = set()
        self._served = config.queue_names
        self._hooks = hooks
        self._fetchers = fetchers
        self._on_unserved = on_unserved
        self._is_stopping = is_stopping
        self._takes_over = takes_over
        # After this time a blocking move has ended, or its connection has been given up.
        self._patience_seconds = BLOCK_SECONDS + config.redis.socket_timeout_seconds + 1
        self._lock = threading.Lock()

    def learn(self, announced: Mapping[str, str], own: Set[str]) -> None:
        """
        Also watch the keys of extensions that other processes have and this one lacks.

        Args:
            announced: Each key with what is left undone if its job runs without the extension.
            own: The keys of this process's extensions.
        """
        missing = announced.keys() - own - self._meanings.keys()
        if missing:
            self._meanings |= {key: announced[key] for key in sorted(missing)}
            self._watch()

    def _watch(self) -> None:
        self._policies = {key: self._wanted.get(key, "refuse") for key in self._meanings}
        self.watched = frozenset(key for key, policy in self._policies.items() if policy != "run")

    def decide(self, unit: UnitOfWork, payload: Payload) -> tuple[ExtensionPolicy, ExtensionKeyError] | None:
        """
        The policy for a job that carries one of the watched keys, and the error that explains it.

        Returns:
            None if the job may run.

        Raises:
            RedisError: The decision needs Redis, and Redis is unreachable.
        """
        found = reversed(extension_keys_of(payload, self._meanings))
        by_policy = {self._policies[key]: key for key in found if not self._is_taken_over(key, payload)}
        policy = next((policy for policy in _CAREFUL_FIRST if policy in by_policy), None)
        if policy is None:
            return None
        key = by_policy[policy]
        return policy, ExtensionKeyError(
            key,
            self._meanings[key],
            payload["class"],
            str(payload.get("jid")),
            unit.queue,
            is_rubys=key in EXTENSION_KEYS,
        )

    def _is_taken_over(self, key: str, payload: Payload) -> bool:
        return key not in self._wanted and self._takes_over(key, payload)

    def refuse(self, unit: UnitOfWork, payload: Payload, error: ExtensionKeyError, fetcher: Fetcher) -> None:
        """Stop serving the job's queue, then put the job back. Blocks until it is back."""
        is_first = self._stop_serving(unit.queue)
        self._wait_for_open_moves(unit.queue)
        fetcher.requeue([unit])
        if is_first:
            with log_context(payload):
                log.error("%s. The job went back to its queue. %s", error, self._state(unit.queue))
                self._hooks.call_error_handlers(
                    error, {"context": "A queue is no longer served", "job": payload, "jobstr": unit.raw}
                )

    def change(self, added: Set[str], dropped: Set[str], serve: Callable[[Set[str]], None]) -> None:
        """
        Change the queues that this process serves.

        Args:
            added: Queues to serve as well, even if they were refused before.
            dropped: Queues to stop serving.
            serve: Applies the change; called with the queues that stay refused.
        """
        with self._lock:
            self._refused -= added | dropped
            self._served = [name for name in dict.fromkeys((*self._served, *added)) if name not in dropped]
            serve(frozenset(self._refused))

    def _stop_serving(self, queue: str) -> bool:
        """Returns False if another thread has already stopped serving it."""
        with self._lock:
            if queue not in self._served:
                return False
            for fetcher in self._fetchers():
                fetcher.stop_serving(queue)
            self._served.remove(queue)
            self._refused.add(queue)
            self._on_unserved(queue)
        return True

    def _wait_for_open_moves(self, queue: str) -> None:
        """
        Wait until no blocking move of this process is open on the queue.

        Such a move would be served with the very job that goes back.
        """
        give_up_at = monotonic() + self._patience_seconds
        pause = threading.Event()
        while any(fetcher.awaits(queue) for fetcher in self._fetchers()):
            if self._is_stopping() or monotonic() > give_up_at:
                return
            pause.wait(0.005)

    def _state(self, queue: str) -> str:
        left = f"still serves {', '.join(self._served)}" if self._served else "has no queue left and runs nothing"
        return f"This process no longer serves {queue} until it is restarted; it {left}"

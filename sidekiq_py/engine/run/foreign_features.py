"""
Jobs that an extension of Sidekiq minds: turned away before they start, as only its own code, in Ruby, can end them as
it should.

1. A payload bears a key of Pro, Enterprise or a gem. The key's policy decides; of several keys the most careful one's.
   Where the program has chosen none, an extension that knows how such a job ends may take it over.
2. `refuse`: this process takes no more jobs from the queue in any capsule, puts the job back to where the next fetch
   finds it, and says so. Put back first, the job would come round to this process again, and so would the next one.
3. `bury`: its bytes go to `dead`. `run`: it is a job like any other.

A queue stays unserved until the process is restarted or told to begin with it again: whether all such jobs are gone
from it cannot be seen.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence, Set

from sidekiq_py.clock import monotonic
from sidekiq_py.config import Config, ExtensionPolicy
from sidekiq_py.engine.fetch.fetcher import Fetcher
from sidekiq_py.engine.fetch.waiters import BLOCK_SECONDS
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.errors import ExtensionKeyError
from sidekiq_py.hooks import Hooks
from sidekiq_py.logs import log_context
from sidekiq_py.registry import Payload
from sidekiq_py.wire.extensions import EXTENSION_KEYS, extension_keys_of

_log = logging.getLogger("sidekiq")

_CAREFUL_FIRST: tuple[ExtensionPolicy, ...] = ("refuse", "bury")


class ForeignFeatures:
    """
    What one process does with such jobs.

    Args:
        config: Its policies and queues.
        hooks: Told of each queue that is served no more.
        fetchers: Of all capsules, asked when it is needed.
        on_unserved: Called with the name of each queue that is served no more.
        is_stopping: The process takes no jobs from any queue.
        takes_over: Whether an extension runs and ends a job that bears this key.

    Attributes:
        watched: The keys that are not simply run, for a quick look at each payload.
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
        self._served = list(dict.fromkeys(name for capsule in config.capsules for name in capsule.queue_names))
        self._hooks = hooks
        self._fetchers = fetchers
        self._on_unserved = on_unserved
        self._is_stopping = is_stopping
        self._takes_over = takes_over
        # By then a blocking move has ended, or its connection is given up.
        self._patience_seconds = BLOCK_SECONDS + config.redis.socket_timeout_seconds + 1
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Extensions watched={sorted(self.watched)} served={self._served}>"

    def learn(self, announced: Mapping[str, str], own: Set[str]) -> None:
        """
        Watch the keys of extensions that other processes have and this one has not, too.

        Args:
            announced: Each with what is left undone without its extension.
            own: Those of this process's extensions.
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
        What is to be done with a job that bears one of the watched keys, and why; None: it is run.

        Raises:
            RedisError: That cannot be told now.
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
        """Serve the job's queue no more, and put the job back; returns when it is."""
        is_first = self._stop_serving(unit.queue)
        self._wait_for_open_moves(unit.queue)
        fetcher.requeue([unit])
        if is_first:
            with log_context(payload):
                _log.error("%s. The job went back to its queue. %s", error, self._state(unit.queue))
                self._hooks.tell(error, {"context": "A queue is served no more", "job": payload, "jobstr": unit.raw})

    def change(self, added: Set[str], dropped: Set[str], serve: Callable[[Set[str]], None]) -> None:
        """
        Other queues are to be served.

        Args:
            added: These, too, though they may have been refused.
            dropped: These no more.
            serve: Makes it so; it is handed the queues that stay refused.
        """
        with self._lock:
            self._refused -= added | dropped
            self._served = [name for name in dict.fromkeys((*self._served, *added)) if name not in dropped]
            serve(frozenset(self._refused))

    def _stop_serving(self, queue: str) -> bool:
        """False: another thread has seen to it."""
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
        """Until nothing of this process waits at the queue any more: it would be handed the very job that goes back."""
        give_up_at = monotonic() + self._patience_seconds
        pause = threading.Event()
        while any(fetcher.awaits(queue) for fetcher in self._fetchers()):
            if self._is_stopping() or monotonic() > give_up_at:
                return
            pause.wait(0.005)

    def _state(self, queue: str) -> str:
        left = f"still serves {', '.join(self._served)}" if self._served else "has no queue left and runs nothing"
        return f"This process no longer serves {queue} until it is restarted; it {left}"

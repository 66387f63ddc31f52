"""Queries workers: `app.control.inspect()`. Import the public names from `sidekiq_celery.app.control`."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kombu import matcher as matchers

from sidekiq_celery.contract import App
from sidekiq_celery.exceptions import DuplicateNodenameWarning
from sidekiq_celery.utils.text import pluralize

Reply = dict[str, Any]
Callback = Callable[[Reply], Any]


def flatten_reply(reply: Iterable[Reply]) -> Reply:
    """
    Merge `[{"a@host": 1}, {"b@host": 2}]` into `{"a@host": 1, "b@host": 2}`.

    Warns:
        DuplicateNodenameWarning: Two workers with the same name have replied. Only one of their replies is kept.
    """
    nodes: Reply = {}
    twice: set[str] = set()
    for item in reply:
        twice.update(name for name in item if name in nodes)
        nodes.update(item)
    if twice:
        warnings.warn(
            DuplicateNodenameWarning(
                f"Received multiple replies from node {pluralize(len(twice), 'name')}: {', '.join(sorted(twice))}. "
                "Give each worker its own name with -n, as in -n w1@%h."
            ),
            stacklevel=2,
        )
    return nodes


class Inspect:
    """
    Queries workers without changing anything.

    Args:
        destination: Node names; None for all. With a single name given as text, its reply is returned on its own.
        timeout: Seconds to wait for replies; each reply extends the wait.
        callback: Called with each reply as it arrives.
        connection: A kombu connection to use instead of one of the app's.
        limit: The number of replies to wait for.
        pattern: Matches node names; needs a `matcher`: `glob` or `pcre`.

    Each method returns `{node: reply}`, or None if no worker has replied.
    """

    app: Any = None

    def __init__(
        self,
        destination: Any = None,
        timeout: float | None = 1.0,
        callback: Callback | None = None,
        connection: Any = None,
        app: App | None = None,
        limit: int | None = None,
        pattern: str | None = None,
        matcher: str | None = None,
    ) -> None:
        self.app = app or self.app
        self.destination = destination
        self.timeout = timeout
        self.callback = callback
        self.connection = connection
        self.limit = limit
        self.pattern = pattern
        self.matcher = matcher

    def _prepare(self, reply: Sequence[Reply] | None) -> Any:
        if not reply:
            return None
        by_node = flatten_reply(reply)
        if self.destination and not isinstance(self.destination, list | tuple):
            return by_node.get(self.destination)
        if self.pattern:
            match: Any = matchers.match
            return {node: item for node, item in by_node.items() if match(node, self.pattern, self.matcher)}
        return by_node

    def _request(self, command: str, **kwargs: Any) -> Any:
        destination = [self.destination] if isinstance(self.destination, str) else self.destination
        return self._prepare(
            self.app.control.broadcast(
                command,
                arguments=kwargs,
                destination=destination,
                callback=self.callback,
                connection=self.connection,
                limit=self.limit,
                timeout=self.timeout,
                reply=True,
                pattern=self.pattern,
                matcher=self.matcher,
            )
        )

    def report(self) -> Any:
        """Details for a bug report: `{node: {"ok": text}}`."""
        return self._request("report")

    def clock(self) -> Any:
        """The logical clocks: `{node: {"clock": 12}}`."""
        return self._request("clock")

    def active(self, safe: bool | None = None) -> Any:
        """
        The tasks that are running: `{node: [{"id", "name", "type", "args", "kwargs", "hostname", "time_start", …}]}`.

        Args:
            safe: Show arguments as text.
        """
        return self._request("active", safe=safe)

    def scheduled(self, safe: bool | None = None) -> Any:
        """Tasks with an ETA. They wait in Redis for any worker: `{node: [{"eta", "priority", "request"}]}`."""
        return self._request("scheduled")

    def reserved(self, safe: bool | None = None) -> Any:
        """Tasks that a worker has fetched but not started, in the format of `active`."""
        return self._request("reserved")

    def stats(self) -> Any:
        """Each worker's counts and properties."""
        return self._request("stats")

    def revoked(self) -> Any:
        """Ids of revoked tasks."""
        return self._request("revoked")

    def registered(self, *taskinfoitems: str) -> Any:
        """
        The tasks that workers have registered.

        Args:
            taskinfoitems: Attributes to show for each task; by default `exchange`, `routing_key` and `rate_limit`.
        """
        return self._request("registered", taskinfoitems=taskinfoitems)

    registered_tasks = registered

    def ping(self, destination: Any = None) -> Any:
        """Ask which workers are running: `{node: {"ok": "pong"}}`."""
        if destination:
            self.destination = destination
        return self._request("ping")

    def active_queues(self) -> Any:
        """The queues that workers serve."""
        return self._request("active_queues")

    def query_task(self, *ids: Any) -> Any:
        """Where tasks are: `{node: {id: [state, info]}}`. Pass ids as arguments or as one list."""
        wanted = ids[0] if len(ids) == 1 and isinstance(ids[0], list | tuple) else ids
        return self._request("query_task", ids=wanted)

    def conf(self, with_defaults: bool = False) -> Any:
        """The workers' settings, without secrets."""
        return self._request("conf", with_defaults=with_defaults)

    def hello(self, from_node: str, revoked: Any = None) -> Any:
        """What running workers tell one that is starting."""
        return self._request("hello", from_node=from_node, revoked=revoked)

    def memsample(self) -> Any:
        """How much memory the workers' processes use."""
        return self._request("memsample")

    def memdump(self, samples: int = 10) -> Any:
        """The last results of `memsample`."""
        return self._request("memdump", samples=samples)

    def objgraph(self, type: str = "Request", n: int = 200, max_depth: int = 10) -> Any:
        """Not supported: workers refuse this command, as they have no such objects."""
        return self._request("objgraph", num=n, max_depth=max_depth, type=type)

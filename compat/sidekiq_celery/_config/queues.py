"""The queues of an app as kombu's `Queue` objects: the value of `app.amqp.queues`."""

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from kombu.entity import Exchange, Queue

from sidekiq_celery.utils.functional import maybe_list
from sidekiq_celery.utils.text import indent as textindent


class Queues(dict[str, Any]):
    """
    A dict from name to queue.

    Args:
        queues: A list of queues, or a mapping from name to a queue or its options.
        default_exchange, default_routing_key: Defaults for queues that have none.
        create_missing: True to add a queue when an unknown name is accessed.
        create_missing_queue_type, create_missing_queue_exchange_type, autoexchange: How to create such a queue.
        max_priority: The default for queues that do not specify one.
    """

    def __init__(
        self,
        queues: Any = None,
        default_exchange: Any = None,
        create_missing: bool = True,
        create_missing_queue_type: str | None = None,
        create_missing_queue_exchange_type: str | None = None,
        autoexchange: Any = None,
        max_priority: int | None = None,
        default_routing_key: str | None = None,
    ) -> None:
        super().__init__()
        self.aliases: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self.default_exchange = default_exchange
        self.default_routing_key = default_routing_key
        self.create_missing = create_missing
        self.create_missing_queue_type = create_missing_queue_type
        self.create_missing_queue_exchange_type = create_missing_queue_exchange_type
        self.autoexchange = Exchange if autoexchange is None else autoexchange
        self.max_priority = max_priority
        self._consume_from: dict[str, Any] | None = None
        given = queues or {}
        named = given if isinstance(given, Mapping) else {queue.name: queue for queue in given}
        for name, queue in named.items():
            if isinstance(queue, Queue):
                self.add(queue)
            else:
                self.add_compat(name, **queue)
        self._default_consume_from = dict(self)

    def __getitem__(self, name: str) -> Any:
        try:
            return self.aliases[name]
        except KeyError:
            return super().__getitem__(name)

    def __setitem__(self, name: str, queue: Any) -> None:
        if self.default_exchange and not queue.exchange:
            queue.exchange = self.default_exchange
        if not queue.routing_key:
            queue.routing_key = self.default_routing_key
        if self.max_priority is not None:
            queue.queue_arguments = {"x-max-priority": self.max_priority, **(queue.queue_arguments or {})}
        super().__setitem__(name, queue)
        if queue.alias:
            self.aliases[queue.alias] = queue

    def __missing__(self, name: str) -> Any:
        if self.create_missing:
            return self.add(self.new_missing(name))
        raise KeyError(name)

    def add(self, queue: Any, **kwargs: Any) -> Any:
        """Add a `Queue`, or a queue with that name and options."""
        return self._add(queue) if isinstance(queue, Queue) else self.add_compat(queue, **kwargs)

    def add_compat(self, name: str, **options: Any) -> Any:
        """Add a queue by name and options, as `task_queues` may contain it."""
        options.setdefault("routing_key", options.get("binding_key"))
        if options["routing_key"] is None:
            options["routing_key"] = name
        return self._add(Queue.from_dict(name, **options))

    def _add(self, queue: Any) -> Any:
        if self.default_exchange and (queue.exchange is None or queue.exchange.name == ""):
            queue.exchange = self.default_exchange
        self[queue.name] = queue
        return queue

    def format(self, indent: int = 0, indent_first: bool = True) -> str:
        """The queues that are consumed, in readable form."""
        lines = [
            f".> {queue.name:<16} exchange={queue.exchange.name}({queue.exchange.type}) key={queue.routing_key}"
            for _, queue in sorted(self.consume_from.items())
        ]
        if not lines:
            return ""
        if indent_first:
            return textindent("\n".join(lines), indent)
        return "\n".join([lines[0], textindent("\n".join(lines[1:]), indent)])

    def select_add(self, queue: Any, **kwargs: Any) -> Any:
        """Add a queue, and consume it even if a selection was made."""
        added = self.add(queue, **kwargs)
        self.consume_from[added.name] = added
        return added

    def select(self, include: str | Iterable[str] | None) -> None:
        """Consume only these queues."""
        if include:
            chosen = [self[name] for name in maybe_list(include)]
            self._consume_from = {queue.name: queue for queue in chosen}

    def deselect(self, exclude: str | Iterable[str] | None) -> None:
        """Do not consume these queues."""
        served = self.consume_from
        for name in maybe_list(exclude) or ():
            aliased = self.aliases.get(name)
            served.pop(aliased.name if aliased is not None else name, None)

    def new_missing(self, name: str) -> Any:
        """
        Create a queue for an unknown name.

        Raises:
            ValueError: The configured queue type is neither classic nor quorum.
        """
        kind = self.create_missing_queue_type
        if kind not in (None, "", "classic", "quorum"):
            raise ValueError(f"Invalid queue type '{kind}'. Valid types are 'classic' and 'quorum'.")
        if self.create_missing_queue_exchange_type:
            exchange = Exchange(name, self.create_missing_queue_exchange_type)
        else:
            exchange = self.autoexchange(name)
        return Queue(name, exchange, name, queue_arguments={"x-queue-type": kind} if kind == "quorum" else None)

    @property
    def consume_from(self) -> dict[str, Any]:
        """The queues that are consumed."""
        return self._default_consume_from if self._consume_from is None else self._consume_from

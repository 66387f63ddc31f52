"""A run of the bridge: opening its two ends, scanning the queues, and stopping."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from sidekiq_celery._config.broker import default_broker_url, is_redis, redis_settings
from sidekiq_celery._config.censoring import sanitize_url
from sidekiq_celery._wire.priorities import base_queue, levels, steps
from sidekiq_celery.bridge import moves
from sidekiq_celery.bridge.backward import Backward
from sidekiq_celery.bridge.fates import Judge
from sidekiq_celery.bridge.forward import Forward
from sidekiq_celery.bridge.layout import CeleryLayout
from sidekiq_celery.bridge.ledger import Ledger
from sidekiq_celery.bridge.message_lists import JobSet, MessageList, MessageStore, Side, Unacked
from sidekiq_celery.bridge.redis_source import Finisher, RedisRoute
from sidekiq_celery.bridge.transfer import TOTALS, AcrossServers, Carry, Claims, carry_within
from sidekiq_celery.contract import App
from sidekiq_celery.utils.ids import uuid
from sidekiq_py.errors import RedisConnectionError, RedisReplyError, ReplyLostError
from sidekiq_py.extension import Pool, RedisSettings, monotonic
from sidekiq_py.payloads import keys

logger = logging.getLogger("celery.bridge")

MOST_BYTES = 32 * 1024 * 1024

_SETS = (keys.SCHEDULE, keys.RETRY)
_LEAST_PAUSE_SECONDS = 0.25
_MOST_PAUSE_SECONDS = 5.0
_RETRY_SECONDS = 2.0
_LOG_SECONDS = 10.0
# A bridge may run for months after the last message.
_LOG_AT_REST_SECONDS = 600.0
_LOST_CONNECTION = (RedisConnectionError, ReplyLostError)
# Temporary errors of Redis: it is full, is loading its data, or is failing over.
_PASSING = frozenset({"OOM", "LOADING", "MASTERDOWN", "READONLY", "NOREPLICAS", "MISCONF", "BUSY", "TRYAGAIN"})


@dataclass(frozen=True, slots=True)
class BridgePlan:
    """
    What the bridge should do.

    Args:
        celery_url: The broker with Celery's queues; None if they are in the app's broker.
        transport_options: The options of that broker, as in `broker_transport_options`.
        queues: The queues' names at the source.
        is_reverse: True to move from Sidekiq's queues to Celery's.
        is_once: True to run until nothing is left to move; False to run until stopped.
        is_dry: True to only count.
        renames: A mapping from queue names to their names at the destination.
        unacked_after_seconds: Also take messages that Celery's workers have had for this long; None leaves those alone.
        most_bytes: Larger messages stay.
    """

    queues: Sequence[str]
    celery_url: str | None = None
    transport_options: Mapping[str, Any] = field(default_factory=dict)
    is_reverse: bool = False
    is_once: bool = False
    is_dry: bool = False
    renames: Mapping[str, str] = field(default_factory=dict)
    unacked_after_seconds: float | None = None
    most_bytes: int = MOST_BYTES

    @property
    def direction(self) -> str:
        """The direction as it is used in key names."""
        return "backward" if self.is_reverse else "forward"


class Route(Protocol):
    """Moves messages from one end to the other."""

    def look_through(self, ledger: Ledger, is_stopping: Callable[[], bool]) -> bool:
        """Scan all queues once. Returns True if anything was moved."""

    def close(self) -> None:
        """Release the connections."""


class Bridge:
    """
    One run of the bridge.

    Args:
        app: The app whose broker has Sidekiq's queues.
    """

    def __init__(self, app: App, plan: BridgePlan) -> None:
        self.ledger = Ledger()
        self._app = app
        self._plan = plan
        self._is_stopping = False
        # The error that was logged last; empty when a scan has succeeded since.
        self._logged_error = ""
        self._route: Route | None = None
        self._celery: Side | None = None

    def stop(self) -> None:
        """Stop after the current batch. Can be called from a signal handler."""
        self._is_stopping = True

    def run(self) -> None:
        """
        Move messages, until nothing is left or `stop` is called.

        Raises:
            RedisError: Redis refused a command, or could not be reached in a run that ends by itself.
        """
        logged_at, logged = monotonic(), ""
        try:
            while not self._is_stopping:
                began, before = monotonic(), self.ledger.count_moved
                is_more = self._look()
                if self._plan.is_dry or (self._plan.is_once and is_more is False):
                    break
                counts = f"{self.ledger.count_moved} moved, {self.ledger.count_left} left"
                if monotonic() - logged_at > (_LOG_SECONDS if counts != logged else _LOG_AT_REST_SECONDS):
                    logged_at, logged = monotonic(), counts
                    logger.info("bridge: %s", counts)
                if self.ledger.count_moved == before:
                    # Scanning the same remaining messages repeatedly must not keep Redis busy.
                    self._pause(min(max(_LEAST_PAUSE_SECONDS, 4 * (monotonic() - began)), _MOST_PAUSE_SECONDS))
            self._note_held_messages()
        finally:
            self._close()

    def totals(self) -> dict[str, int]:
        """What all bridges have moved so far: the count for each `<direction>:<queue>:<kind>`."""
        side = self._totals_side()
        reply = side.pool.command("HGETALL", side.key(TOTALS))
        side.pool.close()
        return {name.decode(errors="replace"): int(count) for name, count in zip(reply[::2], reply[1::2], strict=True)}

    def _look(self) -> bool | None:
        """Scan once. Returns whether there may be more, or None after an error that a continuous run survives."""
        try:
            if self._route is None:
                self._route = self._open()
            is_more = self._route.look_through(self.ledger, lambda: self._is_stopping)
            if self._logged_error:
                self._logged_error = ""
                logger.info("bridge: it works again")
            return is_more
        except Exception as error:
            lost = self._as_passing(error)
            ends_by_itself = self._plan.is_once or self._plan.is_dry
            if lost is None or (ends_by_itself and lost is error):
                raise
            if ends_by_itself:
                raise lost from error
            if str(lost) != self._logged_error:
                # Not at each try: an outage may last for hours.
                self._logged_error = str(lost)
                logger.warning("bridge: %s; trying again every %g seconds until it works", lost, _RETRY_SECONDS)
        self._close()
        self._pause(_RETRY_SECONDS)
        return None

    def _as_passing(self, error: Exception) -> Exception | None:
        """The error to report if one of the two servers cannot be reached or refuses temporarily; otherwise None."""
        if isinstance(error, _LOST_CONNECTION):
            return error
        if isinstance(error, RedisReplyError):
            return error if error.code in _PASSING else None
        if self._plan.celery_url is None or is_redis(self._plan.celery_url):
            return error if isinstance(error, OSError) else None
        connection = self._connect()
        if isinstance(error, (OSError, *connection.connection_errors, *connection.channel_errors)):
            return ConnectionError(f"Celery's broker {sanitize_url(self._plan.celery_url)} failed: {error}")
        return None

    def _pause(self, seconds: float) -> None:
        until = monotonic() + seconds
        while not self._is_stopping and monotonic() < until:
            time.sleep(min(0.1, seconds))

    def _close(self) -> None:
        if self._route is not None:
            self._route.close()
            self._route = None

    # ---- the two ends

    def _open(self) -> Route:
        plan = self._plan
        if plan.celery_url is None or is_redis(plan.celery_url):
            self._celery = self._celery_side()
            return self._redis_route(self._celery)
        if plan.is_reverse:
            return self._publishing_route()
        from sidekiq_celery.bridge.kombu_source import KombuRoute

        judge = Forward(self._app, plan.renames)
        return KombuRoute(
            self._connect, plan.queues, judge, self._sidekiq_side(), most_bytes=plan.most_bytes, is_dry=plan.is_dry
        )

    def _redis_route(self, celery: Side) -> Route:
        plan, sidekiq = self._plan, self._sidekiq_side()
        judge: Judge = self._backward() if plan.is_reverse else Forward(self._app, plan.renames).judge
        source, target = (sidekiq, celery) if plan.is_reverse else (celery, sidekiq)
        stores = self._sidekiq_stores(sidekiq) if plan.is_reverse else self._celery_stores(celery)
        probe = target.key(f"sidekiq_py:bridge:probe:{uuid()}")
        if plan.celery_url is None or moves.is_same_server(target.pool, source.pool, probe):
            within = partial(carry_within, plan.direction, target._replace(pool=source.pool))
            return self._route_by(stores, judge, within)
        across = AcrossServers(plan.direction, Claims(plan.direction, source), target)
        return self._route_by(stores, judge, across.carry, across)

    def _publishing_route(self) -> Route:
        from sidekiq_celery.bridge.publishing import Publishing, for_amqp

        plan, source = self._plan, self._sidekiq_side()
        judge = for_amqp(self._backward()) if _is_amqp(plan.celery_url or "") else self._backward()
        publishing = Publishing(self._app, self._connect, Claims(plan.direction, source))
        return self._route_by(self._sidekiq_stores(source), judge, publishing.carry, publishing)

    def _route_by(
        self, stores: Sequence[MessageStore], judge: Judge, carry: Carry, finisher: Finisher | None = None
    ) -> Route:
        plan = self._plan
        return RedisRoute(stores, plan.queues, judge, carry, finisher, is_once=plan.is_once, is_dry=plan.is_dry)

    def _backward(self) -> Judge:
        return Backward(self._app, self._plan.renames, self._layout).judge

    def _celery_stores(self, side: Side) -> list[MessageStore]:
        plan, layout = self._plan, self._layout
        stores: list[MessageStore] = [
            MessageList(side, side.key(key), queue, plan.most_bytes)
            for queue in plan.queues
            for key in layout.keys(queue)
        ]
        if plan.unacked_after_seconds is not None:
            stores.append(Unacked(side, layout, plan.queues, plan.unacked_after_seconds))
        return stores

    def _sidekiq_stores(self, side: Side) -> list[MessageStore]:
        app, plan = self._app, self._plan
        stores: list[MessageStore] = [
            MessageList(side, side.key(keys.queue(level)), queue, plan.most_bytes)
            for queue in plan.queues
            for level in levels(queue, steps(app))
        ]
        sets = (JobSet(side, name, plan.queues, lambda queue: base_queue(queue, steps(app))) for name in _SETS)
        return [*stores, *sets]

    @property
    def _layout(self) -> CeleryLayout:
        return CeleryLayout.of_options(self._options)

    @property
    def _options(self) -> Mapping[str, Any]:
        """The transport options of Celery's broker."""
        if self._plan.transport_options or self._plan.celery_url is not None:
            return self._plan.transport_options
        return self._app.conf.broker_transport_options or {}

    def _sidekiq_side(self) -> Side:
        settings = redis_settings(self._app)
        return Side(_pool(settings), f"{settings.namespace}:" if settings.namespace else "")

    def _celery_side(self) -> Side:
        url = self._plan.celery_url or self._app.conf.broker_write_url or default_broker_url()
        return Side(_pool(redis_settings(self._old_app(), url)), self._layout.prefix)

    def _totals_side(self) -> Side:
        is_to_redis = self._plan.celery_url is None or is_redis(self._plan.celery_url)
        return self._celery_side() if self._plan.is_reverse and is_to_redis else self._sidekiq_side()

    def _old_app(self) -> App:
        """An app for Celery's side, which can interpret the broker's URL and options."""
        if self._plan.celery_url is None:
            return self._app
        return self._app._another("bridge", {"broker_transport_options": dict(self._options)})

    def _connect(self) -> Any:
        """A connection to a broker other than Redis; it waits for confirmations if the broker supports them."""
        options = (
            {"confirm_publish": True, "on_blocked": _warn_of_blocking} if _is_amqp(self._plan.celery_url or "") else {}
        )
        return self._old_app().connection_for_read(self._plan.celery_url, transport_options=options)

    def _note_held_messages(self) -> None:
        """Note in the ledger how many messages are left to Celery's workers."""
        plan, side = self._plan, self._celery
        if plan.is_reverse or side is None or plan.unacked_after_seconds is not None:
            return
        index = side.key(self._layout.unacked_index)
        old = time.time() - self._layout.visibility_seconds
        count, overdue = side.pool.batch([("ZCARD", index), ("ZCOUNT", index, "-inf", old)])
        if count:
            text = "held by Celery's workers (unacked) and left to them; if these are gone, --unacked moves them, too"
            self.ledger.notes[text] = count
        if overdue:
            text = f"of these, taken more than {self._layout.visibility_seconds:g} seconds ago (visibility timeout)"
            self.ledger.notes[text] = overdue


def _warn_of_blocking(reason: str) -> None:
    logger.warning("bridge: Celery's broker takes no messages from anyone (%s); waiting until it does", reason)


def _is_amqp(url: str) -> bool:
    return url.partition("://")[0].lower() in ("amqp", "amqps", "pyamqp")


def _pool(settings: RedisSettings) -> Pool:
    return Pool(replace(settings, namespace=""))

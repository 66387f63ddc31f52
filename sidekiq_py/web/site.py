"""What all requests of one dashboard share: its settings, its templates, and recent readings of Redis."""

import hashlib
import logging
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeVar

from anyio import CapacityLimiter, Event, to_thread
from anyio.lowlevel import RunVar
from jinja2 import ChoiceLoader, DictLoader, Environment, PackageLoader, StrictUndefined

import sidekiq_py
from sidekiq_py import program
from sidekiq_py.api import JobRecord, Overview, OverviewReader, OverviewScope, TrendPoint
from sidekiq_py.api.source import pool_for
from sidekiq_py.clock import monotonic
from sidekiq_py.doctor import Report, examine
from sidekiq_py.errors import ConfigError, RedisConnectionError, RedisError, RedisReplyError, SidekiqError
from sidekiq_py.redaction import Redaction, current
from sidekiq_py.web import text
from sidekiq_py.web.access import Access
from sidekiq_py.web.background import BackgroundValue
from sidekiq_py.web.throttle import Throttle

T = TypeVar("T")

TrendsOf = Callable[[Sequence[str]], Sequence[str]]

ASSETS = Path(__file__).parent / "assets"
DEFAULT_SERVER = ""
_SAMPLES = 60
_LEAST_SECONDS = 0.9
_MOST_QUEUES = 500
_MOST_SEEN = 20
_MOST_THREADS = 20
_KEPT_SECONDS = 10.0
_EXAMINED_SECONDS = 60.0
# Of each, two digests.
_MOST_KNOWN = 50_000
# No dots, which lead out of the dashboard, and no double slashes, which begin the address of another site.
PATH = re.compile(r"(/[A-Za-z0-9_-]+)+")
_SERVER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,50}")

_log = logging.getLogger("sidekiq.web")


@dataclass(frozen=True, slots=True)
class PageAction:
    """
    Handles a form of an extension's page. Forms that other sites send never reach it.

    Args:
        path: The path that forms are sent to, such as `/cron/run`.
        run: Takes a `Visit` and returns the response, usually `visit.redirect(...)`. It must call `visit.audit(...)`
            before it changes anything.
        need: `operate`, or `edit` if it can run any job with any arguments.
    """

    path: str
    run: Callable[[Any], Any]
    need: Literal["operate", "edit"] = "operate"


@dataclass(frozen=True, slots=True)
class JobLink:
    """
    A link that an extension adds to the page of a job, for example to the job's batch.

    Args:
        label: What the link leads to, such as `Batch`.
        text: The link's text, such as the id of the batch.
        path: The path of the page, such as `/batches/one`.
        query: The page's parameters.
    """

    label: str
    text: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """
    A page that an extension adds: `Extension.pages` returns them.

    Args:
        title: The title in the navigation.
        path: The path of the page, such as `/cron`.
        render: Takes a `Visit` and returns the response, usually `visit.page(...)`.
        templates: Name → text of Jinja templates for `visit.page(name, …)`; they extend `base.html`. The block `live`,
            inside an element whose id is `live`, updates by itself.
        actions: The handlers of its forms.
        is_listed: True to list the page in the navigation.
        job_links: Takes the payload of a job that a page shows, which may contain anything, and returns `JobLink`s. It
            must not use Redis.
    """

    title: str
    path: str
    render: Callable[[Any], Any]
    templates: Mapping[str, str] = field(default_factory=dict)
    actions: tuple[PageAction, ...] = ()
    is_listed: bool = True
    job_links: Callable[[Mapping[str, Any]], Iterable[JobLink]] | None = None

    def __post_init__(self) -> None:
        for path in (self.path, *(action.path for action in self.actions)):
            if not PATH.fullmatch(path):
                raise ConfigError(f"a page's path is {path!r}; use one like /reports, of letters, digits and dashes")


class Watch:
    """
    Reads one Redis for the pages, and remembers the last minute of what it read.

    However many people look at a page, it reads Redis for that page once a second. It keeps everything in this
    process's memory, with a bound.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._lock = Lock()
        self._reader: OverviewReader | None = None
        self._read_at = 0.0
        self._seen: OrderedDict[str, tuple[float, Overview]] = OrderedDict()
        self._failure: RedisError | None = None
        self._failed_at = 0.0
        # Each with the time of its read.
        self._rates: deque[tuple[float, float, float]] = deque(maxlen=_SAMPLES)
        self._sizes: OrderedDict[str, deque[tuple[float, int]]] = OrderedDict()
        self._kept: dict[str, tuple[float, Any]] = {}
        self._trends: OrderedDict[str, tuple[float, Sequence[TrendPoint]]] = OrderedDict()

    def look(self, page: str, scope: OverviewScope, *, is_live: bool, trends_of: TrendsOf | None = None) -> Overview:
        """
        Read the current state, as far as a page shows it.

        Args:
            page: The key under which to keep the result for other visitors of the same page.
            scope: What the page shows.
            is_live: True for one of many repeated reads, for which a result less than a second old is good enough.
            trends_of: Takes the names of all queues and returns those whose `trend` will be needed.
        """
        came_at = monotonic()
        with self._lock:
            now = monotonic()
            if self._failure is not None and self._failed_at >= came_at:
                # With a server that hangs, each thread that waits here would otherwise wait for its own timeout.
                raise self._failure.with_traceback(None)
            if is_live and page in self._seen and now - self._seen[page][0] < _LEAST_SECONDS:
                return self._seen[page][1]
            if self._reader is None or now - self._read_at > _SAMPLES:
                # The last read was too long ago: a rate over that time would be meaningless.
                self._reader = OverviewReader(pool=self._pool)
                self._rates.clear()
                self._sizes.clear()
            # The reader knows the names of its last read. A page that follows an action must be up to date.
            wanted = partial(self._outdated, trends_of, now) if trends_of is not None else None
            read = self._reader.read if is_live else self._reader.read_anew
            try:
                seen = read(scope=scope, trends_of=wanted)
            except RedisError as error:
                self._failure, self._failed_at = error, monotonic()
                raise
            self._failure = None
            self._read_at = now
            for name, points in seen.trends.items():
                _keep(self._trends, name, (now, points), _MOST_QUEUES)
            self._remember(seen, now)
            _keep(self._seen, page, (now, seen), _MOST_SEEN)
            return seen

    def recall(self, name: str, read: Callable[[], T], *, is_live: bool) -> T:
        """
        The result of *read*, or with *is_live* a result from the last ten seconds.

        Args:
            name: The key under which to keep the result; one of only a few.
        """
        now = monotonic()
        with self._lock:
            known = self._kept.get(name)
        if is_live and known is not None and now - known[0] < _KEPT_SECONDS:
            kept: T = known[1]
            return kept
        value = read()
        with self._lock:
            self._kept[name] = (now, value)
        return value

    def rates(self) -> list[tuple[float, float]]:
        """Attempts and failures per second, at each read."""
        with self._lock:
            return [(processed, failed) for _, processed, failed in self._rates]

    def sizes(self, queue: str) -> list[int]:
        """The sizes of a queue at each read."""
        with self._lock:
            return [size for _, size in self._sizes.get(queue, ())]

    def trend(self, queue: str) -> Sequence[TrendPoint]:
        """A queue's size and latency at each minute of the last two hours, as far as Redis has them."""
        with self._lock:
            _, points = self._trends.get(queue, (0.0, ()))
            return points

    def worst_queues(self, page: str, count: int) -> TrendsOf:
        """A function that chooses the queues with the longest latency at the last read for *page*."""
        with self._lock:
            known = {queue.name: queue.latency for queue in self._seen[page][1].queues} if page in self._seen else {}
        return lambda names: sorted(names, key=lambda name: (-known.get(name, 0.0), name))[:count]

    def _outdated(self, trends_of: TrendsOf, now: float, names: Sequence[str]) -> list[str]:
        """The queues whose trend was not read within the last ten seconds. There is a new point only once a minute."""
        never = now - _KEPT_SECONDS, ()
        return [name for name in trends_of(names) if now - self._trends.get(name, never)[0] >= _KEPT_SECONDS]

    def _remember(self, seen: Overview, now: float) -> None:
        """Keep the rates and sizes at most once a second, whichever pages they were read for."""
        if seen.rates is not None and (not self._rates or now - self._rates[-1][0] >= _LEAST_SECONDS):
            self._rates.append((now, seen.rates.processed, seen.rates.failed))
        for queue in seen.queues:
            sizes = self._sizes.get(queue.name) or deque(maxlen=_SAMPLES)
            if queue.error is None and (not sizes or now - sizes[-1][0] >= _LEAST_SECONDS):
                sizes.append((now, queue.size))
            _keep(self._sizes, queue.name, sizes, _MOST_QUEUES)


def _keep(kept: OrderedDict[str, T], key: str, value: T, most: int) -> None:
    """Add a value, and drop the one that was added longest ago if there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


class Examined(NamedTuple):
    """
    What the doctor has found.

    Args:
        report: Its last report; None if there is none yet.
        at: When that was made.
        trouble: Why the last examination failed; empty if it did not.
    """

    report: Report | None = None
    at: datetime | None = None
    trouble: str = ""


def _examined(pool: Any, before: Examined | None) -> Examined:
    last = before or Examined()
    try:
        return Examined(examine(pool=pool), datetime.now(UTC))
    except SidekiqError as problem:
        return last._replace(trouble=str(problem))
    except Exception as problem:  # noqa: BLE001 - a bug in a check must not break the rest of the page
        _log.exception("the doctor failed; the Overview shows no new findings")
        return last._replace(trouble=f"{type(problem).__name__}: {problem}")


@dataclass(slots=True)
class Server:
    """
    One Redis server.

    Args:
        name: The name in addresses and in the menu; empty if there is only one server.
        pool: The Redis, as `pool=` of the data API takes it.

    Attributes:
        is_out_of_reach: True if the last page failed because Redis could not be reached.

    Raises:
        ConfigError: *pool* is nothing that can be connected to.
    """

    name: str
    pool: Any
    watch: Watch = field(init=False)
    examiner: BackgroundValue[Examined] = field(init=False)
    is_out_of_reach: bool = field(init=False, default=False)
    _threads: RunVar[CapacityLimiter] = field(init=False)

    def __post_init__(self) -> None:
        try:
            # The program's own Redis may be configured later.
            if self.pool is not None:
                pool_for(self.pool, None)
        except ConfigError as error:
            raise ConfigError(f"the server {self.name}: {error}" if self.name else str(error)) from None
        self.watch = Watch(self.pool)
        # A limiter belongs to one event loop, of asyncio or trio, and a program may serve the dashboard in several.
        # Older releases of anyio know the variable by its name.
        self._threads = RunVar(f"sidekiq_py.web {id(self)}")
        self.examiner = BackgroundValue("sidekiq.web/doctor", partial(_examined, self.pool), _EXAMINED_SECONDS)

    @property
    def address(self) -> str:
        """Which Redis this is, with its namespace, and without a user or a password."""
        try:
            pool = pool_for(self.pool, None)
        except ConfigError:
            # The page says what is wrong with the program's settings.
            return ""
        namespace = pool.settings.namespace
        return f"{pool.address}, namespace {namespace}" if namespace else pool.address

    async def run(self, work: Callable[[], T]) -> T:
        """Like `run_here`, but in one of this server's threads, so that a server that hangs blocks nothing else."""
        limiter = self._threads.get(None)
        if limiter is None:
            limiter = CapacityLimiter(_MOST_THREADS)
            self._threads.set(limiter)
        return await to_thread.run_sync(self.run_here, work, limiter=limiter)

    def run_here(self, work: Callable[[], T]) -> T:
        """Call *work*, which uses this Redis, and note whether Redis could be reached."""
        try:
            found = work()
        except RedisConnectionError:
            self.is_out_of_reach = True
            raise
        except RedisReplyError:
            self.is_out_of_reach = False
            raise
        self.is_out_of_reach = False
        return found


class Site:
    """
    One dashboard.

    Args:
        access: The access rules.
        pool, servers, redaction, title, trace_url, pages: As for `asgi_app`. The dashboard opens with the first server.

    Raises:
        ConfigError: As for `asgi_app`.
    """

    def __init__(
        self,
        access: Access,
        *,
        pool: Any = None,
        servers: Mapping[str, Any] | None = None,
        redaction: Redaction | None = None,
        title: str = "Sidekiq",
        trace_url: str = "",
        pages: Sequence[Page] = (),
    ) -> None:
        if pool is not None and servers is not None:
            raise ConfigError("pool and servers both say where Redis is; give one of them")
        if servers is not None and (not servers or not all(map(_SERVER_NAME.fullmatch, servers))):
            raise ConfigError("servers must map names (of letters, digits, dots and dashes) to Redis URLs")
        if trace_url and not (trace_url.startswith(("https://", "http://")) and "{trace_id}" in trace_url):
            raise ConfigError(
                f"trace_url is {trace_url!r}; give the address of a trace with {{trace_id}} for its id, as in "
                "https://traces.example.com/trace/{trace_id}"
            )
        if redaction is not None and not isinstance(redaction, Redaction):
            raise ConfigError(f"redaction is {redaction!r}; give a Redaction")
        self.title = title
        self.release = sidekiq_py.__version__
        self.trace_url = trace_url
        self.servers = {name: Server(name, given) for name, given in (servers or {DEFAULT_SERVER: pool}).items()}
        self._redaction = redaction
        self._known: tuple[Redaction | None, dict[bytes, bytes | None]] = (None, {})
        self.access = access
        self.throttle = Throttle()
        program.extensions.load_installed()
        self.pages = (*(page for extension in program.extensions for page in extension.pages()), *pages)
        # One for each open stream; setting it ends the stream.
        self.streams: set[Event] = set()
        assets = b"".join(path.read_bytes() for path in sorted(ASSETS.iterdir()))
        self.asset_version = hashlib.sha256(assets).hexdigest()[:12]
        self.templates = _environment({name: text for page in self.pages for name, text in page.templates.items()})

    @property
    def redaction(self) -> Redaction:
        """The policy for hiding values."""
        return self._redaction or current()

    def known_by(self, payload: bytes) -> bytes:
        """
        What the keys of jobs in addresses are made of: the payload, or a digest of what is shown of it if something is
        hidden. With a digest of all of it, a reader could check guesses at a hidden value.

        It is remembered, because a job is looked for among all that have its score, and to redact one takes 0.1 ms.
        """
        policy = self.redaction
        if self._known[0] is not policy or len(self._known[1]) >= _MOST_KNOWN:
            self._known = (policy, {})
        known, digest = self._known[1], hashlib.sha256(payload).digest()
        if digest not in known:
            shown = text.ShownJob(JobRecord(payload), policy).known_by
            known[digest] = None if shown == payload else hashlib.sha256(shown).digest()
        return known[digest] or payload

    @property
    def first_server(self) -> Server:
        """The server with which the dashboard opens."""
        return next(iter(self.servers.values()))


def _environment(own: Mapping[str, str]) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("sidekiq_py.web"), DictLoader(dict(own))]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text.plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    numbers, times = (text.number, text.duration, text.memory, text.byte_size), (text.stamp, text.iso, text.relative)
    environment.filters.update({one.__name__: one for one in (*numbers, *times, text.json_text, text.shortened)})
    environment.tests.update({"linkable": text.is_linkable, "sendable": text.is_sendable})
    environment.globals["parts"] = environment.get_template("parts.html").module
    return environment

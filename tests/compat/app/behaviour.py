"""
What an app does, printed as JSON: `python behaviour.py celery` and `python behaviour.py sidekiq_celery` print the same.

Run by `test_as_in_celery.py`; needs nothing but the package that is named and kombu.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

from kombu import Exchange, Queue

PACKAGE = sys.argv[1]
SOURCES: list[dict[str, Any]] = [
    {"CELERY_TASK_ALWAYS_EAGER": True},
    {"task_always_eager": True},
    {"CELERY_ALWAYS_EAGER": True},
    {"CELERY_RESULT_BACKEND": "redis://one"},
    {"BROKER_URL": "redis://two"},
    {"CELERY_BROKER_URL": "redis://three"},
    {"broker_url": "redis://four", "CELERY_RESULT_BACKEND": "redis://five"},
    {"task_acks_late": True, "CELERY_ACKS_LATE": True, "CELERYD_CONCURRENCY": 3},
    {"CELERY_ROUTES": {"a": "b"}, "CELERYBEAT_SCHEDULE": {"c": {}}, "CELERY_TASK_RESULT_EXPIRES": 5},
]
QUEUES = (
    Queue("mail", Exchange("letters"), routing_key="letters.key"),
    Queue("video", Exchange("media", type="topic"), routing_key="media.video.#"),
)
NAMES = ("x.one", "y", "z")
BERLIN = ZoneInfo("Europe/Berlin")


def part(name: str) -> Any:
    """A module of the package."""
    return import_module(f"{PACKAGE}.{name}")


def make_app(**settings: Any) -> Any:
    """An app that leaves the current one alone."""
    return import_module(PACKAGE).Celery("proj", set_as_current=False, fixups=[], **settings)


def answer_of(ask: Callable[[], Any]) -> str:
    """The answer, or the kind of the error."""
    try:
        return str(ask()).replace("sidekiq_celery", "celery")
    except Exception as error:  # noqa: BLE001 - the error is the answer
        return type(error).__name__


def settings_of_a_source(source: dict[str, Any], namespace: str | None) -> Any:
    """What a source gives under a namespace."""
    app = make_app()
    app.config_from_object(source, namespace=namespace)
    conf = app.conf
    asked = ("task_always_eager", "broker_url", "result_backend", "task_routes", "beat_schedule", "worker_concurrency")
    return [getattr(conf, name) for name in asked], ["task_always_eager" in conf, conf.value_set_for("broker_url")]


def settings() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Of every source, under every namespace; and how one app's are read and changed."""
    for namespace in (None, "CELERY", "celery", "CELERY_"):
        for source in SOURCES:
            yield f"{namespace} {source}", lambda s=source, n=namespace: settings_of_a_source(s, n)
    app = make_app()
    app.add_defaults({"task_default_queue": "added"})
    app.config_from_object({"task_default_queue": "source", "task_track_started": True})
    conf = app.conf
    for name in ("broker_url", "nope", "CELERY_TASK_SERIALIZER", "task_default_exchange", "timezone", "accept_content"):
        yield f"attribute {name}", lambda n=name: getattr(conf, n)
        yield f"item {name}", lambda n=name: conf[n]
        yield f"in {name}", lambda n=name: n in conf
    yield "defaults that were added", lambda: conf.task_default_queue
    yield "update", lambda: (conf.update(mine=1, task_acks_late=True), conf.mine, conf.task_acks_late)
    yield "setdefault", lambda: (conf.setdefault("mine", 2), conf.mine)
    yield "pop", lambda: (conf.pop("mine"), conf.get("mine"))
    yield "pop again", lambda: conf.pop("mine")
    yield "without defaults", lambda: sorted(key for key in conf.without_defaults() if key != "deprecated_settings")
    yield "find", lambda: [tuple(conf.find_option(n))[:2] for n in ("always_eager", "url", "acks_late", "timezone")]
    yield "time zone", lambda: (str(app.timezone), app.uses_utc_timezone())


def tasks() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names, texts, the registry."""
    app = make_app()

    @app.task
    def add(x: int, y: int) -> int:
        """Adds."""
        return x + y

    @app.task(bind=True, name="named", max_retries=7, own="attribute")
    def named(self: Any) -> Any:
        return self.name, self.max_retries, self.own

    yield "name", lambda: (add.name, add.__doc__, add.__name__, app.gen_task_name("f", "m"))
    yield "call", lambda: (add(1, y=2), named())
    yield "repr", lambda: repr(add).partition(" at ")[0]
    yield "wrong arguments", lambda: add.apply_async((1,))
    yield "not registered", lambda: app.tasks["none"]
    yield "unregistered twice", lambda: (app.tasks.unregister("named"), app.tasks.unregister("named"))
    yield "decorated twice", lambda: app.task(1)


def routes() -> Iterator[tuple[str, Callable[[], Any]]]:
    """kombu's queues and the routes to them."""
    app = make_app(task_queues=QUEUES, task_routes={"x.*": {"queue": "video"}, "y": "mail"}, task_default_queue="mail")
    router = app.amqp.Router()

    def routed(options: dict[str, Any], name: str) -> Any:
        found = router.route(dict(options), name, (), {})
        return sorted((key, getattr(value, "name", value)) for key, value in found.items())

    for name in NAMES:
        yield f"route {name}", lambda n=name: routed({}, n)
        yield f"route {name} elsewhere", lambda n=name: routed({"queue": "new", "priority": 3}, n)
    yield (
        "queues",
        lambda: [(q.name, q.exchange.name, q.exchange.type, q.routing_key) for q in app.amqp.queues.values()],
    )
    yield "format", app.amqp.queues.format


def errors() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Their classes and texts."""
    module = part("exceptions")
    apart = ("CeleryCommandException", "OperationalError", "SoftTimeLimitExceeded")
    for name in sorted(set(module.__all__) - set(apart)):
        kind = getattr(module, name)
        if isinstance(kind, type):
            yield f"error {name}", lambda k=kind: [base.__name__ for base in k.__mro__]
    retry, reject = module.Retry, module.Reject
    yield "retry", lambda: (str(retry()), str(retry(exc=KeyError("x"), when=3)), retry("m", KeyError(1), 3).args[1:])
    yield "reject", lambda: (repr(reject("why", True)), reject("why", True).args)
    yield "not registered error", lambda: (repr(module.NotRegistered("a")), str(module.NotRegistered("a")))
    yield "store error", lambda: repr(module.BackendStoreError("x", state="S", task_id="1"))


def helpers() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Times, texts, names of nodes, states."""
    time, text, nodes, states = part("utils.time"), part("utils.text"), part("utils.nodenames"), part("states")
    start = datetime(2026, 3, 28, 18, tzinfo=BERLIN)
    for seconds in (0, 0.4, 1, 59, 60, 3599, 3600, 86400, 100000):
        yield f"humanize {seconds}", lambda s=seconds: time.humanize_seconds(s, "in ")
    for rate in ("1/s", "10/m", "7/h", 3, None, ""):
        yield f"rate {rate}", lambda r=rate: time.rate(r)
    for written in ("2012-04-01", "2012-04-01T12:00", "20120401T120000Z", "2012-04-01T12:00:00.123456+02:00", "x"):
        yield f"iso {written}", lambda w=written: time.maybe_iso8601(w)
    for delta in (timedelta(seconds=30), timedelta(hours=9), timedelta(days=1), timedelta(days=3)):
        for relative in (False, True):
            yield f"remaining {delta} {relative}", lambda d=delta, r=relative: time.remaining(start, d, start, r)
    for naive in (datetime(2026, 3, 29, 2, 30), datetime(2026, 10, 25, 2, 30), datetime(2026, 7, 1, 12)):
        yield f"aware {naive}", lambda n=naive: (time.make_aware(n, BERLIN), time.maybe_make_aware(n, BERLIN))
    yield "abbreviated", lambda: (text.abbrtask("feeds.tasks.refresh", 15), text.abbr("hello world", 5, False))
    yield "pretty", lambda: (text.pretty({"a": 1}), text.pretty((1, 2)), text.truncate("a b c d e f", 5))
    yield "nodes", lambda: (nodes.host_format("%n@%h-%d", "a.b.c"), nodes.node_format("%p %n %h", "x@y"))
    yield "states", lambda: [sorted(states.ALL_STATES), [states.precedence(s) for s in ("SUCCESS", "OWN", "PENDING")]]
    urls = (
        "redis://:p@h",
        "redis://u@h",
        "amqp://a:b@c//",
        "x",
        "rpc://",
        "redis://a:b@h1,c:d@h2",
        "sentinel://:p@a;b",
    )
    yield "masked", lambda: [part("app.utils").sanitize_url(url) for url in urls]


def main() -> None:
    """Print every answer, and every setting with its default and its old name."""
    warnings.simplefilter("ignore")
    answers = {label: answer_of(ask) for group in (settings, tasks, routes, errors, helpers) for label, ask in group()}
    defaults = part("app.defaults")
    known = {
        name: (answer_of(lambda v=value: v), defaults._TO_OLD_KEY[name]) for name, value in defaults.DEFAULTS.items()
    }
    print(json.dumps({"answers": answers, "settings": known}))


if __name__ == "__main__":
    main()

"""From a task to its queue: `task_routes`, `task_queues`, and what a call says itself."""

import re

import pytest
from kombu import Exchange, Queue, binding
from kombu.common import Broadcast
from sidekiq_celery._config.routes import MapRoute
from sidekiq_celery.exceptions import ImproperlyConfigured, QueueNotFound

TOPICS = (
    Queue("mail", Exchange("mail", type="direct"), routing_key="mail.key"),
    Queue("video", Exchange("media", type="topic"), routing_key="media.video.#"),
    Queue("image", Exchange("media", type="topic"), routing_key="media.*.image"),
    Queue("all", Exchange("news", type="fanout"), alias="everyone"),
)


def by_prefix(name, args, kwargs, options, task=None, **kw):
    """A router of a program."""
    return {"queue": "first"} if args == (1,) else None


class OldRouter:
    """A router as it was before Celery 4."""

    def route_for_task(self, task, args=None, kwargs=None):
        return "old"


def queue_of(app, name="tasks.add", options=None, args=(), kwargs=None):
    return app.amqp.destinations.find(options or {}, name, args, kwargs)[0]


def test_a_task_goes_to_the_default_queue(make_app):
    """`celery`, unless settings name another."""
    assert queue_of(make_app()) == "celery"
    assert queue_of(make_app(task_default_queue="mail")) == "mail"


@pytest.mark.parametrize(
    ("routes", "queue"),
    [
        ({"tasks.add": "math"}, "math"),
        ({"tasks.add": {"queue": "math"}}, "math"),
        ({"tasks.*": {"queue": "glob"}}, "glob"),
        ({re.compile(r"tasks\.a.+"): {"queue": "pattern"}}, "pattern"),
        ([[("tasks.a*", {"queue": "glob"}), ("tasks.*", "later")]], "glob"),
        ({"tasks.*": "glob", "tasks.add": "exact"}, "exact"),
        ([{"other": "x"}, {"tasks.add": "second"}], "second"),
        (f"{__name__}.by_prefix", "celery"),
        ([by_prefix, {"tasks.add": "fallback"}], "fallback"),
        (OldRouter(), "old"),
        ([f"{__name__}.OldRouter"], "old"),
        ({"other": "x"}, "celery"),
    ],
    ids=repr,
)
def test_routes_choose_the_queue_in_each_of_their_forms(make_app, routes, queue):
    """By name, glob, pattern, list, function, and the name of one."""
    assert queue_of(make_app(task_routes=routes)) == queue


def test_a_router_sees_the_call(make_app):
    """Its arguments and its options."""
    assert queue_of(make_app(task_routes=by_prefix), args=(1,)) == "first"


def test_the_callers_queue_wins(make_app):
    """Over the routes; other options of the route stay."""
    app = make_app(task_routes={"tasks.add": {"queue": "math", "priority": 3}})

    queue, options = app.amqp.destinations.find({"queue": "mine", "expires": 5}, "tasks.add")

    assert (queue, options) == ("mine", {"priority": 3, "expires": 5})


def test_a_kombu_queue_is_its_name(app):
    """As an option of the call."""
    assert queue_of(app, options={"queue": Queue("mail")}) == "mail"


def test_unknown_queues_are_refused_if_settings_say_so(make_app):
    """`task_create_missing_queues` is off."""
    app = make_app(task_queues=[Queue("mail")], task_create_missing_queues=False)
    assert queue_of(app, options={"queue": "mail"}) == "mail"

    with pytest.raises(QueueNotFound, match="nowhere"):
        queue_of(app, options={"queue": "nowhere"})


@pytest.mark.parametrize(
    ("options", "queue"),
    [
        ({"exchange": "mail", "routing_key": "mail.key"}, "mail"),
        ({"exchange": Exchange("mail"), "routing_key": "mail.key"}, "mail"),
        ({"exchange": "media", "routing_key": "media.video"}, "video"),
        ({"exchange": "media", "routing_key": "media.video.mp4.hd"}, "video"),
        ({"exchange": "media", "routing_key": "media.png.image"}, "image"),
        ({"exchange": "media", "routing_key": "media.png.big.image"}, "celery"),
        ({"exchange": "news"}, "all"),
        ({"exchange": "news", "routing_key": "whatever"}, "all"),
        ({"routing_key": "mail.key"}, "mail"),
        ({"exchange": "unknown", "routing_key": "x"}, "celery"),
        ({"queue": "mail", "exchange": "news"}, "mail"),
        ({"queue": "everyone"}, "all"),
    ],
    ids=repr,
)
def test_exchanges_and_keys_lead_to_the_queue_that_is_bound_so(make_app, options, queue):
    """Direct, topic and fan-out; to the default queue if there is none."""
    assert queue_of(make_app(task_queues=TOPICS), options=options) == queue


def test_a_route_may_name_an_exchange(make_app):
    """As Celery's own guide does."""
    routes = {"feed.*": {"exchange": "media", "routing_key": "media.video.feed"}}

    assert queue_of(make_app(task_queues=TOPICS, task_routes=routes), "feed.tasks.import_feed") == "video"


@pytest.mark.parametrize(
    "route", [{"routing_key": "mail.key"}, {"exchange": "nowhere", "routing_key": "mail.key"}], ids=repr
)
def test_a_route_that_leads_to_no_queue_leads_to_the_default_one(make_app, route):
    """As in Celery, where a direct default exchange knows no other key; it loses what goes to an unknown exchange."""
    app = make_app(task_queues=TOPICS, task_routes={"tasks.add": route})

    assert queue_of(app) == "celery"
    assert queue_of(app, options={"queue": "mine"}) == "mine"


def test_a_routes_key_belongs_to_the_default_exchange(make_app):
    """If that is not direct."""
    settings = {"task_default_exchange": "media", "task_default_exchange_type": "topic"}
    app = make_app(task_queues=TOPICS, task_routes={"tasks.add": {"routing_key": "media.video.hd"}}, **settings)

    assert queue_of(app) == "video"


def test_queues_may_be_declared_by_a_dict(make_app):
    """Name to options."""
    queues = {"mail": {"exchange": "mail", "binding_key": "mail.key"}}
    app = make_app(task_queues=queues)

    assert queue_of(app, options={"exchange": "mail", "routing_key": "mail.key"}) == "mail"
    assert app.amqp.queues["mail"].routing_key == "mail.key"


def test_a_dict_that_names_an_exchange_without_a_type_means_a_direct_one(make_app):
    """As in Celery: `task_default_exchange_type` is the type of the default exchange alone."""
    queues = {"mail": {"exchange": "mail", "routing_key": "mail.*"}}
    app = make_app(task_queues=queues, task_default_exchange_type="topic")

    assert queue_of(app, options={"exchange": "mail", "routing_key": "mail.*"}) == "mail"
    assert queue_of(app, options={"exchange": "mail", "routing_key": "mail.key"}) == "celery"
    assert app.amqp.queues["mail"].exchange.type == "direct"


def test_a_dict_may_give_a_queue_an_alias(make_app):
    """A worker of that alias serves the queue by its name, so a call by the alias must not make a queue of its own."""
    app = make_app(task_queues={"mail": {"alias": "post"}}, task_routes={"tasks.send": "post"})

    assert queue_of(app, options={"queue": "post"}) == "mail"
    assert queue_of(app, "tasks.send") == "mail"


def test_new_routes_hold_from_an_update_on(app):
    """Without a restart."""
    assert queue_of(app) == "celery"

    app.conf.update(task_routes={"tasks.add": "math"})

    assert queue_of(app) == "math"


@pytest.mark.parametrize(("name", "namespace"), [("CELERY_ROUTES", None), ("CELERY_TASK_ROUTES", "CELERY")])
def test_new_routes_may_have_another_name(make_app, name, namespace):
    """An old one, or one with the prefix."""
    app = make_app(namespace=namespace)
    app.config_from_object({"CELERY_TASK_ROUTES" if namespace else "CELERY_ROUTES": {}})
    assert queue_of(app) == "celery"

    app.conf.update({name: {"tasks.add": "math"}})

    assert queue_of(app) == "math"


def test_kombus_queues_have_what_settings_say(make_app):
    """Exchange and key of the default queue."""
    queue = make_app(task_default_queue="mail").amqp.default_queue

    assert (queue.name, queue.exchange.name, queue.routing_key) == ("mail", "mail", "mail")


def test_a_worker_selects_queues(make_app):
    """By name; more can be added, and some taken away."""
    queues = make_app(task_queues=TOPICS).amqp.queues
    queues.select(["mail", "video"])
    queues.select_add("late")
    queues.deselect("mail")

    assert set(queues.consume_from) == {"video", "late"}


def test_a_map_route_answers_none_for_what_it_does_not_know():
    """So that the next router is asked."""
    assert MapRoute({"a": "b"})("c") is None


@pytest.mark.parametrize("routes", [[("tasks.*", {"queue": "low"})], [["tasks.add"]]])
def test_routes_that_are_none_are_refused_with_an_example(make_app, routes):
    """One list too few is a common mistake, and Celery's own error names no setting."""
    app = make_app(task_routes=routes)

    with pytest.raises(ImproperlyConfigured, match=r"task_routes has .*tasks.*which is neither a dict, as in"):
        queue_of(app)


@pytest.mark.parametrize("routes", [5, [None], {"tasks.add": None}, {"tasks.*": 5}])
def test_what_can_be_no_route_is_refused_by_the_settings_name(make_app, routes):
    app = make_app(task_routes=routes)

    with pytest.raises(ImproperlyConfigured, match=r"^task_routes has (None|5)[, ].*'queue': 'low'"):
        queue_of(app)


def test_kombus_router_finds_kombus_queue(make_app):
    """Tests of programs ask `app.amqp.router` for a task's queue. It follows the settings."""
    amqp = make_app(task_routes={"tasks.*": "math"}).amqp
    routed = [router.route({}, "tasks.add")["queue"] for router in (amqp.Router(), amqp.router)]

    assert [(type(queue), queue.name, queue.exchange.name) for queue in routed] == [(Queue, "math", "math")] * 2

    amqp.app.conf.update(task_routes={"tasks.*": "art"})
    assert amqp.router.route({}, "tasks.add")["queue"].name == "art"


def test_a_queue_may_be_bound_by_several_keys(make_app):
    """As kombu's `binding` says."""
    exchange = Exchange("pair")
    both = Queue("both", [binding(exchange, routing_key="a"), binding(exchange, routing_key="b")])

    app = make_app(task_queues=(Queue("other"), both))

    assert queue_of(app, options={"exchange": "pair", "routing_key": "b"}) == "both"


def test_an_exchange_with_several_queues_is_told_of_once(make_app, caplog):
    """A job is in one queue: the first."""
    app = make_app(task_queues=(Queue("a", Exchange("all", "fanout")), Queue("b", Exchange("all", "fanout"))))

    assert [queue_of(app, options={"exchange": "all"}) for _ in range(2)] == ["a", "a"]
    assert caplog.text.count("leads to the queues a, b") == 1


def test_a_broadcast_is_refused(make_app):
    """It has a queue for each process, and nobody would serve it."""
    app = make_app(task_queues=(Broadcast("everywhere"),))

    with pytest.raises(ImproperlyConfigured, match="'everywhere', which is not known here"):
        queue_of(app, options={"queue": "everywhere"})


@pytest.mark.parametrize("queue", ["mail", "created"])
def test_a_route_that_names_a_queue_leads_there_whatever_its_key(make_app, queue):
    """Also if the default exchange is not direct: the key belongs to the queue's own exchange."""
    settings = {"task_default_exchange": "media", "task_default_exchange_type": "topic"}
    route = {"queue": queue, "routing_key": "media.video.hd"}
    app = make_app(task_queues=TOPICS, task_routes={"tasks.add": route}, **settings)

    assert queue_of(app) == queue

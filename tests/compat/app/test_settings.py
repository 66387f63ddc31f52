"""`app.conf`: where settings come from, what they are called, how they are read and changed."""

import copy
import logging
import types
from functools import partial

import pytest
from sidekiq_celery._config import defaults, effects
from sidekiq_celery.exceptions import ImproperlyConfigured

from tests.support.threads_at_once import at_once


class NewNames:
    """A class of settings, as a program may have one."""

    task_acks_late = True
    task_default_queue = "mail"


def as_module(**settings):
    module = types.ModuleType("settings")
    vars(module).update(settings)
    return module


def test_every_setting_of_celery_has_its_default(app):
    """Celery's 207 settings are known, each under its own default, and two of this package's own."""
    assert len(defaults.OPTIONS) == 209
    assert {"task_keep_failed", "worker_max_body_bytes"} <= defaults.OPTIONS.keys()

    assert {name: app.conf[name] for name in defaults.OPTIONS} == defaults.DEFAULTS | {
        "task_default_exchange": None,
        "task_default_routing_key": None,
    }


@pytest.mark.parametrize(
    "source",
    [NewNames, NewNames(), vars(NewNames), as_module(task_acks_late=True, task_default_queue="mail")],
    ids=["class", "object", "dict", "module"],
)
def test_settings_come_from_an_object_of_any_kind(app, source):
    """A class, an instance, a mapping and a module do."""
    app.config_from_object(source)

    assert (app.conf.task_acks_late, app.conf.task_default_queue) == (True, "mail")


@pytest.mark.parametrize("name", [f"{__name__}:NewNames", f"{__name__}.NewNames"])
def test_settings_come_from_what_a_name_leads_to(app, name):
    """With a colon or a dot."""
    app.config_from_object(name)

    assert app.conf.task_default_queue == "mail"


def test_settings_are_read_when_one_is_asked_for(app):
    """A module that is missing is an error only then."""
    app.config_from_object("no.such.module")

    with pytest.raises(ModuleNotFoundError, match="no"):
        _ = app.conf.task_acks_late


def test_a_missing_module_is_no_error_if_silent(app):
    """The defaults hold."""
    app.config_from_object("no.such.module", silent=True)

    assert app.conf.task_acks_late is False


def test_an_environment_variable_names_the_module(app, monkeypatch):
    """One that is not set is an error that says how to set it."""
    with pytest.raises(ImproperlyConfigured, match=r"SHOP_SETTINGS.*proj\.celeryconfig"):
        app.config_from_envvar("SHOP_SETTINGS")

    monkeypatch.setenv("SHOP_SETTINGS", f"{__name__}:NewNames")
    app.config_from_envvar("SHOP_SETTINGS")

    assert app.conf.task_default_queue == "mail"


def test_a_namespace_is_in_front_of_each_name(app):
    """As in Django's settings, where `CELERY_TASK_ALWAYS_EAGER` is ours and `TASK_ALWAYS_EAGER` is not."""
    source = {"CELERY_TASK_ALWAYS_EAGER": True, "task_acks_late": False, "CELERY_BEAT_SCHEDULE": {"a": {}}}
    app.config_from_object(source, namespace="CELERY")

    assert app.conf.task_always_eager is True
    assert app.conf["beat_schedule"] == {"a": {}}
    assert "task_always_eager" in app.conf


def test_a_namespace_leaves_djangos_time_zone_readable(app):
    """`TIME_ZONE` holds where no `CELERY_TIMEZONE` is set."""
    app.config_from_object({"TIME_ZONE": "Europe/Berlin"}, namespace="CELERY")

    assert str(app.timezone) == "Europe/Berlin"


def test_old_names_are_read_under_new_ones_and_the_other_way_round(app):
    """A file in the old style serves code in the new."""
    app.config_from_object({"CELERY_ALWAYS_EAGER": True, "CELERYD_CONCURRENCY": 7, "CELERYBEAT_SCHEDULE": {"a": 1}})

    assert (app.conf.task_always_eager, app.conf.worker_concurrency, app.conf.beat_schedule) == (True, 7, {"a": 1})
    assert app.conf.CELERYD_CONCURRENCY == 7


def test_old_and_new_names_do_not_mix(app):
    """The error says what each stranger is to be called."""
    app.config_from_object({"task_acks_late": True, "task_track_started": True, "CELERYD_CONCURRENCY": 7})

    with pytest.raises(ImproperlyConfigured, match=r"CELERYD_CONCURRENCY\s+-> worker_concurrency"):
        _ = app.conf.task_acks_late


def test_a_setting_under_both_its_names_may_be_there(app):
    """Shared files have such pairs."""
    app.config_from_object({"task_acks_late": True, "CELERY_ACKS_LATE": True})

    assert app.conf.task_acks_late is True


def test_mixing_is_told_by_what_there_is_more_of(app):
    """New names among many old ones are the orphans."""
    app.config_from_object({"CELERY_ACKS_LATE": True, "CELERYD_CONCURRENCY": 7, "task_track_started": True})

    with pytest.raises(ImproperlyConfigured, match=r"task_track_started\s+-> CELERY_TRACK_STARTED"):
        _ = app.conf.task_acks_late


def test_what_the_program_sets_holds_against_the_source(app):
    """Whether it is set before the source is named or after."""
    app.conf.task_default_queue = "early"
    app.config_from_object(NewNames)
    app.conf.update(task_track_started=True)

    assert (app.conf.task_default_queue, app.conf.task_acks_late) == ("early", True)
    assert app.conf.task_track_started is True


def test_the_broker_of_the_constructor_is_a_setting(make_app):
    """As every further keyword is."""
    app = make_app(broker="redis://one/1", backend="redis://two/2", task_default_queue="mail")

    conf = app.conf
    assert (conf.broker_url, conf.result_backend, conf.task_default_queue) == ("redis://one/1", "redis://two/2", "mail")


def test_settings_may_be_set_before_they_are_read(app):
    """Setting, updating, and asking whether something is set, read nothing."""
    app.config_from_object("no.such.module")
    app.conf.task_acks_late = True
    app.conf.update({"task_default_queue": "mail"})
    app.conf.setdefault("task_default_queue", "other")

    assert app.configured is False


@pytest.mark.parametrize("remove", [lambda conf, name: conf.pop(name), lambda conf, name: conf.__delitem__(name)])
def test_what_was_set_before_settings_are_read_can_be_removed(app, remove):
    """A setting has its default again; a name of the program's own is gone."""
    conf = app.conf
    conf.update(task_default_queue="mail", shop="north")
    for name in ("task_default_queue", "shop"):
        remove(conf, name)

    assert (conf.task_default_queue, conf.get("shop"), "shop" in conf) == ("celery", None, False)
    with pytest.raises(KeyError):
        remove(conf, "task_serializer")


def test_who_holds_conf_sees_what_is_read_later(app):
    """It is the same object before and after."""
    held = app.conf
    app.config_from_object(NewNames)

    assert held.task_default_queue == app.conf.task_default_queue == "mail"


def test_an_unknown_name_is_no_attribute(app):
    """And no item."""
    with pytest.raises(AttributeError, match="no_such"):
        _ = app.conf.no_such
    with pytest.raises(KeyError):
        _ = app.conf["no_such"]

    assert app.conf.get("no_such", 1) == 1


def test_a_key_that_the_settings_module_lacks_is_told(app):
    """Otherwise it would look as if the setting that was asked for were missing."""

    @app.on_configure.connect
    def nothing(**_):
        return None

    class Broken:
        def __getattr__(self, name):
            raise KeyError("DATABASE_URL")

    app.loader._conf = types.SimpleNamespace(keys=lambda: {}["DATABASE_URL"])
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL"):
        _ = app.conf.task_acks_late


def test_the_environment_names_the_broker_before_settings_do(app, monkeypatch):
    """So that one image runs in many places."""
    app.conf.update(broker_url="redis://settings/0", result_backend="redis://settings/1")
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://environment/0")
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "redis://environment/1")

    assert app.conf.broker_url == app.conf.broker_write_url == "redis://environment/0"
    assert app.conf.result_backend == "redis://environment/1"


def test_defaults_can_be_added_behind_what_the_program_sets(app):
    """As a mapping or as a function, before and after settings are read; they go before the source, as in Celery."""
    app.add_defaults(lambda: {"task_default_queue": "added", "task_acks_late": True, "mine": 1})
    app.config_from_object({"task_default_queue": "source"})
    app.conf.task_acks_late = False
    assert (app.conf.task_default_queue, app.conf.task_acks_late, app.conf.mine) == ("added", False, 1)

    app.add_defaults({"another": 2})

    assert app.conf.another == 2


def test_looking_for_an_added_default_does_not_read_the_settings(app):
    """RedBeat looks for its prefix so, and then reads it, before it has asked for any other setting."""
    app.conf.add_defaults({"redbeat_key_prefix": "shop:"})

    assert "redbeat_key_prefix" in iter(app.conf.keys())
    assert not app.configured
    assert app.conf.get("redbeat_key_prefix") == "shop:"


def test_a_second_source_replaces_the_first(app):
    """Once settings are read, it is read at once."""
    app.config_from_object({"task_default_queue": "one"})
    assert app.conf.task_default_queue == "one"

    app.config_from_object({"task_default_queue": "two"})

    assert app.conf.task_default_queue == "two"


def test_signals_tell_of_reading(app):
    """Before it, when settings can still be added, and after it."""
    calls = []

    @app.on_configure.connect
    def before(**_):
        calls.append("before")

    @app.on_after_configure.connect
    def after(source, **_):
        calls.append(source.task_acks_late)

    _ = app.conf.task_acks_late

    assert calls == ["before", False]


def test_settings_are_iterated_once_each(app):
    """With changes and defaults under one name."""
    app.conf.task_default_queue = "mail"

    items = dict(app.conf.items())

    assert items["task_default_queue"] == "mail"
    assert len(list(app.conf)) == len(set(app.conf))


def test_a_copy_is_changed_alone(app):
    """The app keeps its own."""
    app.conf.task_default_queue = "mail"
    copied = copy.copy(app.conf)
    copied.task_default_queue = "other"

    assert app.conf.task_default_queue == "mail"


def test_what_was_set_is_told_from_defaults(app):
    """By `changes`, `without_defaults` and `value_set_for`."""
    app.config_from_object(NewNames)
    app.conf.task_track_started = True

    assert app.conf.value_set_for("task_acks_late")
    assert not app.conf.value_set_for("task_time_limit")
    assert dict(app.conf.changes) == {"task_track_started": True}
    assert "task_time_limit" not in app.conf.without_defaults()


def test_a_report_masks_secrets(app):
    """Passwords of URLs and what is called a key."""
    app.conf.update(broker_url="redis://:geheim@host/0", security_key="geheim", result_backend="redis://:geheim@b/1")

    shown = app.conf.humanize()

    assert "geheim" not in shown
    assert "redis://:********@host/0" in shown


def test_a_setting_is_found_by_the_end_of_its_name(app):
    """For command lines."""
    assert app.conf.find_option("concurrency", "worker")[:2] == ("worker", "concurrency")
    assert app.conf.find_value_for_key("always_eager") is False
    assert app.conf.get_by_parts("task", "acks_late") is False


def test_a_command_line_sets_by_type(app):
    """By the setting's own, or by one that is named."""
    app.config_from_cmdline(["worker.concurrency=10", "task_acks_late=yes", 'imports=(list)["a"]'])

    assert (app.conf.worker_concurrency, app.conf.task_acks_late, app.conf.imports) == ("10", True, ["a"])


def test_time_is_utc_unless_settings_say_otherwise(make_app):
    """`timezone` names a zone; `enable_utc` off means the machine's."""
    assert make_app().uses_utc_timezone()
    assert make_app().now().utcoffset().total_seconds() == 0

    berlin = make_app(timezone="Europe/Berlin")

    assert berlin.now().utcoffset().total_seconds() in (3600, 7200)


def test_settings_without_effect_are_named_once(app, caplog):
    """With the reason, and never again in this process."""
    app.conf.update(worker_prefetch_multiplier=1, s3_bucket="b", task_acks_late=True)
    effects._logged.clear()

    with caplog.at_level(logging.INFO, logger="celery.app.effects"):
        effects.log_settings_without_effect(app)
        effects.log_settings_without_effect(app)

    [record] = caplog.records
    assert "worker_prefetch_multiplier" in record.message
    assert "s3_bucket" in record.message
    assert "task_acks_late" not in record.message


@pytest.mark.parametrize(
    ("url", "left_out"),
    [
        ("redis://a/0;redis://:geheim@b/0", "redis://:********@b/0"),
        (["redis://a/0", "redis://b/0", "redis://c/0"], "redis://b/0, redis://c/0"),
        ("redis://a/0", None),
        ("sentinel://a:26379;sentinel://b:26379/0", None),
    ],
)
def test_a_worker_says_that_it_does_not_fail_over_to_a_second_server(app, caplog, url, left_out):
    """kombu would. Whoever relies on that should not learn it while the first one is down."""
    app.conf.broker_url = url
    effects._logged.clear()

    with caplog.at_level(logging.WARNING, logger="celery.app.effects"):
        effects.log_settings_without_effect(app)
        effects.log_settings_without_effect(app)

    expected = [f"of the servers in broker_url, only the first one is used, not {left_out}:"] if left_out else []
    assert [record.message.partition(" each Redis")[0] for record in caplog.records] == expected


@pytest.mark.parametrize("prefix", ["", "CELERY_"])
def test_a_setting_without_effect_and_without_a_default_is_named_too(app, caplog, prefix):
    """Celery reads `redis_client_name` and a few others without listing them among its settings."""
    name = f"{prefix}redis_client_name"
    name = name.upper() if prefix else name
    app.config_from_object({name: "shop"}, namespace=prefix.rstrip("_") or None)
    effects._logged.clear()

    with caplog.at_level(logging.INFO, logger="celery.app.effects"):
        effects.log_settings_without_effect(app)

    assert "redis_client_name (the engine manages its own connections)" in caplog.text


def test_a_misspelled_setting_is_named_once(app, caplog):
    """Celery ignores it. Settings of other packages and of the program are none of our business."""
    app.conf.update(task_soft_time_limt=5, redbeat_key_prefix="r", my_limit=1, task_time_limit=9)
    effects._logged.clear()

    effects.log_settings_without_effect(app)
    effects.log_settings_without_effect(app)

    [record] = caplog.records
    assert record.message == "there are no such settings: task_soft_time_limt (did you mean task_soft_time_limit?)"


@pytest.mark.parametrize("in_case", [str.upper, str.lower])
def test_a_misspelled_setting_in_a_namespace_is_named_as_it_stands_there(make_app, in_case):
    """In the namespace's case. Django's own settings stand beside it."""
    app = make_app()
    given = {in_case(name): "UTC" for name in ("celery_task_always_eagar", "celery_timezone", "time_zon")}
    app.config_from_object(as_module(**given), namespace=in_case("celery"))

    assert effects.misspelled_settings(app) == {
        in_case("celery_task_always_eagar"): in_case("celery_task_always_eager")
    }


def test_a_name_beside_the_setting_that_it_resembles_is_the_programs_own(make_app):
    """Such as a router that a module of settings defines for its routes."""
    app = make_app()
    app.config_from_object(
        as_module(CELERY_TASK_ROUTER=len, CELERY_TASK_ROUTES=[len], CELERY_RESULT_BACKEND_DB=2, CELERY_TASK_QUEUE="a"),
        namespace="CELERY",
    )
    app.conf.result_backend = "redis://localhost/2"

    assert effects.misspelled_settings(app) == {"CELERY_TASK_QUEUE": "CELERY_TASK_QUEUES"}


def test_looking_for_misspelled_settings_reads_no_values(make_app):
    """An object with settings may have properties that cannot be read: the worker's log would show a traceback."""

    class Conf:
        task_soft_time_limt = 5

        @property
        def later(self):
            raise RuntimeError("not now")

    app = make_app()
    app.config_from_object(Conf())

    assert effects.misspelled_settings(app) == {"task_soft_time_limt": "task_soft_time_limit"}


@pytest.mark.parametrize("namespace", [None, "CELERY"])
def test_no_old_name_of_a_setting_counts_as_misspelled(make_app, namespace):
    """Projects may use them until they move."""
    old = [key for key in defaults._TO_NEW_KEY if namespace is None or key.startswith("CELERY_")]
    for name in old:
        app = make_app()
        app.config_from_object(as_module(**{name: None}), namespace=namespace)
        assert effects.misspelled_settings(app) == {}


def test_an_autoscaler_of_ones_own_has_no_effect(app):
    """Celery's own stands for the one that there is."""
    app.conf.worker_autoscaler = "celery.worker.autoscale:Autoscaler"
    assert effects.settings_without_effect(app) == {}

    app.conf.worker_autoscaler = "mine.scaling:Greedy"
    assert list(effects.settings_without_effect(app)) == ["worker_autoscaler"]


def test_threads_that_read_their_first_setting_at_once_load_all_of_them_once(make_app):
    """What one sets right after that stays, and what follows the settings is called once."""
    for _ in range(20):
        app, loaded = make_app(), []
        app.on_after_configure.connect(lambda loaded=loaded, **_: loaded.append(1), weak=False)

        def use(number, app=app):
            app.conf.get("task_time_limit")
            app.conf[f"of_{number}"] = number

        at_once(*(partial(use, number) for number in range(8)))

        assert loaded == [1]
        assert [app.conf.get(f"of_{number}") for number in range(8)] == [*range(8)]

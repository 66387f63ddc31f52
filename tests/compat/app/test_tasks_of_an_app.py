"""Tasks of an app: when they are made, what they are called, how they are found."""

import os
import pickle
import signal
import threading
from functools import partial
from typing import Generic, TypeVar
from unittest.mock import MagicMock

import pytest
from sidekiq_celery import Celery, Task, _state, current_app, shared_task
from sidekiq_celery.exceptions import DuplicateTaskNameWarning, InvalidTaskError, NotRegistered
from sidekiq_celery.local import PromiseProxy

from tests.support.threads_at_once import at_once

T = TypeVar("T")


def double(number):
    """Twice the number."""
    return 2 * number


def triple(number):
    return 3 * number


def test_a_task_is_made_when_it_is_first_used(app):
    """Until then the decorator's result stands for it, and settings stay unread."""
    app.config_from_object("no.such.module")

    task = app.task(double)

    assert isinstance(task.__doc__, str)
    assert issubclass(type(task), PromiseProxy)
    assert not task.__evaluated__()


def test_another_thread_sees_a_task_only_once_it_is_complete(app):
    """The threads of a web server may send a task for the first time at the same moment."""
    seen = []

    class AskAnotherThread:
        """The last step before a new task gets what keeps its requests."""

        def annotate(self, task):
            if not seen:
                seen.append(None)
                thread = threading.Thread(target=lambda: seen.append((task_of_both.time_limit, task_of_both(4))))
                thread.start()
                thread.join()

    app.conf.task_annotations = [AskAnotherThread(), {"*": {"time_limit": 77}}]
    task_of_both = app.task(double)

    assert task_of_both(4) == 8
    assert seen[1:] == [(77, 8)]


def test_a_task_that_is_told_of_its_app_is_among_its_tasks(app):
    """It may look itself up, even if the app's settings, which are read at its first use, use it too."""
    told = []

    class Watching(Task):
        @classmethod
        def on_bound(cls, app):
            told.append(app._tasks.get(cls.name))

    task = app.task(double, base=Watching)
    app.on_after_configure.connect(lambda **_: task.s(), weak=False)

    assert task(4) == 8
    assert told == [task]


def test_tasks_that_threads_declare_while_the_app_is_finalized_belong_to_it(make_app):
    """A worker knows them by name, although nothing has used them."""
    for _ in range(100):
        app = make_app()
        for number in range(10):
            app.task(double, name=f"before-{number}", shared=False)

        def declare(number, app=app):
            for again in range(5):
                app.task(double, name=f"{number}-{again}", shared=False)

        at_once(app.finalize, *(partial(declare, number) for number in range(3)))

        assert {f"{number}-{again}" for number in range(3) for again in range(5)} <= app.tasks.keys()


def test_settings_that_use_tasks_are_loaded_while_another_thread_uses_the_tasks(app):
    """Neither thread waits for ever, if one begins with the settings and the other with the tasks."""
    finalizing, others = threading.Event(), []
    app.gen_task_name = lambda name, module: finalizing.set() or name
    app.task(double, shared=False)

    @app.on_configure.connect
    def use_tasks(**_):
        if not others:
            others.append(threading.Thread(target=lambda: app.tasks, daemon=True))
            others[0].start()
            # It comes no further if it has to wait for the settings.
            finalizing.wait(0.3)
        assert "double" in app.tasks

    reader = threading.Thread(target=lambda: app.conf.get("task_time_limit"), daemon=True)
    reader.start()
    reader.join(10)

    assert not reader.is_alive()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_is_forked_while_another_thread_reads_the_settings_has_them(app):
    """A module of settings takes its time; the server forks its workers meanwhile."""
    statuses, children = [], []

    def fork():
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            os._exit(0 if app.conf.task_time_limit is None and app.tasks else 1)
        statuses.append(os.waitpid(pid, 0)[1])

    @app.on_configure.connect
    def fork_meanwhile(**_):
        if not children:
            children.append(threading.Thread(target=fork))
            children[0].start()
            children[0].join()

    assert app.conf.task_time_limit is None
    assert statuses == [0]


def test_tasks_are_shared_with_apps_that_another_thread_makes(make_app):
    """Neither disturbs the other."""

    def make():
        for _ in range(20):
            make_app()

    def share():
        for _ in range(20):
            shared_task(double)

    for _ in range(10):
        at_once(make, share, make, share)


def test_a_decorated_function_can_be_called(app):
    """As it was."""
    assert app.task(double)(4) == 8


def test_a_bound_task_is_given_itself(app):
    """By `bind=True`."""

    @app.task(bind=True)
    def whoami(self):
        return self.name

    assert whoami() == f"{__name__}.whoami"


def test_a_name_is_module_and_function(app):
    """Unless one is given."""
    assert app.task(double).name == f"{__name__}.double"
    assert app.task(name="mine")(triple).name == "mine"


def test_the_main_module_is_called_as_the_app_is(app):
    """As the worker imports it under another name."""
    assert app.gen_task_name("add", "__main__") == "proj.add"


def test_a_subclass_names_tasks_its_own_way(make_app):
    """By overriding `gen_task_name`."""

    class Short(Celery):
        def gen_task_name(self, name, module):
            return name

    with Short(set_as_current=False, fixups=[]) as app:
        assert app.task(double).name == "double"


def test_other_options_become_attributes(app):
    """Misspelt ones, too."""
    task = app.task(max_retries=7, ignore_results=True)(double)

    assert (task.max_retries, task.ignore_results) == (7, True)


def test_the_registry_finalizes_the_app(app):
    """All pending tasks are there then, and those that every app has."""
    app.task(double)

    assert {f"{__name__}.double", "celery.backend_cleanup"} <= set(app.tasks)
    assert app.finalized


def test_an_unknown_name_is_not_registered(app):
    """The error is a KeyError."""
    with pytest.raises(NotRegistered) as caught:
        _ = app.tasks["no.such"]

    assert isinstance(caught.value, KeyError)
    assert "never registered" in repr(caught.value)


def test_a_task_is_unregistered_by_itself_or_by_name(app):
    """Twice is an error."""
    task = app.task(double)
    app.tasks.unregister(task)

    with pytest.raises(NotRegistered):
        app.tasks.unregister(task.name)


def test_a_class_without_a_name_is_no_task(app):
    """For those who register by hand."""

    class Nameless:
        name = None

    with pytest.raises(InvalidTaskError, match="Nameless"):
        app.tasks.register(Nameless())


def test_a_class_based_task_is_registered(app):
    """By class or by instance; its name is made if it has none."""

    class Add(app.Task):
        def run(self, x, y):
            return x + y

    task = app.register_task(Add())

    assert task.name == f"{__name__}.Add"
    assert app.tasks[task.name] is task
    assert task(2, 3) == 5


def test_two_functions_of_one_name_are_warned_of(app):
    """The first stays; the warning points at the program's line."""
    first = app.task(name="same")(double)
    assert first(1) == 2

    with pytest.warns(DuplicateTaskNameWarning, match="same") as caught:
        second = app.task(name="same", lazy=False)(triple)

    assert second(1) == 2
    assert caught[0].filename == __file__


def test_one_function_twice_is_no_mistake(app):
    """As a module that is imported under two names brings it."""
    app.task(name="same")(double)(1)

    assert app.task(name="same")(double)(1) == 2


def test_without_autofinalize_tasks_wait_for_finalize(make_app):
    """Using one before is an error."""
    app = make_app(autofinalize=False)
    task = app.task(double)
    with pytest.raises(RuntimeError, match="not finalized"):
        _ = app.tasks

    app.finalize()

    assert task(1) == 2


def test_finalize_is_told_of_once(app):
    """When all tasks are there."""
    calls = []

    @app.on_after_finalize.connect
    def ready(sender, **_):
        calls.append(sorted(name for name in sender.tasks if name.startswith(__name__)))

    app.task(double)
    app.finalize()
    app.finalize()

    assert calls == [[f"{__name__}.double"]]


def test_a_task_of_one_app_is_in_apps_that_are_made_later(app, make_app):
    """Unless it is not shared."""
    app.task(double)
    app.task(shared=False)(triple)

    later = make_app()

    assert f"{__name__}.double" in later.tasks
    assert f"{__name__}.triple" not in later.tasks


def test_the_decorator_takes_one_function():
    """What else is given, is an error that says so."""
    app = Celery(set_as_current=False, fixups=[])
    with pytest.raises(TypeError, match="callable"):
        app.task(1)
    with pytest.raises(TypeError, match="exactly 1"):
        app.task(double, triple)


def test_a_shared_task_is_the_current_apps(make_app):
    """Whichever that is when it is used."""
    task = shared_task(double)
    one, two = make_app("one"), make_app("two")
    one.set_current()
    assert task.app is one

    two.set_current()

    assert task.app is two
    assert task(2) == 4


def test_a_shared_task_comes_into_finalized_apps_at_once(app):
    """So that a module may be imported late."""
    app.finalize()

    shared_task(name="late")(double)

    assert "late" in app.tasks


def test_a_shared_task_is_shared_once():
    """The decorator twice is a slip."""
    with pytest.raises(TypeError, match="more than once"):
        shared_task(shared_task(double))


def test_the_last_app_is_current_in_its_thread(make_app):
    """`set_as_current=False` leaves the current one."""
    app = make_app("first", set_as_current=True)
    make_app("second")

    assert current_app.main == "first"
    assert _state.get_current_app() is app


def test_a_thread_without_an_app_has_the_default_one(make_app):
    """Else the one that was made last, where Celery would send to nowhere."""
    seen = []

    def look():
        seen.append(current_app.main)

    _state.set_default_app(None)
    app = make_app("web", set_as_current=True)
    other = make_app("default")
    for _ in range(2):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        other.set_default()

    assert seen == ["web", "default"]
    assert _state.get_current_app() is app


def test_threads_that_ask_for_the_backend_at_once_share_it(make_app, redis_url):
    """Each has connections of its own."""
    seen = []
    app = make_app(backend=redis_url)
    make = app._get_backend

    def made_meanwhile():
        app._get_backend = make
        thread = threading.Thread(target=lambda: seen.append(app.backend))
        thread.start()
        thread.join()
        return make()

    app._get_backend = made_meanwhile

    assert [app.backend] == seen
    assert [app.backend] == seen


def test_threads_that_find_no_app_make_one_together(monkeypatch):
    """What one of them sets there, the others find."""
    for _ in range(50):
        _state._tls.current_app = None
        monkeypatch.setattr(_state, "_latest_current", None)
        _state.set_default_app(None)

        assert len({id(app) for app in at_once(*[_state.get_current_app] * 6)}) == 1


def test_the_default_app_is_made_where_there_is_none(monkeypatch):
    """Its settings are the module `celeryconfig`, if there is one."""
    _state._tls.current_app = None
    monkeypatch.setattr(_state, "_latest_current", None)
    _state.set_default_app(None)

    assert current_app.main == "default"


def test_tasks_derive_from_the_apps_class(make_app):
    """By `task_cls`, a class or its name, or by `base` for one task."""

    class Traced:
        pass

    class Other:
        abstract = True

    from sidekiq_celery.app.task import Task

    traced = type("TracedTask", (Task, Traced), {"abstract": True})
    app = make_app(task_cls=traced)

    assert isinstance(app.task(double)._get_current_object(), Traced)
    other = type("OtherTask", (Task, Other), {})
    assert isinstance(app.task(base=other)(triple)._get_current_object(), Other)


def test_annotations_change_tasks(make_app):
    """For one by its name, for all by a star; `@run` wraps a method."""
    app = make_app(
        task_annotations={
            "*": {"rate_limit": "10/s"},
            f"{__name__}.double": {"max_retries": 9, "@__call__": lambda call: lambda *args: call(*args) + 1},
        }
    )

    doubled, tripled = app.task(double), app.task(triple)

    assert (doubled.rate_limit, doubled.max_retries, tripled.max_retries) == ("10/s", 9, 3)


def test_an_app_is_pickled_with_its_changes(make_app):
    """The copy is not current."""
    app = make_app("web", broker="redis://h/3")
    app.conf.task_default_queue = "mail"

    copied = pickle.loads(pickle.dumps(app))

    assert (copied.main, copied.conf.task_default_queue, copied.conf.broker_url) == ("web", "mail", "redis://h/3")
    assert _state._tls.current_app is not copied
    copied.close()


def test_an_app_is_closed_behind_a_with(make_app):
    """Shared tasks do not come into it any more."""
    with make_app() as app:
        app.finalize()
        assert app in _state._get_active_apps()

    assert app not in _state._get_active_apps()


@pytest.mark.parametrize(
    "broker", ["redis://:geheim@h/0", ["redis://:geheim@h/0", "redis://:geheim@i/0"], "redis:/:geheim@h"]
)
def test_a_report_names_versions_and_settings(make_app, broker):
    """Without secrets, also where the broker is a list of servers, which kombu accepts, or a mistyped URL."""
    text = make_app(broker=broker).bugreport()

    assert "sidekiq-py:" in text
    assert "transport:redis" in text
    assert "geheim" not in text


def test_periodic_tasks_wait_for_the_settings(app):
    """Then they are entries of `beat_schedule`; one name is one entry."""
    app.add_periodic_task(10, app.signature("double", args=(1,)), name="often", queue="mail")
    app.add_periodic_task(20, app.signature("double", args=(2,)), name="often", queue="mail")
    assert not app.configured

    entry = app.conf.beat_schedule["often"]

    assert (entry["schedule"], entry["task"], tuple(entry["args"])) == (20, "double", (2,))
    assert entry["options"]["queue"] == "mail"


def test_worker_main_needs_the_command(app):
    """As Celery does since 5.0."""
    with pytest.raises(ValueError, match="worker sub-command"):
        app.worker_main(["celery"])


def test_signing_is_refused_with_advice(app):
    """Restricting serializers is not."""
    from sidekiq_celery.exceptions import ImproperlyConfigured

    with pytest.raises(ImproperlyConfigured, match="TLS"):
        app.setup_security(key="key.pem")


def test_a_mock_may_be_a_task(app):
    """Tests of programs that declare tasks pass one; its annotations need not be a dict."""
    called = MagicMock(__name__="called", __module__="shop")
    called.__annotations__ = []

    app.task(name="shop.called")(called)(1)

    called.assert_called_once_with(1)


def test_brackets_of_a_task_class_take_any_number_of_types() -> None:
    """As those of Celery's class, which does not count them."""

    class Counting(Task[int]):
        name = "proj.counting"

        def run(self) -> int:
            return 1

    assert [Task[int].__origin__, Task[[int], str].__origin__, Task[int, str, bytes].__origin__] == [Task] * 3
    assert Counting().run() == 1


def test_a_class_of_tasks_may_be_generic_itself() -> None:
    """In any order of its bases, as with Celery's class, which is not generic at run time."""

    class Before(Generic[T], Task):
        pass

    class After(Task, Generic[T]):
        pass

    assert [Before[int].__origin__, After[int].__origin__] == [Before, After]

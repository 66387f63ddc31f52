"""Importing the modules of tasks, and finding the app that a command line names."""

import sys

import pytest
from sidekiq_celery import signals
from sidekiq_celery.app.finding import find_app
from sidekiq_celery.loaders import get_loader_cls
from sidekiq_celery.loaders.app import AppLoader
from sidekiq_celery.loaders.default import Loader
from sidekiq_celery.utils.imports import NotAPackage


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of modules in the working directory; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)

    def write(**files):
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(text)
        return tmp_path

    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_tasks_are_discovered_beside_packages(app, project, monkeypatch):
    """When default modules are imported; a package without tasks is none the worse."""
    root = project(shop__tasks="", shop__models="", blog__models="")
    monkeypatch.syspath_prepend(str(root))
    assert app.autodiscover_tasks(["shop", "blog"]) is None
    assert "shop.tasks" not in sys.modules

    app.loader.import_default_modules()

    assert "shop.tasks" in sys.modules
    assert app.loader.task_modules == {"shop.tasks"}


def test_a_thread_discovers_tasks_while_another_one_does(app, project, monkeypatch):
    """They may be those of another app."""
    project(
        shop__tasks="from blog import discover",
        blog__tasks="",
        blog__discover="import threading\nfrom sidekiq_celery.loaders.base import autodiscover_tasks\n"
        "thread = threading.Thread(target=autodiscover_tasks, args=(['blog'],))\nthread.start()\nthread.join()\n",
    )
    monkeypatch.syspath_prepend(".")

    app.autodiscover_tasks(["shop"], force=True)

    assert {"shop.tasks", "blog.tasks"} <= set(sys.modules)


def test_discovery_can_be_told_later_what_to_look_for(app, project, monkeypatch):
    """By a function, another name, and at once."""
    monkeypatch.syspath_prepend(str(project(shop__jobs="")))

    app.autodiscover_tasks(lambda: ["shop"], related_name="jobs", force=True)

    assert "shop.jobs" in sys.modules


def test_discovery_finds_a_package_by_a_class_in_it(app, project, monkeypatch):
    """As Django's INSTALLED_APPS may name it."""
    monkeypatch.syspath_prepend(str(project(shop__tasks="", shop__apps="")))

    app.autodiscover_tasks(["shop.ShopConfig"], force=True)

    assert "shop.tasks" in sys.modules


def test_a_module_of_tasks_that_cannot_be_imported_is_an_error(app, project, monkeypatch):
    """Not one that is missing."""
    monkeypatch.syspath_prepend(str(project(shop__tasks="import no_such_library")))
    app.autodiscover_tasks(["shop"])

    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        app.loader.import_default_modules()


def test_settings_name_modules_to_import(make_app, project):
    """`imports` and `include`; also from the working directory."""
    project(more="", most="")
    app = make_app(include=["more"])
    app.conf.imports = ("most",)

    app.loader.import_default_modules()

    assert {"more", "most"} <= set(sys.modules)


def test_a_worker_imports_once(app):
    """However often it is told to make ready."""
    calls = []

    @signals.import_modules.connect(sender=app)
    def count(**_):
        calls.append(1)

    app.loader.init_worker()
    app.loader.init_worker()

    assert calls == [1]


def test_loaders_have_short_names():
    """And classes stand for themselves."""
    assert get_loader_cls("app") is AppLoader
    assert get_loader_cls("default") is Loader
    assert get_loader_cls(AppLoader) is AppLoader


def test_the_default_loader_reads_celeryconfig(make_app, project, monkeypatch):
    """Or the module that a variable names; none is no error."""
    monkeypatch.delenv("CELERY_CONFIG_MODULE", raising=False)
    project(celeryconfig="task_default_queue = 'config'", other="task_default_queue = 'other'")
    assert make_app(loader="default").conf.task_default_queue == "config"

    monkeypatch.setenv("CELERY_CONFIG_MODULE", "other")
    assert make_app(loader="default").conf.task_default_queue == "other"

    monkeypatch.setenv("CELERY_CONFIG_MODULE", "missing")
    assert make_app(loader="default").conf.task_default_queue == "celery"


def test_a_file_name_in_place_of_a_module_is_told(make_app, project, monkeypatch):
    """With the name that was meant."""
    project(settings="")
    monkeypatch.setenv("CELERY_CONFIG_MODULE", "settings.py")

    with pytest.raises(NotAPackage, match="Did you mean 'settings'"):
        _ = make_app().conf.task_acks_late


APP = "from sidekiq_celery import Celery\n{name} = Celery('found', set_as_current=False, fixups=[])\n"


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"one": APP.format(name="app")}, "one"),
        ({"one": APP.format(name="celery")}, "one"),
        ({"one": APP.format(name="mine")}, "one"),
        ({"one": APP.format(name="mine")}, "one:mine"),
        ({"one": APP.format(name="mine")}, "one.mine"),
        ({"pkg__celery": APP.format(name="app")}, "pkg"),
        ({"pkg__celery": APP.format(name="app")}, "pkg.celery"),
        ({"pkg__celery": APP.format(name="app")}, "pkg.celery:app"),
    ],
    ids=["app", "celery", "any", "colon", "dot", "package", "its module", "its attribute"],
)
def test_the_app_of_a_command_line_is_found(project, files, wanted):
    """In each form of `-A`."""
    project(**files)

    found = find_app(wanted)

    assert found.main == "found"
    found.close()


def test_a_module_without_an_app_is_told(project):
    """With how to name one."""
    project(empty="")

    with pytest.raises(AttributeError, match="empty:my_app"):
        find_app("empty")


def test_an_error_within_the_apps_module_is_not_hidden(project):
    """As it is what the user has to see."""
    project(pkg__celery="import no_such_library")

    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        find_app("pkg")

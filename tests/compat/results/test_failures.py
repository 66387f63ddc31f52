"""Exceptions out of results: of their class where it is loaded, and nothing is loaded for them."""

import pickle
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import kombu.exceptions
import pytest
import redis
from kombu.exceptions import OperationalError
from sidekiq_celery import Celery, exceptions
from sidekiq_celery.backends.redis_errors import as_redis_pys
from sidekiq_celery.exceptions import SecurityError

from sidekiq_py.errors import RedisConnectionError, RedisError, RedisReplyError, ReplyLostError
from tests.support.redis_server import LOADS_SLOWLY, RedisServer


class Outer:
    """Holds an exception."""

    class InnerError(Exception):
        """Has a qualified name."""


class DemandingError(Exception):
    """Wants more than its arguments."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(one)


class ShopError(Exception):
    """What the programs of a shop catch."""


class ClosedError(ShopError):
    """Takes no arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.until = 8


class HolidayError(ClosedError):
    """Wants an argument, and stores none."""

    def __init__(self, day: str) -> None:
        super().__init__()


class Described:
    """Is no error itself. Takes any arguments, and counts how often it is made."""

    made = 0

    def __init__(self, *args: Any) -> None:
        Described.made += 1
        super().__init__(*args)


class SoldOutError(Described, ShopError):
    """Makes its message of its arguments, and counts how often it is asked to."""

    tries = 0

    def __init__(self, item: str, *wanted: int) -> None:
        SoldOutError.tries += 1
        [number] = wanted
        super().__init__(f"{number} of {item} are not there")


def read_back(app: Celery, stored: Any) -> Any:
    """What becomes of an exception's stored form."""
    return app.backend.exception_to_python(stored)


@pytest.mark.parametrize("error", [ValueError("x", 3), Outer.InnerError("y"), exceptions.ChordError("z")])
def test_an_exception_comes_back_as_its_class(app: Celery, error: Exception) -> None:
    """With its arguments."""
    app.backend.mark_as_failure("a", error)

    found = app.AsyncResult("a").result

    assert (type(found), found.args) == (type(error), error.args)


def test_a_class_that_is_not_loaded_is_made_up(app: Celery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module lies ready, and is not imported all the same."""
    (tmp_path / "never_loaded.py").write_text("class ShopError(Exception): pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    found = read_back(app, {"exc_type": "ShopError", "exc_message": ["x"], "exc_module": "never_loaded"})

    assert (type(found).__name__, found.args) == ("ShopError", ("x",))
    assert "never_loaded" not in sys.modules


def test_an_error_of_kombus_has_its_class_in_a_program_without_kombu(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So `isinstance` holds for the `EncodeError` of a task whose result cannot be encoded, as it does under Celery."""
    monkeypatch.setattr(kombu, "exceptions", kombu.exceptions)
    monkeypatch.delitem(sys.modules, "kombu.exceptions")

    found = read_back(app, {"exc_type": "EncodeError", "exc_message": ["x"], "exc_module": "kombu.exceptions"})

    assert type(found) is import_module("kombu.exceptions").EncodeError


def test_a_name_that_a_module_imports_on_demand_is_not_asked_for(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """`concurrent.futures`, for one, imports another module as soon as it is asked for ProcessPoolExecutor."""
    lazy = ModuleType("lazy_shop")
    vars(lazy)["__getattr__"] = pytest.fail
    monkeypatch.setitem(sys.modules, "lazy_shop", lazy)

    found = read_back(app, {"exc_type": "ShopError", "exc_message": ["x"], "exc_module": "lazy_shop"})

    assert (type(found).__name__, found.args) == ("ShopError", ("x",))


@pytest.mark.parametrize("module", [None, "ruby"])
def test_errors_of_others_keep_their_names(app: Celery, module: str | None) -> None:
    """A job in Ruby has no module."""
    found = read_back(app, {"exc_type": "Net::ReadTimeout", "exc_message": "slow", "exc_module": module})

    assert (type(found).__name__, str(found)) == ("Net::ReadTimeout", "slow")


@pytest.mark.parametrize("stored", [
    {"exc_module": "os", "exc_type": "system", "exc_message": ["touch /tmp/owned"]},
    {"exc_module": "builtins", "exc_type": "int", "exc_message": ["3"]},
])  # fmt: skip
def test_what_is_no_exception_is_not_called(app: Celery, stored: dict[str, Any]) -> None:
    """Whoever can write to Redis could name any function."""
    with pytest.raises(SecurityError, match=f"got {stored['exc_module']}.{stored['exc_type']}"):
        read_back(app, stored)


def test_a_name_that_leads_through_a_module_imports_nothing(app: Celery) -> None:
    """Many modules import a package that imports its parts when they are asked for."""
    through = ModuleType("imports_a_package")
    asked: list[str] = []
    package = ModuleType("package")
    package.__getattr__ = asked.append  # type: ignore[method-assign, assignment]
    through.__dict__["package"] = package
    sys.modules[through.__name__] = through
    try:
        found = read_back(app, {"exc_module": through.__name__, "exc_type": "package.part", "exc_message": ["x"]})
    finally:
        del sys.modules[through.__name__]

    assert (asked, type(found).__name__) == ([], "package.part")


def test_a_class_that_wants_other_arguments_is_caught_as_its_base(app: Celery) -> None:
    """Programs catch `ShopError`. Redis has the class itself, for monitors."""
    app.backend.mark_as_failure("a", SoldOutError("tea", 3))

    found = app.AsyncResult("a").result

    assert (type(found), str(found)) == (ShopError, "3 of tea are not there")
    assert b'"exc_type": "SoldOutError"' in app.backend.client.get("celery-task-meta-a")


def test_the_base_of_a_class_that_stores_no_arguments_names_that_class(app: Celery) -> None:
    """As Celery's own text does; an empty ValueError would not say what failed."""
    pydantic = pytest.importorskip("pydantic")
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(int).validate_python("x")
    app.backend.store_result("i", caught.value, "FAILURE")

    read = app.AsyncResult("i").result

    assert type(read) is ValueError
    assert str(read) == "<class 'pydantic_core._pydantic_core.ValidationError'>([])"


def test_a_base_that_takes_no_arguments_names_the_class_too(app: Celery) -> None:
    """It is made as its own constructor does, so programs that catch it find what they expect."""
    app.backend.store_result("i", HolidayError("May 1"), "FAILURE")

    read = app.AsyncResult("i").result

    assert (type(read), read.until) == (ClosedError, 8)
    assert "HolidayError" in str(read)


def test_constructors_are_called_once_and_of_errors_only(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a program's, and may do anything."""
    stored = {"exc_type": "SoldOutError", "exc_message": ["3 of tea are not there"], "exc_module": __name__}
    monkeypatch.setattr(SoldOutError, "tries", 0)
    monkeypatch.setattr(Described, "made", 0)

    read_back(app, stored)

    assert (SoldOutError.tries, Described.made) == (1, 0)


def test_a_class_that_wants_other_arguments_and_has_no_base_is_told_of(app: Celery) -> None:
    """Its name and its arguments stay."""
    found = read_back(app, {"exc_type": "DemandingError", "exc_message": [1], "exc_module": __name__})

    assert (type(found), "DemandingError" in str(found)) == (Exception, True)


@pytest.mark.parametrize(("stored", "error"), [({"exc_message": "x"}, ValueError), (3, TypeError)])
def test_what_is_not_well_made_is_an_error(app: Celery, stored: Any, error: type[Exception]) -> None:
    """As in Celery."""
    with pytest.raises(error):
        read_back(app, stored)


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_reading_a_result_never_ends_the_program(make_app: Callable[..., Celery], serializer: str) -> None:
    """Whoever has stored it: what `except Exception` does not catch comes as one that it does."""
    app = make_app(result_serializer=serializer, accept_content=["json", "pickle"])
    app.backend.mark_as_failure("a", SystemExit(3))

    with pytest.raises(exceptions.WorkerLostError, match=r"Worker exited prematurely: exitcode 3\."):
        app.AsyncResult("a").get(timeout=0)


@pytest.mark.parametrize("caught", [redis.ConnectionError, OperationalError, RedisConnectionError])
@pytest.mark.parametrize("what", ["state", "get", "forget", "join", "store"])
def test_redis_out_of_reach_is_an_error_that_celerys_users_catch(
    make_app: Callable[..., Celery], what: str, caught: type[Exception]
) -> None:
    """redis-py's, and kombu's; and the engine's."""
    app = make_app(
        result_backend="redis://127.0.0.1:1/0", result_backend_transport_options={"retry_policy": {"max_retries": 0}}
    )
    result = app.AsyncResult("a")
    uses: dict[str, Callable[[], Any]] = {
        "state": lambda: result.state,
        "get": lambda: result.get(timeout=1),
        "forget": result.forget,
        "join": lambda: app.GroupResult("g", [result]).join(timeout=1),
        "store": lambda: app.backend.mark_as_done("a", 1),
    }

    with pytest.raises(caught, match="Redis is out of reach"):
        uses[what]()


@pytest.mark.parametrize(("ours", "redis_pys"), [
    (RedisReplyError("NOAUTH who are you"), redis.ResponseError),
    (ReplyLostError("nothing came within 5 seconds"), redis.TimeoutError),
    (ReplyLostError("the connection broke"), redis.ConnectionError),
])  # fmt: skip
def test_other_errors_of_redis_are_redis_pys_too(ours: RedisError, redis_pys: type[Exception]) -> None:
    """With the same text, also when they have been pickled."""
    error = as_redis_pys(ours)

    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, redis_pys)
    assert isinstance(again, type(ours))
    assert (str(again), str(ours) in repr(again)) == (str(ours), True)
    assert as_redis_pys(error) is error


def test_a_redis_that_loads_its_data_is_out_of_reach(
    make_app: Callable[..., Celery], new_redis_server: Callable[..., RedisServer]
) -> None:
    """As redis-py has it: who tries again after a lost connection tries again now, too."""
    server = new_redis_server(config=LOADS_SLOWLY)
    app = make_app(result_backend=server.url)
    assert app.AsyncResult("a").state == "PENDING"

    with server.loading(), pytest.raises(redis.ConnectionError, match="LOADING") as refused:
        _ = app.AsyncResult("a").state

    assert isinstance(refused.value, RedisConnectionError)
    assert app.AsyncResult("a").state == "PENDING"


def test_purging_without_redis_raises_kombus_error(make_app: Callable[..., Celery]) -> None:
    """As sending does."""
    with pytest.raises(OperationalError, match="Redis is out of reach"):
        make_app(broker_url="redis://127.0.0.1:1/0").control.purge()

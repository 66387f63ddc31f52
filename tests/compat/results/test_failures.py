"""Exceptions out of results: of their class where it is loaded, and nothing is loaded for them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sidekiq_celery import Celery, exceptions
from sidekiq_celery.exceptions import SecurityError


class Outer:
    """Holds an exception."""

    class InnerError(Exception):
        """Has a qualified name."""


class DemandingError(Exception):
    """Wants more than its arguments."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(one)


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


def test_a_class_that_wants_other_arguments_is_told_of(app: Celery) -> None:
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

    with pytest.raises(exceptions.WorkerLostError, match=r"SystemExit\(3\)"):
        app.AsyncResult("a").get(timeout=0)

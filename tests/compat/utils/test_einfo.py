"""`ExceptionInfo`, which hooks and signals are given."""

import pickle
import sys
from types import ModuleType

import pytest
from sidekiq_celery.utils.einfo import ExceptionInfo, ExceptionWithTraceback


@pytest.fixture
def einfo() -> ExceptionInfo:
    """That of an error that was raised."""
    try:
        raise ValueError("boom")
    except ValueError:
        return ExceptionInfo()


def test_the_exception_brings_its_traceback_and_the_error_itself(einfo):
    """As in billiard 4, so `einfo.exception.exc` is the error."""
    wrapped = einfo.exception

    assert isinstance(wrapped, ExceptionWithTraceback)
    assert (type(wrapped.exc), wrapped.exc.args, einfo.type) == (ValueError, ("boom",), ValueError)
    assert str(wrapped) == wrapped.tb == f'\n"""\n{einfo.traceback}"""'
    assert einfo.exc_info[1] is wrapped.exc


def test_tools_take_the_exception_for_billiards(einfo, monkeypatch):
    """They look for that class, and then for the error in it."""
    billiard = ModuleType("billiard.einfo")
    billiard.ExceptionInfo, billiard.ExceptionWithTraceback = type("Info", (), {}), type("Wrapper", (Exception,), {})
    monkeypatch.setitem(sys.modules, "billiard.einfo", billiard)

    assert isinstance(einfo.exception, billiard.ExceptionWithTraceback)


def test_what_is_pickled_is_the_error(einfo):
    """A traceback stays behind, but not its text."""
    copied = pickle.loads(pickle.dumps(einfo))

    assert (copied.traceback, copied.exception.exc.args) == (einfo.traceback, ("boom",))
    assert repr(pickle.loads(pickle.dumps(einfo.exception))) == "ValueError('boom')"


def test_without_an_error_there_is_no_exception():
    """`ExceptionInfo()` outside an except clause."""
    assert ExceptionInfo().exception is None

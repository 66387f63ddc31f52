"""Celery's errors, as programs raise, catch and pickle them; the order of states."""

import pickle
from datetime import UTC, datetime

import kombu.exceptions
import pytest
from sidekiq_celery import exceptions, states
from sidekiq_celery.exceptions import Reject, Retry
from sidekiq_celery.states import state

TREE = {
    "CeleryError": ("ImproperlyConfigured", "SecurityError", "TaskPredicate", "TaskError"),
    "TaskPredicate": ("Retry", "Ignore", "Reject"),
    "TaskError": (
        *("QueueNotFound", "NotRegistered", "TimeoutError", "MaxRetriesExceededError", "TaskRevokedError"),
        *("InvalidTaskError", "ChordError", "IncompleteStream", "AlreadyRegistered"),
    ),
    "BackendError": ("BackendGetMetaError", "BackendStoreError"),
    "CeleryWarning": ("AlwaysEagerIgnored", "DuplicateNodenameWarning", "FixupWarning", "NotConfigured"),
}


@pytest.mark.parametrize(("parent", "child"), [(parent, child) for parent in TREE for child in TREE[parent]])
def test_errors_are_a_tree(parent, child):
    """So that `except` catches what it did."""
    assert issubclass(getattr(exceptions, child), getattr(exceptions, parent))


def test_every_public_name_is_there():
    """Those that need kombu or click are found when they are asked for."""
    for name in exceptions.__all__:
        assert getattr(exceptions, name) is not None
    assert exceptions.OperationalError is kombu.exceptions.OperationalError


def test_limits_are_roots_of_their_own():
    """As they came from Celery's process pool: `except CeleryError` lets them pass."""
    for error in (exceptions.SoftTimeLimitExceeded, exceptions.TimeLimitExceeded, exceptions.WorkerLostError):
        assert not issubclass(error, exceptions.CeleryError)
    assert str(exceptions.SoftTimeLimitExceeded(3)) == "SoftTimeLimitExceeded(3,)"


def test_a_retry_says_when_and_why():
    """In seconds or at a time."""
    when = datetime(2026, 1, 2, tzinfo=UTC)

    assert str(Retry(exc=ValueError("no"), when=10)) == "Retry in 10s: ValueError('no')"
    assert Retry(when=when).humanize() == f"at {when}"
    assert str(Retry("later")) == "later"


@pytest.mark.parametrize(
    "error",
    [
        Retry("m", ValueError("x"), 3),
        Reject("bad", requeue=True),
        exceptions.Ignore("x"),
        exceptions.NotRegistered("a.b"),
        exceptions.MaxRetriesExceededError("x"),
        exceptions.SoftTimeLimitExceeded(3),
        exceptions.WorkerLostError("gone"),
    ],
    ids=repr,
)
def test_errors_are_pickled(error):
    """With what they carry."""
    copied = pickle.loads(pickle.dumps(error))

    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert repr(copied.__dict__.get("exc")) == repr(error.__dict__.get("exc"))


def test_a_retry_keeps_an_error_that_cannot_be_pickled_as_text():
    """Else it could not leave the process."""

    class Local(Exception):
        pass

    retry = pickle.loads(pickle.dumps(Retry(exc=Local("x"), when=1)))

    assert "Local" in str(retry.exc)


def test_a_reject_carries_what_becomes_of_the_job():
    """Its reason, and whether it goes back."""
    rejected = Reject("bad", requeue=True)

    assert (rejected.reason, rejected.requeue, repr(rejected)) == ("bad", True, "reject requeue=True: bad")


def test_states_are_ordered():
    """A program's own are weaker than a result and stronger than what goes before one."""
    pending, started, success = state(states.PENDING), state(states.STARTED), state(states.SUCCESS)
    own, other = state("PROGRESS"), state("OTHER")

    assert pending < started < own < success
    assert not own > success
    assert own >= other
    assert own <= other
    assert states.precedence("PROGRESS") == states.NONE_PRECEDENCE


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("READY_STATES", {"SUCCESS", "FAILURE", "REVOKED"}),
        ("UNREADY_STATES", {"PENDING", "RECEIVED", "STARTED", "REJECTED", "RETRY"}),
        ("EXCEPTION_STATES", {"RETRY", "FAILURE", "REVOKED"}),
        ("PROPAGATE_STATES", {"FAILURE", "REVOKED"}),
    ],
)
def test_sets_of_states_are_celerys(name, members):
    """Ready, unready, exceptions, and those that are raised."""
    assert getattr(states, name) == members

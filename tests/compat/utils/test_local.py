"""Stand-ins pass for what they stand for."""

import copy
import pickle
import threading
from unittest import mock

import pytest
from sidekiq_celery.local import PromiseProxy, Proxy, class_property, maybe_evaluate, try_import


class Account:
    """An account."""

    def __init__(self, total=0):
        self.total = total

    def __add__(self, other):
        return self.total + other

    def pay(self, amount):
        return self.total - amount


ACCOUNT = Account(5)


def test_a_proxy_asks_each_time():
    """So that it is whatever is current."""
    current = [Account(1), Account(2)]
    proxy = Proxy(current.pop)

    assert (proxy.total, proxy.total) == (2, 1)


def test_a_proxy_passes_for_its_object():
    """With `isinstance`, attributes, methods and operators."""
    account = Account(5)
    proxy = Proxy(lambda: account)

    assert isinstance(proxy, Account)
    assert (proxy.total, proxy.pay(2), proxy + 1) == (5, 3, 6)
    assert (proxy.__module__, proxy.__doc__) == (__name__, "An account.")
    proxy.total = 7
    assert account.__dict__ == proxy.__dict__ == {"total": 7}
    del proxy.total
    assert account.__dict__ == {}


def test_the_class_of_proxies_is_a_class():
    """With its own name and text."""
    assert (Proxy.__module__, Proxy.__name__) == ("sidekiq_celery.local", "Proxy")
    assert "Forwards everything" in Proxy.__doc__


def test_a_proxy_is_a_container_if_its_object_is():
    """Length, items, membership and iteration."""
    items = [3, 1, 2]
    proxy = Proxy(lambda: items)
    proxy[0] = 4

    assert (len(proxy), proxy[0], 1 in proxy, sorted(proxy), bool(proxy)) == (3, 4, True, [1, 2, 4], True)
    assert (repr(proxy), proxy == [4, 1, 2]) == ("[4, 1, 2]", True)


def test_a_proxy_is_a_number_if_its_object_is():
    """With the operators of one."""
    proxy = Proxy(lambda: 7)

    assert (proxy - 2, proxy // 2, proxy % 4, -proxy, divmod(proxy, 2), int(proxy), float(proxy)) == (
        *(5, 3, 3, -7),
        (3, 1),
        7,
        7.0,
    )
    assert (proxy > 3, proxy <= 7, hash(proxy), [0] * 8)[2] == hash(7)
    assert list(range(proxy)) == list(range(7))


def test_a_proxy_may_be_given_a_name_and_a_text():
    """For which the object need not be there."""
    proxy = Proxy(lambda: 1 / 0, name="task", __doc__="Adds.")

    assert (proxy.__name__, proxy.__doc__) == ("task", "Adds.")


def test_a_proxy_without_an_object_says_so():
    """It is false and has no attributes."""

    def unbound():
        raise RuntimeError("no object")

    proxy = Proxy(unbound)

    assert (bool(proxy), repr(proxy), dir(proxy)) == (False, "<Proxy unbound>", [])


def test_a_promise_is_kept_once():
    """And forgets what it was made from."""
    made = []
    promise = PromiseProxy(lambda total: made.append(total) or Account(total), (3,))
    assert not promise.__evaluated__()

    assert (promise.total, promise.total) == (3, 3)
    assert made == [3]


def test_a_promise_tells_those_who_wait():
    """Once it is kept; later ones at once."""
    promise = PromiseProxy(Account)
    calls = []
    promise.__then__(calls.append, 1)
    assert calls == []

    assert maybe_evaluate(promise).total == 0
    promise.__then__(calls.append, 2)

    assert calls == [1, 2]


def test_many_threads_get_one_thing():
    """Whoever is first, and nobody finds it half made."""
    start = threading.Barrier(8)
    kept = {}
    promise = PromiseProxy(lambda: kept.setdefault("thing", Account(3)))
    seen = []

    def use():
        start.wait()
        seen.append((promise.total, id(promise._get_current_object())))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(seen) == {(3, id(kept["thing"]))}
    assert len(seen) == 8


def test_a_promise_that_fails_is_tried_again():
    """Nothing is kept of a failure."""
    answers = [ValueError("not yet"), Account(4)]

    def make():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    promise = PromiseProxy(make)
    with pytest.raises(ValueError, match="not yet"):
        _ = promise.total

    assert promise.total == 4


def test_a_proxy_can_be_patched():
    """As tests of programs do with `task.delay`."""
    account = Account(5)
    promise = PromiseProxy(lambda: account)

    with mock.patch.object(promise, "pay", return_value="patched"):
        assert promise.pay(1) == "patched"

    assert promise.pay(1) == 4


def test_what_is_pickled_is_the_object():
    """The same goes for copies."""
    proxy = Proxy(lambda: ACCOUNT)

    assert type(pickle.loads(pickle.dumps(proxy))) is Account
    assert type(copy.copy(proxy)) is Account


def test_other_things_stand_for_themselves():
    """`maybe_evaluate` takes anything."""
    assert maybe_evaluate(3) == 3
    assert try_import("no.such.module", "absent") == "absent"
    assert try_import("os.path").join("a", "b") == "a/b"


def test_a_property_of_a_class_is_read_of_the_class_and_set_by_an_instance():
    """Both functions receive the class, as functions or as class methods, and subclasses have values of their own."""

    class Shelf:
        labels = ("empty",)

        @class_property
        def label(cls):
            """What it says."""
            return "/".join(cls.labels)

        @label.setter
        @classmethod
        def label(cls, value):
            cls.labels = (value,)

    class Deep(Shelf):
        pass

    Deep().label = "full"

    assert (Shelf.label, Shelf().label, Deep.label, Deep().label) == ("empty", "empty", "full", "full")
    assert vars(Shelf)["label"].__doc__ == "What it says."

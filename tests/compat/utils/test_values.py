"""Mappings that settings are made of; exceptions and values in forms that can be sent; objects looked at."""

import pickle
from datetime import UTC, date, datetime, time, timedelta
from types import ModuleType

import pytest
from sidekiq_celery.utils.abstract import CallableSignature, CallableTask
from sidekiq_celery.utils.collections import AttributeDict, ChainMap, ConfigurationView, DictAttribute, lpmerge
from sidekiq_celery.utils.objects import Bunch, FallbackContext, getitem_property, mro_lookup
from sidekiq_celery.utils.serialization import (
    UnpickleableExceptionWrapper,
    create_exception_cls,
    get_pickleable_etype,
    get_pickleable_exception,
    get_pickled_exception,
    jsonify,
    raise_with_context,
    strtobool,
)


class Kept(ValueError):
    """Can be pickled."""


class Lost(Kept):
    """Cannot."""

    def __init__(self, one, two):
        super().__init__(one)


def test_a_view_finds_changes_before_defaults():
    """A key under each of its names."""
    view = ConfigurationView({"changed": 1}, [{"changed": 2, "DEFAULT": 3}], [str.upper])

    assert (view.changed, view["default"], view.get("none", 4)) == (1, 3, 4)
    view.other = 5
    assert view.changes == {"changed": 1, "other": 5}
    assert "default" in view
    view.clear()
    assert view.changed == 2


def test_a_prefix_is_looked_for_first():
    """In its own case."""
    view = ConfigurationView({"task_late": 1}, [{"CELERY_TASK_LATE": 2}], prefix="CELERY")

    assert view.task_late == 1
    assert ConfigurationView({}, [{"CELERY_TASK_LATE": 2}], prefix="CELERY_").task_late == 2
    with pytest.raises(KeyError, match="with prefix: 'CELERY_NO'"):
        view["no"]


def test_several_settings_are_what_they_are_one_by_one():
    """However they were set, and as soon as they are."""
    module = ModuleType("settings")
    changed = {}
    view = ConfigurationView(
        changed, [DictAttribute(module), {"one": 1, "two": 2, "three": 3}], [str.upper], prefix="P_"
    )
    keys = ("three", "one")

    def look():
        found = view.values_of(keys)
        assert found == tuple(view[key] for key in keys)
        return found

    assert look() == (3, 1)
    module.P_ONE = 10
    assert look() == (3, 10)
    changed["THREE"] = 30
    assert look() == (30, 10)
    view.one = 100
    assert look() == (30, 100)
    view.clear()
    del module.P_ONE
    assert look() == (3, 1)


def test_several_settings_are_found_among_defaults_with_other_names():
    """A program with old names of settings has those."""
    view = ConfigurationView({"THREE": 3}, [{"ONE": 1, "TWO": 2}], [str.upper])

    assert view.values_of(("one", "two")) == (1, 2)
    assert view.values_of(("one", "three")) == (1, 3)


@pytest.mark.parametrize("source", [Bunch(two=20), {"two": 20}, AttributeDict(two=20)])
def test_several_settings_may_come_from_anything(source):
    """An object's attributes may change by themselves, so each is looked for."""
    source = source if isinstance(source, dict) else DictAttribute(source)
    view = ConfigurationView({}, [source, {"one": 1, "two": 2}])

    assert view.values_of(("one", "two")) == (1, 20)
    source["one"] = 10
    assert view.values_of(("one", "two")) == (10, 20)


def test_mappings_are_asked_in_turn():
    """Changes go to the first; those who watch are told of updates."""
    calls = []
    chained = ChainMap({"a": 1}, {"a": 2, "b": 3})
    chained.bind_to(lambda *args, **kwargs: calls.append((args, kwargs)))
    chained.update({"c": 4}, d=5)

    assert (chained["a"], chained["b"], len(chained), sorted(chained)) == (1, 3, 4, ["a", "b", "c", "d"])
    assert calls == [(({"c": 4},), {"d": 5})]
    assert chained.pop("a") == 1
    with pytest.raises(KeyError, match="first mapping"):
        del chained["b"]
    with pytest.raises(KeyError):
        chained["z"]


def test_attributes_are_a_mapping_and_keys_attributes():
    """Both ways."""
    mapped = DictAttribute(Bunch(a=1))
    mapped["b"] = 2

    assert (mapped["a"], mapped.b, mapped.get("c"), "a" in mapped) == (1, 2, None, True)
    with pytest.raises(KeyError):
        mapped["c"]
    attributed = AttributeDict(a=1)
    attributed.b = 2
    assert attributed == {"a": 1, "b": 2}
    with pytest.raises(AttributeError, match="c"):
        _ = attributed.c


def test_none_does_not_replace():
    """In a merge."""
    assert lpmerge({"a": 1, "b": 2}, {"a": None, "b": 3}) == {"a": 1, "b": 3}


def test_an_exception_that_can_be_pickled_stays():
    """Others become the nearest that can, or are wrapped."""
    kept = Kept("x")
    assert get_pickleable_exception(kept) is kept

    nearest = get_pickleable_exception(Lost("x", 2))
    assert type(nearest) is Kept

    class Local(Exception):
        pass

    wrapped = pickle.loads(pickle.dumps(get_pickleable_exception(Local("x", object()))))
    assert isinstance(wrapped, UnpickleableExceptionWrapper)
    restored = get_pickled_exception(wrapped)
    assert (type(restored).__name__, restored.args[0]) == ("Local", "x")
    assert get_pickled_exception(kept) is kept
    assert get_pickleable_etype(Local) is Exception
    assert get_pickleable_etype(Kept) is Kept


def test_an_exceptions_class_is_made_where_there_is_none():
    """With its names."""
    made = create_exception_cls("Gone", "far.away")

    assert (made.__name__, made.__module__, issubclass(made, Exception)) == ("Gone", "far.away", True)


def test_an_error_is_raised_from_what_is_handled():
    """Itself as it is."""

    def handle(first, second):
        try:
            raise first
        except ValueError:
            raise_with_context(second)

    first = ValueError("first")
    with pytest.raises(KeyError) as caught:
        handle(first, KeyError("second"))
    assert caught.value.__cause__ is first

    with pytest.raises(ValueError, match="first") as same:
        handle(first, first)
    assert same.value.__cause__ is None


@pytest.mark.parametrize(("term", "truth"), [("yes", True), ("ON", True), ("0", False), ("off", False), (3, 3)])
def test_texts_name_truths(term, truth):
    """Others are refused."""
    assert strtobool(term) == truth
    with pytest.raises(TypeError, match="maybe"):
        strtobool("maybe")


def test_values_are_brought_into_json():
    """Times as JavaScript writes them; what is unknown is refused or filtered."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

    assert jsonify({"a": (moment, moment.date(), time(1, 2)), "b": timedelta(hours=1), "c": None}) == {
        "a": ["2026-01-02T03:04:05.678Z", "2026-01-02", "01:02:00"],
        "b": "1:00:00",
        "c": None,
    }
    assert jsonify(date(2026, 1, 2)) == "2026-01-02"
    assert jsonify([object()], unknown_type_filter=lambda _: "?") == ["?"]
    with pytest.raises(ValueError, match="Unsupported type"):
        jsonify(object())


def test_a_provided_context_is_left_open():
    """Another is made, entered and left."""
    events = []

    class Context:
        def __enter__(self):
            events.append("enter")
            return "made"

        def __exit__(self, *exc_info):
            events.append("exit")

    with FallbackContext("given", Context) as value:
        assert value == "given"
    assert events == []
    with FallbackContext(None, Context) as value:
        assert value == "made"
    assert events == ["enter", "exit"]


def test_keys_are_attributes_along_a_path():
    """As of a signature's options."""

    class Deep(dict):
        inner = getitem_property("options.link")
        outer = getitem_property("task", "The name.")

    deep = Deep(options={})
    deep.inner = 3
    deep.outer = "add"

    assert (deep.inner, deep.outer, deep) == (3, "add", {"options": {"link": 3}, "task": "add"})


def test_the_class_that_defines_an_attribute_is_found():
    """Up to where nobody looks any further."""

    class Base:
        name = 1

    class Child(Base):
        pass

    class Own(Base):
        name = 2

    assert mro_lookup(Child, "name") is Base
    assert mro_lookup(Child, "name", stop={Base, object}) is None
    assert mro_lookup(Own, "name", stop={Base, object}) is Own


def test_tasks_and_signatures_are_told_by_their_methods():
    """Whatever they derive from."""

    class Looks:
        def delay(self): ...
        def apply_async(self): ...
        def apply(self): ...
        def __call__(self): ...

    assert isinstance(Looks(), CallableTask)
    assert not isinstance(Looks(), CallableSignature)
    assert not isinstance(object(), CallableTask)

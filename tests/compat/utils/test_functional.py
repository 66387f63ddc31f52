"""Functions on functions, lists that are read as they are needed, ids."""

import pickle
import uuid as standard

import pytest
from kombu.utils.functional import lazy as kombus_lazy
from sidekiq_celery import uuid
from sidekiq_celery.utils import functional
from sidekiq_celery.utils.functional import chunks, first, firstmethod, head_from_fun, maybe_evaluate, mlazy, regen


def reading(count, seen):
    for number in range(count):
        seen.append(number)
        yield number


def test_an_iterator_is_read_as_far_as_somebody_asks():
    """And one ahead, so that its end is known with its last element."""
    seen = []
    numbers = regen(reading(5, seen))
    assert seen == []

    assert numbers[0] == 0
    assert seen == [0, 1]
    assert list(numbers) == list(numbers) == [0, 1, 2, 3, 4]
    assert (numbers[-1], numbers[1:3], len(numbers), 3 in numbers) == (4, [1, 2], 5, True)


def test_a_list_stays_what_it_is():
    """Nothing is copied."""
    items = [1]

    assert regen(items) is items
    assert regen((1,)) == (1,)


def test_two_may_go_through_it_at_once():
    """Each at its own place."""
    numbers = regen(iter(range(3)))

    assert [(a, b) for a in numbers for b in numbers] == [(a, b) for a in range(3) for b in range(3)]


def test_its_elements_can_be_changed_before_they_are_read():
    """Those that are read and those to come."""
    numbers = regen(iter(range(3)))
    assert numbers[0] == 0

    numbers.map(lambda number: number + 10)

    assert numbers == [10, 11, 12]


def test_it_is_a_list_to_encoders_and_to_pickle():
    """An empty one is false."""
    assert isinstance(regen(iter(())), list)
    assert not regen(iter(()))
    assert pickle.loads(pickle.dumps(regen(iter(range(2))))) == [0, 1]
    assert repr(regen(iter(()))) == "<_regen: [...]>"


@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (lambda x, y: None, [((1, 2), {}), ((1,), {"y": 2})], [((), {}), ((1, 2, 3), {})]),
        (lambda x, y=2: None, [((1,), {}), ((1, 2), {})], [((), {})]),
        (lambda *args: None, [((), {}), ((1, 2, 3), {})], [((), {"x": 1})]),
        (lambda **kw: None, [((), {"x": 1})], [((1,), {})]),
        (lambda x, *, y, z=3: None, [((1,), {"y": 1})], [((1, 2), {}), ((1,), {})]),
        (lambda x, *args, y=1, **kw: None, [((1, 2), {"z": 3})], [((), {})]),
        (lambda x, /, y: None, [((1, 2), {})], [((), {})]),
    ],
)
def test_a_head_takes_what_the_function_takes(function, good, bad):
    """And nothing else."""
    head = head_from_fun(function)

    for args, kwargs in good:
        head(*args, **kwargs)
    for args, kwargs in bad:
        with pytest.raises(TypeError):
            head(*args, **kwargs)


def test_a_head_may_leave_out_what_is_bound():
    """The task itself."""
    head = head_from_fun(lambda self, x: None, bound=True)

    head(1)
    with pytest.raises(TypeError):
        head(1, 2)


def test_lazy_values_are_evaluated():
    """Ours and kombu's; those of `mlazy` once."""
    made = []
    value = mlazy(lambda: made.append(1) or "value")

    assert (maybe_evaluate(value), maybe_evaluate(value), made) == ("value", "value", [1])
    assert maybe_evaluate(kombus_lazy(lambda: 3)) == 3
    assert maybe_evaluate(4) == 4
    assert str(value) == "value"


def test_the_first_answer_counts():
    """Of values, and of objects that have a method."""

    class Answers:
        def __init__(self, answer):
            self.answer = answer

        def ask(self):
            return self.answer

    assert first(None, [None, 0, 1]) == 0
    assert first(lambda x: x > 1, [1, 2]) == 2
    assert firstmethod("ask")([object(), Answers(None), Answers(3), Answers(4)]) == 3


def test_elements_that_repeat_are_left_out_as_they_are_read():
    """No further than somebody asks."""
    seen = []
    once = functional.uniq(reading(5, seen))

    assert next(once) == 0
    assert seen == [0]


def test_small_helpers_do_what_their_names_say():
    """Each in one line."""
    assert list(chunks(iter(range(5)), 2)) == [[0, 1], [2, 3], [4]]
    assert functional.padlist(["a"], 3, "z") == ["a", "z", "z"]
    assert functional.maybe_list("a") == ["a"]
    assert functional.maybe_list(None) is None
    assert functional.maybe_list(("a",)) == ("a",)
    assert list(functional.uniq([1, 2, 1])) == [1, 2]
    assert functional.dictfilter({"a": 1, "b": None}, c=2) == {"a": 1, "c": 2}
    assert functional.mattrgetter("real", "none")(3) == {"real": 3, "none": None}
    assert list(functional.lookahead([1, 2])) == [(1, 2), (2, None)]
    assert functional.seq_concat_item((1,), 2) == (1, 2)
    assert functional.seq_concat_seq([1], (2, 3)) == (1, 2, 3)
    assert functional.is_numeric_value(True) is False


def test_ids_are_random_uuids():
    """Of version 4, in the usual form."""
    texts = {uuid() for _ in range(100)}

    assert len(texts) == 100
    for text in texts:
        parsed = standard.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, standard.RFC_4122, text)

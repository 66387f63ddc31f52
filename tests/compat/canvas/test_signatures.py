"""Signatures as values: dicts, partials, copies, operators, texts."""

import json
import os
import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
from sidekiq_celery import Celery, Signature, chain, chord, group, maybe_signature, signature
from sidekiq_celery.canvas import _chain, subtask, xmap
from sidekiq_celery.utils.abstract import CallableSignature


def test_a_signature_is_a_dict(tasks: SimpleNamespace) -> None:
    """With Celery's keys, so that any serializer carries it."""
    sig = tasks.add.s(1, y=2).set(queue="low")

    assert sig == {
        "task": "add",
        "args": (1,),
        "kwargs": {"y": 2},
        "options": {"queue": "low"},
        "subtask_type": None,
        "immutable": False,
    }
    assert isinstance(sig, CallableSignature)
    assert (sig.task, sig.name, sig.args, sig.kwargs, sig.options) == ("add", "add", (1,), {"y": 2}, {"queue": "low"})


def test_arguments_of_a_caller_come_first(tasks: SimpleNamespace) -> None:
    """And keyword arguments of both are merged, the caller's winning."""
    whole = tasks.same.s(3, a=1, b=1).clone((1, 2), {"b": 2}, countdown=5)

    assert (whole.args, whole.kwargs, whole.options) == ((1, 2, 3), {"a": 1, "b": 2}, {"countdown": 5})


def test_an_immutable_signature_takes_options_alone(tasks: SimpleNamespace) -> None:
    """Arguments of a caller are left aside."""
    whole = tasks.same.si(3).clone((1,), {"b": 2}, countdown=5)

    assert (whole.args, whole.kwargs, whole.options) == ((3,), {}, {"countdown": 5})
    assert tasks.same.s(3).set(immutable=True).immutable


def test_calling_a_signature_runs_the_task(tasks: SimpleNamespace) -> None:
    """As a function, here."""
    assert tasks.add.s(1)(2) == 3


def test_a_signature_can_be_made_of_a_name(app: Celery, tasks: SimpleNamespace) -> None:
    """Of a task that need not be here."""
    assert signature("add", (1, 2), app=app)() == 3
    assert signature("elsewhere", args=(1,), kwargs={"a": 2}, options={"queue": "x"}, immutable=True).immutable
    assert subtask is signature


def test_a_signature_that_is_signed_again_is_a_copy(tasks: SimpleNamespace) -> None:
    """None stays None, and dicts become what they were."""
    sig = tasks.add.s(1)

    copy = signature(sig)
    copy.options["queue"] = "x"

    assert sig.options == {}
    assert maybe_signature(None) is None
    assert maybe_signature(sig) is sig
    assert maybe_signature(dict(sig)) == sig


def test_a_copy_shares_no_options(tasks: SimpleNamespace) -> None:
    """However deep they are."""
    sig = tasks.add.s(1).set(headers={"a": [1]})

    sig.clone().options["headers"]["a"].append(2)

    assert sig.options == {"headers": {"a": [1]}}


def test_parts_can_be_replaced(tasks: SimpleNamespace) -> None:
    """In a copy; what is not given stays."""
    sig = tasks.add.s(1, 2)

    other = sig.replace(args=(5,), options={"queue": "x"})

    assert (other.args, other.kwargs, other.options) == ((5,), {}, {"queue": "x"})
    assert sig.args == (1, 2)


@pytest.mark.parametrize("kind", ["chain", "group", "chord"])
def test_every_kind_comes_back_from_json_and_pickle(app: Celery, tasks: SimpleNamespace, kind: str) -> None:
    """As the same kind, with parts that are signatures."""
    members = [tasks.add.s(1, 2), tasks.add.s(3, 4)]
    canvas = {"chain": _chain(*members), "group": group(members), "chord": chord(members, tasks.total.s())}[kind]

    for back in (signature(json.loads(json.dumps(canvas)), app=app), pickle.loads(pickle.dumps(canvas))):
        assert type(back) is type(canvas)
        assert all(isinstance(one, Signature) for one in back.tasks)
        assert json.loads(json.dumps(back)) == json.loads(json.dumps(canvas))


def test_pickles_name_the_module_that_programs_import(tasks: SimpleNamespace) -> None:
    """Private modules may move between releases, and a pickle may be read by a later one."""
    for named in (tasks.add.s(1), Signature, chain, group, chord):
        assert b"sidekiq_celery.canvas" in pickle.dumps(named)


def test_a_kind_of_ones_own_is_known_by_its_name(tasks: SimpleNamespace) -> None:
    """A class that is registered is made where a dict names it."""

    @Signature.register_type(name="mine")
    class Mine(Signature):
        @classmethod
        def from_dict(cls, d: dict[str, object], app: object = None) -> "Mine":
            return cls(d)

    try:
        assert type(Signature.from_dict({**tasks.add.s(1), "subtask_type": "mine"})) is Mine
    finally:
        del Signature.TYPES["mine"]


def test_callbacks_are_kept_once(tasks: SimpleNamespace) -> None:
    """`link` returns the callback, `on_error` the signature."""
    sig, callback = tasks.add.s(1), tasks.add.s(2)

    assert sig.link(callback) is callback
    sig.link(callback)
    assert sig.options["link"] == [callback]
    assert sig.on_error(callback) is sig
    assert sig.options["link_error"] == [callback]
    assert sig.flatten_links() == [sig, callback]


def test_a_groups_callback_hangs_on_its_first_member(tasks: SimpleNamespace) -> None:
    """Without its result, as the group has none; errbacks hang on each."""
    canvas = group(tasks.add.s(1, 1), tasks.add.s(2, 2))

    canvas.link(tasks.add.s(5))
    canvas.link_error(tasks.add.s(6))

    first, second = canvas.tasks
    assert [one.immutable for one in first.options["link"]] == [True]
    assert "link" not in second.options
    assert first.options["link_error"] == second.options["link_error"] == [tasks.add.s(6)]


def test_a_group_as_a_whole_takes_no_callbacks(tasks: SimpleNamespace) -> None:
    """It has no end; a chord has."""
    with pytest.raises(TypeError, match="use a chord"):
        group(tasks.add.s(1, 1)).apply_async(link=tasks.add.s(1))


def test_an_id_is_given_by_freezing(tasks: SimpleNamespace) -> None:
    """And kept from then on."""
    sig = tasks.add.s(1, 2)

    result = sig.freeze("the-id", root_id="root", parent_id="parent", group_id="gid", group_index=3)

    assert (result.id, sig.id, sig.root_id, sig.parent_id) == ("the-id", "the-id", "root", "parent")
    assert (sig.options["group_id"], sig.options["group_index"]) == ("gid", 3)
    assert sig.freeze("another").id == "the-id"


def test_freezing_a_group_of_an_iterable_gives_its_members_their_ids(app: Celery, tasks: SimpleNamespace) -> None:
    """Whoever sends the group later, even from its JSON, has the results that were handed out."""
    canvas = group(tasks.add.s(n, n) for n in range(2))

    result = canvas.freeze()
    restored = Signature.from_dict(json.loads(json.dumps(canvas)), app=app)
    sent = canvas.apply_async()

    # What was handed out is read last: reading it must not be what gives the ids.
    ids = [one.id for one in result.results]
    assert ids == [one.id for one in restored.tasks]
    assert ids == [one.id for one in sent.results]


def test_groups_of_iterables_with_the_same_members_are_equal(tasks: SimpleNamespace) -> None:
    """Whether they have been read or not."""
    canvas = group(tasks.add.s(n, n) for n in range(2))

    assert canvas == group(tasks.add.s(n, n) for n in range(2))
    assert canvas == group([tasks.add.s(0, 0), tasks.add.s(1, 1)])


def test_freezing_a_chain_links_its_results(tasks: SimpleNamespace) -> None:
    """From the last to the first."""
    result = _chain(tasks.add.s(1, 1), tasks.add.s(1), tasks.add.s(1)).freeze("last")

    assert result.id == "last"
    assert result.parent.parent.parent is None


def test_operators_compose(tasks: SimpleNamespace) -> None:
    """`a | b` is a chain, a group and a task are a chord, a group of one is its member."""
    add, total = tasks.add, tasks.total

    assert [one.args for one in (add.s(1, 1) | add.s(2) | add.s(3)).tasks] == [(1, 1), (2,), (3,)]
    assert type(group(add.s(1, 1), add.s(2, 2)) | total.s()) is chord
    assert type(add.s(1, 1) | group(add.s(2))) is _chain
    assert (add.s(1, 1) | group(add.s(2))).tasks[1].task == "add"
    assert (group(add.s(1, 1), add.s(2, 2)) | group([])).subtask_type == "group"
    assert len((chain(add.s(1, 1), add.s(2)) | chain(add.s(3), add.s(4))).tasks) == 4


def test_the_last_step_of_a_chain_is_the_callers_own(tasks: SimpleNamespace) -> None:
    """The others are copies, as with `|` in Celery: whoever keeps the last one can still give it options."""
    first, second, last = tasks.add.s(1, 1), tasks.add.s(2), tasks.add.s(3)

    for canvas in (chain(first, second, last), chain([first, second, last]), first | second | last):
        assert [step is given for step, given in zip(canvas.tasks, (first, second, last), strict=True)] == [
            False,
            False,
            True,
        ]


def test_a_chord_within_a_chain_has_one_task_as_its_body(tasks: SimpleNamespace) -> None:
    """What follows in the body are steps of the chain: it would take another job to call a body that is a chain."""
    body = chain(tasks.total.s(), tasks.add.s(1), tasks.add.s(2))
    canvas = chain(tasks.same.s(1), chord([tasks.same.s(), tasks.same.s()], body), tasks.add.s(3))

    steps, _ = canvas.prepare_steps((), {}, canvas.tasks)

    assert [step.task for step in reversed(steps)] == ["same", "celery.chord", "add", "add", "add"]
    assert steps[3].body.task == "total"


def test_each_step_of_an_inner_chain_has_its_own_copy_of_an_errback(tasks: SimpleNamespace) -> None:
    """A visitor that stamps one step, and its errback with it, does not stamp that of another."""
    inner = chain(tasks.add.s(1), chord([tasks.same.s()], tasks.total.s()))
    inner.link_error(tasks.boom.s())

    first, last = chain(chord([tasks.same.s(1)], tasks.total.s()), inner).tasks

    [of_the_first], [of_the_last] = first.body.tasks[-1].options["link_error"], last.body.options["link_error"]
    assert of_the_first == of_the_last
    assert of_the_first is not of_the_last


def test_a_chord_takes_what_follows_into_its_body(tasks: SimpleNamespace) -> None:
    """It is done with it."""
    canvas = group(tasks.add.s(1, 1), tasks.add.s(2, 2)) | tasks.total.s() | tasks.add.s(1)

    assert type(canvas) is chord
    assert [one.task for one in canvas.body.tasks] == ["total", "add"]


def test_callbacks_of_one_call_of_a_chord_are_not_those_of_the_next(tasks: SimpleNamespace) -> None:
    """The canvas stays as it was, to the members of a body that is a group."""
    canvas = chord([tasks.same.s(1)], group(tasks.same.s(), tasks.total.s()))
    before = json.dumps(canvas.body)

    canvas.apply_async(link=tasks.same.s(), link_error=tasks.boom.s())

    assert json.dumps(canvas.body) == before


def test_a_long_chain_is_made_in_one_pass(tasks: SimpleNamespace) -> None:
    """And without a stack frame for each step."""
    canvas = chain(tasks.add.s(number) for number in range(3000))

    assert len(canvas.tasks) == 3000


def test_texts_read_like_calls(tasks: SimpleNamespace) -> None:
    """As Celery writes them."""
    add, total = tasks.add, tasks.total

    assert repr(add.s(1, 2)) == "add(1, 2)"
    assert repr(chain(add.s(1, 2), add.s(3))) == "add(1, 2) | add(3)"
    assert repr(group([add.s(1, 2), add.s(3, 4)])) == "group([add(1, 2), add(3, 4)])"
    assert repr(group()) == "group(<empty>)"
    assert repr(chord([add.s(1, 2)], total.s())) == "%total([add(1, 2)])"
    assert repr(xmap(add.s(), [1, 2])) == "[add(x) for x in [1, 2]]"


def test_skewed_members_begin_one_after_the_other(tasks: SimpleNamespace) -> None:
    """By their countdowns."""
    canvas = group(tasks.add.s(n, n) for n in range(3)).skew(start=2, step=3)

    assert [one.options["countdown"] for one in canvas.tasks] == [2, 5, 8]


def test_a_program_that_makes_no_workflows_knows_their_kinds() -> None:
    """A worker looks at what comes next in a workflow of its callers, with nothing of canvas imported."""
    program = (
        "import sys\n"
        "from sidekiq_celery import Celery\n"
        "from sidekiq_celery._workflow import chord_completion\n"
        "assert Celery() and 'sidekiq_celery.canvas' not in sys.modules\n"
        "assert not chord_completion.kinds.is_group({'task': 'body'})"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(["compat", "."])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["chain", "group", "chord"])
def test_every_kind_is_read_where_nobody_has_imported_it(tasks: SimpleNamespace, kind: str) -> None:
    """As by a worker whose program makes no workflows: it meets them as bodies, links and steps."""
    add, one = tasks.add, tasks.add.s(1)
    made = {"chain": chain(add.s(1, 1), one), "group": group(one, one), "chord": chord([add.s(1, 1)], one)}
    program = (
        "import json, sys\n"
        "from sidekiq_celery import Celery\n"
        "from sidekiq_celery._workflow.signature import maybe_signature\n"
        "assert Celery() and 'sidekiq_celery.canvas' not in sys.modules\n"
        "print(type(maybe_signature(json.loads(sys.argv[1]))).__name__.strip('_'))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(made[kind])],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.strip() == kind, done.stderr

"""Chains: each step is called with the result of the previous one."""

import operator
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any, Self, overload

from sidekiq_celery._result.base import allow_join_result
from sidekiq_celery._result.eager import EagerResult
from sidekiq_celery._type_variables import R_co, T, Unknown
from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.preparation import Preparation
from sidekiq_celery._workflow.signature import Signature, app_of, maybe_signature
from sidekiq_celery.states import IGNORED, REJECTED
from sidekiq_celery.utils.functional import is_list, maybe_list, regen, seq_concat_item
from sidekiq_celery.utils.objects import getitem_property
from sidekiq_celery.utils.text import remove_repeating_from_task

if TYPE_CHECKING:
    from sidekiq_celery.result import AsyncResult


@Signature.register_type(name="chain")
class _chain(Signature[R_co]):
    """A chain of the given steps, unchanged; `chain` composes them."""

    tasks = getitem_property("kwargs.tasks", "The steps.")

    @classmethod
    def from_dict(cls, d: Any, app: Any = None) -> Any:
        """Restore a chain from the dict *d*."""
        tasks = d["kwargs"]["tasks"]
        if tasks:
            if isinstance(tasks, tuple):
                tasks = d["kwargs"]["tasks"] = list(tasks)
            tasks = [maybe_signature(task, app=app) for task in tasks]
        return cls(tasks, app=app, **d["options"])

    def __init__(self, *tasks: Any, **options: Any) -> None:
        steps = regen(tasks[0]) if len(tasks) == 1 and is_list(tasks[0]) else tasks
        # A chain-only option: call the next step through a link, as Celery's first protocol did.
        self._use_link = options.pop("use_link", None)
        super().__init__("celery.chain", (), {"tasks": steps}, **options)
        self.subtask_type = "chain"
        self._frozen: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Send the chain."""
        return self.apply_async(args, kwargs) if self.tasks else None

    # ---- composing

    @overload  # type: ignore[override]
    def __or__(self, other: Signature[T]) -> "_chain[T]": ...
    @overload
    def __or__(self, other: Any) -> Any: ...
    def __or__(self, other: Any) -> Any:
        if kinds.is_empty_group(other):
            return self
        if kinds.is_group(other):
            return self._with_group(kinds.maybe_unroll_group(other))
        if isinstance(other, _chain):
            return reduce(operator.or_, other.unchain_tasks(), self)
        if isinstance(other, Signature):
            return self._with_step(other)
        return NotImplemented

    def _with_group(self, group: Any) -> Any:
        if not kinds.is_group(group):
            return self.__or__(group)
        tasks = self.unchain_tasks()
        if not tasks:
            return group
        if kinds.is_chord(tasks[-1]):
            # A chord ends with its body, so the next step goes after the body.
            tasks[-1].body = tasks[-1].body | group
            return type(self)(tasks, app=self.app)
        return type(self)(seq_concat_item(tasks, group), app=self._app)

    def _with_step(self, step: Any) -> Any:
        last = self.tasks[-1] if self.tasks else None
        if kinds.is_group(last):
            longer = self.clone()
            longer.tasks[-1] = kinds.chord_of(longer.tasks[-1], step, app=self._app)
            if len(longer.tasks) > 1 and kinds.is_chord(longer.tasks[-2]):
                *before, first, second = longer.tasks
                first.body = first.body | second
                longer.tasks = [*before, first]
            return longer
        if kinds.is_chord(last) and not kinds.is_chord(step):
            longer = self.clone()
            longer.tasks[-1].body = longer.tasks[-1].body | step
            return longer
        return type(self)(seq_concat_item(self.unchain_tasks(), step), app=self._app)

    def unchain_tasks(self) -> list[Any]:
        """Copies of the steps, with the chain's callbacks on the last one and its errbacks on each."""
        tasks = [task.clone() for task in self.tasks]
        for callback in maybe_list(self.options.get("link")) or ():
            tasks[-1].link(callback)
        for errback in maybe_list(self.options.get("link_error")) or ():
            for task in tasks:
                task.link_error(errback)
        return tasks

    def clone(self, *args: Any, **kwargs: Any) -> Self:
        """A copy of the chain, with copies of the steps."""
        copy = super().clone(*args, **kwargs)
        copy.kwargs["tasks"] = [maybe_signature(sig, app=self._app, clone=True) for sig in copy.kwargs["tasks"]]
        return copy

    def stamp(self, visitor: Any = None, append_stamps: bool = False, **headers: Any) -> None:
        """Stamp the chain, its callbacks and its steps."""
        of_visitor = None if visitor is None else visitor.on_chain_start(self, **headers) or {}
        headers = self._stamp_headers(of_visitor, append_stamps, **headers)
        self.stamp_links(visitor, **headers)
        for task in self.tasks:
            task.stamp(visitor, append_stamps, **headers)
        if visitor is not None:
            visitor.on_chain_end(self, **headers)

    # ---- calling

    def _links_steps(self, app: Any) -> bool:
        return bool(self._use_link or (self._use_link is None and app.conf.task_protocol == 1))

    def _unroll_chords(self, app: Any = None) -> None:
        """Make chords pass on to the step after them, instead of each holding the rest of the chain in its body."""
        app = app or self.app
        if self._links_steps(app):
            return
        pending, tasks = [*reversed(self.tasks)], []
        while pending:
            task = pending.pop()
            if isinstance(task, _chain):
                task = task.clone()
                task._unroll_chords(app)
            if kinds.is_chord(task) and kinds.is_led_by_task(task.body):
                pending.extend(reversed(task._unroll_body()))
            else:
                tasks.append(task)
        self.tasks = tasks

    @overload  # type: ignore[override]
    def apply_async(self: "_chain[Unknown]", args: Any = None, kwargs: Any = None, **options: Any) -> Any: ...
    @overload
    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> "AsyncResult[R_co]": ...
    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """
        Send the first step; the others follow when it has finished.

        Returns:
            The last step's result; its `parent` is the result of the step before it, and so on.
        """
        app = self.app
        if app.conf.task_always_eager:
            with allow_join_result():
                return self.apply(args or (), kwargs or {}, **options)
        return self.run(args or (), kwargs or {}, app=app, **{**self.options, **options})

    def run(
        self,
        args: Any = None,
        kwargs: Any = None,
        group_id: str | None = None,
        chord: Any = None,
        task_id: str | None = None,
        link: Any = None,
        link_error: Any = None,
        publisher: Any = None,
        producer: Any = None,
        root_id: str | None = None,
        parent_id: str | None = None,
        app: Any = None,
        group_index: int | None = None,
        **options: Any,
    ) -> Any:
        """Like `apply_async`, but sends the chain even if tasks are eager."""
        app = app or self.app
        args = (*args, *self.args) if args and not self.immutable else self.args
        tasks, results = self.prepare_steps(
            args,
            kwargs or {},
            self.tasks,
            root_id,
            parent_id,
            link_error,
            app,
            task_id,
            group_id,
            chord,
            group_index=group_index,
        )
        if not results:
            return None
        if link:
            tasks[0].extend_list_option("link", link)
        first = tasks.pop()
        if parent_id:
            # A chord's body is called by an internal task, which is not its parent.
            options["parent_id"] = parent_id
        # The next step comes last, and what follows the whole chain first.
        rest = None if self._links_steps(app) else [*(options.get("chain") or ()), *tasks]
        result = first.apply_async(**{**options, "chain": rest})
        return results[0] if tasks else result

    def freeze(
        self,
        _id: str | None = None,
        group_id: str | None = None,
        chord: Any = None,
        root_id: str | None = None,
        parent_id: str | None = None,
        group_index: int | None = None,
    ) -> Any:
        """Assign every step its id now. Returns the last step's result."""
        self._frozen = self.prepare_steps(
            self.args,
            self.kwargs,
            self.tasks,
            root_id,
            parent_id,
            None,
            self.app,
            _id,
            group_id,
            chord,
            clone=False,
            group_index=group_index,
        )
        return self._frozen[1][0]

    def prepare_steps(
        self,
        args: Any,
        kwargs: Any,
        tasks: Any,
        root_id: str | None = None,
        parent_id: str | None = None,
        link_error: Any = None,
        app: Any = None,
        last_task_id: str | None = None,
        group_id: str | None = None,
        chord_body: Any = None,
        clone: bool = True,
        from_dict: Any = Signature.from_dict,
        group_index: int | None = None,
    ) -> tuple[list[Any], list[Any]]:
        """
        The steps in the form in which they are sent: flat, frozen, and with each group and its successor as a chord.

        Returns:
            The steps and their results, both from last to first.
        """
        app = app or self.app
        preparation = Preparation(
            app=app,
            args=args,
            kwargs=kwargs,
            clones=clone,
            links_steps=self._links_steps(app),
            root_id=root_id,
            errbacks=maybe_list(link_error) or [],
            last_options={
                "_id": last_task_id,
                "root_id": root_id,
                "group_id": group_id,
                "chord": chord_body,
                "group_index": group_index,
            },
            from_dict=from_dict,
        )
        steps, results = preparation.of(tasks)
        self.id = results[0].id if results else last_task_id
        return steps, results

    def apply(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Run all steps immediately in this process. Returns the last one's result."""
        tasks = list(self.tasks)
        task_options = {**self.options, **options}
        link = task_options.pop("link", None)
        not_empty = [index for index, task in enumerate(tasks) if not kinds.is_empty_group(task)]
        last_index = not_empty[-1] if not_empty else len(tasks) - 1
        given, given_kwargs, last = args or (), kwargs or {}, None
        for index, task in enumerate(tasks):
            if kinds.is_empty_group(task) and (index < len(tasks) - 1 or last is not None):
                continue
            step = task.clone()
            if link and index == last_index:
                (step.body if kinds.is_chord(step) else step).extend_list_option("link", link)
            # The result is already available, so this does not wait within a task.
            given = (last.get(disable_sync_subtasks=False),) if last else given
            result = step.apply(given, given_kwargs, **task_options)
            result.parent, last = last, result
            given, given_kwargs = None, None
            if _ends_the_chain(result):
                break
        return last

    app = property(app_of, doc="The chain's app, or else that of its first step, or else the current one.")

    def __repr__(self) -> str:
        if not self.tasks:
            return f"<{type(self).__name__}@{id(self):#x}: empty>"
        return remove_repeating_from_task(self.tasks[0]["task"], " | ".join(map(repr, self.tasks)))


def _ends_the_chain(result: Any) -> bool:
    """Whether the chain stops here: a step that ignored or rejected itself has no result to continue with."""
    return isinstance(result, EagerResult) and result.state in (IGNORED, REJECTED)


class chain(_chain[R_co]):
    """
    A chain of these steps, or of an iterable of them. The result is the same as that of `a | b | c`.

    Args:
        kwargs: Options for the chain.
    """

    @overload
    def __new__(cls, a: Signature[T], /, **kwargs: Any) -> "chain[T]": ...
    @overload
    def __new__(cls, a: Any, b: Signature[T], /, **kwargs: Any) -> "chain[T]": ...
    @overload
    def __new__(cls, a: Any, b: Any, c: Signature[T], /, **kwargs: Any) -> "chain[T]": ...
    @overload
    def __new__(cls, a: Any, b: Any, c: Any, d: Signature[T], /, **kwargs: Any) -> "chain[T]": ...
    @overload
    def __new__(cls, /, *tasks: Any, **kwargs: Any) -> "chain[Any]": ...
    def __new__(cls, /, *tasks: Any, **kwargs: Any) -> Any:
        if kwargs or not tasks or (len(tasks) == 1 and not is_list(tasks[0])):
            return super().__new__(cls, *tasks, **kwargs)
        folded = fold(tasks[0] if len(tasks) == 1 else tasks)
        if cls is not chain and isinstance(folded, _chain) and not isinstance(folded, cls):
            return super().__new__(cls, folded.tasks, **kwargs)
        return folded


def fold(tasks: Iterable[Any]) -> Any:
    """`a | b | c` in one pass. Folding with the operator would copy all steps for each one added."""
    tasks = list(tasks)
    steps: list[Any] = []
    for position, task in enumerate(tasks):
        # The operator copies its left operand, so the last step stays the caller's own object.
        other = _added(steps, task, clones=position != len(tasks) - 1)
        if other is NotImplemented:
            return reduce(operator.or_, tasks, _chain())
        if other is not None:
            return reduce(operator.or_, tasks[position + 1 :], other)
    # An inner chain's errback is on each of its steps, and a visitor should stamp one for each step.
    return _chain([*(step.clone() for step in steps[:-1]), *steps[-1:]])


def _added(steps: list[Any], other: Any, clones: bool) -> Any:
    """Append *other* to *steps* by the rules of `|`. Returns the combined signature if it is no longer a chain."""
    if kinds.is_empty_group(other):
        return None
    if kinds.is_group(other):
        other = kinds.maybe_unroll_group(other)
        if not kinds.is_group(other):
            return _added(steps, other, clones)
        if not steps:
            return other
    if isinstance(other, _chain):
        return _added_all(steps, other.unchain_tasks(), clones)
    if not isinstance(other, Signature):
        return NotImplemented
    last: Any = steps[-1] if steps else None
    if kinds.is_chord(last) and not kinds.is_chord(other):
        last.body = last.body | other
    elif kinds.is_group(last) and not kinds.is_group(other):
        steps[-1] = kinds.chord_of(last, other.clone() if clones else other)
    else:
        steps.append(other.clone() if clones else other)
    return None


def _added_all(steps: list[Any], inner: list[Any], clones: bool) -> Any:
    for position, task in enumerate(inner):
        other = _added(steps, task, clones or position != len(inner) - 1)
        if other is NotImplemented:
            return other
        if other is not None:
            return reduce(operator.or_, inner[position + 1 :], other)
    return None


kinds.known[kinds.CHAIN] = _chain

"""Chords: a group, and a body that is called with the list of the group's results."""

import warnings
from collections.abc import MutableSequence
from functools import cached_property
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Self, overload

from sidekiq_celery._result.base import allow_join_result
from sidekiq_celery._send.atomic_batch import batch
from sidekiq_celery._send.flow_store import keep_chord
from sidekiq_celery._state import get_current_app
from sidekiq_celery._type_variables import R_co, T, Unknown
from sidekiq_celery._wire.chord_part import part
from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.body_callbacks import with_callbacks
from sidekiq_celery._workflow.chord_headers import count_parts, strip_header_links
from sidekiq_celery._workflow.group import stamp_all
from sidekiq_celery._workflow.signature import Signature, maybe_signature, signature
from sidekiq_celery.exceptions import CPendingDeprecationWarning
from sidekiq_celery.utils import abstract
from sidekiq_celery.utils.functional import maybe_list, regen
from sidekiq_celery.utils.ids import uuid
from sidekiq_celery.utils.objects import getitem_property
from sidekiq_celery.utils.text import remove_repeating_from_task

if TYPE_CHECKING:
    from sidekiq_celery._workflow.chain import _chain
    from sidekiq_celery._workflow.group import group
    from sidekiq_celery.result import AsyncResult

# The options of a chain that its own `run` uses; the others go to its first task.
_OF_A_CHAIN = frozenset({"chord", "group_id", "group_index", "link", "link_error", "parent_id", "root_id", "task_id"})
_DELAYS = ("countdown", "eta")


@Signature.register_type(name="chord")
class _chord(Signature[R_co]):
    """
    A group (the header), and a body that is called with the list of its results.

    Args:
        header: Signatures, an iterable of them, or a group.
        options: Options for the body, except delays, which apply to the header.
    """

    @classmethod
    def from_dict(cls, d: Any, app: Any = None) -> Any:
        """Restore a chord from the dict *d*."""
        options = d.copy()
        (header, body), options["kwargs"] = cls._unpack_args(**options["kwargs"])
        return cls(header, body, app=app, **options)

    @staticmethod
    def _unpack_args(header: Any = None, body: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        return (header, body), kwargs

    @overload
    def __init__(self, header: Any, body: Signature[R_co], *args: Any, **options: Any) -> None: ...
    @overload
    def __init__(self: "_chord[Any]", header: Any, body: Any = None, *args: Any, **options: Any) -> None: ...
    def __init__(
        self,
        header: Any,
        body: Any = None,
        task: str = "celery.chord",
        args: Any = None,
        kwargs: Any = None,
        app: Any = None,
        **options: Any,
    ) -> None:
        task_kwargs: dict[str, Any] = {**(kwargs or {"kwargs": {}})}
        task_kwargs |= {"header": _members(header, app), "body": maybe_signature(body, app=app)}
        options["app"] = app
        super().__init__(task, args or (), task_kwargs, **options)
        self.subtask_type = "chord"

    def __call__(self, body: Any = None, **options: Any) -> Any:
        """Send the chord, with *body* if it is given."""
        return self.apply_async((), {"body": body} if body else {}, **options)

    @overload  # type: ignore[override]
    def __or__(self, other: "group | _chain[Any]") -> Any: ...
    @overload
    def __or__(self, other: Signature[T]) -> "_chord[T]": ...
    @overload
    def __or__(self, other: Any) -> Any: ...
    def __or__(self, other: Any) -> Any:
        if kinds.is_group(other) and len(other.tasks) == 1:
            other = kinds.maybe_unroll_group(other)
        elif kinds.is_group(other) or kinds.is_chain(other) or not isinstance(other, Signature):
            return super().__or__(other)
        longer = self.clone()
        longer.body = longer.body | other
        return longer

    def __repr__(self) -> str:
        body = self.body
        if not body:
            return f"<chord without body: {self.tasks!r}>"
        if not kinds.is_chain(body):
            return "%" + remove_repeating_from_task(body["task"], body.reprcall(self.tasks))
        first, *rest = body.tasks
        return remove_repeating_from_task(
            first["task"], f"%({first.reprcall(self.tasks)} | {kinds.chain_of(rest, app=self._app)!r})"
        )

    def __length_hint__(self) -> int:
        """The number of tasks that the body waits for."""
        return sum(count_parts(task) for task in getattr(self.tasks, "tasks", self.tasks))

    # ---- composing

    def clone(self, *args: Any, **kwargs: Any) -> Self:
        """A copy of the chord, with a copy of the body."""
        copy = super().clone(*args, **kwargs)
        if copy.kwargs.get("body") is not None:
            copy.kwargs["body"] = maybe_signature(copy.kwargs["body"], clone=True)
        return copy

    def _unroll_body(self) -> list[Any]:
        """This chord with only the first task of its body, followed by the rest of the body."""
        copy = self.clone()
        first, *rest = copy.body.unchain_tasks()
        options = {key: value for key, value in copy.body.options.items() if key not in _OF_A_CHAIN}
        copy.body = first.clone(**options)
        return [copy, *rest]

    def link(self, callback: Any) -> Any:
        """Call *callback* with the body's result."""
        self.body.link(callback)
        return callback

    def link_error(self, errback: Any) -> Any:
        """
        Call *errback* when the body fails, which includes a failure in the header. With the setting
        `task_allow_error_cb_on_chord_header`, it is called once for each part that fails.
        """
        errback = maybe_signature(errback)
        header = maybe_list(self.tasks) or []
        if self.app.conf.task_allow_error_cb_on_chord_header:
            for task in header:
                task.link_error(errback.clone(immutable=True))
        else:
            warnings.warn(
                "task_allow_error_cb_on_chord_header is False: errbacks of a chord are called for its body alone. "
                "Celery plans to change this default; set it to True or False to say which one is wanted.",
                CPendingDeprecationWarning,
                stacklevel=2,
            )
        for task in header:
            if kinds.is_chord(task):
                task.link_error(errback)
        self.body.link_error(errback)
        return errback

    def set_immutable(self, immutable: bool) -> None:
        """Set `immutable` on each member of the header."""
        for task in self.tasks:
            task.set_immutable(immutable)

    def stamp(self, visitor: Any = None, append_stamps: bool = False, **headers: Any) -> None:
        """Stamp the chord, its callbacks, its header and its body."""
        tasks = self.tasks.tasks if kinds.is_group(self.tasks) else self.tasks
        of_visitor = None if visitor is None else visitor.on_chord_header_start(self, **headers) or {}
        headers = self._stamp_headers(of_visitor, append_stamps, **headers)
        self.stamp_links(visitor, append_stamps, **headers)
        stamp_all(tasks, visitor, append_stamps, headers)
        if visitor is None:
            return
        visitor.on_chord_header_end(self, **headers)
        if self.body is not None:
            headers = self._stamp_headers(visitor.on_chord_body(self, **headers) or {}, append_stamps, **headers)
            self.body.stamp(visitor, append_stamps, **headers)

    # ---- freezing

    def freeze(
        self,
        _id: str | None = None,
        group_id: str | None = None,
        chord: Any = None,
        root_id: str | None = None,
        parent_id: str | None = None,
        group_index: int | None = None,
    ) -> Any:
        """Assign header and body their ids now. Returns the body's result, whose first ancestor is the header's."""
        if not kinds.is_group(self.tasks):
            self.tasks = kinds.group_of(self.tasks, app=self.app)
        header_result = self.tasks.freeze(parent_id=parent_id, root_id=root_id, chord=self.body)
        self.id = self.tasks.id
        if self.body is None:
            return None
        result = self.body.freeze(_id, root_id=root_id, chord=chord, group_id=group_id, group_index=group_index)
        _first_ancestor(result).parent = header_result
        return result

    # ---- calling

    @overload  # type: ignore[override]
    def apply_async(self: "_chord[Unknown]", args: Any = None, kwargs: Any = None, **options: Any) -> Any: ...
    @overload
    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> "AsyncResult[R_co]": ...
    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        publisher: Any = None,
        connection: Any = None,
        router: Any = None,
        result_cls: Any = None,
        **options: Any,
    ) -> Any:
        """
        Send the header; the last part to finish sends the body.

        Args:
            task_id: The body's task id.
            options: `countdown` and `eta` apply to the header, `link` and `link_error` to the body, and others to
                both.

        Returns:
            The body's result, whose `parent` is the header's result.
        """
        kwargs = dict(kwargs or {})
        args = (*args, *self.args) if args and not self.immutable else self.args
        body = kwargs.pop("body", None) or self.kwargs["body"]
        kwargs = {**self.kwargs["kwargs"], **kwargs}
        delays = {key: value for key in _DELAYS if (value := options.pop(key, None)) is not None}
        callbacks: dict[str, Any] = {key: options.pop(key) for key in ("link", "link_error") if key in options}
        body = body.clone(**_for_the_body(options))
        app = self._get_app(body)
        if app.conf.task_always_eager:
            body = with_callbacks(body, {**self.options, **callbacks})
            with allow_join_result():
                return self.apply(args, kwargs, body=body, task_id=task_id, **options)
        merged = {**self.options, **options, **callbacks}
        for key in _DELAYS:
            merged.pop(key, None)
        own_id = merged.pop("task_id", None)
        delay: dict[str, Any] = {"header_delay": delays} if delays else {}
        return self.run(
            self._header(app), body, args, task_id=own_id if task_id is None else task_id, kwargs=kwargs,
            **merged, **delay,
        )  # fmt: skip

    def _header(self, app: Any) -> Any:
        """The header, as a group that can be modified safely."""
        tasks = self.tasks
        if kinds.is_group(tasks):
            return tasks.clone()
        if isinstance(tasks, MutableSequence):
            # A lazy header is read now: its members are counted before they are sent, and each carries its part number.
            tasks = list(tasks)
        return kinds.group_of(tasks, app=app, task_id=self.options.get("task_id") or uuid())

    def run(
        self,
        header: Any,
        body: Any,
        partial_args: Any,
        app: Any = None,
        interval: Any = None,
        countdown: float = 1,
        max_retries: Any = None,
        eager: bool = False,
        task_id: str | None = None,
        kwargs: Any = None,
        header_delay: Any = None,
        **options: Any,
    ) -> Any:
        """
        Send *header*. If it has no members, send the body immediately.

        Args:
            interval, countdown, max_retries: Options of the Celery task that waits for the header; unused, as nothing
                waits here.
            header_delay: The header's `countdown` and `eta`.
        """
        app = app or self._get_app(body)
        group_id = header.options.get("task_id") or uuid()
        root_id = body.options.get("root_id")
        options = {**self.options, **options}
        delay = dict(header_delay or {})
        for key in _DELAYS:
            if options.get(key) is not None:
                delay.setdefault(key, options[key])
            options.pop(key, None)
        if options:
            options.pop("task_id", None)
            body = with_callbacks(body, options)
            body.options.update(_for_the_body(options))
        if kinds.is_chain(body):
            # This has to happen before freezing, or each inner chord would hold everything that follows it.
            body._unroll_chords(app)
        result = body.freeze(task_id or uuid(), group_id=group_id, root_id=root_id)
        strip_header_links(body)
        for of_the_body in ("chain", "chord", "task_id"):
            options.pop(of_the_body, None)
        header.options["task_id"] = group_id
        members = header._freeze_group_tasks(group_id=group_id, chord=part(group_id, 0), root_id=root_id)
        # Each member has its own chord option now.
        header.options.pop("chord", None)
        with batch(app) as buffer:
            if header.tasks:
                buffer.extend(keep_chord(group_id, sum(map(count_parts, header.tasks)), body))
                parent: Any = header.apply_async(partial_args, kwargs, task_id=group_id, **{**options, **delay})
            else:
                body.delay([])
                parent = app.GroupResult(*members)
        _first_ancestor(result).parent = parent
        return result

    def apply(
        self, args: Any = None, kwargs: Any = None, propagate: bool = True, body: Any = None, **options: Any
    ) -> Any:
        """Run header and body immediately in this process."""
        body = self.body if body is None else body
        header = self.tasks.clone() if kinds.is_group(self.tasks) else kinds.group_of(self.tasks, app=self.app)
        with allow_join_result():
            # The results are already available.
            results = header.apply(args or (), kwargs or {}).get(propagate=propagate)
        return body.apply(args=(results,))

    # ---- what it belongs to

    @cached_property
    def app(self) -> Any:
        """The chord's app, or else that of its first part, or else that of its body, or else the current one."""
        return self._get_app(self.body)

    def _get_app(self, body: Any = None) -> Any:
        app = self._app
        tasks = getattr(self.tasks, "tasks", self.tasks)
        if app is None and tasks:
            app = _app_of(tasks[0])
        if app is None and body is not None:
            app = _app_of(body)
        return get_current_app() if app is None else app

    tasks = getitem_property("kwargs.header", "The header.")
    body = getitem_property("kwargs.body", "The body.")


def _members(tasks: Any, app: Any) -> Any:
    """The given header, as signatures."""
    if isinstance(tasks, dict):
        tasks = signature(tasks, app=app)
    if kinds.is_group(tasks) or kinds.is_chain(tasks):
        return tasks.tasks
    if isinstance(tasks, abstract.CallableSignature):
        return [tasks]
    each = (signature(task, app=app) for task in tasks)
    return regen(each) if isinstance(tasks, GeneratorType) else list(each)


def _app_of(task: Any) -> Any:
    """The app that a signature or its parts are bound to. Returns None if only the current app is left."""
    if task._app is not None:
        return task._app
    # A part that is still a plain dict has no app.
    app = getattr(task, "app", None)
    return None if app is get_current_app() else app


def _for_the_body(options: Any) -> dict[str, Any]:
    """The options for the body: its parent is the part that sends it, and `chord=None` must not erase its own chord."""
    return {
        key: value for key, value in options.items() if key != "parent_id" and not (key == "chord" and value is None)
    }


def _first_ancestor(result: Any) -> Any:
    seen = set()
    while result.parent is not None:
        if result.id in seen:
            raise RuntimeError("Recursive result parents")
        seen.add(result.id)
        result = result.parent
    return result


kinds.known[kinds.CHORD] = _chord

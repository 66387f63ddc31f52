"""
`Signature`: a call to make later, as a dict.

It is a dict so that every serializer can handle it: `task`, `args`, `kwargs`, `options`, `subtask_type`, `immutable`.
`subtask_type` names the class that restores it when it is read back (`Signature.register_type`).
"""

from collections.abc import Callable, Iterator, MutableSequence
from contextlib import suppress
from copy import deepcopy
from functools import cached_property, partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, Self, overload

from sidekiq_celery._state import get_current_app
from sidekiq_celery._type_variables import R_co, T, Unknown
from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.stamping import with_stamps
from sidekiq_celery.utils import abstract
from sidekiq_celery.utils.functional import dictfilter, maybe_list, seq_concat_seq
from sidekiq_celery.utils.ids import plain_id, uuid
from sidekiq_celery.utils.objects import getitem_property

if TYPE_CHECKING:
    from sidekiq_celery.result import AsyncResult, EagerResult

_SCALARS = frozenset({str, int, float, bool, type(None)})


@abstract.CallableSignature.register
class Signature(dict[str, Any], Generic[R_co]):
    """
    A call: task, arguments, options. For type checkers it is generic in the task's result type: sending it gives an
    `AsyncResult` of that type, or `Any` if the type is unknown.

    Args:
        task: A task, its name, or a dict that was a signature.
        options: As for `apply_async`; *ex* adds to them.
        subtask_type: The kind of signature, if it is not a plain call.
        immutable: True if a caller's arguments, such as a parent's result, are not added.
        app: The app for a task given by name.
    """

    TYPES: ClassVar[dict[str, Any]] = {}
    _app: Any = None
    _type: Any = None
    _IMMUTABLE_OPTIONS: ClassVar[set[str]] = {"group_id", "stamped_headers"}

    @classmethod
    def register_type(cls, name: str | None = None) -> Callable[[T], T]:
        """Decorate a class to register it as the kind *name*; the default is the class's name."""

        def register(subclass: T) -> T:
            cls.TYPES[name or subclass.__name__] = subclass  # type: ignore[attr-defined]
            return subclass

        return register

    @classmethod
    def from_dict(cls, d: Any, app: Any = None) -> Any:
        """Restore a signature, of the right kind, from the dict *d*."""
        kind = d.get("subtask_type")
        if not kind:
            return Signature(d, app=app)
        if kind not in cls.TYPES:
            kinds.load()
        target = cls.TYPES[kind]
        return Signature(d, app=app) if target is cls else target.from_dict(d, app=app)

    def __init__(
        self,
        task: Any = None,
        args: Any = None,
        kwargs: Any = None,
        options: Any = None,
        type: Any = None,
        subtask_type: str | None = None,
        immutable: bool = False,
        app: Any = None,
        **ex: Any,
    ) -> None:
        self._app = app
        if isinstance(task, dict):
            super().__init__(task)
            return
        name = getattr(task, "name", self)
        if name is self:
            name = task
        else:
            self._type = task
        super().__init__(
            task=name,
            args=tuple(args or ()),
            kwargs=kwargs or {},
            options=dict(options or {}, **ex),
            subtask_type=subtask_type,
            immutable=immutable,
        )

    # ---- calling it

    def __call__(self, *partial_args: Any, **partial_kwargs: Any) -> Any:
        """Call the task here, as a function."""
        args, kwargs, _ = self._merge(partial_args, partial_kwargs, None)
        return self.type(*args, **kwargs)

    @overload
    def delay(self: "Signature[Unknown]", *partial_args: Any, **partial_kwargs: Any) -> Any: ...
    @overload
    def delay(self, *partial_args: Any, **partial_kwargs: Any) -> "AsyncResult[R_co]": ...
    def delay(self, *partial_args: Any, **partial_kwargs: Any) -> Any:
        """Send the task, with these arguments before the signature's own."""
        return self.apply_async(partial_args, partial_kwargs)

    @overload
    def apply(self: "Signature[Unknown]", args: Any = None, kwargs: Any = None, **options: Any) -> Any: ...
    @overload
    def apply(self, args: Any = None, kwargs: Any = None, **options: Any) -> "EagerResult[R_co]": ...
    def apply(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Run the task immediately in this process, as a worker would."""
        args, kwargs, options = self._merge(args, kwargs, dictfilter(options))
        return self.type.apply(args, kwargs, **options)

    @overload
    def apply_async(
        self: "Signature[Unknown]", args: Any = None, kwargs: Any = None, route_name: str | None = None, **options: Any
    ) -> Any: ...
    @overload
    def apply_async(
        self, args: Any = None, kwargs: Any = None, route_name: str | None = None, **options: Any
    ) -> "AsyncResult[R_co]": ...
    def apply_async(self, args: Any = None, kwargs: Any = None, route_name: str | None = None, **options: Any) -> Any:
        """Send the task. Arguments and options are added to the signature's own."""
        try:
            send = self._apply_async
        except IndexError:
            # Created from an empty list of tasks.
            return None
        args, kwargs, options = self._merge(args, kwargs, dictfilter(options))
        return send(args, kwargs, **options)

    # `steps` compares with this to see whether a program or package has replaced `apply_async`.
    _own_apply_async: ClassVar[Any] = apply_async

    def election(self) -> Any:
        """Run the task in one worker. Celery's workers elect one by gossip; here only one worker gets a job anyway."""
        return self.apply_async()

    def _merge(
        self, args: Any = None, kwargs: Any = None, options: Any = None, force: bool = False
    ) -> tuple[Any, Any, Any]:
        """
        Merge the signature's arguments and options with those of a call.

        Args:
            force: True to merge the arguments even if the signature is immutable.
        """
        merged = self._merged_options(options) if options else self.options
        if self.immutable and not force:
            return self.args, self.kwargs, merged
        return (
            (*args, *self.args) if args else self.args,
            {**self.kwargs, **kwargs} if kwargs else self.kwargs,
            merged,
        )

    def _merged_options(self, options: Any) -> dict[str, Any]:
        """Merge options: the signature's own group and stamps stay, otherwise *options* win."""
        own = self.options
        kept = self._IMMUTABLE_OPTIONS
        if own.get("stamped_headers"):
            kept = kept | set(own["stamped_headers"])
        return {**own, **{key: value for key, value in options.items() if key not in kept or key not in own}}

    # ---- deriving others

    def clone(self, args: Any = None, kwargs: Any = None, **opts: Any) -> Self:
        """A copy, with these arguments and options added."""
        # Reads by key: a large canvas copies each of its members, and each attribute would cost a call.
        own: Any = self.get
        if args or kwargs or opts:
            args, kwargs, opts = self._merge(args, kwargs, opts)
        else:
            args, kwargs, opts = own("args"), own("kwargs"), own("options")
        if kwargs is own("kwargs"):
            # When a chord or group replaces its members, the original must not change.
            kwargs = dict(kwargs)
        copy: Self = Signature.from_dict(
            {
                "task": own("task"),
                "args": tuple(args),
                "kwargs": kwargs,
                "options": _copied(opts),
                "subtask_type": own("subtask_type"),
                "immutable": own("immutable"),
            },
            app=self._app,
        )
        copy._type = self._type
        return copy

    partial = clone

    def freeze(
        self,
        _id: str | None = None,
        group_id: str | None = None,
        chord: Any = None,
        root_id: str | None = None,
        parent_id: str | None = None,
        group_index: int | None = None,
    ) -> Any:
        """
        Assign the task id now.

        Args:
            _id: The id to use if the signature has none yet; by default a new one.
            chord: The body of the chord that the task is a part of.

        Returns:
            A handle for the task's future result.
        """
        options = self.options
        if "task_id" not in options:
            options["task_id"] = _id or uuid()
        options["task_id"] = plain_id(options["task_id"])
        for key, value in (("root_id", root_id), ("parent_id", parent_id), ("chord", chord)):
            if value:
                options[key] = value
        if "reply_to" not in options:
            options["reply_to"] = self.app.thread_oid
        if group_id:
            options.setdefault("group_id", group_id)
        if group_index is not None:
            options["group_index"] = group_index
        return self.AsyncResult(options["task_id"])

    _freeze = freeze

    def replace(self, args: Any = None, kwargs: Any = None, options: Any = None) -> Self:
        """A copy with its arguments or options replaced."""
        copy = self.clone()
        copy.update(dictfilter(args=args, kwargs=kwargs, options=options))
        return copy

    # ---- changing

    def set(self, immutable: bool | None = None, **options: Any) -> Self:
        """Set options, as for `apply_async`. Returns this signature."""
        if immutable is not None:
            self.set_immutable(immutable)
        self.options.update(options)
        return self

    def set_immutable(self, immutable: bool) -> None:
        """Set whether a caller's arguments are ignored."""
        self.immutable = immutable

    def _with_list_option(self, key: str) -> Any:
        items = self.options.setdefault(key, [])
        if not isinstance(items, MutableSequence):
            items = self.options[key] = [items]
        return items

    def append_to_list_option(self, key: str, value: Any) -> Any:
        """Add *value* to a list option, unless it already contains it. Returns *value*."""
        items = self._with_list_option(key)
        if value not in items:
            items.append(value)
        return value

    def extend_list_option(self, key: str, value: Any) -> None:
        """Add one or more values to a list option."""
        self._with_list_option(key).extend(maybe_list(value))

    def link(self, callback: Any) -> Any:
        """Call *callback* with the task's result. Returns *callback*."""
        return self.append_to_list_option("link", callback)

    def link_error(self, errback: Any) -> Any:
        """Call *errback* if the task fails. Returns *errback*."""
        return self.append_to_list_option("link_error", errback)

    def on_error(self, errback: Any) -> Self:
        """Like `link_error`, but returns this signature."""
        self.link_error(errback)
        return self

    def flatten_links(self) -> list[Any]:
        """This signature, its callbacks, their callbacks, and so on."""
        return [self, *(one for link in maybe_list(self.options.get("link")) or () for one in link.flatten_links())]

    # ---- stamps

    def stamp(self, visitor: Any = None, append_stamps: bool = False, **headers: Any) -> Any:
        """
        Stamp this signature and all its parts, including callbacks.

        Args:
            visitor: A `StampingVisitor`.
            append_stamps: True to keep all values of a stamp that already exists, in a list.
            headers: The stamps.
        """
        self.stamp_links(visitor, append_stamps, **headers)
        of_visitor = None if visitor is None else visitor.on_signature(self, **headers) or {}
        return self.set(**self._stamp_headers(of_visitor, append_stamps, **headers))

    def stamp_links(self, visitor: Any, append_stamps: bool = False, **headers: Any) -> None:
        """Stamp the callbacks and errbacks."""
        kinds_of_links = (("link", "on_callback"), ("link_error", "on_errback"))
        for option, method in kinds_of_links:
            stamps = deepcopy(headers)
            for one in maybe_list(self.options.get(option)) or ():
                link = maybe_signature(one, app=self.app)
                of_visitor = None if visitor is None else getattr(visitor, method)(link, **stamps) or {}
                stamps = self._stamp_headers(of_visitor, append_stamps, self_headers=False, **stamps)
                link.stamp(visitor, append_stamps, **stamps)

    def _stamp_headers(
        self, visitor_headers: Any = None, append_stamps: bool = False, self_headers: bool = True, **headers: Any
    ) -> dict[str, Any]:
        return with_stamps(self.options, headers, visitor_headers, append_stamps, self_headers)

    # ---- operators, texts, copies

    if TYPE_CHECKING:
        # For the signatures that `|` creates: chains and chords, whose classes derive from this one.
        tasks: Any
        body: Any

        # Otherwise type checkers use dict's `__ror__` for `|` if the right operand's class derives from the left's.
        def __ror__(self, other: Never) -> Never: ...  # type: ignore[override]

    @overload  # type: ignore[override]
    def __or__(self, other: "Signature[T]") -> "Signature[T]": ...
    @overload
    def __or__(self, other: Any) -> Any: ...
    def __or__(self, other: Any) -> Any:
        if kinds.is_chain(other):
            return kinds.chain_of(seq_concat_seq((self,), other.unchain_tasks()), app=self._app)
        if kinds.is_group(other):
            return kinds.chain_of(self, kinds.maybe_unroll_group(other), app=self.app)
        if isinstance(other, Signature):
            return kinds.chain_of(self, other, app=self._app)
        return NotImplemented

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        # A dict's `|=` would add keys.
        return self.__or__(other)

    def __invert__(self) -> R_co:
        """Send the task and wait for its result."""
        return self.apply_async().get()

    def reprcall(self, *args: Any, **kwargs: Any) -> str:
        """The call as text, with these arguments first."""
        from kombu.utils.functional import reprcall

        args, kwargs, _ = self._merge(args, kwargs, {}, force=True)
        text: str = reprcall(self["task"], args, kwargs)
        return text

    def __repr__(self) -> str:
        return self.reprcall()

    __class_getitem__: Any = classmethod(GenericAlias)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        copy = dict(self)
        memo[id(self)] = copy
        copy["options"] = deepcopy(self.options, memo)
        return copy

    def __reduce__(self) -> Any:
        # A serializer that handles classes must not serialize the app too.
        return signature, (dict(self),)

    def __json__(self) -> dict[str, Any]:
        return dict(self)

    def items(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        """Like a dict's `items`, with keys decoded if a serializer left them as bytes."""
        key: Any
        for key, value in super().items():
            yield (key.decode() if isinstance(key, bytes) else key), value

    # ---- task and app

    @property
    def name(self) -> Any:
        """The task's name."""
        return self.task

    @cached_property
    def type(self) -> Any:
        """
        The task.

        Raises:
            NotRegistered: This app has no such task.
        """
        return self._type or self.app.tasks[self["task"]]

    @cached_property
    def app(self) -> Any:
        """The signature's app, or else the current one."""
        return self._app or get_current_app()

    @cached_property
    def AsyncResult(self) -> Any:
        """The class of the task's result handles."""
        try:
            return self.type.AsyncResult
        except KeyError:
            return self.app.AsyncResult

    @cached_property
    def _apply_async(self) -> Any:
        try:
            return self.type.apply_async
        except KeyError:
            return partial(self.app.send_task, self["task"])

    id = getitem_property("options.task_id", "The task's id.")
    parent_id = getitem_property("options.parent_id", "The id of the task that calls it.")
    root_id = getitem_property("options.root_id", "The id of the task that began it all.")
    task = getitem_property("task", "The task's name.")
    args = getitem_property("args", "Positional arguments.")
    kwargs = getitem_property("kwargs", "Keyword arguments.")
    options = getitem_property("options", "Options for `apply_async`.")
    subtask_type = getitem_property("subtask_type", "The kind of signature.")
    immutable = getitem_property("immutable", "Whether arguments of a caller are left aside.")


def signature(varies: Any, *args: Any, **kwargs: Any) -> Any:
    """
    Create a signature.

    Args:
        varies: A task or its name; a signature, which is cloned; or a dict that was a signature.
        args, kwargs: As for `Signature`.
    """
    if isinstance(varies, dict):
        if isinstance(varies, abstract.CallableSignature):
            return varies.clone()  # type: ignore[attr-defined]
        return Signature.from_dict(varies, app=kwargs.get("app"))
    return Signature(varies, *args, **kwargs)


def maybe_signature(d: Any, app: Any = None, clone: bool = False) -> Any:
    """
    Convert *d* to a signature; None stays None.

    Args:
        app: The app to bind it to.
        clone: True to copy *d* if it is already a signature.
    """
    if d is None:
        return None
    if isinstance(d, abstract.CallableSignature):
        if clone:
            d = d.clone()  # type: ignore[attr-defined]
    elif isinstance(d, dict):
        d = signature(d)
    if app is not None:
        d._app = app
    return d


def app_of(sig: Any) -> Any:
    """The app of a chain or a group, or else that of its first part, or else the current one."""
    app = sig._app
    if app is None:
        # There may be no part, or one that is still a plain dict.
        with suppress(LookupError, AttributeError):
            app = sig.tasks[0].app
    return app or get_current_app()


def _copied(options: dict[str, Any]) -> dict[str, Any]:
    """Like `deepcopy`, but skips its bookkeeping if all values are scalars. Two options may hold the same object."""
    return {**options} if _SCALARS.issuperset(map(type, options.values())) else deepcopy(options)


def clone_with_members(sig: Any) -> Any:
    """A copy that shares with *sig* no signature that `link` would modify."""
    copy = maybe_signature(sig, clone=True)
    if kinds.is_group(copy):
        copy.tasks = [clone_with_members(task) for task in copy.tasks]
    elif kinds.is_chord(copy):
        copy.body = clone_with_members(copy.body)
    return copy

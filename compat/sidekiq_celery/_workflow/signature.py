"""
`Signature`: a call that is to be made later, as a dict.

It is a dict so that every serializer can carry it: `task`, `args`, `kwargs`, `options`, `subtask_type`, `immutable`.
What `subtask_type` names makes another kind of it when it is read back (`Signature.register_type`).
"""

from collections.abc import Callable, Iterator, MutableSequence
from copy import deepcopy
from functools import cached_property, partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, Self, overload

from sidekiq_celery._state import get_current_app
from sidekiq_celery._type_variables import R_co, T, Unknown
from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.stamping import with_stamps
from sidekiq_celery.utils import abstract
from sidekiq_celery.utils.functional import maybe_list, seq_concat_seq
from sidekiq_celery.utils.ids import uuid
from sidekiq_celery.utils.objects import getitem_property

if TYPE_CHECKING:
    from sidekiq_celery.result import AsyncResult, EagerResult

__all__ = ("Signature", "clone_with_members", "maybe_signature", "signature")

_SCALARS = frozenset({str, int, float, bool, type(None)})


@abstract.CallableSignature.register
class Signature(dict[str, Any], Generic[R_co]):
    """
    A call: task, arguments, options. To a type checker it has the type of what comes of it: an `AsyncResult` of that,
    or, where this is not known, anything.

    Args:
        task: A task, its name, or a dict that was a signature.
        options: As for `apply_async`; *ex* adds to them.
        subtask_type: The kind, if it is not a plain call.
        immutable: Arguments of a caller, such as a parent's result, are not added.
        app: For a task given by name.
    """

    TYPES: ClassVar[dict[str, Any]] = {}
    _app: Any = None
    _type: Any = None
    _IMMUTABLE_OPTIONS: ClassVar[set[str]] = {"group_id", "stamped_headers"}

    @classmethod
    def register_type(cls, name: str | None = None) -> Callable[[T], T]:
        """A decorator that makes a class the kind *name*; by default its own name."""

        def register(subclass: T) -> T:
            cls.TYPES[name or subclass.__name__] = subclass  # type: ignore[attr-defined]
            return subclass

        return register

    @classmethod
    def from_dict(cls, d: Any, app: Any = None) -> Any:
        """The signature that *d* was, of its kind."""
        kind = d.get("subtask_type")
        if kind and kind not in cls.TYPES:
            kinds.load()
        target = cls.TYPES[kind] if kind else cls
        if target is cls or not kind:
            return Signature(d, app=app)
        return target.from_dict(d, app=app)

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
        """Run the task here, as a function."""
        args, kwargs, _ = self._merge(partial_args, partial_kwargs, None)
        return self.type(*args, **kwargs)

    @overload
    def delay(self: "Signature[Unknown]", *partial_args: Any, **partial_kwargs: Any) -> Any: ...
    @overload
    def delay(self, *partial_args: Any, **partial_kwargs: Any) -> "AsyncResult[R_co]": ...
    def delay(self, *partial_args: Any, **partial_kwargs: Any) -> Any:
        """Send it, with these arguments in front of its own."""
        return self.apply_async(partial_args, partial_kwargs)

    @overload
    def apply(self: "Signature[Unknown]", args: Any = None, kwargs: Any = None, **options: Any) -> Any: ...
    @overload
    def apply(self, args: Any = None, kwargs: Any = None, **options: Any) -> "EagerResult[R_co]": ...
    def apply(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Run it here and now, as a worker would."""
        args, kwargs, options = self._merge(args, kwargs, _given(options))
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
        """Send it; arguments and options are added to its own."""
        try:
            send = self._apply_async
        except IndexError:
            # Made of an empty list of tasks.
            return None
        args, kwargs, options = self._merge(args, kwargs, _given(options))
        return send(args, kwargs, **options)

    # By which `steps` sees whether a program or package has put something in its place.
    _own_apply_async: ClassVar[Any] = apply_async

    def election(self) -> Any:
        """Have one worker run it. Celery's workers agree by gossip on whom; here a job is one worker's anyway."""
        return self.apply_async()

    def _merge(
        self, args: Any = None, kwargs: Any = None, options: Any = None, force: bool = False
    ) -> tuple[Any, Any, Any]:
        """
        Its arguments and options with those of a call.

        Args:
            force: Also where it is immutable.
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
        """A group and stamps that it has stay; otherwise *options* win."""
        own = self.options
        kept = self._IMMUTABLE_OPTIONS
        if own.get("stamped_headers"):
            kept = kept | set(own["stamped_headers"])
        return {**own, **{key: value for key, value in options.items() if key not in kept or key not in own}}

    # ---- making others of it

    def clone(self, args: Any = None, kwargs: Any = None, **opts: Any) -> Self:
        """A copy, with these arguments and options added."""
        # By its keys: a large canvas makes a copy of each of its members, and attributes take a call each.
        own: Any = self.get
        if args or kwargs or opts:
            args, kwargs, opts = self._merge(args, kwargs, opts)
        else:
            args, kwargs, opts = own("args"), own("kwargs"), own("options")
        if kwargs is own("kwargs"):
            # What a chord or group does to its members' places must not reach the original.
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
        Give it its id now.

        Args:
            _id: Unless it has one; by default a new one.
            chord: The body of the chord that it is a part of.

        Returns:
            The result that it will have.
        """
        options = self.options
        if "task_id" not in options:
            options["task_id"] = _id or uuid()
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
        """A copy with other arguments or options in place of its own."""
        copy = self.clone()
        if args is not None:
            copy.args = args
        if kwargs is not None:
            copy.kwargs = kwargs
        if options is not None:
            copy.options = options
        return copy

    # ---- changing it

    def set(self, immutable: bool | None = None, **options: Any) -> Self:
        """Set options, as for `apply_async`; returns itself."""
        if immutable is not None:
            self.set_immutable(immutable)
        self.options.update(options)
        return self

    def set_immutable(self, immutable: bool) -> None:
        """Whether arguments of a caller are left aside."""
        self.immutable = immutable

    def _with_list_option(self, key: str) -> Any:
        items = self.options.setdefault(key, [])
        if not isinstance(items, MutableSequence):
            items = self.options[key] = [items]
        return items

    def append_to_list_option(self, key: str, value: Any) -> Any:
        """Add *value* to an option that is a list, unless it is in there; returns *value*."""
        items = self._with_list_option(key)
        if value not in items:
            items.append(value)
        return value

    def extend_list_option(self, key: str, value: Any) -> None:
        """Add one or several to an option that is a list."""
        self._with_list_option(key).extend(maybe_list(value))

    def link(self, callback: Any) -> Any:
        """Call *callback* with the result; returns *callback*."""
        return self.append_to_list_option("link", callback)

    def link_error(self, errback: Any) -> Any:
        """Call *errback* when it has failed; returns *errback*."""
        return self.append_to_list_option("link_error", errback)

    def on_error(self, errback: Any) -> Self:
        """`link_error` that returns this signature."""
        self.link_error(errback)
        return self

    def flatten_links(self) -> list[Any]:
        """It, its callbacks, theirs, and so on."""
        return [self, *(one for link in maybe_list(self.options.get("link")) or () for one in link.flatten_links())]

    # ---- stamps

    def stamp(self, visitor: Any = None, append_stamps: bool = False, **headers: Any) -> Any:
        """
        Stamp it and all that it is made of, callbacks included.

        Args:
            visitor: A `StampingVisitor`.
            append_stamps: Values of a stamp that is there already are kept in a list.
            headers: Stamps.
        """
        self.stamp_links(visitor, append_stamps, **headers)
        of_visitor = None if visitor is None else visitor.on_signature(self, **headers) or {}
        return self.set(**self._stamp_headers(of_visitor, append_stamps, **headers))

    def stamp_links(self, visitor: Any, append_stamps: bool = False, **headers: Any) -> None:
        """Stamp its callbacks and errbacks."""
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
        # Of those that `|` makes: chains and chords, whose classes derive from this one.
        tasks: Any
        body: Any

        # A dict's would be taken for `|` where what is on the right is of a class derived from that on the left.
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
        """Send it and wait for its result."""
        return self.apply_async().get()

    def reprcall(self, *args: Any, **kwargs: Any) -> str:
        """The call as text, with these arguments in front."""
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
        # A serializer that knows classes must not take the app along.
        return signature, (dict(self),)

    def __json__(self) -> dict[str, Any]:
        return dict(self)

    def items(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        """As of a dict; keys that a serializer left as bytes are decoded."""
        key: Any
        for key, value in super().items():
            yield (key.decode() if isinstance(key, bytes) else key), value

    # ---- what it belongs to

    @property
    def name(self) -> Any:
        """The task's name."""
        return self.task

    @cached_property
    def type(self) -> Any:
        """
        The task.

        Raises:
            NotRegistered: It is not known here.
        """
        return self._type or self.app.tasks[self["task"]]

    @cached_property
    def app(self) -> Any:
        """Its app, else the current one."""
        return self._app or get_current_app()

    @cached_property
    def AsyncResult(self) -> Any:
        """The class of its results."""
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


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def signature(varies: Any, *args: Any, **kwargs: Any) -> Any:
    """
    A signature.

    Args:
        varies: A task or its name; a signature, which is cloned; a dict that was one.
        args, kwargs: As for `Signature`.
    """
    if isinstance(varies, dict):
        if isinstance(varies, abstract.CallableSignature):
            return varies.clone()  # type: ignore[attr-defined]
        return Signature.from_dict(varies, app=kwargs.get("app"))
    return Signature(varies, *args, **kwargs)


def maybe_signature(d: Any, app: Any = None, clone: bool = False) -> Any:
    """
    *d* as a signature; None stays None.

    Args:
        app: To bind it to.
        clone: Copy one that is a signature already.
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


def _copied(options: dict[str, Any]) -> dict[str, Any]:
    """As `deepcopy`; without its book-keeping where there is none to do, as two options may hold the same object."""
    return {**options} if _SCALARS.issuperset(map(type, options.values())) else deepcopy(options)


def clone_with_members(sig: Any) -> Any:
    """A copy that shares no signature with *sig* to which `link` would add something."""
    copy = maybe_signature(sig, clone=True)
    if kinds.is_group(copy):
        copy.tasks = [clone_with_members(task) for task in copy.tasks]
    elif kinds.is_chord(copy):
        copy.body = clone_with_members(copy.body)
    return copy

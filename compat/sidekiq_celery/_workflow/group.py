"""Groups: calls that run in parallel."""

from collections import deque
from collections.abc import Iterator, MutableSequence
from typing import TYPE_CHECKING, Any, Self, overload

from sidekiq_celery._send.atomic_batch import batch
from sidekiq_celery._send.flow_store import keep_chord
from sidekiq_celery._type_variables import T
from sidekiq_celery._wire.chord_part import is_part, nth_part, part, shared
from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.chord_headers import count_parts
from sidekiq_celery._workflow.signature import Signature, app_of, maybe_signature
from sidekiq_celery.utils import abstract
from sidekiq_celery.utils.functional import _regen, regen
from sidekiq_celery.utils.ids import uuid
from sidekiq_celery.utils.objects import getitem_property
from sidekiq_celery.utils.text import remove_repeating_from_task

if TYPE_CHECKING:
    from sidekiq_celery.result import GroupResult


@Signature.register_type()
class group(Signature[Any]):
    """
    Calls that run in parallel.

    Args:
        tasks: Signatures, or one iterable of them, which is read when the group is sent.
        options: Options for each of the calls.
    """

    tasks = getitem_property("kwargs.tasks", "The members.")

    @classmethod
    def from_dict(cls, d: Any, app: Any = None) -> Any:
        """Restore a group from the dict *d*."""
        given = d["kwargs"]["tasks"]
        members: Any = [maybe_signature(task, app=app) for task in given]
        d["kwargs"]["tasks"] = members = tuple(members) if isinstance(given, tuple) else members
        return cls(members, app=app, **d["options"])

    def __init__(self, *tasks: Any, **options: Any) -> None:
        members: Any = tasks
        if len(tasks) == 1:
            members = tasks[0]
            if isinstance(members, group):
                members = members.tasks
            if isinstance(members, abstract.CallableSignature):
                members = [members.clone()]  # type: ignore[attr-defined]
            if not isinstance(members, _regen):
                members = regen(members)
        super().__init__("celery.group", (), {"tasks": members}, **options)
        self.subtask_type = "group"

    if TYPE_CHECKING:

        def delay(self, *partial_args: Any, **partial_kwargs: Any) -> GroupResult: ...  # type: ignore[override]

    def __call__(self, *partial_args: Any, **options: Any) -> "GroupResult":
        """Send the group."""
        return self.apply_async(partial_args, **options)

    @overload  # type: ignore[override]
    def __or__(self, other: Signature[T]) -> Signature[T]: ...
    @overload
    def __or__(self, other: Any) -> Any: ...
    def __or__(self, other: Any) -> Any:
        # Reading the members of an iterator is left to the chain or chord that runs them.
        is_known = kinds.is_group(other) and not isinstance(other.tasks, _regen)
        if is_known and kinds.is_empty_group(other):
            return self
        return kinds.chord_of(self, body=other, app=self._app)

    def __len__(self) -> int:
        return len(self.tasks)

    def __repr__(self) -> str:
        if not self.tasks:
            return "group(<empty>)"
        return remove_repeating_from_task(self.tasks[0]["task"], f"group({self.tasks!r})")

    app = property(app_of, doc="The group's app, or else that of its first member, or else the current one.")

    def skew(self, start: float = 1.0, stop: float | None = None, step: float = 1.0) -> Self:
        """Stagger the members: start the first in *start* seconds, each next one *step* later, up to *stop*."""
        from kombu.utils.functional import fxrange

        seconds = fxrange(start, stop, step, repeatlast=True)
        for task in self.tasks:
            task.set(countdown=next(seconds))
        return self

    def set_immutable(self, immutable: bool) -> None:
        """Set `immutable` on each member."""
        for task in self.tasks:
            task.set_immutable(immutable)

    def link(self, sig: Any) -> Any:
        """Call *sig* after the first member, without its result."""
        return self.tasks[0].link(sig.clone().set(immutable=True))

    def link_error(self, sig: Any) -> Any:
        """Call *sig* for each member that fails."""
        sig = maybe_signature(sig)
        return tuple(task.link_error(sig.clone()) for task in self.tasks)

    def stamp(self, visitor: Any = None, append_stamps: bool = False, **headers: Any) -> None:
        """Stamp the group, its callbacks and its members. Members of a lazy iterable are stamped when they are read."""
        of_visitor = None if visitor is None else visitor.on_group_start(self, **headers) or {}
        headers = self._stamp_headers(of_visitor, append_stamps, **headers)
        self.stamp_links(visitor, append_stamps, **headers)
        if not isinstance(self.tasks, _regen):
            self._keep([maybe_signature(task, app=self.app) for task in self.tasks])
        stamp_all(self.tasks, visitor, append_stamps, headers)
        if visitor is not None:
            visitor.on_group_end(self, **headers)

    # ---- calling

    def apply_async(  # type: ignore[override]
        self,
        args: Any = None,
        kwargs: Any = None,
        add_to_parent: bool = True,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        **options: Any,
    ) -> "GroupResult":
        """
        Send every member.

        Raises:
            TypeError: Callbacks were given. A group as a whole has no end; a chord does.
        """
        if link is not None:
            raise TypeError("Cannot add link to group: use a chord")
        if link_error is not None:
            raise TypeError("Cannot add link to group: do that on individual tasks")
        app = self.app
        if app.conf.task_always_eager:
            return self.apply(args, kwargs, **options)
        if not self.tasks:
            return self.freeze()
        options, group_id, root_id = self._freeze_gid(options)
        with batch(app):
            tasks = self._prepared(self.tasks, (), group_id, root_id, app)
            results = list(self._apply_tasks(tasks, producer, args=args or (), kwargs=kwargs, **options))
        result: GroupResult = app.GroupResult(group_id, results)
        if len(results) == 1 and isinstance(results[0], app.GroupResult):
            # The group has one member, which itself ends in a group.
            result = results[0]
        parent = app.current_worker_task
        if add_to_parent and parent:
            parent.add_trail(result)
        return result

    def apply(  # type: ignore[override]
        self, args: Any = None, kwargs: Any = None, **options: Any
    ) -> "GroupResult":
        """Run every member immediately in this process."""
        app = self.app
        if not self.tasks:
            return self.freeze()
        options, group_id, root_id = self._freeze_gid(options)
        tasks = self._prepared(self.tasks, (), group_id, root_id, app, freeze=False)
        results = [sig.apply(args=args or (), kwargs=kwargs or {}, **options) for sig, _, _ in tasks]
        result: GroupResult = app.GroupResult(group_id, results)
        return result

    def _prepared(
        self, tasks: Any, partial_args: Any, group_id: str, root_id: str | None, app: Any, *, freeze: bool = True
    ) -> Iterator[tuple[Any, Any, str]]:
        """Copies of the members, including those of inner groups, each with its result and the group's id."""
        for index, task in enumerate(tasks):
            is_one = isinstance(task, abstract.CallableSignature)
            member: Any = task.clone() if is_one else Signature.from_dict(task, app=app)
            if kinds.is_group(member):
                yield from member._prepared(member.tasks, partial_args, group_id, root_id, app, freeze=freeze)
            elif kinds.is_chain(member) and not member.tasks:
                continue
            else:
                if partial_args and not member.immutable:
                    member.args = (*partial_args, *member.args)
                result = member.freeze(group_id=group_id, root_id=root_id, group_index=index) if freeze else None
                yield member, result, group_id

    def _apply_tasks(
        self,
        tasks: Any,
        producer: Any = None,
        add_to_parent: Any = None,
        chord: Any = None,
        args: Any = None,
        kwargs: Any = None,
        group_index: Any = None,
        **options: Any,
    ) -> Iterator[Any]:
        """
        Send the members and yield their results.

        Args:
            add_to_parent, group_index: Of the group, and so not for its members.
            options: Apply to each of the members.
        """
        parts = 0
        body = None
        group_id = options.get("group_id")
        if is_part(chord):
            tasks = list(tasks)
            shares = iter(shared(chord, [count_parts(sig) for sig, _, _ in tasks]))
        for sig, result, group_id in tasks:
            own = next(shares) if is_part(chord) else chord or sig.options.get("chord")
            if own is not None and not is_part(own):
                # Frozen by the program, or by Celery: each member carries the body.
                body, own = own, part(group_id, parts)
            sig.apply_async(producer=producer, add_to_parent=False, chord=own, args=args, kwargs=kwargs, **options)
            parts += count_parts(sig)
            yield result
        if body is not None and group_id is not None:
            with batch(self.app) as buffer:
                buffer.extend(keep_chord(group_id, parts, body))

    def _freeze_gid(self, options: dict[str, Any]) -> tuple[dict[str, Any], str, str | None]:
        kept = self._IMMUTABLE_OPTIONS
        new = {key: value for key, value in options.items() if key not in kept or key not in self.options}
        merged = {**self.options, **new}
        merged["group_id"] = group_id = merged.pop("task_id", None) or uuid()
        return merged, group_id, merged.get("root_id")

    # ---- freezing

    def freeze(
        self,
        _id: str | None = None,
        group_id: str | None = None,
        chord: Any = None,
        root_id: str | None = None,
        parent_id: str | None = None,
        group_index: int | None = None,
    ) -> "GroupResult":
        """Assign the group and its members their ids now. Inner groups are merged into this one."""
        if is_part(chord):
            # The members end one part of a chord, and count as that part together.
            self.tasks = list(self.tasks)
        own_id, results = self._freeze_group_tasks(group_id, chord, root_id, parent_id, group_index, is_part(chord))
        result: GroupResult = self.app.GroupResult(own_id, results)
        return result

    _freeze = freeze

    def _freeze_group_tasks(
        self,
        group_id: str | None = None,
        chord: Any = None,
        root_id: str | None = None,
        parent_id: str | None = None,
        group_index: int | None = None,
        is_one_part: bool = False,
    ) -> tuple[str, Any]:
        options = self.options
        if "task_id" not in options:
            options["task_id"] = uuid()
        if group_id:
            options["group_id"] = group_id
        if chord:
            options["chord"] = chord
        if group_index is not None:
            options["group_index"] = group_index
        root_id = options.setdefault("root_id", root_id)
        parent_id = options.setdefault("parent_id", parent_id)
        # Members of an iterable may be inner groups, which stay as they are.
        members = self._copies() if isinstance(self.tasks, _regen) else list(self._unrolled())
        results = list(self._freeze_each(members, group_id, chord, root_id, parent_id, is_one_part))
        self._keep([task for task in members if not _is_empty_chain(task)])
        return options["task_id"], results

    def _keep(self, members: list[Any]) -> None:
        if isinstance(self.tasks, MutableSequence):
            self.tasks[:] = members
        else:
            self.tasks = members

    def _copies(self) -> list[Any]:
        return [maybe_signature(task, app=self._app).clone() for task in self.tasks]

    def _unrolled(self) -> Iterator[Any]:
        """Copies of the members, with inner groups replaced by their members."""
        waiting = deque(self.tasks)
        while waiting:
            task = maybe_signature(waiting.popleft(), app=self._app).clone()
            if kinds.is_group(task):
                waiting.extendleft(reversed(list(task.tasks)))
            else:
                yield task

    @staticmethod
    def _freeze_each(
        tasks: Any,
        group_id: str | None,
        chord: Any,
        root_id: str | None,
        parent_id: str | None,
        is_one_part: bool = False,
    ) -> Iterator[Any]:
        tasks = (task for task in tasks if not _is_empty_chain(task))
        shares: list[Any] = []
        if is_one_part:
            tasks = list(tasks)
            shares = shared(chord, [count_parts(task) for task in tasks])
        parts = 0
        for index, task in enumerate(tasks):
            yield task.freeze(
                group_id=group_id,
                chord=shares[index] if is_one_part else nth_part(chord, parts),
                root_id=root_id,
                parent_id=parent_id,
                group_index=index,
            )
            parts += count_parts(task) if is_part(chord) else 0


def _is_empty_chain(task: Any) -> bool:
    return kinds.is_chain(task) and not task.tasks


def stamp_all(members: Any, visitor: Any, append_stamps: bool, headers: dict[str, Any]) -> None:
    """Stamp the members of a group or of a header; those of a lazy iterable when they are read."""

    def stamped(task: Any) -> Any:
        task.stamp(visitor, append_stamps, **headers)
        return task

    if isinstance(members, _regen):
        members.map(stamped)
    else:
        for task in members:
            stamped(task)


kinds.known[kinds.GROUP] = group

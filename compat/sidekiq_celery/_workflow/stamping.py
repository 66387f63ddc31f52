"""Stamps: headers that a visitor sets on every signature of a canvas."""

from abc import ABCMeta, abstractmethod
from typing import Any

from sidekiq_celery._workflow import kinds
from sidekiq_celery.utils.ids import uuid

Headers = dict[str, Any]


class StampingVisitor(metaclass=ABCMeta):
    """Called by `Signature.stamp` for every part of a canvas. Each method returns the headers to set there, if any."""

    def on_group_start(self, group: Any, **headers: Any) -> Headers:
        """Called before a group's members."""
        return {}

    def on_group_end(self, group: Any, **headers: Any) -> None:  # noqa: B027 - optional for subclasses
        """Called after a group's members."""

    def on_chain_start(self, chain: Any, **headers: Any) -> Headers:
        """Called before a chain's steps."""
        return {}

    def on_chain_end(self, chain: Any, **headers: Any) -> None:  # noqa: B027 - the same
        """Called after a chain's steps."""

    @abstractmethod
    def on_signature(self, sig: Any, **headers: Any) -> Headers:
        """Called for every task."""

    def on_chord_header_start(self, sig: Any, **header: Any) -> Headers:
        """Called before a chord's header; by default it is treated like any other group."""
        if not kinds.is_group(sig.tasks):
            sig.tasks = kinds.group_of(sig.tasks)
        return self.on_group_start(sig.tasks, **header)

    def on_chord_header_end(self, sig: Any, **header: Any) -> None:
        """Called after a chord's header."""
        self.on_group_end(sig.tasks, **header)

    def on_chord_body(self, sig: Any, **header: Any) -> Headers:
        """Called for a chord before its body is visited."""
        return {}

    def on_callback(self, callback: Any, **header: Any) -> Headers:
        """Called for every `link`."""
        return {}

    def on_errback(self, errback: Any, **header: Any) -> Headers:
        """Called for every `link_error`."""
        return {}


class GroupStampingVisitor(StampingVisitor):
    """
    Stamps every task with the ids of the groups that contain it, outermost first.

    Args:
        groups: The ids to start with.
        stamped_headers: The names of stamps to keep besides `groups`.
    """

    def __init__(self, groups: list[str] | None = None, stamped_headers: list[str] | None = None) -> None:
        self.groups = groups or []
        self.stamped_headers = stamped_headers or []
        if "groups" not in self.stamped_headers:
            self.stamped_headers.append("groups")

    def on_group_start(self, group: Any, **headers: Any) -> Headers:
        """Enter the group, and give it an id if it has none."""
        if group.id is None:
            group.set(task_id=uuid())
        if group.id not in self.groups:
            self.groups.append(group.id)
        # Lists accumulate on the way down, and each task gets all its groups.
        return {}

    def on_group_end(self, group: Any, **headers: Any) -> None:
        """Leave the group."""
        self.groups.pop()

    def on_signature(self, sig: Any, **headers: Any) -> Headers:
        """The groups that have been entered and not left."""
        return {"groups": list(self.groups), "stamped_headers": list(self.stamped_headers)}


def merge(into: Headers, other: Headers | None, aggregate_duplicates: bool = True) -> None:
    """
    Merge *other* into *into*: mappings key by key, lists by concatenation.

    Args:
        aggregate_duplicates: True to keep all values of a key that is in both, as a list. Otherwise the value in
            *into* stays, except that lists are concatenated.
    """
    for key, new in (other or {}).items():
        old = into.get(key)
        if key not in into:
            into[key] = new
        elif isinstance(old, dict):
            merge(old, new, aggregate_duplicates)
        else:
            into[key] = _merged(old, new, aggregate_duplicates)


def _merged(old: Any, new: Any, aggregates: bool) -> Any:
    if isinstance(old, list) and isinstance(new, list):
        old.extend(new)
        return old
    if not aggregates:
        return old
    if old is None:
        return [new]
    values = [old] if isinstance(old, int | float | str) else list(old)
    values.extend(new) if isinstance(new, list) else values.append(new)
    return values


def with_stamps(
    options: Headers, headers: Headers, of_visitor: Headers | None, append_stamps: bool, keeps_own: bool
) -> Headers:
    """
    The headers to stamp a signature with.

    Args:
        options: The signature's options.
        headers: The headers passed down from the enclosing part.
        of_visitor: The headers that the visitor returned for this signature.
        append_stamps: True to collect all values of a stamp in a list.
        keeps_own: True to keep the stamps that the signature already has.
    """
    stamps = dict(headers)
    stamps.setdefault("stamped_headers", list(stamps))
    if of_visitor is not None:
        of_visitor.setdefault("stamped_headers", list(of_visitor))
        merge(stamps, of_visitor, aggregate_duplicates=append_stamps)
        stamps["stamped_headers"] = list(set(stamps["stamped_headers"]))
    if keeps_own:
        names = {*stamps.get("stamped_headers", ()), *options.get("stamped_headers", ())}
        stamps["stamped_headers"] = list(names)
        merge(stamps, {key: value for key, value in options.items() if key in names}, append_stamps)
        stamps["stamped_headers"] = list(set(stamps["stamped_headers"]))
    return stamps

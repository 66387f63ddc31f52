"""
Check which kind a signature is, and create one of another kind.

Chains, groups and chords are built from each other, so they meet in this module, where each class registers itself.
The app determines how they are loaded: a worker whose program has no workflows needs none of them until it runs a step
of a caller's workflow.
"""

from collections.abc import Callable
from operator import length_hint
from typing import Any

CHAIN, CHORD, GROUP = "chain", "chord", "group"

known: dict[str, Any] = {}
"""The classes by kind, as far as their modules have been imported."""


_loaders: list[Callable[[], object]] = []


def load_by(loader: Callable[[], object]) -> None:
    """Use *loader* to import all kinds when one is needed that has not been imported."""
    _loaders.append(loader)


def load() -> None:
    """Import all kinds."""
    for loader in _loaders:
        loader()


def _class_of(kind: str) -> Any:
    if kind not in known:
        load()
    return known[kind]


def is_chain(value: Any) -> bool:
    """Whether *value* is a chain."""
    return isinstance(value, _class_of(CHAIN))


def is_group(value: Any) -> bool:
    """Whether *value* is a group."""
    return isinstance(value, _class_of(GROUP))


def is_chord(value: Any) -> bool:
    """Whether *value* is a chord."""
    return isinstance(value, _class_of(CHORD))


def chain_of(*args: Any, **kwargs: Any) -> Any:
    """A chain of these steps, unchanged."""
    return _class_of(CHAIN)(*args, **kwargs)


def group_of(*args: Any, **kwargs: Any) -> Any:
    """A group."""
    return _class_of(GROUP)(*args, **kwargs)


def chord_of(*args: Any, **kwargs: Any) -> Any:
    """A chord."""
    return _class_of(CHORD)(*args, **kwargs)


def is_empty_group(value: Any) -> bool:
    """Whether *value* is a group without members. Of members that come from an iterator, the first ones are read."""
    return is_group(value) and isinstance(value.tasks, list | tuple) and not value.tasks


def is_led_by_task(body: Any) -> bool:
    """Whether *body* is a chain that begins with anything but a group."""
    return is_chain(body) and bool(body.tasks) and not is_group(body.tasks[0])


def ends_in_group(sig: Any) -> bool:
    """Whether *sig* is a group, or a chain or chord that ends in one."""
    if is_chord(sig):
        return ends_in_group(sig.body)
    if is_chain(sig):
        # An empty group at the end is skipped in favor of the step before it.
        steps = [task for task in sig.tasks if not is_empty_group(task)]
        return bool(steps) and ends_in_group(steps[-1])
    return is_group(sig)


def maybe_unroll_group(group: Any) -> Any:
    """The member of a group that has only one; any other group is returned unchanged."""
    return next(iter(group.tasks)) if length_hint(group.tasks) == 1 else group

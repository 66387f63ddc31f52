"""Turns a payload into a tree of bounded size, whatever it contains."""

from typing import Any, NamedTuple

from sidekiq_py.logs import counted
from sidekiq_py.web.text import json_text, shortened

_MOST_NODES = 2000
_MOST_CHILDREN = 200
_DEEPEST = 30
_LONGEST_TEXT = 5000


class Node(NamedTuple):
    """
    A value in the tree.

    Args:
        kind: The CSS class: `string`, `number`, `literal` or `container`.
        text: The value as JSON, or a description of a container.
        children: The names and values in a container; None for other values.
        left_out: How many children are not shown.
    """

    kind: str
    text: str
    children: list[tuple[str, "Node"]] | None = None
    left_out: int = 0


def tree(value: Any) -> Node:
    """Build the tree of a JSON value."""
    return _Builder().node(value, 0)


class _Builder:
    def __init__(self) -> None:
        self._left = _MOST_NODES

    def node(self, value: Any, depth: int) -> Node:
        self._left -= 1
        if isinstance(value, dict):
            return self._container(f"object, {counted(len(value), 'key')}", list(value.items()), depth, value)
        if isinstance(value, list):
            named = [(str(place), part) for place, part in enumerate(value[:_MOST_CHILDREN])]
            return self._container(f"array, {counted(len(value), 'element')}", named, depth, value)
        if isinstance(value, str):
            return Node("string", shortened(json_text(value), _LONGEST_TEXT))
        kind = "literal" if value is None or isinstance(value, bool) else "number"
        return Node(kind, shortened(json_text(value), _LONGEST_TEXT))

    def _container(self, text: str, children: list[tuple[str, Any]], depth: int, value: Any) -> Node:
        if depth >= _DEEPEST:
            return Node("string", shortened(json_text(value), _LONGEST_TEXT))
        shown: list[tuple[str, Node]] = []
        for name, part in children[:_MOST_CHILDREN]:
            if self._left <= 0:
                break
            shown.append((shortened(name, 200), self.node(part, depth + 1)))
        return Node("container", text, shown, len(value) - len(shown))

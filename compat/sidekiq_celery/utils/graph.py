"""Dependency graphs, such as the tree of a result's children."""

from collections.abc import Iterable, Iterator
from graphlib import CycleError as _Cycle
from graphlib import TopologicalSorter
from typing import Any

__all__ = ("CycleError", "DependencyGraph", "GraphFormatter")


class CycleError(Exception):
    """A node depends on itself."""


class GraphFormatter:
    """
    Renders a graph in Graphviz's language.

    Args:
        root: The label of the node to highlight.
        type: `digraph` or `graph`.
        id: The graph's id.
        indent: Spaces before each line.
        attrs: Attributes of all nodes.
    """

    def __init__(
        self, root: Any = None, type: str = "digraph", id: str = "dependencies", indent: int = 0, **attrs: Any
    ) -> None:
        self.root = root
        self.type = type
        self.id = id
        self.indent = indent
        self.attrs = attrs

    def label(self, obj: Any) -> str:
        """Return the text of a node."""
        return str(obj)

    def head(self) -> str:
        """Return the first line."""
        return self._line(f"{self.type} {self.id} {{")

    def tail(self) -> str:
        """Return the last line."""
        return self._line("}")

    def node(self, obj: Any, is_root: bool = False) -> str:
        """Return the line for a node."""
        return self._line(f'    "{self.label(obj)}" [{self._attributes(is_root)}]')

    def edge(self, one: Any, other: Any) -> str:
        """Return the line for an edge."""
        arrow = "->" if self.type == "digraph" else "--"
        return self._line(f'    "{self.label(one)}" {arrow} "{self.label(other)}"')

    def _attributes(self, is_root: bool) -> str:
        attributes = {**self.attrs, **({"style": "bold"} if is_root else {})}
        return ", ".join(f'{name}="{value}"' for name, value in attributes.items())

    def _line(self, text: str) -> str:
        return " " * self.indent + text


class DependencyGraph:
    """
    Nodes, each with the nodes that it depends on.

    Args:
        it: Pairs of a node and its dependencies.
        formatter: For `to_dot`.
    """

    def __init__(self, it: Iterable[tuple[Any, Any]] | None = None, formatter: Any = None) -> None:
        self.formatter = formatter or GraphFormatter()
        self.adjacent: dict[Any, list[Any]] = {}
        if it is not None:
            self.update(it)

    def add_arc(self, obj: Any) -> None:
        """Add a node."""
        self.adjacent.setdefault(obj, [])

    def add_edge(self, A: Any, B: Any) -> None:
        """Make *A* depend on *B*. Both nodes have to exist."""
        self[A].append(B)

    def connect(self, graph: "DependencyGraph") -> None:
        """Add the nodes of another graph."""
        self.adjacent.update(graph.adjacent)

    def update(self, it: Iterable[tuple[Any, Any]]) -> None:
        """Add nodes with their dependencies."""
        pairs = list(it)
        for obj, _ in pairs:
            self.add_arc(obj)
        for obj, depends_on in pairs:
            for other in depends_on:
                self.add_edge(obj, other)

    def topsort(self) -> list[Any]:
        """
        Return the nodes in topological order: each comes after its dependencies.

        Raises:
            CycleError: A node depends on itself.
        """
        try:
            return list(TopologicalSorter(self.adjacent).static_order())
        except _Cycle as error:
            raise CycleError(*error.args) from error

    def valency_of(self, obj: Any) -> int:
        """Count the nodes of the tree of dependencies below a node, without itself; 0 if the node is unknown."""
        return sum(1 + self.valency_of(other) for other in self.adjacent.get(obj, ()))

    def edges(self) -> Iterator[Any]:
        """The nodes that depend on others."""
        return (obj for obj, depends_on in self.adjacent.items() if depends_on)

    def to_dot(self, fh: Any, formatter: Any = None) -> None:
        """Write the graph to the file *fh* in Graphviz's language."""
        form = formatter or self.formatter
        lines = [form.head()]
        lines += [form.node(obj, is_root=str(obj) == str(form.root)) for obj in self.adjacent]
        lines += [form.edge(obj, other) for obj, depends_on in self.adjacent.items() for other in depends_on]
        fh.write("\n".join([*lines, form.tail(), ""]))

    def format(self, obj: Any) -> str:
        """Return the text of a node."""
        return self.formatter.label(obj)

    def items(self) -> Iterator[tuple[Any, list[Any]]]:
        """Yield each node with its dependencies."""
        return iter(self.adjacent.items())

    iteritems = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.adjacent)

    def __getitem__(self, node: Any) -> list[Any]:
        return self.adjacent[node]

    def __len__(self) -> int:
        return len(self.adjacent)

    def __contains__(self, obj: object) -> bool:
        return obj in self.adjacent

    def __repr__(self) -> str:
        return "\n".join(self.repr_node(obj) for obj in self.adjacent)

    def repr_node(self, obj: Any, level: int = 1, fmt: str = "{0}({1})") -> str:
        """Return a node with its valency, and the tree of its dependencies below it, each with its own."""
        lines = [fmt.format(obj, self.valency_of(obj))]
        lines += ["     " * level + self.repr_node(other, level + 1, fmt) for other in self.adjacent.get(obj, ())]
        return "\n".join(lines)

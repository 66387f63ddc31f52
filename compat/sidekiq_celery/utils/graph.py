"""Dependency graphs, such as the tree of a result's children."""

from collections import Counter
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from typing import Any

__all__ = ("CycleError", "DependencyGraph", "GraphFormatter")


class CycleError(Exception):
    """A node depends on itself. Never raised, as in Celery: `topsort` returns one node of each circle."""


class GraphFormatter:
    """
    Renders a graph in Graphviz's language.

    Args:
        root: The label of the root, an attribute of the graph.
        type: `digraph` or `graph`.
        id: The graph's id.
        indent: How many times to put *inw* before each line.
        inw: The spaces of one level.
        scheme: Attributes of the graph, its nodes and edges.
    """

    scheme: Mapping[str, Any] = {"shape": "box", "arrowhead": "vee", "style": "filled", "fontname": "HelveticaNeue"}
    edge_scheme: Mapping[str, Any] = {"color": "darkseagreen4", "arrowcolor": "black", "arrowsize": 0.7}
    node_scheme: Mapping[str, Any] = {"fillcolor": "palegreen3", "color": "palegreen4"}
    term_scheme: Mapping[str, Any] = {"fillcolor": "palegreen1", "color": "palegreen2"}
    graph_scheme: Mapping[str, Any] = {"bgcolor": "mintcream"}

    def __init__(
        self,
        root: Any = None,
        type: str | None = None,
        id: str | None = None,
        indent: int = 0,
        inw: str = "    ",
        **scheme: Any,
    ) -> None:
        self.id = id or "dependencies"
        self.root = root
        self.type = type or "digraph"
        self.direction = "->" if self.type == "digraph" else "--"
        self.IN = inw * indent
        self.INp = self.IN + inw
        self.scheme = {**self.scheme, **scheme}
        self.graph_scheme = {**self.graph_scheme, "root": self.label(root)}

    def label(self, obj: Any) -> Any:
        """Return the text of a node."""
        return obj

    def attrs(self, d: Mapping[str, Any] | None, scheme: Mapping[str, Any] | None = None) -> str:
        """Return attributes as text: those of everything, then those of *scheme*, then those of *d*."""
        return ", ".join(f'{name}="{value}"' for name, value in {**self.scheme, **(scheme or {}), **(d or {})}.items())

    def head(self, **attrs: Any) -> str:
        """Return the first lines."""
        return f"{self.IN}{self.type} {self.id} {{\n{self.INp}graph [{self.attrs(attrs, self.graph_scheme)}]"

    def tail(self) -> str:
        """Return the last line."""
        return self.IN + "}"

    def node(self, obj: Any, **attrs: Any) -> str:
        """Return the line for a node."""
        return self.draw_node(obj, self.node_scheme, attrs)

    def terminal_node(self, obj: Any, **attrs: Any) -> str:
        """Return the line for a node without dependencies."""
        return self.draw_node(obj, self.term_scheme, attrs)

    def edge(self, a: Any, b: Any, **attrs: Any) -> str:
        """Return the line for an edge."""
        return self.draw_edge(a, b, **attrs)

    def draw_edge(
        self, a: Any, b: Any, scheme: Mapping[str, Any] | None = None, attrs: Mapping[str, Any] | None = None
    ) -> str:
        """Return the line for an edge."""
        shown = self.attrs(attrs, scheme or self.edge_scheme)
        return f'{self.INp}"{self.label(a)}" {self.direction} "{self.label(b)}" [{shown}]'

    def draw_node(
        self, obj: Any, scheme: Mapping[str, Any] | None = None, attrs: Mapping[str, Any] | None = None
    ) -> str:
        """Return the line for a node."""
        return f'{self.INp}"{self.label(obj)}" [{self.attrs(attrs, scheme)}]'


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
        Return the nodes in topological order: each comes after its dependencies. The order is Celery's.

        Of nodes that depend on each other in a circle, the result has one, as in Celery.

        Raises:
            KeyError: A node depends on one that is not in the graph.
        """
        circles = self._circles()
        circle_of = {node: circle for circle in circles for node in circle}
        merged = DependencyGraph((circle, ()) for circle in circles)
        for node in self:
            for other in self[node]:
                if circle_of[node] != circle_of[other]:
                    merged.add_edge(circle_of[node], circle_of[other])
        return [circle[0] for circle in merged._sorted()]

    def _circles(self) -> list[tuple[Any, ...]]:
        """The nodes, grouped by circle, by Tarjan's algorithm; a node that is in no circle is alone."""
        circles: list[tuple[Any, ...]] = []
        path: list[Any] = []
        lowest: dict[Any, int] = {}

        def visit(node: Any) -> None:
            if node in lowest:
                return
            number, start = len(lowest), len(path)
            lowest[node] = number
            path.append(node)
            for other in self[node]:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            if lowest[node] == number:
                circles.append(tuple(path[start:]))
                del path[start:]
                lowest.update(dict.fromkeys(circles[-1], len(self)))

        for node in self:
            visit(node)
        return circles

    def _sorted(self) -> list[Any]:
        """The nodes of a graph without circles, by Kahn's algorithm."""
        waiting = Counter(other for node in self for other in self[node])
        ready = [node for node in self if not waiting[node]]
        found = []
        while ready:
            found.append(ready.pop())
            for other in self[found[-1]]:
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
        return found[::-1]

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
        for obj, depends_on in self.adjacent.items():
            lines.append(form.node(obj) if depends_on else form.terminal_node(obj))
            lines += [form.edge(obj, other) for other in depends_on]
        fh.write("\n".join([*lines, form.tail(), ""]))

    def format(self, obj: Any) -> Any:
        """Return the text of a node."""
        return self.formatter.label(obj)

    def items(self) -> ItemsView[Any, list[Any]]:
        """Each node with its dependencies."""
        return self.adjacent.items()

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

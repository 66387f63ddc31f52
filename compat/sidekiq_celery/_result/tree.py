"""The tree below a result: the tasks that a task has called, the tasks that those have called, and so on."""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any

from sidekiq_celery._result.base import ResultBase
from sidekiq_celery.exceptions import IncompleteStream


class Tree(ResultBase):
    """The part of `AsyncResult` that walks its children, their children, and so on."""

    id: str

    def _read_together(self, results: list[Any]) -> None:
        raise NotImplementedError

    def iterdeps(self, intermediate: bool = False) -> Iterator[tuple[Any, Any]]:
        """
        This result and all its descendants, as pairs of parent and result; parents come first.

        Raises:
            IncompleteStream: A task has not ended, and *intermediate* is false.
        """
        stack: deque[tuple[Any, Any]] = deque([(None, self)])
        while stack:
            parent, node = stack.popleft()
            yield parent, node
            if node.ready():
                children = list(node.children or [])
                # One that cannot be read raises when its turn comes.
                with suppress(Exception):
                    self._read_together(children)
                stack.extend((node, child) for child in children)
            elif not intermediate:
                raise IncompleteStream()

    def collect(self, intermediate: bool = False, **kwargs: Any) -> Iterator[tuple[Any, Any]]:
        """Wait for this task and all its descendants, and yield each with its value. Keywords are passed to `get`."""
        for _, node in self.iterdeps(intermediate=intermediate):
            yield node, node.get(**kwargs)

    def get_leaf(self) -> Any:
        """The value of this task's last descendant."""
        value = None
        for _, node in self.iterdeps():
            value = node.get()
        return value

    def build_graph(self, intermediate: bool = False, formatter: Any = None) -> Any:
        """The tree as a graph."""
        from sidekiq_celery.utils.graph import DependencyGraph, GraphFormatter

        graph: Any = DependencyGraph(formatter=formatter or GraphFormatter(root=self.id, shape="oval"))
        for parent, node in self.iterdeps(intermediate=intermediate):
            graph.add_arc(node)
            if parent:
                graph.add_edge(parent, node)
        return graph

    @cached_property
    def graph(self) -> Any:
        """The tree as a graph."""
        return self.build_graph()

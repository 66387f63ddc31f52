"""Graphs of what depends on what."""

import pytest
from sidekiq_celery.utils.graph import DependencyGraph


@pytest.mark.parametrize(
    ("edges", "order"),
    [
        ({}, []),
        ({"a": "bc", "b": "d", "c": "d", "d": ""}, ["d", "b", "c", "a"]),
        ({"a": "", "b": "", "c": "a"}, ["b", "a", "c"]),
        ({"a": "b", "b": "c", "c": "b", "d": "a"}, ["b", "a", "d"]),
        ({"a": "b", "b": "a"}, ["a"]),
    ],
)
def test_nodes_are_sorted_as_in_celery(edges, order):
    """Those that depend on nothing first; of a circle, one node is left."""
    assert DependencyGraph(edges.items()).topsort() == order


def test_a_node_that_depends_on_an_unknown_one_cannot_be_sorted():
    """As in Celery."""
    with pytest.raises(KeyError, match="z"):
        DependencyGraph([("a", ["z"])]).topsort()

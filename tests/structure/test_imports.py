"""Who imports whom, and in a circle."""

from collections.abc import Callable

import pytest

pytest.importorskip("grimp")

from structure.__main__ import PACKAGES
from structure.imports import cycles, graph_of

MakePackage = Callable[[dict[str, str]], str]


@pytest.mark.parametrize(
    "text",
    [
        "from {package} import low",
        "def late():\n    from {package}.low import value",
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import {package}.low",
    ],
)
def test_an_import_counts_wherever_it_stands(make_package: MakePackage, text: str) -> None:
    """In a function and for type checking it ties two modules together as one at the top does."""
    package = make_package({"low": "value = 1\n", "high": text})

    graph = graph_of(package)

    assert (f"{package}.high", f"{package}.low") in graph.written


def test_a_module_named_in_a_string_counts_apart(make_package: MakePackage) -> None:
    """Tables of lazy names import as well; what a thread is called imports nothing."""
    package = make_package(
        {
            "low": "",
            "other": "",
            "high": 'HOMES = {"a": "{package}.low", "b": "{package}.nothing"}\nThread(name="{package}.other")\n',
        }
    )

    graph = graph_of(package)

    assert graph.written == set()
    assert graph.named == {(f"{package}.high", f"{package}.low")}


def test_a_reference_to_a_name_in_a_module_counts(make_package: MakePackage) -> None:
    """Settings and commands name what they load as `module:name`."""
    package = make_package({"low": "", "high": 'LOADS = "{package}.low:Thing"\n'})

    assert graph_of(package).named == {(f"{package}.high", f"{package}.low")}


def test_a_package_that_is_not_there_is_named() -> None:
    """The tool runs from the project's root."""
    with pytest.raises(Exception, match="no_such_package"):
        graph_of("no_such_package")


def test_cycles_are_groups_of_modules_that_reach_each_other() -> None:
    """However long the way round is; a module beside the way is in none."""
    ring = {("a", "b"), ("b", "c"), ("c", "a")}
    pair = {("x", "y"), ("y", "x")}
    line = {("start", "a"), ("c", "x"), ("y", "end")}

    assert cycles(ring | pair | line) == [{"a", "b", "c"}, {"x", "y"}]


def test_no_cycle_is_found_where_all_imports_point_down() -> None:
    """Two ways to one module are no circle."""
    assert cycles({("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")}) == []


def test_no_modules_of_ours_import_each_other_in_a_circle() -> None:
    """Not by a name in a string, either; and import-linter compares neighbours, not a package and what lies in it."""
    assert [sorted(group) for group in cycles(graph_of(*PACKAGES).edges)] == []

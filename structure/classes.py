"""Counts the attributes and methods of a class: both grow when it does more than one thing."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ClassSize:
    """One class, measured."""

    module: str
    name: str
    attributes: int
    """Names assigned to `self` anywhere in the class."""
    methods: int
    """Functions defined in the class, including properties."""
    lines: int


def classes_in(files: Iterable[tuple[str, Path]]) -> list[ClassSize]:
    """The classes in *files* (module and path), those with the most attributes and methods first."""
    found = [
        _measured(module, node)
        for module, path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    return sorted(found, key=lambda size: (-size.attributes - size.methods, size.module, size.name))


def _measured(module: str, node: ast.ClassDef) -> ClassSize:
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    attributes = {name for method in methods for name in _assigned_to_self(method)}
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    return ClassSize(module, node.name, len(attributes), len(methods), lines)


def _assigned_to_self(method: ast.AST) -> Iterator[str]:
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr

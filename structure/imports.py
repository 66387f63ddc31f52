"""
The import graph of the packages, and its cycles.

An import counts wherever it is: at the top, in a function or under `TYPE_CHECKING`, because for a reader each one ties
two modules together. A module that is named in a string also counts (`"sidekiq_celery.app.base"` in a table of lazy
names, or `"package.module:name"`). The two kinds are kept apart, because import-linter only sees the first.
"""

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import grimp

Edge = tuple[str, str]
"""The importing module and the imported one."""

_REFERENCE = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.\w+)+)(?::\w+)?")


@dataclass(frozen=True, slots=True)
class Graph:
    """Modules and the imports between them."""

    modules: frozenset[str]
    written: frozenset[Edge]
    """Imports by an import statement."""
    named: frozenset[Edge]
    """Imports by a string only."""

    @property
    def edges(self) -> frozenset[Edge]:
        """All imports of both kinds."""
        return self.written | self.named


def graph_of(*packages: str) -> Graph:
    """
    The imports among all modules of *packages*.

    Raises:
        ModuleNotFoundError: One of *packages* is not on the path.
    """
    built = grimp.build_graph(packages[0], *packages[1:], cache_dir=None)
    modules = frozenset(built.modules)
    written = {(module, other) for module in modules for other in built.find_modules_directly_imported_by(module)}
    files = [file for package in packages for file in files_of(package)]
    named = {edge for module, path in files for edge in _named_in(module, path, modules)}
    return Graph(modules, frozenset(written), frozenset(named - written))


def files_of(package: str) -> Iterator[tuple[str, Path]]:
    """Yield each module of *package* with its file."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no package {package} on the path; run from the project's root")
    folder = Path(spec.origin).parent
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join([package, *(part for part in parts if part != "__init__")]), path


def _named_in(module: str, path: Path, modules: Set[str]) -> Iterator[Edge]:
    labels = set[int]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            # The name of a thread or a context variable may look like a module, but imports nothing.
            labels |= {id(keyword.value) for keyword in node.keywords if keyword.arg == "name"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in labels:
            reference = _REFERENCE.fullmatch(node.value)
            # A module depends on the packages that contain it anyway.
            if reference and reference["module"] in modules and not module.startswith(f"{reference['module']}."):
                yield module, reference["module"]


def cycles(edges: Set[Edge]) -> list[frozenset[str]]:
    """
    Groups of modules that import each other, directly or indirectly: the strongly connected components with more than
    one module, largest first.
    """
    imported: dict[str, list[str]] = {}
    importers: dict[str, list[str]] = {}
    for module, other in sorted(edges):
        imported.setdefault(module, []).append(other)
        importers.setdefault(other, []).append(module)
    # Kosaraju's algorithm: the module that is finished last on the way down starts a group on the way up.
    order: dict[str, None] = {}
    for module in sorted(imported):
        order |= dict.fromkeys(_reached(module, imported, order))
    found, taken = [], set[str]()
    for module in reversed(order):
        group = frozenset(_reached(module, importers, taken))
        taken |= group
        if len(group) > 1:
            found.append(group)
    return sorted(found, key=lambda group: (-len(group), min(group)))


def _reached(start: str, neighbours: dict[str, list[str]], without: Set[str] | dict[str, None]) -> list[str]:
    """The modules reachable from *start*, except those in *without*; each comes after the modules that it leads to."""
    if start in without:
        return []
    seen, done = {start}, list[str]()
    path = [(start, iter(neighbours.get(start, ())))]
    while path:
        module, rest = path[-1]
        step = next((other for other in rest if other not in seen and other not in without), None)
        if step is None:
            done.append(module)
            path.pop()
        else:
            seen.add(step)
            path.append((step, iter(neighbours.get(step, ()))))
    return done

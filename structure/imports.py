"""
The import graph of the packages, and its cycles.

An import counts wherever it stands: at the top, in a function or under `TYPE_CHECKING`, as each ties one module to
another for its reader. So does a module that is named in a string (`"sidekiq_celery.app.base"` in a table of lazy
names, or `"package.module:name"`); the two kinds are kept apart, as only the first is seen by import-linter.
"""

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import grimp

Edge = tuple[str, str]
"""Importer and imported."""

_REFERENCE = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.\w+)+)(?::\w+)?")


@dataclass(frozen=True, slots=True)
class Graph:
    """Modules, and who imports whom among them."""

    modules: frozenset[str]
    written: frozenset[Edge]
    """By an import statement."""
    named: frozenset[Edge]
    """By a string alone."""

    @property
    def edges(self) -> frozenset[Edge]:
        """All, however they are written."""
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
    """Each module of *package* with its file."""
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
            # What threads and context variables are called may look like a module and imports none.
            labels |= {id(keyword.value) for keyword in node.keywords if keyword.arg == "name"}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in labels:
            reference = _REFERENCE.fullmatch(node.value)
            # A module knows the packages it lies in anyway.
            if reference and reference["module"] in modules and not module.startswith(f"{reference['module']}."):
                yield module, reference["module"]


def cycles(edges: Set[Edge]) -> list[frozenset[str]]:
    """
    Groups of modules that import each other, in one way or another: the strongly connected components with more than
    one module, largest first.
    """
    imported: dict[str, list[str]] = {}
    importers: dict[str, list[str]] = {}
    for module, other in sorted(edges):
        imported.setdefault(module, []).append(other)
        importers.setdefault(other, []).append(module)
    # Kosaraju: whatever is left last, going down, starts a group when going up.
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
    """What can be reached from *start* past what is in *without*; each module after those it leads to."""
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

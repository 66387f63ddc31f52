"""Print the table; with `--verbose`, also the names of the things counted."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from structure.classes import classes_in
from structure.imports import Graph, cycles, files_of, graph_of
from structure.layers import layers_in
from structure.lines import lines_of_code
from structure.places import side_by_side

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("sidekiq_py", "sidekiq_celery")
FOLDERS = ("sidekiq_py", "sidekiq_py/engine", "sidekiq_py/redis_access", "compat/sidekiq_celery")
WATCHED = ("ReliableFetcher", "Launcher", "Supervisor")
"""Classes that do more than one thing; found by name in any module."""
PUBLIC = (
    *("active_job", "api", "config", "consumer", "contrib", "errors", "extension", "metrics", "payloads", "probes"),
    *("pushing", "pytest_plugin", "redaction", "telemetry", "testing", "web", "worker"),
)
"""The modules of sidekiq_py that programs are meant to import."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table, and the names of the things it counted."""

    question: str
    answer: str
    names: list[str] = field(default_factory=list)


def main(arguments: list[str]) -> None:
    """Measure everything and print the table."""
    graph = graph_of(*PACKAGES)
    files = [file for package in PACKAGES for file in files_of(package)]
    for row in (*_cycles(graph), *_layers(graph), *_places(), *_borders(graph), *_classes(files), *_lines()):
        print(f"{row.question:55} {row.answer}")
        if "--verbose" in arguments:
            for name in row.names:
                print(f"    {name}")


def _cycles(graph: Graph) -> Iterator[Row]:
    for question, edges in (("import cycles", graph.written), ("  with modules named in strings", graph.edges)):
        found = cycles(edges)
        sizes = ", ".join(str(len(group)) for group in found)
        answer = f"{len(found)} (modules in each: {sizes})" if found else "0"
        yield Row(question, answer, [" ".join(sorted(group)) for group in found])


def _layers(graph: Graph) -> Iterator[Row]:
    for layers in layers_in(ROOT / "pyproject.toml"):
        written, named = layers.against(graph.written), layers.against(graph.named)
        answer = f"{len(written)}, and {len(named)} named in strings"
        names = [" → ".join(edge) for edge in written + named]
        yield Row(f"imports against the layers of {layers.package}", answer, names)


def _places() -> Iterator[Row]:
    for folder in FOLDERS:
        places = side_by_side(ROOT / folder)
        yield Row(f"side by side in {folder}", str(len(places)), [" ".join(places)])


def _borders(graph: Graph) -> Iterator[Row]:
    """Imports across the two packages: non-public modules in sidekiq_celery, and any import in sidekiq_py."""
    down = Counter(other for module, other in graph.edges if _is_in(module, "sidekiq_celery") and _is_inner(other))
    names = [f"{module}: {times}" for module, times in down.most_common()]
    yield Row("inner modules of sidekiq_py in sidekiq_celery", f"{len(down)}, by {down.total()} imports", names)
    up = sorted(edge for edge in graph.edges if _is_in(edge[0], "sidekiq_py") and _is_in(edge[1], "sidekiq_celery"))
    yield Row("imports of sidekiq_celery in sidekiq_py", str(len(up)), [" → ".join(edge) for edge in up])


def _is_in(module: str, package: str) -> bool:
    return module.split(".", maxsplit=1)[0] == package


def _is_inner(module: str) -> bool:
    package, *inside = module.split(".")
    return package == "sidekiq_py" and bool(inside) and inside[0] not in PUBLIC


def _classes(files: Iterable[tuple[str, Path]]) -> Iterator[Row]:
    classes = classes_in(files)
    for size in classes:
        if size.name in WATCHED:
            answer = f"{size.attributes} attributes, {size.methods} methods, {size.lines} lines"
            yield Row(f"class {size.name}", answer, [size.module])
    largest = classes[:10]
    answer = ", ".join(f"{size.name} {size.attributes}/{size.methods}" for size in largest)
    yield Row("ten largest classes (attributes/methods)", answer, [f"{size.module}.{size.name}" for size in largest])


def _lines() -> Iterator[Row]:
    for package in PACKAGES:
        yield Row(f"lines of code in {package}", f"{lines_of_code(path for _, path in files_of(package)):,}")


if __name__ == "__main__":
    main(sys.argv[1:])

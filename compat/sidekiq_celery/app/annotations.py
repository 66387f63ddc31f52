"""`task_annotations`: changing attributes of tasks in the settings."""

from collections.abc import Iterable, Iterator
from typing import Any

from sidekiq_celery.utils.functional import firstmethod, mlazy
from sidekiq_celery.utils.imports import instantiate

__all__ = (
    "MapAnnotation",
    "firstmethod",
    "instantiate",
    "mlazy",
    "prepare",
    "resolve_all",
)

_for_task = firstmethod("annotate")
_for_any = firstmethod("annotate_any")


class MapAnnotation(dict[str, Any]):
    """A map from task name to attributes; `*` stands for all tasks."""

    def annotate_any(self) -> dict[str, Any] | None:
        """The attributes for all tasks."""
        return dict(self["*"]) if "*" in self else None

    def annotate(self, task: Any) -> dict[str, Any] | None:
        """The attributes for *task*."""
        return dict(self[task.name]) if task.name in self else None


def prepare(annotations: Any) -> Any:
    """The setting as a list of annotations: dicts become maps, and named classes are instantiated on first use."""

    def expand(annotation: Any) -> Any:
        if isinstance(annotation, dict):
            return MapAnnotation(annotation)
        return mlazy(instantiate, annotation) if isinstance(annotation, str) else annotation

    if annotations is None:
        return ()
    return [expand(one) for one in (annotations if isinstance(annotations, list | tuple) else (annotations,))]


def resolve_all(anno: Iterable[Any], task: Any) -> Iterator[dict[str, Any]]:
    """The attributes for *task*, then those for all tasks."""
    return (found for found in (_for_task(anno, task), _for_any(anno)) if found)

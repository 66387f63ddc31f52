"""`GroupResult`: the results of a group."""

from typing import Any

from sidekiq_celery import _state
from sidekiq_celery._result.sets import ResultSet


class GroupResult(ResultSet):
    """
    The results of a group. The list of its members can be stored, and restored by the group's id.

    Args:
        id: The group's id.
        results: The results.
        parent: The result of the previous step.
    """

    id: Any = None

    def __init__(self, id: Any = None, results: Any = None, parent: Any = None, **kwargs: Any) -> None:
        self.id = id
        self.parent = parent
        super().__init__(results, **kwargs)

    def save(self, backend: Any = None) -> Any:
        """Store the list of results that belong to the group; see `restore`."""
        return (backend or self.app.backend).save_group(self.id, self)

    def delete(self, backend: Any = None) -> None:
        """Remove the list that `save` has stored."""
        (backend or self.app.backend).delete_group(self.id)

    @classmethod
    def restore(cls, id: Any, backend: Any = None, app: Any = None) -> Any:
        """The group that was stored under *id*, or None."""
        own: Any = cls.app
        app = app or (_state.get_current_app() if isinstance(own, property) else own)
        return (backend or app.backend).restore_group(id)

    @property
    def children(self) -> Any:
        """The results."""
        return self.results

    def as_tuple(self) -> Any:
        """`((id, parent), members)`; see `result_from_tuple`."""
        return (self.id, self.parent and self.parent.as_tuple()), [result.as_tuple() for result in self.results]

    def as_list(self) -> list[str]:
        """The ids of the group, its members, and the steps before them."""
        return [self.id, *(name for result in self.results for name in result.as_list())]

    def __bool__(self) -> bool:
        return bool(self.id or self.results)

    def __str__(self) -> str:
        return str(self.id)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.id)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, GroupResult):
            return (other.id, other.results, other.parent) == (self.id, self.results, self.parent)
        return other == self.id if isinstance(other, str) else NotImplemented

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.id} [{', '.join(result.id for result in self.results)}]>"

    def __reduce__(self) -> Any:
        return type(self), self.__reduce_args__()

    def __reduce_args__(self) -> tuple[Any, ...]:
        return self.id, self.results

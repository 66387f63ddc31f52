"""An iterable that can be iterated again."""

import operator
from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex, overload


def regen(it: Iterable[Any]) -> Any:
    """Return *it* as a list. A list or tuple stays as it is; anything else is only read as far as needed."""
    return it if isinstance(it, list | tuple) else _regen(it)


class _regen(list[Any]):
    """A list that is filled from an iterator as it is read. JSON encoders check for a list, so it has to be one."""

    def __init__(self, it: Iterable[Any]) -> None:
        super().__init__()
        self._given: Iterable[Any] = it
        self._source: Iterator[Any] | None = None
        self._is_done = False

    def _pull(self) -> bool:
        """Read one more element. Returns False at the end."""
        if self._is_done:
            return False
        if self._source is None:
            self._source = iter(self._given)
        try:
            item = next(self._source)
        except StopIteration:
            self._is_done = True
            return False
        list.append(self, item)
        return True

    @property
    def data(self) -> list[Any]:
        """The complete list."""
        while self._pull():
            pass
        return self

    def map(self, func: Any) -> None:
        """Apply *func* to every element; to those not read yet, when they are read."""
        list.__setitem__(self, slice(None), [func(item) for item in list.__iter__(self)])
        self._source = map(func, self._given if self._source is None else self._source)

    def __iter__(self) -> Iterator[Any]:
        index = 0
        is_reading = False
        while True:
            if index >= list.__len__(self):
                is_reading = True
                if not self._pull():
                    return
            # While reading, stay one element ahead, so that the end is known when the last element is returned.
            if is_reading and index + 1 == list.__len__(self):
                self._pull()
            yield list.__getitem__(self, index)
            index += 1

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list.__getitem__(self.data, index)
        place = operator.index(index)
        if place < 0:
            return list.__getitem__(self.data, place)
        # Read one ahead, as in an iteration.
        while place + 1 >= list.__len__(self) and self._pull():
            pass
        return list.__getitem__(self, place)

    def __len__(self) -> int:
        return list.__len__(self.data)

    def __length_hint__(self) -> int:
        return list.__len__(self) + operator.length_hint(self._given if self._source is None else self._source)

    def __bool__(self) -> bool:
        return bool(list.__len__(self)) or self._pull()

    def __eq__(self, other: object) -> bool:
        return list.__eq__(self.data, other.data if isinstance(other, _regen) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __contains__(self, item: object) -> bool:
        return any(item == other for other in self)

    def __add__(self, other: Any) -> Any:
        return [*self, *other]

    def __radd__(self, other: Any) -> Any:
        return [*other, *self]

    def __reduce__(self) -> Any:
        return list, (list(self),)

    def __repr__(self) -> str:
        read = ", ".join(map(repr, list.__iter__(self)))
        return f"<{type(self).__name__}: [{read}{'' if self._is_done else '...'}]>"

    __hash__ = None

"""
GlobalID: the name of a record in a Rails app, `gid://app/Model/id?params`.

Nothing is loaded automatically: a `GlobalID` among a job's arguments stays one unless a locator for its app is
registered. Source: globalid 0.6 to 1.4, uri/gid.rb and locator.rb.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import parse_qsl, quote_plus, unquote_plus, urlencode

_URI = re.compile(r"gid://([^/?#\s]+)/([^/?#\s]+)/([^?#\s]+)(?:\?([^#\s]*))?")
_APP = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class GlobalID:
    """
    The name of a record: `GlobalID("gid://shop/Billing::Invoice/42")`, or by its parts with `create`.

    Args:
        uri: Kept as it is, so that it can be sent back to Ruby byte for byte.

    Raises:
        ValueError: *uri* is not a GlobalID.
    """

    uri: str

    def __post_init__(self) -> None:
        if not isinstance(self.uri, str) or not all(unquote_plus(part).strip() for part in self._path.split("/")):
            raise ValueError(f"{self.uri!r} is not a GlobalID; expected gid://app/Model/id")

    @classmethod
    def create(
        cls,
        app: str,
        model_name: str,
        model_id: str | int | Sequence[str | int],
        params: Mapping[str, Any] | None = None,
    ) -> "GlobalID":
        """
        Build the name of a record from its parts.

        Args:
            app: The Rails app's name, as in its `GlobalID.app`.
            model_name: The model's class, such as `Billing::Invoice`.
            model_id: The record's id; several for a composite key.
            params: For the locator; the values become strings.

        Raises:
            ValueError: *app* is not a host name, or a part is empty.
        """
        if not _APP.fullmatch(app):
            raise ValueError(f"{app!r} is not an app name; give a host name of letters, digits and hyphens")
        ids = [model_id] if isinstance(model_id, (str, int)) else model_id
        path = "/".join(quote_plus(str(part), safe="") for part in ids)
        # Ruby escapes different characters in a query than in an id.
        query = urlencode(params or {}, safe="*").replace("~", "%7E")
        return cls(f"gid://{app}/{model_name}/{path}" + (f"?{query}" if query else ""))

    @property
    def app(self) -> str:
        """The app's name."""
        return self._match[1]

    @property
    def model_name(self) -> str:
        """The model's class."""
        return self._match[2]

    @property
    def model_id(self) -> str | tuple[str, ...]:
        """The id; a tuple for a composite key."""
        ids = tuple(unquote_plus(part) for part in self._path.split("/"))
        return ids[0] if len(ids) == 1 else ids

    @property
    def params(self) -> dict[str, str]:
        """The query parameters; if a name occurs twice, the last value."""
        return dict(parse_qsl(self._match[4] or "", keep_blank_values=True))

    def to_global_id(self) -> "GlobalID":
        """Itself, so that it can be used like a record."""
        return self

    def __str__(self) -> str:
        return self.uri

    @property
    def _path(self) -> str:
        return self._match[3]

    @property
    def _match(self) -> re.Match[str]:
        match = _URI.fullmatch(self.uri)
        if match is None:
            raise ValueError(f"{self.uri!r} is not a GlobalID; expected gid://app/Model/id")
        return match


@runtime_checkable
class Identified(Protocol):
    """A record that knows its GlobalID; a job can have it as an argument."""

    def to_global_id(self) -> GlobalID:
        """Its GlobalID."""
        ...


Locator = Callable[[GlobalID], Any]
L = TypeVar("L", bound=Locator)

_locators: dict[str | None, Locator] = {}


def register_locator(app: str | None = None) -> Callable[[L], L]:
    """
    A decorator for the function that finds an app's records.

        @register_locator("shop")
        def find(gid):
            return MODELS[gid.model_name].objects.get(pk=gid.model_id)

    If it raises, the job fails with a `DeserializationError` and is retried. If it returns None, the argument stays a
    `GlobalID`.

    Args:
        app: The app's name; None for every app without a locator of its own.
    """

    def register(locator: L) -> L:
        _locators[app.lower() if app else None] = locator
        return locator

    return register


def clear_locators() -> None:
    """Remove all locators."""
    _locators.clear()


def locate(gid: GlobalID) -> Any:
    """The record, or *gid* itself if no locator finds it."""
    locator = _locators.get(gid.app.lower()) or _locators.get(None)
    found = locator(gid) if locator else None
    return gid if found is None else found

"""What a page or an action tells about itself."""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import Response

from sidekiq_py.web.access import Need
from sidekiq_py.web.visit import Visit


@dataclass(frozen=True, slots=True)
class Handler:
    """
    A page or an action.

    Args:
        method: `GET` or `POST`.
        path: Without a prefix. Names that Redis holds stand in the query, as a server may decode a path in its own way.
        run: Takes a visit and gives the response; it may block.
        need: What the user must be allowed to do; None lets everybody pass who could sign in.
        page: The path that the navigation marks.
        is_live: The page has a part that changes by itself: the template's block `live`.
    """

    method: str
    path: str
    run: Callable[[Visit], Response]
    need: Need | None
    page: str
    is_live: bool = False

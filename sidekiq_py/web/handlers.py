"""The description of a page or an action: its path, its function and the permission that it requires."""

from collections.abc import Callable
from typing import NamedTuple

from starlette.responses import Response

from sidekiq_py.web.access import Need
from sidekiq_py.web.visit import Visit


class Handler(NamedTuple):
    """
    A page or an action.

    Args:
        method: `GET` or `POST`.
        path: The path without a prefix. Names from Redis go into the query, because servers decode paths differently.
        run: Takes a visit and returns the response; may block.
        need: The permission that the user needs; None for pages that work without signing in.
        page: The path of the page to mark in the navigation.
        is_live: True if the page has a part that updates by itself: the template's block `live`.
    """

    method: str
    path: str
    run: Callable[[Visit], Response]
    need: Need | None
    page: str
    is_live: bool = False

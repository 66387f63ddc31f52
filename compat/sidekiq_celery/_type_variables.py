"""
The type variables of tasks and signatures.

To type checkers they have defaults, so that `self: Task` and `sig: Signature` need no brackets under `--strict`. Python
knows defaults from 3.13 on; typing_extensions is nothing that has to be installed for this, as type checkers bring it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

__all__ = ("P", "R_co", "T", "Unknown")

T = TypeVar("T")


class Unknown:
    """
    Nothing is one: only where the result of a signature is `Any` does an overload for it hold. Such a one may be a
    group, which has another kind of result.
    """

"""
The type variables of tasks, signatures and results.

Type checkers see them with defaults, so that `self: Task` and `sig: Signature` need no brackets under `--strict`, and
`AsyncResult(id)` no annotation.
Python itself supports defaults from 3.13 on. typing_extensions does not have to be installed, because type checkers
bring it along.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")
    R_co = TypeVar("R_co", covariant=True)

T = TypeVar("T")


class Unknown:
    """
    A type without instances. An overload for it matches only if a signature's result is `Any`. Such a signature may be
    a group, which has another kind of result.
    """

"""
A bridge that is killed at a named step: `python -m tests.compat.bridge.dying_bridge <step> <time> <arguments>`.

It dies the so-manyth time that it comes to that step; `never` names none. It moves few messages at a time, so that
there are many steps.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sidekiq_celery.bin.celery import main
from sidekiq_celery.bridge import kombu_source, message_lists, transfer
from sidekiq_celery.bridge.transfer import Claims

_AT_ONCE = 25

step, nth, *arguments = sys.argv[1:]
_left = int(nth)


def _come_to(name: str) -> None:
    global _left
    if name == step:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _between(before: str, function: Callable[..., Any], after: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        _come_to(before)
        result = function(*args, **kwargs)
        _come_to(after)
        return result

    return call


Claims.make = _between("before claiming", Claims.make, "claimed")  # type: ignore[method-assign]
Claims.forget = _between("before forgetting", Claims.forget, "forgotten")  # type: ignore[method-assign]
transfer.outcomes = kombu_source.outcomes = _between("before writing", transfer.outcomes, "written")
kombu_source.KombuRoute._acknowledge = _between(  # type: ignore[method-assign]
    "before acknowledging", kombu_source.KombuRoute._acknowledge, "acknowledged"
)
message_lists.WINDOW_MESSAGES = kombu_source._BATCH_MESSAGES = _AT_ONCE
sys.argv = ["sidekiq-celery", *arguments]
main()

"""The errors of the package, as other code handles them."""

import copy
import pickle

import pytest

from sidekiq_py.errors import (
    ArgumentTypeError,
    ExtensionError,
    ExtensionKeyError,
    JobNotFoundError,
    LateDeathError,
    PushOutcomeUnknownError,
    RedisConnectionError,
    RedisReplyError,
    SidekiqError,
    TerminatedError,
)


@pytest.mark.parametrize(
    "error",
    [
        ArgumentTypeError("args[0] is a set; pass list(...)", "args[0]"),
        ExtensionError("batches", "on_push", ValueError("no")),
        ExtensionKeyError("encrypt", "encrypted arguments", "Import", "0123456789ab", "default"),
        JobNotFoundError("Import"),
        LateDeathError("no", "ValueError"),
        PushOutcomeUnknownError(["0123456789ab"], OSError("gone")),
        RedisConnectionError("no TLS", is_advised=True, is_about_settings=True),
        RedisReplyError("OOM command not allowed", is_advised=True),
        TerminatedError(9),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_sent_to_another_process_and_copied(error: SidekiqError) -> None:
    """A `ProcessPoolExecutor` would break otherwise, and a `multiprocessing.Pool` never return."""
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert (str(again), vars(again)) == (str(error), vars(error))

"""`sidekiq_celery.worker.state`: where to ask for what Celery keeps there."""

import copy
import pickle

import pytest
from sidekiq_celery.worker import state, strategy


def test_what_is_kept_elsewhere_is_named() -> None:
    """With the call that asks for it."""
    with pytest.raises(AttributeError, match=r"use app\.control\.inspect\(\)\.active\(\)"):
        _ = state.active_requests
    uses = (len, list, bool, copy.copy, copy.deepcopy, pickle.dumps)
    for use in (*uses, lambda found: found["proj.add"], lambda found: found.get("proj.add")):
        with pytest.raises(AttributeError, match=r"do not keep total_count in memory; use .*stats\(\)"):
            use(state.total_count)
    with pytest.raises(NotImplementedError, match="no strategies"):
        strategy.default(None, None)
    with pytest.raises(AttributeError, match="do not keep nonsense"):
        _ = state.nonsense
    assert set(state.SOFTWARE_INFO) == {"sw_ident", "sw_ver", "sw_sys"}

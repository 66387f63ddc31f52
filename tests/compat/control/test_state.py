"""`sidekiq_celery.worker.state`: where to ask for what Celery keeps there."""

import pytest
from sidekiq_celery.worker import state


def test_what_is_kept_elsewhere_is_named() -> None:
    """With the call that asks for it."""
    with pytest.raises(AttributeError, match=r"use app\.control\.inspect\(\)\.active\(\)"):
        _ = state.active_requests
    with pytest.raises(AttributeError, match="do not keep nonsense"):
        _ = state.nonsense
    assert set(state.SOFTWARE_INFO) == {"sw_ident", "sw_ver", "sw_sys"}

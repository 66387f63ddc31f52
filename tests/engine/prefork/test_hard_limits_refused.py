"""Where a hard limit cannot be kept, a worker does not start."""

import pytest

from sidekiq_py.client.sync_client import Client
from sidekiq_py.config import CapsuleConfig, Config
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.errors import ConfigError
from sidekiq_py.hooks import Hooks
from sidekiq_py.middleware.chain import Chain
from sidekiq_py.redis_access.connection.settings import RedisSettings
from sidekiq_py.registry import FunctionDefinition, Registry


@pytest.mark.parametrize(
    ("is_async", "options", "advice"),
    [
        (True, {"is_single_slot_child": True}, "timeout="),
        (False, {"is_single_slot_child": True, "fetcher": "basic"}, "--fetcher reliable"),
        (False, {}, "--processes N -c 1"),
    ],
)
def test_a_hard_limit_that_cannot_be_kept_is_refused(
    redis_url: str, is_async: bool, options: dict[str, object], advice: str
) -> None:
    """The sentence says what to do instead; a limit that is silently none would be worse."""
    definition = FunctionDefinition("slow", {}, print, print, is_async=is_async)
    definition.hard_timeout_seconds = 1.0
    registry = Registry()
    registry.add(definition)
    client = Client(redis_url, sidekiq_version="8")
    config = Config(redis=RedisSettings(redis_url), capsules=(CapsuleConfig(concurrency=1),), **options)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=advice):
        Launcher(WorkerParts(config, registry=registry, hooks=Hooks(), server_middleware=Chain(), client=client))

    client.close()

"""
The parts for running workers from another program, in its own process or as a parent of child processes.

Most programs use `sidekiq-py worker` or `sidekiq_py.embed` instead. A program with its own command line or remote
control, such as `sidekiq_celery`, builds on these parts. This module is public and its names are stable.
"""

from sidekiq_py.config import CapsuleConfig, Config, QueueConfig
from sidekiq_py.engine.assembly import WorkerParts
from sidekiq_py.engine.fetch.wake_pipe import wake_pipe
from sidekiq_py.engine.launcher import Launcher
from sidekiq_py.engine.main_thread import run_worker
from sidekiq_py.engine.notices import Notices
from sidekiq_py.engine.ownership.owner import UnitOfWork
from sidekiq_py.engine.prefork.child import run_child
from sidekiq_py.engine.prefork.child_process import rss_kb_of
from sidekiq_py.engine.prefork.memory import settle_memory
from sidekiq_py.engine.prefork.pipes import Message, Parent
from sidekiq_py.engine.prefork.questions import Questions
from sidekiq_py.engine.prefork.scaling import Load, ScalingPolicy
from sidekiq_py.engine.prefork.sidecar import ALL, CHILDREN, PARENT, Role
from sidekiq_py.engine.prefork.supervisor import Supervisor
from sidekiq_py.engine.report.standard_streams import open_missing_streams
from sidekiq_py.engine.upkeep.process_end import end_process_pools
from sidekiq_py.engine.upkeep.thread_limits import explaining_thread_limits
from sidekiq_py.errors import PoisonPillError
from sidekiq_py.hooks import Hooks
from sidekiq_py.program import hooks, server_middleware, settings
from sidekiq_py.redis_access.reads.in_flight_counts import jobs as jobs_in_flight
from sidekiq_py.registry import Registry, registry

__all__ = (
    "ALL", "CHILDREN", "PARENT", "CapsuleConfig", "Config", "Hooks", "Launcher", "Load", "Message", "Notices",
    "Parent", "PoisonPillError", "Questions", "QueueConfig", "Registry", "Role", "ScalingPolicy", "Supervisor",
    "UnitOfWork", "WorkerParts", "end_process_pools", "explaining_thread_limits", "hooks", "jobs_in_flight",
    "open_missing_streams", "registry", "rss_kb_of", "run_child", "run_worker", "server_middleware", "settings",
    "settle_memory", "wake_pipe",
)  # fmt: skip

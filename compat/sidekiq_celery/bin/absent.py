"""Commands of Celery's that are not known here, and what to do instead."""

from typing import Any

import click

__all__ = ("Commands",)

_INSTEAD = {
    "multi": "let systemd, a container or another supervisor start each worker by `sidekiq-celery -A proj worker`",
    "shell": "start python and import the app",
    "list": "queues are shown by `sidekiq-py queues`",
    "graph": "results draw themselves: result.graph.to_dot(file)",
    "amqp": "queues are Redis lists: `sidekiq-py queues`, or redis-cli",
    "migrate": "messages are moved by `sidekiq-celery bridge`",
    "upgrade": "old names of settings are read as they are",
    "flower": "Flower needs the real Celery; install both in an environment of their own, and run there "
    "`celery --broker=redis://… flower`",
    "logtool": "read the log by the tools that you have for others",
}


class Commands(click.Group):
    """A group that says of an absent command what to do instead."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        instead = _INSTEAD.get(args[0]) if args else None
        if instead is not None and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"there is no command {args[0]} here: {instead}")
        return super().resolve_command(ctx, args)

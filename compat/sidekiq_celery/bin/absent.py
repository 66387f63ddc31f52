"""Celery commands that are not available here, each with an alternative."""

from typing import Any

import click

__all__ = ("Commands",)

_INSTEAD = {
    "multi": "have systemd, a container or another supervisor start each worker with `sidekiq-celery -A proj worker`",
    "shell": "start python and import the app",
    "list": "use `sidekiq-py queues`",
    "graph": "call result.graph.to_dot(file) in Python",
    "amqp": "queues are Redis lists; use `sidekiq-py queues` or redis-cli",
    "migrate": "use `sidekiq-celery bridge`",
    "upgrade": "you do not need it, as old names of settings still work",
    "flower": "Flower needs the real Celery; install both in an environment of their own, and run there "
    "`celery --broker=redis://… flower`",
    "logtool": "use any other tool for log files",
}


class Commands(click.Group):
    """A command group that names an alternative for a missing command."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        instead = _INSTEAD.get(args[0]) if args else None
        if instead is not None and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"there is no command {args[0]!r} here; {instead}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke as click does. If `-A` is given after the command, as before Celery 5, say where it goes."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name not in ("-A", "--app") or error.ctx is None:
                raise
            command = error.ctx.info_name
            error.ctx.fail(f"{error.option_name} goes before the command: sidekiq-celery -A proj {command}")

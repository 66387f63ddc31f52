"""The option `--version`."""

import click

import sidekiq_py


def show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Print the release and exit."""
    if not wanted or ctx.resilient_parsing:
        return
    click.echo(f"sidekiq-py {sidekiq_py.__version__}")
    ctx.exit()

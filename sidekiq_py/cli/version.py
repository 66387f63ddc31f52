"""Which release this is."""

import click


def show_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """Print which release this is, and exit."""
    if not wanted or ctx.resilient_parsing:
        return
    click.echo(package_version())
    ctx.exit()


def package_version() -> str:
    """The package and its release: `sidekiq-py 0.1.0`."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"sidekiq-py {version('sidekiq-py')}"
    except PackageNotFoundError:
        return "sidekiq-py, from a source tree that is not installed"

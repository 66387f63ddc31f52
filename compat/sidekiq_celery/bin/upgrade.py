"""
Editors import `settings` from here into programs that have no use for it. There is nothing to upgrade: old names of
settings still work.
"""

import click

__all__ = ("settings",)


@click.command()
def settings() -> None:
    """Refuse, with the reason."""
    raise click.UsageError("you do not need this, as old names of settings still work")

"""`sidekiq-py completion`: prints the script that makes a shell complete commands, options and queue names."""

import os
from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_SIDEKIQ_PY_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """
    Print the completion script for SHELL; by default for the shell in $SHELL.

    \b
    bash: put in ~/.bashrc                       eval "$(sidekiq-py completion bash)"
    zsh:  put in ~/.zshrc                        eval "$(sidekiq-py completion zsh)"
    fish: in ~/.config/fish/config.fish          sidekiq-py completion fish | source
    """
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    kind = get_completion_class(name)
    if kind is None:
        raise click.UsageError(f"no completion for the shell {name!r}; name one of {', '.join(_SHELLS)}")
    program = ctx.find_root().info_name or "sidekiq-py"
    click.echo(kind(ctx.find_root().command, {}, program, _VARIABLE).source())

"""`sidekiq-py ruby-support`: prints the Ruby file that a Ruby application needs to use batches and other extensions."""

from importlib.metadata import version
from pathlib import Path

import click

from sidekiq_py.program import extensions


@click.command("ruby-support")
def ruby_support() -> None:
    """
    Print the Ruby file that lets Ruby jobs and programs use batches and other extensions.

    \b
    With Rails: sidekiq-py ruby-support > config/initializers/sidekiq_py.rb
    Without it: sidekiq-py ruby-support > sidekiq_py.rb
                and require it in the file that `sidekiq -r` loads
    """
    click.echo(text(), nl=False)


def text() -> str:
    """The file's content: a common head, then the part of each extension."""
    extensions.load_installed()
    head = (Path(__file__).parent / "ruby_support.rb").read_text("utf-8").replace("@@version@@", version("sidekiq_py"))
    parts = [code for extension in extensions if (code := extension.ruby_code())]
    # Ruby warns of this comment anywhere but on the first line.
    return "\n".join([head, *(code.removeprefix("# frozen_string_literal: true\n\n") for code in parts)])

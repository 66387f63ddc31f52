"""`sidekiq-celery ruby-steps`: what a Ruby application needs for its jobs to be steps of workflows."""

from importlib.resources import files

import click

__all__ = ("ruby_steps",)


@click.command("ruby-steps")
def ruby_steps() -> None:
    """
    Print the Ruby file that lets Ruby jobs be steps of workflows.

    \b
    Rails:      sidekiq-celery ruby-steps > config/initializers/sidekiq_celery_steps.rb
    Without it: sidekiq-celery ruby-steps > sidekiq_celery_steps.rb
                and require it in the file that `sidekiq -r` loads
    """
    click.echo(files("sidekiq_celery").joinpath("ruby", "sidekiq_celery_steps.rb").read_text("utf-8"), nl=False)

"""`sidekiq-celery ruby-steps`: prints the file that a Ruby application needs for its jobs to be steps of workflows."""

import click

from sidekiq_celery._workflow.ruby_steps import ruby_file


@click.command("ruby-steps")
def ruby_steps() -> None:
    """
    Print the Ruby file that lets Ruby jobs be steps of workflows.

    \b
    Rails:      sidekiq-celery ruby-steps > config/initializers/sidekiq_celery_steps.rb
    Without it: sidekiq-celery ruby-steps > sidekiq_celery_steps.rb
                and require it in the file that `sidekiq -r` loads
    """
    click.echo(ruby_file(), nl=False)

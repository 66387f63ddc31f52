"""
Signatures of jobs that are implemented in Ruby, as steps of workflows.

    chain(fetch.s(1), ruby_job("Billing::Emailer", queue="mailers").s(), log.s())

Their payloads bear `celery.report`: where the result goes, and which job goes on with the workflow. On Ruby's side
`ruby/sidekiq_celery_steps.rb` reads it, which `sidekiq-celery ruby-steps` prints.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from sidekiq_celery._wire.ruby_headers import RUBY_OPTION
from sidekiq_celery._workflow.signature import Signature

__all__ = ("ruby_file", "ruby_signature")


def ruby_file() -> str:
    """What Ruby needs for it."""
    return files("sidekiq_celery").joinpath("ruby", "sidekiq_celery_steps.rb").read_text("utf-8")


def ruby_signature(
    class_name: str, options: Mapping[str, Any], args: Any = (), *, immutable: bool = False, app: Any = None
) -> Any:
    """
    The call of a Ruby job.

    Args:
        class_name: Ruby's constant.
        options: What the Ruby class has in its `sidekiq_options`.
    """
    own = dict(options)
    queue = own.pop("queue", None) or "default"
    return Signature(class_name, args, options={"queue": queue, RUBY_OPTION: own}, immutable=immutable, app=app)

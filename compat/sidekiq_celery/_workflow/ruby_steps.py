"""
Signatures for jobs that are implemented in Ruby, as workflow steps.

    chain(fetch.s(1), ruby_job("Billing::Emailer", queue="mailers").s(), log.s())

Their payloads carry `celery.report`: where to write the result, and which job continues the workflow. In Ruby,
`ruby/sidekiq_celery_steps.rb` reads it; `sidekiq-celery ruby-steps` prints that file.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from sidekiq_celery._wire.ruby_headers import RUBY_OPTION
from sidekiq_celery._workflow.signature import Signature
from sidekiq_py.pushing import program


def ruby_file() -> str:
    """The text of the file that Ruby needs for these steps."""
    return files("sidekiq_celery").joinpath("ruby", "sidekiq_celery_steps.rb").read_text("utf-8")


def ruby_signature(class_name: str, options: Mapping[str, Any], args: Any = (), *, immutable: bool = False) -> Any:
    """
    A signature that calls a Ruby job.

    Args:
        class_name: The name of the Ruby class.
        options: The `sidekiq_options` of the Ruby class.
    """
    own = dict(options)
    queue = own.pop("queue", None) or program.default_job_options.get("queue", "default")
    return Signature(class_name, args, options={"queue": queue, RUBY_OPTION: own}, immutable=immutable)

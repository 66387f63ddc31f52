"""
The Celery surface as an extension of sidekiq_py, which so has no need to name it.

Found by its entry point wherever the package is installed, by each worker and command: it imports next to nothing.
Tasks themselves are declared jobs (`_run.definition`), which decide about their own ends; they need no hook.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any, ClassVar

from sidekiq_py.extension import Extension

__all__ = ("CeleryExtension",)


class CeleryExtension(Extension):
    """Ruby jobs as steps of workflows, and what Ruby needs for it."""

    name = "celery"
    ruby_job_attributes: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "s": lambda job: partial(_signature, job.definition, immutable=False),
        "si": lambda job: partial(_signature, job.definition, immutable=True),
    }

    def ruby_code(self) -> str:
        """What `sidekiq-celery ruby-steps` prints."""
        return files("sidekiq_celery").joinpath("ruby", "sidekiq_celery_steps.rb").read_text("utf-8")


def _signature(definition: Any, *args: Any, immutable: bool) -> Any:
    from sidekiq_celery._workflow.ruby_steps import ruby_signature  # a worker without workflows needs none of it

    return ruby_signature(definition.name, definition.options, args, immutable=immutable)

"""
The Celery surface as an extension of sidekiq_py, which so has no need to name it.

Found by its entry point wherever the package is installed, by each worker and command: it imports next to nothing.
Tasks themselves are declared jobs (`_run.definition`), which decide about their own ends; they need no hook.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from sidekiq_py.extension import Extension

__all__ = ("CeleryExtension",)


class CeleryExtension(Extension):
    """Ruby jobs as steps of workflows, what Ruby needs for it, the entries of beats, and pages of the dashboard."""

    name = "celery"
    ruby_job_attributes: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "s": lambda job: partial(_signature, job.definition, immutable=False),
        "si": lambda job: partial(_signature, job.definition, immutable=True),
    }

    def entries(self, listing: str) -> Iterable[Any]:
        """The entries of beats, in `sidekiq-py cron list`."""
        if listing != "cron":
            return ()
        from sidekiq_celery._beat.listing import entries  # as below
        from sidekiq_py import Client

        return entries(Client().pool)

    def pages(self) -> Sequence[Any]:
        """Tasks, workers, rate limits and workflows, in the dashboard."""
        from sidekiq_celery._dashboard.pages import pages  # needs the extra `web`

        return pages()

    def ruby_code(self) -> str:
        """What `sidekiq-celery ruby-steps` prints."""
        from sidekiq_celery._workflow.ruby_steps import ruby_file  # as below

        return ruby_file()


def _signature(definition: Any, *args: Any, immutable: bool) -> Any:
    from sidekiq_celery._workflow.ruby_steps import ruby_signature  # a worker without workflows needs none of it

    return ruby_signature(definition.name, definition.options, args, immutable=immutable)

"""
The Celery API as an extension of sidekiq_py, so that sidekiq_py does not need to know about it.

Every worker and command finds it by its entry point, wherever the package is installed, so it imports next to nothing.
Tasks themselves are declared jobs (`_run.definition`), which decide their own outcomes; they need no hook.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from sidekiq_py.extension import Extension


class CeleryExtension(Extension):
    """Adds Ruby jobs as workflow steps, the code that Ruby needs for them, beat entries, and dashboard pages."""

    name = "celery"
    ruby_job_attributes: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "s": lambda job: partial(_signature, job.definition, immutable=False),
        "si": lambda job: partial(_signature, job.definition, immutable=True),
    }

    def entries(self, listing: str) -> Iterable[Any]:
        """The beat entries that `sidekiq-py cron list` shows."""
        if listing != "cron":
            return ()
        from sidekiq_celery._beat.listing import entries  # as below
        from sidekiq_py.pushing import current

        return entries(current().pool)

    def pages(self) -> Sequence[Any]:
        """The dashboard's pages for tasks, workers, rate limits and workflows."""
        from sidekiq_celery._dashboard.pages import pages  # needs the extra `web`

        return pages()

    def ruby_code(self) -> str:
        """The Ruby code that `sidekiq-celery ruby-steps` prints."""
        from sidekiq_celery._workflow.ruby_steps import ruby_file  # as below

        return ruby_file()


def _signature(definition: Any, *args: Any, immutable: bool) -> Any:
    from sidekiq_celery._workflow.ruby_steps import ruby_signature  # a worker without workflows does not need it

    return ruby_signature(definition.name, definition.options, args, immutable=immutable)

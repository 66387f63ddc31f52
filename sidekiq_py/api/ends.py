"""The commands that extensions add when a person takes a job out of Redis."""

from sidekiq_py import program
from sidekiq_py.api.job_record import JobRecord
from sidekiq_py.clock import now_seconds
from sidekiq_py.extension import EndKind, JobEnd
from sidekiq_py.redis_access.job_path.settle_script import Effect
from sidekiq_py.wire.dialect import Dialect


def ends_of_extensions(job: JobRecord, kind: EndKind, dialect: Dialect) -> tuple[Effect, ...]:
    """
    The commands to add to the script that takes *job* out; none if no extension is concerned with the job.

    Raises:
        ExtensionError: An extension failed; the job stays where it is.
    """
    if not is_handled(job):
        return ()
    queue = job.queue or ""
    return program.extensions.end_effects(JobEnd(kind, job.item, job.value, queue, now_seconds(), dialect))


def is_handled(job: JobRecord) -> bool:
    """True if an extension acts when *job* ends."""
    program.extensions.load_installed()
    return program.extensions.handles(job.item)

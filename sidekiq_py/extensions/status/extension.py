"""The hooks that write a job's status at each stage."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from sidekiq_py import program
from sidekiq_py.clock import now_seconds
from sidekiq_py.extension import Effect, EndKind, Extension, JobEnd, Payload, PushSlice, Verb
from sidekiq_py.extensions.status import keys
from sidekiq_py.extensions.status.progress import Run, Runs, aprogress, progress
from sidekiq_py.middleware.chain import ServerMiddleware

OPTION = "status"

_STATUS: Mapping[EndKind, str] = {
    "success": "complete",
    "retry": "retrying",
    "dead": "failed",
    "discarded": "failed",
    "dropped": "failed",
    "interrupted": "interrupted",
    "invalidated": "stopped",
    "deleted": "stopped",
    "stopped": "stopped",
}


class StatusExtension(Extension):
    """The status of jobs that are declared with `status=True`, and of those that call `progress()`."""

    name = "status"
    phase = "count"
    # No text: without the extension, only the status itself is missing.
    payload_keys: ClassVar[Mapping[str, str]] = {OPTION: ""}
    push_options: ClassVar[Sequence[str]] = (OPTION,)
    verbs: ClassVar[Sequence[Verb]] = (keys.WRITE, keys.END)
    api_names: ClassVar[Mapping[str, str]] = {"JobStatus": "sidekiq_py.extensions.status.status"}

    def __init__(self) -> None:
        self.runs = Runs(lambda payload: program.extensions.handle_run(payload, self))
        self.job_attributes = {"progress": partial(progress, self.runs), "aprogress": partial(aprogress, self.runs)}

    def push(self, jobs: PushSlice) -> None:
        """Write `queued`, for jobs that are declared with a status."""
        if jobs.options.get(OPTION) is not True:
            return
        from sidekiq_py.api.job_record import JobRecord  # loads all of the data API

        now = now_seconds()
        for job in jobs:
            record = JobRecord(job.raw)
            if record.get(OPTION) is True and not job.is_stopped:
                jobs.write(keys.write(job.jid, now, keys.first_fields(record, jobs.dialect, now)))

    def around(self) -> ServerMiddleware | None:
        """Write `working` before the job starts. A failure to write it does not fail the job."""
        return _Working(self.runs)

    def end(self, end: JobEnd) -> Iterable[Effect]:
        """Write the outcome in the script that settles the job, along with progress that was not written yet."""
        left = self.runs.leave(end.payload)
        if left is None and end.payload.get(OPTION) is not True:
            return ()
        run, fields = left or (Run(end.payload, has_status=True, audiences=()), {})
        if run.has_status:
            status = "stopped" if run.was_stopped and end.kind == "success" else _STATUS[end.kind]
            fields["status"] = status
            if status != "retrying":
                fields["ended_at"] = int(end.now)
        return run.commands(fields, end.now, verb=keys.END)

    def forget_run(self, payload: Payload) -> None:
        """Drop progress that was not written yet: it is no longer needed, or the next run reports it again."""
        self.runs.forget(payload)


class _Working:
    """The middleware. For an `async def` job, `acall` writes in a thread."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def __call__(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        if payload.get(OPTION) is True:
            self._runs.begin(payload)
        return call_next()

    async def acall(self, job: Any, payload: dict[str, Any], queue: str, call_next: Callable[[], Any]) -> Any:
        if payload.get(OPTION) is True:
            await asyncio.to_thread(self._runs.begin, payload)
        return await call_next()

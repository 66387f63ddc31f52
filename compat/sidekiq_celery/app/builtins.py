"""The tasks that every app has, and the kinds of signatures that they run."""

from functools import partial
from typing import Any

from sidekiq_celery._state import connect_on_app_finalize
from sidekiq_celery._workflow import kinds
from sidekiq_celery.contract import App

__all__ = ()


@kinds.load_by
def _load_canvas() -> None:
    from sidekiq_celery import canvas  # noqa: F401 - each kind registers itself


@connect_on_app_finalize
def add_backend_cleanup_task(app: App) -> Any:
    """Delete expired results, in backends where they do not expire by themselves."""

    @app.task(name="celery.backend_cleanup", shared=False, lazy=False)
    def backend_cleanup() -> None:
        app.backend.cleanup()

    return backend_cleanup


@connect_on_app_finalize
def add_workflow_tasks(app: App) -> None:
    """Add the tasks that signatures and workflows run."""
    # It loads the Redis client.
    from sidekiq_celery._workflow import workflow_tasks

    add = partial(app.task, shared=False, lazy=False)

    # A task that replaces itself with a group uses this to collect the results.
    @add(bind=True, name="celery.accumulate")
    def accumulate(self: Any, *args: Any, **kwargs: Any) -> Any:
        index = kwargs.get("index")
        return args if index is None else args[index]

    # `chain(…)` as a dict names a task, but no one sends it.
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("a canvas is not a real task; call the signature")

    for name in ("celery.chain", "celery.group", "celery.chord"):
        add(name=name)(refuse)

    workflow_tasks.add_tasks(app)

    def called(task: Any) -> Any:
        from sidekiq_celery.canvas import signature

        return signature(task, app=app).type

    @add(name="celery.map")
    def xmap(task: Any, it: Any) -> list[Any]:
        call = called(task)
        return [call(item) for item in it]

    @add(name="celery.starmap")
    def xstarmap(task: Any, it: Any) -> list[Any]:
        call = called(task)
        return [call(*item) for item in it]

    @add(name="celery.chunks")
    def chunks(task: Any, it: Any, n: int) -> Any:
        from sidekiq_celery.canvas import chunks as _chunks

        return _chunks.apply_chunks(task, it, n)

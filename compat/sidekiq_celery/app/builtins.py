"""The tasks that every app has, and the kinds of signatures that they run."""

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
def add_accumulate_task(app: App) -> Any:
    """Return the arguments. A task that replaces itself with a group uses this to collect the results."""

    @app.task(bind=True, name="celery.accumulate", shared=False, lazy=False)
    def accumulate(self: Any, *args: Any, **kwargs: Any) -> Any:
        index = kwargs.get("index")
        return args if index is None else args[index]

    return accumulate


@connect_on_app_finalize
def add_canvas_names(app: App) -> None:
    """Register the names of canvas signatures: `chain(…)` as a dict names a task, but no one sends it."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("a canvas is not a real task; call the signature")

    for name in ("celery.chain", "celery.group", "celery.chord"):
        app.task(name=name, shared=False, lazy=False)(refuse)


@connect_on_app_finalize
def add_workflow_tasks(app: App) -> None:
    """Add the tasks that move workflows on. The import is here because it loads the Redis client."""
    from sidekiq_celery._workflow import workflow_tasks

    workflow_tasks.add_start_task(app)
    workflow_tasks.add_fail_task(app)
    workflow_tasks.add_ended_task(app)


@connect_on_app_finalize
def add_map_task(app: App) -> Any:
    """Call a task with each of several arguments."""

    @app.task(name="celery.map", shared=False, lazy=False)
    def xmap(task: Any, it: Any) -> list[Any]:
        from sidekiq_celery.canvas import signature

        called = signature(task, app=app).type
        return [called(item) for item in it]

    return xmap


@connect_on_app_finalize
def add_starmap_task(app: App) -> Any:
    """Call a task with each of several lists of arguments."""

    @app.task(name="celery.starmap", shared=False, lazy=False)
    def xstarmap(task: Any, it: Any) -> list[Any]:
        from sidekiq_celery.canvas import signature

        called = signature(task, app=app).type
        return [called(*item) for item in it]

    return xstarmap


@connect_on_app_finalize
def add_chunk_task(app: App) -> Any:
    """Call a task with each list of arguments in one chunk."""

    @app.task(name="celery.chunks", shared=False, lazy=False)
    def chunks(task: Any, it: Any, n: int) -> Any:
        from sidekiq_celery.canvas import chunks as _chunks

        return _chunks.apply_chunks(task, it, n)

    return chunks

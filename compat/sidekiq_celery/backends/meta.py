"""What is stored of a task: the fields, in Celery's order."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidekiq_celery.backends.values import Values

__all__ = ("result_meta",)


def result_meta(
    backend: "Values",
    result: Any,
    state: str,
    traceback: Any,
    request: Any,
    *,
    format_date: bool = True,
    encode: bool = False,
) -> dict[str, Any]:
    """
    What is stored.

    Args:
        result: In its stored form.
        format_date: The time as ISO 8601, with the app's time zone; else a datetime.
        encode: Arguments as bytes, for backends that have a field for them.
    """
    app = backend.app
    date_done: Any = app.now() if state in backend.READY_STATES else None
    meta: dict[str, Any] = {
        "status": state,
        "result": result,
        "traceback": traceback,
        "children": backend.current_task_children(request),
        "date_done": date_done.isoformat() if date_done is not None and format_date else date_done,
    }
    if not request:
        return meta
    group_id, parent_id = getattr(request, "group", None), getattr(request, "parent_id", None)
    if group_id:
        meta["group_id"] = group_id
    if parent_id:
        meta["parent_id"] = parent_id
    if app.conf["result_extended"]:
        meta |= _of_the_call(backend, request, encode=encode)
    return meta


def _of_the_call(backend: "Values", request: Any, *, encode: bool) -> dict[str, Any]:
    delivery = getattr(request, "delivery_info", None)
    fields: dict[str, Any] = {
        "name": getattr(request, "task", None),
        "args": getattr(request, "args", None),
        "kwargs": getattr(request, "kwargs", None),
        "worker": getattr(request, "hostname", None),
        "retries": getattr(request, "retries", None),
        "queue": delivery.get("routing_key") if delivery else None,
    }
    stamps = getattr(request, "stamps", None)
    if stamps:
        wanted = request.stamped_headers
        fields["stamped_headers"] = wanted
        fields |= {key: value for key, value in stamps.items() if key in (wanted or ())}
    if encode:
        for name in ("args", "kwargs"):
            payload = backend.encode(fields[name])
            fields[name] = payload.encode() if isinstance(payload, str) else payload
    return fields

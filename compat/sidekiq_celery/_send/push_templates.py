"""The bytes of a task's pushes, all but arguments, id, task headers and times made once."""

from collections.abc import Mapping
from time import time
from typing import TYPE_CHECKING, Any

from sidekiq_celery._wire.payload import KEY
from sidekiq_py.errors import ArgumentTypeError, ArgumentValueError
from sidekiq_py.extension import Outgoing
from sidekiq_py.payloads import Dialect, ItemTemplate, dump_args, dumps
from sidekiq_py.pushing import program

if TYPE_CHECKING:
    from sidekiq_py import Client

__all__ = ("Template", "task_headers_json", "template_of", "templated")

_KEYS = frozenset({"queue", "class", "args", "jid", "retry", KEY})
# A program that makes up names of queues must not fill the memory.
_MOST = 100


class Template:
    """
    Of the jobs of one task in one queue.

    Args:
        item: As it is pushed, one of them.
        dialect: The release to follow.
    """

    __slots__ = ("_render", "default_options", "dialect", "item", "queue")

    def __init__(self, item: Mapping[str, Any], dialect: Dialect, default_options: Mapping[str, Any]) -> None:
        self.item = {key: value for key, value in item.items() if key != KEY}
        self.queue: str = item["queue"]
        self.dialect = dialect
        self.default_options = default_options
        name = item["class"].__sidekiq_job__.name
        self._render = ItemTemplate({**item, "class": name, "args": []}, default_options, dialect, KEY).render

    @staticmethod
    def takes(item: Mapping[str, Any]) -> bool:
        """Whether *item* is a declared task's that goes out at once, with nothing else than these keys."""
        return item.keys() <= _KEYS and not isinstance(item["class"], str)

    def job(self, task_id: str, arguments: list[Any], task_headers: bytes) -> Outgoing:
        """
        A job, as it is to be sent now.

        Args:
            arguments: As they stand in `args`.
            task_headers: JSON of the object `celery`; empty where there is none.

        Raises:
            ArgumentTypeError: An argument is not JSON.
            ArgumentValueError: An argument is not JSON.
        """
        dialect = self.dialect
        args_json = dump_args(arguments, dialect.float_text)
        return Outgoing(
            task_id, self.queue, None, self._render(args_json, task_id, task_headers, dialect.stamp(time()))
        )


def task_headers_json(task_headers: Mapping[str, Any], template: Template) -> bytes:
    """
    The object `celery` as it is written.

    Raises:
        ArgumentTypeError: It is not JSON.
        ArgumentValueError: It is not JSON.
    """
    return dumps(task_headers, template.dialect.float_text)


def template_of(client: "Client", task: Any, item: Mapping[str, Any]) -> Template:
    """The template for *item*, made for what the client follows now."""
    dialect = client.detection.dialect(time())
    defaults = program.default_job_options
    templates: dict[Any, Template] = task.__dict__.setdefault("_templates", {})
    retry = item["retry"]
    # True and 1 are the same key, and not the same JSON.
    key = (item["queue"], retry is True, retry)
    known = templates.get(key)
    if known is not None and known.dialect is dialect and known.default_options is defaults:
        return known
    if len(templates) >= _MOST:
        templates.clear()
    template = templates[key] = Template(item, dialect, defaults)
    return template


def templated(client: "Client", item: Mapping[str, Any]) -> Outgoing | None:
    """The job of *item* by its task's template; None if it is to go the engine's own way."""
    if client.middleware or not program.is_plain or not Template.takes(item):
        return None
    task_id = item["jid"]
    if type(task_id) is not str or not task_id.isascii():
        return None
    task_headers = item.get(KEY)
    try:
        template = template_of(client, item["class"], item)
        text = task_headers_json(task_headers, template) if task_headers else b""
        return template.job(task_id, item["args"], text)
    except (ArgumentTypeError, ArgumentValueError):
        # The client's own way names the place of what is wrong in the whole payload.
        return None

"""Templates for the bytes of a task's pushes: only arguments, id, task headers and times are filled in per job."""

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

_KEYS = frozenset({"queue", "class", "args", "jid", "retry", KEY})
# A program that generates queue names must not fill the memory.
_MOST = 100


class Template:
    """
    A template for the jobs of one task in one queue.

    Args:
        item: One of these jobs, as it is pushed.
        dialect: The Sidekiq release whose format to write.
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
        """Whether *item* is for a declared task, is not scheduled, and has no keys besides the known ones."""
        return item.keys() <= _KEYS and not isinstance(item["class"], str)

    def job(self, task_id: str, arguments: list[Any], task_headers: bytes) -> Outgoing:
        """
        A job that is sent now.

        Args:
            arguments: The value of `args`.
            task_headers: The `celery` object as JSON; empty if there is none.

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
    Write the `celery` object as JSON.

    Raises:
        ArgumentTypeError: It cannot be written as JSON.
        ArgumentValueError: It cannot be written as JSON.
    """
    return dumps(task_headers, template.dialect.float_text)


def template_of(client: "Client", task: Any, item: Mapping[str, Any]) -> Template:
    """The template for *item*, for the release whose format the client writes now."""
    dialect = client.detection.dialect(time())
    defaults = program.default_job_options
    templates: dict[Any, Template] = task.__dict__.setdefault("_templates", {})
    retry = item["retry"]
    # True and 1 are the same dict key, but not the same JSON.
    key = (item["queue"], retry is True, retry)
    known = templates.get(key)
    if known is not None and known.dialect is dialect and known.default_options is defaults:
        return known
    if len(templates) >= _MOST:
        templates.clear()
    template = templates[key] = Template(item, dialect, defaults)
    return template


def templated(client: "Client", item: Mapping[str, Any]) -> Outgoing | None:
    """The job for *item*, from its task's template. Returns None if the client's own path is needed."""
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
        # The client's own path reports where in the payload the error is.
        return None

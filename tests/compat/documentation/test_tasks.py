"""Celery's guide "Tasks", walked through with the import changed."""

import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import redis
from sidekiq_celery import Celery, Task
from sidekiq_celery.exceptions import Reject, Retry
from sidekiq_celery.signals import after_setup_logger, setup_logging

from tests.compat.documentation.conftest import PROJECT, WAIT_SECONDS
from tests.support.waiting import eventually
from tests.support.worker_process import SidekiqProcess

Noted = Callable[..., list[str]]


class Marked(Task):
    """A base class."""

    mark = 1


def test_decorators_may_be_combined() -> None:
    """Section "Basics": the task's is the outermost one."""
    app = Celery("tasks", set_as_current=False)

    def doubling(function: Callable[..., int]) -> Callable[..., int]:
        def doubled(*args: int) -> int:
            return 2 * function(*args)

        doubled.__name__, doubled.__module__ = function.__name__, function.__module__
        return doubled

    @app.task(serializer="json")
    @doubling
    def add(x: int, y: int) -> int:
        return x + y

    assert (add(1, 2), add.name) == (6, f"{__name__}.add")


def test_a_bound_task_knows_its_request(tasks: ModuleType) -> None:
    """Sections "Bound tasks" and "Task Request"."""
    result = tasks.dump_context.apply_async((1,), {"y": 2})

    context = result.get(timeout=WAIT_SECONDS)
    assert (context["id"], context["args"], context["kwargs"]) == (result.id, [1], {"y": 2})
    assert (context["retries"], context["queue"], context["called_directly"]) == (0, "celery", False)
    assert context["name"] == f"{PROJECT}.tasks.dump_context"
    assert context["hostname"].startswith("celery@")


def test_hooks_of_a_base_class(tasks: ModuleType, noted: Noted) -> None:
    """Sections "Task inheritance" and "Handlers"."""
    assert tasks.divide.delay(4, 2).get(timeout=WAIT_SECONDS) == 2
    assert noted("hooks", 3) == ["start [4, 2]", "success 2.0", "after SUCCESS"]

    assert isinstance(tasks.divide.delay(4, 0).get(timeout=WAIT_SECONDS, propagate=False), ZeroDivisionError)
    assert noted("hooks", 3) == ["start [4, 0]", "failure ZeroDivisionError('division by zero')", "after FAILURE"]


def test_names_are_given_or_made() -> None:
    """Section "Names", and "Changing the automatic naming behavior"."""

    class Shorter(Celery):
        def gen_task_name(self, name: str, module: str) -> str:
            return super().gen_task_name(name, module.rsplit(".", 1)[0])

    app, shorter = Celery("tasks", set_as_current=False), Shorter("main", set_as_current=False)

    @app.task(name="sum-of-two-numbers")
    def add(x: int, y: int) -> int:
        return x + y

    @shorter.task
    def sub(x: int, y: int) -> int:
        return x - y

    assert add.name == "sum-of-two-numbers"
    assert sub.name == f"{__name__.rsplit('.', 1)[0]}.sub"


def test_a_task_writes_to_its_logger(tasks: ModuleType, guide_worker: SidekiqProcess) -> None:
    """Section "Logging": by `get_task_logger`, or by what it prints; the line bears its name and id."""
    result = tasks.logs.delay(7)

    for text in ("logged 7", "printed 7"):
        assert eventually(lambda text=text: f"{text}" in guide_worker.log, within_seconds=WAIT_SECONDS)
    [line] = [line for line in guide_worker.log.splitlines() if line.endswith("logged 7")]
    assert f"{PROJECT}.tasks.logs[{result.id}]" in line


def test_the_log_s_signals_take_receivers() -> None:
    """Section "Logging"."""

    def listen(**kwargs: Any) -> None:
        logging.getLogger("celery").propagate = True

    for signal in (after_setup_logger, setup_logging):
        signal.connect(listen)
        assert signal.disconnect(listen)


def test_arguments_are_checked_by_the_caller(tasks: ModuleType) -> None:
    """Section "Argument checking": unless `typing=False`; then the worker finds out."""
    with pytest.raises(TypeError):
        tasks.add.delay(8)

    assert isinstance(tasks.unchecked.delay(8).get(timeout=WAIT_SECONDS, propagate=False), TypeError)


def test_arguments_may_be_hidden(tasks: ModuleType, guide_worker: SidekiqProcess) -> None:
    """Section "Hiding sensitive information in arguments": what a worker logs of a task does not show them."""
    secret = "4111-1111"

    result = tasks.store.apply_async((secret, "hidden"), argsrepr="('<secret>', 'hidden')")

    for text in ("received", "succeeded"):
        assert eventually(lambda text=text: f"[{result.id}] {text}" in guide_worker.log, within_seconds=WAIT_SECONDS)
    assert secret not in guide_worker.log


def test_a_task_tries_again(tasks: ModuleType) -> None:
    """Section "Retrying", with a delay of the call instead of the task's."""
    result = tasks.retried.delay(3)

    assert result.get(timeout=WAIT_SECONDS) == 3


def test_a_retry_without_a_worker_raises_the_error(proj: ModuleType) -> None:
    """Section "Retrying": a task that is called as a function has nobody to run it again."""
    with pytest.raises(ConnectionError):
        proj.retried(3)


def test_known_errors_are_tried_again_by_themselves(tasks: ModuleType, noted: Noted) -> None:
    """Section "Automatic retry for known exceptions", with `retry_kwargs`: the last error is the result."""
    result = tasks.retried_by_itself.delay()

    with pytest.raises(ConnectionError, match="never"):
        result.get(timeout=WAIT_SECONDS)
    assert noted("tries", 2) == ["0", "1"]


def test_delays_double(tasks: ModuleType, guide_worker: SidekiqProcess) -> None:
    """Section "Automatic retry": `retry_backoff`, of a base class: a second, then two."""
    result = tasks.backs_off.delay()

    assert isinstance(result.get(timeout=WAIT_SECONDS, propagate=False), TypeError)
    for seconds in (1, 2):
        told = f"[{result.id}] retry: Retry in {seconds}s"
        assert eventually(lambda told=told: told in guide_worker.log, within_seconds=WAIT_SECONDS)


def test_models_validate_arguments(tasks: ModuleType) -> None:
    """Section "Argument validation with Pydantic": a model or a dict, or nothing at all."""
    for order in (tasks.Order(value=1), {"value": 1}):
        assert tasks.validated.delay(order).get(timeout=WAIT_SECONDS) == {"value": "example: 1"}
    assert tasks.validated.delay().get(timeout=WAIT_SECONDS) is None


def test_expected_errors_are_no_errors_of_the_worker(tasks: ModuleType, client: redis.Redis) -> None:
    """Section "List of Options": `throws`; here such a task is not kept among the dead either."""
    result = tasks.expected.delay()

    assert isinstance(result.get(timeout=WAIT_SECONDS, propagate=False), KeyError)
    assert not [payload for payload in client.zrange("dead", 0, -1) if result.id in payload]


def test_options_of_a_task_are_attributes() -> None:
    """Section "List of Options": each can be given, and read back."""
    app = Celery("tasks", set_as_current=False)
    options: dict[str, Any] = {
        "max_retries": 7, "throws": (KeyError,), "default_retry_delay": 5, "rate_limit": "10/m", "time_limit": 9,
        "soft_time_limit": 8, "ignore_result": True, "store_errors_even_if_ignored": True, "serializer": "json",
        "compression": "gzip", "acks_late": True, "track_started": True,
    }  # fmt: skip

    @app.task(**options)
    def add(x: int, y: int) -> int:
        return x + y

    assert {name: getattr(add, name) for name in options} == options


def test_a_task_has_states_of_its_own(tasks: ModuleType) -> None:
    """Section "Custom states"."""
    seen: list[Any] = []
    result = tasks.upload_files.delay(["a", "b"])

    assert result.get(timeout=WAIT_SECONDS, on_message=seen.append) == 2
    assert tasks.upload_files(["a", "b", "c"]) == 3


def test_an_error_with_arguments_comes_back(tasks: ModuleType) -> None:
    """Section "Creating pickleable exceptions": of its own class, with its arguments."""
    with pytest.raises(tasks.HttpError) as caught:
        tasks.fetch.delay(410).get(timeout=WAIT_SECONDS)

    assert (caught.value.status_code, caught.value.body) == (410, "gone")


def test_a_task_may_set_its_state_itself(tasks: ModuleType) -> None:
    """Section "Semipredicates": `Ignore` leaves it alone."""
    assert tasks.sets_its_state.delay().get(timeout=WAIT_SECONDS) == "by hand"


def test_a_task_is_rejected_or_given_back(tasks: ModuleType, noted: Noted) -> None:
    """Section "Semipredicates": `Reject`."""
    result = tasks.rejects.delay()
    assert isinstance(result.get(timeout=WAIT_SECONDS, propagate=False), Reject)
    assert noted("rejected") == [result.id]

    assert tasks.requeues.delay().get(timeout=WAIT_SECONDS) == "received two times"


def test_a_task_may_be_a_class(tasks: ModuleType, proj: ModuleType) -> None:
    """Section "Custom task classes": with state of its own, per process."""
    assert tasks.users.delay("george", "password").get(timeout=WAIT_SECONDS) is True
    assert proj.users.name == "proj.users"


def test_a_base_class_keeps_a_connection(tasks: ModuleType) -> None:
    """Section "Custom task classes": "Per task usage"."""
    assert tasks.same_connection.delay().get(timeout=WAIT_SECONDS) is True


def test_an_app_has_a_base_class_for_all() -> None:
    """Section "Custom task classes": "App-wide usage", by a class or its name."""
    by_name = Celery("tasks", task_cls=f"{__name__}:Marked", set_as_current=False)
    by_class = Celery("tasks", task_cls=Marked, set_as_current=False)

    @by_name.task
    def one() -> None: ...

    @by_class.task
    def other() -> None: ...

    assert (one.mark, other.mark) == (1, 1)


def test_the_registry_is_a_mapping(app: Any) -> None:
    """Section "How it works"."""
    assert f"{PROJECT}.tasks.add" in app.tasks
    assert app.tasks["celery.backend_cleanup"].name == "celery.backend_cleanup"


def test_a_task_keeps_no_result(tasks: ModuleType, client: redis.Redis) -> None:
    """Section "Ignore results you don't want"."""
    result = tasks.forgets.delay()

    assert result.get() is None
    assert client.get(f"celery-task-meta-{result.id}") is None


def test_steps_follow_without_waiting(tasks: ModuleType, noted: Noted) -> None:
    """Section "Avoid launching synchronous subtasks": a chain from within a task."""
    tasks.update_page.delay("a page")

    assert noted("pages") == ["A PAGE"]


def test_a_task_that_waits_for_another_is_refused(tasks: ModuleType) -> None:
    """Section "Avoid launching synchronous subtasks": unless it says that it means it."""
    with pytest.raises(RuntimeError, match=r"result\.get"):
        tasks.waits_for_another.delay().get(timeout=WAIT_SECONDS)

    assert tasks.waits_on_purpose.delay().get(timeout=WAIT_SECONDS) == 2


def test_a_retry_is_an_exception(proj: ModuleType) -> None:
    """Section "Semipredicates": `Retry`, with when and why."""
    error = Retry("later", ValueError("x"), 10)

    assert (error.message, error.when, error.humanize()) == ("later", 10, "in 10s")

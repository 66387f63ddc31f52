"""The class form of a job."""

import pickle
import pydoc
from typing import Any

import pytest

import sidekiq_py as sidekiq
from sidekiq_py import program
from sidekiq_py.errors import ArgumentTypeError, JobDeclarationError, UnknownOptionWarning
from sidekiq_py.jobs.decorators import registry
from sidekiq_py.middleware import running
from tests.client.conftest import Pushed, masked


class HardWorker(sidekiq.Job):
    """The example of the handbook."""

    sidekiq_options = {"queue": "critical", "retry": 5}

    def perform(self, name: str, count: int) -> tuple[str | None, str, int, bool]:
        """Say what there is to know."""
        return self.jid, name, count, self.interrupted()


def test_a_class_is_declared_by_being_defined() -> None:
    """Under module and class."""
    found = registry.find("tests.jobs.test_job_class.HardWorker")

    assert found is not None
    assert found.options == {"queue": "critical", "retry": 5}


def test_a_class_is_pushed_as_in_ruby(configured: str, pushed: Pushed) -> None:
    """The class methods are Ruby's."""
    HardWorker.perform_async("bob", 5)

    [raw] = pushed.queue("critical")
    assert masked(raw) == (
        b'{"retry":5,"queue":"critical","args":["bob",5],'
        b'"class":"tests.jobs.test_job_class.HardWorker","jid":"JID","created_at":SECONDS,"enqueued_at":SECONDS}'
    )


def test_help_shows_a_class_with_the_parameters_of_its_job() -> None:
    """It reads the attributes of the base class, too, which has no job."""
    shown = pydoc.plain(pydoc.render_doc(HardWorker))

    assert "perform_async(name: str, count: int) -> str | None" in shown
    assert not hasattr(sidekiq.Job, "perform_async")


def test_a_class_may_be_named_for_ruby() -> None:
    """By a keyword or among its options."""

    class One(sidekiq.Job, name="Billing::One"):
        def perform(self) -> None: ...

    class Two(sidekiq.Job):
        sidekiq_options = {"name": "Billing::Two", "queue": "q", "timeout": 5}

        def perform(self) -> None: ...

    two = registry.find("Billing::Two")
    assert "Billing::One" in registry
    assert two is not None
    assert (two.options, two.timeout_seconds) == ({"queue": "q"}, 5.0)


def test_options_and_blocks_are_inherited() -> None:
    """As in Ruby; the child's own come after."""

    class Base(sidekiq.Job):
        sidekiq_options = {"queue": "low", "backtrace": True}

    class Parent(Base, name="Parent"):
        def perform(self) -> None: ...

    @Parent.retry_in
    def delay(count: int, error: BaseException, payload: dict[str, Any]) -> int:
        return 1

    class Child(Parent, name="Child", retry=1):
        sidekiq_options = {"queue": "high"}

    child = registry.find("Child")
    assert child is not None
    assert list(child.options.items()) == [("queue", "high"), ("backtrace", True), ("retry", 1)]
    assert child.retry_in_block is delay
    assert registry.find("Parent") is not None


def test_a_base_class_passes_on_its_options_in_either_form() -> None:
    """`class ApplicationJob(sidekiq.Job, queue="low")` is where a program puts what its jobs have in common."""

    class Base(sidekiq.Job, queue="low", retry=3, timeout=5, custom={"tenant": 7}):
        sidekiq_options = {"backtrace": True}

    class Between(Base, retry=4): ...

    class Child(Between, name="Child"):
        def perform(self) -> None: ...

    child = registry.find("Child")
    assert child is not None
    assert child.options == {"backtrace": True, "queue": "low", "retry": 4, "tenant": 7}
    assert child.timeout_seconds == 5.0


def test_a_misspelled_option_of_a_base_class_is_told() -> None:
    """Its subclasses would not have it."""
    with pytest.warns(UnknownOptionWarning, match="Base has the option 'queu'.*did you mean 'queue'"):

        class Base(sidekiq.Job, queu="low"):  # type: ignore[call-arg]
            pass


def test_a_class_without_perform_is_no_job() -> None:
    """It may be the base of some."""

    class Base(sidekiq.Job):
        pass

    with pytest.raises(JobDeclarationError, match="no `perform`"):
        Base.perform_async()  # type: ignore[arg-type]


def test_an_iterable_class_that_is_no_job_misses_its_own_method() -> None:
    """It may not define `perform`."""

    class Import(sidekiq.IterableJob):
        pass

    with pytest.raises(JobDeclarationError, match="no `each_iteration`"):
        Import.perform_async()


def test_an_iterable_class_with_items_but_no_source_of_them_hears_what_it_misses() -> None:
    """The error must not name `each_iteration`, which the class defines."""

    class Import(sidekiq.IterableJob):
        def each_iteration(self, item: int) -> None: ...

    with pytest.raises(JobDeclarationError, match="no `build_enumerator`"):
        Import.perform_async()


def test_an_inherited_time_limit_counts_beside_an_own_one() -> None:
    """The soft limit would never be reached."""

    class Base(sidekiq.Job, timeout=60):
        pass

    with pytest.raises(JobDeclarationError, match="timeout=60 and hard_timeout=5; make timeout the shorter one"):

        class Job(Base, name="Job", hard_timeout=5):
            def perform(self) -> None: ...


def test_a_class_inside_a_function_needs_a_name() -> None:
    """No other process could find it."""
    with pytest.raises(JobDeclarationError, match="inside a function"):

        class Inner(sidekiq.Job):
            def perform(self) -> None: ...


def test_each_run_has_an_instance_that_knows_its_job() -> None:
    """The jid, the payload, and whether the process is about to stop."""
    definition = registry.find("tests.jobs.test_job_class.HardWorker")
    assert definition is not None
    payload = {"class": definition.name, "args": ["bob", 5], "jid": "j"}

    result = running.run(definition, payload, "critical", program.server_middleware, lambda: True)

    assert result == ("j", "bob", 5, True)
    assert HardWorker.jid is None


def test_a_batch_id_is_handed_to_a_job_that_wants_it() -> None:
    """As in Ruby, to an attribute of that name."""

    class Batched(sidekiq.Job, name="Batched"):
        bid: str | None = None

        def perform(self) -> str | None:
            return self.bid

    definition = registry.find("Batched")
    assert definition is not None

    assert running.run(definition, {"args": [], "bid": "b"}, "default", program.server_middleware) == "b"


def test_middleware_sees_the_class_and_then_the_instance(configured: str) -> None:
    """The class on the client's side, the instance on the server's, as in Ruby."""
    seen: list[Any] = []

    def look(job: Any, payload: dict[str, Any], queue: str, call_next: Any) -> Any:
        seen.append(job)
        return call_next()

    sidekiq.client_middleware.add(look)
    sidekiq.server_middleware.add(look)

    HardWorker.perform_inline("bob", 5)

    assert seen[0] is HardWorker
    assert isinstance(seen[1], HardWorker)


def test_arguments_must_fit_perform() -> None:
    """Without self."""
    with pytest.raises(ArgumentTypeError, match="takes"):
        HardWorker.perform_async("bob")  # type: ignore[call-arg]


def test_an_async_perform_is_known_as_one() -> None:
    """The engine runs it on its loop."""

    class Async(sidekiq.Job, name="Async"):
        async def perform(self) -> None: ...

    definition = registry.find("Async")
    assert definition is not None
    assert definition.is_async


def test_every_call_of_a_handle_is_there(configured: str, pushed: Pushed) -> None:
    """Also in bulk and with other options."""
    HardWorker.perform_bulk([["a", 1], ["b", 2]])
    HardWorker.set(queue="low").perform_async("a", 1)
    HardWorker.perform_in(60, "a", 1)
    HardWorker.perform_at(4e9, "a", 1)

    assert (len(pushed.queue("critical")), len(pushed.queue("low")), len(pushed.schedule())) == (2, 1, 2)


@pytest.mark.parametrize("name", ["perform_bulk", "set", "perform_async"])
def test_methods_that_enqueue_can_be_pickled(name: str) -> None:
    """A pool of processes is given them: `processes.map(HardWorker.perform_bulk, parts)`."""
    method = getattr(HardWorker, name)

    assert pickle.loads(pickle.dumps(method)) == method


def test_options_that_a_base_class_is_given_later_are_inherited() -> None:
    """As a program may set them from its settings."""

    class Late(sidekiq.Job, retry=3):
        pass

    Late.sidekiq_options = {"queue": "low"}  # type: ignore[attr-defined]

    class Inheriting(Late, name="Inheriting"):
        def perform(self) -> None: ...

    assert Inheriting.__sidekiq_job__.options.items() >= {"queue": "low", "retry": 3}.items()  # type: ignore[attr-defined]

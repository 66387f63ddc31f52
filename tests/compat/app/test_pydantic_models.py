"""`pydantic=True`: models in arguments and results."""

import sys

import pytest
from sidekiq_celery.exceptions import ImproperlyConfigured

pydantic = pytest.importorskip("pydantic")
BaseModel, ValidationError, field_validator = pydantic.BaseModel, pydantic.ValidationError, pydantic.field_validator


class Order(BaseModel):
    """What is sent."""

    number: int
    note: str = ""


class Bill(BaseModel):
    """What comes back."""

    total: int


class Picky(BaseModel):
    """Refuses to be validated anywhere but in a worker."""

    number: int

    @field_validator("number")
    @classmethod
    def only_there(cls, value):
        raise ValueError("not here")


@pytest.fixture
def bill(app):
    """A task with a model in and a model out."""

    @app.task(pydantic=True)
    def bill(order: Order, tax: int = 0, *, extra: Order | None = None) -> Bill:
        return Bill(total=order.number + tax + (extra.number if extra else 0))

    return bill


def test_arguments_become_models_and_results_dicts(bill):
    """By the annotations; an optional model may be None."""
    assert bill({"number": 2}, 1) == {"total": 3}
    assert bill({"number": 2}, extra={"number": 5}) == {"total": 7}
    assert bill({"number": 2}, extra=None) == {"total": 2}


def test_arguments_that_do_not_fit_are_refused(bill):
    """When the task is called."""
    with pytest.raises(ValidationError):
        bill({"number": "many"})


def test_strictness_and_context_are_the_tasks(app):
    """The context also has the app and the task's name."""
    seen = []

    class Seen(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def look(cls, value, info):
            seen.append((info.context["mine"], info.context["celery_task_name"], info.context["celery_app"]))
            return value

    @app.task(pydantic=True, pydantic_strict=True, pydantic_context={"mine": 1}, name="look")
    def look(order: Seen) -> None:
        return None

    look({"number": 1})
    with pytest.raises(ValidationError):
        look({"number": "1"})

    assert seen == [(1, "look", app)]


def test_models_of_the_caller_are_dumped(bill):
    """So that they can be sent; other arguments stay as they are."""
    args, kwargs = bill._dump_pydantic_arguments((Order(number=1), 2), {"extra": Order(number=3)})

    assert args == ({"number": 1, "note": ""}, 2)
    assert kwargs == {"extra": {"number": 3, "note": ""}}


def test_calls_without_models_stay_what_they_are(bill):
    """The very same objects; also what does not fit, or is no list."""
    args, kwargs = [{"number": 1}], {"tax": 2}

    assert bill._dump_pydantic_arguments(args, kwargs) == (args, kwargs)
    assert bill._dump_pydantic_arguments(args, kwargs)[0] is args
    assert bill._dump_pydantic_arguments(None, None) == (None, None)
    assert bill._dump_pydantic_arguments("text", None) == ("text", None)
    too_many = (Order(number=1), 2, 3, 4)
    assert bill._dump_pydantic_arguments(too_many, {})[0] is too_many


def test_a_model_that_would_not_come_out_the_same_is_left_to_the_serializer(app):
    """A subclass, one that only a worker validates, and one that no annotation names."""

    class Large(Order):
        size: int = 1

    @app.task(pydantic=True)
    def take(order: Order, picky: Picky | None = None, other=None) -> None:
        return None

    large, picky = Large(number=1), Picky.model_construct(number=1)
    args, _ = take._dump_pydantic_arguments((large, picky, Order(number=2)), {})

    assert args == (large, picky, Order(number=2))


def test_a_bound_task_has_models_too(app):
    """The task itself is no argument of the call."""

    @app.task(pydantic=True, bind=True)
    def name_and_number(self, order: Order) -> str:
        return f"{self.name.rpartition('.')[2]} {order.number}"

    assert name_and_number({"number": 4}) == "name_and_number 4"
    assert name_and_number._dump_pydantic_arguments((Order(number=4),), {})[0] == ({"number": 4, "note": ""},)


def test_without_pydantic_the_task_says_so(app, monkeypatch):
    """With how to install it."""
    monkeypatch.setitem(sys.modules, "pydantic", None)
    task = app.task(pydantic=True)(lambda order: None)

    with pytest.raises(ImproperlyConfigured, match="pip install pydantic"):
        task(1)

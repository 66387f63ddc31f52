"""Which number a worker's child has."""

from sidekiq_celery.worker.child_numbers import ChildNumbers


def test_a_child_has_the_number_of_one_that_is_gone() -> None:
    """The least that is free; a child that died at once leaves its own free, too."""
    numbers = ChildNumbers()

    assert [numbers.give(pids) for pids in ([], [10], [10, 20])] == [1, 2, 3]
    assert numbers.give([20, 30]) == 1
    assert numbers.give([20, 30]) == 1
    assert numbers.give([20, 30, 40]) == 4

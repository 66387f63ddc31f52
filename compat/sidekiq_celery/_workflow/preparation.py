"""Turns a chain into the steps that are sent one after another."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from sidekiq_celery._workflow import kinds
from sidekiq_celery._workflow.chord_headers import strip_header_links
from sidekiq_celery._workflow.signature import Signature
from sidekiq_celery.utils import abstract


class Preparation(NamedTuple):
    """
    Prepares a chain's steps from last to first, because a step needs its successor's id.

    Args:
        args, kwargs: Arguments for the first step.
        clones: True to leave the chain itself unchanged.
        links_steps: True if each step calls the next one through a link.
        errbacks: Errbacks for every step.
        last_options: The options that the last step is frozen with.
        from_dict: Makes a signature from a dict.
    """

    app: Any
    args: Any
    kwargs: Any
    clones: bool
    links_steps: bool
    root_id: str | None
    errbacks: list[Any]
    last_options: dict[str, Any]
    from_dict: Callable[..., Any]

    def of(self, tasks: Any) -> tuple[list[Any], list[Any]]:
        """The steps and their results, both from last to first."""
        waiting = self._with_a_real_first(deque(tasks))
        steps: list[Any] = []
        results: list[Any] = []
        # The result whose parent will be the step before it.
        open_end: Any = None
        is_last = True
        while waiting:
            task = self._signature(waiting.pop())
            if type(task) is Signature:
                # Most steps are single tasks, which need no further checks.
                task = self._with_arguments(task, is_first=not waiting)
            else:
                task, open_end = self._composed(task, waiting, steps, results, open_end)
                if task is None:
                    continue
            result = task.freeze(**(self.last_options if is_last else {"root_id": self.root_id}))
            is_last = False
            self._connect(task, result, steps, open_end)
            steps.append(task)
            results.append(result)
            open_end = result
            if kinds.is_chord(task):
                self.app.backend.ensure_chords_allowed()
                while open_end.parent:
                    open_end = open_end.parent
        if self.clones:
            for step in steps:
                if type(step) is not Signature:
                    strip_header_links(step)
        return steps, results

    def _composed(
        self, task: Any, waiting: deque[Any], steps: list[Any], results: list[Any], open_end: Any
    ) -> tuple[Any, Any]:
        """A composed step in the form in which it is sent, or None if its members replace it; and the open end."""
        is_first = not waiting
        if kinds.is_group(task):
            task = kinds.maybe_unroll_group(task)
            if kinds.is_empty_group(task) and (waiting or steps):
                return None, open_end
        if self.clones and kinds.is_chord(task) and kinds.is_led_by_task(task.body):
            waiting.extend(task._unroll_body())
            return None, open_end
        task = self._with_arguments(task, is_first)
        if kinds.is_chain(task):
            waiting.extend(task.tasks)
            return None, open_end
        if kinds.is_group(task) and steps:
            return self._as_chord(task, steps, results, open_end)
        if kinds.is_chord(task) and kinds.ends_in_group(task.body) and steps:
            # Otherwise the whole rest of the chain would follow each member of that group.
            following, open_end = self._taken(steps, results, open_end)
            task = self._with_body(task, task.body | following)
        return task, open_end

    def _signature(self, task: Any) -> Any:
        return task if isinstance(task, abstract.CallableSignature) else self.from_dict(task, app=self.app)

    def _with_a_real_first(self, waiting: deque[Any]) -> deque[Any]:
        """Unroll leading chains and drop leading empty groups, so that the first real step gets the arguments."""
        left_out = None
        while waiting:
            head = waiting[0] = self._signature(waiting[0])
            if kinds.is_chain(head):
                waiting.popleft()
                waiting.extendleft(reversed((head.clone() if self.clones else head).tasks))
                continue
            if not kinds.is_group(head):
                break
            head = waiting[0] = kinds.maybe_unroll_group(head)
            if len(waiting) == 1 or not kinds.is_empty_group(head):
                break
            left_out = waiting.popleft()
        if left_out is not None and not waiting:
            waiting.append(left_out)
        return waiting

    def _with_arguments(self, task: Any, is_first: bool) -> Any:
        if self.clones:
            return task.clone(self.args, self.kwargs) if is_first else task.clone()
        if is_first:
            task.args = (*self.args, *task.args)
        return task

    def _as_chord(self, group: Any, steps: list[Any], results: list[Any], open_end: Any) -> tuple[Any, Any]:
        """A chord of a group and the step after it; and the open end that remains once that step is gone."""
        options = {"task_id": open_end.task_id} if hasattr(open_end, "task_id") else {}
        body, open_end = self._taken(steps, results, open_end)
        return kinds.chord_of(group, body=body, root_id=self.root_id, app=self.app, **options), open_end

    @staticmethod
    def _taken(steps: list[Any], results: list[Any], open_end: Any) -> tuple[Any, Any]:
        """The step after the current one, which becomes part of a chord; and the open end that remains without it."""
        step, result = steps.pop(), results.pop()
        node = results[-1] if results else None
        while node is not None and node.parent is not result:
            node = node.parent
        if node is not None:
            # The chord will become its parent.
            node.parent = None
            open_end = node
        return step, open_end

    def _with_body(self, chord: Any, body: Any) -> Any:
        """The same chord, including its header, with another body."""
        header_kwargs = {"kwargs": chord.kwargs.get("kwargs") or {}}
        return kinds.chord_of(
            chord.tasks, body=body, args=chord.args, kwargs=header_kwargs, app=self.app, **chord.options
        )

    def _connect(self, task: Any, result: Any, steps: list[Any], open_end: Any) -> None:
        if steps:
            if self.links_steps:
                task.link(steps[-1])
            if open_end and not open_end.parent:
                open_end.parent = result
        for errback in self.errbacks:
            task.link_error(errback)
            if kinds.is_chord(task) and task.body:
                task.body.link_error(errback)

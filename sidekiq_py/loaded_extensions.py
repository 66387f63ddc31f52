"""
The extensions of this program in the order of their phases, with one method per hook that calls it on all of them.

A program adds an extension with `sidekiq_py.use` or `configure(extensions=…)`; an installed package adds one with an
entry point in the group `sidekiq_py.extensions`. Entry points are looked up by workers, by the command line, and on
access to a public name that an extension may provide. A program that only pushes pays nothing for them.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from sidekiq_py.errors import ConfigError, ExtensionError, Shutdown
from sidekiq_py.logs import log

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from importlib.metadata import EntryPoint

    # Loaded when an extension is used; a program that only pushes does not need them.
    from sidekiq_py.extension import (
        DeadLetter,
        Drop,
        Effect,
        Extension,
        FetchedJob,
        JobEnd,
        Maintenance,
        Postpone,
        PushSlice,
        Tally,
    )
    from sidekiq_py.middleware.chain import ServerMiddleware
    from sidekiq_py.redis_access.connection.pool import Pool
    from sidekiq_py.registry import Payload

T = TypeVar("T")

GROUP = "sidekiq_py.extensions"
_OURS = ("sidekiq_py", "sidekiq_celery")

_NO_KEYS: frozenset[str] = frozenset()


class LoadedExtensions:
    """
    The extensions of one program.

    Attributes:
        keys: The payload keys of all extensions. A worker calls no hook for a job with none of them.
        handled_runs: The runs that an extension handles although the payload has none of its keys.
    """

    def __init__(self) -> None:
        self._all: tuple[Extension, ...] = ()
        self._pushers: tuple[_Pusher, ...] = ()
        self._by_key: dict[str, Extension] = {}
        self._alone: dict[str, tuple[Extension, ...]] = {}
        # The keys of the extensions that override `around`.
        self._keys_around = _NO_KEYS
        self._has_loaded = False
        # The threads that are loading the extensions of installed packages.
        self._loading: set[int] = set()
        self._changing = threading.RLock()
        self._installed: tuple[EntryPoint, ...] | None = None
        # The folders that were searched for entry points.
        self._searched: set[str] = set()
        # Maps the `id` of a run's payload to the payload and the extension that handles the run. Holding the payload
        # keeps its `id` from being reused: otherwise the next dict at that address would count as handled, too.
        self.handled_runs: dict[int, tuple[Payload, Extension]] = {}
        self.keys: frozenset[str] = _NO_KEYS

    def __iter__(self) -> "Iterator[Extension]":
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def use(self, extension: "Extension") -> "Extension":
        """
        Add an extension; it replaces one with the same name.

        Raises:
            ConfigError: It is not an extension, was written for another contract, or uses another extension's key.
        """
        from sidekiq_py.extension import check  # see above
        from sidekiq_py.redis_access.job_path.verbs import verbs

        new = check(extension)
        with self._changing:
            others = [known for known in self._all if known.name != new.name]
            for known in others:
                shared = known.payload_keys.keys() & new.payload_keys.keys()
                if shared:
                    raise ConfigError(
                        f"the extensions {known.name!r} and {new.name!r} both own the payload key {min(shared)!r}; "
                        "use one of them"
                    )
            verbs.add(new.verbs)
            self._arrange([*others, new])
        return new

    def find(self, name: str) -> "Extension | None":
        """The extension with this name, or None."""
        return next((extension for extension in self._all if extension.name == name), None)

    def clear(self) -> None:
        """Remove all extensions."""
        self._has_loaded = False
        self._arrange([])

    def load_installed(self) -> None:
        """
        Add the extensions of installed packages, once. One that cannot be loaded is logged and skipped.

        Several threads may do so at once: one that waited for another, inside an import, could wait for ever.
        """
        thread = threading.get_ident()
        # An extension's own import may ask for a public name of another one.
        if self._has_loaded or thread in self._loading:
            return
        self._loading.add(thread)
        try:
            for point in self._find_installed():
                try:
                    found = point.load()
                    extension = found() if isinstance(found, type) else found
                    with self._changing:
                        if self.find(extension.name) is None:
                            self.use(extension)
                except Exception as error:  # noqa: BLE001 — another package's mistake must not stop a worker
                    log.error("the extension %s (%s) cannot be used: %s", point.name, point.value, error)
            self._has_loaded = True
        finally:
            self._loading.discard(thread)

    def load_before_forks(self) -> None:
        """
        In the parent of child processes: look up the extensions of installed packages once for all children, and import
        our own.

        Other extensions may import the program, which a parent must not load.
        """
        for point in self._find_installed():
            if point.module.partition(".")[0] in _OURS:
                # If it cannot be imported, each child reports the reason.
                with suppress(Exception):
                    import_module(point.module)

    def look_again(self) -> None:
        """In a parent whose children will run new code: search again, because installed packages may have changed."""
        self._installed = None
        self.load_before_forks()

    def _find_installed(self) -> "tuple[EntryPoint, ...]":
        if self._installed is None:
            from importlib.metadata import entry_points  # takes 50 ms; a program that only pushes does not need it

            self._searched = set(sys.path)
            self._installed = tuple(entry_points(group=GROUP))
        # In a child, the parent searched before the child added the program's own folders to the path.
        added = [place for place in sys.path if place not in self._searched]
        if added:
            from importlib.metadata import distributions

            found = (point for package in distributions(path=added) for point in package.entry_points)
            self._installed += tuple(point for point in found if point.group == GROUP)
            self._searched.update(added)
        return self._installed

    def wants_pushes(self, options: "Mapping[str, Any] | None" = None, follows: "Payload | None" = None) -> bool:
        """
        True if a push has to go through `push`.

        Args:
            options: The declared job's options; None if they are not known.
            follows: The payload of the job whose end makes the push, if any.
        """
        for pusher in self._pushers:  # noqa: SIM110 — every push asks, and a generator would cost it 0.2 µs
            if pusher.wants(options, follows):
                return True
        return False

    def deferred(self) -> "list[AbstractContextManager[Any]]":
        """The context managers to enter around a push that waited for a commit."""
        found = [pusher.extension.deferred() for pusher in self._pushers if pusher.extension.wants_pushes()]
        return [one for one in found if one is not None]

    def push(self, jobs: "PushSlice") -> "PushSlice":
        """
        Call `push` of each extension that wants these jobs.

        Raises:
            Exception: A hook raised; nothing is pushed.
        """
        for pusher in self._pushers:
            if pusher.wants(jobs.options, jobs.follows):
                pusher.extension.push(jobs)
        return jobs

    def explained(self, refusal: str) -> Exception | None:
        """The exception that an extension raises for the error of its verb, or None."""
        return next((found for one in self._all if (found := one.explain(refusal)) is not None), None)

    def takes_over(self, key: str, payload: "Payload", pool: "Pool") -> bool:
        """
        True if the extension with *key*, which is also a key of Pro, Enterprise or a gem, runs and ends this job.

        Raises:
            Exception: The hook raised.
        """
        extension = self._by_key.get(key)
        return extension is not None and extension.takes_over(payload, pool)

    def may_hold_up(self, payload: "Payload", handled_by: "Sequence[Extension]") -> bool:
        """
        True if `admission` may keep the job from starting. Also True if a hook raises, because `admission` then reports
        the error.

        Args:
            handled_by: The extensions that handle the job.
        """
        try:
            for extension in handled_by:  # noqa: SIM110 — a generator costs more than the call, and each batch member runs this
                if extension.may_hold_up(payload):
                    return True
            return False
        except BaseException as error:
            if _is_raised_from_outside(error):
                raise
            return True

    def admission(self, job: "FetchedJob") -> "Postpone | Drop | DeadLetter | None":
        """
        The first decision, in the order of phases, that keeps the job from starting; None if there is none.

        Raises:
            ExtensionError: A hook raised.
        """
        for extension in self.handlers_of(job.payload):
            try:
                decision = _decision(extension.admit(job))
            except BaseException as error:
                if _is_raised_from_outside(error):
                    raise
                raise ExtensionError(extension.name, "admit", error) from error
            if decision is not None:
                return decision
        return None

    def around(self, payload: "Payload") -> "list[ServerMiddleware]":
        """The middleware that wraps the run of a job, outermost first."""
        if self._keys_around.isdisjoint(payload):
            return []
        found = [extension.around() for extension in self.handlers_of(payload)]
        return [middleware for middleware in found if middleware is not None]

    def end_of_success(self, payload: "Payload", handled_by: "Sequence[Extension]") -> "Tally | None":
        """
        What a success writes, if it concerns only one extension and the payload alone decides it. If this returns None,
        call `end_effects`.

        Args:
            handled_by: The extensions that handle the job.
        """
        if self.handled_runs:
            return None
        try:
            return handled_by[0].end_of_success(payload) if len(handled_by) == 1 else None
        except BaseException as error:
            if _is_raised_from_outside(error):
                raise
            # `end_effects` will raise the error.
            return None

    def end_effects(self, end: "JobEnd") -> "tuple[Effect, ...]":
        """
        The commands of all extensions for a job's end.

        Raises:
            ExtensionError: A hook raised.
        """
        effects: list[Effect] = []
        try:
            for extension in reversed(self.handlers_of(end.payload)):
                try:
                    effects += _several(extension.end(end))
                except BaseException as error:
                    if _is_raised_from_outside(error):
                        raise
                    raise ExtensionError(extension.name, "end", error) from error
        finally:
            self.handled_runs.pop(id(end.payload), None)
        return tuple(effects)

    def effects_of_dead(
        self, end: "JobEnd", report: Callable[[BaseException, dict[str, Any]], Any]
    ) -> "tuple[Effect, ...]":
        """
        The commands of all extensions for a job that goes to `dead` whatever they return. Empty if one of them raises.

        Args:
            report: Called with the error if a hook raises.
        """
        try:
            return self.end_effects(end)
        except ExtensionError as failure:
            report(failure, {"context": "The job is kept in dead", "job": end.payload, "jobstr": end.raw})
            return ()

    def followed(self, end: "JobEnd", effects: "tuple[Effect, ...]") -> "tuple[Effect, ...]":
        """
        The *effects* of the job's own definition after the extensions' `followed` hooks.

        Raises:
            ExtensionError: A hook raised.
        """
        for extension in self.handlers_of(end.payload):
            if effects and extension.overrides("followed"):
                try:
                    effects = extension.followed(end, effects)
                except BaseException as error:
                    if _is_raised_from_outside(error):
                        raise
                    raise ExtensionError(extension.name, "followed", error) from error
        return effects

    def maintenance(self) -> "dict[str, Iterable[Maintenance]]":
        """The periodic work of each extension, by the extension's name."""
        found = {}
        for extension in self._all:
            with naming(extension, "maintain"):
                found[extension.name] = _several(extension.maintain())
        return found

    def pretend(self, end: "JobEnd") -> None:
        """Tell the extensions that a job of theirs ran in a testing mode."""
        for extension in reversed(self.handlers_of(end.payload)):
            extension.pretend(end)

    def handlers_of(self, payload: "Payload") -> "Sequence[Extension]":
        """The extensions that own a key of the payload or handle this run, in the order of phases."""
        # Called once per job. Most jobs have none of the keys, and nearly all others have one.
        alone: tuple[Extension, ...] = ()
        for key in self._alone:
            if key in payload:
                if alone:
                    break
                alone = self._alone[key]
        else:
            if not self.handled_runs or id(payload) not in self.handled_runs:
                return alone
        found = [key for key in self._by_key if key in payload]
        owners = {self._by_key[key] for key in found}
        if id(payload) in self.handled_runs:
            owners.add(self.handled_runs[id(payload)][1])
        return [extension for extension in self._all if extension in owners]

    def handles(self, payload: "Payload") -> bool:
        """True if the payload has an extension's key or an extension handles this run."""
        return not self.keys.isdisjoint(payload) or (bool(self.handled_runs) and id(payload) in self.handled_runs)

    def handle_run(self, payload: "Payload", extension: "Extension") -> None:
        """
        Make *extension* handle a run whose payload has none of its keys, so that its `end` is called.

        Args:
            payload: `current_job().payload`; it must be the very dict of that run.
        """
        self.handled_runs[id(payload)] = payload, extension

    def forget_run(self, payload: "Payload") -> None:
        """Called after a run. If an extension still handles it, call that extension's `forget_run`: there is no end."""
        if self.handled_runs:
            handled = self.handled_runs.pop(id(payload), None)
            if handled is not None:
                handled[1].forget_run(payload)

    def forget_start(self, payload: "Payload") -> None:
        """Called if a job that was admitted waits instead: its own definition postpones it."""
        for extension in self.handlers_of(payload):
            try:
                extension.forget_run(payload)
            except BaseException as error:
                if _is_raised_from_outside(error):
                    raise
                log.exception("the extension %s failed in forget_run", extension.name)

    @contextmanager
    def run_without_end(self, payload: "Payload") -> Iterator[None]:
        """Around the run of a job that is not in Redis, so extensions never see its end."""
        try:
            yield
        finally:
            self.forget_run(payload)

    def may_handle(self, raw: bytes) -> bool:
        """True if *raw* may have an extension's key. It is not parsed."""
        return any(b'"%b"' % key.encode() in raw for key in self.keys)

    def commands(self) -> dict[str, tuple[str, str]]:
        """The commands of all extensions, as in `Extension.commands`."""
        self.load_installed()
        return {name: where for extension in self._all for name, where in extension.commands.items()}

    def lookup(self, name: str, table: "Callable[[Extension], Mapping[str, T]]") -> T | None:
        """The entry *name* in a table of the first extension that has one, or None."""
        self.load_installed()
        return next((found[name] for found in map(table, self._all) if name in found), None)

    def _arrange(self, extensions: "list[Extension]") -> None:
        self._all = tuple(sorted(extensions, key=lambda one: one.turn))
        self._pushers = tuple(_Pusher(one) for one in self._all if one.overrides("push"))
        self._by_key = {key: one for one in self._all for key in one.payload_keys}
        self._alone = {key: (one,) for key, one in self._by_key.items()}
        self._keys_around = frozenset(key for key, one in self._by_key.items() if one.overrides("around"))
        self.keys = frozenset(self._by_key)


@contextmanager
def naming(extension: "Extension", hook: str) -> Iterator[None]:
    """Let the traceback of an error in the block end with the extension's name."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{hook} of the extension {extension.name!r} raised this.")
        raise


def _decision(returned: T) -> T:
    if returned is None or isinstance(returned, tuple):
        return returned
    raise TypeError(f"it returned {returned!r}; return None, a Postpone, a Drop or a DeadLetter")


def _several(returned: Iterable[T]) -> Iterable[T]:
    # One command, or one Maintenance, is a tuple too, and would be taken apart into its parts.
    if isinstance(returned, tuple) and returned and isinstance(returned[0], str):
        raise TypeError(f"it returned {returned[0]!r} alone, not in a list")
    return returned


def _is_raised_from_outside(error: BaseException) -> bool:
    """True if the exception was raised into this thread from outside; any other is the hook's own error."""
    if isinstance(error, KeyboardInterrupt):
        # Ctrl-C while jobs run in the program's main thread, as in tests.
        is_here = threading.current_thread() is threading.main_thread()
        return is_here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, Shutdown)


class _Pusher:
    """An extension that has `push`. Its names are kept in the form in which every push compares them."""

    __slots__ = ("_options", "_payload_keys", "extension")

    def __init__(self, extension: "Extension") -> None:
        self.extension = extension
        self._options = frozenset(extension.push_options)
        self._payload_keys = frozenset(extension.payload_keys)

    def wants(self, options: "Mapping[str, Any] | None", follows: "Payload | None") -> bool:
        concerns = options is None or not self._options or not self._options.isdisjoint(options)
        if concerns and self.extension.wants_pushes():
            return True
        if follows is None or self._payload_keys.isdisjoint(follows):
            return False
        return self.extension.wants_pushes_after(follows)

"""
The extensions of this program, in the order of their phases, and one call for each hook of all of them.

An extension comes by `sidekiq_py.use`, by `configure(extensions=…)`, or by an entry point of an installed package in
the group `sidekiq_py.extensions`. Entry points are looked up by workers, by the command line, and when a public name is
asked for that an extension may have; a program that only pushes pays nothing for them.
"""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sidekiq_py.errors import ConfigError, ExtensionError, Shutdown

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from importlib.metadata import EntryPoint

    # Loaded by whoever uses an extension; a program that only pushes does not.
    from sidekiq_py.extension import DeadLetter, Drop, Effect, Extension, FetchedJob, JobEnd, Postpone, PushSlice, Tally
    from sidekiq_py.middleware.chain import ServerMiddleware
    from sidekiq_py.redis_access.connection.pool import Pool
    from sidekiq_py.registry import Payload
    from sidekiq_py.wire.dialect import Dialect

GROUP = "sidekiq_py.extensions"
_OURS = ("sidekiq_py", "sidekiq_celery")

_log = logging.getLogger("sidekiq")

_NO_KEYS: frozenset[str] = frozenset()


class LoadedExtensions:
    """
    Those of one program.

    Attributes:
        keys: The payload keys of all: a job that bears none of them passes no hook of a worker.
        minded_runs: Not empty while a run is minded whose payload bears none of them.
    """

    def __init__(self) -> None:
        self._all: tuple[Extension, ...] = ()
        self._pushers: tuple[Extension, ...] = ()
        self._by_key: dict[str, Extension] = {}
        self._alone: dict[str, tuple[Extension, ...]] = {}
        # Of those that wrap runs.
        self._keys_around = _NO_KEYS
        self._has_loaded = False
        self._installed: tuple[EntryPoint, ...] | None = None
        # Where they were looked for.
        self._searched: set[str] = set()
        # By the identity of a run's payload: the payload, and who minds that run, though the payload does not say so.
        # It is kept, as the next dict that Python makes in its place would count as minded, too.
        self.minded_runs: dict[int, tuple[Payload, Extension]] = {}
        self.keys: frozenset[str] = _NO_KEYS

    def __repr__(self) -> str:
        return f"<LoadedExtensions {[extension.name for extension in self._all]}>"

    def __iter__(self) -> "Iterator[Extension]":
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def use(self, extension: "Extension") -> "Extension":
        """
        Take one in; one of the same name is replaced.

        Raises:
            ConfigError: It is no extension, was written for another contract, or wants a key that another one has.
        """
        from sidekiq_py.extension import check  # see above
        from sidekiq_py.redis_access.job_path.verbs import verbs

        new = check(extension)
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
        """The extension of this name."""
        return next((extension for extension in self._all if extension.name == name), None)

    def clear(self) -> None:
        """Forget all."""
        self._has_loaded = False
        self._arrange([])

    def load_installed(self) -> None:
        """Take in those of installed packages, once; one that cannot be loaded is logged and left out."""
        if self._has_loaded:
            return
        self._has_loaded = True
        for point in self._find_installed():
            try:
                found = point.load()
                extension = found() if isinstance(found, type) else found
                if self.find(extension.name) is None:
                    self.use(extension)
            except Exception as error:  # noqa: BLE001 — another package's mistake must not stop a worker
                _log.error("the extension %s (%s) cannot be used: %s", point.name, point.value, error)

    def load_before_forks(self) -> None:
        """
        In a parent: look for those of installed packages once for all children, and import ours.

        Others may import the program, of which a parent loads nothing.
        """
        for point in self._find_installed():
            if point.module.partition(".")[0] in _OURS:
                # Each child says what is wrong with one that cannot be imported.
                with suppress(Exception):
                    import_module(point.module)

    def look_again(self) -> None:
        """In a parent whose children are to run new code: packages may have come, gone, or moved their extension."""
        self._installed = None
        self.load_before_forks()

    def _find_installed(self) -> "tuple[EntryPoint, ...]":
        if self._installed is None:
            from importlib.metadata import entry_points  # takes 50 ms, which a program that only pushes does not pay

            self._installed = tuple(entry_points(group=GROUP))
            self._searched = set(sys.path)
        # A parent has looked before its children put the program's own folders there.
        added = [place for place in sys.path if place not in self._searched]
        if added:
            from importlib.metadata import distributions

            found = (point for package in distributions(path=added) for point in package.entry_points)
            self._installed += tuple(point for point in found if point.group == GROUP)
            self._searched.update(added)
        return self._installed

    def wants_pushes(self, options: "Mapping[str, Any] | None" = None, follows: "Payload | None" = None) -> bool:
        """
        Whether a push is to go through `push`.

        Args:
            options: Of the declared job; None where they are not known.
            follows: The payload of the job whose end makes it, if one does.
        """
        return bool(self._pushers) and any(_wants(extension, options, follows) for extension in self._pushers)

    def deferred(self) -> "list[AbstractContextManager[Any]]":
        """What to enter around a push that waits for a commit, once it is made."""
        found = [extension.deferred() for extension in self._pushers if extension.wants_pushes()]
        return [one for one in found if one is not None]

    def push(self, jobs: "PushSlice") -> "PushSlice":
        """
        Let each have its say.

        Raises:
            Exception: What a hook raises; nothing is pushed.
        """
        for extension in self._pushers:
            if _wants(extension, jobs.options, jobs.follows):
                extension.push(jobs)
        return jobs

    def explained(self, refusal: str) -> Exception | None:
        """What an extension raises for the error of its verb, or None."""
        return next((found for one in self._all if (found := one.explain(refusal)) is not None), None)

    def takes_over(self, key: str, payload: "Payload", pool: "Pool") -> bool:
        """
        Whether the owner of *key*, which is also one of Pro, Enterprise or a gem, runs and ends this job.

        Raises:
            Exception: What the hook raises.
        """
        extension = self._by_key.get(key)
        return extension is not None and extension.takes_over(payload, pool)

    def may_hold_up(self, payload: "Payload", minding: "Sequence[Extension]") -> bool:
        """
        Whether `admission` may decide anything; also where that cannot be told, which it then says.

        Args:
            minding: Those that mind the job.
        """
        try:
            for extension in minding:  # noqa: SIM110 — a generator costs more than the question, and every member asks
                if extension.may_hold_up(payload):
                    return True
            return False
        except BaseException as error:
            if _is_told_from_outside(error):
                raise
            return True

    def admission(self, job: "FetchedJob") -> "Postpone | Drop | DeadLetter | None":
        """
        The first decision that does not let the job start, in the order of phases.

        Raises:
            ExtensionError: A hook has raised.
        """
        for extension in self.minding(job.payload):
            try:
                decision = extension.admit(job)
            except BaseException as error:
                if _is_told_from_outside(error):
                    raise
                raise ExtensionError(extension.name, "admit", error) from error
            if decision is not None:
                return decision
        return None

    def around(self, payload: "Payload") -> "list[ServerMiddleware]":
        """What wraps the run of a job, outermost first."""
        if not self.minded_runs and self._keys_around.isdisjoint(payload):
            return []
        found = [extension.around() for extension in self.minding(payload)]
        return [middleware for middleware in found if middleware is not None]

    def end_of_success(self, payload: "Payload", minding: "Sequence[Extension]") -> "Tally | None":
        """
        What a success writes, where one extension alone minds it and its payload tells; else `end_effects` does.

        Args:
            minding: Those that the payload's keys belong to.
        """
        if self.minded_runs:
            return None
        try:
            return minding[0].end_of_success(payload) if len(minding) == 1 else None
        except BaseException as error:
            if _is_told_from_outside(error):
                raise
            # `end_effects` will say what is wrong.
            return None

    def end_effects(self, end: "JobEnd") -> "tuple[Effect, ...]":
        """
        What all want written with a job's end.

        Raises:
            ExtensionError: A hook has raised.
        """
        effects: list[Effect] = []
        try:
            for extension in reversed(self.minding(end.payload)):
                try:
                    effects += extension.end(end)
                except BaseException as error:
                    if _is_told_from_outside(error):
                        raise
                    raise ExtensionError(extension.name, "end", error) from error
        finally:
            self.minded_runs.pop(id(end.payload), None)
        return tuple(effects)

    def effects_of_dead(
        self,
        raw: bytes,
        payload: "Payload",
        queue: str,
        error: BaseException,
        *,
        now: float,
        dialect: "Dialect",
        report: Callable[[BaseException, dict[str, Any]], Any],
        member: bytes | None = None,
    ) -> "tuple[Effect, ...]":
        """
        What all want written with a job that goes to `dead` whatever they say: nothing where one of them raises.

        Args:
            report: Is told what a hook has raised.
            member: What will stand in `dead`; the bytes as they are where it is not given.
        """
        if not self.minds(payload):
            return ()
        from sidekiq_py.extension import JobEnd  # see above

        member = raw if member is None else member
        try:
            return self.end_effects(JobEnd("dead", payload, raw, queue, now, dialect, error, member=member, score=now))
        except ExtensionError as failure:
            report(failure, {"context": "The job is kept in dead", "job": payload, "jobstr": raw})
            return ()

    def followed(self, end: "JobEnd", effects: "tuple[Effect, ...]") -> "tuple[Effect, ...]":
        """
        *effects* of the job's own definition, as extensions leave them.

        Raises:
            ExtensionError: A hook has raised.
        """
        for extension in self.minding(end.payload):
            if effects and extension.has_followed:
                try:
                    effects = extension.followed(end, effects)
                except BaseException as error:
                    if _is_told_from_outside(error):
                        raise
                    raise ExtensionError(extension.name, "followed", error) from error
        return effects

    def pretend(self, end: "JobEnd") -> None:
        """A job that one of them minds has run in a testing mode."""
        for extension in reversed(self.minding(end.payload)):
            extension.pretend(end)

    def minding(self, payload: "Payload") -> "Sequence[Extension]":
        """In the order of phases, those that own a key of the payload or mind this run."""
        # Asked once for each job, of which most bear none and nearly all others one.
        alone: tuple[Extension, ...] = ()
        for key in self._alone:
            if key in payload:
                if alone:
                    break
                alone = self._alone[key]
        else:
            if not self.minded_runs or id(payload) not in self.minded_runs:
                return alone
        found = [key for key in self._by_key if key in payload]
        owners = {self._by_key[key] for key in found}
        if id(payload) in self.minded_runs:
            owners.add(self.minded_runs[id(payload)][1])
        return [extension for extension in self._all if extension in owners]

    def minds(self, payload: "Payload") -> bool:
        """Whether a job bears a key of one of them, or one of them minds this run."""
        return not self.keys.isdisjoint(payload) or (bool(self.minded_runs) and id(payload) in self.minded_runs)

    def mind(self, payload: "Payload", extension: "Extension") -> None:
        """
        Let *extension* hear of the end of a run whose payload bears none of its keys.

        Args:
            payload: `current_job().payload`, the dict of that very run.
        """
        self.minded_runs[id(payload)] = payload, extension

    def forget_run(self, payload: "Payload") -> None:
        """A run is over; who minds it and was not told of its end hears that there is none."""
        if self.minded_runs:
            minded = self.minded_runs.pop(id(payload), None)
            if minded is not None:
                minded[1].forget_run(payload)

    @contextmanager
    def run_without_end(self, payload: "Payload") -> Iterator[None]:
        """Within it a job runs whose end is told to nobody, as it stands nowhere in Redis."""
        try:
            yield
        finally:
            self.forget_run(payload)

    def minds_bytes(self, raw: bytes) -> bool:
        """Whether a key of one of them may stand in *raw*, which is not to be parsed."""
        return any(b'"%b"' % key.encode() in raw for key in self.keys)

    def commands(self) -> dict[str, tuple[str, str]]:
        """The commands of all, as in `Extension.commands`."""
        self.load_installed()
        return {name: where for extension in self._all for name, where in extension.commands.items()}

    def public_home(self, name: str) -> str | None:
        """The module of a public name, `sidekiq_py.<name>`."""
        return self._home(name, lambda extension: extension.public_names)

    def api_home(self, name: str) -> str | None:
        """The module of a name of the data API, `sidekiq_py.api.<name>`."""
        return self._home(name, lambda extension: extension.api_names)

    def job_attribute(self, name: str) -> Callable[[Any], Any] | None:
        """What gives an attribute of `current_job()`."""
        self.load_installed()
        return next((one.job_attributes[name] for one in self._all if name in one.job_attributes), None)

    def ruby_job_attribute(self, name: str) -> Callable[[Any], Any] | None:
        """What gives an attribute of a `ruby_job`."""
        self.load_installed()
        return next((one.ruby_job_attributes[name] for one in self._all if name in one.ruby_job_attributes), None)

    def _home(self, name: str, names: "Callable[[Extension], Mapping[str, str]]") -> str | None:
        self.load_installed()
        return next((names(extension)[name] for extension in self._all if name in names(extension)), None)

    def _arrange(self, extensions: "list[Extension]") -> None:
        self._all = tuple(sorted(extensions, key=lambda one: one.turn))
        self._pushers = tuple(one for one in self._all if one.has_push)
        self._by_key = {key: one for one in self._all for key in one.payload_keys}
        self._alone = {key: (one,) for key, one in self._by_key.items()}
        self._keys_around = frozenset(key for key, one in self._by_key.items() if one.has_around)
        self.keys = frozenset(self._by_key)


def _is_told_from_outside(error: BaseException) -> bool:
    """It was meant for the thread; whatever else a hook raises is the hook's own mistake."""
    if isinstance(error, KeyboardInterrupt):
        # Ctrl-C, where jobs run in the program's main thread, as in tests.
        is_here = threading.current_thread() is threading.main_thread()
        return is_here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, Shutdown)


def _wants(extension: "Extension", options: "Mapping[str, Any] | None", follows: "Payload | None") -> bool:
    concerns = options is None or not extension.push_options or not options.keys().isdisjoint(extension.push_options)
    if concerns and extension.wants_pushes():
        return True
    if follows is None or extension.payload_keys.keys().isdisjoint(follows):
        return False
    return extension.wants_pushes_after(follows)

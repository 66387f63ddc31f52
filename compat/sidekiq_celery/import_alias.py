"""
`celery` as another name for this package, for packages that import Celery themselves.

1. `install_as_celery` puts a finder in front of all others.
2. The finder answers for `celery` and everything below it: `celery.app.task` is the module `sidekiq_celery.app.task`,
   the same object, so that classes, the current app and pickles are the same under both names.
3. Importing a module that this package lacks raises ImportError, even if the real Celery is installed: a mix of the
   two would not work, and the reason would be hard to see.
4. Import hooks (wrapt's, and those of ddtrace and New Relic) see each module once under Celery's name. Modules here
   import each other by their own names, so from the first `import celery` on, each module that is loaded is imported
   under Celery's name as well.
5. `billiard.exceptions`, if that package is installed, has our classes of the errors that Celery takes from it, so
   that `except billiard.exceptions.SoftTimeLimitExceeded` catches what a worker raises.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dis import opmap
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from sidekiq_celery._submodules import submodule
from sidekiq_celery.exceptions import _FROM_BILLIARD, ImproperlyConfigured

__all__ = ("install_as_celery", "own_name")

_ALIAS = "celery"
_OWN = "sidekiq_celery"
_GUIDE = "docs/celery_reference.md"

# They look for files or built-in modules, and ignore what other finders have found.
_PYTHON_S_OWN = (BuiltinImporter, FrozenImporter, PathFinder)


def install_as_celery() -> None:
    """
    Make `import celery` import this package from now on, in this process. Calling it again does nothing.

    Call it before anything that imports Celery: in the first lines of your app's module, or of `manage.py`.

    Raises:
        ImproperlyConfigured: The real Celery has been imported already.
    """
    if any(isinstance(finder, CeleryFinder) for finder in sys.meta_path):
        return
    _refuse_the_real_one()
    sys.meta_path.insert(0, CeleryFinder())
    for name, change in _CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])


def own_name(module: str) -> str:
    """The module of this package that replaces Celery's *module*; any other name is returned unchanged."""
    is_celery_s = module == _ALIAS or module.startswith(f"{_ALIAS}.")
    return _OWN + module.removeprefix(_ALIAS) if is_celery_s else module


class CeleryFinder(MetaPathFinder):
    """Finds the modules of this package under Celery's names."""

    def __init__(self) -> None:
        self._loads = _Loads()
        self._asked = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """
        The spec of *fullname*. Returns None unless the module is Celery's, this package's own, billiard's errors or
        kombu itself.

        Raises:
            ModuleNotFoundError: This package has no such module.
        """
        own = own_name(fullname)
        if own != fullname:
            return self._of_celery(fullname, own, path, target)
        if fullname in _CHANGES:
            return self._of_others(fullname, path, target, _ChangingLoader)
        if _is_own(fullname):
            return self._of_others(fullname, path, target, lambda loader: _RecordingLoader(loader, self._loads))
        return None

    def _of_celery(self, fullname: str, own: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec:
        asked: dict[str, ModuleSpec] = self._asked.__dict__
        if fullname in asked:
            # An import hook's finder is asking: it looks up the real spec in order to wrap its loader.
            return asked[fullname]
        found = _spec_of(own)
        if found is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: celery is sidekiq_celery here, which has no such module. See {_GUIDE}",
                name=fullname,
            )
        is_package = found.submodule_search_locations is not None
        loader = _SameModule(own, self._loads)
        spec = ModuleSpec(fullname, loader, origin=found.origin, is_package=is_package)
        asked[fullname] = spec
        try:
            for find in _other_finders(self):
                # It returns either this same spec, with its own loader wrapped around ours, or one of the real Celery.
                try:
                    find(fullname, path, target)
                except ImportError:
                    continue
        finally:
            del asked[fullname]
        return spec

    def _of_others(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None,
        wrapped: Callable[[Any], Loader],
    ) -> ModuleSpec | None:
        """The spec that the other finders return, with its loader *wrapped*."""
        asked: dict[str, ModuleSpec | None] = self._asked.__dict__
        if fullname in asked:
            return None
        asked[fullname] = None
        try:
            for find in _other_finders(self, with_python_s_own=True):
                spec: ModuleSpec | None = find(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = wrapped(spec.loader)
                    return spec
        finally:
            del asked[fullname]
        return None


class _Loads:
    """
    Tracks the modules of this package that have been loaded but not yet imported under Celery's name.

    A hook may import anything, so those imports wait until no module is half loaded in this thread.
    """

    def __init__(self) -> None:
        self._is_in_use = False
        self._here = threading.local()

    @contextmanager
    def loading(self, name: str) -> Iterator[None]:
        """Enclose the execution of the module *name*."""
        here = self._here.__dict__
        here["depth"] = here.get("depth", 0) + 1
        try:
            yield
            here.setdefault("loaded", []).append(name)
        finally:
            here["depth"] -= 1
        if not here["depth"] and self._is_in_use:
            loaded, here["loaded"] = here["loaded"], []
            _import_as_celery(loaded)

    def celery_is_imported(self) -> None:
        """Note that `celery` itself has been imported; from now on every loaded module follows."""
        if not self._is_in_use:
            self._is_in_use = True
            _import_as_celery([name for name in sys.modules if _is_own(name)])


class _SameLoader(Loader):
    """Loads a module as *loader* does."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        # runpy and others ask the loader for sources and files.
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        # Everyone else should see the loader that knows the module's source and files.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)


class _RecordingLoader(_SameLoader):
    """Records that a module of this package was loaded."""

    def __init__(self, loader: Any, loads: _Loads) -> None:
        super().__init__(loader)
        self._loads = loads

    def exec_module(self, module: ModuleType) -> None:
        with self._loads.loading(module.__name__):
            super().exec_module(module)


class _ChangingLoader(_SameLoader):
    """Changes a module of another package after loading it."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        # kombu puts a module of its own class in its place.
        _CHANGES[module.__name__](sys.modules[module.__name__])


class _SameModule(Loader):
    """Returns the module *own* when it is imported by another name."""

    def __init__(self, own: str, loads: _Loads) -> None:
        self._own = own
        self._loads = loads

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Face(spec.name, import_module(self._own))

    def exec_module(self, module: ModuleType) -> None:
        own = sys.modules[self._own]
        _explain_absent_names(own)
        # The import system returns what it finds here.
        sys.modules[module.__name__] = own
        if module.__name__ == _ALIAS:
            self._loads.celery_is_imported()


class _Face(ModuleType):
    """
    The module that import hooks receive. It has Celery's name, by which they recognize it.

    Its attributes are those of the real module, so that what a hook replaces is replaced there.
    """

    # The import system sets these for the import under this name.
    _OF_IMPORT = frozenset({"__name__", "__loader__", "__package__", "__spec__", "__path__"})

    def __init__(self, name: str, own: ModuleType) -> None:
        super().__init__(name)
        ModuleType.__setattr__(self, "_own", own)

    def __getattribute__(self, name: str) -> Any:
        if name in _Face._OF_IMPORT or name == "__class__":
            return ModuleType.__getattribute__(self, name)
        return getattr(ModuleType.__getattribute__(self, "_own"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _Face._OF_IMPORT:
            ModuleType.__setattr__(self, name, value)
        else:
            setattr(ModuleType.__getattribute__(self, "_own"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(ModuleType.__getattribute__(self, "_own"), name)


def _is_own(name: str) -> bool:
    return name == _OWN or name.startswith(f"{_OWN}.")


def _use_our_errors(billiards: ModuleType) -> None:
    vars(billiards).update(_FROM_BILLIARD)


def _show_submodules(kombu: ModuleType) -> None:
    # Where nothing is found here, kombu's class of its module looks up its names.
    vars(kombu)["__getattr__"] = partial(submodule, "kombu")


# What is changed in modules of other packages.
_CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "billiard.exceptions": _use_our_errors,
    "kombu": _show_submodules,
}


def _celery_s_name(own: str) -> str | None:
    """Celery's name for a module of this package. Returns None for modules that Celery does not have."""
    below = own.removeprefix(_OWN)
    is_private = any(part.startswith("_") for part in below.split(".")) and below != "._state"
    return None if is_private else _ALIAS + below


def _import_as_celery(names: Sequence[str]) -> None:
    for name in names:
        alias = _celery_s_name(name)
        # A module that failed to load is not in sys.modules.
        if alias is not None and name in sys.modules and alias not in sys.modules:
            import_module(alias)


def _other_finders(own: CeleryFinder, *, with_python_s_own: bool = False) -> Iterator[Callable[..., Any]]:
    for finder in tuple(sys.meta_path):
        is_python_s = any(finder is one for one in _PYTHON_S_OWN)
        find = getattr(finder, "find_spec", None)
        if finder is not own and find is not None and (with_python_s_own or not is_python_s):
            yield find


def _spec_of(own: str) -> ModuleSpec | None:
    try:
        return find_spec(own)
    except ModuleNotFoundError:
        # The name that should be its package is a plain module.
        return None


def _explain_absent_names(module: ModuleType) -> None:
    """Make `from celery.x import name` point to the guide if there is no such name."""
    known: Callable[[str], Any] | None = module.__dict__.get("__getattr__")
    if getattr(known, "is_of_alias", False):
        return

    def find(name: str) -> Any:
        why = "it stands for Celery's module here and has no such name"
        error = AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)
        if known is not None:
            try:
                return known(name)
            except AttributeError as its_own:
                # It may say what to use instead.
                why, error = str(its_own), its_own
        if _is_import(sys._getframe(1)):
            half_imported = sys.modules.get(f"{module.__name__}.{name}")
            if half_imported is not None:
                return half_imported
            raise ImportError(
                f"cannot import name {name!r} from {module.__name__!r}: {why}. See {_GUIDE}",
                name=module.__name__,
                path=getattr(module, "__file__", None),
            )
        raise error

    find.is_of_alias = True  # type: ignore[attr-defined]
    module.__dict__["__getattr__"] = find


def _is_import(frame: Any) -> bool:
    """Whether *frame* is at the name of a `from … import`: an AttributeError would lose its message there."""
    return bool(frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"])


def _refuse_the_real_one() -> None:
    for name, module in tuple(sys.modules.items()):
        if own_name(name) != name and getattr(module, "__name__", None) != own_name(name):
            raise ImproperlyConfigured(
                f"the real Celery has been imported already ({name} from {getattr(module, '__file__', None)}). Call "
                "sidekiq_celery.install_as_celery() before everything that imports celery, in the first lines of the "
                "module with your app or of manage.py; or start the program by `python -m sidekiq_celery run`"
            )

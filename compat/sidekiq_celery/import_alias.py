"""
`celery` as another name of this package, for packages that import Celery themselves.

1. `install_as_celery` puts a finder before all others.
2. The finder answers for `celery` and everything below it: `celery.app.task` is the module `sidekiq_celery.app.task`,
   the same object, so that classes, the current app and pickles are the same under both names.
3. What this package lacks is an ImportError, also where the real Celery is installed: with a half of each nothing
   would work, and nobody would see why.
"""

import sys
from collections.abc import Callable, Sequence
from dis import opmap
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import Any

from sidekiq_celery.exceptions import ImproperlyConfigured

__all__ = ("install_as_celery", "own_name")

_ALIAS = "celery"
_OWN = "sidekiq_celery"
_GUIDE = "docs/migrating_from_celery.md"


def install_as_celery() -> None:
    """
    From now on `import celery` gives this package, in this process. Calling it again does nothing.

    Call it before anything that imports Celery: in the first lines of the module with your app, or of `manage.py`.

    Raises:
        ImproperlyConfigured: The real Celery has been imported already.
    """
    if any(isinstance(finder, CeleryFinder) for finder in sys.meta_path):
        return
    _refuse_the_real_one()
    sys.meta_path.insert(0, CeleryFinder())


def own_name(module: str) -> str:
    """The name of the module here that *module* of Celery stands for; any other name as it is."""
    is_celery_s = module == _ALIAS or module.startswith(f"{_ALIAS}.")
    return _OWN + module.removeprefix(_ALIAS) if is_celery_s else module


class CeleryFinder(MetaPathFinder):
    """Finds the modules of this package under Celery's names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """
        Where *fullname* is; None unless it is Celery's.

        Raises:
            ModuleNotFoundError: There is no such module here.
        """
        own = own_name(fullname)
        if own == fullname:
            return None
        found = _spec_of(own)
        if found is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: celery is sidekiq_celery here, which has no such module. See {_GUIDE}",
                name=fullname,
            )
        is_package = found.submodule_search_locations is not None
        return spec_from_loader(fullname, _SameModule(own), origin=found.origin, is_package=is_package)


class _SameModule(Loader):
    """Gives the module *own* to whoever imports it by another name."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._own)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It has run under its own name. The import system has written the alias' spec into it meanwhile.
        module.__spec__ = self._own_spec
        _explain_absent_names(module)


def _spec_of(own: str) -> ModuleSpec | None:
    try:
        return find_spec(own)
    except ModuleNotFoundError:
        # What should be its package is a module.
        return None


def _explain_absent_names(module: ModuleType) -> None:
    """Let `from celery.x import name` say where to look, if there is no such name."""
    known: Callable[[str], Any] | None = module.__dict__.get("__getattr__")
    if getattr(known, "is_of_alias", False):
        return

    def find(name: str) -> Any:
        if known is not None:
            try:
                return known(name)
            except AttributeError:
                pass
        if _is_import(sys._getframe(1)):
            half_imported = sys.modules.get(f"{module.__name__}.{name}")
            if half_imported is not None:
                return half_imported
            raise ImportError(
                f"cannot import name {name!r} from {module.__name__!r}, which stands for Celery's module here and has "
                f"no such name. See {_GUIDE}",
                name=module.__name__,
                path=getattr(module, "__file__", None),
            )
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    find.is_of_alias = True  # type: ignore[attr-defined]
    module.__dict__["__getattr__"] = find


def _is_import(frame: Any) -> bool:
    """Whether *frame* stands at the name of a `from … import`: an AttributeError there would lose its message."""
    return bool(frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"])


def _refuse_the_real_one() -> None:
    for name, module in tuple(sys.modules.items()):
        if own_name(name) != name and getattr(module, "__name__", None) != own_name(name):
            raise ImproperlyConfigured(
                f"the real Celery has been imported already ({name} from {getattr(module, '__file__', None)}). Call "
                "sidekiq_celery.install_as_celery() before everything that imports celery, in the first lines of the "
                "module with your app or of manage.py; or start the program by `python -m sidekiq_celery run`"
            )

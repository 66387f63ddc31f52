"""Counts the entries of a folder: with more than about twenty, it is hard to find anything at the first guess."""

from pathlib import Path


def side_by_side(folder: Path) -> list[str]:
    """The modules and folders directly in *folder*, without its `__init__.py`."""
    return sorted(path.name for path in folder.iterdir() if _is_a_place(path))


def _is_a_place(path: Path) -> bool:
    if path.is_dir():
        return path.name != "__pycache__"
    return path.suffix == ".py" and path.name != "__init__.py"

"""What lies side by side in a folder: with more than some twenty, nobody finds a thing at the first guess."""

from pathlib import Path


def side_by_side(folder: Path) -> list[str]:
    """The modules and folders right in *folder*, but for what opens it (`__init__.py`)."""
    return sorted(path.name for path in folder.iterdir() if _is_a_place(path))


def _is_a_place(path: Path) -> bool:
    if path.is_dir():
        return path.name != "__pycache__"
    return path.suffix == ".py" and path.name != "__init__.py"

"""What is counted in files: layers, neighbours, attributes, lines."""

from pathlib import Path

import pytest

pytest.importorskip("grimp")

from structure.__main__ import main
from structure.classes import classes_in
from structure.layers import Layers, layers_in
from structure.lines import lines_of_code
from structure.places import side_by_side


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    """Three rows, of which the middle one has neighbours that are kept apart and the lowest one has others."""
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text("""
[[tool.importlinter.contracts]]
type = "forbidden"

[[tool.importlinter.contracts]]
type = "layers"
containers = ["shop"]
layers = ["top", "left | right", "(one) : other"]
ignore_imports = ["shop.one -> shop.top.part"]
""")
    [found] = layers_in(pyproject)
    return found


@pytest.mark.parametrize(
    "edge",
    [("shop.one", "shop.top.part"), ("shop.left", "shop.top"), ("shop.left", "shop.right.inner")],
)
def test_an_import_that_points_up_counts(layers: Layers, edge: tuple[str, str]) -> None:
    """Also one that the contract lets pass, and one between neighbours that are kept apart."""
    assert layers.against({edge}) == [edge]


@pytest.mark.parametrize(
    "edge",
    [
        ("shop.top", "shop.one"),
        ("shop.one", "shop.other"),
        ("shop.left.a", "shop.left.b"),
        ("shop.left", "elsewhere.top"),
        ("shop.left", "shop"),
    ],
)
def test_any_other_import_is_fine(layers: Layers, edge: tuple[str, str]) -> None:
    """Down, between neighbours that may know each other, within a folder, and out of the package."""
    assert layers.against({edge}) == []


def test_modules_and_folders_lie_side_by_side(tmp_path: Path) -> None:
    """What opens the folder and what Python leaves there does not count."""
    for name in ("__init__.py", "poller.py", "note.txt"):
        (tmp_path / name).touch()
    for name in ("lua", "__pycache__"):
        (tmp_path / name).mkdir()

    assert side_by_side(tmp_path) == ["lua", "poller.py"]


def test_attributes_and_methods_of_a_class_are_counted(tmp_path: Path) -> None:
    """An attribute that is assigned twice, or in parts of a tuple, counts once; properties are methods."""
    path = tmp_path / "module.py"
    path.write_text("""
class Small:
    def __init__(self):
        self.one = 1

class Large:
    def __init__(self):
        self.one, self.two = 1, 2
        other.three = 3

    @property
    def four(self):
        self.one += 1
        return self.five
""")

    large, small = classes_in([("module", path)])

    assert (large.name, large.attributes, large.methods) == ("Large", 2, 2)
    assert (small.name, small.attributes, small.methods, small.lines) == ("Small", 1, 1, 3)


def test_lines_of_code_are_those_that_run(tmp_path: Path) -> None:
    """Blank lines, comments and docstrings, those below an attribute too, are none."""
    path = tmp_path / "module.py"
    path.write_text('''"""What it is."""

# Why.
TEXT = """two
lines"""
"""What it says."""


def answer():
    """In short."""
    return (
        42  # of all
    )
''')

    assert lines_of_code([path]) == 6


def test_the_table_measures_this_project(capsys: pytest.CaptureFixture[str]) -> None:
    """Each question has its line; the names of what is counted come when asked for."""
    main(["--verbose"])

    table = capsys.readouterr().out
    for question in (
        "import cycles",
        "imports against the layers of sidekiq_celery",
        "class Supervisor",
        "lines of code",
    ):
        assert f"\n{question}" in f"\n{table}"
    assert "\n    sidekiq_py." in table

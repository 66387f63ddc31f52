"""
Imports that point up.

The layers come from import-linter's contracts in `pyproject.toml`, the only place that defines them. Imports that a
contract still tolerates (`ignore_imports`) count here too, as do modules named in a string.
"""

import tomllib
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from structure.imports import Edge


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one package: the height of each module or folder directly below it."""

    package: str
    heights: dict[str, int]
    apart: frozenset[int]
    """Heights at which modules must not import each other either."""

    def point_up(self, edge: Edge) -> bool:
        """Whether an import points up in the layers."""
        ours, theirs = (self._place(module) for module in edge)
        if ours == theirs or ours not in self.heights or theirs not in self.heights:
            return False
        here, there = self.heights[ours], self.heights[theirs]
        return here < there or (here == there and here in self.apart)

    def against(self, edges: Set[Edge]) -> list[Edge]:
        """The imports that point up."""
        return sorted(edge for edge in edges if self.point_up(edge))

    def _place(self, module: str) -> str:
        inside = module.removeprefix(f"{self.package}.")
        return "" if inside == module else inside.split(".")[0]


def layers_in(pyproject: Path) -> list[Layers]:
    """The layers of each package that has a contract in *pyproject*."""
    contracts = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]["contracts"]
    return [
        _layers(container, contract["layers"])
        for contract in contracts
        if contract["type"] == "layers"
        for container in contract["containers"]
    ]


def _layers(package: str, rows: list[str]) -> Layers:
    heights: dict[str, int] = {}
    apart = set[int]()
    for height, row in enumerate(reversed(rows)):
        names = [name.strip(" ()") for name in row.replace("|", ":").split(":")]
        heights |= dict.fromkeys(names, height)
        if ":" not in row:
            apart.add(height)
    return Layers(package, heights, frozenset(apart))

# SPDX-License-Identifier: Apache-2.0
"""Search spaces: the values that each setting of a replay may have, and what they cost, from a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Final

from cclbench.ground.errors import InputError, near
from cclbench.ground.yaml_file import Document
from cclbench.replay.layout import changes_layout
from cclbench.replay.sampler import Point
from cclbench.replay.scenario import Scenario, parse_scenario
from cclbench.replay.scenario_file import locate_errors, read_checked

UNCHANGED: Final = "unchanged"
"""A value that sets nothing."""
FIXED: Final = "batch=global"
"""What makes scenarios of several layouts do the same work."""
LARGEST: Final = 1_000_000
"""Points of the largest space."""

Costs = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A grid of scenarios: `values` by key, in the order of the file; `cost` of values by key, in `unit`.

    `cost` is None where the file states none; a value that it does not name costs nothing.
    """

    values: Mapping[str, tuple[str, ...]]
    cost: Costs | None = None
    unit: str = "1"

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """How many values each key has."""
        return tuple(map(len, self.values.values()))

    @property
    def point_count(self) -> int:
        """How many scenarios there are."""
        return prod(self.grid_shape)

    def scenario_at(self, point: Point) -> Scenario:
        """The scenario at that point; one that sets nothing is called `unchanged`, and one of another layout
        says that the global batch stays."""
        texts = [f"{key}={value}" for key, value in self._settings_at(point) if value != UNCHANGED]
        scenario = parse_scenario(texts, ", ".join(texts) or UNCHANGED)
        if changes_layout(scenario.changes) and "batch" not in scenario.changes:
            texts.append(FIXED)
            scenario = parse_scenario(texts)
        return scenario

    def cost_of(self, point: Point) -> float | None:
        """What the values of that point cost together."""
        if self.cost is None:
            return None
        return sum(self.cost.get(key, {}).get(value, 0.0) for key, value in self._settings_at(point))

    def _settings_at(self, point: Point) -> list[tuple[str, str]]:
        return [(key, values[at]) for (key, values), at in zip(self.values.items(), point, strict=True)]


def read_space(path: Path) -> SearchSpace:
    """The space of a file; `InputError` with file and line where it is none, or a setting means nothing."""
    document = read_checked(path, "space")
    values = {key: tuple(choices) for key, choices in document.value["space"].items()}
    for key, choices in values.items():
        for at, value in enumerate(choices):
            if value != UNCHANGED:
                with locate_errors(document, ("space", key, at)):
                    parse_scenario([f"{key}={value}"])
    if any(value != "global" for value in values.get("batch", ())):
        where = f"{document.file}:{document.line(('space', 'batch'))}"
        raise InputError("a search compares the same work: the global batch stays", where=where, hint=FIXED)
    space = SearchSpace(values, document.value.get("cost"), document.value.get("cost_unit", "1"))
    with locate_errors(document, ("space",)):
        space.scenario_at(
            tuple(len(choices) - 1 for choices in values.values())
        )  # keys that are one, written otherwise
    if space.point_count > LARGEST:
        where = f"{document.file}:{document.line(('space',))}"
        raise InputError(f"the space has {space.point_count:,} points, more than {LARGEST:,}", where=where)
    _check_costs(document, space)
    return space


def _check_costs(document: Document, space: SearchSpace) -> None:
    for key, costs in (space.cost or {}).items():
        choices: Mapping[str, object] = space.values
        for place, name, among in [
            (("cost", key), key, choices),
            *((("cost", key, value), value, dict.fromkeys(space.values.get(key, ()))) for value in costs),
        ]:
            if name not in among:
                where = f"{document.file}:{document.line(place)}"
                what = f"the space has no {name!r}, which is said to cost something"
                raise InputError(what, where=where, hint=near(name, among))
        for value, cost in costs.items():
            if not isfinite(cost):
                where = f"{document.file}:{document.line(('cost', key, value))}"
                raise InputError(f"{cost} is no cost", where=where, hint="a number such as 40")

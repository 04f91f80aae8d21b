# SPDX-License-Identifier: Apache-2.0
"""Changes that scenarios make to the graph itself: each is a function that registers itself.

    @change("copies", values="x2", definition="...", read=factor_of)
    def copies(subject: Subject, factor: float) -> Graph | str: ...

Ours are in `cclbench.replay.changes`, others register by an entry point of the group `cclbench.scenarios`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cclbench.errors import UsageError
from cclbench.intervals import Int64
from cclbench.registry import Registry

if TYPE_CHECKING:
    from cclbench.replay.graph import Graph

_FACTOR = re.compile(r"[x×](\d{1,7}(?:\.\d{1,6})?)")
_LARGEST_FACTOR: Final = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """What a change acts on: the graph, and what else is known of the run.

    `since` is how long before each node begins its rank's windows had begun, ns, shape (nodes,), −1 outside
    of all windows, where nothing may change; `placed` each rank's place by parallel dimension.
    """

    graph: Graph
    since: Int64
    placed: Mapping[str, Mapping[int, int]]


Act = Callable[[Subject, float], "Graph | str"]


@dataclass(frozen=True, slots=True)
class Change:
    """A setting of `cclbench whatif`: `read` makes a number of KEY=VALUE (as written) and VALUE, `UsageError`
    where it is none; `act` gives the changed graph, or why the setting touches nothing in the run."""

    key: str
    values: str
    definition: str
    read: Callable[[str, str], float]
    act: Act


CHANGES: Registry[Change] = Registry("setting", home="cclbench.replay.changes", group="cclbench.scenarios")


def change(
    key: str, *, values: str, definition: str, read: Callable[[str, str], float]
) -> Callable[[Act], Act]:
    """Register the function below as what a setting does; `values` are examples, with commas."""

    def register(act: Act) -> Act:
        CHANGES.add(key, Change(key, values, definition, read, act), origin=act.__module__)
        return act

    return register


def factor_of(text: str, value: str) -> float:
    """The factor that `x2` is, above 0; `text` is the whole setting, for the `UsageError`."""
    match = _FACTOR.fullmatch(value)
    factor = float(match[1]) if match else 0.0
    if not 0 < factor <= _LARGEST_FACTOR:
        limits = f"no factor above 0 and up to {_LARGEST_FACTOR:,.0f}, of 6 decimals at most"
        raise UsageError(f"{text}: {value!r} is {limits}", hint="such as x2 or x0.5")
    return factor


def share_of(text: str, value: str) -> float:
    """As `factor_of`, or 0, which `x0` and `none` are."""
    return 0.0 if value in ("x0", "×0", "none") else factor_of(text, value)


def word(wanted: str) -> Callable[[str, str], float]:
    """Reads that word alone, as 0."""

    def read(text: str, value: str) -> float:
        if value != wanted:
            raise UsageError(f"{text}: {value!r} is not {wanted!r}, the only value")
        return 0.0

    return read

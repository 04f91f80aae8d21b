# SPDX-License-Identifier: Apache-2.0
"""Changes that scenarios make to the graph itself: each is a function that registers itself.

    @change("kernels.all", values="x0.5, 0", definition="kernels take so many times as long", read=share_of)
    def all_kernels(subject: ChangeSubject, factor: float) -> Graph | str:
        nodes = subject.graph.nodes
        chosen = (nodes.kind == COMPUTE) & (subject.since >= 0)
        if not chosen.any():
            return "no kernel runs within the run's windows"
        dur = np.where(chosen, np.rint(nodes.dur * factor), nodes.dur).astype(np.int64)
        return replace(subject.graph, nodes=replace(nodes, dur=dur))

Ours are in `cclbench.replay.changes`, others register by an entry point of the group `cclbench.scenarios`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cclbench.ground.errors import CclbenchError, UsageError, near
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.registry import Registry, plugin_code
from cclbench.ground.units import parse_quantity, with_spaced_unit

if TYPE_CHECKING:
    from cclbench.machine import Machine
    from cclbench.record.run import Run
    from cclbench.replay.graph import Graph
    from cclbench.replay.kernel_costs import KernelCosts
    from cclbench.replay.layout import Dimension, Relayout

_FACTOR = re.compile(r"[x×](\d{1,7}(?:\.\d{1,6})?)")
_LARGEST_FACTOR: Final = 1e6
_LARGEST: Final[dict[str, tuple[float, str]]] = {"bandwidth": (1e14, "100 TB/s"), "time": (1.0, "1 s")}
"""Beyond these no link is: a unit is mistaken."""


@dataclass(frozen=True, slots=True, eq=False)
class ChangeSubject:
    """What a change acts on: the graph, and what else is known of the run.

    `since` is how long before each node begins its rank's windows had begun, ns, shape (nodes,), −1 outside
    of all windows, where nothing may change; `placed` each rank's place by parallel dimension; `groups` the
    ranks of each process group; `relayout` the layouts before and after, where the scenario changes how ranks
    are laid out, `dimensions` those of its groups by their ids, `settings` all that the scenario's changes
    are set to; `price` what a collective of that kind, of ranks of the new layout, of so many bytes takes
    under the scenario.
    """

    graph: Graph
    since: Int64
    placed: Mapping[str, Mapping[int, int]]
    run: Run
    machine: Machine
    groups: Mapping[str, tuple[int, ...]]
    relayout: Relayout | None
    dimensions: Mapping[str, Dimension]
    settings: Mapping[str, Any]
    price: CollectivePrice
    window_ns: int
    """Of all ranks' windows together."""
    costs: KernelCosts
    """FLOPs and bytes of the graph's kernels."""
    step: Int64
    """The step within which each node begins, −1 outside of all, shape (nodes,)."""

    @property
    def stage_roles(self) -> Int64:
        """By rank the pipeline stage whose ranks do the same work, −1 where there are no stages."""
        stages = self.placed.get("pp", {})
        ranks = int(self.graph.nodes.rank.max(initial=0)) + 1
        return np.array([stages.get(rank, -1) for rank in range(ranks)], np.int64)

    def window_share(self, chosen: Mask) -> float:
        """Which share of the ranks' windows those nodes take."""
        here = chosen & (self.since >= 0)
        nodes = self.graph.nodes
        return float((nodes.dur[here].sum() + nodes.busy[here].sum()) / max(self.window_ns, 1))


class TimeBounds(NamedTuple):
    """A time with its bounds, ns; `expected` is None where only these are known."""

    low: float
    expected: float | None
    high: float

    def times_count(self, count: float) -> TimeBounds:
        """As often."""
        middle = None if self.expected is None else self.expected * count
        return TimeBounds(self.low * count, middle, self.high * count)


class CollectivePrice(Protocol):
    """What a collective takes; `InputError` with what to supply where that is not known."""

    def __call__(self, kind: str, ranks: tuple[int, ...], nbytes: float) -> TimeBounds: ...


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """New over old time of each node, shape (nodes,): expected, and its bounds."""

    expected: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]

    @classmethod
    def by_factor(cls, factor: npt.NDArray[np.float64]) -> Scale:
        """A factor of which there is no doubt."""
        return cls(factor, factor, factor)


@dataclass(frozen=True, slots=True)
class AddedCommunication:
    """Communication that no node of the graph is: what it is called, and its time in a step."""

    what: str
    time: TimeBounds


@dataclass(frozen=True, slots=True, eq=False)
class LayoutEffect:
    """What a change of the layout does, besides what groups are: `scale` of nodes' times; by dimension
    factors on the `payload` of its transfers and on how many they are; what is `added` to a step; `fill`,
    which share of a stage's work filling and draining the pipeline adds; `hops`, how many more transfers
    between stages that is; `notes` on what is extrapolated."""

    graph: Graph
    scale: Scale | None = None
    payload: Mapping[Dimension | None, float] = field(default_factory=dict)
    repeats: Mapping[Dimension | None, float] = field(default_factory=dict)
    added: tuple[AddedCommunication, ...] = ()
    fill: float = 0.0
    hops: float = 0.0
    notes: tuple[str, ...] = ()


Priced = Literal["transfers", "kernels"]
Act = Callable[[ChangeSubject, Any], "Graph | LayoutEffect | str"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A new value of something: times `factor`, or `absolute` in base SI."""

    factor: float | None = None
    absolute: float | None = None


@dataclass(frozen=True, slots=True)
class ReplaySetting:
    """A setting of `cclbench whatif`: `read` makes of KEY=VALUE (as written) and VALUE what `act` takes,
    `UsageError` where it means nothing; `act` gives the changed graph, or why it touches nothing in the run.
    `keys` are those that name it, where they have parameters; `prices` is what takes another time on the
    hardware that it sets, where that is all it changes; `reads_file`: VALUE is the path of a file.
    """

    key: str
    values: str
    definition: str
    read: Callable[[str, str], Any]
    act: Act
    keys: re.Pattern[str] | None = None
    prices: Priced | None = None
    reads_file: bool = False

    def read_value(self, text: str, value: str) -> Any:
        """What `act` takes of KEY=VALUE (as written) and VALUE."""
        with plugin_code(self.act.__module__):
            return self.read(text, value)

    def change_graph(self, subject: ChangeSubject, value: Any) -> Graph | LayoutEffect | str:
        """What `act` gives; `PluginError` where that is nothing that can be replayed."""
        with plugin_code(self.act.__module__):
            made = self.act(subject, value)
            nodes = made.nodes if isinstance(made, type(subject.graph)) else None
            if nodes is None and not isinstance(made, LayoutEffect | str):
                raise TypeError(f"{self.key} gives neither a graph nor words, but {type(made).__name__}")
            if nodes is not None and len(nodes) and nodes.dur.min() < 0:
                raise ValueError(f"{self.key} gives nodes a negative duration")
        return made

    def is_named(self, key: str) -> bool:
        """Whether the key of a setting names it."""
        return key == self.key if self.keys is None else self.keys.fullmatch(key) is not None


CHANGES: Registry[ReplaySetting] = Registry(
    "setting", home="cclbench.replay.changes", group="cclbench.scenarios"
)


def change(
    key: str,
    *,
    values: str,
    definition: str,
    read: Callable[[str, str], Any],
    keys: re.Pattern[str] | None = None,
    prices: Priced | None = None,
    reads_file: bool = False,
) -> Callable[[Act], Act]:
    """Register the function below as what a setting does; `values` are examples, with commas.

    `keys` matches the keys of a setting with parameters, which `key` shows.  `reads_file` says that a value
    is the path of a file, which servers check before it is opened.
    """

    def register(act: Act) -> Act:
        made = ReplaySetting(key, values, definition, read, act, keys, prices, reads_file)
        CHANGES.add(key, made, origin=act.__module__)
        return act

    return register


def change_named(key: str) -> ReplaySetting:
    """The change that a setting's key names, whatever its parameters; `UsageError` where there is none."""
    for one in map(CHANGES.get, CHANGES):
        if one.is_named(key):
            return one
    raise UsageError(f"{key!r} is nothing that can be set", hint=near(key, CHANGES))


def factor_of(text: str, value: str) -> float:
    """The factor that `x2` is, above 0; `text` is the whole setting, for the `UsageError`."""
    match = _FACTOR.fullmatch(value)
    factor = float(match[1]) if match else 0.0
    if not 0 < factor <= _LARGEST_FACTOR:
        limits = f"no factor above 0 and up to {_LARGEST_FACTOR:,.0f}, of 6 decimals at most"
        raise UsageError(f"{text}: {value!r} is {limits}", hint="such as x2 or x0.5")
    return factor


def amount_of(text: str, value: str, dimension: Literal["bandwidth", "time"]) -> float:
    """The rate or time that `400Gb/s` or `5us` is, in base SI; `text` is the whole setting."""
    try:
        amount = parse_quantity(with_spaced_unit(value), dimension)
    except CclbenchError as error:
        raise UsageError(f"{text}: {error.what}", hint=error.hint) from None
    most, words = _LARGEST[dimension]
    if amount > most:
        raise UsageError(f"{text} is more than {words}", hint="is the unit right?")
    return amount


def time_of(text: str, value: str) -> int:
    """The time that `25ms` is, ns."""
    return round(amount_of(text, value, "time") * 1e9)


def share_of(text: str, value: str) -> float:
    """As `factor_of`, or 0, which `0`, `x0` and `none` are."""
    return 0.0 if value in ("0", "x0", "×0", "none") else factor_of(text, value)


def count_of(text: str, value: str) -> int:
    """The whole number from 1 on that `64` is."""
    if not re.fullmatch(r"[1-9]\d{0,8}", value):
        raise UsageError(f"{text}: {value!r} is no whole number from 1 on", hint="such as 64")
    return int(value)


def read_word(wanted: str) -> Callable[[str, str], float]:
    """Reads that word alone, as 0."""

    def read_value(text: str, value: str) -> float:
        if value != wanted:
            raise UsageError(f"{text}: {value!r} is not {wanted!r}, the only value")
        return 0.0

    return read_value

# SPDX-License-Identifier: Apache-2.0
"""Registered changes that scenarios make to the graph.

    @change("kernels.all", values="x0.5, 0", definition="kernels take so many times as long", read=share_of)
    def all_kernels(subject: ChangeSubject, factor: float) -> Graph | str:
        nodes = subject.graph.nodes
        chosen = (nodes.kind == COMPUTE) & (subject.since >= 0)
        if not chosen.any():
            return "no kernel runs within the run's windows"
        dur = np.where(chosen, np.rint(nodes.dur * factor), nodes.dur).astype(np.int64)
        return replace(subject.graph, nodes=replace(nodes, dur=dur))

Built-in ones are in `cclbench.replay.changes`; packages register others by entry points of the group
`cclbench.scenarios`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
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
"""Beyond these limits a unit is mistaken."""


@dataclass(frozen=True, slots=True, eq=False)
class ChangeSubject:
    """Input of a change: the graph, and facts about the run.

    `since`: time from the start of the rank's window to each node, ns, shape (nodes,), −1 outside windows,
    where nothing may change; `placed`: each rank's coordinate by parallel dimension; `groups`: ranks of each
    process group; `relayout`: layouts before and after, if the scenario changes the layout; `dimensions`: by
    group id; `settings`: values of all of the scenario's settings; `price`: time of a collective of a kind,
    ranks of the new layout and bytes under the scenario.
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
    """Total of all ranks' windows."""
    costs: KernelCosts
    """FLOPs and bytes of the graph's kernels."""
    step: Int64
    """The step in which each node begins, −1 outside steps, shape (nodes,)."""

    @property
    def stage_roles(self) -> Int64:
        """Pipeline stage of each rank, −1 without stages, shape (ranks,)."""
        stages = self.placed.get("pp", {})
        ranks = int(self.graph.nodes.rank.max(initial=0)) + 1
        return np.array([stages.get(rank, -1) for rank in range(ranks)], np.int64)

    def window_share(self, chosen: Mask) -> float:
        """Share of the ranks' windows that the chosen nodes take."""
        counted = chosen & (self.since >= 0)
        nodes = self.graph.nodes
        return float((nodes.dur[counted].sum() + nodes.busy[counted].sum()) / max(self.window_ns, 1))


class TimeBounds(NamedTuple):
    """A time with bounds, ns; `expected` is None where only bounds are known.  `marks`: of weak classes."""

    low: float
    expected: float | None
    high: float
    marks: tuple[str, ...] = ()

    @classmethod
    def total(cls, times: Iterable[TimeBounds]) -> TimeBounds:
        """The sum of times; only bounds where one has no more."""
        low, expected, high = 0.0, 0.0, 0.0
        stated, marks = True, dict[str, None]()
        for time in times:
            marks |= dict.fromkeys(time.marks)
            low, high = low + time.low, high + time.high
            expected, stated = expected + (time.expected or 0.0), stated and time.expected is not None
        return cls(low, expected if stated else None, high, tuple(marks))

    def times_count(self, count: float) -> TimeBounds:
        """The time of `count` repetitions."""
        middle = None if self.expected is None else self.expected * count
        return TimeBounds(self.low * count, middle, self.high * count, self.marks)


class CollectivePrice(Protocol):
    """Time of a collective; `InputError` with what to supply where it is unknown."""

    def __call__(self, kind: str, ranks: tuple[int, ...], nbytes: float) -> TimeBounds: ...


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """New over old time of each node, shape (nodes,): expected and bounds."""

    expected: npt.NDArray[np.float64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]

    @classmethod
    def by_factor(cls, factor: npt.NDArray[np.float64]) -> Scale:
        """A factor without uncertainty."""
        return cls(factor, factor, factor)


class PlacedTransfer(NamedTuple):
    """A transfer that a new layout adds to a rank's graph: kind, number of ranks, bytes, and its time.

    `after`: the node with whose end it can begin; `before`: the node that waits for it, −1 for none.
    """

    rank: int
    kind: str
    ranks: int
    nbytes: float
    time: TimeBounds
    after: int
    before: int


@dataclass(frozen=True, slots=True)
class AddedCommunication:
    """Communication that is not in the graph: its description, its time in a step, and its transfers if
    their places in the graph are known; if not, the time is added to the step.

    `in_stage`: a stage does it for each micro-batch, so that it also takes time while a pipeline fills.
    """

    what: str
    time: TimeBounds
    placed: tuple[PlacedTransfer, ...] = ()
    in_stage: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LayoutEffect:
    """Effect of a change of the layout, besides the groups. `scale`: of nodes' times; `payload`, `repeats`:
    factors by dimension on the bytes and the number of transfers; `added`: communication added to a step;
    `fill`: pipeline filling and draining as a share of a stage's work; `hops`: additional transfers between
    stages; `notes`: what is extrapolated."""

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
    """A setting of `cclbench whatif`. `read` parses KEY=VALUE (as written) and VALUE for `act`, or raises
    `UsageError`; `act` returns the changed graph, or why the setting does not affect the run.
    `keys`: pattern of keys with parameters; `prices`: what takes another time on the hardware that it sets,
    if that is all it changes; `reads_file`: VALUE is a file path.
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
            effect = self.act(subject, value)
            nodes = effect.nodes if isinstance(effect, type(subject.graph)) else None
            if nodes is None and not isinstance(effect, LayoutEffect | str):
                raise TypeError(f"{self.key} gives neither a graph nor words, but {type(effect).__name__}")
            if nodes is not None and len(nodes) and nodes.dur.min() < 0:
                raise ValueError(f"{self.key} gives nodes a negative duration")
            if nodes is not None and nodes.dur.dtype != np.int64:
                raise TypeError(f"{self.key} gives durations of {nodes.dur.dtype}, not int64 nanoseconds")
        return effect

    def is_named(self, key: str) -> bool:
        """Whether a key names this setting."""
        return key == self.key if self.keys is None else self.keys.fullmatch(key) is not None


def _require_shown(setting: ReplaySetting) -> None:
    """`UsageError` where `cclbench list settings` could not show how to write the setting."""
    if not setting.is_named(setting.key):
        raise UsageError(f"setting {setting.key!r}: keys does not match that example of a key")
    if not (setting.values and setting.definition):
        raise UsageError(f"setting {setting.key!r}: values or definition is empty")


CHANGES: Registry[ReplaySetting] = Registry(
    "setting", home="cclbench.replay.changes", group="cclbench.scenarios", validate=_require_shown
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
    """Register the decorated function as the effect of a setting; `values`: examples, separated by commas.

    `keys`: pattern of keys with parameters, which `key` shows. `reads_file`: a value is a file path, which
    servers check before it is opened.
    """

    def register(act: Act) -> Act:
        setting = ReplaySetting(key, values, definition, read, act, keys, prices, reads_file)
        CHANGES.add(key, setting, origin=act.__module__)
        return act

    return register


def change_named(key: str) -> ReplaySetting:
    """The setting that a key names, with any parameters; `UsageError` where there is none."""
    for setting in map(CHANGES.get, CHANGES):
        if setting.is_named(key):
            return setting
    raise UsageError(f"there is no setting {key!r}", hint=near(key, CHANGES))


def factor_of(text: str, value: str) -> float:
    """Parse a factor above 0, such as `x2`; `text`: the whole setting, for the `UsageError`."""
    match = _FACTOR.fullmatch(value)
    factor = float(match[1]) if match else 0.0
    if not 0 < factor <= _LARGEST_FACTOR:
        limits = f"not a factor above 0 and up to {_LARGEST_FACTOR:,.0f} with at most 6 decimals"
        raise UsageError(f"{text}: {value!r} is {limits}", hint="such as x2 or x0.5")
    return factor


def amount_of(text: str, value: str, dimension: Literal["bandwidth", "time"]) -> float:
    """Parse a rate or time, such as `400Gb/s` or `5us`, in base SI; `text`: the whole setting."""
    try:
        amount = parse_quantity(with_spaced_unit(value), dimension)
    except CclbenchError as error:
        raise UsageError(f"{text}: {error.what}", hint=error.hint) from None
    most, words = _LARGEST[dimension]
    if amount > most:
        raise UsageError(f"{text} is more than {words}", hint="is the unit right?")
    return amount


def time_of(text: str, value: str) -> int:
    """Parse a time, such as `25ms`, ns."""
    return round(amount_of(text, value, "time") * 1e9)


def share_of(text: str, value: str) -> float:
    """As `factor_of`, or 0, which `0`, `x0` and `none` are."""
    return 0.0 if value in ("0", "x0", "×0", "none") else factor_of(text, value)


def count_of(text: str, value: str) -> int:
    """Parse a positive integer, such as `64`."""
    if not re.fullmatch(r"[1-9]\d{0,8}", value):
        raise UsageError(f"{text}: {value!r} is not a whole number from 1 to 999,999,999", hint="such as 64")
    return int(value)


def read_choice(*words: str) -> Callable[[str, str], int]:
    """A parser that accepts only these words, each as its index."""

    def read_value(text: str, value: str) -> int:
        if value not in words:
            key, _, _ = text.partition("=")
            raise UsageError(f"{text}: {key} cannot be {value!r}", hint=f"use {' or '.join(words)}")
        return words.index(value)

    return read_value

# SPDX-License-Identifier: Apache-2.0
"""Nodes that a setting selects, and its effect on their time.

    [rank[R].][step[S].]NOUN[[CONDITION&CONDITION]].MEASURE=VALUE

    kernels[gemm].time=x0.5                     kernels of a category take half the time
    rank[3].kernels.time=median                 kernels of one rank take their median over ranks
    transfers[all_reduce&group=0-3|4-7].time=0  collectives of a kind and groups take no time
    copies[h2d].bandwidth=x2                    copies of a direction have twice the bandwidth
    host[sync].time=0                           the host never waits for the device
    kernels[chain=norm].time=fused              chains of calls become one kernel each
    kernels[recomputed].time=0                  forward operators do not run again for the backward pass
    kernels[name~sgemm].time=roofline           kernels take their roofline time

A `time` of x2 is twice as long, a `bandwidth` of x2 half as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from cclbench.ground.errors import UsageError, near
from cclbench.ground.intervals import Mask
from cclbench.ground.schema import CATEGORIES, COLLECTIVE_KINDS
from cclbench.operators.chains import KINDS
from cclbench.replay import nodes as n
from cclbench.replay.change import Act, ChangeSubject, change, factor_of
from cclbench.replay.tables import DIRECTIONS

Measure = Literal["time", "bandwidth", "gap"]
Statistic = Literal["median", "mean", "fastest", "usual", "roofline", "tensor_cores", "fused"]

MEASURES: Final[dict[str, tuple[Measure, ...]]] = {
    "kernels": ("time", "gap"),
    "copies": ("time", "bandwidth"),
    "transfers": ("time",),
    "host": ("time",),
}
"""Measures of each noun."""
STATISTICS: Final[dict[str, tuple[Statistic, ...]]] = {
    "kernels": ("median", "mean", "fastest", "roofline", "tensor_cores", "fused"),
    "copies": ("median",),
    "transfers": ("median",),
    "host": ("median", "usual"),
}
"""Values of a noun's time other than factors."""
_KEYS: Final = (
    r"(?:rank\[(?P<ranks>[^\]]*)\]\.)?(?:step\[(?P<steps>[^\]]*)\]\.)?"
    r"(?P<noun>NOUN)(?:\[(?P<where>.*)\])?\.(?P<measure>MEASURE)"
)
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_LONGEST: Final = 100_000
"""Most characters of a condition."""


@dataclass(frozen=True, slots=True)
class TimeAmount:
    """A factor on a time, or a statistic in its place."""

    factor: float | None = None
    statistic: Statistic | None = None


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The nodes that a setting acts on; None does not narrow.

    `words`: kernel categories, collective kinds, copy directions, or causes of host time.
    """

    noun: str
    measure: Measure
    ranks: tuple[range, ...] | None = None
    steps: range | None = None
    words: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    name: re.Pattern[str] | None = None
    chain: str | None = None
    recomputed: bool = False

    @property
    def narrows_kernels(self) -> bool:
        """Whether conditions exclude some kernels."""
        return self.recomputed or any((self.words, self.name, self.chain))

    def nodes_in_windows(self, subject: ChangeSubject) -> Mask:
        """Mask of the nodes of the chosen ranks and steps within windows, shape (nodes,)."""
        nodes = subject.graph.nodes
        chosen = subject.since >= 0
        if self.ranks is not None:
            replayed_ranks = [windowed.rank for windowed in subject.graph.windowed]
            chosen_ranks = [
                rank for rank in replayed_ranks if any(rank in rank_range for rank_range in self.ranks)
            ]
            if not chosen_ranks:
                listed = "+".join(f"{rank_range.start}-{rank_range.stop - 1}" for rank_range in self.ranks)
                raise UsageError(
                    f"the replay has no rank {listed}", hint=f"it has {len(replayed_ranks)} ranks"
                )
            chosen &= np.isin(nodes.rank, chosen_ranks)
        if self.steps is not None:
            step = subject.step
            chosen &= (step >= self.steps.start) & (step < self.steps.stop)
        return np.asarray(chosen)

    def selected_nodes(self, subject: ChangeSubject) -> Mask:
        """Mask of the selected kernels, copies or transfers, shape (nodes,)."""
        graph, nodes = subject.graph, subject.graph.nodes
        kind = {"kernels": n.COMPUTE, "copies": n.COPY, "transfers": n.TRANSFER}[self.noun]
        chosen = self.nodes_in_windows(subject) & (nodes.kind == kind)
        if self.name is not None:
            fits = [self.name.search(name) is not None for name in graph.names]
            chosen &= np.array([*fits, False], np.bool_)[nodes.name]
        if self.noun == "kernels" and self.words is not None:
            fits = [category in self.words for category in graph.categories]
            chosen &= np.array([*fits, False], np.bool_)[nodes.category]
        if self.chain is not None:
            chosen &= subject.costs.node_costs.chain[0] == [*KINDS].index(self.chain)
        if self.recomputed:
            chosen &= subject.costs.node_costs.recomputed
        if self.noun == "copies" and self.words is not None:
            chosen &= np.isin(nodes.direction, [DIRECTIONS.index(word) for word in self.words])
        if self.noun == "transfers" and (self.words is not None or self.groups is not None):
            calls = graph.transfers
            fits = [
                (self.words is None or kind in self.words) and (self.groups is None or group in self.groups)
                for kind, group in zip(calls.kind, calls.group, strict=True)
            ]
            chosen &= np.array([*fits, False], np.bool_)[nodes.call]
        return np.asarray(chosen)


def parse_selection(key: str) -> NodeSelection:
    """Parse the selection of a setting's key; `UsageError` where it is invalid."""
    match = _keys("|".join(MEASURES), "[a-z_]+").fullmatch(key)
    if match is None or match["measure"] not in MEASURES[match["noun"]]:
        raise UsageError(f"{key!r} selects nothing", hint="such as rank[3].kernels[gemm].time=x0.5")
    noun, measure = match["noun"], match["measure"]
    conditions: dict[str, str] = {}
    for condition in [] if match["where"] is None else match["where"].split("&"):
        field, text = _parse_condition(noun, condition)
        if field in conditions or not text or len(text) > _LONGEST:
            raise UsageError(f"{key}: {condition!r} is not a condition of {noun}", hint=_example_words(noun))
        conditions[field] = text
    return NodeSelection(
        noun=noun,
        measure=MEASURES[noun][MEASURES[noun].index(measure)],
        ranks=None if match["ranks"] is None else _parse_ranges(key, match["ranks"]),
        steps=None if match["steps"] is None else _parse_steps(key, match["steps"]),
        words=_split_words(key, noun, conditions["words"]) if "words" in conditions else None,
        groups=tuple(conditions["group"].split("|")) if "group" in conditions else None,
        name=_parse_pattern(key, conditions["name"]) if "name" in conditions else None,
        chain=_check_chain(key, conditions["chain"]) if "chain" in conditions else None,
        recomputed="recomputed" in conditions,
    )


def _parse_condition(noun: str, text: str) -> tuple[str, str]:
    """Field and value of a condition such as `gemm`, `group=0-3` or `name~sgemm`."""
    if noun == "transfers" and text.startswith("group="):
        return "group", text.removeprefix("group=")
    if noun == "kernels" and text.startswith("chain="):
        return "chain", text.removeprefix("chain=")
    if noun == "kernels" and text == "recomputed":
        return "recomputed", text
    if noun != "host" and text.startswith("name~"):
        return "name", text.removeprefix("name~")
    return "words", text


def _split_words(key: str, noun: str, text: str) -> tuple[str, ...]:
    words = words_of(noun)
    for word in text.split("+"):
        if word not in words:
            raise UsageError(f"{key}: {noun} have no {word!r}", hint=near(word, words))
    return tuple(text.split("+"))


def words_of(noun: str) -> Sequence[str]:
    """The words that a noun's conditions may use."""
    return {
        "kernels": [category for category in CATEGORIES if category != "communication"],
        "copies": DIRECTIONS,
        "transfers": COLLECTIVE_KINDS,
        "host": n.HOST_CAUSES,
    }[noun]


def _check_chain(key: str, text: str) -> str:
    if text not in KINDS:
        raise UsageError(f"{key}: there is no chain {text!r}", hint=near(text, [*KINDS]))
    return text


def _parse_pattern(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{key}: {text!r} is not a regular expression: {error}") from None


def _example_words(noun: str) -> str:
    more = {"transfers": ", group=0-3, name~ncclDevKernel", "host": ""}.get(noun, ", name~sgemm")
    return f"such as {noun}[{words_of(noun)[0]}]{more}; several with &"


def _parse_ranges(key: str, text: str) -> tuple[range, ...]:
    ranges = []
    for part in text.split("+"):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise UsageError(f"{key}: {part!r} is not a rank", hint="such as rank[3], rank[0-7] or rank[0+4]")
        ranges.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(ranges)


def _parse_steps(key: str, text: str) -> range:
    match = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text)
    if match is None or (match[2] and int(match[2]) <= int(match[1])):
        raise UsageError(f"{key}: {text!r} is not a range of steps", hint="such as step[3] or step[3:8]")
    return range(int(match[1]), int(match[2] or int(match[1]) + 1))


def node_change(key: str, *, values: str, definition: str) -> Callable[[Act], Act]:
    """`change` for NOUN.MEASURE, whose keys select nodes; its values are (`NodeSelection`, `TimeAmount`)."""
    return change(key, values=values, definition=definition, read=read_setting, keys=_keys(*key.split(".")))


def _keys(noun: str, measure: str) -> re.Pattern[str]:
    return re.compile(_KEYS.replace("NOUN", noun).replace("MEASURE", measure), re.DOTALL)


def read_setting(text: str, value: str) -> tuple[NodeSelection, TimeAmount]:
    """Parse `rank[3].kernels[gemm].time=x0.5`, of which `value` is the last part."""
    selected = parse_selection(text[: -len(value)].rstrip().removesuffix("=").rstrip())
    return selected, _parse_amount(selected, text, value)


def _parse_amount(selected: NodeSelection, text: str, value: str) -> TimeAmount:
    if selected.measure == "bandwidth":
        return TimeAmount(factor=1 / factor_of(text, value))
    statistics = [] if selected.measure == "gap" else list(STATISTICS[selected.noun])
    if value in statistics:
        return TimeAmount(statistic=statistics[statistics.index(value)])
    if value in ("0", "x0", "×0"):
        return TimeAmount(factor=0.0)
    if value[:1] in ("x", "×"):
        return TimeAmount(factor=factor_of(text, value))
    raise UsageError(
        f"{text}: {value!r} is not a time", hint=f"such as {', '.join(['x0.5', '0', *statistics])}"
    )

# SPDX-License-Identifier: Apache-2.0
"""`scale_up.bandwidth=x2`, `system=dgx-h200`: other links, machine, accelerator or algorithm.

The graph stays the same: `pricing` computes times on the other hardware relative to the run's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import numpy as np

from cclbench.ground.errors import UsageError, near
from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.hardware import catalog
from cclbench.hardware.collectives import ALGORITHMS
from cclbench.machine import Tier
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, Quantity, amount_of, change, factor_of
from cclbench.replay.graph import Graph

_MOST_DIGITS: Final = 6


class ChosenAlgorithm(NamedTuple):
    """The algorithm of a collective kind."""

    kind: str
    algorithm: str


def _quantity(dimension: Literal["bandwidth", "time"]) -> Callable[[str, str], Quantity]:
    """A parser of a factor, or of a value with its unit."""

    def read(text: str, value: str) -> Quantity:
        if value[0] in "x×":
            return Quantity(factor=factor_of(text, value))
        return Quantity(absolute=amount_of(text, value, dimension))

    return read


def _fabric(text: str, value: str) -> str:
    """Parse the id of a fabric of the key's tier."""
    tier, chosen = text.partition("=")[0].strip(), catalog.fabric(value)
    if chosen.tier != tier:
        fits = ", ".join(name for name, fabric in catalog.fabrics().items() if fabric.tier == tier)
        raise UsageError(f"{tier}={value}: {value} is a {chosen.tier} fabric", hint=f"{tier} fabrics: {fits}")
    return chosen.id


def _system(text: str, value: str) -> str:
    """Parse the id of a system."""
    del text
    return catalog.system(value).id


def _accelerator(text: str, value: str) -> str:
    """Parse an accelerator's id, or a word that only one id has: `h200`."""
    del text
    matching = [name for name in catalog.accelerators() if f"-{value}-" in f"-{name}-"]
    return matching[0] if len(matching) == 1 else catalog.accelerator(value).id


def _accelerator_count(text: str, value: str) -> int:
    """Parse a number of accelerators."""
    if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS and int(value) > 0):
        raise UsageError(f"{text}: not a number of accelerators", hint="such as scale_up.domain=72")
    return int(value)


def _algorithm(text: str, value: str) -> ChosenAlgorithm:
    """Parse the key's collective kind, and an algorithm."""
    key = text.partition("=")[0].strip()
    kind = key.partition(".")[2]
    if kind not in COLLECTIVE_KINDS:
        raise UsageError(f"there is no collective {kind!r}", hint=near(kind, COLLECTIVE_KINDS))
    if value not in ALGORITHMS:
        raise UsageError(f"{key}={value}: there is no algorithm {value!r}", hint=near(value, ALGORITHMS))
    return ChosenAlgorithm(kind, value)


@change(
    "scale_up.bandwidth",
    values="x2, 900GB/s",
    definition="line rate of the links within a node",
    read=_quantity("bandwidth"),
    prices="transfers",
)
@change(
    "scale_up.latency",
    values="x0.5",
    definition="latency of every hop within a node",
    read=_quantity("time"),
    prices="transfers",
)
@change(
    "scale_up",
    values="nvlink5",
    definition="another fabric of the catalog within a node",
    read=_fabric,
    prices="transfers",
)
def scale_up(subject: ChangeSubject, value: Quantity | str) -> Graph | str:
    """The graph, if a collective stays within a node."""
    del value
    return _across(subject, "scale_up")


@change(
    "scale_out.bandwidth",
    values="x2, 400Gb/s",
    definition="line rate of the interfaces between nodes",
    read=_quantity("bandwidth"),
    prices="transfers",
)
@change(
    "scale_out.latency",
    values="x0.5, 5us",
    definition="latency that network software adds to a hop between nodes",
    read=_quantity("time"),
    prices="transfers",
)
@change(
    "scale_out",
    values="infiniband-ndr",
    definition="another fabric of the catalog between nodes",
    read=_fabric,
    prices="transfers",
)
def scale_out(subject: ChangeSubject, value: Quantity | str) -> Graph | str:
    """The graph, if a collective crosses nodes."""
    del value
    return _across(subject, "scale_out")


@change(
    "system", values="dgx-h200", definition="another machine of the catalog", read=_system, prices="transfers"
)
def system(subject: ChangeSubject, value: str) -> Graph | str:
    """The graph, if it has collectives."""
    del value
    return subject.graph if _collectives(subject) else "the run has no collectives"


@change(
    "scale_up.domain",
    values="8, 72",
    definition="accelerators that the links connect, a multiple of those in a node, behind switches",
    read=_accelerator_count,
    prices="transfers",
)
def scale_up_domain(subject: ChangeSubject, value: int) -> Graph | str:
    """The graph, if it has collectives."""
    del value
    return subject.graph if _collectives(subject) else "the run has no collectives"


@change(
    "collective.<kind>",
    values="tree",
    definition="another algorithm for this kind of collective",
    read=_algorithm,
    keys=re.compile(r"collective\..*", re.DOTALL),
    prices="transfers",
)
def algorithm(subject: ChangeSubject, value: ChosenAlgorithm) -> Graph | str:
    """The graph, if it has collectives of this kind."""
    kinds = {kind for kind, _ in _collectives(subject)}
    if not kinds:
        return "the run has no collectives"
    return subject.graph if kinds & {value.kind, None} else f"the run has no {value.kind}"


@change(
    "accelerator",
    values="h200",
    definition="another accelerator of the catalog, on the same network: kernels scale by FLOPs and bytes,"
    " at the rates that shipped captures attain",
    read=_accelerator,
    prices="kernels",
)
def accelerator(subject: ChangeSubject, value: str) -> Graph | str:
    """The graph, if a rank computes."""
    del value
    nodes = subject.graph.nodes
    computes = ((nodes.kind == n.COMPUTE) | (nodes.busy > 0)).any()
    return subject.graph if computes else "no rank of the replay computes"


def _across(subject: ChangeSubject, tier: Tier) -> Graph | str:
    members = [ranks for _, ranks in _collectives(subject)]
    if not members:
        return "the run has no collectives"
    tiers = {None if ranks is None else subject.machine.tier_of(ranks).value for ranks in members}
    return subject.graph if tiers & {tier, None} else f"no collective of the run crosses {tier}"


def _collectives(subject: ChangeSubject) -> list[tuple[str | None, tuple[int, ...] | None]]:
    """Kind and members of the graph's transfers among several ranks; None where unknown."""
    calls, nodes = subject.graph.transfers, subject.graph.nodes
    used = np.unique(nodes.call[nodes.kind == n.TRANSFER]).tolist()
    words = {(calls.kind[call], calls.group[call]) for call in used}
    members = [(kind, subject.groups.get(group or "")) for kind, group in words]
    return [(kind, ranks) for kind, ranks in members if ranks is None or len(ranks) > 1]

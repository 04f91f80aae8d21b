# SPDX-License-Identifier: Apache-2.0
"""Scenarios, parsed from settings such as `scale_up.bandwidth=x2`.

scale_up.bandwidth=x2          line rate within a node, twice; or a rate: =450GB/s
scale_out.latency=5us          latency of a hop between nodes; or a factor: =x0.5
scale_out=infiniband-ndr       another fabric of the catalog
scale_up.domain=72             accelerators that the links connect
system=dgx-h200                another machine of the catalog
accelerator=nvidia-h200-sxm    another accelerator, same network
collective.all_reduce=tree     another algorithm
rank[3].kernels.time=x0.9      kernels take 0.9 of their time on rank 3 (`replay.selection`)
overlap=off, buckets=4         and others, see `changes`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from cclbench.ground.errors import UsageError
from cclbench.machine import Tier
from cclbench.replay.change import CHANGES, Quantity, change_named, factor_of

TIERS: Final[tuple[Tier, ...]] = ("scale_up", "scale_out")
_SWEEP = re.compile(r"([x×][\d.]+)\.\.([x×][\d.]+)")
_MOST_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True)
class Scenario:
    """Settings to replay a run with; `label`: as requested, `texts`: the settings as KEY=VALUE."""

    label: str
    texts: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    """Parsed values by key."""

    @property
    def moves_communication(self) -> bool:
        """Whether transfer times change."""
        return any(change_named(key).prices == "transfers" for key in self.changes)

    def quantity(self, tier: Tier, what: Literal["bandwidth", "latency"]) -> Quantity | None:
        """The new bandwidth or latency of a tier's links; None where unchanged."""
        return self.changes.get(f"{tier}.{what}")

    @property
    def needs_system(self) -> str | None:
        """A key that needs a machine of the catalog; None where factors suffice."""
        for key, value in self.changes.items():
            factor = isinstance(value, Quantity) and value.factor is not None
            if change_named(key).prices == "transfers" and not factor:
                return key
        return None


def parse_scenario(texts: Sequence[str], label: str | None = None) -> Scenario:
    """The scenario of these settings; `UsageError` for an invalid one."""
    scenario = Scenario(label or ", ".join(texts))
    for text in texts:
        key, value = key_and_value(text)
        if not value:
            raise UsageError(f"{text!r} is not KEY=VALUE", hint=f"keys: {', '.join(CHANGES)}")
        read = change_named(key).read_value(f"{key}={value}", value)
        if key in scenario.changes:
            raise UsageError(f"{key} is set twice", hint="other values may be scenarios of their own")
        scenario = replace(
            scenario, changes=scenario.changes | {key: read}, texts=(*scenario.texts, f"{key}={value}")
        )
    return scenario


def key_and_value(text: str) -> tuple[str, str]:
    """The two sides of KEY=VALUE; an empty value if missing. Conditions of a key may contain a `=`."""
    conditions, bracket, rest = text.rpartition("]")
    key, _, value = rest.partition("=")
    return f"{conditions}{bracket}{key}".strip(), value.strip()


def split_settings(text: str) -> list[str]:
    """Split settings at commas, except within brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]" and depth > 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def parse_sweep(text: str) -> Iterator[tuple[float, str]]:
    """The factors of KEY=xA..xB, each twice the previous one, and their settings."""
    key, value = key_and_value(text)
    match = _SWEEP.fullmatch(value)
    if match is None:
        raise UsageError(f"{text!r} is not KEY=xA..xB", hint="such as scale_out.bandwidth=x0.25..x8")
    low, high = (factor_of(text, match[i]) for i in (1, 2))
    if low >= high or high / low > 1 << _MOST_DOUBLINGS:
        most = f"{1 << _MOST_DOUBLINGS:,}"
        raise UsageError(f"{text!r}: xA must be less than xB, and xB at most {most} times xA")
    factor = low
    while factor < high * 0.999:
        yield factor, f"{key}=x{factor:g}"
        factor *= 2
    yield high, f"{key}=x{high:g}"

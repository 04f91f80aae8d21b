# SPDX-License-Identifier: Apache-2.0
"""What changes: texts such as `scale_up.bandwidth=x2`, read into a scenario.

scale_up.bandwidth=x2          line rate inside a node, twice; or a rate: =450GB/s
scale_out.latency=5us          latency of a hop between nodes; or a factor: =x0.5
scale_out=infiniband-ndr       another fabric of the catalog
system=dgx-h200                another machine of the catalog
accelerator=nvidia-h200-sxm    another accelerator, same network
collective.all_reduce=tree     another algorithm
rank[3].kernels.time=x0.9      kernels take 0.9 of their time on rank 3 (`replay.selection`)
overlap=off, buckets=4         and others, each a file of `changes`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from cclbench.errors import UsageError, near
from cclbench.hardware import catalog
from cclbench.hardware.collectives import ALGORITHMS
from cclbench.machine import Tier
from cclbench.replay.change import CHANGES, SELECTING, amount_of, factor_of, named
from cclbench.schema import COLLECTIVE_KINDS

TIERS: Final[tuple[Tier, ...]] = ("scale_up", "scale_out")
_SWEEP = re.compile(r"([x×][\d.]+)\.\.([x×][\d.]+)")
KEYS: Final = {
    "scale_up.bandwidth": ("x2, 900GB/s", "line rate of the links inside a node"),
    "scale_out.bandwidth": ("x2, 400Gb/s", "line rate of the interfaces between nodes"),
    "scale_up.latency": ("x0.5", "latency of every step inside a node"),
    "scale_out.latency": ("x0.5, 5us", "what the network's software adds to a hop between nodes"),
    "scale_up": ("nvlink5", "another fabric of the catalog inside a node"),
    "scale_out": ("infiniband-ndr", "another fabric of the catalog between nodes"),
    "system": ("dgx-h200", "another machine of the catalog"),
    "accelerator": ("h200", "another accelerator of the catalog, on the same network"),
    "collective.<kind>": ("tree", "another algorithm of that kind of collectives"),
}
"""Examples of values, and what each sets; others are registered (`CHANGES`)."""
RENAMED: Final = {
    "compute": "kernels.time",
    "host": "host.time",
    "loader": "host[loader].time=0",
    "copies": "copies.bandwidth",
    "straggler": "kernels.time=median",
}
"""Keys of earlier versions, and what takes their place."""
_MOST_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True)
class Quantity:
    """A new value of something: times `factor`, or `absolute` in base SI."""

    factor: float | None = None
    absolute: float | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is different from the run; `label` is how it was asked for, `texts` the settings as KEY=VALUE."""

    label: str
    texts: tuple[str, ...] = ()
    bandwidth: dict[Tier, Quantity] = field(default_factory=dict)
    latency: dict[Tier, Quantity] = field(default_factory=dict)
    fabric: dict[Tier, str] = field(default_factory=dict)
    system: str | None = None
    accelerator: str | None = None
    algorithm: dict[str, str] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    """Values of the registered changes, by their keys."""

    @property
    def moves_communication(self) -> bool:
        """Whether transfers take another time."""
        return bool(self.bandwidth or self.latency or self.fabric or self.system or self.algorithm)

    @property
    def settings(self) -> tuple[str, ...]:
        """The keys that it sets."""
        return (
            *(f"{tier}.bandwidth" for tier in self.bandwidth),
            *(f"{tier}.latency" for tier in self.latency),
            *self.fabric,
            *(["system"] if self.system else []),
            *(["accelerator"] if self.accelerator else []),
            *(f"collective.{kind}" for kind in self.algorithm),
            *self.changes,
        )

    @property
    def needs_system(self) -> str | None:
        """What in it can only be priced on a machine of the catalog, None where factors suffice."""
        absolute = [
            f"{tier}.{name}"
            for name, of in (("bandwidth", self.bandwidth), ("latency", self.latency))
            for tier, quantity in of.items()
            if quantity.absolute is not None
        ]
        fabrics = [str(tier) for tier in self.fabric]
        algorithms = [f"collective.{kind}" for kind in self.algorithm]
        return next(iter([*absolute, *fabrics, *algorithms, *(["system"] if self.system else [])]), None)


def scenario(texts: Sequence[str], label: str | None = None) -> Scenario:
    """The scenario of these settings together; `UsageError` for one that means nothing."""
    found = Scenario(label or ", ".join(texts))
    for text in texts:
        key, value = key_and_value(text)
        if not value:
            raise UsageError(f"{text!r} is not KEY=VALUE", hint=f"keys: {', '.join([*KEYS, *CHANGES])}")
        more = _changed(found, key, value)
        if len(more.settings) == len(found.settings):
            raise UsageError(f"{key} is set twice", hint="other values may be scenarios of their own")
        found = replace(more, texts=(*found.texts, f"{key}={value}"))
    return found


def key_and_value(text: str) -> tuple[str, str]:
    """The two sides of KEY=VALUE; no value where there is none.  Conditions of a key may hold a `=`."""
    key, _, value = text.rpartition("=") if "]" in text else text.partition("=")
    return key.strip(), value.strip()


def split_settings(text: str) -> list[str]:
    """Settings that commas separate, but for commas within brackets, as of names and groups."""
    found, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]" and depth > 0)
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return found


def sweep(text: str) -> Iterator[tuple[float, str]]:
    """The factors of KEY=xA..xB, each twice the one before, and the setting of each."""
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


def _changed(found: Scenario, key: str, value: str) -> Scenario:
    tier, _, what = key.partition(".")
    for known in TIERS:
        if tier == known and what == "bandwidth":
            return replace(found, bandwidth=found.bandwidth | {known: _quantity(key, value, "bandwidth")})
        if tier == known and what == "latency":
            return replace(found, latency=found.latency | {known: _quantity(key, value, "time")})
        if key == known:
            return replace(found, fabric=found.fabric | {known: _fabric(known, value)})
    if key == "system":
        return replace(found, system=catalog.system(value).id)
    if key == "accelerator":
        return replace(found, accelerator=_accelerator(value))
    if tier == "collective":
        if what not in COLLECTIVE_KINDS:
            raise UsageError(f"there is no collective {what!r}", hint=near(what, COLLECTIVE_KINDS))
        if value not in ALGORITHMS:
            raise UsageError(f"{key}={value}: there is no algorithm {value!r}", hint=near(value, ALGORITHMS))
        return replace(found, algorithm=found.algorithm | {what: value})
    old = re.sub(r"^rank\.(\d{1,9})\.compute$", r"rank[\1].kernels.time", key)
    if key in RENAMED or old != key:
        raise UsageError(f"{key} is no setting any more", hint=f"it is now {RENAMED.get(key, old)}")
    if SELECTING.fullmatch(key) or key in CHANGES:
        return replace(found, changes=found.changes | {key: named(key).read(f"{key}={value}", value)})
    raise UsageError(f"{key!r} is nothing that can be set", hint=near(key, [*KEYS, *CHANGES]))


def _fabric(tier: Tier, value: str) -> str:
    chosen = catalog.fabric(value)
    if chosen.tier != tier:
        fits = ", ".join(name for name, one in catalog.fabrics().items() if one.tier == tier)
        raise UsageError(f"{tier}={value}: {value} is a {chosen.tier} fabric", hint=f"of {tier} are {fits}")
    return chosen.id


def _accelerator(text: str) -> str:
    """The id asked for; a word of one that only one id has will do: `h200`."""
    known = [name for name in catalog.accelerators() if f"-{text}-" in f"-{name}-"]
    return known[0] if len(known) == 1 else catalog.accelerator(text).id


def _quantity(key: str, value: str, dimension: Literal["bandwidth", "time"]) -> Quantity:
    if value[0] in "x×":
        return Quantity(factor=factor_of(f"{key}={value}", value))
    return Quantity(absolute=amount_of(f"{key}={value}", value, dimension))

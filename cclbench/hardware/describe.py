# SPDX-License-Identifier: Apache-2.0
"""Entries of the catalog in words: one line each, or one row a figure with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.fabric import Fabric
from cclbench.hardware.system import ScaleOut, ScaleUp, System
from cclbench.units import humanise

Entry = Accelerator | Fabric | System

_UNITS: Final = {"bytes_per_s": "B/s", "bytes": "B", "usable_fraction": "1", "_s": "s"}
_APART: Final = ("id", "kind", "names", "sources", "cited", "disagreements", "notes")


def summary(entry: Entry) -> str:
    """What an entry is, in one line."""
    match entry:
        case Accelerator():
            dtype = "bf16" if entry.peak_flops_per_s.get("bf16") else "fp16"
            memory, rate = _labelled("", entry.hbm_bytes, "B"), _labelled("at", entry.hbm_bytes_per_s, "B/s")
            parts = [
                _labelled(dtype, entry.peak_flops_per_s.get(dtype), "FLOP/s"),
                f"{memory} {rate}".strip(),
                _labelled("scale-up", entry.scale_up_bytes_per_s, "B/s"),
            ]
            return ", ".join(filter(None, parts)) or "no figures"
        case Fabric():
            rate = _labelled("", entry.link_bytes_per_s, "B/s") or "rate unknown"
            usable = _labelled("", entry.usable_fraction, "1")
            each = "a link" if entry.tier == "scale_up" else "an interface"
            return f"{entry.topology}, {rate} {each}" + (f", {usable} usable" if usable else "")
        case System():
            tiers = filter(None, (_up(entry.scale_up), _out(entry.scale_out)))
            return "; ".join([f"{entry.per_node} × {entry.accelerator}", *tiers])


def _labelled(label: str, value: float | None, unit: str) -> str:
    return "" if value is None else f"{label} {humanise(value, unit)}".strip()


def _up(tier: ScaleUp | None) -> str:
    if tier is None:
        return ""
    return f"{tier.fabric.id} {_labelled(tier.peers, tier.bytes_per_s, 'B/s') or tier.peers}"


def _out(tier: ScaleOut | None) -> str:
    if tier is None:
        return ""
    return f"{tier.fabric.id} {tier.nics} × {_labelled('', tier.bytes_per_s, 'B/s') or 'unknown rate'}"


def figures_of(entry: Entry) -> list[dict[str, Any]]:
    """One row a field: `field` (dotted), `value` in base SI, `shown` to people, `source` (its key)."""
    return [
        {"field": field, "value": value, "shown": _figure(field, value), "source": entry.cited.get(field)}
        for field, value in _flat(msgspec.to_builtins(entry))
        if value is not None
    ]


def _flat(entry: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in entry.items():
        if not prefix and key in _APART:
            continue
        if key == "fabric":
            yield f"{prefix}fabric", value["id"]
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _figure(field: str, value: object) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if "flops_per_s" in field:
        shown = humanise(value, "FLOP/s")
        return shown.replace("FLOP/s", "OP/s") if field.endswith("int8") else shown
    unit = next((unit for end, unit in _UNITS.items() if field.endswith(end)), None)
    return humanise(value, unit) if unit else str(value)

# SPDX-License-Identifier: Apache-2.0
"""Catalog entries in words: one line each, or one row per figure with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from cclbench.ground.units import humanise
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.fabric import Fabric
from cclbench.hardware.system import ScaleOut, ScaleUp, System

Entry = Accelerator | Fabric | System

_UNITS: Final = {"bytes_per_s": "B/s", "bytes": "B", "usable_fraction": "1", "_s": "s"}
_APART: Final = ("id", "kind", "names", "announced", "sources", "cited", "disagreements", "notes")


def entry_summary(entry: Entry) -> str:
    """An entry in one line."""
    return f"{_summary(entry)}; announced" if entry.announced else _summary(entry)


def _summary(entry: Entry) -> str:
    match entry:
        case Accelerator():
            dtype = "bf16" if entry.peak_flops_per_s.get("bf16") else "fp16"
            memory, rate = (
                _labelled_value("", entry.hbm_bytes, "B"),
                _labelled_value("at", entry.hbm_bytes_per_s, "B/s"),
            )
            parts = [
                _labelled_value(dtype, entry.peak_flops_per_s.get(dtype), "FLOP/s"),
                f"{memory} {rate}".strip(),
                _labelled_value("scale-up", entry.scale_up_bytes_per_s, "B/s"),
            ]
            return ", ".join(filter(None, parts)) or "no figures"
        case Fabric():
            rate = _labelled_value("", entry.link_bytes_per_s, "B/s") or "rate unknown"
            usable = _labelled_value("", entry.usable_fraction, "1")
            each = "a link" if entry.tier == "scale_up" else "an interface"
            return f"{entry.topology}, {rate} {each}" + (f", {usable} usable" if usable else "")
        case System():
            tiers = filter(None, (_scale_up_words(entry.scale_up), _scale_out_words(entry.scale_out)))
            return "; ".join([f"{entry.per_node} × {entry.accelerator}", *tiers])


def _labelled_value(label: str, value: float | None, unit: str) -> str:
    return "" if value is None else f"{label} {humanise(value, unit)}".strip()


def _scale_up_words(tier: ScaleUp | None) -> str:
    if tier is None:
        return ""
    return f"{tier.fabric.id} {_labelled_value(tier.peers, tier.bytes_per_s, 'B/s') or tier.peers}"


def _scale_out_words(tier: ScaleOut | None) -> str:
    if tier is None:
        return ""
    return f"{tier.fabric.id} {tier.nics} × {_labelled_value('', tier.bytes_per_s, 'B/s') or 'unknown rate'}"


def figures_of(entry: Entry) -> list[dict[str, Any]]:
    """One row per field: `field` (dotted), `value` in base SI, `shown` (formatted), `source` (its key)."""
    return [
        {
            "field": field,
            "value": value,
            "shown": _figure_words(field, value),
            "source": entry.cited.get(field),
        }
        for field, value in _flat_fields(msgspec.to_builtins(entry))
        if value is not None
    ]


def _flat_fields(entry: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in entry.items():
        if not prefix and key in _APART:
            continue
        if key == "fabric":
            yield f"{prefix}fabric", value["id"]
        elif isinstance(value, Mapping):
            yield from _flat_fields(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _figure_words(field: str, value: object) -> str:
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

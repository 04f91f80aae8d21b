# SPDX-License-Identifier: Apache-2.0
"""Interpret `bandwidth_gbps` of a version 1 card, and reject implausible values.

By the version 1 template the list is [scale-out, scale-up] in Gb/s.  Existing cards swap the two, use GB/s,
count both directions, or copy the template's 2000; a value is accepted only if the card's hardware has that
rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# Line rates in Gb/s, one direction.  Scale-up, per accelerator: A100 NVLink3 12 × 25 GB/s (NVIDIA A100
# datasheet); TPU v6e ICI 4 × 100 GB/s (Cloud TPU documentation).  Scale-out, per interface: Slingshot-11.
_SCALE_UP = {"nvidia_a100": 2400, "nvidia_a100_40gb": 2400, "nvidia_a100_80gb": 2400, "tpu_v6e": 3200}
_SCALE_OUT = {"slingshot": 200}


def believable_bandwidths(
    values: Sequence[object], accelerator: str, topology: str
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Plausible bandwidths, and the reasons against the others, by side ("scale_out", "scale_up").

    `accelerator` and `topology` are the version 1 names.  Bandwidths are texts such as "200 Gb/s".
    """
    if len(values) != 2:
        reason = f"has {len(values)} of the two values [scale-out, scale-up], so which one is unknown"
        return {}, [("scale_out", reason), ("scale_up", reason)]
    scale_out, scale_up = (v if isinstance(v, int) and not isinstance(v, bool) else None for v in values)
    if scale_out is not None and scale_up is not None and scale_out > scale_up:
        reason = "has scale-out above scale-up: swapped, or in different units"
        return {}, [("scale_out", reason), ("scale_up", reason)]
    fabric = next((name for name in _SCALE_OUT if topology.lower().startswith(name)), topology)
    doubts = [
        *_bandwidth_doubts("scale_up", scale_up, _SCALE_UP.get(accelerator), accelerator),
        *_bandwidth_doubts("scale_out", scale_out, _SCALE_OUT.get(fabric), fabric),
    ]
    doubted = {side for side, _ in doubts}
    if "scale_up" in doubted and fabric not in _SCALE_OUT and "scale_out" not in doubted:
        doubts.append(("scale_out", "stands beside a doubtful scale-up value, and no known rate confirms it"))
        doubted.add("scale_out")
    believed = {"scale_out": f"{scale_out} Gb/s", "scale_up": f"{scale_up} Gb/s"}
    return {side: text for side, text in believed.items() if side not in doubted}, doubts


def _bandwidth_doubts(side: str, value: int | None, rate: int | None, name: str) -> Iterator[tuple[str, str]]:
    label = side.replace("_", "-")
    if value is None:
        yield side, f"has no number for {label}"
    elif value <= 0:
        yield side, f"has {value} for {label}"
    elif rate is not None and value != rate:
        yield (
            side,
            f"has {value} for {label}, but {name} has {rate} Gb/s in one direction"
            f"{_right_reading(value, rate)}",
        )


def _right_reading(value: int, rate: int) -> str:
    """The other unit or direction count with which the value would be correct."""
    readings = {
        rate * 2: "with both directions counted",
        rate // 8: "in GB/s",
        rate // 4: "in GB/s with both directions counted",
    }
    return f" (it is that rate {readings[value]})" if value in readings else ""

# SPDX-License-Identifier: Apache-2.0
"""Brief answers of `memory`."""

from __future__ import annotations

from cclbench.ground.units import humanise
from cclbench.present.brief.quantities import Brief, Document, quantities, quantity
from cclbench.present.memory import NOTHING


def brief_memory(document: Document) -> Brief:
    """Each device; or why there is none."""
    return {
        "devices": [_brief_device(device) for device in document["devices"]],
        "modelled": [
            {
                "settings": prediction["settings"],
                "peak": humanise(prediction["peak"], "B"),
                "recorded": humanise(prediction["recorded"], "B"),
                "assumed": prediction["assumed"],
            }
            for prediction in document["modelled"]
        ],
        "programs": [
            f"{program['module']}: {quantity(program['bytes'], 'B') or 'size unknown'}"
            for program in document["programs"]
        ],
        "answer": None if document["devices"] or document["programs"] else NOTHING,
        "run": document["run"],
    }


def _brief_device(device: Document) -> Brief:
    """A refused request first, then what grows from step to step, then who holds the peak."""
    sizes = ("asked", "device_free", "reserved", "allocated", "unused", "missing", "limit")
    growth = device["growth"] or {"sites": (), "judged": False, "step_ends": None}
    growing = [site for site in growth["sites"] if site["bytes_per_step"] > 0]
    return {
        "out_of_memory": [
            {
                "verdict": failure["verdict"],
                "call_site": failure["call_site"],
                **quantities(failure, dict.fromkeys(sizes, "B")),
            }
            for failure in device["out_of_memory"]
        ],
        "growing": [
            {
                "call_site": site["call_site"],
                "per_step": humanise(site["bytes_per_step"], "B"),
                "leaks": site["leaks"] if growth["judged"] else None,
            }
            for site in growing
        ],
        **quantities(device, {"peak_allocated": "B", "peak_reserved": "B", "reserved_unused": "B"}),
        "held_at_peak": {
            name: humanise(size, "B") for name, size in (device["peak_categories"] or {}).items()
        },
        "largest": {
            by: [
                f"{row[by]}: {humanise(row['bytes'], 'B')}, {humanise(row['share'], '1')}"
                for row in device["owners"].get(by, ())
                if row["bytes"]
            ]
            for by in ("module", "call_site")
        },
        "rank": device["rank"],
        "device": device["device"],
        "step_ends": growth["step_ends"],
        "remark": device["remark"],
    }

# SPDX-License-Identifier: Apache-2.0
"""Tables of what a run's manifest, card and catalog say of its ranks and their device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from cclbench.machine import machine_of_entries

if TYPE_CHECKING:
    from cclbench.card import Card
    from cclbench.record.manifest import RankEntry


def _field(name: str, kind: pa.DataType, meaning: str, unit: str = "") -> pa.Field:
    return pa.field(name, kind, metadata={"meaning": meaning, "unit": unit})


RANK_DEVICES: Final = pa.schema(
    [
        _field("rank", pa.int32(), "rank that has a trace"),
        _field("works_on", pa.string(), "where its work runs: device, or host where the CPU is the device"),
        _field("device_name", pa.string(), "the device as the trace names it"),
        _field("accelerator", pa.string(), "the catalog's entry for the run's device; null where unknown"),
        _field("node", pa.int32(), "number of the rank's node; null where unknown"),
        _field("world_size", pa.int32(), "ranks of the job as the trace states them"),
        _field(
            "hbm_bytes_per_s",
            pa.float64(),
            "peak of the device's memory: the trace's figure, else the catalog's",
            "B/s",
        ),
        _field("flops_per_s", pa.float64(), "dense peak of the card's precision", "FLOP/s"),
        _field("cache_bytes", pa.int64(), "the device's last cache, by the catalog; null where unknown", "B"),
    ]
)
DEVICE_PEAKS: Final = pa.schema(
    [
        _field("precision", pa.string(), "element type as the catalog names it: bf16, fp32, fp8, ..."),
        _field("flops_per_s", pa.float64(), "dense peak of the run's accelerator, by the catalog", "FLOP/s"),
        _field(
            "attainable_flops_per_s",
            pa.float64(),
            "fastest matrix product measured on it; null where unknown",
            "FLOP/s",
        ),
    ]
)
TABLES: Final = {"rank_devices": RANK_DEVICES, "device_peaks": DEVICE_PEAKS}
"""By name."""


def machine_tables(card: Card | None, entries: list[RankEntry]) -> dict[str, pa.Table]:
    """The tables of a run, by name: `card` is the run's, `entries` are the manifest's ranks."""
    machine = machine_of_entries(card, entries)
    accelerator = machine.accelerator.value
    peaks = {} if accelerator is None else dict(accelerator.peak_flops_per_s)
    precision = None if card is None else card.workload.precision
    rows = [
        {
            "rank": entry.rank,
            "works_on": entry.facts.works_on,
            "device_name": entry.facts.device_name,
            "accelerator": None if accelerator is None else accelerator.id,
            "node": machine.node_of(entry.rank),
            "world_size": entry.facts.world_size,
            "hbm_bytes_per_s": entry.facts.hbm_bytes_per_s
            or (None if accelerator is None else accelerator.hbm_bytes_per_s),
            "flops_per_s": peaks.get(precision or ""),
            "cache_bytes": None if accelerator is None else accelerator.cache_bytes,
        }
        for entry in entries
    ]
    attainable = {} if accelerator is None else accelerator.attainable_flops_per_s
    peak_rows = [
        {"precision": name, "flops_per_s": peak, "attainable_flops_per_s": attainable.get(name)}
        for name, peak in peaks.items()
        if peak is not None
    ]
    return {
        "rank_devices": pa.Table.from_pylist(rows, RANK_DEVICES),
        "device_peaks": pa.Table.from_pylist(peak_rows, DEVICE_PEAKS),
    }

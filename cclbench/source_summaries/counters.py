# SPDX-License-Identifier: Apache-2.0
"""Hardware counters: each device's utilisation, power and clocks; traffic of links and ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench.analyzers.counters import file_moment, moved_rows, port_numbers, with_plain_words
from cclbench.analyzers.energy import counted_energy
from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.columns import with_values, with_words
from cclbench.ground import intervals
from cclbench.ground.text import listed
from cclbench.ground.units import humanise
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_NS_PER_S: Final = 1e9
_COLUMNS: Final = {
    "gpu_utilization": ("utilisation", "mean", "1"),
    "sm_active": ("SM active", "mean", "1"),
    "tensor_active": ("tensor active", "mean", "1"),
    "dram_active": ("DRAM active", "mean", "1"),
    "memory_utilization": ("memory busy", "mean", "1"),
    "power": ("power", "mean", "W"),
    "sm_clock": ("SM clock", "mean", "Hz"),
    "memory_clock": ("memory clock", "mean", "Hz"),
    "power_limited": ("power limit", "mean", "1"),
    "thermally_limited": ("thermal limit", "mean", "1"),
    "hardware_limited": ("hardware limit", "mean", "1"),
    "memory_used": ("memory", "high", "B"),
}
"""Heading, statistic and unit of each counter's column; limits are shares of time with lowered clocks."""
_DEVICES: Final = (
    FigureColumn(name="device", key=True),
    *(
        FigureColumn(name=name, unit=unit, lead=name == "utilisation", detail=name == "memory clock")
        for name, _, unit in _COLUMNS.values()
    ),
    FigureColumn(name="highest power", unit="W", detail=True),
    FigureColumn(name="lowest SM clock", unit="Hz", detail=True),
    FigureColumn(name="energy", unit="J"),
)
_PORTS: Final = {"nvlink": "NVLink", "pcie": "PCIe", "nic": "NIC"}
_TRAFFIC: Final = (
    FigureColumn(name="port", key=True),
    FigureColumn(name="sent", unit="B", lead=True),
    FigureColumn(name="received", unit="B"),
    FigureColumn(name="send rate", unit="B/s"),
    FigureColumn(name="receive rate", unit="B/s"),
    FigureColumn(name="retransmits", unit="count"),
    FigureColumn(name="congestion marks", unit="count"),
)
_EVENTS: Final = ("nic_retransmits", "nic_congestion_marks")
_MOST_WARNINGS: Final = 6


class _Unit(NamedTuple):
    """A device or port of a host: of one file, or of its files `before` and `after`."""

    file: str
    device: int | None
    port: str | None = None


class _Held(NamedTuple):
    """A counter's mean, weighted by the intervals of samples where they are stated, and its extremes."""

    mean: float
    low: float
    high: float


_HeldByUnit = Mapping[tuple[_Unit, str], _Held]


def summarise_counters(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """Devices and ports; heat, slowdowns and packets that were sent again first."""
    rows = with_plain_words(inputs.view.table("counters"))
    if not len(rows):
        return
    held, energy, moved = _held_counters(rows), _energies(rows), _traffic(rows)
    names = _unit_names({unit for unit, _ in held} | set(moved))
    devices = [
        (names[unit], *_device_cells(unit, held, energy))
        for unit in sorted({unit for unit, counter in held if counter in _COLUMNS}, key=_order)
    ]
    traffic = [(names[unit], *moved[unit]) for unit in sorted(moved, key=_order)]
    yield SourceSummary(
        kind="counters",
        heading="Hardware counters",
        warnings=listed([*_slowdowns(held, names), *_sent_again(traffic)], _MOST_WARNINGS),
        sentences=[_basis_sentence(rows, devices, traffic), *_sentences(devices)],
        tables=[
            FigureTable(subject=subject, title=title, columns=columns, rows=table_rows)
            for subject, title, columns, table_rows in (
                ("devices", "Devices", _DEVICES, devices),
                ("ports", "Traffic of links and ports", _TRAFFIC, traffic),
            )
            if table_rows
        ],
        absent=list(_absences(rows, held)),
    )


def _order(unit: _Unit) -> tuple[str, bool, int, str]:
    return unit.file, unit.device is None, unit.device or 0, unit.port or ""


def _unit_names(units: Iterable[_Unit]) -> dict[_Unit, str]:
    """`device 3 NVLink`, `mlx5_0/1`; with its file where there are several."""
    units = set(units)
    several = len({unit.file for unit in units}) > 1
    return {
        unit: " ".join(
            filter(
                None,
                (
                    f"{unit.file}:" if several else "",
                    "" if unit.device is None else f"device {unit.device}",
                    unit.port or ("all devices" if unit.device is None else ""),
                ),
            )
        )
        for unit in units
    }


def _seconds(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Length of each row's interval, s; 0 where it is not stated."""
    start, end = (rows[name].fill_null(0).to_numpy() for name in ("start_ns", "end_ns"))
    has_times = rows["start_ns"].is_valid().to_numpy() & rows["end_ns"].is_valid().to_numpy()
    return np.where(has_times, end - start, 0) / _NS_PER_S


def _held_counters(rows: pa.Table) -> _HeldByUnit:
    """Shares, powers, clocks and rates by unit and counter."""
    counter_names = (*_COLUMNS, *(f"{port}_{way}_rate" for port in _PORTS for way in ("tx", "rx")))
    rows = with_words(rows, "counter", counter_names)
    seconds = _seconds(rows)
    weighted = rows.append_column("seconds", pa.array(seconds)).append_column(
        "weighted", pa.array(seconds * rows["value"].to_numpy())
    )
    grouped = weighted.group_by(["file", "device", "counter"], use_threads=False).aggregate(
        [("seconds", "sum"), ("weighted", "sum"), *(("value", how) for how in ("mean", "min", "max"))]
    )
    return {
        (_Unit(_host(row["file"]), row["device"]), row["counter"]): _Held(
            row["weighted_sum"] / row["seconds_sum"] if row["seconds_sum"] else row["value_mean"],
            row["value_min"],
            row["value_max"],
        )
        for row in grouped.to_pylist()
    }


def _host(file: str | None) -> str:
    return file_moment(file or "")[0]


def _energies(rows: pa.Table) -> dict[_Unit, float]:
    """Energy of each device over the time covered, J; empty where it is unknown."""
    try:
        energies, _, _ = counted_energy(rows)
    except NotApplicable:
        return {}
    grouped = energies.group_by(["file", "device"], use_threads=False).aggregate([("value", "sum")])
    return {_Unit(_host(row["file"]), row["device"]): row["value_sum"] for row in grouped.to_pylist()}


def _traffic(rows: pa.Table) -> dict[_Unit, tuple[Cell, ...]]:
    """The cells of `_TRAFFIC` behind the name: all NVLinks of a device together, NIC ports one by one."""
    cells_by_unit: dict[_Unit, dict[str, Cell]] = {}
    for source in rows["source"].unique().to_pylist():
        of_source = with_words(rows, "source", (source,))
        for port, noun in _PORTS.items():
            for way, (amount, rate) in (("tx", ("sent", "send rate")), ("rx", ("received", "receive rate"))):
                for unit, (total, covered) in _amounts(
                    moved_rows(of_source, f"{port}_{way}")[0], noun
                ).items():
                    cells = cells_by_unit.setdefault(unit, {})
                    cells[amount], cells[rate] = total, total / covered if covered else None
    for (unit, counter), held in _held_counters(rows).items():
        port, _, way = counter.removesuffix("_rate").rpartition("_")
        if counter.endswith("_rate"):
            cells = cells_by_unit.setdefault(unit._replace(port=_PORTS[port]), {})
            name = "send rate" if way == "tx" else "receive rate"
            cells[name] = cells.get(name) or held.mean
    for counter, name in zip(_EVENTS, ("retransmits", "congestion marks"), strict=True):
        for unit, (total, _) in _amounts(with_words(rows, "counter", (counter,)), "NIC").items():
            cells_by_unit.setdefault(unit, {})[name] = total
    columns = [column.name for column in _TRAFFIC[1:]]
    return {unit: tuple(map(cells.get, columns)) for unit, cells in cells_by_unit.items()}


def _amounts(rows: pa.Table, noun: str) -> dict[_Unit, tuple[float, float]]:
    """Sum of each unit's rows, and the seconds that they cover; 0 where any row lacks its times."""
    if noun != "NIC":
        column = rows.schema.get_field_index("port")
        rows = rows.set_column(column, "port", pa.array([noun] * len(rows), pa.string()))
    owner = port_numbers(rows)
    _, first = np.unique(owner, return_index=True)
    totals = np.bincount(owner, rows["value"].to_numpy())
    untimed = np.bincount(owner, _seconds(rows) <= 0)
    start, end = (rows[name].fill_null(0).to_numpy() for name in ("start_ns", "end_ns"))
    covered = np.where(untimed, 0, intervals.union_lengths(owner, start, end, len(first))) / _NS_PER_S
    return {
        _Unit(_host(row["file"]), row["device"], row["port"] or noun): (total, seconds)
        for row, total, seconds in zip(
            rows.take(first).to_pylist(), totals.tolist(), covered.tolist(), strict=True
        )
    }


def _device_cells(unit: _Unit, held: _HeldByUnit, energy: Mapping[_Unit, float]) -> tuple[Cell, ...]:
    """The cells of `_DEVICES` behind the name."""
    power, clock = held.get((unit, "power")), held.get((unit, "sm_clock"))
    return (
        *(
            getattr(held[unit, counter], stat) if (unit, counter) in held else None
            for counter, (_, stat, _) in _COLUMNS.items()
        ),
        power and power.high,
        clock and clock.low,
        energy.get(unit),
    )


def _slowdowns(held: _HeldByUnit, names: Mapping[_Unit, str]) -> Iterator[str]:
    """Devices whose clocks were lowered for their temperature, or by the hardware."""
    for counter, cause in (
        ("thermally_limited", "for their temperature"),
        ("hardware_limited", "by the hardware"),
    ):
        for unit in sorted((unit for unit, name in held if name == counter), key=_order):
            share = held[unit, counter].mean
            if share > 0:
                yield f"{names[unit]}: clocks lowered {cause} for {humanise(share, '1')} of the time"


def _sent_again(traffic: Sequence[tuple[Cell, ...]]) -> Iterator[str]:
    for name, _, _, _, _, again, _ in traffic:
        if again:
            yield f"{name}: {humanise(float(again), 'count')} packets were sent again"


def _basis_sentence(
    rows: pa.Table, devices: Sequence[tuple[Cell, ...]], traffic: Sequence[tuple[Cell, ...]]
) -> str:
    """`2 devices and 4 links and ports by dcgm, over 59.8 s.`"""
    counts = [
        f"{len(unit_rows):,} {singular if len(unit_rows) == 1 else plural}"
        for unit_rows, singular, plural in (
            (devices, "device", "devices"),
            (traffic, "link or port", "links and ports"),
        )
        if unit_rows
    ]
    timed = with_values(rows, "start_ns", "end_ns")
    times = "at times that are not stated"
    if len(timed):
        length = int(timed["end_ns"].to_numpy().max() - timed["start_ns"].to_numpy().min())
        times = f"over {humanise(length / _NS_PER_S, 's')}" if length else "at one moment"
    sources = ", ".join(sorted(rows["source"].unique().to_pylist()))
    return f"{' and '.join(counts) or 'Counters'} by {sources}, {times}."


def _sentences(devices: Sequence[tuple[Cell, ...]]) -> Iterator[str]:
    """Means over devices, with those that have least and most."""
    table = FigureTable(subject="", title="", columns=_DEVICES, rows=list(devices))
    for heading, unit in (
        *((("utilisation", "1"), ("SM active", "1")) if devices else ()),
        *((("power", "W"), ("SM clock", "Hz"), ("power limit", "1")) if devices else ()),
    ):
        readings = [
            (value, str(row[0]))
            for value, row in zip(table.values_of(heading), devices, strict=True)
            if value is not None
        ]
        if not readings or (heading == "power limit" and not max(readings)[0]):
            continue
        mean = humanise(sum(value for value, _ in readings) / len(readings), unit)
        (low, least), (high, most) = min(readings), max(readings)
        ends = f", {humanise(low, unit)} ({least}) to {humanise(high, unit)} ({most})" if low < high else ""
        what = "Clocks lowered by the power limit" if heading == "power limit" else heading
        yield f"{what[:1].upper()}{what[1:]}: {mean} in the mean{ends}."
    energies = table.values_of("energy")
    if energies and None not in energies:
        yield f"Energy: {humanise(sum(energies), 'J')}."


def _absences(rows: pa.Table, held: _HeldByUnit) -> Iterator[str]:
    counters = {counter for _, counter in held}
    if not len(with_values(rows, "start_ns", "end_ns")):
        yield "no times, so no energy, and no bytes from rates (`| ts %.s` behind `dcgmi dmon`)"
    if counters.intersection(_COLUMNS) and not counters.intersection(("sm_clock", "power_limited")):
        yield "clocks and their limits are not stated (`dcgmi dmon -e 100,112`, `nvidia-smi dmon -s pucv`)"

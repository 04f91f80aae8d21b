# SPDX-License-Identifier: Apache-2.0
"""Sweeps in machine-readable files: nccl-tests' JSON (`-J`), rccl-tests' JSON, CSV of published sweeps.

nccl-tests' JSON contains the whole environment and host names: only the fields declared here are decoded.
Its `devices` has one entry for each process, which has `nthreads` × `ngpus` ranks.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

from cclbench.classify import kind_of
from cclbench.formats.nccl_tests.rows import (
    Figures,
    Heading,
    SweepRows,
    even_groups,
    library_version,
    wrong_count,
)
from cclbench.formats.texts import damaged_error, numbered_lines, parse_decimal, read_whole, reason_of

_MOST_BYTES: Final = 1 << 28
_MOST_KEY: Final = 300

T = TypeVar("T")
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 60)]
Few = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]


class _Placement(msgspec.Struct):
    time: Decimal | None = None
    alg_bw: Decimal | None = None
    bus_bw: Decimal | None = None
    nwrong: Decimal | None = None


class _Result(msgspec.Struct):
    size: Count
    type: str
    out_of_place: _Placement | None = None
    in_place: _Placement | None = None


class _Device(msgspec.Struct):
    group: int = 0
    hostname: str = ""
    device_info: str = ""


class _Config(msgspec.Struct):
    nthreads: Few
    ngpus: Few
    devices: list[_Device] = []


class _Verdict(msgspec.Struct):
    count: int = 0


class _LogFile(msgspec.Struct):
    version: int
    args: list[str] = []
    nccl_version: Count | None = None
    config: _Config | None = None
    results: list[_Result] = []
    out_of_bounds: _Verdict | None = None


class _RocmRecord(msgspec.Struct):
    """A record of rccl-tests' `-Z json`, one for each placement."""

    name: str
    size: Count
    type: str
    inPlace: int  # noqa: N815 (the file's own name)
    time: Decimal
    algBw: Decimal  # noqa: N815
    busBw: Decimal  # noqa: N815
    ranks: Few | None = None
    nodes: Few | None = None
    wrong: str | int | None = None


def read_json(path: Path) -> SweepRows:
    """Read a file of `nccl-tests -J`."""
    file = _decode_file(path, _LogFile)
    rows = SweepRows(path)
    heading = _file_heading(file)
    for at, result in enumerate(file.results, 1):
        for in_place, placement in ((False, result.out_of_place), (True, result.in_place)):
            if placement is not None:
                time, algbw, busbw = map(_finite_number, (placement.time, placement.alg_bw, placement.bus_bw))
                figures = Figures(time, algbw, busbw, wrong_count(_finite_number(placement.nwrong)))
                rows.add_row(heading, result.size, result.type, figures, in_place=in_place, line=at)
    for device in file.config.devices if file.config else []:
        rows.add_gpu(device.device_info[:80])
    if file.nccl_version:
        rows.facts["library_version"] = library_version(file.nccl_version)
    if file.out_of_bounds and file.out_of_bounds.count:
        rows.notes.append(f"the benchmark found {file.out_of_bounds.count:,} wrong results")
    return rows


def _file_heading(file: _LogFile) -> Heading:
    program = Path(file.args[0]).name if file.args else ""
    kind = kind_of(program.partition("_perf")[0]) if "_perf" in program else None
    config = file.config
    if config is None or not config.devices:
        return Heading(kind=kind, library="nccl")
    processes, nodes = even_groups((device.group, device.hostname) for device in config.devices)
    ranks_per_process = config.nthreads * config.ngpus
    return Heading(kind=kind, library="nccl", ranks=processes and processes * ranks_per_process, nodes=nodes)


def read_rocm_json(path: Path) -> SweepRows:
    """Read a file of `rccl-tests -Z json -x`."""
    rows = SweepRows(path)
    for at, record in enumerate(_decode_file(path, list[_RocmRecord]), 1):
        heading = Heading(kind=kind_of(record.name), library="rccl", ranks=record.ranks, nodes=record.nodes)
        time, algbw, busbw = (_finite_number(v) for v in (record.time, record.algBw, record.busBw))
        figures = Figures(time, algbw, busbw, wrong_count(parse_decimal(str(record.wrong))))
        rows.add_row(heading, record.size, record.type, figures, in_place=record.inPlace != 0, line=at)
    return rows


def _decode_file(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(read_whole(path, _MOST_BYTES), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged_error(path, reason_of(error)) from None


def _finite_number(value: Decimal | None) -> Decimal | None:
    """The number; None for `nan`."""
    return value if value is not None and value.is_finite() else None


_COLUMNS: Final = (
    *("size_bytes", "count", "dtype", "redop"),
    *("oop_time_us", "oop_algbw_GBps", "oop_busbw_GBps", "ip_time_us", "ip_algbw_GBps", "ip_busbw_GBps"),
)
_FACTS: Final = {
    "gpu": "device_name",
    "scale_up": "scale_up",
    "scale_out": "scale_out",
    "nccl": "library_version",
    "rccl": "library_version",
    "plugin": "network_plugin",
}
"""Header keys that become facts; others, such as `source`, may name hosts and commands."""


def read_csv(path: Path) -> SweepRows:
    """Read a published sweep: lines `# key: value`, then one row for each size with both placements."""
    rows, header, heading = SweepRows(path), dict[str, str](), None
    for at, line in numbered_lines(path, _MOST_BYTES):
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            header.setdefault(key.strip()[:_MOST_KEY], value.strip()[:_MOST_KEY])
        elif heading is None:
            if tuple(line.split(",")) != _COLUMNS:
                raise damaged_error(path, f"its columns are not {','.join(_COLUMNS)}", line=at)
            heading = _stated_heading(path, header)
        elif line:
            _csv_row(path, rows, heading, line, at)
    rows.facts |= {fact: header[key] for key, fact in _FACTS.items() if header.get(key)}
    if gpus_per_node := _stated_count(path, header, "gpus_per_node"):
        rows.facts["gpus_per_node"] = gpus_per_node
    if "derived" in header:
        rows.notes.append("its header states that bandwidths are recomputed from size and time")
    return rows


def _stated_heading(path: Path, header: dict[str, str]) -> Heading:
    ranks, nodes = (_stated_count(path, header, key) for key in ("ranks", "nodes"))
    library = next((name for name in ("nccl", "rccl") if name in header), None)
    return Heading(kind=kind_of(header.get("coll", "")), library=library, ranks=ranks, nodes=nodes)


def _stated_count(path: Path, header: dict[str, str], key: str) -> int | None:
    value = header.get(key)
    if value is None:
        return None
    if not value.isdecimal() or len(value) > 7 or not 0 < int(value) <= 1 << 20:
        raise damaged_error(path, f"the header's {key} is not a number of ranks, nodes or GPUs")
    return int(value)


def _csv_row(path: Path, rows: SweepRows, heading: Heading, line: str, at: int) -> None:
    cells = line.split(",")
    if len(cells) != len(_COLUMNS):
        raise damaged_error(path, f"has {len(cells)} cells instead of {len(_COLUMNS)}", line=at)
    figures = [parse_decimal(cell) for cell in cells[4:]]
    invalid = next(
        (cell for cell, value in zip(cells[4:], figures, strict=True) if cell and value is None), None
    )
    if invalid is not None or not cells[0].isdecimal():
        raise damaged_error(path, "has text in place of a number", line=at)
    size = int(cells[0][:20])
    for in_place, placement in ((False, figures[:3]), (True, figures[3:])):
        if any(value is not None for value in placement):
            rows.add_row(
                heading,
                size,
                cells[2],
                Figures(placement[0], placement[1], placement[2]),
                in_place=in_place,
                line=at,
            )

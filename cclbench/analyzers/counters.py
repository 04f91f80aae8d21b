# SPDX-License-Identifier: Apache-2.0
"""Bytes by hardware counters of NIC and NVLink ports.

Counters know no collectives or processes: they count all traffic of a port while they are sampled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.columns import has_values, with_words, word_codes
from cclbench.analyzers.view.rank_view import Windows
from cclbench.analyzers.view.run_view import RunView
from cclbench.formats import READERS, sort_by_precedence
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.units import humanise

_NS_PER_S: Final = 10**9
_MOMENT = re.compile(
    r"(?<![a-z])(?:(before|begin|start|pre)|(after|end|stop|post))(?![a-z])", re.IGNORECASE | re.ASCII
)
_FORMULA: Final = "Σ bytes sent over all ports and all intervals between samples"
_DEFINITION: Final = (
    "Bytes sent by {ports}, over all the time that counters were sampled, which may be longer than the run's"
    " steps; sent and received bytes by category. Other traffic of the same ports counts as well. Counts of"
    " `before` and `after` files of the same name are subtracted; files are added up, so each host's counters"
    " belong in the run once. Stat `per_step`: bytes of the intervals that lie entirely within the ranks'"
    " windows, per step, not prorated. Where several tools counted, one is preferred ({order}) and the"
    " others' figures are stats."
)


@dataclass(frozen=True, slots=True, eq=False)
class MovedBytes:
    """Bytes that one tool counted in one direction; arrays of shape (intervals,)."""

    value: npt.NDArray[np.float64]
    start: Int64
    end: Int64
    timed: Mask
    """Whether start and end are known."""
    rank: Int64
    """−1 where unknown."""
    ports: int
    left_out: dict[str, int]
    unknown: int
    """Number of samples whose bytes are unknown."""
    provenance: Literal["measured", "derived"] = "measured"

    @property
    def total_bytes(self) -> float:
        """Σ bytes."""
        return float(self.value.sum())

    @property
    def basis_words(self) -> str:
        """What the sum consists of, in words."""
        times = "at unknown times"
        if self.timed.all():
            covered = intervals.union(self.start, self.end).length
            times = f"covering {humanise(covered / _NS_PER_S, 's')}"
        rates = " by rates, each since the sample before," if self.provenance == "derived" else ""
        samples, ports = (
            f"{n:,} {noun}{'s' * (n != 1)}"
            for n, noun in ((len(self.value), "interval"), (self.ports, "port"))
        )
        return f"{samples}{rates} of {ports}, {times}"


@run_metric(
    "comm.nic_bytes",
    definition=_DEFINITION.format(ports="NIC ports", order="nsys, then snapshots of /sys/class/infiniband"),
    formula=_FORMULA,
    unit="B",
    inputs=("counters",),
    not_applicable="the run has no NIC counters",
)
def nic_bytes(run: RunView) -> Iterator[Value]:
    """Σ nic_tx_bytes."""
    return _counted_bytes(run, "nic", "NIC")


@run_metric(
    "comm.nvlink_bytes",
    definition=_DEFINITION.format(
        ports="GPUs' NVLinks", order="nsys, then DCGM, then nvidia-smi, whose counts are payload"
    ),
    formula=_FORMULA,
    unit="B",
    inputs=("counters",),
    not_applicable="the run has no NVLink counters",
)
def nvlink_bytes(run: RunView) -> Iterator[Value]:
    """Σ nvlink_tx_bytes."""
    return _counted_bytes(run, "nvlink", "NVLink")


def _counted_bytes(run: RunView, port: str, noun: str) -> Iterator[Value]:
    table = with_plain_words(run.table("counters"))
    sources = sort_by_precedence(table["source"].unique().to_pylist())
    by_source = {
        source: ways
        for source in sources
        if "tx" in (ways := _moved_by_way(with_words(table, "source", (source,)), port))
    }
    if not by_source:
        raise NotApplicable(_why_none(table, port, noun))
    preferred = next(
        (s for s, ways in by_source.items() if ways["tx"].provenance == "measured"), next(iter(by_source))
    )
    sent = by_source[preferred]["tx"]
    others = {source: ways["tx"] for source, ways in by_source.items() if source != preferred}
    also = [f"{source} counted {humanise(moved.total_bytes, 'B')}" for source, moved in others.items()]
    reason = "; ".join([f"by {preferred}: {sent.basis_words}", *also])
    yield _moved_value(sent, preferred, reason=reason)
    for source, moved in others.items():
        yield _moved_value(
            moved, source, stat=source, reason=f"{moved.basis_words}; {preferred} is preferred"
        )
    for way, moved in by_source[preferred].items():
        yield _moved_value(moved, preferred, category=way)
    yield from _by_rank(sent, preferred)
    yield _per_step(run, sent, preferred)


def with_plain_words(table: pa.Table) -> pa.Table:
    """The table with dictionary columns as plain strings."""
    for i, name in enumerate(table.column_names):
        if pa.types.is_dictionary(table.schema.field(name).type):
            table = table.set_column(i, name, table[name].cast(pa.string()))
    return table


def _moved_value(
    moved: MovedBytes,
    source: str,
    *,
    category: str | None = None,
    stat: str | None = None,
    reason: str | None = None,
) -> Value:
    return Value(
        value=moved.total_bytes,
        category=category,
        stat=stat,
        provenance=moved.provenance,
        reason=reason,
        left_out=moved.left_out,
        coverage=Coverage(len(moved.value), len(moved.value) + moved.unknown),
        source=source,
    )


def _by_rank(moved: MovedBytes, source: str) -> Iterator[Value]:
    for rank in np.unique(moved.rank[moved.rank >= 0]).tolist():
        total = float(moved.value[moved.rank == rank].sum())
        yield Value(value=total, rank=rank, provenance=moved.provenance, source=source)


def _per_step(run: RunView, moved: MovedBytes, source: str) -> Value:
    try:
        lo, hi, steps = _step_span(run)
        inside = moved.timed & (moved.start >= lo) & (moved.end <= hi) & (moved.end > moved.start)
        if not inside.any():
            untimed = "the counters state no times"
            outside = "no counter interval lies entirely within the steps"
            raise NotApplicable(outside if moved.timed.any() else untimed)
    except NotApplicable as why:
        return no_value(str(why), stat="per_step", source=source)
    covered = intervals.union(moved.start[inside], moved.end[inside]).length
    share = humanise(covered / (hi - lo), "1")
    overlapping = moved.timed & (moved.start < hi) & (moved.end > lo)
    return Value(
        value=float(moved.value[inside].sum()) / steps,
        stat="per_step",
        provenance="derived",
        reason=f"complete intervals cover {share} of the time of {steps} steps, the rest is left out",
        coverage=Coverage(int(inside.sum()), int(overlapping.sum()), covered, hi - lo),
        source=source,
    )


def windows_of_steps(run: RunView) -> list[Windows]:
    """Windows of the ranks that have steps; `NotApplicable` without any."""
    windows_by_rank = []
    for rank in run.ranks:
        try:
            windows = run.rank(rank).windows
        except NotApplicable:
            continue
        if windows.policy != "trace" and len(windows):
            windows_by_rank.append(windows)
    if not windows_by_rank:
        raise NotApplicable("the run has no trace with steps")
    return windows_by_rank


def _step_span(run: RunView) -> tuple[int, int, int]:
    """Start of the first step and end of the last over all ranks, ns, and the number of steps."""
    windows = windows_of_steps(run)
    first = min(int(of_rank.starts.min()) for of_rank in windows)
    return first, max(int(of_rank.ends.max()) for of_rank in windows), max(map(len, windows))


def _moved_by_way(rows: pa.Table, port: str) -> dict[str, MovedBytes]:
    """Sent and received bytes of one tool: from counts in one file or between two, else from rates."""
    by_way = {}
    for way in ("tx", "rx"):
        interval_rows, left_out, unknown, is_counted = moved_rows(rows, f"{port}_{way}")
        if len(interval_rows):
            moved = _moved_bytes(interval_rows, left_out, unknown)
            by_way[way] = moved if is_counted else replace(moved, provenance="derived")
    return by_way


def moved_rows(rows: pa.Table, counter: str) -> tuple[pa.Table, dict[str, int], int, bool]:
    """Bytes over intervals of one tool's counter, such as `nvlink_tx`.

    With them: rows left out by reason, number of samples whose bytes are unknown, and whether the tool
    counted bytes; else they are its rates, each since the sample before.
    """
    counted, totals, rates = (
        with_words(rows, "counter", (f"{counter}_{suffix}",)) for suffix in ("bytes", "total", "rate")
    )
    pairs, left_out = _subtracted_pairs(totals)
    single, twice = _single_port_rows(counted)
    interval_rows = pa.concat_tables([single, pairs])
    unknown = sum(left_out.values())
    if len(interval_rows):
        left_out |= twice | {"rates, in favour of counted bytes": len(rates)}
        return interval_rows, left_out, unknown, True
    return held_amounts(rates), left_out, unknown, False


def _single_port_rows(rows: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Rows of single ports, without the totals of files that also list each link."""
    file, _ = word_codes(rows, "file")
    of_one_port = has_values(rows, "port")
    twice = ~of_one_port & np.isin(file, file[of_one_port])
    return rows.filter(pa.array(~twice)), {"intervals of all ports together": int(twice.sum())}


def _moved_bytes(rows: pa.Table, left_out: dict[str, int], unknown: int) -> MovedBytes:
    return MovedBytes(
        value=rows["value"].to_numpy(),
        start=rows["start_ns"].fill_null(0).to_numpy(),
        end=rows["end_ns"].fill_null(0).to_numpy(),
        timed=has_values(rows, "start_ns", "end_ns"),
        rank=rows["rank"].cast(pa.int64()).fill_null(-1).to_numpy(),
        ports=len(np.unique(port_numbers(rows))),
        left_out={why: number for why, number in left_out.items() if number},
        unknown=unknown,
    )


def _subtracted_pairs(rows: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Totals of `before` and `after` files of otherwise equal names, subtracted by port."""
    by_port: dict[tuple[str, int | None, str | None], dict[int, list[dict[str, Any]]]] = {}
    for row in rows.to_pylist():
        stem, moment = file_moment(row["file"] or "")
        by_port.setdefault((stem, row["device"], row["port"]), {}).setdefault(moment, []).append(row)
    pairs, alone, reset = [], 0, 0
    for moments in by_port.values():
        match moments.get(0), moments.get(1):
            case [before], [after] if after["value"] >= before["value"]:
                value = after["value"] - before["value"]
                pairs.append({**after, "value": value, "start_ns": before["end_ns"]})
            case [_], [_]:
                reset += 1
            case _:
                alone += sum(map(len, moments.values()))
    left_out = {"totals without one `before` and one `after`": alone, "totals that were reset": reset}
    return pa.Table.from_pylist(pairs, schema=rows.schema), left_out


def file_moment(file: str) -> tuple[str, int]:
    """The file's path without its word for before or after, and 0 for before, 1 for after, −1 for unclear.

    The file's name decides, else its folder's.
    """
    words = list(_MOMENT.finditer(file, file.rfind("/") + 1)) or list(_MOMENT.finditer(file))
    if len(words) != 1:
        return file, -1
    return file[: words[0].start()] + file[words[0].end() :], 0 if words[0][1] else 1


def held_amounts(rows: pa.Table) -> pa.Table:
    """Amounts from rates at known times, each taken to hold since the previous sample: an estimate."""
    rows = rows.filter(rows["end_ns"].is_valid())
    port, end = port_numbers(rows), rows["end_ns"].to_numpy()
    order = np.lexsort((end, port))
    follows = port[order][1:] == port[order][:-1]
    earlier, later = order[:-1][follows], order[1:][follows]
    amounts = rows["value"].to_numpy()[later] * ((end[later] - end[earlier]) / _NS_PER_S)
    samples = rows.take(later)
    start = pa.chunked_array([end[earlier]], pa.int64())
    samples = samples.set_column(rows.schema.get_field_index("value"), "value", pa.chunked_array([amounts]))
    return samples.set_column(rows.schema.get_field_index("start_ns"), "start_ns", start)


def port_numbers(rows: pa.Table) -> Int64:
    """A number for each port or link of each GPU of each file, shape (rows,)."""
    number = np.zeros(len(rows), np.int64)
    for name in ("file", "rank", "device", "port"):
        codes, words = word_codes(rows, name)
        _, place = np.unique(["" if word is None else str(word) for word in words], return_inverse=True)
        number = number * len(words) + place[codes]
    return np.unique(number, return_inverse=True)[1]


def _why_none(table: pa.Table, port: str, noun: str) -> str:
    names = {name for name in table["counter"].unique().to_pylist() if name and name.startswith(f"{port}_")}
    kinds = {
        "_total": "totals of a single time",
        "_rate": "rates without their times",
        "_utilization": "shares of the links' peak, not bytes",
    }
    kind_words = [words for suffix, words in kinds.items() if any(name.endswith(suffix) for name in names)]
    problem = (
        f"the run's {noun} counters are {' and '.join(kind_words)}"
        if kind_words
        else f"the run has no {noun} counters"
    )
    captures = (READERS.get(name).counts.get(port) for name in reversed(sort_by_precedence(READERS)))
    return f"{problem}: add {', or '.join(filter(None, captures))}"

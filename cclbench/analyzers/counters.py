# SPDX-License-Identifier: Apache-2.0
"""Bytes by hardware counters: what the ports of NICs and NVLink moved, whoever asked them to.

Counters know no collective and no process: they count all that a port moved while somebody looked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.metric import Coverage, NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.rank_view import Windows
from cclbench.analyzers.view.run_view import RunView
from cclbench.formats import READERS, by_precedence
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.units import humanise

_NS_PER_S: Final = 10**9
_MOMENT = re.compile(r"(?<![a-z])(?:(before|begin|start|pre)|(after|end|stop|post))(?![a-z])", re.IGNORECASE)
_FORMULA: Final = "Σ bytes sent over all ports and all intervals between samples"
_DEFINITION: Final = (
    "Bytes that {ports} counted as sent, over all the time that counters were sampled, of which the run's"
    " steps may be a part; received bytes beside them by category. Other traffic of the same ports counts as"
    " well. Counts of a `before` and an `after` file named alike are subtracted; files are added up, so each"
    " host's counters belong in the run once. `per_step` is the bytes of those intervals that lie wholly"
    " within the ranks' windows, per step: nothing is prorated. Where several tools counted, one is"
    " preferred ({order}) and the others' figures stand beside it."
)


@dataclass(frozen=True, slots=True, eq=False)
class MovedBytes:
    """Bytes that one tool counted one way; arrays of shape (intervals,)."""

    value: npt.NDArray[np.float64]
    start: Int64
    end: Int64
    timed: Mask
    """Whether start and end are known."""
    rank: Int64
    """−1 where it is not known."""
    ports: int
    left_out: dict[str, int]
    unknown: int
    """Samples that count bytes of which nobody knows how many."""
    provenance: Literal["measured", "derived"] = "measured"

    @property
    def total_bytes(self) -> float:
        """Σ bytes."""
        return float(self.value.sum())

    @property
    def basis_words(self) -> str:
        """What the sum is made of."""
        when = "at times nobody states"
        if self.timed.all():
            covered = intervals.union(self.start, self.end).length
            when = f"that cover {humanise(covered / _NS_PER_S, 's')}"
        held = " by rates, each held since the sample before," if self.provenance == "derived" else ""
        several, ports = (
            f"{n:,} {noun}{'s' * (n != 1)}"
            for n, noun in ((len(self.value), "interval"), (self.ports, "port"))
        )
        return f"{several}{held} of {ports}, {when}"


@run_metric(
    "comm.nic_bytes",
    definition=_DEFINITION.format(ports="NIC ports", order="nsys, then snapshots of /sys/class/infiniband"),
    formula=_FORMULA,
    unit="B",
    inputs=("counters",),
    not_applicable="the run holds no NIC counters",
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
    not_applicable="the run holds no NVLink counters",
)
def nvlink_bytes(run: RunView) -> Iterator[Value]:
    """Σ nvlink_tx_bytes."""
    return _counted_bytes(run, "nvlink", "NVLink")


def _counted_bytes(run: RunView, port: str, noun: str) -> Iterator[Value]:
    table = with_plain_words(run.table("counters"))
    sources = by_precedence(pc.unique(table["source"]).to_pylist())
    told = {
        source: ways
        for source in sources
        if "tx" in (ways := _moved_by_way(table.filter(pc.equal(table["source"], source)), port))
    }
    if not told:
        raise NotApplicable(_why_none(table, port, noun))
    preferred = next((s for s, ways in told.items() if ways["tx"].provenance == "measured"), next(iter(told)))
    sent = told[preferred]["tx"]
    others = {source: ways["tx"] for source, ways in told.items() if source != preferred}
    says = [f"{source} says {humanise(moved.total_bytes, 'B')}" for source, moved in others.items()]
    reason = "; ".join([f"by {preferred}: {sent.basis_words}", *says])
    yield _moved_value(sent, preferred, reason=reason)
    for source, moved in others.items():
        yield _moved_value(
            moved, source, stat=source, reason=f"{moved.basis_words}; {preferred} is preferred"
        )
    for way, moved in told[preferred].items():
        yield _moved_value(moved, preferred, category=way)
    yield from _by_rank(sent, preferred)
    yield _per_step(run, sent, preferred)


def with_plain_words(table: pa.Table) -> pa.Table:
    """The table with columns of words as texts."""
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
            when = "no interval of the counters lies wholly within the steps"
            raise NotApplicable(when if moved.timed.any() else "nobody states the counters' times")
    except NotApplicable as why:
        return no_value(str(why), stat="per_step", source=source)
    covered = intervals.union(moved.start[inside], moved.end[inside]).length
    share = humanise(covered / (hi - lo), "1")
    overlapping = moved.timed & (moved.start < hi) & (moved.end > lo)
    return Value(
        value=float(moved.value[inside].sum()) / steps,
        stat="per_step",
        provenance="derived",
        reason=f"whole intervals cover {share} of {steps} steps' time, the rest is left out",
        coverage=Coverage(int(inside.sum()), int(overlapping.sum()), covered, hi - lo),
        source=source,
    )


def windows_of_steps(run: RunView) -> list[Windows]:
    """The windows of each rank that has steps; not applicable where none has."""
    found = []
    for rank in run.ranks:
        try:
            windows = run.rank(rank).windows
        except NotApplicable:
            continue
        if windows.policy != "trace" and len(windows):
            found.append(windows)
    if not found:
        raise NotApplicable("the run has no trace with steps")
    return found


def _step_span(run: RunView) -> tuple[int, int, int]:
    """From the first rank's first step to the last rank's last, in ns, and how many steps a rank has."""
    windows = windows_of_steps(run)
    first = min(int(each.starts.min()) for each in windows)
    return first, max(int(each.ends.max()) for each in windows), max(map(len, windows))


def _moved_by_way(own: pa.Table, port: str) -> dict[str, MovedBytes]:
    """Bytes sent and received, where one tool tells them: counts, in a file or between two; else rates."""
    told = {}
    for way in ("tx", "rx"):
        counted, totals, rates = (
            own.filter(pc.equal(own["counter"], f"{port}_{way}_{suffix}"))
            for suffix in ("bytes", "total", "rate")
        )
        pairs, left_out = _subtracted_pairs(totals)
        single, twice = _single_port_rows(counted)
        known = pa.concat_tables([single, pairs])
        unknown = sum(left_out.values())
        if len(known):
            told[way] = _moved_bytes(
                known, {**left_out, **twice, "rates, beside counted bytes": len(rates)}, unknown
            )
        elif len(known := held_amounts(rates)):
            told[way] = replace(_moved_bytes(known, left_out, unknown), provenance="derived")
    return told


def _single_port_rows(rows: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Rows of single ports: of a file that has the same bytes by link and of all links together."""
    keys = pa.table({"file": rows["file"].cast(pa.string()), "port": rows["port"].is_valid()})
    by_port = pc.unique(keys.filter(keys["port"])["file"])
    twice = pc.and_(pc.invert(keys["port"]), pc.is_in(keys["file"], by_port))
    return rows.filter(pc.invert(twice)), {"intervals of all ports together": pc.sum(twice).as_py() or 0}


def _moved_bytes(rows: pa.Table, left_out: dict[str, int], unknown: int) -> MovedBytes:
    timed = pc.and_(rows["start_ns"].is_valid(), rows["end_ns"].is_valid()).to_numpy()
    return MovedBytes(
        value=rows["value"].to_numpy(),
        start=rows["start_ns"].fill_null(0).to_numpy(),
        end=rows["end_ns"].fill_null(0).to_numpy(),
        timed=timed,
        rank=rows["rank"].cast(pa.int64()).fill_null(-1).to_numpy(),
        ports=len(np.unique(port_numbers(rows))),
        left_out={why: number for why, number in left_out.items() if number},
        unknown=unknown,
    )


def _subtracted_pairs(rows: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Totals of two files named alike but for `before` and `after`, subtracted port by port."""
    found: dict[tuple[str, int | None, str | None], dict[int, list[dict[str, Any]]]] = {}
    for row in rows.to_pylist():
        stem, moment = _file_moment(row["file"] or "")
        found.setdefault((stem, row["device"], row["port"]), {}).setdefault(moment, []).append(row)
    pairs, alone, reset = [], 0, 0
    for moments in found.values():
        match moments.get(0), moments.get(1):
            case [before], [after] if after["value"] >= before["value"]:
                value = after["value"] - before["value"]
                pairs.append({**after, "value": value, "start_ns": before["end_ns"]})
            case [_], [_]:
                reset += 1
            case _:
                alone += sum(map(len, moments.values()))
    left_out = {"totals without one `before` and one `after`": alone, "totals that went back: reset": reset}
    return pa.Table.from_pylist(pairs, schema=rows.schema), left_out


def _file_moment(file: str) -> tuple[str, int]:
    """The file's path without its word for a moment, and which it is: 0 before, 1 after, −1 unclear.

    The file's own name says it, or else its folder's.
    """
    said = list(_MOMENT.finditer(file, file.rfind("/") + 1)) or list(_MOMENT.finditer(file))
    if len(said) != 1:
        return file, -1
    return file[: said[0].start()] + file[said[0].end() :], 0 if said[0][1] else 1


def held_amounts(rows: pa.Table) -> pa.Table:
    """Amounts by rates a second at known instants, each held since the one before: an estimate."""
    rows = rows.filter(rows["end_ns"].is_valid())
    place, end = port_numbers(rows), rows["end_ns"].to_numpy()
    order = np.lexsort((end, place))
    follows = place[order][1:] == place[order][:-1]
    earlier, later = order[:-1][follows], order[1:][follows]
    held = rows["value"].to_numpy()[later] * ((end[later] - end[earlier]) / _NS_PER_S)
    samples = rows.take(later)
    start = pa.chunked_array([end[earlier]], pa.int64())
    samples = samples.set_column(rows.schema.get_field_index("value"), "value", pa.chunked_array([held]))
    return samples.set_column(rows.schema.get_field_index("start_ns"), "start_ns", start)


def port_numbers(rows: pa.Table) -> Int64:
    """A number for each link or port of each GPU of each file, shape (rows,)."""
    keys = [rows[name].cast(pa.string()) for name in ("file", "rank", "device", "port")]
    joined = pc.binary_join_element_wise(*keys, "\n", null_handling="replace", null_replacement="")
    return np.asarray(pc.rank(joined, tiebreaker="dense").to_numpy(), dtype=np.int64)


def _why_none(table: pa.Table, port: str, noun: str) -> str:
    names = {name for name in pc.unique(table["counter"]).to_pylist() if name and name.startswith(f"{port}_")}
    kinds = {
        "_total": "totals of one moment only",
        "_rate": "rates without their times",
        "_utilization": "shares of the links' peak, which are no bytes",
    }
    said = [words for suffix, words in kinds.items() if any(name.endswith(suffix) for name in names)]
    what = (
        f"the run's {noun} counters are {' and '.join(said)}" if said else f"the run holds no {noun} counters"
    )
    captures = (READERS.get(name).counts.get(port) for name in reversed(by_precedence(READERS)))
    return f"{what}: add {', or '.join(filter(None, captures))}"

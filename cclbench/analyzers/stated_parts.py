# SPDX-License-Identifier: Apache-2.0
"""Parts of steps as a profiler's own table states them, and beside them those that its rows give here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.columns import word_codes
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground import intervals
from cclbench.ground.units import humanise

NO_TABLE: Final = "needs a profiler's table of steps (Ascend's step_trace_time.csv)"
_SUMMED: Final = ("compute", "exposed_comm", "free")
"""Parts that add up to a step's time on the device."""
_COMPARED: Final = (*_SUMMED, "overlapped")
_MOST_RANKS: Final = 1 << 12
Parts = Mapping[str, int]
"""ns by part."""


@run_metric(
    "time.stated_parts",
    definition="Time of a step on the device as the profiler's own table states it, and by category its"
    " parts: compute (also where communication overlaps it), exposed_comm and free add up to it;"
    " communication and overlapped; of pipelines stage, which is the step without bubble, the time of"
    " receives, and exposed_comm_without_receive; preparing, from the step's begin on the host to its first"
    " task, is beside them. Mean over the rows of steps, in all and by rank.",
    formula="compute + exposed_comm + free",
    unit="s",
    better="lower",
    inputs=("stated_parts",),
    not_applicable=NO_TABLE,
)
def stated_parts(run: RunView) -> Iterator[Value]:
    """Mean parts of all rows, then those of each rank."""
    rows = _with_ranks(run)
    row_ranks = rows["rank"].fill_null(-1).to_numpy()
    yield from _mean_parts(rows, None)
    for rank in np.unique(row_ranks[row_ranks >= 0])[:_MOST_RANKS].tolist():
        yield from _mean_parts(rows.filter(pa.array(row_ranks == rank)), rank)


def _mean_parts(rows: pa.Table, rank: int | None) -> Iterator[Value]:
    codes, names = word_codes(rows, "part")
    seconds = rows["dur_ns"].to_numpy() / NS_PER_S
    used = np.unique(codes).tolist()
    means = {str(names[code]): float(seconds[codes == code].mean()) for code in used}
    value = partial(Value, rank=rank, provenance="published", source=rows["source"][0].as_py())
    if all(part in means for part in _SUMMED):
        yield value(value=sum(means[part] for part in _SUMMED))
    else:
        yield no_value("the table lacks one of its parts", rank=rank)
    for part, mean in means.items():
        yield value(value=mean, category=part)


@run_metric(
    "time.stated_difference",
    definition="How far the parts of a rank's steps here are from those that the profiler's own table states:"
    " half the sum of the differences of compute only, exposed communication, overlap and idle time"
    " (copies included), as a share of the table's time, so the share of time that is in another part. By"
    " category compute, exposed_comm, overlapped, free: the part here minus the table's, as a share of its"
    " time. Steps are joined by number, or everything recorded where the table has no steps; the rank is"
    " that of the only trace in the table's folder. The table counts an interval wholly in the step"
    " in which it begins, ends a step with its last interval, and takes for compute and communication what"
    " msprof does; here windows reach to the next step and cut intervals.",
    formula="½ Σ |part − stated part| / stated time",
    unit="1",
    better="lower",
    inputs=("stated_parts", "events", "steps"),
    not_applicable=f"{NO_TABLE} beside the trace of its rank",
)
def stated_difference(run: RunView) -> Iterator[Value]:
    """The difference of each rank that has both."""
    rows = _with_ranks(run)
    ranks = [rank for rank in rows["rank"].unique().drop_null().to_pylist() if rank in run.ranks]
    if not ranks:
        raise NotApplicable(f"{NO_TABLE} beside the trace of its rank: the table's ranks have no traces here")
    shares = []
    for rank in sorted(ranks):
        rank_rows = rows.filter(pa.array(rows["rank"].to_numpy() == rank))
        try:
            stated, measured, words = _both_partitions(run.rank(rank), rank_rows)
        except NotApplicable as why:
            yield no_value(str(why), rank=rank)
            continue
        time = sum(stated[part] for part in _SUMMED)
        # Compute that communication overlaps is in two of the table's columns.
        alone = (measured["compute"] - measured["overlapped"]) - (stated["compute"] - stated["overlapped"])
        others = (measured[part] - stated[part] for part in _COMPARED if part != "compute")
        share = (abs(alone) + sum(map(abs, others))) / (2 * time)
        shares.append(share)
        yield Value(value=share, rank=rank, provenance="derived", reason=words)
        for part in _COMPARED:
            yield Value(
                value=(measured[part] - stated[part]) / time,
                rank=rank,
                category=part,
                provenance="derived",
                reason=f"{humanise(measured[part] / NS_PER_S, 's')} here,"
                f" {humanise(stated[part] / NS_PER_S, 's')} in the table",
            )
    if shares:
        words = f"ranks compared: {len(shares)}"
        yield Value(value=float(np.mean(shares)), provenance="derived", reason=words)
    else:
        yield no_value("no rank has a step in both")


def _with_ranks(run: RunView) -> pa.Table:
    """The rows, with the rank of the only trace in the table's folder where the table states none."""
    rows = run.table("stated_parts")
    if not len(rows):
        raise NotApplicable(NO_TABLE)
    codes, files = word_codes(rows, "file")
    by_file = [-1 if file is None else _only_rank(run, file) for file in files]
    rank = rows["rank"].fill_null(-1).to_numpy().copy()
    devices = [len(rows.filter(pa.array(codes == code))["device"].unique()) for code in range(len(files))]
    for code, file_rank in enumerate(by_file):
        if devices[code] == 1:
            rank[(codes == code) & (rank < 0)] = file_rank
    numbers = pa.array(rank.astype(np.int32), mask=rank < 0)
    return rows.set_column(rows.schema.get_field_index("rank"), "rank", numbers)


def _only_rank(run: RunView, file: str) -> int:
    """The rank whose trace alone is in the file's folder; −1 if there is none, or several."""
    folder = file.rpartition("/")[0]
    ranks = [
        rank
        for rank, names in run.trace_files.items()
        if folder in {name.rpartition("/")[0] for name in names}
    ]
    return ranks[0] if len(ranks) == 1 else -1


def _both_partitions(rank: RankView, rows: pa.Table) -> tuple[Parts, Parts, str]:
    """ns by part, stated and measured, of the steps that both have, and what these are."""
    steps = rows["step"].fill_null(-1).to_numpy()
    if (steps < 0).all():
        if len(rows["entry"].unique()) != 1:
            raise NotApplicable("the table has several rows without a step")
        return _stated_sums(rows), _trace_partition(rank), "all that was recorded"
    windows = rank.windows
    numbers = np.array([-1 if step is None else step for step in windows.steps], np.int64)
    used = np.isin(numbers, steps[steps >= 0])
    if not used.any():
        raise NotApplicable("the trace and the table have no complete step in common")
    parts, table = rank.parts, rows.filter(pa.array(np.isin(steps, numbers[used])))
    sums = {
        "compute": parts.compute_only + parts.overlapped,
        "exposed_comm": parts.exposed_comm,
        "overlapped": parts.overlapped,
        "free": parts.idle + parts.exposed_copy,
    }
    measured = {part: int(part_ns[used].sum()) for part, part_ns in sums.items()}
    return _stated_sums(table), measured, f"steps in both: {used.sum()}"


def _stated_sums(rows: pa.Table) -> Parts:
    codes, names = word_codes(rows, "part")
    ns = rows["dur_ns"].to_numpy()
    used = np.unique(codes).tolist()
    sums = {str(names[code]): int(ns[codes == code].sum()) for code in used}
    if missing := [part for part in _COMPARED if part not in sums]:
        raise NotApplicable(f"the table does not state {missing[0]}")
    if not sum(sums[part] for part in _SUMMED):
        raise NotApplicable("the table's steps take no time")
    return sums


def _trace_partition(rank: RankView) -> Parts:
    """The parts from the first kernel to the end of the last one."""
    compute, communication, _ = rank.busy
    both = intervals.join(compute, communication)
    if not len(both.starts):
        raise NotApplicable(rank.no_work)
    busy, c, k = both.length, compute.length, communication.length
    return {
        "compute": c,
        "exposed_comm": busy - c,
        "overlapped": c + k - busy,
        "free": int(both.ends[-1] - both.starts[0]) - busy,
    }

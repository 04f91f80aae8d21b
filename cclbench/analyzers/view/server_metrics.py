# SPDX-License-Identifier: Apache-2.0
"""What a serving engine counted between two snapshots of its metrics, or since it started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.counters import file_moment
from cclbench.analyzers.view.columns import has_word, word_codes
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.intervals import Int64

RESTARTED: Final = "a count went back: the server was restarted between the snapshots"
GONE: Final = "a series of the first snapshot is not in the last: a server is gone"
SINCE_START: Final = "since the server started: a snapshot before the benchmark leaves out what came earlier"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Observations of a histogram: upper bounds of the buckets, cumulative counts, sum and number."""

    bounds: Floats
    cumulative: Floats
    total: float
    count: int

    @property
    def mean(self) -> float | None:
        """Sum over number; None without observations."""
        return self.total / self.count if self.count else None

    def quantile_bounds(self, percent: int) -> tuple[float, float] | None:
        """Bounds of the bucket with the ⌈percent/100 · count⌉-th smallest observation; None if unknown.

        The upper one may be infinite.
        """
        ordinal = ceil(percent * self.count / 100)
        if not self.count or not len(self.bounds) or self.cumulative[-1] < ordinal:
            return None
        place = int(np.searchsorted(self.cumulative, ordinal))
        return float(self.bounds[place - 1]) if place else 0.0, float(self.bounds[place])


@dataclass(frozen=True, slots=True, eq=False)
class ServerCounts:
    """Counts between two snapshots: of a file's first and last scrape, or of `before` and `after` files."""

    label: str
    """The file's name, without its word for before or after."""
    since_start: bool
    """Whether there is one snapshot only."""
    histograms: dict[str, Histogram]
    """By metric, servers added up; those whose servers have other buckets have bounds of none."""
    totals: dict[str, float]
    """Counters by metric, servers and reasons added up."""
    problem: str | None = None
    """Why there are no counts."""


def server_counts(run: RunView) -> list[ServerCounts]:
    """Counts of each file, or pair of files, by name."""
    table = run.table("server_metrics")
    table = table.filter(pa.array(~has_word(table, "part", "value")))
    numbers, files = word_codes(table, "file")
    moments = [file_moment(file or "") for file in files]
    stems = [stem for stem, _ in moments]
    paired = {
        stem
        for stem in stems
        if sorted(moment for file_stem, moment in moments if file_stem == stem) == [0, 1]
    }  # fmt: skip
    groups: dict[str, list[int]] = {}
    for number, (stem, _) in enumerate(moments[:-1]):
        groups.setdefault(stem if stem in paired else str(files[number]), []).append(number)
    order = np.array([max(moment, 0) for _, moment in moments], np.int64)[numbers]
    scrapes = table["scrape"].to_numpy() + (order << 32)
    counts = []
    for label, file_numbers in sorted(groups.items()):
        rows = np.flatnonzero(np.isin(numbers, file_numbers))
        if len(rows):
            counts.append(_counts_of(label, table.take(pa.array(rows)), scrapes[rows]))
    return counts


def _counts_of(label: str, table: pa.Table, scrapes: Int64) -> ServerCounts:
    metric, metrics = word_codes(table, "metric")
    part, parts = word_codes(table, "part")
    series, _ = word_codes(table, "series")
    bounds, bound = np.unique(table["le"].fill_null(-1.0).to_numpy(), return_inverse=True)
    key = np.ravel_multi_index(
        (metric, part, series, bound), (len(metrics), len(parts), int(series.max()) + 1, len(bounds))
    )
    by_time = np.lexsort((scrapes, key))
    key, values, times = key[by_time], table["value"].to_numpy()[by_time], scrapes[by_time]
    same = key[1:] == key[:-1]
    first, last = np.flatnonzero(np.r_[True, ~same]), np.flatnonzero(np.r_[~same, True])
    begin, end = scrapes.min(), scrapes.max()
    problem = RESTARTED if (np.diff(values)[same] < 0).any() else None
    problem = GONE if problem is None and (times[last] < end).any() else problem
    earlier = np.where((times[first] == begin) & (begin < end), values[first], 0.0)
    moved, at = values[last] - earlier, by_time[last]
    key_metric, key_part, key_bound = metric[at], part[at], bounds[bound[at]]
    words = [word or "" for word in parts]
    histograms, totals = dict[str, Histogram](), dict[str, float]()
    for number, name in enumerate(metrics[:-1]):
        in_metric = key_metric == number
        amounts = {word: moved[in_metric & (key_part == code)] for code, word in enumerate(words)}
        if len(amounts.get("count", ())) and len(amounts.get("sum", ())):
            in_bucket = in_metric & (key_part == (words.index("bucket") if "bucket" in words else -1))
            upper, cumulative = _added_buckets(key_bound[in_bucket], moved[in_bucket], len(amounts["count"]))
            histograms[str(name)] = Histogram(
                upper, cumulative, float(amounts["sum"].sum()), round(amounts["count"].sum())
            )
        elif len(amounts.get("total", ())):
            totals[str(name)] = float(amounts["total"].sum())
    return ServerCounts(label, bool(begin == end), histograms, totals, problem)


def _added_buckets(bounds: Floats, counts: Floats, servers: int) -> tuple[Floats, Floats]:
    """Bounds, and counts of all servers; empty if servers have other bounds."""
    upper, place, times = np.unique(bounds, return_inverse=True, return_counts=True)
    if (times != servers).any():
        return np.empty(0), np.empty(0)
    return upper, np.bincount(place, weights=counts, minlength=len(upper)).astype(np.float64)


def labelled_servers(counts: list[ServerCounts]) -> Iterator[tuple[str | None, ServerCounts]]:
    """Counts of each server with its label, None if there is only one server."""
    for server in counts:
        yield (server.label if len(counts) > 1 else None), server

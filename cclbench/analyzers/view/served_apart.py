# SPDX-License-Identifier: Apache-2.0
"""Requests that one instance prefills and another decodes, joined by their ids: time to first token, split.

The window of a request is from its first arrival at either instance to its first token at the one that
decodes.  Stages overlap (a KV cache is sent layer by layer while the prompt is computed); each instant counts
for the first of `PARTS` that covers it, so that parts and the rest add up to the window, in ns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import has_values, has_word, word_codes
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Mask

PARTS: Final = ("prefill", "first_token", "queue", "transfer", "kv_wait")
"""Stages of `request_stages`, the one that an instant counts for first."""
UNATTRIBUTED: Final = "unattributed"
HIDDEN: Final = "hidden_transfer"
"""Transfer during the prefill, which is no part of its own."""
_LONGEST_NS: Final = 86_400 * 10**9
_BLOCK: Final = 1 << 12
"""Requests whose windows, laid end to end, fit int64."""
_FARTHEST: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class FirstTokens:
    """Requests by part, all arrays int64 ns, shape (requests,)."""

    arrival: Int64
    ttft: Int64
    parts: Mapping[str, Int64]
    """By `PARTS` and `UNATTRIBUTED`, which add up to `ttft`, and `HIDDEN`."""
    prefill: Int64
    """Prefill of the requests that no clock splits: it is within the time to first token on any clock."""
    most_transfer: Int64
    """Most time of these that is transfer alone."""
    unsplit: Mapping[str, int]
    """Numbers of requests that are not split, by reason."""

    @property
    def joined(self) -> int:
        """Number of requests that both instances served."""
        return len(self.ttft) + sum(self.unsplit.values())


_NO_HOSTS: Final = "their spans do not state the host (resource attribute host.name)"
_OTHER_CLOCKS: Final = "their instances are on two hosts, whose clocks differ by an unknown offset"
_SEVERAL: Final = "several instances that decode have spans of them"
_IMPOSSIBLE: Final = "their first token is before their arrival, or more than a day after it"


def first_tokens(stages: pa.Table) -> FirstTokens:
    """The split of all requests in a table `request_stages` that both instances served."""
    codes = np.unique(stages["request"].to_numpy(), return_inverse=True)[1]
    rows = _Rows(codes, stages)
    decoded = rows.of_role("decode") & rows.of_stage("request")
    joined = rows.count(rows.of_role("prefill")).astype(bool) & rows.count(decoded).astype(bool)
    several = rows.count(decoded) > 1
    hosts_known = rows.count(~rows.has_host) == 0
    one_host = rows.share_host(rows.codes >= 0)
    begin = rows.least(rows.starts, rows.of_stage("request"))
    end = rows.most(rows.ends, decoded)
    length = np.where(joined, end - np.where(joined, begin, 0), 0)
    possible = (length > 0) & (length <= _LONGEST_NS)
    common = hosts_known & one_host
    causes = {
        _SEVERAL: several,
        _NO_HOSTS: ~several & ~hosts_known,
        _OTHER_CLOCKS: ~several & hosts_known & ~one_host,
        _IMPOSSIBLE: ~several & common & ~possible,
    }
    split = joined & ~several & common & possible
    order = np.flatnonzero(split)[np.argsort(begin[split], kind="stable")]
    prefill, most_transfer = _bounds(rows, np.flatnonzero(joined & ~several & ~common))
    return FirstTokens(
        arrival=begin[order],
        ttft=length[order],
        parts=rows.part_lengths(order, begin[order], end[order]),
        prefill=prefill,
        most_transfer=most_transfer,
        unsplit={
            reason: int(request_mask.sum())
            for reason, mask in causes.items()
            if (request_mask := joined & mask).any()
        },
    )


def _bounds(rows: _Rows, requests: Int64) -> tuple[Int64, Int64]:
    """Prefill, and most transfer alone, by each instance's own clock, of the requests that state a prefill.

    The transfer is at most what the prefill instance sends after its prefill; where it states no transfer, at
    most what the other one waits for the KV cache.
    """
    by_role = {}
    for role in ("prefill", "decode"):
        stage_rows = rows.of_role(role) & ~rows.of_stage("request")
        begin, end = rows.least(rows.starts, stage_rows), rows.most(rows.ends, stage_rows)
        has_rows = rows.count(stage_rows).astype(bool)
        fits = has_rows & (np.where(has_rows, end - np.where(has_rows, begin, 0), 0) <= _LONGEST_NS)
        begin, end = np.where(fits, begin, 0)[requests], np.where(fits, end, 0)[requests]
        by_role[role] = rows.part_lengths(requests, begin, end, stage_rows)
    stated = rows.count(rows.of_stage("transfer"))[requests] > 0
    waited = rows.count(rows.of_stage("kv_wait"))[requests] > 0
    most = np.where(stated, by_role["prefill"]["transfer"], by_role["decode"]["kv_wait"])
    one_clock = rows.share_host(rows.of_role("prefill"))[requests]
    has_bounds = one_clock & (by_role["prefill"]["prefill"] > 0) & (stated | waited)
    return by_role["prefill"]["prefill"][has_bounds], most[has_bounds]


class _Rows:
    """Rows of `request_stages` by request, whose codes count from 0."""

    def __init__(self, codes: Int64, stages: pa.Table) -> None:
        self.codes, self._stages = codes, stages
        self.requests = int(codes.max(initial=-1)) + 1
        self.starts, self.ends = stages["start_ns"].to_numpy(), stages["end_ns"].to_numpy()
        self.has_host = has_values(stages, "host")
        self._hosts = stages["host"].fill_null(-1).to_numpy()
        self._stage, self._words = word_codes(stages, "stage")

    def of_role(self, role: str) -> Mask:
        """Mask of the rows of instances with that role."""
        return has_word(self._stages, "role", role)

    def of_stage(self, stage: str) -> Mask:
        """Mask of the rows of that stage."""
        return has_word(self._stages, "stage", stage)

    def share_host(self, selection: Mask) -> Mask:
        """Whether the selected rows of each request are of one host, or of none that is stated."""
        return np.asarray(self.least(self._hosts, selection) >= self.most(self._hosts, selection), np.bool_)

    def count(self, selection: Mask) -> Int64:
        """Number of the selected rows of each request."""
        return np.bincount(self.codes[selection], minlength=self.requests)

    def least(self, values: Int64, selection: Mask) -> Int64:
        """Smallest value of the selected rows of each request; the largest int64 without any."""
        least = np.full(self.requests, _FARTHEST)
        np.minimum.at(least, self.codes[selection], values[selection])
        return least

    def most(self, values: Int64, selection: Mask) -> Int64:
        """Largest value of the selected rows of each request; −1 without any."""
        most = np.full(self.requests, -1)
        np.maximum.at(most, self.codes[selection], values[selection])
        return most

    def part_lengths(
        self, requests: Int64, begin: Int64, end: Int64, selection: Mask | None = None
    ) -> dict[str, Int64]:
        """Time of each part, of the rest and of hidden transfers in the window of each of these requests."""
        place = np.full(self.requests, -1)
        place[requests] = np.arange(len(requests))
        used = np.flatnonzero(
            place[self.codes] >= 0 if selection is None else selection & (place[self.codes] >= 0)
        )
        used = used[np.argsort(place[self.codes[used]], kind="stable")]
        row_window = place[self.codes[used]]
        blocks = []
        for at in range(0, max(len(requests), 1), _BLOCK):
            rows = slice(*np.searchsorted(row_window, (at, at + _BLOCK)))
            windows = begin[at : at + _BLOCK], end[at : at + _BLOCK]
            blocks.append(dict(self._block_lengths(used[rows], row_window[rows] - at, *windows)))
        return {part: np.concatenate([block[part] for block in blocks]) for part in blocks[0]}

    def _block_lengths(
        self, rows: Int64, row_window: Int64, begin: Int64, end: Int64
    ) -> Iterator[tuple[str, Int64]]:
        """The parts of windows; `row_window` is the window of each row."""
        # All windows are laid end to end on one line: each stage is then one set for all requests.
        until = np.cumsum(end - begin)
        since = until - (end - begin)
        starts, ends = (
            np.clip(each[rows], begin[row_window], end[row_window]) - begin[row_window] + since[row_window]
            for each in (self.starts, self.ends)
        )
        sets = {
            part: intervals.union(starts[same], ends[same])
            for part in PARTS
            for same in [self._stage[rows] == (self._words.index(part) if part in self._words else -1)]
        }
        covered = intervals.EMPTY
        for part in PARTS:
            yield part, intervals.within(intervals.subtract(sets[part], covered), since, until)
            covered = intervals.join(covered, sets[part])
        yield UNATTRIBUTED, until - since - intervals.within(covered, since, until)
        hidden = intervals.intersect(sets["transfer"], sets["prefill"])
        yield HIDDEN, intervals.within(hidden, since, until)

# SPDX-License-Identifier: Apache-2.0
"""Collectives that are matched, and clocks that are fitted to them, a few rows at a time: as all at once."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from cclbench import disk_arithmetic, disk_columns, disk_order
from cclbench.normalize import matching, shared_ends
from cclbench.normalize.call_keys import Rows
from cclbench.normalize.clocks import estimate

SEND, RECV = 8, 9


def job(seed: int) -> Rows:
    """Rows of two to eight ranks: some numbered, some in order, some that send and receive; many unfit."""
    random = np.random.default_rng(seed)
    count, ranks = int(random.integers(0, 200)), int(random.integers(2, 9))
    rank = np.sort(random.integers(0, ranks, count))
    kind, seq = random.choice([-1, 0, 0, 0, 1, SEND, RECV], count), random.integers(-1, 12, count)
    if seed % 3 == 0:  # each rank's calls are numbered, without gaps
        kind, seq = np.zeros(count), np.arange(count) - np.searchsorted(rank, rank)
    elif seed % 3 == 1:  # none is
        seq = np.full(count, -1)
    return Rows(
        rank=rank.astype(np.int32),
        group=random.integers(-1, 4, count).astype(np.int32) * np.int32(seed % 2),
        size=random.choice([1, 2, ranks], count, p=[0.1, 0.3, 0.6]).astype(np.int32),
        kind=kind.astype(np.int8),
        seq=seq.astype(np.int64),
        step=random.integers(-1, 3, count).astype(np.int32),
        bytes=random.integers(1, 4, count),
        source=random.integers(-1, ranks, count).astype(np.int32),
        target=random.integers(-1, ranks, count).astype(np.int32),
    )


def ends_of(rows: Rows, found: matching.Matching, seed: int) -> tuple[np.ndarray, ...]:
    """Rank, instance and end of the rows of instances, on clocks that are off, and of some that drift."""
    random = np.random.default_rng(seed)
    at = np.flatnonzero(found.instance >= 0)
    rank, instance = rows.rank[at], found.instance[at]
    when = random.integers(0, 10**10, len(found.present))[instance]
    own = random.integers(-(10**6), 10**6, 9)[rank] + random.normal(0, 1e-5, 9)[rank] * when * (seed % 2)
    return rank, instance, 10**18 + when + np.rint(own + random.normal(0, 300, len(at))).astype(np.int64)


def answers(seed: int) -> list[object]:
    """Everything that is found of a job."""
    rows = job(seed)
    found = matching.match(rows, (SEND, RECV))
    told: list[object] = [getattr(found, field.name).tolist() for field in fields(found)]
    told.append(found.counts())
    rank, instance, ends = ends_of(rows, found, seed)
    present = np.unique(rank)
    host = present.astype(np.int32) // 2 if seed % 2 else np.full(len(present), -1, np.int32)
    clocks = estimate(rank, instance, ends, host)
    told += [np.asarray(getattr(clocks, field.name)).tolist() for field in fields(clocks)]
    came = clocks.corrected(rank, ends) - np.random.default_rng(seed).integers(0, 3000, len(ends))
    told.append(matching.contradictions(instance, came, clocks.corrected(rank, ends), 5).tolist())
    return told


@pytest.mark.parametrize("since", range(0, 60, 10))
def test_the_same_to_the_last_bit(since, monkeypatch):
    whole = [answers(seed) for seed in range(since, since + 10)]
    assert any(any(number >= 0 for number in instance) for instance, *_ in whole)
    monkeypatch.setattr(matching, "_ROWS", 7)
    monkeypatch.setattr(matching, "_MATCHED_ROWS", 16)
    monkeypatch.setattr(shared_ends, "_SORTED_ROWS", 16)
    monkeypatch.setattr(disk_arithmetic, "_ROWS", 5)
    monkeypatch.setattr(disk_order, "_SAMPLE", 1)
    monkeypatch.setattr(disk_columns, "SMALL_BYTES", 1)
    assert [answers(seed) for seed in range(since, since + 10)] == whole


@pytest.mark.parametrize("groups", [1, 2, 16])
def test_large_groups_are_matched_some_numbers_at_a_time(monkeypatch, groups):
    """Four ranks, 3,200 numbers each, of each group in turn: some 640 rows at a time."""
    monkeypatch.setattr(matching, "_MATCHED_ROWS", 640)
    sizes = []

    def by_number(rows: Rows):
        sizes.append(len(rows))
        return whole(rows)

    whole = matching.by_number
    monkeypatch.setattr(matching, "by_number", by_number)
    rank, seq = np.repeat(np.arange(4, dtype=np.int32), 3200), np.tile(np.arange(3200), 4)
    column = np.zeros(4 * 3200, np.int32)
    group, peers = (seq % groups).astype(np.int32), column - 1
    rows = Rows(rank, group, column + 4, column.astype(np.int8), seq, column, seq, peers, peers)
    found = matching.match(rows, (SEND, RECV))
    assert len(found.present) == 3200
    assert (found.instance == np.argsort(np.lexsort((seq[:3200], group[:3200])))[seq]).all()
    assert sum(sizes) == len(rows)
    assert max(sizes) < 2 * 640

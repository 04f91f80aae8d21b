# SPDX-License-Identifier: Apache-2.0
"""Pair the kernels of a graph's replay with the launches of its capture, or say why they are not one graph.

A replay runs what was captured, in that order on each stream.  A profiler may lose rows of either; it never
makes one kernel another.  So a capture and a replay are one graph if

- at least `LEAST_SHARE` of the longer one's kernels pair in order, by their whole names: tiles and template
  arguments differ between graphs of other batch sizes;
- nowhere does one have kernels in the place of others of the other; only one of them lacks kernels there;
- where the capture states no names (CUDA), kernels are as many, copies are at the same places, and calls with
  the same arguments launched the same kernels.

A kernel is paired only if every best alignment gives it a launch by a call of the same arguments and module.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from cclbench.ground.intervals import Int64, Mask, begins, occurrence
from cclbench.ingestion.captured_launches import Capture
from cclbench.normalize.kernel_alignment import MOST_DIFFERENCES, align_kernels

LEAST_SHARE: Final = 0.95
"""Least share of the kernels, of capture or replay, whichever has more, that pair."""
_LEAST_REPEATED: Final = 0.5
"""Least share of launches by calls that occur repeatedly, where the capture states no names."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedKernels:
    """Device rows of one graph launch by stream and start, arrays of shape (rows,)."""

    kernels: Int64
    """Code of each kernel's name, −1 for a copy."""
    stream: Int64
    """Number of each row's stream in the launch."""

    @property
    def key(self) -> tuple[bytes, bytes]:
        """Equal for replays of the same rows."""
        return self.kernels.tobytes(), self.stream.tobytes()

    def __len__(self) -> int:
        return len(self.kernels)


@dataclass(frozen=True, slots=True, eq=False)
class KernelPairs:
    """Launch of each row of a replay, −1 where it is not certain, shape (rows,)."""

    launch: Int64
    loss: int
    """Number of launches without a row, and of rows without a launch."""
    without_row: int
    """Number of captured launches without a row."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a replay is not of a capture."""

    why: str
    common: int
    """Number of kernel names that they share, or, negative, by how much their lengths differ if too much."""


def pair_kernels(capture: Capture, kernels: Int64, replay: ReplayedKernels) -> KernelPairs | Misfit:
    """Pairs of a capture's launches with a replay's rows.

    `kernels` is the code of each launch's kernel as in the replay, −1 for a copy and −2 for an unstated name.
    """
    longer, difference = max(len(kernels), len(replay)), abs(len(kernels) - len(replay))
    if not (capture.kernels.codes >= 0).any():
        return _pair_by_place(capture, kernels, replay)
    numbers = f"{len(replay):,} device rows; the nearest capture has {len(kernels):,} launches"
    if difference > (1 - LEAST_SHARE) * longer:
        return Misfit(numbers, -difference)
    common = _equal_names(kernels, replay.kernels)
    if common < LEAST_SHARE * longer:
        return Misfit(f"{numbers}, {common:,} of the same kernels", common)
    if not replay.stream.any():
        return _pair_in_order(capture, kernels, replay, numbers, common)
    return _pair_by_name(capture, kernels, replay, numbers, common)


def _equal_names(a: Int64, b: Int64) -> int:
    """Number of kernels that two sequences share, whatever their order."""
    _, code = np.unique(np.concatenate([a, b]), return_inverse=True)
    counts_a, counts_b = (
        np.bincount(part, minlength=code.max(initial=-1) + 1) for part in np.split(code, [len(a)])
    )
    return int(np.minimum(counts_a, counts_b).sum())


def _pair_in_order(
    capture: Capture, kernels: Int64, replay: ReplayedKernels, numbers: str, common: int
) -> KernelPairs | Misfit:
    """Pairs by an alignment of the two sequences."""
    a, b = len(kernels), len(replay)
    most = min(MOST_DIFFERENCES, a + b - 2 * ceil(LEAST_SHARE * max(a, b)))
    alignment = align_kernels(kernels, replay.kernels, most)
    if alignment is None:
        return Misfit(f"{numbers}, {common:,} of the same kernels but in another order", common)
    gaps = np.diff(np.r_[-1, alignment.a, a]), np.diff(np.r_[-1, alignment.b, b])
    if replaced := int(((gaps[0] > 1) & (gaps[1] > 1)).sum()):
        places = f"{replaced:,} place{'s'[: replaced != 1]}"
        return Misfit(f"{numbers}, with other kernels than the replay's at {places}", common)
    certain = alignment.certain(capture.place)
    launch = np.full(b, -1, np.int64)
    launch[alignment.b[certain]] = alignment.a[certain]
    return KernelPairs(launch, a + b - 2 * len(alignment.a), a - len(alignment.a))


def _pair_by_name(
    capture: Capture, kernels: Int64, replay: ReplayedKernels, numbers: str, common: int
) -> KernelPairs | Misfit:
    """Pairs by occurrence of each name, where streams run side by side: only a stream keeps its order.

    A name's pairs are certain if its rows are complete and on one stream, or all its launches are by calls of
    the same arguments and module.
    """
    a, b = len(kernels), len(replay)
    _, code = np.unique(np.concatenate([kernels, replay.kernels]), return_inverse=True)
    names = code.max(initial=-1) + 1
    code_a, code_b = code[:a], code[a:]
    counts = np.bincount(code_a, minlength=names), np.bincount(code_b, minlength=names)
    if (counts[0] > counts[1]).any() and (counts[0] < counts[1]).any():
        return Misfit(f"{numbers}, some with other kernels than the replay's", common)
    key_a, key_b = code_a * (a + b) + occurrence(code_a), code_b * (a + b) + occurrence(code_b)
    order = np.argsort(key_a)
    at = np.minimum(np.searchsorted(key_a, key_b, sorter=order), a - 1)
    launch = np.where(key_a[order[at]] == key_b, order[at], -1)
    ordered = _is_uniform(code_b, replay.stream, names) & (counts[0] == counts[1])
    certain = (ordered | _is_uniform(code_a, capture.place, names))[code_b] & (launch >= 0)
    rows = np.flatnonzero(ordered[code_b])
    later = ~begins(replay.stream[rows])
    if (np.diff(launch[rows], prepend=-1)[later] < 0).any():
        return Misfit(f"{numbers}, {common:,} of the same kernels but in another order", common)
    return KernelPairs(np.where(certain, launch, -1), a + b - 2 * common, a - common)


def _is_uniform(code: Int64, values: Int64, codes: int) -> Mask:
    """Whether all values of each code are equal, shape (codes,)."""
    limits = np.iinfo(np.int64)
    least, most = np.full(codes, limits.max), np.full(codes, limits.min)
    np.minimum.at(least, code, values)
    np.maximum.at(most, code, values)
    return np.asarray(least >= most)


def _pair_by_place(capture: Capture, kernels: Int64, replay: ReplayedKernels) -> KernelPairs | Misfit:
    """Pairs place by place, where the capture states no kernel names."""
    numbers = (
        f"{len(replay):,} device rows, and {len(kernels):,} launches whose kernels the capture does not name"
    )
    if len(kernels) != len(replay) or not np.array_equal(capture.copies, replay.kernels < 0):
        return Misfit(numbers, 0)
    if replay.stream.any():
        return Misfit(f"{numbers}, on several streams", 0)
    nth = occurrence(np.where(capture.call >= 0, capture.call, -1).astype(np.int64))
    _, content = np.unique(np.stack([capture.work, nth]), axis=1, return_inverse=True)
    _, kind, times = np.unique(
        np.stack([content, replay.kernels]), axis=1, return_inverse=True, return_counts=True
    )
    repeats = np.bincount(content)[content]
    # of the kernels that equal calls launched, how many are the one that most of them did
    usual = np.zeros(content.max(initial=-1) + 1, np.int64)
    np.maximum.at(usual, content, times[kind])
    repeated = repeats > 1
    alike = int(usual[np.unique(content[repeated])].sum())
    if repeated.sum() < _LEAST_REPEATED * len(replay) or alike < LEAST_SHARE * repeated.sum():
        return Misfit(f"{numbers}: {alike:,} were launched like others by equal calls", 0)
    return KernelPairs(np.arange(len(replay)), 0, 0)

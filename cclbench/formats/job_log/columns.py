# SPDX-License-Identifier: Apache-2.0
"""Texts of numbers and stamps as arrays; step lines as attempts of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.formats.trace import LATEST_NS
from cclbench.ground.intervals import Int64, Mask

Float64 = npt.NDArray[np.float64]
UNKNOWN: Final = np.iinfo(np.int64).min
"""A missing integer, until it becomes null in a table."""
_MAGNITUDES: Final = {b"K": 1e3, b"M": 1e6, b"B": 1e9, b"G": 1e9, b"T": 1e12}


def numbers(texts: Sequence[bytes]) -> Float64:
    """Printed numbers, shape (lines,); NaN for an empty or impossible text."""
    if not any(texts):
        return np.full(len(texts), np.nan)
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return np.array([_number(text) for text in texts], np.float64)


def scaled(values: Float64, factor: float) -> Float64:
    """Values times a factor; NaN for those that are not finite."""
    with np.errstate(over="ignore"):
        products = values * factor
    products[~np.isfinite(products)] = np.nan
    return products


def _number(text: bytes) -> float:
    magnitude = _MAGNITUDES.get(text[-1:], 0.0)
    try:
        return float((text[:-1] if magnitude else text).replace(b",", b"")) * (magnitude or 1.0)
    except ValueError:
        return np.nan


def whole_numbers(values: Float64) -> Int64:
    """Non-negative whole numbers below 2^53, shape (lines,); `UNKNOWN` for others."""
    fits = (values >= 0) & (values < 1 << 53) & (values == np.floor(values))
    return np.where(fits, values, 0).astype(np.int64) + np.where(fits, 0, UNKNOWN)


def nanoseconds(seconds: Float64) -> Int64:
    """Whole ns of times between 0 and `LATEST_NS`; `UNKNOWN` for others and for 0, which is no step's."""
    with np.errstate(over="ignore"):
        exact = np.rint(seconds * 1e9)
    fits = (exact > 0) & (exact < LATEST_NS)
    return np.where(fits, exact, 0).astype(np.int64) + np.where(fits, 0, UNKNOWN)


def stamp_ns(stamps: Sequence[bytes]) -> Int64:
    """Date and time of day as ns since 1970 on the log's own clock, shape (lines,); `UNKNOWN` for others."""
    texts = b"\n".join(stamps).replace(b",", b".").split(b"\n")
    try:
        times = np.array(texts, np.bytes_).astype("datetime64[us]").astype(np.int64)
    except ValueError:
        times = np.array([_stamp(text) for text in texts], np.int64)
    return clock_ns(times)


def clock_ns(microseconds: Int64) -> Int64:
    """Times in µs as ns; `UNKNOWN` for impossible ones."""
    fits = np.abs(microseconds // 1000) < LATEST_NS // 1_000_000
    return np.where(fits, microseconds, 0) * 1000 + np.where(fits, 0, UNKNOWN)


def _stamp(text: bytes) -> int:
    try:
        return int(np.datetime64(text.decode("ascii"), "us").astype(np.int64))
    except ValueError:
        return UNKNOWN


@dataclass(frozen=True, slots=True, eq=False)
class Attempts:
    """Lines in the order of rank, attempt and step; all arrays of shape (lines kept,)."""

    order: Int64 | slice
    """Index of the line in the file; a slice if all lines are kept as they are."""
    restart: Int64
    """Number of restarts before it."""
    steps: Int64
    """Steps since the line before; of an attempt's first line, the usual number if it is not before that
    many steps."""
    first: Mask
    """Whether it is the first line of its attempt."""
    repeated: int
    """Lines that are not kept: another rank's without a label, or the same step again."""


def split_attempts(rank: Int64, step: Int64) -> Attempts:
    """Separate ranks and restarts by step numbers; a number that does not grow begins a new attempt.

    Lines of several ranks without labels show each step as often as there are ranks, in nearly the same
    order: only the first line of each step is kept.
    """
    by_rank = np.argsort(rank, kind="stable")
    kept = np.concatenate(
        [_kept(by_rank[rank[by_rank] == rank_label], step) for rank_label in np.unique(rank)] or [by_rank]
    )
    order = slice(0, len(rank)) if len(kept) == len(rank) and (np.diff(kept) == 1).all() else kept
    own_rank, own_step = rank[order], step[order]
    grown = np.diff(own_step, prepend=0)
    new_rank = np.concatenate([own_rank[:1] == own_rank[:1], own_rank[1:] != own_rank[:-1]])
    first = new_rank | (grown <= 0)
    number = np.cumsum(first)
    restart: Int64 = number - np.maximum.accumulate(np.where(new_rank, number, 0))
    usual = int(np.median(grown[~first])) if (~first).any() else 1
    begin = np.where(own_step >= usual - 1, usual, np.maximum(own_step, 1))
    return Attempts(order, restart, np.where(first, begin, grown), first, len(rank) - len(kept))


def _kept(lines: Int64, step: Int64) -> Int64:
    """The lines of one rank, each step of an attempt once."""
    steps = step[lines]
    grown = np.diff(steps)
    if (grown > 0).all():
        return lines
    distinct, counts = np.unique(steps, return_counts=True)
    if len(distinct) < 2 or np.median(counts) < 2:
        return np.asarray(lines[np.concatenate([[True], grown != 0])], np.int64)
    usual = int(np.median(np.diff(distinct)))
    if -grown.min() > 2 * usual:
        return np.asarray(lines[np.concatenate([[True], grown != 0])], np.int64)
    _, firsts = np.unique(steps, return_index=True)
    return np.asarray(lines[firsts], np.int64)

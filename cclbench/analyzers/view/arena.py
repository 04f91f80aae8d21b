# SPDX-License-Identifier: Apache-2.0
"""The segments of a device's allocator, and its free blocks, at any moment of a recording.

A snapshot states segments and blocks at its end; from there its events are undone. PyTorch's caching
allocator merges neighbouring free blocks of a segment, so that a free block is what lies between two blocks
in use. Of a block that was released before the end only the requested size is known: the allocator rounds it
up to 512 B and hands out a block of the large pool whole where at most 1 MiB would remain, which is therefore
never free by itself (`should_split` and `round_size` in c10/cuda/CUDACachingAllocator.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from cclbench.ground.intervals import Int64, Mask

if TYPE_CHECKING:
    from cclbench.analyzers.view.allocator import Owners

LARGE: Final = "large"
SMALL: Final = "small"
_ROUND: Final = 512
SMALL_REQUEST: Final = 1 << 20
"""Largest request that the small pool serves; the large pool leaves no smaller free block."""
_SMALL_SEGMENT: Final = 2 << 20
"""Size of a segment of the small pool."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Reserved memory of a device: `size` bytes from `address`, for requests of one stream and pool."""

    address: int
    size: int
    stream: int | None
    pool: str
    mapped: bool = False
    """Whether it is a part of an expandable segment."""


@dataclass(frozen=True, slots=True)
class SegmentEvent:
    """A segment that came (`grown`) or went at a moment."""

    moment: int
    grown: bool
    segment: Segment


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request of `bytes` that found no memory, the allocator's last resort included."""

    moment: int
    bytes: int
    device_free: int | None
    """Bytes that the device itself had free; None where not stated."""
    stream: int | None
    call_site: str | None

    @property
    def device_had_room(self) -> bool:
        """Whether the device itself had free what was asked: a limit of the process refused it."""
        return self.device_free is not None and self.device_free >= self.bytes


@dataclass(frozen=True, slots=True, eq=False)
class FreeBlocks:
    """Free blocks of an allocator; arrays of shape (blocks,)."""

    sizes: Int64
    segments: tuple[Segment, ...]
    segment: Int64
    """Index of each block's segment."""
    reserved: int

    @property
    def bytes(self) -> int:
        """Bytes of all free blocks."""
        return int(self.sizes.sum())

    @property
    def largest(self) -> int:
        """Bytes of the largest one; 0 without any."""
        return int(self.sizes.max(initial=0))

    @property
    def fragmentation(self) -> float | None:
        """1 − largest / all free bytes; None where nothing is free."""
        return 1 - self.largest / self.bytes if self.bytes else None

    def serving(self, request: FailedRequest) -> FreeBlocks:
        """Those of the stream and pool that serve the request; private pools do not."""
        pool = SMALL if request.bytes <= SMALL_REQUEST else LARGE
        serves = [
            segment.pool == pool and (request.stream is None or segment.stream in (None, request.stream))
            for segment in self.segments
        ]
        chosen = np.array(serves, np.bool_)[self.segment]
        return FreeBlocks(self.sizes[chosen], self.segments, self.segment[chosen], self.reserved)


@dataclass(frozen=True, slots=True, eq=False)
class Arena:
    """Segments and exact block sizes at the end of a recording, and the segments that came and went in it."""

    segments: tuple[Segment, ...]
    events: tuple[SegmentEvent, ...]
    sizes: dict[int, int]
    """Bytes by address of the blocks that are in use at the end."""
    pending: dict[int, int] = field(default_factory=dict)
    """Those of them that the program freed before the recording, by address."""

    def free_at(self, moment: int, owners: Owners) -> FreeBlocks:
        """The free blocks at a moment."""
        segments = tuple(sorted(self._segments_at(moment), key=lambda segment: segment.address))
        used = (owners.begin <= moment) & (moment < owners.released)
        address = np.concatenate([owners.address[used], np.array([*self.pending], np.int64)])
        size, exact = self._block_sizes(owners, used)
        order = np.argsort(address, kind="stable")
        return _gaps(segments, address[order], size[order], exact[order])

    def _block_sizes(self, owners: Owners, used: Mask) -> tuple[Int64, Mask]:
        """Bytes that the blocks in use take, the pending ones last, and whether that is exact."""
        rounded = np.maximum(-(-owners.bytes[used] // _ROUND), 1) * _ROUND
        exact = owners.released[used] == owners.moments
        stated = [self.sizes.get(at, 0) for at in owners.address[used].tolist()]
        size = np.where(exact, np.array(stated, np.int64), rounded)
        pending = np.array([*self.pending.values()], np.int64)
        return np.concatenate([size, pending]), np.concatenate([exact, np.ones(len(pending), np.bool_)])

    def _segments_at(self, moment: int) -> Iterable[Segment]:
        """The segments at a moment: those of the end, with later events undone."""
        segments = {segment.address: segment for segment in self.segments}
        for event in reversed(self.events):
            if event.moment <= moment:
                break
            if event.segment.mapped:
                segments = _remapped(segments, event)
            elif event.grown:
                segments.pop(event.segment.address, None)
            else:
                segments[event.segment.address] = event.segment
        return segments.values()


def _remapped(segments: dict[int, Segment], event: SegmentEvent) -> dict[int, Segment]:
    """The segments with a part of an expandable one unmapped, if it had been mapped then, or mapped again."""
    begin, end = event.segment.address, event.segment.address + event.segment.size
    kept: dict[int, Segment] = {}
    for segment in segments.values():
        segment_end = segment.address + segment.size
        if not segment.mapped or segment_end < begin or end < segment.address:
            kept[segment.address] = segment
        elif not event.grown:  # neighbours become one range
            begin, end = min(begin, segment.address), max(end, segment_end)
        else:
            for first, last in (
                (segment.address, min(segment_end, begin)),
                (max(segment.address, end), segment_end),
            ):
                if first < last:
                    kept[first] = Segment(first, last - first, segment.stream, segment.pool, mapped=True)
    if not event.grown:
        kept[begin] = Segment(begin, end - begin, event.segment.stream, event.segment.pool, mapped=True)
    return kept


def pool_of_segment(size: int) -> str:
    """The pool of a segment that is not stated, by its size."""
    return SMALL if size == _SMALL_SEGMENT else LARGE


def _gaps(segments: tuple[Segment, ...], address: Int64, size: Int64, exact: Mask) -> FreeBlocks:
    """What lies between the blocks in use, which are in order of address, by segment."""
    begins = np.array([segment.address for segment in segments], np.int64)
    ends = begins + np.array([segment.size for segment in segments], np.int64)
    splits_small = np.array(
        [segment.mapped or not segment.pool.startswith(LARGE) for segment in segments], np.bool_
    )
    owner = np.searchsorted(begins, address, side="right") - 1
    inside = (owner >= 0) & (address < ends[owner]) if len(begins) else np.zeros(len(address), np.bool_)
    address, size, exact, owner = address[inside], size[inside], exact[inside], owner[inside]
    # Each segment's begin and each block's end open a gap, which lasts until the next block or segment's end.
    opens = np.concatenate([begins, address + size])
    segment = np.concatenate([np.arange(len(begins)), owner])
    certain = np.concatenate([np.ones(len(begins), np.bool_), exact])
    order = np.lexsort((np.concatenate([begins - 1, address]), segment))
    opens, segment, certain = opens[order], segment[order], certain[order]
    following = np.append(segment[1:] == segment[:-1], False)
    at = np.concatenate([begins - 1, address])[order]
    closes = np.where(following, np.append(at[1:], 0), ends[segment])
    gap = closes - opens
    free = (gap > 0) & (certain | splits_small[segment] | (gap > SMALL_REQUEST))
    return FreeBlocks(gap[free], segments, segment[free], int((ends - begins).sum()))

# SPDX-License-Identifier: Apache-2.0
"""What an allocator held over time, and whose it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cclbench.ground.intervals import Int64, Mask

OLDER: Final = 0
"""The owner of what is older than the recording."""


@dataclass(frozen=True, slots=True)
class Site:
    """What the blocks that one stack allocated take; None where no stack was recorded."""

    call_site: str | None
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """Whose the allocated bytes are over time; arrays of shape (changes,), in order."""

    call_sites: tuple[str | None, ...]
    """By owner; owner 0 is all that is older than the recording."""
    moments: int
    start: int
    older_blocks: int
    moment: Int64
    owner: Int64
    change: Int64

    def allocated(self, owners: Sequence[int] | None = None) -> Int64:
        """Bytes of those owners, or of all, at each moment."""
        mine = np.ones(len(self.owner), np.bool_) if owners is None else np.isin(self.owner, list(owners))
        changes = np.zeros(self.moments, np.int64)
        np.add.at(changes, self.moment[mine], self.change[mine])
        if owners is None or OLDER in owners:
            changes[0] += self.start
        return np.cumsum(changes)

    def owners_at(self, moment: int) -> tuple[Site, list[tuple[int, Site]]]:
        """What is older than the recording, and the others with their owner's number, most bytes first."""
        until = self.moment <= moment
        held, blocks = np.zeros((2, len(self.call_sites)), np.int64)
        held[OLDER], blocks[OLDER] = self.start, self.older_blocks
        np.add.at(held, self.owner[until], self.change[until])
        np.add.at(blocks, self.owner[until], np.sign(self.change[until]))
        sites = [Site(*one) for one in zip(self.call_sites, held.tolist(), blocks.tolist(), strict=True)]
        own = [(owner, site) for owner, site in enumerate(sites) if owner != OLDER and site.bytes]
        return sites[OLDER], sorted(own, key=lambda one: (-one[1].bytes, one[1].call_site or ""))


@dataclass(frozen=True, slots=True)
class Blocks:
    """A device's segments when a snapshot was taken, in bytes."""

    reserved: int
    inactive: int

    @property
    def inactive_share(self) -> float | None:
        """Share of the reserved bytes in inactive blocks; None where nothing is reserved."""
        return self.inactive / self.reserved if self.reserved else None


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What one device's allocator held; arrays of shape (moments,), the first before the first event."""

    source: str | None
    """Reader of the file that says so."""
    file: str | None
    rank: int | None
    device: int | None
    """Index of the accelerator; None of the CPU."""
    time_ns: Int64 | None
    """Of each moment; None where nobody tells times."""
    allocated: Int64
    reserved: Int64 | None
    """None where nobody tells what was reserved."""
    owners: Owners | None = None
    """Whose the allocated bytes are; None where nobody tells."""
    end: Blocks | None = None
    recorded: bool = True
    """Whether events were recorded, on this device or another of the process; else only the end is known."""
    contradictions: int = 0
    """Events that do not fit those before them or the final blocks: some were not recorded."""

    @property
    def peak_moment(self) -> int:
        """The first moment at which most bytes were allocated."""
        return int(np.argmax(self.allocated))

    @property
    def peak_allocated(self) -> int:
        """Most bytes allocated at any moment."""
        return int(self.allocated[self.peak_moment])

    @property
    def peak_reserved(self) -> int | None:
        """Most bytes reserved at any moment."""
        return None if self.reserved is None else int(self.reserved.max())

    @property
    def fragmentation(self) -> float | None:
        """1 − allocated / reserved at the peak of allocated bytes; None where nothing is reserved."""
        if self.reserved is None or self.reserved[self.peak_moment] <= 0:
            return None
        return 1 - int(self.allocated[self.peak_moment]) / int(self.reserved[self.peak_moment])

    @property
    def has_changes(self) -> bool:
        """Whether there is anything over time."""
        return self.recorded and len(self.allocated) > 1

    @property
    def qualifier_words(self) -> str | None:
        """What qualifies its numbers."""
        if not self.contradictions:
            return None
        return (
            f"{self.contradictions:,} blocks contradict the events: some were not recorded, or memory changed"
            " between the last event and the snapshot"
        )

    def device_label(self, *, with_file: bool = False) -> str:
        """The device in words, with the file where ranks do not tell files apart."""
        device = "cpu" if self.device is None else f"device {self.device}"
        return f"{self.file}, {device}" if with_file and self.file is not None else device

    def at_moments(self, moments: Mask) -> History:
        """The same at those moments alone, shape (moments,)."""
        return replace(
            self,
            time_ns=None if self.time_ns is None else self.time_ns[moments],
            allocated=self.allocated[moments],
            reserved=None if self.reserved is None else self.reserved[moments],
        )

# SPDX-License-Identifier: Apache-2.0
"""Allocated memory over time, and its owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cclbench.ground.intervals import Int64, Mask

if TYPE_CHECKING:
    from cclbench.analyzers.view.arena import Arena, FailedRequest, FreeBlocks

OLDER: Final = 0
"""Owner of blocks that are older than the recording."""
RECOMPUTED: Final = "recomputed"
"""Phase of forward calls that are run again for the backward pass."""


@dataclass(frozen=True, slots=True)
class Site:
    """Memory allocated at one call site; None where no stack was recorded."""

    call_site: str | None
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The operator calls that allocated a recording's blocks; arrays of shape (blocks,), −1 for none."""

    modules: tuple[str, ...]
    module: Int64
    """Index of the path of the nn.Module that made the call."""
    phases: tuple[str, ...]
    phase: Int64
    """Index of the call's phase (`schema.PHASES`), or of `RECOMPUTED`."""

    def has_phase(self, phase: str) -> Mask:
        """The blocks of a phase, shape (blocks,)."""
        return np.array([*(name == phase for name in self.phases), False], np.bool_)[self.phase]


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """The blocks of a recording with their owners; arrays of shape (blocks,), in the order of allocation.

    Moment 0 is before the first event, moment i after the i-th one.
    """

    call_sites: tuple[str | None, ...]
    """Call site by owner; owner 0 is everything older than the recording without a known call site."""
    moments: int
    owner: Int64
    bytes: Int64
    """Requested bytes."""
    address: Int64
    begin: Int64
    """The moment of its allocation; 0 if it is older than the recording."""
    end: Int64
    """The moment when the program freed it; `moments` if it did not."""
    released: Int64
    """The moment when the allocator could use it again: work of other streams may have had to end first."""
    calls: Calls | None = None
    """None where the recording states stacks, but no operators."""

    def live_at(self, moment: int) -> Mask:
        """The blocks that the program holds at a moment, shape (blocks,)."""
        return (self.begin <= moment) & (moment < self.end)

    def allocated(self, owners: Sequence[int] | None = None) -> Int64:
        """Allocated bytes of these owners, or of all, at each moment."""
        chosen = np.ones(len(self.owner), np.bool_) if owners is None else np.isin(self.owner, list(owners))
        changes = np.zeros(self.moments + 1, np.int64)
        np.add.at(changes, self.begin[chosen], self.bytes[chosen])
        np.subtract.at(changes, self.end[chosen], self.bytes[chosen])
        return np.cumsum(changes[:-1])

    def owners_at(self, moment: int) -> tuple[Site, list[tuple[int, Site]]]:
        """Blocks older than the recording, and the other sites with their owner, the largest first."""
        live = self.live_at(moment)
        owner_bytes, blocks = np.zeros((2, len(self.call_sites)), np.int64)
        np.add.at(owner_bytes, self.owner[live], self.bytes[live])
        np.add.at(blocks, self.owner[live], 1)
        sites = [
            Site(*entry) for entry in zip(self.call_sites, owner_bytes.tolist(), blocks.tolist(), strict=True)
        ]
        by_owner = [(owner, site) for owner, site in enumerate(sites) if owner != OLDER and site.bytes]
        return sites[OLDER], sorted(by_owner, key=lambda entry: (-entry[1].bytes, entry[1].call_site or ""))


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
    """Memory of one device's allocator over time; arrays of shape (moments,), from before the first event."""

    source: str | None
    """Reader of the file."""
    file: str | None
    rank: int | None
    device: int | None
    """Index of the accelerator; None for the CPU."""
    time_ns: Int64 | None
    """Time of each moment; None where unknown."""
    allocated: Int64
    reserved: Int64 | None
    """None where unknown."""
    owners: Owners | None = None
    """None where unknown."""
    end: Blocks | None = None
    arena: Arena | None = None
    """None where blocks are unknown."""
    failures: tuple[FailedRequest, ...] = ()
    step_ends: Int64 | None = None
    """The moments at which steps end; None where no steps are marked."""
    recorded: bool = True
    """Whether events were recorded on any device of the process; else only the end is known."""
    contradictions: int = 0
    """Number of events that contradict earlier ones or the final blocks: some were not recorded."""

    @property
    def peak_moment(self) -> int:
        """The (first) moment of the peak of allocated bytes."""
        return int(np.argmax(self.allocated))

    @property
    def peak_allocated(self) -> int:
        """Peak of allocated bytes."""
        return int(self.allocated[self.peak_moment])

    @property
    def peak_reserved(self) -> int | None:
        """Peak of reserved bytes; None where unknown."""
        return None if self.reserved is None else int(self.reserved.max())

    @property
    def reserved_unused(self) -> int | None:
        """Reserved bytes that are in no block, at the peak of allocated bytes; None where unknown."""
        if self.reserved is None or self.reserved[self.peak_moment] <= 0:
            return None
        if (free := self.free_at(self.peak_moment)) is not None:
            return free.bytes
        return int(self.reserved[self.peak_moment] - self.allocated[self.peak_moment])

    def free_at(self, moment: int) -> FreeBlocks | None:
        """The allocator's free blocks at a moment; None where blocks are unknown."""
        if self.arena is None or self.owners is None or self.reserved is None:
            return None
        return self.arena.free_at(moment, self.owners)

    @property
    def has_changes(self) -> bool:
        """Whether there are changes over time."""
        return self.recorded and len(self.allocated) > 1

    @property
    def qualifier_words(self) -> str | None:
        """What qualifies the numbers, in words."""
        if not self.contradictions:
            return None
        return (
            f"{self.contradictions:,} blocks contradict the events: some were not recorded, or memory changed"
            " between the last event and the snapshot"
        )

    def device_label(self, *, with_file: bool = False) -> str:
        """The device in words; with the file, where ranks do not distinguish files."""
        device = "cpu" if self.device is None else f"device {self.device}"
        return f"{self.file}, {device}" if with_file and self.file is not None else device

    def at_moments(self, moments: Mask) -> History:
        """The history at the moments of the mask, shape (moments,)."""
        return replace(
            self,
            time_ns=None if self.time_ns is None else self.time_ns[moments],
            allocated=self.allocated[moments],
            reserved=None if self.reserved is None else self.reserved[moments],
        )

# SPDX-License-Identifier: Apache-2.0
"""What an allocator's state was when a request failed, and what would have served it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cclbench.analyzers.view.allocator import History, Site

if TYPE_CHECKING:
    from cclbench.analyzers.view.arena import FailedRequest, FreeBlocks


@dataclass(frozen=True, slots=True, eq=False)
class OutOfMemory:
    """A failed request and the allocator then; None where unknown."""

    request: FailedRequest
    allocated: int
    """Requested bytes of the blocks that the program holds."""
    reserved: int | None
    free: FreeBlocks | None
    """All free blocks."""
    usable: FreeBlocks | None
    """Those of the request's stream and pool."""
    limit: tuple[int, int] | None
    """Where a limit of the process refused memory that the device had: the most bytes that it did allow, and
    those that it did not. None where the device refused, or unknown."""
    sites: tuple[Site, ...]
    """Who holds memory, the largest first; a call site of None is older than the recording or unknown."""

    @property
    def device_room(self) -> int:
        """Bytes that could certainly be reserved besides; nothing if unknown."""
        if self.limit is None or self.reserved is None:
            return self.request.device_free or 0
        return self.limit[0] - self.reserved

    @property
    def missing(self) -> int | None:
        """Bytes that had to be freed, if all usable free blocks were one; None where unknown."""
        if self.usable is None or self.request.device_free is None:
            return None
        return max(self.request.bytes - self.usable.bytes - self.device_room, 0)

    @property
    def largest_served(self) -> int | None:
        """Bytes of the largest request that would certainly have been served; None where unknown."""
        return None if self.usable is None else max(self.usable.largest, self.device_room)

    @property
    def sites_to_free(self) -> tuple[Site, ...]:
        """The fewest call sites, the largest first, that together hold what was missing."""
        chosen: list[Site] = []
        for site in self.sites:
            if sum(chosen_site.bytes for chosen_site in chosen) >= (self.missing or 0):
                break
            chosen.append(site)
        return tuple(chosen)

    @property
    def verdict(self) -> str:
        """Why nothing served the request, in words."""
        if self.usable is None or self.free is None or self.missing is None:
            return "the snapshot does not state what was free"
        if self.usable.largest >= self.request.bytes:
            return "a free block was large enough: the allocator's settings did not let it serve the request"
        if not self.missing:
            return "fragmentation: enough is free, but no block is large enough"
        if self.free.bytes + self.device_room >= self.request.bytes:
            return "enough is free, but in blocks of other streams or pools"
        return "too much is held: all free memory together is too small"


def failed_requests(history: History) -> list[OutOfMemory]:
    """The recording's failed requests, with the allocator at each."""
    failures = []
    for request in history.failures:
        free = history.free_at(request.moment)
        reserved = None if history.reserved is None else history.reserved[: request.moment + 1]
        older, by_owner = history.owners.owners_at(request.moment) if history.owners else (None, [])
        sites = [site for _, site in by_owner] + ([older] if older is not None and older.bytes else [])
        failures.append(
            OutOfMemory(
                request,
                allocated=int(history.allocated[request.moment]),
                reserved=None if reserved is None else int(reserved[-1]),
                free=free,
                usable=None if free is None else free.serving(request),
                limit=None
                if reserved is None or not request.device_had_room
                else (int(reserved.max()), int(reserved[-1]) + request.bytes),
                sites=tuple(sorted(sites, key=lambda site: -site.bytes)),
            )
        )
    return failures

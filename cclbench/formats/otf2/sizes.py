# SPDX-License-Identifier: Apache-2.0
"""What a rank hands in and gets back in a collective, from the bytes that OTF2 states.

An archive states the bytes that a rank sends to, and receives from, all ranks of the communicator, itself
included: an all-reduce of S bytes over N ranks sends N·S.  In place a rank leaves itself out: (N − 1)·S.  The
archive does not say which it was, so that S is known only if one of the two is a whole number of bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cclbench.formats.trace import plausible_amount

KINDS: Final = {
    0: "barrier",
    1: "broadcast",
    2: "gather",
    3: "gather",
    4: "scatter",
    5: "scatter",
    6: "all_gather",
    7: "all_gather",
    8: "all_to_all",
    9: "all_to_all",
    10: "all_to_all",
    11: "all_reduce",
    12: "reduce",
    13: "reduce_scatter",
    16: "reduce_scatter",
}
"""Kinds of OTF2's operations; scans have none here, and others make and free communicators and windows."""
COMMUNICATES: Final = range(17)
"""Operations that move data or wait."""
_UNEVEN: Final = (3, 5, 7, 9, 10, 13)
"""Operations whose ranks may contribute different sizes."""


class Amounts(NamedTuple):
    """Bytes handed in and back; None if the archive leaves that open, or the rank has none."""

    in_bytes: int | None = None
    out_bytes: int | None = None


def collective_amounts(operation: int, ranks: int, sent: int, received: int, *, is_root: bool) -> Amounts:
    """The amounts of one rank's part in a collective of so many ranks."""
    kind = KINDS.get(operation)
    even = operation not in _UNEVEN
    share = one_share(sent, ranks) if even else None
    if kind == "all_reduce":
        return Amounts(share, share)
    if kind == "all_gather":
        return Amounts(share, _times(share, ranks))
    if kind == "all_to_all":
        return Amounts(_times(share, ranks), _times(share, ranks))
    if kind == "broadcast":
        size = _positive(received) or (one_share(sent, ranks) if is_root else None)
        return Amounts(size, size)
    if kind in ("gather", "reduce"):
        back = one_share(received, ranks) if is_root and even else None
        return Amounts(_positive(sent), back if kind == "reduce" else _times(back, ranks))
    if kind == "scatter":
        return Amounts(_times(share, ranks) if is_root else None, _positive(received))
    return Amounts()


def one_share(total: int, ranks: int) -> int | None:
    """S of a total of N·S, or (N − 1)·S in place; None where both are whole numbers, or neither."""
    shares = {total // n for n in (ranks, ranks - 1) if n > 0 and total % n == 0}
    return _positive(shares.pop()) if len(shares) == 1 else None


def _positive(amount: int) -> int | None:
    return plausible_amount(amount)


def _times(share: int | None, ranks: int) -> int | None:
    return None if share is None else share * ranks

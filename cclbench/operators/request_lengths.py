# SPDX-License-Identifier: Apache-2.0
"""Lengths of the requests in a step of a serving engine, as the step's annotation tells them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_SUMS: Final = r"\(sq(\d{1,15})sk(\d{1,15})sqsq(\d{1,15})sqsk(\d{1,15})\)"
_LENGTHS: Final = re.compile(rf"execute_(?:\d+_)?context_\d+{_SUMS}_generation_\d+{_SUMS}.*")


class Lengths(NamedTuple):
    """Of the requests in a step of a serving engine."""

    keys: int
    """Σ keys."""
    pairs: int
    """Σ pairs of a query and a key that it attends to: a request's last query attends to all its keys."""


def request_lengths(annotation: str) -> Lengths | None:
    """The lengths that a step's annotation tells as sums over requests, of q queries to k keys; None without.

    `execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)`: Σq, Σk, Σq², Σqk.
    """
    told = _LENGTHS.match(annotation)
    if told is None:
        return None
    sums = [int(number) for number in told.groups()]
    return Lengths(
        keys=sums[1] + sums[5],
        pairs=sum(qk - (qq - q) // 2 for q, _, qq, qk in (sums[:4], sums[4:])),
    )

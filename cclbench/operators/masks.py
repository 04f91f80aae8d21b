# SPDX-License-Identifier: Apache-2.0
"""Attention masks: the number of query-key pairs that they leave."""

from __future__ import annotations

from dataclasses import dataclass


def pairs_up_to(queries: int, keys: int, last: int) -> int:
    """Number of pairs of query i and key j with j ≤ i + last."""

    def first_keys(n: int) -> int:
        """Σ min(m, keys) over m = 1 .. n."""
        uncapped = min(max(n, 0), keys)
        return uncapped * (uncapped + 1) // 2 + max(n - keys, 0) * keys

    return first_keys(last + queries) - first_keys(last)


def visible_pairs(queries: int, keys: int, *, shift: int, left: int, right: int) -> int:
    """Pairs of query i and key j with i + shift − left ≤ j ≤ i + shift + right; negative: unbounded."""
    upper = pairs_up_to(queries, keys, shift + right) if right >= 0 else queries * keys
    return max(upper - (pairs_up_to(queries, keys, shift - left - 1) if left >= 0 else 0), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """The keys that each query sees; a negative window bound means unbounded."""

    causal: bool = False
    aligned_at_end: bool = False
    """Unequal lengths are aligned at the last query and key (flash-attention), else at the first."""
    left: int = -1
    right: int = -1

    def count_pairs(self, queries: int, keys: int) -> int:
        """Number of query-key pairs that the mask leaves."""
        shift = keys - queries if self.aligned_at_end else 0
        right = 0 if self.causal else self.right
        return visible_pairs(queries, keys, shift=shift, left=self.left, right=right)

    @property
    def hides_keys(self) -> bool:
        """Whether the mask may hide keys from a query."""
        return self.causal or self.left >= 0 or self.right >= 0

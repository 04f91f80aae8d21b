# SPDX-License-Identifier: Apache-2.0
"""Settings of a job's network that are known to be slow: data, each with its source, and how they match."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

from cclbench.hardware.shipped_table import read_shipped_table

Facts = Mapping[str, Sequence[str]]
"""Values of each fact, as texts; those of ranks or communicators may differ."""
_FACT: Final = re.compile(r"\{(\w+)\}")


class NetworkCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of `network_conditions.yaml`: patterns by fact; `says` may name facts in braces."""

    name: str
    when: dict[str, str]
    says: str
    advice: str
    source: str
    unless: dict[str, str] = {}

    def holds(self, facts: Facts) -> bool:
        """Whether every fact of `when` matches, and none of `unless`."""
        return all(self._matches(facts, *each) for each in self.when.items()) and not any(
            self._matches(facts, *each) for each in self.unless.items()
        )

    def claim(self, facts: Facts) -> str:
        """What it says, with the values of the facts that it names."""
        return _FACT.sub(lambda fact: ", ".join(facts[fact[1]]), self.says)

    @staticmethod
    def _matches(facts: Facts, fact: str, pattern: str) -> bool:
        return any(re.fullmatch(pattern, value) for value in facts.get(fact, ()))


@cache
def network_conditions() -> tuple[NetworkCondition, ...]:
    """All conditions that the package knows."""
    return read_shipped_table("network_conditions.yaml", tuple[NetworkCondition, ...])


def known_conditions(facts: Facts) -> Iterator[NetworkCondition]:
    """The conditions that hold."""
    return (condition for condition in network_conditions() if condition.holds(facts))

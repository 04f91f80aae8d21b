# SPDX-License-Identifier: Apache-2.0
"""One of the things compared: a run with its results, from traces or published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cclbench.store import StoredRun


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A run as a comparison sees it."""

    letter: str
    """"A", "B", ...: how tables and pictures call it."""
    stored: StoredRun
    results: pa.Table
    """Rows of `schema.RESULTS` of a full computation."""
    card: Mapping[str, Any] | None
    """The card's fields; None without a card."""

    @property
    def id(self) -> str:
        """The run's name in its store."""
        return self.stored.id

    @property
    def published(self) -> bool:
        """Whether its figures are somebody's published ones."""
        return self.stored.manifest.get("published") is not None

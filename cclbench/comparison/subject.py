# SPDX-License-Identifier: Apache-2.0
"""One of the things compared: a run with its results, from traces or published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.view.values import ALL_OPEN
from cclbench.machine import Machine, machine_of
from cclbench.published.leaderboard import PublishedRow
from cclbench.record.rows import Row, rows_of
from cclbench.record.run import Run
from cclbench.schema import HAS_VALUE

Floats = npt.NDArray[np.float64]
KEYS: Final = ("stat", "collective", "group", "category")
"""What narrows a row of the whole run."""
_PUBLISHED_TEXTS: Final = {
    "workload.model.name": "model_family",
    "hardware.accelerator": "hardware_model",
    "workload.phase": "phase",
    "workload.precision": "precision",
}
_PUBLISHED_COUNTS: Final = {
    "workload.batch.global": "batch_size",
    "workload.batch.sequence_length": "seq_len",
    "hardware.count": "total_count",
}
"""Where published metadata have a field of the card."""
_NO_CARD_HOLDS: Final = ("workload.model.name", "hardware.accelerator")
"""Fields that a card made from published metadata leaves out: their names are not unique."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A run as a comparison sees it."""

    letter: str
    """"A", "B", ...: how tables and pictures call it."""
    stored: Run
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
        return self.stored.record.published is not None

    @cached_property
    def run_rows(self) -> list[Row]:
        """The result rows about the whole run: of no single rank, of no single step."""
        table = self.results
        return rows_of(table.filter(pc.and_(table["rank"].is_null(), table["step"].is_null())))

    @cached_property
    def _by_key(self) -> dict[tuple[str | None, ...], Row]:
        return {(row.metric, *(getattr(row, key) for key in KEYS)): row for row in self.run_rows}

    def row(self, metric: str, **keys: str) -> Row | None:
        """The run's own row of a metric, or the one that those of `KEYS` narrow it to."""
        return self._by_key.get((metric, *(keys.get(key) for key in KEYS)))

    def value(self, metric: str, **keys: str) -> float | None:
        """That row's number; None where there is no row or no number."""
        row = self.row(metric, **keys)
        return row.value if row is not None and row.has_value else None

    def by_step(self, metric: str) -> Floats:
        """The run's number of each step, shape (steps,), in their order."""
        table = self.results
        mask = pc.and_(pc.equal(table["metric"], metric), table["rank"].is_null())
        counted = pc.is_in(table["status"], value_set=pa.array(HAS_VALUE))
        mask = pc.and_(mask, pc.and_(table["step"].is_valid(), counted))
        for key in KEYS:
            mask = pc.and_(mask, table[key].is_null())
        found = table.filter(mask).sort_by("step")["value"]
        return np.asarray(found.to_numpy(), np.float64)

    @property
    def ranks(self) -> list[int]:
        """Ranks that have a trace."""
        return self.stored.ranks

    @property
    def world_size(self) -> int | None:
        """Ranks of the job, as its traces state it."""
        return self.machine.stated_world

    @cached_property
    def machine(self) -> Machine:
        """What it ran on."""
        return machine_of(self.stored)

    @property
    def devices(self) -> tuple[str, ...]:
        """What its traces call the accelerators; else what its card says; `CPU` where that is the device."""
        known = self.machine.accelerator.value
        stated = self.field("hardware.accelerator") or (known and known.id)
        return self.machine.device_names or ((str(stated),) if stated else ())

    @property
    def device_count(self) -> int | None:
        """Accelerators of the job; None where nobody tells how many."""
        published = self.field("hardware.count") if self.published else None
        return published if isinstance(published, int) else self.machine.count.value

    @property
    def window(self) -> str | None:
        """The window policy that its step time rests on; None without one, or where it is published."""
        row = self.row("time.step")
        return row.window if row is not None and row.status == "ok" and not self.published else None

    @cached_property
    def steps(self) -> int:
        """How many numbered steps its figures are of."""
        return len(self.by_step("time.step"))

    @property
    def all_open(self) -> bool:
        """Whether its step time is that of an open step, the only one: nobody knows where it ended."""
        row = self.row("time.step")
        return row is not None and (row.reason or "").startswith(ALL_OPEN)

    def field(self, path: str) -> Any:
        """The card's value at a dotted path, or what was published of it; None without such a field."""
        found: Any = self.card
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is None and self.published and (self.card is None or path in _NO_CARD_HOLDS):
            return self.published_field(path)
        return found

    @cached_property
    def published_row(self) -> PublishedRow:
        """The metadata that were published with its figures, without the figures."""
        published = self.stored.record.published
        return PublishedRow(0, published.metadata if published else {}, {}, "")

    def published_field(self, path: str) -> str | int | None:
        """What those metadata say of a field of the card, word for word; None where they say nothing."""
        if path in _PUBLISHED_TEXTS:
            return self.published_row.text(_PUBLISHED_TEXTS[path]) or None
        return self.published_row.count(_PUBLISHED_COUNTS[path]) if path in _PUBLISHED_COUNTS else None

# SPDX-License-Identifier: Apache-2.0
"""What the runs of a store bring to a claim: one small record a run, published and computed ones alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from cclbench.comparison.subject import Subject
from cclbench.errors import InputError
from cclbench.record.rows import Row
from cclbench.record.run import Run
from cclbench.record.store import Store

_DEGREES: Final = {
    "dp_replicate": "dp",
    "dp_shard": "fsdp",
    "tp": "tp",
    "pp": "pp",
    "cp": "cp",
    "ep": "ep",
}
_VERSION: Final = re.compile(r"-v?[0-9][0-9.]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A run: what it worked on, on what, and its figures as result rows; None is not known."""

    run: str
    published: bool
    model: str | None
    phase: str | None
    accelerator: str | None
    devices: int | None
    batch: int | None
    sequence_length: int | None
    framework: str | None
    plan: str | None
    """Parallel degrees above 1, such as `fsdp2 x tp2`."""
    figures: Mapping[str, Row]
    """Rows of the whole run by metric; by `metric[stat]` where they are narrowed to a statistic."""

    def value(self, metric: str) -> float | None:
        """The number; None where there is none."""
        row = self.figures.get(metric)
        return row.value if row is not None and row.status == "ok" else None

    def note(self, metric: str) -> str | None:
        """What qualifies the number, or why there is none."""
        row = self.figures.get(metric)
        return row.reason if row is not None else "not computed"

    @property
    def kind(self) -> str | None:
        """TPU, CPU or GPU, as far as the accelerator's name tells."""
        name = (self.accelerator or "").lower()
        return None if not name else "TPU" if "tpu" in name else "CPU" if "cpu" in name else "GPU"

    @property
    def hardware(self) -> tuple[Any, ...] | None:
        """What has to be equal for hardware to be equal; None where some of it is not known.

        Published and computed figures follow different definitions, so they never match.
        """
        return _whole(self.published, self.accelerator, self.devices)

    @property
    def work(self) -> tuple[Any, ...] | None:
        """What has to be equal for a step's work to be equal; None where some of it is not known."""
        model = self.model and self.model.casefold()
        return _whole(model, self.phase, self.batch, self.sequence_length)


def _whole(*parts: Any) -> tuple[Any, ...] | None:
    return None if None in parts else parts


@dataclass(frozen=True, slots=True)
class Collected:
    """All of a store: runs with results, and the others, by reason."""

    runs: tuple[Evidence, ...]
    left_out: Mapping[str, str]


def collect(store: Store) -> Collected:
    """The store's runs; a damaged one, or one of another version, is left out."""
    told, left_out = [], {}
    for stored in store.runs():
        try:
            results = stored.saved_results
            if results is None:
                left_out[stored.id] = f"has no results yet: cclbench metrics {stored.id}"
            else:
                told.append(_evidence(stored, results))
        except InputError as error:
            left_out[stored.id] = f"is not readable: {error.what}"
    return Collected(tuple(told), left_out)


def _evidence(stored: Run, results: pa.Table) -> Evidence:
    subject = Subject("", stored, results, None if stored.card is None else stored.card.raw)
    facts = _published_facts(subject) if subject.published else _facts(subject)
    return Evidence(run=stored.id, published=subject.published, figures=dict(_figures(subject)), **facts)


def _figures(subject: Subject) -> Iterator[tuple[str, Row]]:
    for row in subject.run_rows:
        if row.group is None and row.collective is None and row.category is None:
            yield row.metric if row.stat is None else f"{row.metric}[{row.stat}]", row


def _facts(subject: Subject) -> dict[str, Any]:
    devices = subject.devices
    return {
        "model": subject.field("workload.model.name") or subject.field("workload.model.family"),
        "phase": subject.field("workload.phase"),
        "accelerator": subject.field("hardware.accelerator") or (devices[0] if len(devices) == 1 else None),
        "devices": subject.device_count,
        "batch": subject.field("workload.batch.global"),
        "sequence_length": subject.field("workload.batch.sequence_length"),
        "framework": subject.field("software.framework.name"),
        "plan": _plan({key: subject.field(f"parallelism.{key}") for key in _DEGREES}),
    }


def _published_facts(subject: Subject) -> dict[str, Any]:
    """From the published metadata, which says more than the card could take over, word for word."""
    row = subject.published_row
    return {
        "model": subject.published_field("workload.model.name"),
        "phase": subject.published_field("workload.phase"),
        "accelerator": subject.published_field("hardware.accelerator"),
        "devices": subject.published_field("hardware.count"),
        "batch": subject.published_field("workload.batch.global"),
        "sequence_length": subject.published_field("workload.batch.sequence_length"),
        "framework": _VERSION.sub("", row.text("framework")) or None,
        "plan": _plan({key: row.count(key) for key in _DEGREES}),
    }


def _plan(degrees: Mapping[str, Any]) -> str | None:
    if all(degree is None for degree in degrees.values()):
        return None
    split = [f"{_DEGREES[key]}{degree}" for key, degree in degrees.items() if degree and degree > 1]
    return " x ".join(split) or "unsplit"

# SPDX-License-Identifier: Apache-2.0
"""One of the things compared: a run with its results, from traces or published."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import Any, Final

from cclbench.analyzers.view.values import ALL_OPEN
from cclbench.machine import Machine, machine_of
from cclbench.record.metric_name import metric_name
from cclbench.record.published import metadata_count, metadata_text
from cclbench.record.results import Results
from cclbench.record.run import Run

_STEP: Final = metric_name("time.step")

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
class WorkFacts:
    """What a run worked on, and on what, word for word; None is not known."""

    model: str | None
    phase: str | None
    accelerator: str | None
    devices: int | None
    batch: int | None
    sequence_length: int | None
    framework: str | None
    plan: str | None
    """Parallel degrees above 1, such as `fsdp2 x tp2`."""

    @property
    def accelerator_kind(self) -> str | None:
        """TPU, CPU or GPU, as far as the accelerator's name tells."""
        name = (self.accelerator or "").lower()
        return None if not name else "TPU" if "tpu" in name else "CPU" if "cpu" in name else "GPU"

    @property
    def work_key(self) -> tuple[Any, ...] | None:
        """What has to be equal for a step's work to be equal; None where some of it is not known."""
        parts = (self.model and self.model.casefold(), self.phase, self.batch, self.sequence_length)
        return None if None in parts else parts


@dataclass(frozen=True, eq=False)
class ComparisonSubject:
    """A run as a comparison sees it."""

    letter: str
    """"A", "B", ...: how tables and pictures call it; empty where it stands alone."""
    stored: Run
    results: Results
    """Rows of a full computation."""
    card: Mapping[str, Any] | None
    """The card's fields; None without a card."""
    captures: tuple[ComparisonSubject, ...] = ()
    """Of several captures of one job each by itself; `results` are their mean, all else is the first's."""

    per_call: tuple[str, float] | None = None
    """Of a capture without steps, whose length is nobody's work: the operator of which a call is what a step
    is elsewhere, and how many there are."""

    @property
    def each_capture(self) -> tuple[ComparisonSubject, ...]:
        """Each capture by itself, where there are several or one."""
        return self.captures or (self,)

    @property
    def place_among(self) -> int:
        """Its place among the subjects, from 0."""
        return ascii_uppercase.find(self.letter)

    @property
    def id(self) -> str:
        """The run's name in its store."""
        return self.stored.id

    @property
    def is_published(self) -> bool:
        """Whether its figures are somebody's published ones."""
        return self.stored.record.published is not None

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
        stated = self.card_field("hardware.accelerator") or (known and known.id)
        return self.machine.device_names or ((str(stated),) if stated else ())

    @property
    def device_count(self) -> int | None:
        """Accelerators of the job; None where nobody tells how many."""
        published = self.card_field("hardware.count") if self.is_published else None
        return published if isinstance(published, int) else self.machine.accelerator_count.value

    @property
    def window_policy(self) -> str | None:
        """The window policy that its step time rests on; None without one, or where it is published."""
        row = self.results.row(_STEP)
        return row.window if row is not None and row.status == "ok" and not self.is_published else None

    @cached_property
    def step_count(self) -> int:
        """How many numbered steps its figures are of."""
        return sum(len(one.results.steps(_STEP)) for one in self.each_capture)

    @property
    def whole_graphs(self) -> bool:
        """Whether CUDA graphs of it were traced whole, so that nobody knows what ran inside."""
        return any(rank.rows.get("graph") for one in self.each_capture for rank in one.stored.record.ranks)

    @property
    def all_open(self) -> bool:
        """Whether its step time is that of an open step, the only one: nobody knows where it ended."""
        row = self.results.row(_STEP)
        return row is not None and (row.reason or "").startswith(ALL_OPEN)

    def card_field(self, path: str) -> Any:
        """The card's value at a dotted path, or what was published of it; None without such a field."""
        found: Any = self.card
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is None and self.is_published and (self.card is None or path in _NO_CARD_HOLDS):
            return self.published_field(path)
        return found

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was published with its figures; empty where these are computed."""
        published = self.stored.record.published
        return {} if published is None else published.metadata

    def published_field(self, path: str) -> str | int | None:
        """What those metadata say of a field of the card, word for word; None where they say nothing."""
        if path in _PUBLISHED_TEXTS:
            return metadata_text(self.metadata, _PUBLISHED_TEXTS[path]) or None
        key = _PUBLISHED_COUNTS.get(path)
        return None if key is None else metadata_count(self.metadata, key)

    @cached_property
    def workload(self) -> WorkFacts:
        """What it ran; of published figures by their metadata, which say more than a card could take over."""
        if self.is_published:
            said: Callable[[str], Any] = self.published_field
            degrees = {key: metadata_count(self.metadata, key) for key in _DEGREES}
            framework = _VERSION.sub("", metadata_text(self.metadata, "framework")) or None
            accelerator, devices = None, said("hardware.count")
        else:
            said, names = self.card_field, self.devices
            degrees = {key: said(f"parallelism.{key}") for key in _DEGREES}
            framework = said("software.framework.name")
            accelerator, devices = names[0] if len(names) == 1 else None, self.device_count
        return WorkFacts(
            model=said("workload.model.name") or said("workload.model.family"),
            phase=said("workload.phase"),
            accelerator=said("hardware.accelerator") or accelerator,
            devices=devices,
            batch=said("workload.batch.global"),
            sequence_length=said("workload.batch.sequence_length"),
            framework=framework,
            plan=_plan_words(degrees),
        )

    @property
    def hardware_key(self) -> tuple[Any, ...] | None:
        """What has to be equal for hardware to be equal; None where some of it is not known.

        Published and computed figures follow different definitions, so they never match.
        """
        parts = (self.is_published, self.workload.accelerator, self.workload.devices)
        return None if None in parts else parts


def _plan_words(degrees: Mapping[str, Any]) -> str | None:
    if all(degree is None for degree in degrees.values()):
        return None
    split = [f"{_DEGREES[key]}{degree}" for key, degree in degrees.items() if degree and degree > 1]
    return " x ".join(split) or "unsplit"

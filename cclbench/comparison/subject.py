# SPDX-License-Identifier: Apache-2.0
"""A subject of a comparison: a run with its results, from traces or published."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import Any, Final

import pyarrow.compute as pc

from cclbench.analyzers.view.values import ALL_OPEN
from cclbench.machine import Machine, machine_of
from cclbench.record.metric_name import metric_name
from cclbench.record.published import metadata_count, metadata_text
from cclbench.record.results import Results
from cclbench.record.run import Run
from cclbench.source_summaries import source_summaries
from cclbench.source_summaries.summary import SourceSummary

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
"""Keys of published metadata by card field."""
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
    """Workload and hardware of a run, verbatim; None where unknown."""

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
        """TPU, CPU or GPU, by the accelerator's name; None without a name."""
        name = (self.accelerator or "").lower()
        return None if not name else "TPU" if "tpu" in name else "CPU" if "cpu" in name else "GPU"

    @property
    def work_key(self) -> tuple[Any, ...] | None:
        """Fields that must match for a step's work to be equal; None where any is unknown."""
        parts = (self.model and self.model.casefold(), self.phase, self.batch, self.sequence_length)
        return None if None in parts else parts


@dataclass(frozen=True, eq=False)
class ComparisonSubject:
    """A run, or several captures of one job, in a comparison."""

    letter: str
    """"A", "B", ...: its label in tables and charts; empty outside a comparison."""
    stored: Run
    results: Results
    """Rows of a full computation."""
    card: Mapping[str, Any] | None
    """The card's fields; None without a card."""
    captures: tuple[ComparisonSubject, ...] = ()
    """Each of several captures of one job; `results` are their mean, all else is the first's."""

    per_call: tuple[str, float] | None = None
    """For a capture without steps: the operator whose calls stand in for steps, and its number of calls."""

    @property
    def each_capture(self) -> tuple[ComparisonSubject, ...]:
        """Each of several captures, or this subject alone."""
        return self.captures or (self,)

    @property
    def index(self) -> int:
        """Index among the subjects, from 0."""
        return ascii_uppercase.find(self.letter)

    @property
    def id(self) -> str:
        """The run's name in its store."""
        return self.stored.id

    @property
    def is_published(self) -> bool:
        """Whether its figures are published ones, not computed here."""
        return self.stored.record.published is not None

    @property
    def ranks(self) -> list[int]:
        """Ranks that have a trace."""
        return self.stored.ranks

    @property
    def world_size(self) -> int | None:
        """Number of ranks of the job, as its traces state it."""
        return self.machine.stated_world

    @cached_property
    def machine(self) -> Machine:
        """The machine it ran on."""
        return machine_of(self.stored)

    @cached_property
    def summaries(self) -> list[SourceSummary]:
        """What it says if it has no device steps, by kind of source."""
        return source_summaries(self.stored, self.results)

    @property
    def devices(self) -> tuple[str, ...]:
        """Accelerator names from its traces, else from its card; `CPU` where that is the device."""
        accelerator = self.machine.accelerator.value
        stated = self.card_field("hardware.accelerator") or (accelerator and accelerator.id)
        return self.machine.device_names or ((str(stated),) if stated else ())

    @property
    def device_count(self) -> int | None:
        """Number of accelerators of the job; None where unknown."""
        published = self.card_field("hardware.count") if self.is_published else None
        return published if isinstance(published, int) else self.machine.accelerator_count.value

    @property
    def window_policy(self) -> str | None:
        """Window policy of its step time; None without a step time, or where it is published."""
        row = self.results.row(_STEP)
        return row.window if row is not None and row.status == "ok" and not self.is_published else None

    @cached_property
    def step_count(self) -> int:
        """Number of numbered steps over all captures."""
        return sum(len(capture.results.steps(_STEP)) for capture in self.each_capture)

    @property
    def whole_graphs(self) -> bool:
        """Whether CUDA graphs were traced whole, without the kernels inside."""
        return any(
            rank.rows.get("graph") for capture in self.each_capture for rank in capture.stored.record.ranks
        )

    @property
    def all_open(self) -> bool:
        """Whether its step time is that of its only step, whose end is not in the trace."""
        row = self.results.row(_STEP)
        return row is not None and (row.reason or "").startswith(ALL_OPEN)

    def card_field(self, path: str) -> Any:
        """The card's value at a dotted path, or the published one; None without such a field."""
        value: Any = self.card
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None and self.is_published and (self.card is None or path in _NO_CARD_HOLDS):
            return self.published_field(path)
        return value

    def log_setting(self, name: str) -> int | None:
        """A setting that its job's logs state, such as `global_batch`; None where they state none, or two."""
        files = [file for file in self.stored.record.evidence if file.rows.get("log_steps")]
        values = {value for file in files if isinstance(value := file.facts.get(name), int)}
        return values.pop() if len(values) == 1 else None

    @cached_property
    def logged_tokens(self) -> int | None:
        """Tokens of a step by its job's only log: those of most lines; None where it states none."""
        files = [file for file in self.stored.record.evidence if file.rows.get("log_steps")]
        if len(files) != 1:
            return None
        tokens = self.stored.evidence("log_steps")["tokens"].drop_null()
        modes = pc.mode(tokens).to_pylist()
        return modes[0]["mode"] if modes else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata published with its figures; empty where these are computed."""
        published = self.stored.record.published
        return {} if published is None else published.metadata

    def published_field(self, path: str) -> str | int | None:
        """A card field as the published metadata state it, verbatim; None where they do not."""
        if path in _PUBLISHED_TEXTS:
            return metadata_text(self.metadata, _PUBLISHED_TEXTS[path]) or None
        key = _PUBLISHED_COUNTS.get(path)
        return None if key is None else metadata_count(self.metadata, key)

    @cached_property
    def workload(self) -> WorkFacts:
        """Workload and hardware; of published figures from their metadata, which hold more than the card."""
        if self.is_published:
            field_value: Callable[[str], Any] = self.published_field
            degrees = {key: metadata_count(self.metadata, key) for key in _DEGREES}
            framework = _VERSION.sub("", metadata_text(self.metadata, "framework")) or None
            accelerator, devices = None, field_value("hardware.count")
        else:
            field_value, names = self.card_field, self.devices
            degrees = {key: field_value(f"parallelism.{key}") for key in _DEGREES}
            framework = field_value("software.framework.name")
            accelerator, devices = names[0] if len(names) == 1 else None, self.device_count
        return WorkFacts(
            model=field_value("workload.model.name") or field_value("workload.model.family"),
            phase=field_value("workload.phase"),
            accelerator=field_value("hardware.accelerator") or accelerator,
            devices=devices,
            batch=field_value("workload.batch.global"),
            sequence_length=field_value("workload.batch.sequence_length"),
            framework=framework,
            plan=_plan_words(degrees),
        )

    @property
    def hardware_key(self) -> tuple[Any, ...] | None:
        """Fields that must match for hardware to be equal; None where any is unknown.

        Published and computed figures follow different definitions, so they never match.
        """
        parts = (self.is_published, self.workload.accelerator, self.workload.devices)
        return None if None in parts else parts


def _plan_words(degrees: Mapping[str, Any]) -> str | None:
    if all(degree is None for degree in degrees.values()):
        return None
    degree_words = [f"{_DEGREES[key]}{degree}" for key, degree in degrees.items() if degree and degree > 1]
    return " x ".join(degree_words) or "unsplit"

# SPDX-License-Identifier: Apache-2.0
"""Subjects made by hand: a few result rows, a card and a manifest in, a `ComparisonSubject` out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cclbench.card.model import Card, card_of
from cclbench.comparison.captures import mean_results
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.schema import RESULTS
from cclbench.record.facts import TraceFacts
from cclbench.record.manifest import Manifest
from cclbench.record.results import Results
from helpers.typed import PUBLISHED, changed, record

Row = dict[str, Any]
CUT = {"file": "x.json", "byte": 1, "reason": "ends early"}
STEADY = [[np.full(9, 1 + apart / 10_000) for apart in range(-10, 11)]]
"""The captures of one job of a store, 21, whose steps differ by a thousandth of their length at most."""
PARTS = ("compute", "exposed_transfer", "exposed_wait", "exposed_unmatched", "exposed_copy", "idle_host")


def row(metric: str, value: float | None, unit: str = "s", **other: Any) -> Row:
    """A row of the results table; `ok` and measured where it has a value."""
    blank: Row = dict.fromkeys(RESULTS.names)
    blank |= {"window": "steps", "version": 1, "source": "kineto", "unit": unit, "metric": metric}
    missing = {"status": "not_applicable", "provenance": None, "reason": "nobody knows"}
    told = missing if value is None else {"status": "ok", "provenance": "measured", "reason": None}
    return blank | {"value": value} | told | other


def steps_of(metric: str, values: Sequence[float], unit: str = "s", **other: Any) -> list[Row]:
    """Rows of single steps, and the run's own: their mean."""
    mean = sum(values) / len(values)
    each = [row(metric, value, unit, step=n, **other) for n, value in enumerate(values)]
    return [row(metric, mean, unit, **other), *each]


def parts_of(**seconds: float) -> list[Row]:
    """`time.step` and its parts; `compute__gemm=1.0` is a row within `compute` that adds nothing."""
    found = [row("time.step_parts", s, stat=part) for part, s in seconds.items() if "__" not in part]
    whole = sum(s for part, s in seconds.items() if "__" not in part)
    for name, s in seconds.items():
        part, _, within = name.partition("__")
        key = "category" if part == "compute" else "collective"
        if within:
            found.append(row("time.step_parts", s, stat=part, **{key: within}))
    return [row("time.step", whole), row("time.step_parts", whole), *found]


CARD = """\
{"version": 2, "id": "tiny", "description": "a card",
 "workload": {"phase": "training", "model": {"name": "tiny-llama", "parameters": 1000}, "precision": "bf16",
              "batch": {"global": 16, "sequence_length": 128}},
 "hardware": {"accelerator": "nvidia-h100-sxm", "count": 4}, "parallelism": {"tp": 2}}
"""


def card(**changes: Any) -> dict[str, Any]:
    """A card of 16 samples of 128 tokens on 4 devices; `changes` are dotted paths with `__`, None removes."""
    return changed(json.loads(CARD), changes)


@dataclass
class Facts:
    """What a comparison uses of a rank's tables."""

    facts: TraceFacts


@dataclass
class Stored:
    """What a comparison uses of a stored run."""

    id: str
    record: Manifest
    reader: str | None = "kineto"
    path: Path = field(default_factory=Path)
    raw_card: Mapping[str, Any] | None = None

    @property
    def ranks(self) -> list[int]:
        return [entry.rank for entry in self.record.ranks]

    @property
    def card(self) -> Card | None:
        return None if self.raw_card is None else card_of(self.raw_card, Path())

    def rank(self, rank: int) -> Facts:
        return Facts(self.record.ranks[rank].facts)


def subject(
    letter: str,
    rows: Sequence[Row],
    card: Mapping[str, Any] | None = None,
    *,
    ranks: int = 4,
    world: int | None = None,
    published: dict[str, Any] | None = None,
    truncated: bool = False,
    reader: str = "kineto",
    **facts: Any,
) -> ComparisonSubject:
    """A subject of that many traced ranks on H100s."""
    told = {"world_size": world or ranks, "device_name": "H100", "works_on": "device", **facts}
    file = {"bytes": 1, "sha256": "0" * 64, "reader": reader}
    entry = {"facts": told, "truncated": CUT if truncated else None}
    entries = [entry | {"rank": r, "files": [file | {"name": f"rank{r}"}]} for r in range(ranks)]
    of_card = {"id": "tiny", "path": "tiny.yaml"} if card else None
    manifest: dict[str, Any] = {"ranks": entries, "card": of_card, "source": "traces/x"}
    if published is not None:
        manifest |= {"published": {**PUBLISHED, **published}, "ranks": []}
    stored = Stored(f"run-{letter.lower()}", record(manifest), None if published else reader, raw_card=card)
    table = pa.Table.from_pylist(list(rows), RESULTS)
    return ComparisonSubject(letter, stored, Results(table), card)  # type: ignore[arg-type]


def captured(*captures: ComparisonSubject) -> ComparisonSubject:
    """A job of these captures, which has the letter, the card and the manifest of the first."""
    first, *others = captures
    if not others:
        return first
    results = mean_results([capture.results for capture in captures])
    return ComparisonSubject(first.letter, first.stored, results, first.card, captures)

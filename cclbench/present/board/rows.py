# SPDX-License-Identifier: Apache-2.0
"""A row of the board: a run's facts, and its figures with provenance, status and reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from cclbench.card.standard import STANDARD
from cclbench.comparison.division_rules import has_division
from cclbench.comparison.fingerprint import Fingerprint, work_fingerprint
from cclbench.comparison.lines import metric_selector
from cclbench.comparison.operators import OperatorTables
from cclbench.comparison.serving_points import ServingPoint, serving_points
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.text import printable, shorten_middle
from cclbench.record.published import metadata_text
from cclbench.record.rows import Row
from cclbench.record.run import Run

FACTS: Final = {
    "model": "model",
    "phase": "phase",
    "standard": "standard workload",
    "precision": "precision",
    "batch": "global batch",
    "sequence_length": "sequence length",
    "accelerator": "accelerator",
    "devices": "count",
    "fabric": "fabric",
    "framework": "framework",
    "library": "collective library",
    "parallelism": "parallelism",
    "contributor": "contributor",
}
"""Heading of each fact, by its name."""
_CARD_FABRICS: Final = ("hardware.scale_up.fabric", "hardware.scale_out.fabric")
_PUBLISHED: Final = {
    "precision": "precision",
    "fabric": "network_topology",
    "library": "comm_library",
    "contributor": "submitter",
}
"""Keys of published metadata, by fact."""
_STATS: Final = (None, "p50", "p90", "p99")
"""Statistics that have a column; further parts of a metric are on the run's page."""
_LONGEST: Final = 120
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]+")

Facts = Mapping[str, str | int | None]


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A run on the board; `figures` are by metric, or by part: `serving.ttft[stat=p50]`."""

    id: str
    facts: Facts
    figures: Mapping[str, Row]
    published: Mapping[str, Any] | None
    """Source, row, SHA-256, metadata and what these lack, if its figures are published."""
    date: datetime | None
    series: str | None
    """The job whose runs in time it is one of, if it has labels."""
    source: str
    fingerprint: str
    """SHA-256 of what the run was made from."""
    points: tuple[ServingPoint, ...]
    """Its benchmarks of a server."""

    @property
    def workload(self) -> str:
        """Model and phase in words."""
        return " ".join(str(self.facts[name]) for name in ("model", "phase") if self.facts[name]) or "unknown"


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """A run as read for the site; `work` is what can prove that its work equals another's, None without."""

    row: BoardRow
    work: tuple[ComparisonSubject, Fingerprint] | None


def board_entry(
    subject: ComparisonSubject, operators: OperatorTables | None, date: datetime | None
) -> BoardEntry:
    """A run's row, and the evidence of its work; `operators` are its operators if it has some."""
    run, record = subject.stored, subject.stored.record
    # The published metadata hold more than the card made from them, which takes longer to read.
    fingerprint = Fingerprint(0, None) if subject.is_published else work_fingerprint(subject, operators)
    facts = _published_facts(subject) if subject.is_published else _card_facts(subject)
    published = record.published
    points = tuple(serving_points(run.id, subject.results.rows, subject.card_field("workload.model.name")))
    served = {point.workload for point in points}
    if facts["model"] is None and len(served) == 1:
        facts = {**facts, "model": _short(served.pop())}
    row = BoardRow(
        id=run.id,
        facts=facts,
        figures=_figures(subject),
        published=None
        if published is None
        else {
            "source": published.source,
            "generated_at": published.generated_at,
            "row": published.row,
            "sha256": published.sha256,
            **{f"metadata.{name}": value for name, value in published.metadata.items()},
            "left_out_of_card": "; ".join(published.left_out_of_card),
        },
        date=date,
        series=_series(run),
        source=record.source,
        fingerprint=record.fingerprint,
        points=points,
    )
    proves = bool(fingerprint.flops or fingerprint.served) or has_division(subject)
    return BoardEntry(row, (subject, fingerprint) if proves else None)


def _figures(subject: ComparisonSubject) -> dict[str, Row]:
    """The run's figures, and those of its parts by collective or statistic."""
    return {
        metric_selector(
            row.metric, {key: value for key in ("collective", "stat") if (value := getattr(row, key))}
        ): row
        for row in subject.results.rows
        if row.group is None and row.category is None and row.step is None and row.stat in _STATS
    }


def _card_facts(subject: ComparisonSubject) -> Facts:
    fabrics = [name for path in _CARD_FABRICS if (name := subject.card_field(path))]
    return _common_facts(subject) | {
        "standard": _short(subject.card_field(STANDARD)),
        "precision": _short(subject.card_field("workload.precision")),
        "fabric": _short(" / ".join(map(str, fabrics)) or None),
        "library": _short(subject.card_field("software.communication.library")),
        "contributor": _short(subject.card_field("contributor.name")),
    }


def _published_facts(subject: ComparisonSubject) -> Facts:
    stated = {name: _short(metadata_text(subject.metadata, key) or None) for name, key in _PUBLISHED.items()}
    return _common_facts(subject) | {"standard": None} | stated


def _common_facts(subject: ComparisonSubject) -> dict[str, str | int | None]:
    work = subject.workload
    return {
        "model": _short(work.model),
        "phase": _short(work.phase),
        "batch": work.batch,
        "sequence_length": work.sequence_length,
        "accelerator": _short(work.accelerator),
        "devices": work.devices,
        "framework": _short(work.framework),
        "parallelism": _short(work.plan),
    }


def _short(text: object) -> str | None:
    return None if text is None else shorten_middle(printable(str(text)), _LONGEST)


def _series(run: Run) -> str | None:
    """The card, or the source's name without its last number, of a run with labels."""
    if not run.record.labels or run.record.published is not None:
        return None
    if run.record.card is not None:
        return run.record.card.id
    return re.sub(r"\d+(?=\D*$)", "#", run.record.source)


def page_name(name: str) -> str:
    """A file name for a page about `name`: plain characters, distinct also where case does not count."""
    if _PLAIN.fullmatch(name):
        return f"{name}.html"
    plain = _STRANGE.sub("-", name)[:60].strip("-.")
    return f"{plain or 'page'}-{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}.html"

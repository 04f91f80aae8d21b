# SPDX-License-Identifier: Apache-2.0
"""Brief answers of `run`, `metrics`, `diagnose` and `whatif`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from cclbench.findings.finding import Finding
from cclbench.ground.schema import HAS_VALUE
from cclbench.ground.units import humanise
from cclbench.present.brief.quantities import Brief, Document
from cclbench.present.topics import key_rows
from cclbench.present.words import NOTHING, gain_words, partial_words
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row

_STEP: Final = metric_name("time.step")


def _findings(findings: Iterable[Document]) -> list[Brief]:
    """Findings as claim, gain, confidence, what to try and what to ask next."""
    return [
        {
            "name": row["name"],
            "claim": row["claim"],
            "gain": gain_words(msgspec.convert(row, Finding)).removeprefix("gain: "),
            "confidence": row["confidence"],
            "ranks": row["ranks"],
            "try": row["try"][:1],
            "whatif": row["whatif"],
        }
        for row in findings
    ]


def _summaries(document: Document) -> Brief:
    """What a source without device steps says, what is wrong first."""
    summaries = document.get("summaries", ())
    return {
        "warnings": [words for summary in summaries for words in summary["warnings"]],
        "answer": " ".join(words for summary in summaries for words in summary["sentences"]),
    }


def _run_facts(run: Document) -> Brief:
    return {
        "run": run["id"],
        "device": run["accelerators"],
        "ranks": len(run["ranks_found"]) or None,
        "steps": len(run["steps"]) or None,
        "truncated": [cut["file"] for cut in run["truncated"]],
        "notes": run["notes"],
    }


def brief_findings(document: Document) -> Brief:
    """The findings, or that there are none and why."""
    summary = _summaries(document)
    unknown = document.get("unknown")
    answer = summary["answer"] or (unknown and f"no step time: {unknown}") or NOTHING
    findings = _findings(document["findings"])
    return {
        "warnings": summary["warnings"],
        "findings": findings,
        **({} if findings else {"answer": answer}),
    } | _run_facts(document["run"])


def brief_result(document: Document) -> Brief:
    """Findings and key figures of a run; chosen metrics; or a replay's predictions."""
    rows = [msgspec.convert(row, Row) for row in document["results"]]
    if any(row.metric.startswith("whatif.step") for row in rows):
        return _brief_replay(rows, document["run"]["id"])
    of_run = [row for row in rows if row.rank is None and not row.narrowed]
    figures = key_rows(of_run) if "findings" in document else [row for row in of_run if row.has_value]
    missing = {row.metric: row.reason or row.status for row in of_run if not row.has_value}
    has_findings = "findings" in document
    return {
        **(brief_findings(document) if has_findings else {}),
        "figures": {row.metric: _figure_words(row) for row in figures},
        "missing": {name: missing.get(name) for name in (missing if not has_findings else [_STEP])},
        "window": document["run"]["windows"],
        **_run_facts(document["run"]),
    }


def _figure_words(row: Row) -> str:
    """`537 ms`, `~12 GB/s` where it is modelled, `46 % (partial: 12 % of the rows)`."""
    partial = f" ({partial_words(row)})" if row.status == "partial" else ""
    return f"{'~' * (row.provenance == 'modelled')}{humanise(row.number, row.unit)}{partial}"


def _brief_replay(rows: Sequence[Row], run: str) -> Brief:
    """Predicted steps by scenario, with their bounds; then the measured and the replayed step."""

    def value(metric: str, scenario: str | None, stat: str | None = None) -> str | None:
        matches = (
            row
            for row in rows
            if (row.metric, row.category, row.stat) == (metric, scenario, stat)
            and row.rank is None
            and row.collective is None
        )
        row = next(matches, None)
        return None if row is None else _figure_words(row) if row.has_value else f"unknown: {row.reason}"

    scenarios = dict.fromkeys(row.category for row in rows if row.metric == "whatif.step")
    return {
        "predicted": [
            {
                "settings": scenario,
                "step": value("whatif.step", scenario),
                "from": value("whatif.step", scenario, "low"),
                "to": value("whatif.step", scenario, "high"),
                "speedup": value("whatif.speedup", scenario),
                "critical_path": _critical_path(rows, scenario),
            }
            for scenario in scenarios
        ],
        "measured": value("whatif.measured_step", None),
        "replayed_unchanged": value("whatif.replayed_step", None),
        "critical_path": _critical_path(rows, None),
        "run": run,
    }


def _critical_path(rows: Iterable[Row], scenario: str | None) -> Brief:
    """Shares of the critical path, largest first."""
    shares = sorted(
        (
            (row.number, row.stat)
            for row in rows
            if row.metric == "whatif.critical_path"
            and row.category == scenario
            and row.stat is not None
            and row.collective is None
            and row.status in HAS_VALUE
        ),
        reverse=True,
    )
    return {stat: humanise(share, "1") for share, stat in shares if share > 0}

# SPDX-License-Identifier: Apache-2.0
"""Findings on a terminal: what makes a run slow, possible gains, what to try."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cclbench.findings.diagnosis import Diagnosis
from cclbench.findings.finding import Finding
from cclbench.ground.text import cut_text, printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.present.words import NOTHING, gain_words
from cclbench.source_summaries.summary import SourceSummary

COLUMNS: Final = (
    *(
        "name",
        "claim",
        "gain_share",
        "lost_s",
        "share",
        "confidence",
        "because",
        "ranks",
        "try",
        "whatif",
        "query",
    ),
)


def numbered_findings(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    """A few findings with claim and gain; the first one with what to try."""
    table = Table.grid(padding=(0, 1))
    for number, finding in enumerate(findings, 1):
        text = Text(cut_text(finding.claim), overflow="fold")
        text.append(f"\n{gain_words(finding)}", "italic")
        if number == 1 and finding.try_:
            text.append(f"\ntry: {cut_text(finding.try_[0])}", "dim")
        table.add_row(Text(str(number), "bold"), text)
    yield table


def findings_page(
    diagnosis: Diagnosis, top: int | None, summaries: Sequence[SourceSummary] = ()
) -> list[RenderableType]:
    """All findings, each with its evidence and a query that lists its events.

    `summaries`: those of a run without device steps, whose failures stand first.
    """
    run, findings = diagnosis.run, diagnosis.findings
    shown = findings if top is None else findings[:top]
    parts: list[RenderableType] = [Text(f"{printable(run)}: {_count_words(diagnosis, summaries)}", "bold")]
    parts += [Text(printable(words), "red") for summary in summaries for words in summary.warnings]
    for number, finding in enumerate(shown, 1):
        parts += [
            Text(),
            Text(f"{number}  {finding.name}", "bold"),
            Padding(_full_finding(run, finding), (0, 0, 0, 3)),
        ]
    if len(shown) < len(findings):
        parts += [Text(), Text(f"{len(findings) - len(shown)} more: --top or --json")]
    return parts


def _count_words(diagnosis: Diagnosis, summaries: Sequence[SourceSummary]) -> str:
    findings = len(diagnosis.findings)
    if findings:
        return f"{findings} finding{'s'[: findings != 1]}"
    if summaries:
        warnings = sum(len(summary.warnings) for summary in summaries)
        headings = "; ".join(printable(summary.heading) for summary in summaries)
        return f"{headings}: {warnings or 'no'} warning{'s'[: warnings != 1]}"
    if diagnosis.unknown:
        return f"not diagnosed: {printable(diagnosis.unknown)}"
    return NOTHING


def _full_finding(run: str, finding: Finding) -> RenderableType:
    lines: list[RenderableType] = [
        Text(cut_text(finding.claim), overflow="fold"),
        Text(gain_words(finding), "italic"),
    ]
    lines.append(Text(f"{finding.confidence} confidence: {printable(finding.because)}", overflow="fold"))
    for row in finding.evidence:
        about = (row.collective, row.group, row.category, row.stat)
        label = " ".join(filter(None, (row.metric, *about)))
        lines.append(
            Text(f"{shorten_middle(printable(label), 50):<50} {humanise(row.value, row.unit):>12}", "dim")
        )
    lines += [Text(f"try: {printable(action)}", overflow="fold") for action in finding.try_]
    if finding.gain_s:
        replayed = " ".join(f"--set {shlex.quote(setting)}" for setting in finding.whatif)
        lines.append(Text(f"cclbench whatif {printable(f'{run} {replayed}')}", "dim", overflow="fold"))
    if finding.query:
        query = " ".join(finding.query.split()).replace('"', '\\"')
        lines.append(Text(f'cclbench sql {printable(run)} "{query}"', "dim", overflow="fold"))
    return Group(*lines)

# SPDX-License-Identifier: Apache-2.0
"""Data points on a terminal: results of `contribute` and `verify`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from cclbench.contribute.package import Contribution
from cclbench.contribute.sizes import TraceSizes
from cclbench.contribute.verify import MEANING, Verdict
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.terminal.output import bullet_lines, grid_table

_MOST: Final = 10
"""Most reasons listed for a data point."""
_MOST_KINDS: Final = 30
"""Most lines of the review list."""


def contribution_page(contribution: Contribution, every: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """What was done, in sections; `every` are redactions to list one by one."""
    parts: list[RenderableType] = []
    for title, lines in _contribution_sections(contribution):
        if lines:
            parts += [Text(title, "bold"), bullet_lines(lines), Text()]
    if every:
        parts += [Text("Every redaction", "bold"), *grid_table(every, list(every[0])), Text()]
    return [
        *parts,
        Text("Next", "bold"),
        *(
            Text(f"  {printable(line)}", no_wrap=True, overflow="ignore")
            for line in _next_commands(contribution)
        ),
    ]


def _next_commands(contribution: Contribution) -> Iterator[str]:
    """The commands up to a pull request, for the collection's folder."""
    place = contribution.place
    created = [place.card_path, place.traces_folder]
    created += [place.calibration_path] if contribution.calibrated else []
    created += [place.scripts_folder] if contribution.scripts else []
    if place.collection != Path():
        yield f"cd {shlex.quote(str(place.collection))}"
    outside = {
        path.parents[len(path.parts) - path.parts.index(place.id) - 2] for path, _ in contribution.uploads[:1]
    }
    evidence = (f" --evidence {shlex.quote(str(folder))}" for folder in outside)
    yield f"cclbench verify {place.id}{''.join(evidence)}"
    yield f"git checkout -b {place.id}"
    yield f"git add {' '.join(path.relative_to(place.collection).as_posix() for path in created)}"
    yield f"git commit -m 'Data point {place.id}'"
    yield f"git push -u origin {place.id}, and open a pull request"


def _file_count(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"


def _contribution_sections(contribution: Contribution) -> Iterator[tuple[str, list[str]]]:
    place = contribution.place
    size = humanise(sum(size for _, size in contribution.files), "B")
    created_lines = [
        f"{place.card_path}",
        *([f"{place.calibration_path}"] if contribution.calibrated else []),
        f"{place.traces_folder}/: {_file_count(len(contribution.files))}, {size}, and manifest.json",
        *(
            [f"{place.scripts_folder}/: {_file_count(len(contribution.scripts))}"]
            if contribution.scripts
            else []
        ),
    ]
    yield "Created", created_lines
    yield "Size of the traces", [_size_words(contribution.sizes)] if contribution.sizes.ratio else []
    yield "Filled in from the traces", list(contribution.inferred)
    yield "Filled in from config.json", list(contribution.configured)
    yield "Card and traces disagree", list(contribution.contradictions)
    yield "Missing in the card", [str(gap) for gap in contribution.gaps]
    yield "Redacted, by kind and file: please review", _redaction_review(contribution)
    yield "Published on purpose", list(contribution.revealed)
    proof = f"all {contribution.rows:,} result rows are bit for bit equal to those of the originals"
    yield "Verified", [f"{proof}; {contribution.recorded} metrics are recorded"]
    yield "Renamed", [f"{old} -> {new}" for old, new in contribution.renamed]
    yield "Left out", list(contribution.left_out)
    yield "To upload", [f"{path} to {url}" for path, url in contribution.uploads]


def _size_words(sizes: TraceSizes) -> str:
    files, plain, parquet = (humanise(size, "B") for size in (sizes.files, sizes.plain, sizes.parquet))
    return f"{plain} ({files} in files) are {parquet} as a run's Parquet: {sizes.ratio:.3g} times less"


def _redaction_review(contribution: Contribution) -> list[str]:
    """Number of redactions and files, a line for each kind."""
    files: dict[str, dict[str, int]] = {}
    for redaction in contribution.redactions:
        of_kind = files.setdefault(redaction.kind, {})
        of_kind[redaction.file] = of_kind.get(redaction.file, 0) + redaction.count
    lines = [f"{kind}: {_in_files(counts)}" for kind, counts in sorted(files.items())]
    more = len(lines) - _MOST_KINDS
    if more > 0:
        lines = [*lines[:_MOST_KINDS], f"and {more} more kinds: -v and --json show every place"]
    return lines or ["nothing was found"]


def _in_files(counts: Mapping[str, int]) -> str:
    (first, _), *others = counts.items()
    where = f"{first} and {_file_count(len(others))} more" if others else first
    return f"{sum(counts.values()):,} in {where}"


def verification_page(
    verdicts: Sequence[Verdict], rows: Sequence[Mapping[str, Any]], *, verbose: bool
) -> list[RenderableType]:
    """A row for each data point, then the reasons for each verdict."""
    if not verdicts:
        return [Text("nothing to verify: no data point changed")]
    parts: list[RenderableType] = grid_table(rows, list(rows[0]))
    if signed := [f"{verdict.id}: {verdict.signature}" for verdict in verdicts if verdict.signature]:
        parts += [Text(), bullet_lines(signed)]
    for verdict in verdicts:
        if lines := _verdict_reasons(verdict, verbose=verbose):
            parts += [Text(), Text(f"{verdict.id}: {MEANING[verdict.status]}"), bullet_lines(lines)]
    return parts


def _verdict_reasons(verdict: Verdict, *, verbose: bool) -> list[str]:
    """Why it is not verified: the first few reasons, or with `verbose` all, and the notes."""
    lines = [line for reason in verdict.reasons for line in reason.split("\n")]
    if verbose:
        return [*lines, *verdict.notes]
    more = len(lines) - _MOST
    return [*lines[:_MOST], *([f"and {more} more: -v and --json show them"] if more > 0 else [])]

# SPDX-License-Identifier: Apache-2.0
"""Blind scores of the collective model, of NCCL's tuning model and of α-β on published sweeps, in Markdown.

    python scripts/scoreboard.py [FOLDER...] [--write docs/scoreboard.md]

Without folders the shipped sweeps (tests/hardware/published) are scored, else those of the folders with them.
Each is predicted with its system left out of the learning.  `--write` replaces that part of the page, which
says how to add a sweep.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from baselines import alpha_beta_times, line_rate_group, nccl_times
from bench import pipelines
from like_machines import floor_errors
from numpy.typing import NDArray
from public_sweeps import (
    PUBLISHED,
    PublicSweep,
    folder_sweeps,
    predicted_system,
    price_sweep,
    specified_system,
)
from unseen_machines import (
    HeldOutErrors,
    Ratios,
    concatenate_errors,
    held_out_errors,
    median_of_machines,
    ratios_between_machines,
    ratios_between_settings,
    residuals_without_system,
)

from cclbench.hardware.collectives import NoPrice
from cclbench.hardware.deviation import BANDS
from cclbench.hardware.residual_learning import ObservedSweep
from cclbench.hardware.residuals import Floats, Residuals
from cclbench.hardware.weak_classes import PROMISED_ERRORS, class_marks, class_names, machine_class

ALTERNATIVES: Final = {"NCCL": nccl_times, "α-β": alpha_beta_times}
RANKS: Final = {"2 to 8": 8, "9 to 16": 16, "17 to 64": 64, "more than 64": 1 << 30}
POOLED: Final = "**all**"
"""Name of the bands of all sweeps."""
MOST_FLOORS: Final = 1.3
"""The model's error over the floor up to which a description says no more."""
NOTHING: Final = "**nothing**"
"""What a class holds by whose error is unmarked, beyond what is promised and beyond the floor."""
LEAST_RATIO: Final = 1.1
"""Ratio of two measured times from which on one machine counts as faster."""
NO_JOB: Final = "not predicted: no card has the sizes of its model"


@dataclass(frozen=True)
class Score:
    """A sweep's rows: the model's errors, and log(measured / predicted) of the alternatives by name.

    An alternative without a formula for the collective is absent.  Arrays of shape (rows,).
    """

    public: PublicSweep
    observed: ObservedSweep
    model: HeldOutErrors
    alternatives: Mapping[str, Floats]


def score_sweeps(sweeps: Sequence[PublicSweep]) -> tuple[list[Score], dict[str, str]]:
    """Scores of the sweeps, and why others have none, by file."""
    learned, scored, refused = [], [], {}
    for public in sweeps:
        specified, predicted = price_sweep(public), price_sweep(public, predicted_system(public))
        if public.misconfigured:
            refused[public.file] = "its source calls the machine misconfigured"
        elif isinstance(specified, NoPrice) or isinstance(predicted, NoPrice):
            assert isinstance(specified, NoPrice)  # noqa: S101  (both have the same fields)
            refused[public.file] = specified.reason
        else:
            learned.append(specified)
            scored.append((public, predicted))
    residuals = residuals_without_system(learned)
    return [_score(public, each, residuals[each.system]) for public, each in scored], refused


def _score(public: PublicSweep, observed: ObservedSweep, residuals: Residuals) -> Score:
    group = line_rate_group(specified_system(public.system), public.sweep)
    assert not isinstance(group, NoPrice)  # noqa: S101  (the sweep has a price)
    found = {name: times(public.sweep, group) for name, times in ALTERNATIVES.items()}
    off = {name: np.log(public.sweep.times_s / times) for name, times in found.items() if times is not None}
    return Score(public, observed, held_out_errors(observed, residuals), off)


def class_rows(scores: Sequence[Score]) -> Iterator[str]:
    """Rows of the table: all, then by network, collective, size and ranks."""
    yield score_row("**all**", scores, None)
    kinds: dict[str, Callable[[Score], str]] = {
        "network": lambda score: machine_class(score.observed.setting),
        "collective": lambda score: score.public.sweep.kind,
        "ranks": lambda score: next(name for name, most in RANKS.items() if score.public.sweep.ranks <= most),
    }
    for kind, class_of in kinds.items():
        found = {class_of(score) for score in scores}
        order = [name for name in RANKS if name in found] if kind == "ranks" else sorted(found)
        for name in order:
            yield score_row(f"{kind}: {name}", [score for score in scores if class_of(score) == name], None)
    for number, band in enumerate(BANDS):
        yield score_row(f"size: {band}", scores, number)


@dataclass(frozen=True)
class ClassBand:
    """A class of sweeps in a size band: |predicted / measured − 1| of the model and of like machines.

    `error` is the median of all rows, `of_machines` that in which each machine weighs the same.  `alike`
    counts the machines with like machines, `alike_rows` their rows; `there` and `floor` are the median errors
    at these rows, of the model and of like machines, None without any.
    """

    name: str
    number: int
    machines: int
    rows: int
    error: float
    of_machines: float
    within: float
    weak: bool
    alike: int
    alike_rows: int
    there: float | None
    floor: float | None

    @property
    def holds_by(self) -> str:
        """Which of the goals it meets: the promised error, a multiple of the floor, or that it is marked."""
        if self.of_machines <= PROMISED_ERRORS[self.number]:
            return "error"
        if self.there is not None and self.floor is not None and self.there <= MOST_FLOORS * self.floor:
            return "floor and mark" if self.weak else "floor"
        return "mark" if self.weak else NOTHING

    @property
    def row(self) -> str:
        """Its row of the table."""
        cells = [f"{self.machines} | {self.rows} | {self.error:.0%} | {self.of_machines:.0%}"]
        cells.append(f"{self.within:.0%} | {'weak' if self.weak else ''}")
        if self.there is None or self.floor is None:
            cells.append("0 | - | - | - | -")
        else:
            cells.append(f"{self.alike} | {self.alike_rows} | {self.there:.0%} | {self.floor:.0%}")
            cells.append(f"{self.there / self.floor:.1f}")
        return f"| {self.name}, {[*BANDS][self.number]} | " + " | ".join([*cells, self.holds_by]) + " |"


def class_bands(scores: Sequence[Score]) -> Iterator[ClassBand]:
    """All sweeps by size band (`POOLED`), then those of each class."""
    floors = [each.residual for each in floor_errors([(s.public, s.observed) for s in scores])]
    names = {(at, name) for score in scores for at, name in enumerate(class_names(score.observed.setting))}
    for name in (POOLED, *(name for _, name in sorted(names))):
        for number in range(len(BANDS)):
            parts = [
                (score, own, floor[own])
                for score, floor in zip(scores, floors, strict=True)
                if name == POOLED or name in class_names(score.observed.setting)
                if (own := score.observed.size_bands == number).any()
            ]
            if parts:
                yield _class_band(name, number, parts)


def _class_band(
    name: str, number: int, parts: Sequence[tuple[Score, NDArray[np.bool_], Floats]]
) -> ClassBand:
    rows = [(score.observed.machine, np.abs(np.expm1(-score.model.residual[own]))) for score, own, _ in parts]
    model = np.concatenate([errors for _, errors in rows])
    floor = np.concatenate([np.abs(np.expm1(-floor)) for _, _, floor in parts])
    first, at, _ = parts[0]
    marks = class_marks(first.observed.setting, first.observed.sizes[at][:1])[0]
    alike = ~np.isnan(floor)
    return ClassBand(
        name,
        number,
        len({machine for machine, _ in rows}),
        len(model),
        float(np.median(model)),
        median_of_machines(rows),
        float(np.mean(np.concatenate([score.model.is_within[own] for score, own, _ in parts]))),
        any(text.startswith(f"weak class: {name}, ") for text in marks),
        len({score.observed.machine for score, _, each in parts if not np.isnan(each).all()}),
        int(alike.sum()),
        float(np.median(model[alike])) if alike.any() else None,
        float(np.median(floor[alike])) if alike.any() else None,
    )


def score_row(name: str, scores: Sequence[Score], band: int | None) -> str:
    """Machines, rows, and median error and bias of each predictor, of all sizes or of one band."""
    chosen = [
        np.full(len(s.observed.sizes), True) if band is None else s.observed.size_bands == band
        for s in scores
    ]
    model = concatenate_errors(
        [
            HeldOutErrors(s.model.residual[own], s.model.low[own], s.model.high[own])
            for s, own in zip(scores, chosen, strict=True)
        ]
    )
    machines = len({s.observed.machine for s, own in zip(scores, chosen, strict=True) if own.any()})
    rows = len(model.residual)
    cells = [f"{model.median:.0%}, {model.bias:+.0%}", f"{model.within:.0%} ({model.width:.1f} times)"]
    for alternative in ALTERNATIVES:
        parts = [
            s.alternatives[alternative][own]
            for s, own in zip(scores, chosen, strict=True)
            if alternative in s.alternatives
        ]
        off = np.concatenate([np.empty(0), *parts])
        few = f" ({len(off)} rows)" if len(off) < rows else ""
        cells.append(
            f"{np.median(np.abs(np.expm1(-off))):.0%}, {np.median(off):+.0%}{few}" if len(off) else "-"
        )
    return f"| {name} | {machines} | {rows} | " + " | ".join(cells) + " |"


def ratio_rows(scores: Sequence[Score]) -> Iterator[str]:
    """Rows of ratios between two machines of as many ranks, by size, and within one machine."""
    by_sweep = {id(score.observed): score for score in scores}
    observed = [score.observed for score in scores]
    between = [
        each
        for each in ratios_between_machines(observed)
        if each.first.setting.ranks == each.second.setting.ranks and each.first.machine != each.second.machine
    ]
    for number, band in enumerate(BANDS):
        yield _ratio_row(f"two machines, {band}", between, by_sweep, number)
    yield _ratio_row("**two machines**", between, by_sweep, None)
    residuals = residuals_without_system(observed)
    own = list(ratios_between_settings(observed, residuals))
    yield _ratio_row("one machine, other ranks or collective", own, by_sweep, None)


def _ratio_row(name: str, found: Sequence[Ratios], by_sweep: Mapping[int, Score], band: int | None) -> str:
    """Ratios, the model's median error and coverage, and how often each predictor names the faster one."""
    parts, right = [], {word: [0, 0] for word in ("model", *ALTERNATIVES)}
    for each in found:
        at = each.at
        keep = np.full(len(at[0]), True) if band is None else each.first.size_bands[at[0]] == band
        errors = each.errors
        parts.append(HeldOutErrors(errors.residual[keep], errors.low[keep], errors.high[keep]))
        first, second = (by_sweep[id(sweep)] for sweep in (each.first, each.second))
        measured = np.log(first.public.sweep.times_s[at[0]] / second.public.sweep.times_s[at[1]])
        clear = keep & (np.abs(measured) >= np.log(LEAST_RATIO))
        off = {"model": errors.residual} | {
            word: first.alternatives[word][at[0]] - second.alternatives[word][at[1]]
            for word in ALTERNATIVES
            if word in first.alternatives and word in second.alternatives
        }
        for word, residual in off.items():
            right[word][0] += int(((measured - residual) * measured > 0)[clear].sum())
            right[word][1] += int(clear.sum())
    total = concatenate_errors(parts) if parts else HeldOutErrors(*(np.empty(0),) * 3)
    if not len(total.residual):
        return f"| {name} | 0 | - | - | - | - | - |"
    shares = [f"{hit / count:.0%} of {count:,}" if count else "-" for hit, count in right.values()]
    return (
        f"| {name} | {len(total.residual):,} | {total.median:.0%} "
        f"| {total.within:.0%} ({total.width:.1f} times) | " + " | ".join(shares) + " |"
    )


def sweep_rows(scores: Sequence[Score], refused: Mapping[str, str]) -> Iterator[str]:
    """One row a sweep, then those without a score, and why."""
    for score in sorted(scores, key=lambda score: score.public.file):
        sweep = score.public.sweep
        yield score_row(
            f"{score.public.file}: {sweep.kind}, {sweep.ranks} ranks ({score.public.system})", [score], None
        )
    for file, reason in refused.items():
        yield f"| {file}: {reason} |" + " - |" * (4 + len(ALTERNATIVES))


def job_rows(folders: Sequence[Path]) -> Iterator[str]:
    """Published jobs of the folders, files with a column `seconds`: each layout's step from the nearest other
    layout's, or why they have no score."""
    for path in (path for folder in folders for path in sorted(folder.glob("*.csv"))):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        rows = list(csv.DictReader(lines))
        if not rows or "seconds" not in rows[0]:
            continue
        if {row["model"] for row in rows} != {pipelines.NAME}:
            yield f"| {path.stem} | {len(rows)} | {NO_JOB} | - | - | - |"
            continue
        score = pipelines.score_jobs(pipelines.read_jobs(path))
        yield (
            f"| {path.stem} | {len(rows)} | {np.median(score.errors):.1%} | {len(score.widths)}"
            f" | {max(score.widths):.2f} times | {max(score.doubled):.1%} of {len(score.doubled)} |"
        )


def goal_lines(bands: Sequence[ClassBand]) -> Iterator[str]:
    """Which goals the pooled bands and those of the classes meet, in sentences."""
    pooled, classes = ([each for each in bands if (each.name == POOLED) == own] for own in (True, False))
    yield (
        "Pooled: median errors of "
        + ", ".join(f"{each.error:.1%}" for each in pooled)
        + " (goals: "
        + ", ".join(f"{goal:.0%}" for goal in PROMISED_ERRORS)
        + "); within the bands "
        + ", ".join(f"{each.within:.0%}" for each in pooled)
        + " (goal: 75 to 88 %)."
    )
    by = Counter(each.holds_by for each in classes)
    counts = ", ".join(f"{by[how]} by {how}" for how in sorted(by))
    rows = sum(each.error > PROMISED_ERRORS[each.number] for each in classes)
    beyond = [
        f"{each.name}, {[*BANDS][each.number]}"
        for each in classes
        if each.error > PROMISED_ERRORS[each.number] and each.holds_by == "error"
    ]
    yield (
        f"Of {len(classes)} bands of classes hold: {counts}. By all rows alike {rows} are beyond the error;"
        f" not so if each machine weighs the same: {'; '.join(beyond) or 'none'}."
    )


def page(folders: Sequence[Path]) -> str:
    """The scored part of the page in Markdown."""
    sweeps = [
        public
        for folder in (PUBLISHED, *folders)
        if not list(job_rows([folder]))
        for public in folder_sweeps(folder)
    ]
    scores, refused = score_sweeps(sweeps)
    columns = "machines | rows | model: error, bias | in band (its width)"
    columns += "".join(f" | {word}: error, bias" for word in ALTERNATIVES)
    rule = "| --- |" + " ---: |" * (4 + len(ALTERNATIVES))
    lines = [f"| class | {columns} |", rule, *class_rows(scores), ""]
    if folders:  # marks rest on all sweeps
        bands = list(class_bands(scores))
        lines += [
            "| class, size | machines | rows | model: error | each machine alike | in band | mark "
            "| like machines | rows | model: error there | floor | model / floor | holds by |",
            "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |",
            *(each.row for each in bands),
            "",
            *goal_lines(bands),
            "",
        ]
    faster = " | ".join(f"faster one named: {word}" for word in ("model", *ALTERNATIVES))
    lines += [f"| ratio of times | ratios | model: error | in band (its width) | {faster} |"]
    lines += ["| --- |" + " ---: |" * (4 + len(ALTERNATIVES)), *ratio_rows(scores), ""]
    lines += [f"| sweep | {columns} |", rule, *sweep_rows(scores, refused)]
    if jobs := list(job_rows(folders)):
        lines += [
            "",
            "| job | measured | model: error | within bounds | widest of these | twice the nodes, most |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *jobs,
        ]
    return "\n".join(lines) + "\n"


def replace_block(text: str, name: str, block: str) -> str:
    """The page with its part `name` replaced."""
    marks = [f"<!-- scripts/scoreboard.py, {name}: {end} -->" for end in ("begin", "end")]
    pattern = rf"({re.escape(marks[0])}\n).*?(\n{re.escape(marks[1])})"
    return re.sub(pattern, lambda found: found[1] + "\n" + block + found[2], text, flags=re.DOTALL)


def main() -> int:
    """Print the tables, or write them to the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    block = page(given.folders)
    if given.write is None:
        sys.stdout.write(block)
    else:
        name = "all" if given.folders else "shipped"
        given.write.write_text(replace_block(given.write.read_text(), name, block))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

# SPDX-License-Identifier: Apache-2.0
"""How often findings name what is wrong with small real jobs, and whether the gains they state come true.

    python bank.py --out FOLDER [--captures 3] [--disease NAME ...]

Captures every disease of job.py sick and healed, in turn, into FOLDER/DISEASE/FORM-NUMBER, and prints a table
of what `cclbench diagnose` says of them.  What FOLDER holds already is not captured again: a run can be
resumed, and the same captures can be scored by another release.

- true gain: what the mean step of the healed captures is shorter than that of the sick ones, by the job's own
  clock, under the profiler and (in parentheses) without it.  Below 3 % nothing is wrong here: not counted.
- first, among three: sick captures whose first finding, or one of the first three, is a right one.
- all-clears: sick captures in which no finding gains 3 %.
- within: sick captures whose true gain, of which the healed captures leave a range, meets the bounds of the
  right findings together, give or take 1 % of the step; of those whose right findings state a gain.
- healed: the most that a finding gains in a healed capture, of those that the sick ones lack or that are
  right about the sick ones.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Final

import cclbench
from cclbench.findings.finding import Found

sys.path.append(str(Path(__file__).resolve().parent))
from job import DISEASES, Disease, capture

RANKS, STEPS = 2, 12
NOTHING: Final = 0.03
"""Share of the step below which there is nothing to gain."""
SLACK: Final = 0.01
FORMS: Final = ("sick", "healed")


class Capture:
    """One job's mean steps, in seconds, and what is found in its traces."""

    def __init__(self, folder: Path, store: Path, disease: Disease) -> None:
        seconds = json.loads((folder / "seconds.json").read_text())
        self.profiled_s = fmean(seconds["profiled"])
        self.unprofiled_s = fmean(seconds["unprofiled"]) if seconds["unprofiled"] else None
        self.findings = cclbench.diagnose(cclbench.run(folder / "traces", store=store)).findings
        self.right = [is_right(one, disease) for one in self.findings]


def is_right(found: Found, disease: Disease) -> bool:
    """Whether a finding names the disease, and the rank that has it."""
    ranks = found.ranks or [found.worst_rank]
    return found.name in disease.right and (disease.rank is None or disease.rank in ranks)


def holds(sick: Capture, healed: list[Capture]) -> bool | None:
    """Whether what the step gains lies within the bounds stated; None where none are."""
    right = [one for one, is_one in zip(sick.findings, sick.right, strict=True) if is_one]
    stated = [one.gain_s for one in right if one.gain_s is not None]
    if not stated:
        return None
    least, most = (sum(bounds[side] for bounds in stated) for side in (0, 1))
    gained = [sick.profiled_s - one.profiled_s for one in healed]
    slack = SLACK * sick.profiled_s
    return least - slack <= max(gained) and min(gained) <= most + slack


def beyond_both(sick: list[Capture], healed: list[Capture], disease: Disease) -> tuple[float, str]:
    """The most that a finding gains in a healed capture that is not in the sick ones, too; and its name."""
    common = {one.name for capture in sick for one in capture.findings} - set(disease.right)
    found = [one for capture in healed for one in capture.findings if one.name not in common]
    return max(((one.gain_share or 0.0, one.name) for one in found), default=(0.0, ""))


def share(sick: list[float | None], healed: list[float | None]) -> float | None:
    """What the mean sick step gains, of itself."""
    ill, well = ([s for s in seconds if s is not None] for seconds in (sick, healed))
    return 1 - fmean(well) / fmean(ill) if ill and well else None


def score(name: str, sick: list[Capture], healed: list[Capture]) -> tuple[str, Counter[str]]:
    """A disease's row of the table, and its counts."""
    disease, count = DISEASES[name], Counter[str]()
    gain = share([one.profiled_s for one in sick], [one.profiled_s for one in healed]) or 0.0
    without = share([one.unprofiled_s for one in sick], [one.unprofiled_s for one in healed])
    for one in sick:
        within = holds(one, healed)
        clear = not any(one.right) and all((found.gain_share or 0.0) < NOTHING for found in one.findings)
        told = {"first": any(one.right[:1]), "three": any(one.right[:3]), "clear": clear}
        told |= {"sick": True, "checked": within is not None, "within": within is True}
        count.update(word for word, holds_true in told.items() if holds_true)
    most, what = beyond_both(sick, healed, disease)
    count.update(["healed", "quiet"] if most <= NOTHING else ["healed"])
    right = " or ".join(f"`{word}`" for word in disease.right) or "no finding is about it"
    of = "" if disease.rank is None else f" of rank {disease.rank}"
    shares = f"{gain:.1%}" + ("" if without is None else f" ({without:.1%})")
    cells = [
        name.replace("_", " "),
        right + of,
        shares,
        *(str(count[k]) for k in ("first", "three", "clear")),
    ]
    cells += [f"{count['within']} of {count['checked']}", f"{most:.1%} `{what}`" if what else "nothing"]
    return "| " + " | ".join(cells).replace("%", " %") + " |", count if gain >= NOTHING else Counter()


def said(one: Capture) -> str:
    """A capture's step and its findings, on a line."""
    listed = [
        f"{found.name}{found.ranks or ''} "
        + (f"{found.gain_s[0] * 1e3:.0f}-{found.gain_s[1] * 1e3:.0f} ms" if found.gain_s else "no gain")
        for found in one.findings
    ]
    return f"{one.profiled_s * 1e3:.0f} ms: " + (", ".join(listed) or "nothing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the captures, made if missing")
    parser.add_argument("--captures", type=int, default=3, help="captures of each form")
    parser.add_argument("--disease", choices=DISEASES, action="append", help="only this one; repeatable")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is found in each capture")
    asked = parser.parse_args()
    names = asked.disease or list(DISEASES)
    for number in range(asked.captures):
        for name in names:
            for form in FORMS:
                folder = asked.out / name / f"{form}-{number}"
                if not (folder / "seconds.json").exists():
                    load = os.getloadavg()[0]
                    capture(getattr(DISEASES[name], form), RANKS, STEPS, folder)
                    print(f"{folder}: load {load:.1f} to {os.getloadavg()[0]:.1f}", file=sys.stderr)
    counts, rows = Counter[str](), []
    for name in names:
        folders = {form: [asked.out / name / f"{form}-{n}" for n in range(asked.captures)] for form in FORMS}
        captures = {
            form: [Capture(folder, asked.out / "store", DISEASES[name]) for folder in folders[form]]
            for form in FORMS
        }
        row, count = score(name, captures["sick"], captures["healed"])
        if asked.verbose:
            for form in FORMS:
                print(*(f"{name} {form}: {said(one)}" for one in captures[form]), sep="\n", file=sys.stderr)
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
        counts += count
    heads = ("disease", "right", "true gain", "first", "among three", "all-clears", "within", "healed")
    print(
        f"| {' | '.join(heads)} |", "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |", *rows, sep="\n"
    )
    print(
        f"\nof {counts['sick']} sick captures: first {counts['first']}, among three {counts['three']},"
        f" all-clears {counts['clear']}; within the bounds {counts['within']} of {counts['checked']};"
        f" healed of {counts['healed']} diseases: nothing new in {counts['quiet']}"
    )


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Score findings on small real jobs with a known cause of slowness: correct names, and correct gains.

    python bank.py --out FOLDER [--captures 3] [--disease NAME ...]
    python bank.py --gpu --out FOLDER

Captures every disease of job.py with the cause (sick) and without it (healed), alternately, into
FOLDER/DISEASE/FORM-NUMBER, and prints a table of the diagnoses.  Existing captures are kept, so that a run
can be resumed and the same captures can be scored by another release.  With `--gpu` it only scores the
captures of gpu_job.py in FOLDER.  Other load on the machine would distort the gains.  A capture therefore
begins when each core does a fixed piece of work in at most 10 % more than the least CPU time measured, and is
repeated if a core does not afterwards, or if other programs took more than 3 % of the cores.

- true gain: by how much the mean step of the healed captures is shorter than that of the sick ones, by the
  job's own clock, of the steps that are diagnosed, under the profiler and (in parentheses) without its mean
  overhead.  A disease counts if that is at least 3
  % and more than captures differ by chance.
- chance: the standard deviation of the logarithm of the mean steps of captures of one job, pooled over
  diseases and forms.
- The gain of a finding that states one without the profiler is compared with the clock without it.
- stated: the bounds of the correct finding; of several, those of the replay without all of them; means over
  the sick captures.
- first, among three: sick captures whose first finding, or one of the first three, is correct, but for
  findings by which the healed form loses at least half as much: both forms have their cause.  In parentheses,
  the first of all.
- all-clears: sick captures in which no finding gains 3 %.
- within: of the sick captures whose correct findings state a gain, those in which the 95 % interval of the
  true gain (the capture's mean step minus that of the healed ones) overlaps the stated bounds, ± 1 % of the
  step.
- healed: the largest gain of a finding in the median of the healed captures that the sick ones do not have,
  or the part of it for what they lose more by it than the sick ones; in parentheses the largest in a single
  one.  For a correct finding, the sick captures have what they state
  beyond the true gain; if it is about kernels, also for other findings about kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from itertools import repeat
from math import inf, log
from pathlib import Path
from statistics import fmean, median
from typing import Final

from scipy.special import stdtrit

import cclbench
from cclbench.findings.case import Case
from cclbench.findings.finding import FINDINGS, Finding
from cclbench.findings.gains import ReplayGains, join_settings
from cclbench.machine import machine_of
from cclbench.record.metric_name import metric_name
from cclbench.record.results import Results

sys.path.append(str(Path(__file__).resolve().parent))
import gpu_job
from job import DISEASES, Disease, Switches, capture

RANKS, STEPS = 2, 12
NOTHING: Final = 0.03
"""Share of the step below which a gain does not count."""
SLACK: Final = 0.01
_MOST: Final = 0.5
FORMS: Final = ("sick", "healed")
OTHERS: Final = 0.03
"""Share of the cores' time that other programs may take during a capture."""
SLOWER: Final = 0.1
"""Share by which a core may take longer for the fixed piece of work."""
ATTEMPTS: Final = 10


class Capture:
    """One capture: mean steps of the job, s, findings in its traces, and the gain of the correct ones."""

    def __init__(self, folder: Path, store: Path, disease: Disease) -> None:
        seconds = json.loads((folder / "seconds.json").read_text())
        run = cclbench.run(folder / "traces", store=store)
        figures = run.figures
        profiled = seconds["profiled"]
        self.profiled_s = (
            self._diagnosed_mean(profiled, figures) if seconds["unprofiled"] else fmean(profiled)
        )
        unprofiled = seconds["unprofiled"]
        overhead_s = fmean(profiled) - fmean(unprofiled) if unprofiled else 0.0
        self.unprofiled_s = self.profiled_s - overhead_s if unprofiled else None
        self.findings = run.findings
        self.lost_s = Counter[str]()
        """Lost time of a step by finding, also of those too small to be listed."""
        case = Case(figures, run.record, machine_of(run))
        for name in FINDINGS:
            for one in FINDINGS.get(name).detect(case):
                self.lost_s[name] += one.lost_s or 0.0
        self.right = [is_right(one, disease) for one in self.findings]
        right = [one for one, is_one in zip(self.findings, self.right, strict=True) if is_one]
        self.is_profiled = not any(one.recorded_gain_s for one in right) or self.unprofiled_s is None
        self.gain_s = self._joint_gain(run)

    @staticmethod
    def _diagnosed_mean(profiled: list[float], figures: Results) -> float:
        """The mean of the steps that are diagnosed, by the job's clock: the first or last of those in the
        trace is incomplete on the device; of as many successive ones, those whose mean is nearest."""
        count = len(figures.scope.steps)
        means = [fmean(profiled[first : first + count]) for first in range(len(profiled) - count + 1)]
        step = figures.run[metric_name("time.step")].value
        return min(means, key=lambda mean: abs(mean - (step or 0.0)))

    def _joint_gain(self, run: cclbench.Run) -> tuple[float, float] | None:
        """Bounds of the gain if the causes of all correct findings are removed, s."""
        right = [one for one, is_one in zip(self.findings, self.right, strict=True) if is_one]
        valued = [one for one in right if one.gain_s is not None]
        if len(valued) < 2:
            return valued[0].gain_s if valued else None
        gains = ReplayGains(run, run.figures.scope)
        surely = [one.whatif if one.surely is None else one.surely for one in valued]
        least, most = (
            gains.gain_without(reduce(join_settings, settings, ()))
            for settings in (surely, [one.whatif for one in valued])
        )
        if isinstance(least, str) or isinstance(most, str):
            raise TypeError(f"the joint gain of correct findings is unknown: {least}, {most}")
        return min(least.seconds[0], most.seconds[0]), most.seconds[1]

    def lacking_share(self, name: str, others: list[Capture]) -> float:
        """The share of what the capture loses by a finding that the others do not lose, on average."""
        own_s, others_s = self.lost_s[name], fmean(one.lost_s[name] for one in others)
        return max(1 - others_s / own_s, 0.0) if own_s else 1.0

    def first_rightly(self, first: int, healed: list[Capture]) -> bool:
        """Whether a correct finding is among the first, but for those of which the healed job has most."""
        own = [
            is_one
            for found, is_one in zip(self.findings, self.right, strict=True)
            if is_one or self.lacking_share(found.name, healed) > _MOST
        ]
        return any(own[:first])

    def step_s(self, *, is_profiled: bool) -> float:
        """Mean step under the profiler, or without it where that was timed, s."""
        return self.profiled_s if is_profiled or self.unprofiled_s is None else self.unprofiled_s


@dataclass(frozen=True)
class Chance:
    """Spread of the mean steps of captures of one job: the standard deviation of their logarithms."""

    spread: float
    freedom: int

    @classmethod
    def pooled(cls, captures_by_job: list[list[Capture]]) -> Chance:
        """Pooled over lists of captures of one job each."""
        logs = [[log(one.profiled_s) for one in captures] for captures in captures_by_job]
        freedom = sum(len(own) - 1 for own in logs)
        squares = sum((value - fmean(own)) ** 2 for own in logs for value in own)
        return cls((squares / freedom) ** 0.5, freedom)

    def half_interval(self, *steps: tuple[float, float]) -> float:
        """Half of the 95 % interval of a sum or difference of mean steps, each given as its seconds and its
        number of captures."""
        return float(stdtrit(self.freedom, 0.975)) * self.spread * sum(s**2 / n for s, n in steps) ** 0.5


def is_right(found: Finding, disease: Disease) -> bool:
    """Whether a finding names the disease, and the rank with it."""
    ranks = found.ranks or [found.worst_rank]
    return found.name in disease.right and (disease.rank is None or disease.rank in ranks)


def gain_holds(sick: Capture, healed: list[Capture], chance: Chance) -> bool | None:
    """Whether the true gain lies within the stated bounds; None if no bounds are stated.

    The capture's own step is exact; the step without the disease is as uncertain as another healed capture.
    """
    if sick.gain_s is None:
        return None
    sick_s = sick.step_s(is_profiled=sick.is_profiled)
    healed_s = fmean(one.step_s(is_profiled=sick.is_profiled) for one in healed)
    slack = SLACK * sick_s + chance.half_interval((healed_s, 1), (healed_s, len(healed)))
    return sick.gain_s[0] - slack <= sick_s - healed_s <= sick.gain_s[1] + slack


def new_gains(sick: list[Capture], healed: list[Capture], disease: Disease) -> list[dict[str, float]]:
    """Upper bounds of the gains in each healed capture, by finding, beyond those of the sick captures."""
    of_sick = {one.name for capture in sick for one in capture.findings}
    common = of_sick - set(disease.right)
    if "small_messages" in of_sick:  # its transfers are also exposed, and listed once
        common.add("exposed_communication")
    stated = [one.gain_s[1] for one in sick if one.gain_s is not None]
    is_profiled = all(one.is_profiled for one in sick)
    sick_s, healed_s = (
        fmean(one.step_s(is_profiled=is_profiled) for one in captures) for captures in (sick, healed)
    )
    true_s = sick_s - healed_s
    of_kernels = all(
        not found.host_causes
        for one in sick
        for found, is_one in zip(one.findings, one.right, strict=True)
        if is_one
    )
    excess_s = max(fmean(stated) - true_s, 0.0) if stated else 0.0
    new = []
    for one in healed:
        gains = {
            each.name: each.gain_s[1]
            / one.step_s(is_profiled=each.recorded_gain_s is None)
            * (1.0 if each.name in disease.right else one.lacking_share(each.name, sick))
            for each in one.findings
            if each.gain_s is not None and each.name not in common
        }
        same_work = {each.name for each in one.findings if not each.host_causes} if of_kernels else set()
        for name in gains.keys() & {*disease.right, *same_work}:
            gains[name] = max(gains[name] - excess_s / one.step_s(is_profiled=is_profiled), 0.0)
        new.append(gains)
    return new


def mean_gain_share(sick: list[float | None], healed: list[float | None]) -> float | None:
    """Gain of the mean sick step, as a share of it."""
    sick_s, healed_s = ([s for s in seconds if s is not None] for seconds in (sick, healed))
    return 1 - fmean(healed_s) / fmean(sick_s) if sick_s and healed_s else None


def exceeds_chance(sick: list[Capture], healed: list[Capture], chance: Chance) -> bool:
    """Whether the cost of the disease is more than chance."""
    sick_s, healed_s = (fmean(one.profiled_s for one in captures) for captures in (sick, healed))
    interval = chance.half_interval((sick_s, len(sick)), (healed_s, len(healed)))
    return sick_s - healed_s > max(NOTHING * sick_s, interval)


def score(
    name: str, disease: Disease, sick: list[Capture], healed: list[Capture], chance: Chance
) -> tuple[str, Counter[str]]:
    """A disease's row of the table, and its counts."""
    count = Counter[str]()
    cost = mean_gain_share([one.profiled_s for one in sick], [one.profiled_s for one in healed]) or 0.0
    without = mean_gain_share([one.unprofiled_s for one in sick], [one.unprofiled_s for one in healed])
    for one in sick:
        within = gain_holds(one, healed, chance)
        clear = not any(one.right) and all((found.gain_share or 0.0) < NOTHING for found in one.findings)
        flags = {
            "first": one.first_rightly(1, healed),
            "three": one.first_rightly(3, healed),
            "of all": any(one.right[:1]),
            "clear": clear,
        }
        flags |= {"sick": True, "checked": within is not None, "within": within is True}
        count.update(word for word, holds_true in flags.items() if holds_true)
    new = new_gains(sick, healed, disease)
    most, what = max(((gain, name) for own in new for name, gain in own.items()), default=(0.0, ""))
    middle = max((median(own.get(name, 0.0) for own in new) for name in set().union(*new)), default=0.0)
    count.update(["healed"] + ["quiet"] * (middle <= NOTHING))
    count["loud"] = sum(any(gain > NOTHING for gain in own.values()) for own in new)
    right = " or ".join(f"`{word}`" for word in disease.right) or "no finding is about it"
    rank = "" if disease.rank is None else f" of rank {disease.rank}"
    bounds = [
        [s / one.step_s(is_profiled=one.is_profiled) for s in one.gain_s]
        for one in sick
        if one.gain_s is not None
    ]
    stated = " to ".join(f"{fmean(side):.1%}" for side in zip(*bounds, strict=True)) or "nothing"
    cells = [
        name.replace("_", " "),
        right + rank,
        f"{cost:.1%}" + ("" if without is None else f" ({without:.1%})"),
        stated,
        *(str(count[word]) for word in ("first", "three", "clear")),
        f"{count['within']} of {count['checked']}",
        f"{middle:.1%} ({most:.1%} `{what}`)" if what else "nothing",
    ]
    row = "| " + " | ".join(cells).replace("%", " %") + " |"
    return row, count if exceeds_chance(sick, healed, chance) else Counter()


class Cores:
    """Speed of this process's cores, by the CPU time of each for a fixed piece of work."""

    def __init__(self) -> None:
        self._least_s = inf

    def slowness(self) -> float:
        """Share by which the slowest core exceeds the least time measured."""
        cores = os.sched_getaffinity(0)
        took_s = [self._work_s(core) for core in cores]
        os.sched_setaffinity(0, cores)
        self._least_s = min(self._least_s, *took_s)
        return max(took_s) / self._least_s - 1

    @staticmethod
    def _work_s(core: int) -> float:
        """Median CPU time of some repetitions on a core, s."""
        os.sched_setaffinity(0, {core})
        took_s = []
        for _ in range(25):
            began = time.process_time()
            deque(repeat(None, 1_000_000), 0)
            took_s.append(time.process_time() - began)
        return median(took_s)


def capture_all(names: list[str], captures: int, out: Path) -> None:
    """Capture every disease in both forms, except for captures in the folder."""
    cores = Cores()
    for number in range(captures):
        for name in names:
            for form in FORMS:
                folder = out / name / f"{form}-{number}"
                if not (folder / "seconds.json").exists():
                    capture_alone(getattr(DISEASES[name], form), folder, cores)


def capture_alone(form: Switches, folder: Path, cores: Cores) -> None:
    """Capture a job while nothing else runs and all cores are fast; repeat it otherwise."""
    for attempt in range(1, ATTEMPTS + 1):
        while cores.slowness() > SLOWER:
            time.sleep(0.5)
        used = _used_by_others(partial(capture, form, RANKS, STEPS, folder))
        slowness = cores.slowness()
        if used <= OTHERS and slowness <= SLOWER:
            return
        print(
            f"{folder}, attempt {attempt}: others took {used:.1%}, a core was {slowness:.1%} slower",
            file=sys.stderr,
        )
        if attempt < ATTEMPTS:
            shutil.rmtree(folder)


def _used_by_others(work: Callable[[], None]) -> float:
    """Share of the cores' time that other programs and virtual machines take during `work`."""
    begun, own = _ticks(), sum(os.times()[:4])
    work()
    busy, total = (now - then for now, then in zip(_ticks(), begun, strict=True))
    own = (sum(os.times()[:4]) - own) * os.sysconf("SC_CLK_TCK")
    return max(busy - own, 0.0) / total


def _ticks() -> tuple[int, int]:
    """Busy ticks and all ticks of all cores since boot."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def capture_summary(one: Capture) -> str:
    """One line with a capture's step and findings."""
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
    parser.add_argument("--disease", action="append", help="only this one; repeatable")
    parser.add_argument("--gpu", action="store_true", help="score the captures of gpu_job.py that are there")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the findings of each capture")
    asked = parser.parse_args()
    diseases = gpu_job.DISEASES if asked.gpu else DISEASES
    names = asked.disease or list(diseases)
    if asked.gpu:
        names = [name for name in names if all(any(asked.out.glob(f"{name}/{form}-*")) for form in FORMS)]
    else:
        capture_all(names, asked.captures, asked.out)
    captures = {
        (name, form): [
            Capture(path.parent, asked.out / "store", diseases[name])
            for path in sorted((asked.out / name).glob(f"{form}-*/seconds.json"))
        ]
        for name in names
        for form in FORMS
    }
    chance = Chance.pooled(list(captures.values()))
    counts, rows = Counter[str](), []
    for name in names:
        row, count = score(name, diseases[name], *(captures[name, form] for form in FORMS), chance)
        if asked.verbose:
            for form in FORMS:
                print(
                    *(f"{name} {form}: {capture_summary(one)}" for one in captures[name, form]),
                    sep="\n",
                    file=sys.stderr,
                )
        rows.append(row)
        counts += count
    heads = ("disease", "right", "true gain", "stated", "first", "among three", "all-clears", "within")
    print(f"| {' | '.join(heads)} | healed |", f"| --- | --- |{' ---: |' * 6} --- |", *rows, sep="\n")
    print(
        f"\nof {counts['sick']} sick captures: first {counts['first']}"
        f" ({counts['of all']} of all findings), among three {counts['three']},"
        f" all-clears {counts['clear']}; within the bounds {counts['within']} of {counts['checked']};"
        f" healed: nothing new above {NOTHING:.0%} in the median of a disease in {counts['quiet']} of"
        f" {counts['healed']}, in {counts['loud']} single captures something;"
        f" captures of one job differ by {chance.spread:.1%}"
    )


if __name__ == "__main__":
    main()

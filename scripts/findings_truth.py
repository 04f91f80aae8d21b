# SPDX-License-Identifier: Apache-2.0
"""How often findings name what was planted in simulated jobs, and whether their gains hold.

    python scripts/findings_truth.py --one 500 --two 200 --healthy 200 [--seed S] [--jobs N]

Each job is simulated, written as Kineto traces, and diagnosed.  Of one planted cause the first finding has to
name it, of two the first three both; a healthy job may have no finding that gains more than 5 % of the step;
and what the step gains in a simulation without the cause has to lie within the gain that is stated.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import combinations, cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import cclbench
from cclbench.findings.diagnosis import diagnosis
from cclbench.findings.finding import Found

HEALTHY: Final = 0.05
ROUNDING: Final = 0.002
"""Share of the step by which a gain may miss its bounds: the simulated jitter, drawn anew."""


def _synthetic(module: str) -> Any:
    tests = str(Path(__file__).resolve().parents[1] / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    return importlib.import_module(module)


def diagnosed(job: Any) -> list[Found]:
    """The findings of a simulated job."""
    with TemporaryDirectory() as folder:
        _synthetic("synthetic").write(job.simulate(), Path(folder) / "traces")
        run = cclbench.run(Path(folder) / "traces", store=Path(folder) / "store")
        return diagnosis(run).findings


def tried(seed: str, case: tuple[int, tuple[str, ...]]) -> tuple[tuple[str, ...], bool, bool | None, str]:
    """The causes planted, whether they are named, whether the gain holds, and what was found."""
    number, causes = case
    diseases = _synthetic("synthetic.diseases")
    job = diseases.sick(diseases.chance(f"{seed}/{number}/{causes}"), *causes)
    found = diagnosed(job)
    said = "; ".join(f"{one.name} {one.gain_share or 0:.1%}" for one in found[:4])
    if not causes:
        return causes, all((one.gain_share or 0.0) <= HEALTHY for one in found), None, said
    first = {one.name for one in found[: 1 if len(causes) == 1 else 3]}
    holds = None
    if len(causes) == 1 and job.healed is not None:
        own = [one for one in found if one.name == job.planted[0] and one.gain_s is not None]
        if own:
            whole = job.step_ns()
            gained, slack = (whole - job.healed.step_ns()) / 1e9, ROUNDING * whole / 1e9
            least, most = (sum(one.gain_s[side] for one in own) for side in (0, 1))
            holds = least - slack <= gained <= most + slack
            shares = (f"{seconds * 1e9 / whole:.1%}" for seconds in (gained, least, most))
            said += " (gains {}, stated {} to {})".format(*shares)
    return causes, set(job.planted) <= first, holds, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, jobs in (("--one", 500), ("--two", 200), ("--healthy", 200)):
        parser.add_argument(option, type=int, default=jobs)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true", help="say what was found instead")
    asked = parser.parse_args()
    diseases = _synthetic("synthetic.diseases")
    pairs = [pair for pair in combinations(diseases.DISEASES, 2) if diseases.go_together(*pair)]
    diseases.chance(asked.seed).shuffle(pairs)
    cases: list[tuple[str, ...]] = [
        *islice(cycle([(name,) for name in diseases.DISEASES]), asked.one),
        *islice(cycle(pairs), asked.two),
        *[()] * asked.healthy,
    ]
    rows: dict[str, Counter[str]] = {}
    with ProcessPoolExecutor(asked.jobs) as pool:
        for causes, named, holds, said in pool.map(partial(tried, asked.seed), enumerate(cases), chunksize=4):
            row = rows.setdefault(" and ".join(causes) if len(causes) < 2 else "two causes", Counter())
            row.update({"jobs": 1, "named": named, "gains": holds is not None, "hold": bool(holds)})
            if asked.verbose and not (named and holds is not False):
                print(f"{', '.join(causes) or 'healthy'}: {said}")
    print("| planted | jobs | named | gains checked | within the bounds |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for planted, row in rows.items():
        print(f"| {planted or 'nothing'} | {row['jobs']} | {row['named']} | {row['gains']} | {row['hold']} |")


if __name__ == "__main__":
    main()

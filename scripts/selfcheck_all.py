# SPDX-License-Identifier: Apache-2.0
"""Prints how many checks of `cclbench selfcheck` hold, over sources and simulated jobs, as Markdown.

    python scripts/selfcheck_all.py [SOURCE ...] [--simulated JOBS] [--seed SEED] [--processes N]

SOURCE is what `cclbench selfcheck` takes; of a folder that holds several sources give each, such as
`FOLDER/*/*`: what is none is left out.  Simulated jobs are those of an exam (`cclbench selftest`): all
causes in turn, then equal and healthy ones.  docs/reliability.md shows what it prints.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from cclbench.ground.errors import InputError
from cclbench.selfcheck import check_source
from cclbench.selfcheck.outcome import SelfcheckResult
from cclbench.selftest.exam import ExamItem, chosen_causes, draw_items, simulate_item
from cclbench.selftest.traces import write_traces


def check(source: Path | ExamItem) -> tuple[str, SelfcheckResult | None]:
    """The checks of a source or of a simulated job; none of what is no source of traces."""
    if isinstance(source, ExamItem):
        job = simulate_item(source)
        with TemporaryDirectory() as folder:
            write_traces(job.planted.with_cause, job.truth.histories, Path(folder) / "traces")
            return f"{source.cause or source.kind} {source.seed}", check_source(Path(folder) / "traces")
    try:
        return str(source), check_source(source)
    except InputError:
        return str(source), None


def simulated(jobs: int, seed: int) -> list[ExamItem]:
    """So many jobs of an exam: causes in turn, and of every 10 one of equal ranks and a healthy one."""
    others = jobs // 10
    causes = chosen_causes(["all"])
    planted = draw_items(seed, -(-jobs // len(causes)), causes, 0, 0)
    in_turn = sorted(planted, key=lambda item: item.seed % 1000)
    return [*in_turn[: jobs - 2 * others], *draw_items(seed, 0, (), others, others)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path, nargs="*", help="what `cclbench selfcheck` takes")
    parser.add_argument("--simulated", type=int, default=0, help="simulated jobs besides")
    parser.add_argument("--seed", type=int, default=0, help="of those")
    parser.add_argument("--processes", type=int, default=2, help="that work side by side")
    asked = parser.parse_args()
    tasks: list[Path | ExamItem] = [*asked.sources, *simulated(asked.simulated, asked.seed)]
    holding, broken, figures = Counter[str](), Counter[str](), Counter[str]()
    order = dict[str, None]()
    for name, found in _checked(tasks, asked.processes):
        for one in () if found is None else found.outcomes:
            order[one.check] = None
            figures[one.check] += one.compared
            holding[one.check] += one.status == "holds"
            broken[one.check] += one.status == "broken"
            if one.status == "broken":
                print(f"{name}: {one.check}: {'; '.join(one.differences[:3])}", file=sys.stderr, flush=True)
    print("| check | sources | hold | figures compared |", "| --- | ---: | ---: | ---: |", sep="\n")
    for check_name in order:
        whole = holding[check_name] + broken[check_name]
        print(f"| {check_name} | {whole} | {holding[check_name]} | {figures[check_name]:,} |")


def _checked(tasks: list[Path | ExamItem], processes: int) -> Iterator[tuple[str, SelfcheckResult | None]]:
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(check, tasks)


if __name__ == "__main__":
    main()

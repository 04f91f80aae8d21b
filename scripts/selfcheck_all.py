# SPDX-License-Identifier: Apache-2.0
"""Print the number of checks of `cclbench selfcheck` that hold, over sources and simulated jobs, in Markdown.

    python scripts/selfcheck_all.py [SOURCE ...] [--simulated JOBS] [--seed SEED] [--processes N]

SOURCE is any source of `cclbench selfcheck`; a folder of several sources is given as `FOLDER/*/*`.  Other
files are skipped.  Simulated jobs are those of an exam (`cclbench selftest`): all causes in turn, then jobs
of equal ranks and healthy ones.  docs/reliability.md shows the output.
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
    """Results of a source or of a simulated job; None if it is not a source of traces."""
    if isinstance(source, ExamItem):
        job = simulate_item(source)
        with TemporaryDirectory() as folder:
            write_traces(job.planted.with_cause, job.truth.histories, Path(folder) / "traces")
            return f"{source.cause or source.kind} {source.seed}", check_source(Path(folder) / "traces")
    try:
        return str(source), check_source(source)
    except InputError:
        return str(source), None


def draw_jobs(jobs: int, seed: int) -> list[ExamItem]:
    """Jobs of an exam: causes in turn; of every 10 jobs one has equal ranks and one is healthy."""
    others = jobs // 10
    causes = chosen_causes(["all"])
    planted = draw_items(seed, -(-jobs // len(causes)), causes, 0, 0)
    in_turn = sorted(planted, key=lambda item: item.seed % 1000)
    return [*in_turn[: jobs - 2 * others], *draw_items(seed, 0, (), others, others)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path, nargs="*", help="sources of traces")
    parser.add_argument("--simulated", type=int, default=0, help="number of simulated jobs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated jobs")
    parser.add_argument("--processes", type=int, default=2, help="number of processes")
    asked = parser.parse_args()
    tasks: list[Path | ExamItem] = [*asked.sources, *draw_jobs(asked.simulated, asked.seed)]
    holding, broken, figures = Counter[str](), Counter[str](), Counter[str]()
    order = dict[str, None]()
    for name, result in _check_all(tasks, asked.processes):
        for outcome in () if result is None else result.outcomes:
            order[outcome.check] = None
            figures[outcome.check] += outcome.compared
            holding[outcome.check] += outcome.status == "holds"
            broken[outcome.check] += outcome.status == "broken"
            if outcome.status == "broken":
                differences = "; ".join(outcome.differences[:3])
                print(f"{name}: {outcome.check}: {differences}", file=sys.stderr, flush=True)
    print("| check | sources | hold | figures compared |", "| --- | ---: | ---: | ---: |", sep="\n")
    for check_name in order:
        sources = holding[check_name] + broken[check_name]
        print(f"| {check_name} | {sources} | {holding[check_name]} | {figures[check_name]:,} |")


def _check_all(tasks: list[Path | ExamItem], processes: int) -> Iterator[tuple[str, SelfcheckResult | None]]:
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(check, tasks)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Measure the size and the duration of a report: `report.py --ranks 64 --steps 1000`.

Writes a run of that size to a temporary store (random kernels, one all-reduce per step, consistent result
rows), writes its report, and loads the page in Chromium if it is installed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.schema import COLLECTIVES, EVENTS, GROUPS, OPERATORS, RESULTS, STEPS
from cclbench.present.html import write_page
from cclbench.present.page import run_page
from cclbench.record.facts import TraceFacts
from cclbench.record.files import EventFile, write_table
from cclbench.record.inventory import write_manifest
from cclbench.record.manifest import Collectives, File, Manifest, RankEntry, Steps, Unclassified
from cclbench.record.results import Results
from cclbench.record.run import Run

CATEGORIES = ("gemm", "attention", "elementwise", "normalization", "reduction")
NAMES = [f"void kernel_{n}<float, {n % 7}, Layout<{n}>>(Params)" for n in range(200)]
TRANSFER_NS = 400_000


def main() -> None:
    """Print the size of the page and the seconds to write and to load it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--kernels", type=int, default=50, help="kernels of each rank and step")
    parser.add_argument("--keep", type=Path, help="write the page to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        subject = make(Path(folder) / "run", given.ranks, given.steps, given.kernels)
        made = time.perf_counter()
        page = given.keep or Path(folder) / "report.html"
        write_page(run_page(subject), page)
        done = time.perf_counter()
        print(
            f"{given.ranks} ranks × {given.steps:,} steps, {len(subject.results.rows):,} rows of the run,"
            f" {given.ranks * given.steps * (given.kernels + 1):,} kernels (made in {made - begin:.1f} s):"
            f" written in {done - made:.2f} s, {page.stat().st_size / 1e6:.2f} MB"
        )
        time_loading(page)


def time_loading(page: Path) -> None:
    """Print the seconds that Chromium needs to load the page and to respond to a click."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("no Chromium: the page was not loaded")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        begin = time.perf_counter()
        tab.goto(page.resolve().as_uri())
        done = time.perf_counter()
        tab.locator("#kernel-table th button").first.click()
        print(f"loaded in {done - begin:.2f} s, sorted in {time.perf_counter() - done:.2f} s")
        browser.close()


def make(path: Path, ranks: int, steps: int, kernels: int) -> ComparisonSubject:
    """Write a run and its result rows."""
    random = np.random.default_rng(1)
    durations = random.integers(5_000, 60_000, (ranks, steps, kernels))
    durations[ranks // 3] += 2_000  # a straggler
    work = durations.sum(axis=2)
    step_ns = work.max(axis=0) + TRANSFER_NS
    begin = np.cumsum(step_ns) - step_ns
    for rank in range(ranks):
        _write(path, rank, random, durations[rank], begin, step_ns)
    write_table(path / "groups.parquet", GROUPS.empty_table())
    write_manifest(_manifest(ranks, steps), path)
    return ComparisonSubject("A", Run(path), Results(_results(work, step_ns)), None)


def _write(
    path: Path,
    rank: int,
    random: np.random.Generator,
    durations: np.ndarray,
    begin: np.ndarray,
    step: np.ndarray,
) -> None:
    steps, kernels = durations.shape
    ends = begin[:, None] + np.cumsum(durations, axis=1)
    start = np.concatenate([ends - durations, ends[:, -1:]], axis=1).ravel()
    dur = np.concatenate([durations, (begin + step)[:, None] - ends[:, -1:]], axis=1).ravel()
    which = np.concatenate(
        [random.integers(0, 200, (steps, kernels)), np.full((steps, 1), 200)], axis=1
    ).ravel()
    count = len(start)
    table = {
        "side": _words(np.zeros(count, int), ["device"]),
        "kind": _words(np.zeros(count, int), ["kernel"]),
        "category": _words(np.where(which < 200, which % 5, 5), [*CATEGORIES, "communication"]),
        "name": _words(which, [*NAMES, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"]),
        "track": pa.array(np.full(count, 7)),
        "start_ns": pa.array(start),
        "dur_ns": pa.array(dur),
        "step": pa.array(np.repeat(np.arange(steps), kernels + 1), pa.int32()),
    }
    file = EventFile(path / "events" / f"rank={rank}", "kernel", 0)
    file.write(_table(table, EVENTS, count))
    file.close()
    write_table(path / "collectives" / f"rank={rank}.parquet", COLLECTIVES.empty_table())
    write_table(path / "operators" / f"rank={rank}.parquet", OPERATORS.empty_table())
    windows = {
        "rank": pa.array(np.full(steps, rank), pa.int32()),
        "step": pa.array(np.arange(steps), pa.int32()),
        "start_ns": pa.array(begin),
        "end_ns": pa.array(begin + step),
        "source": _words(np.zeros(steps, int), ["device"]),
        "open": pa.array(np.zeros(steps, bool)),
    }
    write_table(path / "steps" / f"rank={rank}.parquet", _table(windows, STEPS, steps))


def _words(which: np.ndarray, words: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), words)


def _table(columns: dict[str, object], schema: pa.Schema, count: int) -> pa.Table:
    arrays = [
        columns[field.name].cast(field.type)  # type: ignore[attr-defined]
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _results(work: np.ndarray, step_ns: np.ndarray) -> pa.Table:
    """Result rows of the run, of ranks, and of ranks and steps, s."""
    compute, step = work / 1e9, np.broadcast_to(step_ns / 1e9, work.shape)
    wait = (work.max(axis=0) - work) / 1e9
    exposed, nothing = step - compute, np.zeros(work.shape)
    values = {
        "time.step": step,
        "time.compute_only": compute,
        "time.overlapped": nothing,
        "time.exposed_comm": exposed,
        "time.exposed_wait": wait,
        "time.exposed_transfer": exposed - wait,
        "time.exposed_unmatched": nothing,
        "time.exposed_copy": nothing,
        "time.idle": nothing,
        "compute.time": compute,
        "compute.busy": compute / step,
        "comm.time": exposed,
        "comm.fraction": exposed / step,
        "comm.wait": wait,
        "comm.transfer": exposed - wait,
        "comm.volume": np.full(work.shape, 1e8),
        "overlap.ratio": nothing,
        "overlap.efficiency": nothing,
    }
    ranks, steps = work.shape
    tables = []
    for metric, value in values.items():
        rank, number = (axis.ravel() for axis in np.indices(work.shape))
        tables.append(_rows(metric, value.ravel(), rank=rank, step=number))
        tables.append(_rows(metric, value.mean(axis=1), rank=np.arange(ranks)))
        tables.append(_rows(metric, value.mean(keepdims=True).ravel()))
    tables.append(_rows("time.step", step[0], step=np.arange(steps)))
    return pa.concat_tables(tables)


def _rows(metric: str, value: np.ndarray, **keys: np.ndarray) -> pa.Table:
    count = len(value)
    fixed = {"metric": metric, "unit": "s", "status": "ok", "provenance": "measured", "window": "steps",
             "source": "kineto"}  # fmt: skip
    columns = {name: pa.array([word]).take(pa.array(np.zeros(count, int))) for name, word in fixed.items()}
    columns |= {name: pa.array(key, pa.int32()) for name, key in keys.items()}
    columns |= {"value": pa.array(value), "version": pa.array(np.ones(count), pa.int32())}
    return _table(columns, RESULTS, count)


def _manifest(ranks: int, steps: int) -> Manifest:
    facts = TraceFacts(world_size=ranks, works_on="device", device_name="a simulated accelerator")
    entries = [
        RankEntry(
            rank=rank,
            facts=facts,
            rows={"kernel": steps},
            steps=Steps(found=steps, source="device"),
            unclassified=Unclassified(share=0.0),
            collectives=Collectives(libraries={"nccl": steps}),
            files=[File(f"rank{rank}.json", 1, "0" * 64, "kineto")],
        )
        for rank in range(ranks)
    ]
    return Manifest(run="simulated", fingerprint="", source="simulated", ranks=entries)


if __name__ == "__main__":
    main()

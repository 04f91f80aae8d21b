# SPDX-License-Identifier: Apache-2.0
"""From a source to a run: kept, whole or absent, the same however it was made; and a Run as people use it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pytest
from helpers.two_ranks import ALL_REDUCE, GEMM, complete, events, on_rank, write

import cclbench
import cclbench.formats.json_events
import cclbench.formats.kineto
from cclbench.api import ingest as ingest_run
from cclbench.engine import processes
from cclbench.engine.processes import Processes
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.schema import RESULTS
from cclbench.record.manifest import Manifest
from cclbench.record.run import Run


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the two ranks of a job."""
    for rank in (0, 1):
        write(tmp_path / "job" / f"rank{rank}.json", events(rank), **on_rank(rank))
    return tmp_path / "job"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where runs go; not there yet."""
    return tmp_path / "store"


def left(store: Path) -> list[str]:
    """What a store holds."""
    return sorted(path.name for path in store.iterdir()) if store.exists() else []


def plain(table: pa.Table) -> dict[str, list[Any]]:
    """A table's values, whatever words its dictionaries hold."""
    return table.to_pydict()  # type: ignore[no-any-return]


def files_of(run: Run) -> dict[Path, bytes]:
    """All tables of a run, as they lie on disk."""
    return {path.relative_to(run.path): path.read_bytes() for path in run.path.rglob("*.parquet")}


def account(run: Run) -> Manifest:
    """What the manifest says of the source: all but how the tables are divided into files."""
    ranks = [msgspec.structs.replace(entry, stored=[]) for entry in run.record.ranks]
    return msgspec.structs.replace(run.record, ranks=ranks, stored=[], sha256="")


def tables(run: Run) -> dict[str, dict[str, list[Any]]]:
    """All a run holds."""
    parts = {"events": run.events(), "collectives": run.collectives(), "steps": run.steps()}
    return {name: plain(part) for name, part in parts.items()}


# ----------------------------------------------------------------------------- kept or made anew


def test_an_unchanged_source_is_not_read_again(job: Path, store: Path) -> None:
    first = cclbench.run(job, store=store)
    written = {path: path.stat().st_mtime_ns for path in first.path.rglob("*.parquet")}
    manifest = (first.path / "manifest.json").stat().st_mtime_ns
    shutil.copytree(job, job.parent / "elsewhere" / "job")
    for source in (job, job.parent / "elsewhere" / "job"):
        again = ingest_run(source, store=store)
        assert again.id == first.id
    assert {path: path.stat().st_mtime_ns for path in first.path.rglob("*.parquet")} == written
    assert (first.path / "manifest.json").stat().st_mtime_ns == manifest
    assert left(store) == [first.id]


def test_a_changed_source_or_options_that_shape_the_tables_are_another_run(job: Path, store: Path) -> None:
    first = ingest_run(job, store=store)
    ids = {
        first.id,
        ingest_run(job, store=store, allow_truncated=True).id,
        ingest_run(job, store=store, step_annotation=r"ProfilerStep#(\d+)").id,
    }
    write(job / "rank1.json", events(rank=5), **on_rank(1))
    ids.add(ingest_run(job, store=store).id)
    assert len(ids) == 4
    assert left(store) == sorted(ids)
    assert len(first.collectives()) == 4  # and the first is still there


def test_metrics_of_a_run_a_source_or_nothing(job: Path, store: Path) -> None:
    first = cclbench.run(job, store=store)
    assert cclbench.metrics(first.id, store=store).rows == first.rows
    assert cclbench.metrics(job, store=store).rows == first.rows
    assert cclbench.metrics(first.id[:-1], store=store).rows == first.rows
    with pytest.raises(UsageError, match=f"did you mean {first.id}"):
        cclbench.metrics(f"{first.id}0", store=store)
    for name in cclbench.__all__:  # which keep their names after use
        assert callable(getattr(cclbench, name)), name
    assert cclbench.runs(store)[0]["source"] == str(job)


# ------------------------------------------------------------------------------- whole or absent


def test_a_killed_ingest_leaves_no_run_and_the_next_one_sweeps(job: Path, store: Path) -> None:
    stuck = (
        "import sys, time, cclbench.record.files\n"
        "cclbench.record.files.EventFile.close = lambda file: time.sleep(600)\n"
        "import cclbench.api\n"
        "cclbench.api.ingest(sys.argv[1], store=sys.argv[2])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", stuck, str(job), str(store)])
    try:
        wait_for(lambda: any(store.rglob("*.parquet")), process)
    finally:
        process.kill()
        process.wait()
    (leftover,) = left(store)
    assert leftover.startswith(".unfinished-")
    assert cclbench.runs(store) == []
    run = ingest_run(job, store=store)
    assert left(store) == [run.id]


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
    ids=["Ctrl-C", "SIGTERM"],
)
def test_an_interrupt_leaves_nothing_behind(
    tmp_path: Path, store: Path, number: signal.Signals, code: int, word: str
) -> None:
    """As Ctrl-C and job schedulers do it: all of the group get the signal, in the middle of reading."""
    traces, rows = tmp_path / "traces", events(steps=20_000)
    for rank in range(4):
        write(traces / f"rank{rank}.json", rows, distributedInfo={"rank": rank})
    command = [sys.executable, "-m", "cclbench", "ingest", str(traces), "--store", str(store), "--jobs", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        wait_for(lambda: any(store.rglob("*.parquet")), process)
        os.killpg(process.pid, number)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, word in stderr) == (code, True), stderr
    assert "Traceback" not in stderr
    assert left(store) == []
    wait_for(lambda: not running(process.pid), None)


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[Any] | None) -> None:
    """Until then; a process that ends before, or a minute, is a failure."""
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until, "did not happen"
        assert process is None or process.poll() is None, "ended before"
        time.sleep(0.005)


def running(group: int) -> list[str]:
    """Processes of a group that are not over."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True)  # noqa: S607
    return [line for line in listed.stdout.splitlines() if line.split()[0] == str(group) and "Z" not in line]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_damaged_rank_leaves_no_run(job: Path, store: Path, jobs: int) -> None:
    whole = (job / "rank1.json").read_text()
    (job / "rank1.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"rank1\.json"):
        cclbench.run(job, store=store, jobs=jobs)
    assert left(store) == []
    cut = cclbench.run(job, store=store, jobs=jobs, allow_truncated=True)
    assert [entry["truncated"] is not None for entry in cut.manifest["ranks"]] == [False, True]


# -------------------------------------------------------------------- the same, however it is made


@pytest.mark.parametrize("jobs", [2, 5])
def test_processes_give_what_one_gives(job: Path, tmp_path: Path, jobs: int) -> None:
    """Also where there are more of them than ranks, and a rank's metrics are computed in several."""
    one = cclbench.run(job, store=tmp_path / "one", jobs=1)
    two = cclbench.run(job, store=tmp_path / "two", jobs=jobs)
    assert two.rows == one.rows
    assert two.manifest == one.manifest
    for name in ("collectives", "steps"):
        assert getattr(two, name)().equals(getattr(one, name)(), check_metadata=True)
    assert two.events().equals(one.events(), check_metadata=True)
    assert files_of(two) == files_of(one)


def test_a_small_source_is_read_and_computed_in_this_process(
    job: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> None:
        raise AssertionError("a pool of processes")

    monkeypatch.setattr(processes, "ProcessPoolExecutor", none)
    assert cclbench.run(job, store=store / "small", engine=Processes(2, as_it_pays=True)).rows
    with pytest.raises(AssertionError, match="a pool"):
        cclbench.run(job, store=store / "asked", jobs=2)
    monkeypatch.setattr(processes, "SMALL_BYTES", 0)
    with pytest.raises(AssertionError, match="a pool"):
        cclbench.run(job, store=store / "large", engine=Processes(2, as_it_pays=True))


def test_a_file_in_parts_gives_what_it_gives_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "rank0.json", events(steps=50), **on_rank(0))
    whole = cclbench.run(path, store=tmp_path / "whole")
    monkeypatch.setattr(cclbench.formats.kineto, "PART_BYTES", path.stat().st_size // 5)
    parts = cclbench.run(path, store=tmp_path / "parts")
    files = sorted(path.name for path in (parts.path / "events" / "rank=0").glob("kernel-*"))
    assert files == [f"kernel-{part:03}.parquet" for part in range(5)]
    assert parts.rows == whole.rows
    assert account(parts) == account(whole)
    assert tables(parts) == tables(whole)


@pytest.mark.parametrize("place", ["before", "after", "nowhere"])
def test_a_compressed_file_gives_the_same_in_one_process_in_several_and_uncompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Its base time may be known at its end only, when most of its parts are read."""
    base = {} if place == "nowhere" else {"baseTimeNanoseconds": 1_700_000_000_000_000_000}
    document = json.loads(write(tmp_path / "rank0.json", events(steps=50), **on_rank(0)).read_text())
    rows = {"traceEvents": document.pop("traceEvents")}
    document = {**document, **base, **rows} if place == "before" else {**document, **rows, **base}
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    packed = tmp_path / "packed" / "rank0.json.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress((tmp_path / "rank0.json").read_bytes()))
    plain = cclbench.run(tmp_path / "rank0.json", store=tmp_path / "plain")
    whole = cclbench.run(packed, store=tmp_path / "whole")
    monkeypatch.setattr(cclbench.formats.kineto, "PART_BYTES", 1 << 10)
    monkeypatch.setattr(cclbench.formats.json_events, "CHUNK", 1 << 10)
    one = cclbench.run(packed, store=tmp_path / "one", jobs=1)
    two = cclbench.run(packed, store=tmp_path / "two", jobs=2)
    assert len(list((one.path / "events" / "rank=0").glob("op-*"))) > 5
    assert files_of(two) == files_of(one)
    assert not list(one.path.rglob("inflated*"))
    assert tables(one) == tables(whole) == tables(plain)
    assert one.rows == two.rows == whole.rows == plain.rows
    assert two.manifest == one.manifest
    assert account(one) == account(whole)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_damaged_compressed_file_is_refused_and_salvaged_as_a_whole_one(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    base = {"baseTimeNanoseconds": 1_700_000_000_000_000_000}
    text = write(tmp_path / "rank0.json", events(steps=50), **on_rank(0)).read_text()
    text = text.rstrip().removesuffix("}") + ", " + json.dumps(base)[1:]
    at = len(text) * 2 // 3
    packed = tmp_path / "damaged" / "rank0.json.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress((text[:at] + "\x01" + text[at + 1 :]).encode()))
    monkeypatch.setattr(cclbench.formats.json_events, "CHUNK", 1 << 10)
    with pytest.raises(InputError) as whole:
        cclbench.run(packed, store=store, jobs=jobs)
    monkeypatch.setattr(cclbench.formats.kineto, "PART_BYTES", 1 << 10)
    with pytest.raises(InputError, match="byte") as parts:
        cclbench.run(packed, store=store, jobs=jobs)
    assert str(parts.value) == str(whole.value)
    assert left(store) == []
    cut = cclbench.run(packed, store=store, jobs=jobs, allow_truncated=True)
    # The base time stands behind the damage and is found all the same.
    assert min(cut.events()["start_ns"].to_pylist()) > base["baseTimeNanoseconds"]
    assert cut.manifest["ranks"][0]["truncated"]["byte"] <= at


# --------------------------------------------------------------------- contradictions name both sides


def refused(source: Path, store: Path) -> str:
    """The message a source is refused with; nothing is left in the store."""
    with pytest.raises(InputError) as raised:
        cclbench.run(source, store=store)
    assert left(store) == []
    assert len(str(raised.value).splitlines()) <= 3
    return str(raised.value)


@pytest.mark.parametrize(
    ("name", "told", "said"),
    [
        ("rank1.json", on_rank(1, world=4), ["world of 2 ranks in rank0.json", "of 4 ranks in rank1.json"]),
        ("again/rank1.json", on_rank(1), ["again/rank1.json", "rank1.json: claims rank 1"]),
        ("rank2.json", on_rank(2), ["rank2.json: is rank 2 of a world of 2"]),
        ("rank3.json", on_rank(1), ["rank 1 by its distributedInfo but rank 3 by its file name"]),
    ],
)
def test_files_that_contradict_are_both_named(
    job: Path, store: Path, name: str, told: dict[str, Any], said: list[str]
) -> None:
    if name in ("rank2.json", "rank3.json"):
        (job / "rank1.json").unlink()
    write(job / name, events(), **told)
    message = refused(job, store)
    assert [words for words in said if words not in message] == []


def test_files_without_a_rank_are_refused_but_for_a_lone_one(tmp_path: Path, store: Path) -> None:
    assert "rank0.json: holds no rows" in refused(write(tmp_path / "rank0.json", []), store)
    first = write(tmp_path / "job" / "first.json", events())
    write(tmp_path / "job" / "second.json", events(steps=3))
    assert "2 of 2 files do not say their rank" in refused(tmp_path / "job", store)
    (entry,) = cclbench.run(first, store=store).manifest["ranks"]
    assert entry["rank"] == 0
    assert "the trace does not say its rank: taken as rank 0" in entry["notes"]


def test_a_card_that_contradicts_the_trace_is_refused(job: Path, store: Path) -> None:
    (job / "job.yaml").write_text(
        "version: 2\nid: job\ndescription: A job.\nworkload: {phase: training}\n"
        "hardware: {accelerator: generic-cpu, count: 2}\n"
        "evidence: {traces: [{path: rank1.json, format: kineto, ranks: [0]}]}\n"
    )
    message = refused(job / "job.yaml", store)
    assert "rank 1 by its distributedInfo" in message
    assert "rank 0 by its card" in message


# ----------------------------------------------------------------------------------- a Run in use


@pytest.fixture
def run(job: Path, store: Path) -> Run:
    """The two ranks, measured."""
    return cclbench.run(job, store=store)


def test_results_are_the_rows_as_a_frame(run: Run) -> None:
    frame = run.results
    assert list(frame["metric"]) == [row["metric"] for row in run.rows]
    ratio = frame[(frame["metric"] == "overlap.ratio") & frame["rank"].notna() & frame["step"].isna()]
    assert list(ratio["rank"]) == [0, 1]
    assert list(ratio["value"]) == pytest.approx([15 / 30, 15 / 31])
    # the types are the same under every pandas
    texts = [field.name for field in RESULTS if pa.types.is_string(field.type)]
    assert {name for name in texts if frame[name].dtype == pd.StringDtype("pyarrow")} == set(texts)
    assert {frame[name].dtype.name for name in ("rank", "step")} == {"Int32"}
    assert {frame[name].dtype.name for name in ("value", "coverage", "coverage_time")} == {"float64"}
    assert frame["version"].dtype.name == "int64"
    assert frame["group"].isna().sum() == sum(row["group"] is None for row in run.rows)
    assert all(missing is pd.NA for missing in frame["group"][frame["group"].isna()])


def test_tables_hold_the_rows_of_all_ranks_or_one(run: Run) -> None:
    kernels = run.events(kinds=["kernel"], columns=["name", "start_ns", "dur_ns", "step"])
    assert kernels.column_names == ["name", "start_ns", "dur_ns", "step", "rank"]
    assert len(kernels) == 8
    second = run.events(rank=1, kinds=["kernel"]).to_pandas()
    assert list(second["dur_ns"]) == [40_000, 31_000] * 2
    assert list(second["step"]) == [0, 0, 1, 1]
    assert list(second["name"].unique()) == [GEMM, ALL_REDUCE]
    assert set(run.events()["kind"].to_pylist()) == {"kernel", "launch", "op", "annotation"}
    calls = run.collectives().to_pandas()
    assert list(calls["rank"]) == [0, 0, 1, 1]
    assert set(calls["group"]) == {"0-1"}
    assert set(calls["in_bytes"]) == {4000}
    steps = run.steps().to_pandas()
    # a device window runs to the next step's first kernel, the last to its last kernel's end
    device = steps[(steps["source"] == "device") & (steps["rank"] == 1)]
    assert list(device["end_ns"] - device["start_ns"]) == [100_000, 56_000]


def test_wrong_calls_are_told(run: Run) -> None:
    with pytest.raises(UsageError, match="did you mean dur_ns"):
        run.events(columns=["dur"])
    with pytest.raises(UsageError, match="did you mean kernel"):
        run.events(kinds=["kernels"])
    with pytest.raises(UsageError, match=r"has no rank 7.*\[0, 1\]"):
        run.events(rank=7)
    with pytest.raises(UsageError, match=r"did you mean .*overlap\.ratio"):
        cclbench.metrics(run.id, store=run.store, metrics=["overlap.rate"])


def test_a_page_of_a_notebook_escapes_what_traces_say(tmp_path: Path, store: Path) -> None:
    rows = events()
    for row in rows:
        row["name"] = row["name"].replace(GEMM, "<script>alert(1)</script>")
    run = cclbench.run(write(tmp_path / "rank0.json", rows), store=store)
    page = run._repr_html_()
    assert "<script>" not in page
    assert "time.step" in page
    assert run.id in repr(run)
    assert "script" not in cclbench.ingest(tmp_path / "rank0.json", store=store)._repr_html_()


# ----------------------------------------------------------------------------- operators and contention


def launched(beside_us: float, *, own_ids: bool) -> list[dict[str, Any]]:
    """Three matrix products: one beside communication, taking so long, two alone, taking 30 µs and 90 µs.

    The last has other shapes.  With `own_ids` device rows state the id of their operator, else their
    correlation in its place.
    """
    calls = [(1, 10, "[[2, 3], [3, 4]]"), (2, 20, "[[2, 3],[3, 4]]"), (3, 30, "[[9, 9], [9, 9]]")]
    begins = [(100, beside_us), (300, 30), (400, 90)]
    rows = [complete("user_annotation", "ProfilerStep#0", 0, 90)]
    for (number, at, shapes), (begin, length) in zip(calls, begins, strict=True):
        call, dims = 100 + number, {"External id": number, "Input Dims": json.loads(shapes)}
        outer = dims | {"External id": 10 * number, "Input Dims": []}
        ids = {"External id": number if own_ids else call, "correlation": call}
        rows += [
            complete("cpu_op", "aten::linear", at - 1, 8, **outer),
            complete("cpu_op", "aten::addmm", at, 5, **dims),
            complete("cuda_runtime", "cudaLaunchKernel", at + 1, 2, **ids),
            complete("kernel", GEMM, begin, length, **ids, grid=[54, 1, 1]),
        ]
    rows.append(complete("cuda_runtime", "cudaLaunchKernel", 50, 1, correlation=200))
    return [*rows, complete("kernel", ALL_REDUCE, 90, 150, correlation=200) | {"tid": 20}]


@pytest.mark.parametrize("own_ids", [True, False])
def test_a_kernels_operator_is_stated_or_found_by_its_launch(tmp_path: Path, own_ids: bool) -> None:
    trace = write(tmp_path / "trace.json", launched(45, own_ids=own_ids))
    run = ingest_run(trace, store=tmp_path / "store")
    query = """
        SELECT k.start_ns, o.name, o.shapes, k.grid_x, k.grid_y, k.grid_z, k.blocks
        FROM events k LEFT JOIN events o ON o.kind = 'op' AND o.operator = k.operator
        WHERE k.kind = 'kernel' ORDER BY k.start_ns
    """
    nccl, *gemms = run.sql(query).to_pylist()
    assert (nccl["name"], nccl["shapes"], nccl["blocks"]) == (None, None, None)
    assert {row["name"] for row in gemms} == {"aten::addmm"}
    assert [row["shapes"] for row in gemms] == ["[[2,3],[3,4]]", "[[2,3],[3,4]]", "[[9,9],[9,9]]"]
    grids = {(row["grid_x"], row["grid_y"], row["grid_z"], row["blocks"]) for row in gemms}
    assert grids == {(54, 1, 1, 54)}
    assert plain(run.events(kinds=["launch"], columns=["operator"]))["operator"] == [None] * 4


@pytest.mark.parametrize(("beside_us", "factor"), [(45, 1.5), (24, 0.8)])
def test_a_replay_slows_kernels_by_own_contention(tmp_path: Path, beside_us: float, factor: float) -> None:
    """Beside communication 45 µs, alone 30: 1.5; the one of 90 µs has other shapes.  0.8 is confounded."""
    trace = write(tmp_path / "trace.json", launched(beside_us, own_ids=True))
    run = cclbench.run(trace, store=tmp_path / "store", metrics=["compute.contention"])
    assert run.rows[0]["value"] == pytest.approx(factor)
    found = cclbench.whatif(run, "kernels.time=x2", contention=None)
    (note,) = (note for note in found.notes if "communication" in note and "kernels" in note)
    if factor > 1:
        assert note == "kernels are assumed to take 1.5× as long while communication runs"
        assert found.predicted == cclbench.whatif(run, "kernels.time=x2", contention=1.5).predicted
    else:
        assert "compute.contention: 0.8, confounded: " in note
        assert found.predicted == cclbench.whatif(run, "kernels.time=x2").predicted


def test_a_run_without_contention_is_replayed_without_it(job: Path, store: Path) -> None:
    found = cclbench.whatif(job, "kernels.time=x2", contention=None, store=store, per_node=2)
    (note,) = (note for note in found.notes if "communication" in note and "kernels" in note)
    assert note.endswith("compute.contention: no compute kernel runs both with communication and alone")

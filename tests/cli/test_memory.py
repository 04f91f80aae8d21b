# SPDX-License-Identifier: Apache-2.0
"""Memory on the command line, and jobs that ran out of it."""

from __future__ import annotations

import csv
import errno
import json
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from formats.test_memory_snapshot import block, segment, snapshot
from helpers.command_line import Call, Told
from helpers.xplane_files import gpu_file

from cclbench.cli.failures import report_error
from cclbench.cli.options import Session
from cclbench.comparison.build import compare
from cclbench.ground.errors import CheckFailed, InputError, UsageError
from cclbench.ground.out_of_memory import LEAST_BYTES, is_out_of_memory
from cclbench.record import files


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    """A snapshot of rank 3, and one without a history."""
    folder = tmp_path / "taken"
    folder.mkdir()
    (folder / "rank3.pickle").write_bytes(pickle.dumps(snapshot()))
    (folder / "x.pickle").write_bytes(pickle.dumps(snapshot([segment(block(4096, 512))], [])))
    return folder


def test_the_peak_and_whose_it_is(call: Call, taken: Path, tmp_path: Path) -> None:
    """On the terminal, and in a report."""
    answer = call("memory", taken)
    assert (answer.code, answer.err) == (0, "")
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert "rank 3, device 0 650 B 8.19 kB 0 B 400 B memory_snapshot" in lines
    at = lines.index("rank 3, device 0: live allocations at the peak, by call site")
    expected = ["300 B 46.2 % 1 forward model.py:7"]
    expected += ["200 B 30.8 % 1 step torch/optim/adam.py:9 < forward model.py:7"]
    expected += ["150 B 23.1 % 2 older than the recording", "650 B 100.0 % 4 all allocations", ""]
    assert lines[at + 3 : at + 8] == expected
    assert lines[-1] == "- device 0: no history was recorded, only the state at the end"
    page = tmp_path / "page.html"
    assert call("report", taken, "-o", page).code == 0
    text = page.read_text()
    for words in (
        *(f"<h3>Memory of rank 3, device 0 by {key}</h3>" for key in ("category", "call site")),
        "peak 650 B, 0 B of the reserved bytes unused then",
        "older than the recording\n150 B at the peak",
    ):
        assert words in text


def test_as_json_and_as_rows(call: Call, told: Told, taken: Path) -> None:
    found = told("memory", taken)
    assert (found["schema"], len(found["devices"])) == ("memory.v1", 2)
    recorded, unrecorded = found["devices"]
    assert (unrecorded["peak_allocated"], unrecorded["end_allocated"], unrecorded["events"]) == (None, 512, 0)
    assert (recorded["peak_allocated"], recorded["peak_reserved"], recorded["events"]) == (650, 8192, 7)
    assert recorded["peak_time_ns"] == 2000
    assert (unrecorded["owners"], unrecorded["timeline"]) == ({}, {})
    for grouping, rows in recorded["owners"].items():
        assert sum(row["bytes"] for row in rows) == 650
        assert all(row["peak"] >= row["bytes"] for row in rows)
        layers = recorded["timeline"][grouping]["layers"]
        together = [sum(sizes) for sizes in zip(*(layer["bytes"] for layer in layers), strict=True)]
        assert together == recorded["timeline"][grouping]["allocated"]
    assert list(recorded["owners"]) == ["category", "module", "call_site"]
    own = {"module": "forward model.py:7", "bytes": 500, "share": 500 / 650, "peak": 500, "peak_event": 3}
    first = own | {"peak_time_ns": 2000, "step_ends": None, "end": 300}
    assert recorded["owners"]["module"][0] == first
    assert sum(row["bytes"] for row in found["rows"]) == 650
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1)
    rows = csv.DictReader(call("memory", taken, "--format", "csv").out.splitlines())
    told_rows = [(row["rank"], row["bytes"], row["older"]) for row in rows]
    assert told_rows == [("3", "300", "False"), ("3", "200", "False"), ("3", "150", "True")]


def test_more_call_sites_are_summed_up(call: Call, tmp_path: Path) -> None:
    def site(number: int) -> list[dict[str, Any]]:
        return [{"name": f"f{number}", "filename": "a.py", "line": number}]

    blocks = [block(4096 + 512 * i, 512) for i in range(14)]
    events = [
        {"action": "alloc", "addr": one["address"], "size": 512, "stream": 0, "frames": site(i)}
        for i, one in enumerate(blocks)
    ]
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(snapshot([segment(*blocks)], events)))
    assert "2.05 kB    28.6 %        4   4 more call sites (-v lists them)" in call("memory", path).out
    assert "more call sites" not in call("memory", path, "-v").out
    assert "at the peak" not in call("memory", path, "-q").out


def test_a_picture(call: Call, trace: Path, taken: Path, tmp_path: Path) -> None:
    """What has no memory says what to record."""
    for suffix, begin in (("png", b"\x89PNG\r\n"), ("svg", b"<?xml version"), ("pdf", b"%PDF-")):
        path = tmp_path / f"memory.{suffix}"
        answer = call("memory", taken, "-q", "--plot", path)
        assert (answer.code, answer.err) == (0, f"wrote {path}\n")
        assert path.read_bytes().startswith(begin)
    answer = call("memory", trace)
    assert (answer.code, "record traces with profile_memory=True" in answer.out) == (0, True)
    (taken / "rank3.pickle").unlink()
    answer = call("memory", taken, "--plot", tmp_path / "a.png")
    assert (answer.code, "no history of allocations to plot" in answer.err) == (2, True)
    assert call("memory", taken, "--ranks", 9).code == 2


def test_modelled_peaks(call: Call, repository: Path, taken: Path) -> None:
    trace = repository / "tests/golden/cpu_memory/rank0_trace.json.gz"
    settings = ("--set", "checkpoint=Transformer_0/Block_0", "--set", "optimizer.shards=2")
    text = " ".join(call("memory", trace, "-q", *settings).out.split())
    assert "modelled peak with checkpoint=Transformer_0/Block_0, optimizer.shards=2: 1." in text
    assert "assumed: 2 ranks share the optimizer's states evenly" in text
    (modelled,) = json.loads(call("memory", trace, "--json", *settings).out)["modelled"]
    assert modelled["recorded"] == 2_129_828
    assert sum(modelled["by_category"].values()) == modelled["peak"]
    assert modelled["by_category"]["optimizer states"] == 335_452 / 2
    assert json.loads(call("memory", trace, "--json").out)["modelled"] == []
    for setting, message in (
        ("batch=9", "the batch size is unknown"),
        ("batch=x", "not a whole number from 1"),
        ("depth=3", "unknown setting 'depth=3'"),
        ("checkpoint=Blok", "did you mean Block?"),
    ):
        assert message in call("memory", trace, "--set", setting).err
    assert "the recording names no modules" in call("memory", taken, "--set", "checkpoint=Block").err


def test_compiled_programs_are_told_apart(call: Call, told: Told, repository: Path, tmp_path: Path) -> None:
    """A profile without programs says so."""
    source = repository / "traces/tiny-jax-h100"
    lines = [" ".join(line.split()) for line in call("memory", source).out.splitlines()]
    assert "rank 0, device 0 4.67 GB 210 MB xplane" in lines
    at = lines.index("jit_train_step: as compiled, not measured: 4.67 GB")
    expected = ["65.5 kB 0.0 % 2 parameters", "210 MB 4.5 % 18 parameters that outputs reuse"]
    expected += ["156 B 0.0 % 2 outputs", "4.46 GB 95.5 % 1 temporaries", "492 B 0.0 % 123 thread-local"]
    assert lines[at + 3 : at + 8] == expected
    assert "15.6 kB 0.0 % unused" in lines
    assert lines[-2:] == [
        "- rank 0, device 0: the allocation that made the measured peak, 4.46 GB, has the",
        "size of jit_train_step's temporaries",
    ]
    found = told("memory", source)
    assert [program["provenance"] for program in found["programs"]] == ["compiler"]
    assert found["devices"][0]["peak_allocation"]["assigned"] == 4_456_759_568
    assert found["rows"] == []
    (tmp_path / "rank0.xplane.pb").write_bytes(gpu_file())
    words = "compiled programs: as compiled, not measured: unknown: the profile contains no compiled programs"
    assert words in " ".join(call("memory", tmp_path / "rank0.xplane.pb").out.split())
    (program,) = told("memory", tmp_path / "rank0.xplane.pb")["programs"]
    assert (program["bytes"], program["peak"]) == (None, None)


def raised(work: Callable[[], object], kind: type[Exception]) -> Exception:
    """What a library raises by itself."""
    with pytest.raises(kind) as found:
        work()
    return found.value


def too_large_a_list() -> None:
    with duckdb.connect(config={"memory_limit": "10MB", "temp_directory": ""}) as connection:
        connection.sql("SELECT list(i) FROM range(10000000) t(i)").fetchall()


def following(first: Exception, *, told: bool) -> Exception:
    """An error raised while that one was handled, which is told with it or not."""
    error = RuntimeError("import failed")
    error.__context__, error.__suppress_context__ = first, not told
    return error


ARROW = "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"
SHORTAGES = {
    "python": MemoryError(),
    "numpy": raised(lambda: np.zeros(1 << 50), MemoryError),
    "arrow": raised(lambda: pa.allocate_buffer(1 << 60), pa.ArrowMemoryError),
    "duckdb": raised(too_large_a_list, duckdb.OutOfMemoryException),
    "mmap": OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
    "a thread": RuntimeError("can't start new thread"),
    "arrow's thread": OSError(ARROW),
    "a library": ImportError("libarrow.so.2600: failed to map segment from shared object"),
    "a library that another one needs": following(ImportError("x.so: failed to map segment"), told=True),
}


@pytest.mark.parametrize("name", SHORTAGES)
def test_it_is_told_as_what_it_is(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert report_error(SHORTAGES[name], Session()) == 3
    told = capfd.readouterr().err
    assert told.startswith("error: out of memory")
    assert "--memory SIZE" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    "error",
    [
        ImportError("No module named 'pyarrow'"),
        OSError(errno.ENOENT, "No such file"),
        RuntimeError("dictionary changed size"),
        following(MemoryError(), told=False),
        InputError("cannot be read: it says 'Out of Memory'"),
    ],
)
def test_nothing_else_is(error: Exception) -> None:
    """What is told on purpose stays."""
    assert not is_out_of_memory(error)
    failed = CheckFailed("regression")
    failed.__context__ = MemoryError()
    assert report_error(failed, Session()) == 1


def test_a_table_that_memory_does_not_suffice_for_is_not_damaged() -> None:
    with pytest.raises(MemoryError), files.reading(Path("events.parquet")):
        pa.allocate_buffer(1 << 60)
    with pytest.raises(InputError, match="damaged table"), files.reading(Path("events.parquet")):
        raise pa.ArrowInvalid("magic bytes")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space")
def test_a_limit_below_which_libraries_do_not_load() -> None:
    """They would end the process with an exit code of their own, or by a signal."""

    def run(limit: int, *words: str) -> subprocess.CompletedProcess[str]:
        limited = partial(resource.setrlimit, resource.RLIMIT_AS, (limit, limit))
        command = [sys.executable, "-m", "cclbench", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)

    done = run(LEAST_BYTES - 4096, "list", "metrics")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: the address space is limited to 500 MB; ")
    assert run(LEAST_BYTES - 4096, "--help").returncode == 0
    assert run(4 * LEAST_BYTES, "list", "metrics").returncode == 0


def benchmark(folder: Path, name: str, rate: float, **changes: object) -> Path:
    """What SGLang's client writes of 100 requests at so many output tokens a second."""
    found = {"backend": "sglang", "dataset_name": "random", "request_rate": "inf", "max_concurrency": 16}
    found |= {"completed": 100, "total_input_tokens": 5000, "total_output_tokens": 1000, "mean_ttft_ms": 50.0}
    found |= {"duration": 1000 / rate, "request_throughput": rate / 10, "output_throughput": rate}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**found, **changes}))
    return path


def test_captures_of_each_side_by_words_and_patterns(call: Call, tmp_path: Path) -> None:
    for name, rates in {"a": (100.0, 101.0, 99.0), "b": (110.0, 111.0, 109.0)}.items():
        for number, rate in enumerate(rates):
            benchmark(tmp_path, f"{name}-{number}", rate)
    a = [tmp_path / f"a-{number}.json" for number in range(3)]
    done = call("compare", *a, "--against", tmp_path / "b-*.json", "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert [len(subject["captures"]) for subject in told["subjects"]] == [3, 3]
    (versus,) = told["versus"]
    assert (versus["outcome"], versus["ratio"]) == ("faster", pytest.approx(1.1))
    assert versus["spread"]["source"] == "captures"
    by_id = call("compare", "a-*", "--against", "b-*", "-q")
    words = " ".join(by_id.out.split())
    assert words.startswith("B is 1.10× faster than A (110 against 100 output tokens per second; 95 %")
    assert "over 3 captures of each; captures of one job differ by about" in words


def test_a_pattern_that_fits_nothing_and_an_option_without_a_word(call: Call, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'"none-\*" matches no file and no run in the store'):
        compare("none-*", "b", store=tmp_path)
    done = call("compare", "a", "b", "--against")
    assert (done.code, "--against" in done.err) == (2, True)

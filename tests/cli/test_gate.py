# SPDX-License-Identifier: Apache-2.0
"""Gates, verification and stored runs on the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call, Told
from helpers.synthetic import Collective, Compute, Distortion, Layout, Program, simulate, write

from cclbench import ingestion

from .conftest import words_of

Job = Callable[..., Path]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Makes a card and traces of two ranks: twelve closed steps of about 0.5 ms, or as told."""

    def made(name: str, *, batch: int = 256, seed: int = 0, compute_us: int = 400, **other: Any) -> Path:
        folder = tmp_path / name
        ops = (Compute(compute_us * 1000), Collective("all_reduce", "dp", 1 << 20))
        program = Program(ops, steps=12, jitter=40, closing=True)
        truth = simulate(Layout(dp=2, gpus_per_host=2), program, seed=seed)
        files = write(truth, folder / "traces", other.pop("distortion", Distortion())).files
        workload = {"phase": "training", "precision": "bf16"}
        workload |= {"batch": {"global": batch, "sequence_length": 128}}
        traces = [
            {"path": f"traces/{path.name}", "format": "kineto", "ranks": [rank]}
            for rank, path in sorted(files.items())
        ]
        card = {"version": 2, "id": name, "description": "a job of the test"} | {
            "workload": workload | {"model": {"name": "tiny", "parameters": 1_000_000}},
            "hardware": {"accelerator": "nvidia-h100-sxm", "count": 2, "system": "dgx-h100"},
            "parallelism": {"dp_replicate": 2},
            "evidence": {"traces": traces},
        }
        (folder / "workload_cards").mkdir()
        path = folder / "workload_cards" / f"{name}.yaml"
        path.write_text(json.dumps(card))
        return path

    return made


def unmark(*traces: Path) -> None:
    """Take away the annotations that mark steps."""
    for path in traces:
        document = json.loads(path.read_text())
        document["traceEvents"] = [e for e in document["traceEvents"] if e["cat"] != "user_annotation"]
        path.write_text(json.dumps(document))


def test_a_regression_fails_by_its_interval_and_noise_passes(call: Call, job: Job) -> None:
    base, slower = job("base"), job("slower", seed=1, compute_us=700)
    answer = call("compare", "-q", base, slower, "--fail-on", "time.step > +5%")
    assert answer.code == 1
    assert "FAILED  time.step > +5%:" in answer.out
    assert "95 % interval +" in words_of(answer.out)
    assert answer.err.startswith("error: 1 of 1 checks failed: time.step > +5%: time.step of B is ")
    answer = call("compare", "-q", base, job("again", seed=1), "--fail-on", "time.step > +5%")
    assert (answer.code, answer.err) == (0, "")
    assert "which may be chance" in words_of(answer.out)
    assert "passed  time.step > +5%:" in answer.out


def refusal(answer: Any) -> str:
    assert answer.code == 5
    assert "REFUSED" in answer.out
    assert answer.err.startswith("error: 1 of 1 checks refused: ")
    assert answer.err.count("\n") == 1
    return str(answer.err)


ALONE, LOSSY = Distortion(missing=frozenset({1})), Distortion(lost=0.2, seed=3)


@pytest.mark.parametrize(
    ("changes", "limit", "says"),
    [
        ({"batch": 512}, "time.step > +5%", "their work differs (global batch 512 against 256"),
        ({"distortion": ALONE}, "comm.transfer > +5%", "A's figure is measured, B's is modelled"),
        ({"distortion": LOSSY}, "comm.transfer > +5%", "comm.transfer of B is partial (left out: "),
    ],
    ids=["another batch", "modelled against measured", "a partial figure"],
)
def test_what_is_refused(call: Call, job: Job, changes: dict[str, Any], limit: str, says: str) -> None:
    answer = call("compare", job("a"), job("b", seed=1, **changes), "--fail-on", limit)
    assert says in refusal(answer)


def test_two_captures_of_a_length_are_refused(call: Call, job: Job) -> None:
    folders = [job(name, seed=seed).parent.parent / "traces" for seed, name in enumerate("ab")]
    unmark(*(path for folder in folders for path in folder.iterdir()))
    answer = call("compare", *folders, "--fail-on", "time.step > +5%")
    assert "the window of A is its whole trace, as long as the capture" in refusal(answer)
    assert "Whether it is in others is unknown" in words_of(answer.out)


def test_a_single_closed_step_is_refused(call: Call, trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / trace.name
    other.parent.mkdir()
    other.write_text(trace.read_text().replace("ampere", "hopper"))
    answer = call("compare", trace, other, "--fail-on", "time.step > +5%")
    why = "there is no interval: an interval needs 3 complete steps of each, A has 1 and B has 1"
    assert why in refusal(answer)
    assert call("compare", trace, other, "--fail-on", "time.step > 1 s").code == 0


KERNELS = (
    ("aten::mm", [[512, 512], [512, 512]], "ampere_sgemm_128x64_nn"),
    ("aten::nll_loss_forward", [[512, 64], [512], [], [], []], "nll_loss_forward_kernel"),
)


def products(path: Path, micro_batches: int, kernel_us: int = 40) -> Path:
    """One GPU, six steps: of each micro-batch a product of 2 · 512³ FLOPs and its loss, with shapes."""
    events = []

    def add(name: str, cat: str, ts: float, dur: float, tid: int = 1, **args: Any) -> None:
        events.append({"ph": "X", "pid": 0, "tid": tid, "name": name, "cat": cat, "ts": ts, "dur": dur})
        events[-1]["args"] = args

    for step in range(6):
        begin = 1000.0 * step
        add(f"ProfilerStep#{step}", "user_annotation", begin, 990.0)
        for batch, kind in product(range(micro_batches), (0, 1)):
            name, shapes, kernel = KERNELS[kind]
            at, link = begin + 200 * batch + 50 * kind, 100 * step + 10 * batch + kind + 1
            sizes = {"Input Dims": shapes, "Input type": ["float"] * len(shapes)}
            linked = {"correlation": link, "External id": link}
            add(name, "cpu_op", at, 20.0, **sizes, **{"External id": link})
            add("cudaLaunchKernel", "cuda_runtime", at + 5, 5.0, **linked)
            add(kernel, "kernel", at + 15, kernel_us - 38 * kind, 7, **linked, grid=[64, 1, 1], stream=7)
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB"}
    path.parent.mkdir()
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    return path


def test_half_the_micro_batches_are_refused_without_a_card(call: Call, tmp_path: Path) -> None:
    """Captures of a length are compared by the calls that they hold.

    24 and 12 products in 5.8 ms: A takes half as long as B for each, and not as long.
    """
    four, two = (products(tmp_path / str(n) / "t.json", n) for n in (4, 2))
    answer = call("compare", four, two, "--fail-on", "time.step > +5%")
    assert "their work differs (2 against 4 calls of aten::" in refusal(answer)
    assert "537 MFLOP against 1.07 GFLOP a step" in refusal(answer)
    equal = call("compare", four, products(tmp_path / "more" / "t.json", 4, 41), "-q")
    assert "Their work is equal: 1.07 GFLOP a step each." in words_of(equal.out)
    unmark(four, two)
    words = words_of(call("compare", four, two, "-q").out)
    assert words.startswith("B's time per call of aten::mm is 1.86× longer than A's in these captures (")
    assert "They contain 12 and 24 such calls." in words
    parts = call("compare", four, two).out
    compute = next(line for line in parts.splitlines() if line.startswith("  compute "))
    assert compute.split()[1:5] == ["42.0", "µs", "42.0", "µs"]


ID = "tiny-llama-ddp4-gloo-cpu"


@pytest.fixture
def collection(repository: Path, tmp_path: Path) -> Path:
    """One shipped data point, in a collection of its own."""
    folder = tmp_path / "collection"
    shutil.copytree(repository / "traces" / ID, folder / "traces" / ID)
    shutil.copytree(repository / "scripts" / ID, folder / "scripts" / ID)
    (folder / "workload_cards").mkdir()
    shutil.copyfile(repository / "workload_cards" / f"{ID}.yaml", folder / "workload_cards" / f"{ID}.yaml")
    return folder


@pytest.fixture
def verify(call: Call, collection: Path) -> Call:
    """The command on it."""
    return lambda *words: call("verify", *words, "--collection", collection, "--jobs", "1")


def test_a_shipped_data_point_is_verified(verify: Call) -> None:
    """Every form tells the same."""
    answer = verify(ID)
    assert (answer.code, answer.err) == (0, "")
    header, _, line = answer.out.splitlines()
    assert header.split() == ["id", "status", "files", "rows", "exact", "changed"]
    assert line.split()[:3] == [ID, "verified", "4"]
    document = json.loads(verify("--all", "--json").out)
    assert document["schema"] == "verification.v1"
    (point,) = document["data_points"]
    assert (point["id"], point["status"], len(point["files"])) == (ID, "verified", 4)
    assert point["comparison"]["changes"] == []
    assert verify(ID, "--format", "csv").out.splitlines()[1].startswith(f"{ID},verified,4,")
    assert verify(ID, "--format", "md").out.splitlines()[2].startswith(f"| {ID} | verified | 4 |")


def test_a_changed_value_fails_with_both(verify: Call, collection: Path) -> None:
    """Recording is verified at once."""
    path = collection / "traces" / ID / "manifest.json"
    document = json.loads(path.read_text())
    rows = document["results"]["rows"]
    row = next(r for r in rows if r["metric"] == "time.idle" and "step" not in r)
    true, row["value"] = row["value"], 0.125
    path.write_text(json.dumps(document))
    answer = verify(ID)
    assert answer.code == 1
    assert f"time.idle: recorded 0.125 s, computed {true!r} s" in " ".join(answer.out.split())
    assert answer.err == "error: 1 of 1 data points are not verified\n"
    path.unlink()
    assert verify(ID).code == 1
    answer = verify("--record", ID)
    assert (answer.code, answer.err.startswith("recorded ")) == (0, True)


def test_an_unreadable_one_does_not_keep_the_others(verify: Call, collection: Path) -> None:
    (collection / "workload_cards" / "broken.yaml").write_text("{")
    (collection / "traces" / "broken").mkdir()
    (collection / "traces" / "broken" / "manifest.json").write_text("{")
    answer = verify("--all")
    assert answer.code == 3
    listed = [line.split()[:2] for line in answer.out.splitlines()[2:4]]
    assert listed == [["broken", "unreadable"], [ID, "verified"]]
    assert "error: 1 of 2 data points are not verified" in answer.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "name data points, or give one of --all and"),
        ((ID, "--all"), 2, "name data points, or give one of --all and"),
        (("tiny-llama-ddp4",), 2, f"did you mean {ID}"),
        (("../../etc",), 2, "no data point"),
        (("\x1b[31m",), 2, "no data point"),
        ((ID, "--evidence", "/nowhere"), 2, "neither a folder nor an archive"),
        (("--changed-since", "-x"), 2, "git"),
        (("--changed-since", ""), 2, "there is no commit to compare with"),
    ],
)
def test_a_wrong_call_is_told(verify: Call, words: tuple[str, ...], code: int, told: str) -> None:
    answer = verify(*words)
    assert (answer.code, answer.out) == (code, "")
    assert told in answer.err
    assert answer.err.replace("\n", "").isprintable()


def test_an_empty_folder_has_nothing_to_verify(call: Call, tmp_path: Path) -> None:
    answer = call("verify", "--all", "--collection", tmp_path)
    assert answer.code == 2
    assert "holds no workload_cards/" in answer.err


@pytest.fixture
def stored(told: Told, repository: Path) -> str:
    """The id of a run in the store."""
    return str(told("ingest", repository / "workload_cards" / f"{ID}.yaml")["runs"][0]["run"])


def test_run_takes_an_id_as_metrics_does(
    call: Call, told: Told, stored: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told("run", stored)["results"] == told("metrics", stored)["results"]
    again = call("run", stored, "--metric", "time.step")
    assert again.code == 0
    assert again.out.startswith(f"run      {stored}")
    monkeypatch.setattr(ingestion, "TAXONOMY", "another")
    other = told("ingest", repository / "workload_cards" / f"{ID}.yaml")
    assert other["runs"][0]["run"] != stored


READ = "run {} is already stored; give its SOURCE to read it with other options"
STEPS = "{}: no step lies in 20:22; the steps are 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14"


@pytest.mark.parametrize(
    ("option", "says"),
    [(("--allow-truncated",), READ), (("--step-annotation", "it"), READ), (("--steps", "20:22"), STEPS)],
)
def test_a_stored_run_is_read_one_way(call: Call, stored: str, option: tuple[str, ...], says: str) -> None:
    assert call("run", stored, *option) == (2, "", f"error: {says.format(stored)}\n")


def test_a_card_of_a_folder_keeps_execution_traces(call: Call, test_data: Path, tmp_path: Path) -> None:
    """DLRM's kernels say neither bytes nor group: without the execution traces nothing says who took part."""
    shutil.copytree(test_data / "kineto" / "dlrm_8xv100", tmp_path / "traces" / "dlrm")
    (tmp_path / "workload_cards").mkdir()
    card = tmp_path / "workload_cards" / "dlrm.yaml"
    made = call("card", "new", tmp_path / "traces" / "dlrm", "-o", card)
    assert made.code == 0, made.err
    assert card.read_text().count("dlrm_eg_") == 8
    found = json.loads(call("run", card, "--no-inference", "--metric", "comm.volume", "--json").out)
    assert found["run"]["matching"]["matched"] == 64

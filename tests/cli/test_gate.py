# SPDX-License-Identifier: Apache-2.0
"""`cclbench compare --fail-on` on whole runs: what regresses, what does not, and what it refuses to judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call
from helpers.synthetic import Collective, Compute, Distortion, Layout, Program, simulate, write

Job = Callable[..., Path]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Makes a card and traces of two ranks: twelve closed steps of about 0.5 ms, or as told."""

    def made(name: str, *, batch: int = 256, seed: int = 0, compute_us: int = 400, **other: Any) -> Path:
        folder = tmp_path / name
        ops = (Compute(compute_us * 1000), Collective("all_reduce", "dp", 1 << 20))
        program = Program(ops, steps=12, jitter=40, closing=True)
        distortion = other.pop("distortion", Distortion())
        truth = simulate(Layout(dp=2, gpus_per_host=2), program, seed=seed)
        files = write(truth, folder / "traces", distortion).files
        card = {
            "version": 2,
            "id": name,
            "description": "a job of the test",
            "workload": {
                "phase": "training",
                "model": {"name": "tiny", "parameters": 1_000_000},
                "precision": "bf16",
                "batch": {"global": batch, "sequence_length": 128},
            },
            "hardware": {"accelerator": "nvidia-h100-sxm", "count": 2, "system": "dgx-h100"},
            "parallelism": {"dp_replicate": 2},
            "evidence": {
                "traces": [
                    {"path": f"traces/{path.name}", "format": "kineto", "ranks": [rank]}
                    for rank, path in sorted(files.items())
                ]
            },
        }
        (folder / "workload_cards").mkdir()
        path = folder / "workload_cards" / f"{name}.yaml"
        path.write_text(json.dumps(card))
        return path

    return made


def unmarked(card: Path) -> Path:
    """The folder of its traces, without the annotations that mark steps."""
    folder = card.parent.parent / "traces"
    for path in folder.iterdir():
        document = json.loads(path.read_text())
        document["traceEvents"] = [e for e in document["traceEvents"] if e["cat"] != "user_annotation"]
        path.write_text(json.dumps(document))
    return folder


def test_a_regression_fails_by_its_interval_and_says_both(call: Call, job: Job) -> None:
    base, slower = job("base"), job("slower", seed=1, compute_us=700)
    answer = call("compare", "-q", base, slower, "--fail-on", "time.step > +5%")
    assert answer.code == 1
    assert "FAILED  time.step > +5%:" in answer.out
    assert "95 % interval +" in " ".join(answer.out.split())
    assert answer.err.startswith("error: 1 of 1 checks failed: time.step > +5%: time.step of B is ")


def test_noise_passes(call: Call, job: Job) -> None:
    answer = call("compare", "-q", job("base"), job("again", seed=1), "--fail-on", "time.step > +5%")
    assert (answer.code, answer.err) == (0, "")
    assert "which may be chance" in " ".join(answer.out.split())
    assert "passed  time.step > +5%:" in answer.out


def refusal(answer: Any) -> str:
    assert answer.code == 5
    assert "REFUSED" in answer.out
    assert answer.err.startswith("error: 1 of 1 checks refused: ")
    assert answer.err.count("\n") == 1
    return str(answer.err)


def test_another_batch_is_refused(call: Call, job: Job) -> None:
    answer = call("compare", job("a"), job("b", batch=512, seed=1), "--fail-on", "time.step > +5%")
    assert "their work differs (global batch 512 against 256" in refusal(answer)


def test_two_captures_of_a_length_are_refused(call: Call, job: Job) -> None:
    folders = [unmarked(job(name, seed=seed)) for seed, name in enumerate(("a", "b"))]
    answer = call("compare", *folders, "--fail-on", "time.step > +5%")
    assert "the window of A is its whole trace, as long as the capture" in refusal(answer)
    assert "Whether it is in others is unknown" in " ".join(answer.out.split())


def test_modelled_against_measured_is_refused(call: Call, job: Job) -> None:
    alone = job("alone", distortion=Distortion(missing=frozenset({1})))
    both = job("both", seed=1)
    answer = call("compare", both, alone, "--fail-on", "comm.transfer > +5%")
    assert "A's figure is measured, B's is modelled" in refusal(answer)


def test_a_partial_figure_is_refused(call: Call, job: Job) -> None:
    whole, lossy = job("whole"), job("lossy", seed=1, distortion=Distortion(lost=0.2, seed=3))
    answer = call("compare", whole, lossy, "--fail-on", "comm.transfer > +5%")
    assert "comm.transfer of B is partial (left out: " in refusal(answer)


def test_a_single_closed_step_is_refused(call: Call, trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / trace.name
    other.parent.mkdir()
    other.write_text(trace.read_text().replace("ampere", "hopper"))
    answer = call("compare", trace, other, "--fail-on", "time.step > +5%")
    assert "there is no interval: an interval needs 3 complete steps of each, A has 1 and B has 1" in refusal(
        answer
    )
    assert call("compare", trace, other, "--fail-on", "time.step > 1 s").code == 0


def products(path: Path, micro_batches: int, kernel_us: int = 40) -> Path:
    """One GPU, six steps: of each micro-batch a product of 2 · 512³ FLOPs and its loss, with shapes."""
    events = []
    for step in range(6):
        begin = 1000.0 * step
        events.append(
            {"name": f"ProfilerStep#{step}", "cat": "user_annotation", "ts": begin, "dur": 990.0, "tid": 1}
        )
        for batch in range(micro_batches):
            for kind, (name, shapes, kernel) in enumerate(
                (
                    ("aten::mm", [[512, 512], [512, 512]], "ampere_sgemm_128x64_nn"),
                    ("aten::nll_loss_forward", [[512, 64], [512], [], [], []], "nll_loss_forward_kernel"),
                )
            ):
                at, link = begin + 200 * batch + 50 * kind, 100 * step + 10 * batch + kind + 1
                arguments = {"Input Dims": shapes, "Input type": ["float"] * len(shapes), "External id": link}
                linked = {"correlation": link, "External id": link}
                launch, run = "cudaLaunchKernel", {**linked, "grid": [64, 1, 1], "stream": 7}
                events += [
                    {"name": name, "cat": "cpu_op", "ts": at, "dur": 20.0, "tid": 1, "args": arguments},
                    {
                        "name": launch,
                        "cat": "cuda_runtime",
                        "ts": at + 5,
                        "dur": 5.0,
                        "tid": 1,
                        "args": linked,
                    },
                    {
                        "name": kernel,
                        "cat": "kernel",
                        "ts": at + 15,
                        "dur": kernel_us - 38 * kind,
                        "tid": 7,
                        "args": run,
                    },
                ]
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}],
        "traceEvents": [{"ph": "X", "pid": 0, **event} for event in events],
    }
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    return path


def test_half_the_micro_batches_are_refused_without_a_card(call: Call, tmp_path: Path) -> None:
    four, two = products(tmp_path / "four" / "t.json", 4), products(tmp_path / "two" / "t.json", 2)
    answer = call("compare", four, two, "--fail-on", "time.step > +5%")
    assert "their work differs (2 against 4 calls of aten::" in refusal(answer)
    assert "537 MFLOP against 1.07 GFLOP a step" in refusal(answer)
    equal = call("compare", four, products(tmp_path / "more" / "t.json", 4, 41), "-q")
    assert "Their work is equal: 1.07 GFLOP a step each." in " ".join(equal.out.split())


def test_captures_of_a_length_are_compared_by_the_calls_that_they_hold(call: Call, tmp_path: Path) -> None:
    """24 and 12 products in 5.8 ms: A takes half as long as B for each, and not as long."""
    folders = [products(tmp_path / name / "t.json", n) for name, n in (("four", 4), ("two", 2))]
    for path in folders:
        document = json.loads(path.read_text())
        document["traceEvents"] = [e for e in document["traceEvents"] if e["cat"] != "user_annotation"]
        path.write_text(json.dumps(document))
    words = " ".join(call("compare", *folders, "-q").out.split())
    assert words.startswith("B's time per call of aten::mm is 1.86× longer than A's in these captures (")
    assert "They contain 12 and 24 such calls." in words
    parts = call("compare", *folders).out
    compute = next(line for line in parts.splitlines() if line.startswith("  compute "))
    assert compute.split()[1:5] == ["42.0", "µs", "42.0", "µs"]

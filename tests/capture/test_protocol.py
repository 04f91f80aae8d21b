# SPDX-License-Identifier: Apache-2.0
"""Who is called when and what is written where, with stand-ins for PyTorch and JAX: see `stand_in`.

CUDA's events and snapshots are tested so and in no other way: no machine with a GPU was at hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cclbench.jax
import cclbench.torch
from cclbench.capture import verdicts
from cclbench.card import load_card
from cclbench.ground.errors import UsageError

Ran = Callable[..., str]
LOOP = """
import torch
from torch.optim.optimizer import step
import cclbench.torch

with cclbench.torch.profile("job", wait=3, warmup=2, active=2{options}) as profiler:
    for number in range({steps}):
        torch.advance((9.0, 1.0, 3.0, 7.0, 7.0, 2.5, 2.5, 7.0)[number])
        step()
        profiler.step()
print("overhead", profiler.overhead)
"""


def test_nothing_is_imported_that_may_not_be_there() -> None:
    text = "import sys, cclbench.torch, cclbench.jax; print({'torch', 'jax'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", text], text=True) == "set()\n"


@pytest.mark.parametrize(("module", "package"), [(cclbench.torch, "torch"), (cclbench.jax, "jax")])
def test_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, module: object, package: str
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=f"which is not installed; pip install {package}"):
        module.profile("job")  # type: ignore[attr-defined]


def test_the_gpus_own_clock_times_the_steps(run_program: Ran, tmp_path: Path) -> None:
    printed = run_program(LOOP.format(steps=8, options=", stacks=True"), STAND_IN_CUDA="1")
    assert "options profile_memory=False record_shapes=True with_stack=True\n" in printed
    assert "overhead 0.25\n" in printed
    told = json.loads((tmp_path / "job" / "rank0_step_times.json").read_text())
    assert told["records"] == ["shapes", "stacks"]
    # The first step is left out, and so are those that warm up.
    assert told["unprofiled"] == {"steps": 2, "seconds": 4.0, "each": [1.0, 3.0]}
    assert told["profiled"] == {"steps": 2, "seconds": 5.0, "each": [2.5, 2.5]}
    card = load_card(tmp_path / "job" / "job.yaml")
    assert (card.workload.phase, card.hardware.accelerator) == ("training", "nvidia-h100-sxm")


@pytest.mark.parametrize(
    ("cuda", "said"),
    [
        (
            "1",
            ["memory history all 1000000", "snapshot rank0_memory_snapshot.pickle", "memory history None 0"],
        ),
        ("", []),
    ],
)
def test_a_snapshot_is_recorded_from_warm_up_on(run_program: Ran, cuda: str, said: list[str]) -> None:
    variables = {"STAND_IN_CUDA": cuda} if cuda else {}
    printed = run_program(LOOP.format(steps=8, options=", memory_snapshot=True"), **variables)
    assert [line for line in printed.splitlines() if line.startswith(("memory", "snapshot"))] == said
    assert ("no memory snapshot: it requires CUDA" in printed) == (not said)


def test_each_rank_writes_its_own_and_the_first_begins_the_card(run_program: Ran, tmp_path: Path) -> None:
    for rank in ("1", "0"):
        run_program(LOOP.format(steps=7, options=""), RANK=rank, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
        own = {f"rank{rank}_trace.json.gz", f"rank{rank}_step_times.json"}
        assert own <= {path.name for path in (tmp_path / "job").iterdir()}
        assert (tmp_path / "job" / "job.yaml").exists() == (rank == "0")
    assert load_card(tmp_path / "job" / "job.yaml").hardware.per_node == 2


def test_traces_of_another_job_and_too_few_steps_are_refused(run_program: Ran, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank2_trace.json.gz").write_bytes(b"")
    program = """
import cclbench.torch
profile, watch = cclbench.torch.profile, cclbench.torch.watch
for start in (lambda: profile("job").__enter__(), lambda: watch("job", every=2)):
    try:
        start()
    except Exception as error:
        print(type(error).__name__, error)
"""
    ranks, watched = run_program(program, WORLD_SIZE="2").splitlines()
    assert ranks.startswith("UsageError job: contains rank2_trace.json.gz, but this job has 2 ranks")
    assert watched == "UsageError every is 2; it is 3 or more"


def test_a_job_that_ends_early_is_told_and_keeps_what_there_is(run_program: Ran, tmp_path: Path) -> None:
    printed = run_program(LOOP.format(steps=4, options=""))
    assert "no trace in job: the job took 4 steps, and the trace begins after 5" in printed
    assert "overhead None\n" in printed
    assert list((tmp_path / "job").iterdir()) == []
    assert "overhead 0.25\n" in run_program(LOOP.format(steps=6, options=""), STAND_IN_CUDA="1")
    assert (tmp_path / "job" / "rank0_trace.json.gz").exists()


def test_a_handler_puts_each_cycle_into_a_folder_of_its_own(run_program: Ran, tmp_path: Path) -> None:
    printed = run_program("""
import torch
import cclbench.torch

handler = cclbench.torch.handler("traces/job", phase="inference")
schedule = torch.profiler.schedule(wait=1, warmup=0, active=1, repeat=2)
with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
    for _ in range(4):
        profiler.step()
""")
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*") if path.is_file())
    assert found == [
        *("program.py", "traces/job-2/job-2.yaml", "traces/job-2/rank0_trace.json.gz"),
        *("traces/job/job.yaml", "traces/job/rank0_trace.json.gz"),
    ], printed
    assert load_card(tmp_path / "traces/job/job.yaml").workload.phase == "inference"


JAX = """
import cclbench.jax

with cclbench.jax.profile("job", wait=3, active=2) as profiler:
    for number in range({steps}):
        print("step", number)
        profiler.step()
print("overhead", type(profiler.overhead).__name__)
"""


def test_jax_is_waited_for_where_the_timed_steps_begin_and_end(run_program: Ran, tmp_path: Path) -> None:
    assert run_program(JAX.format(steps=6)).splitlines() == [
        *("step 0", "wait for all", "step 1", "step 2", "wait for all", "wait for all"),
        *("start job/host03 python 0", "begin train 3", "wait for all", "step 3", "end train 3"),
        *("begin train 4", "step 4", "end train 4", "wait for all", "stop", "step 5", "overhead float"),
    ]
    told = json.loads((tmp_path / "job" / "rank3_step_times.json").read_text())
    assert (told["unprofiled"]["steps"], told["profiled"]["steps"]) == (2, 2)
    assert "each" not in told["profiled"]


def test_a_jax_job_that_ends_early_is_told_and_keeps_what_there_is(run_program: Ran, tmp_path: Path) -> None:
    printed = run_program(JAX.format(steps=2))
    assert "no trace in job: the job took 2 steps, and the trace begins after 3" in printed
    assert "overhead NoneType" in printed
    assert not (tmp_path / "job").exists()
    lines = run_program(JAX.format(steps=4)).splitlines()
    assert lines[-5:] == ["begin train 4", "end train 4", "wait for all", "stop", "overhead float"]
    told = json.loads((tmp_path / "job" / "rank3_step_times.json").read_text())
    assert told["profiled"]["steps"] == 1


WATCHED = """
import cclbench.torch

with cclbench.torch.watch("job", every=4{options}, phase="training") as watching:
    for _ in range(11):
        watching.step()
"""


def test_a_watch_captures_the_last_of_every_few_steps(run_program: Ran, tmp_path: Path) -> None:
    """The stand-in's traces are empty, which the verdicts say; the job does not fail for it."""
    printed = run_program(WATCHED.format(options=""))
    assert "options record_shapes=True\n" in printed
    assert sorted(path.name for path in tmp_path.glob("job*")) == ["job", "job-2", "job.jsonl"]
    told = [json.loads(line) for line in (tmp_path / "job.jsonl").read_text().splitlines()]
    assert [(one["step"], one["folder"]) for one in told] == [(3, "job"), (7, "job-2")]
    assert all(one["error"] for one in told)
    assert (tmp_path / "job" / "job.yaml").is_file()


def test_a_verdict_counts_missing_ranks(
    monkeypatch: pytest.MonkeyPatch, repository: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(verdicts, "_PATIENCE_S", 0.0)
    monkeypatch.setenv("CCLBENCH_STORE", str(tmp_path / "runs"))
    job = repository / "traces" / "tiny-llama-ddp4-gloo-cpu"
    told = verdicts.verdict_of({"step": 9, "folder": str(job)}, world=6)
    assert (told["step"], told["ranks"], told["missing_ranks"]) == (9, 4, 2)
    assert told["findings"]

# SPDX-License-Identifier: Apache-2.0
"""The page of a capture, and its protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.page_commands import blocks

import cclbench
import cclbench.jax
import cclbench.torch
from cclbench.capture import verdicts
from cclbench.card import load_card
from cclbench.ground.errors import UsageError
from cclbench.record.run import Run

Ran = Callable[..., str]

RANKS = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import cclbench.torch

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
model = DistributedDataParallel(module, process_group=mesh["dp"].get_group())
optimizer = torch.optim.AdamW(model.parameters())
options = {"wait": 3, "warmup": 2, "active": 3, "execution_trace": True}
job = {"model": model, "mesh": mesh, "global_batch": 16, "sequence_length": 1}
with cclbench.torch.profile("traces/job", **options, **job) as profiler:
    for _ in range(9):
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()
dist.destroy_process_group()
"""
SIZES = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from cclbench.torch.job import CapturedJob


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)


def told(model, **other):
    print(sorted(CapturedJob(model, **other).card_facts(trained=False).model.items()))


dist.init_process_group("gloo", init_method="file://" + __file__ + ".store", rank=0, world_size=1)
told(torch.compile(Tiny()))
told(nn.parallel.DistributedDataParallel(Tiny()))
told(fully_shard(Tiny(), mesh=init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))))
told(Tiny(), mesh=init_device_mesh("cpu", (1, 1), mesh_dim_names=("pp", "dp")))
split = Tiny()
split.layer.weight.tensor_model_parallel = True
told(split)
dist.destroy_process_group()
"""
TRAINER = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from trainer_capture import Capture

config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
)
tokens = [{"input_ids": torch.arange(16), "labels": torch.arange(16)} for _ in range(64)]
arguments = TrainingArguments(
    "out", max_steps=8, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[],
    save_strategy="no", disable_tqdm=True, use_cpu=True,
)
capture = Capture("traces/finetune", wait=3, warmup=1, active=3, sequence_length=16)
Trainer(LlamaForCausalLM(config), arguments, train_dataset=tokens, callbacks=[capture]).train()
"""
LIGHTNING = """
import torch
from lightning.pytorch import LightningModule, Trainer

from lightning_capture import Capture


class Tiny(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)

    def training_step(self, batch, index):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.DataLoader(torch.randn(20, 4, 32), batch_size=None)
options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
capture = Capture("traces/fit", wait=3, warmup=1, active=3)
Trainer(max_epochs=1, callbacks=[capture], enable_model_summary=False, **options).fit(Tiny(), data)
"""


@pytest.fixture
def on_page(repository: Path, tmp_path: Path) -> Callable[[str], str]:
    """`on_page(name)`: the page's example of that file name, which is written to `tmp_path` as well."""
    named = {name: block for _, name, block in blocks((repository / "docs" / "capture.md").read_text())}

    def text(name: str) -> str:
        (tmp_path / name).write_text(named[name])
        return named[name]

    return text


def captured(tmp_path: Path, folder: str) -> Run:
    """The run of a folder, with all metrics."""
    return cclbench.run(tmp_path / folder, store=tmp_path / "runs")


def steps(run: Run) -> list[int]:
    """The steps of its first rank."""
    return sorted(
        set(run.sql("SELECT step FROM steps WHERE rank = 0 AND step IS NOT NULL")["step"].to_pylist())
    )


def test_the_example_of_pytorch(run_program: Ran, on_page: Callable[[str], str], tmp_path: Path) -> None:
    run_program(on_page("train.py"), needs=("torch",))
    folder = tmp_path / "traces" / "my-job"
    expected = {"rank0_trace.json.gz", "rank0_step_times.json", "my-job.yaml"}
    assert {path.name for path in folder.iterdir()} == expected
    told = json.loads((folder / "rank0_step_times.json").read_text())
    assert (told["unprofiled"]["steps"], told["profiled"]["steps"]) == (4, 5)
    card = load_card(folder / "my-job.yaml")
    assert (card.workload.phase, card.workload.model.name) == ("training", "Sequential")
    assert card.workload.model.parameters == 256 * 1024 + 1024 + 1024 * 256 + 256
    run = captured(tmp_path, "traces/my-job")
    assert steps(run) == [8, 9, 10, 11, 12]
    rows = {row["metric"]: row["value"] for row in run.rows if row["rank"] is None and row["step"] is None}
    assert rows["compute.achieved_flops"] > 0
    assert rows["throughput.samples"] > 0


def test_a_profiler_of_ones_own(run_program: Ran, on_page: Callable[[str], str], tmp_path: Path) -> None:
    run_program(on_page("own_profiler.py"), needs=("torch",))
    assert load_card(tmp_path / "traces/own/own.yaml").workload.phase == "inference"
    assert steps(captured(tmp_path, "traces/own")) == [4, 5, 6]


def test_one_step_in_ten(run_program: Ran, on_page: Callable[[str], str], tmp_path: Path) -> None:
    run_program(on_page("watched.py"), needs=("torch",), CCLBENCH_STORE=str(tmp_path / "runs"))
    verdicts = [json.loads(line) for line in (tmp_path / "traces/watched.jsonl").read_text().splitlines()]
    expected = [(9, "traces/watched"), (19, "traces/watched-2")]
    assert [(one["step"], one["folder"]) for one in verdicts] == expected
    assert [steps(captured(tmp_path, one["folder"])) for one in verdicts] == [[9], [19]]
    assert all(one["run"].startswith(Path(one["folder"]).name) and one["steps"] == 1 for one in verdicts)


def test_ranks_of_gloo_are_told_with_their_groups(run_program: Ran, tmp_path: Path) -> None:
    run_program(RANKS, ranks=2, needs=("torch",))
    run = captured(tmp_path, "traces/job")
    (group,) = run.groups().to_pylist()
    assert group["ranks"] == [0, 1]
    calls = run.collectives().to_pandas()
    assert calls["group"].notna().all()
    assert calls.groupby("rank").size().to_dict() == {0: 3, 1: 3}
    assert run.record.matching.complete == 3
    assert [file.facts["rank"] for file in run.record.evidence] == [0, 1]
    assert all(entry.beside for entry in run.record.ranks)
    card = load_card(tmp_path / "traces/job/job.yaml")
    assert (card.parallelism.dp_replicate, card.hardware.count, card.hardware.per_node) == (2, 2, 2)
    assert card.workload.model.parameters == 2 * (64 * 64 + 64)
    assert card.software.communication.library == "gloo"


def test_a_models_size_is_told_where_it_is_sure(run_program: Ran) -> None:
    printed = [line for line in run_program(SIZES, needs=("torch",)).splitlines() if line.startswith("[(")]
    known, unknown = "[('name', 'Tiny'), ('parameters', 36)]", "[('name', 'Tiny')]"
    # Compiled, replicated, sharded by FSDP2; then a pipeline's stage, and a part as Megatron-LM marks it.
    assert printed == [known, known, known, unknown, unknown]


def test_the_callback_of_trainer(run_program: Ran, on_page: Callable[[str], str], tmp_path: Path) -> None:
    on_page("trainer_capture.py")
    run_program(TRAINER, needs=("torch", "transformers", "accelerate"))
    card = load_card(tmp_path / "traces/finetune/finetune.yaml")
    model, batch = card.workload.model, card.workload.batch
    assert (model.name, model.layers, model.heads, model.hidden) == ("LlamaForCausalLM", 2, 4, 32)
    assert (model.head_dim, model.vocabulary, model.tied_embeddings) == (8, 64, False)
    assert (batch.global_, batch.sequence_length) == (4, 16)
    assert steps(captured(tmp_path, "traces/finetune")) == [4, 5, 6]


def test_the_callback_of_lightning(run_program: Ran, on_page: Callable[[str], str], tmp_path: Path) -> None:
    on_page("lightning_capture.py")
    run_program(LIGHTNING, needs=("torch", "lightning"))
    assert load_card(tmp_path / "traces/fit/fit.yaml").workload.model.parameters == 32 * 32 + 32
    assert steps(captured(tmp_path, "traces/fit")) == [4, 5, 6]


def test_the_example_of_jax(run_program: Ran, on_page: Callable[[str], str], tmp_path: Path) -> None:
    run_program(on_page("train_jax.py"), needs=("jax",))
    folder = tmp_path / "traces" / "my-jax-job"
    (profile,) = folder.rglob("*.xplane.pb")
    assert profile.relative_to(folder).parts[0] == "host0"
    told = json.loads((folder / "rank0_step_times.json").read_text())
    assert (told["unprofiled"]["steps"], told["profiled"]["steps"]) == (4, 5)
    card = load_card(folder / "my-jax-job.yaml")
    assert (card.workload.model.parameters, card.hardware.accelerator) == (65536, "generic-cpu")
    assert len(steps(captured(tmp_path, "traces/my-jax-job"))) == 5


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
def test_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, module: object, package: str) -> None:
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


def test_verdicts_count_lost_ranks(monkeypatch: pytest.MonkeyPatch, repository: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(verdicts, "_PATIENCE_S", 0.0)
    monkeypatch.setenv("CCLBENCH_STORE", str(tmp_path / "runs"))
    job = repository / "traces" / "tiny-llama-ddp4-gloo-cpu"
    told = verdicts.verdict_of({"step": 9, "folder": str(job)}, world=6)
    assert (told["step"], told["ranks"], told["missing_ranks"]) == (9, 4, 2)
    assert told["findings"]

# SPDX-License-Identifier: Apache-2.0
"""Capture a PyTorch job for cclbench: one trace file per rank, and the beginning of a card.

    import cclbench.torch

    with cclbench.torch.profile("traces/my-job", model=model) as profiler:
        for batch in loader:
            train_step(batch)
            profiler.step()

`watch` captures one step in N of a long job, and writes a verdict on each.
With an existing `torch.profiler.profile`, pass it `on_trace_ready=cclbench.torch.handler(folder)`.
PyTorch is imported when one of the functions is called: this module can be imported without it.
"""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cclbench.ground.errors import UsageError

if TYPE_CHECKING:
    from cclbench.torch.profiling import TorchProfile
    from cclbench.torch.watching import TrainingWatch
    from cclbench.torch.writing import TraceHandler

__all__ = ["annotate_collectives", "handler", "profile", "watch"]


def profile(
    folder: str | Path,
    *,
    wait: int = 5,
    warmup: int = 3,
    active: int = 5,
    shapes: bool = True,
    stacks: bool = False,
    memory: bool = False,
    memory_snapshot: bool = False,
    execution_trace: bool = False,
    model: Any = None,
    mesh: Any = None,
    global_batch: int | None = None,
    sequence_length: int | None = None,
    phase: str | None = None,
) -> TorchProfile:
    """A context manager that profiles `active` steps; call its `step()` at the end of each step of the job.

    Enter it on every rank at the same place of the program.  The first `wait` steps run without the
    profiler, and all but the first of them are timed, as are the profiled ones; the profiler's relative
    overhead is `overhead` afterwards, and step times are in `rank{R}_step_times.json`.  Between the two,
    `warmup` steps run with a profiler that records nothing.

    `shapes`, `stacks` and `memory` are the profiler's record_shapes, with_stack and profile_memory.  Beside
    `rank{R}_trace.json.gz`, `execution_trace` writes `rank{R}_et.json`, and `memory_snapshot` what CUDA's
    allocator did since the end of `wait`, `rank{R}_memory_snapshot.pickle`.  Collectives of gloo are
    annotated, see `annotate_collectives`.

    Rank 0 begins a card with what is known of the job: `model` is the module, wrapped or not, `mesh` the
    DeviceMesh, `global_batch` the samples per step over all ranks, `sequence_length` the tokens per sample,
    `phase` training, inference or serving (by default training if an optimizer took a step).

    Raises `UsageError` without PyTorch, and if the folder has traces of ranks that this job lacks.
    """
    _require_torch()
    from cclbench.torch.job import CapturedJob
    from cclbench.torch.profiling import Recording, TorchProfile, has_cuda

    if memory_snapshot and not has_cuda():
        warnings.warn("no memory snapshot: it requires CUDA", stacklevel=2)
        memory_snapshot = False
    job = CapturedJob(model, mesh, global_batch, sequence_length, phase)
    recording = Recording(shapes, stacks, memory, memory_snapshot, execution_trace)
    return TorchProfile(Path(folder), (wait, warmup, active), recording, job)


def watch(
    folder: str | Path,
    *,
    every: int = 1000,
    log: str | Path | None = None,
    shapes: bool = True,
    model: Any = None,
    mesh: Any = None,
    global_batch: int | None = None,
    sequence_length: int | None = None,
    phase: str | None = None,
) -> TrainingWatch:
    """A context manager that captures the last of each `every` steps; call its `step()` after each step.

    Enter it on every rank at the same place of the program.  Traces go into `folder`, `folder`-2, ..., which
    all ranks share.  Beside the job, a process of the lowest priority on rank 0 reads each capture into the
    store ($CCLBENCH_STORE, else `runs`), and adds a line of JSON to `log` (by default `folder`.jsonl): the
    step, and the answer of `cclbench run --json --brief`, the culprit first.  At the end it waits for the
    last verdict.  The other arguments are those of `profile`.

    The profiler is off in all steps but the captured one and the one before it, which warms it up; with gloo,
    the annotation of collectives remains.  Raises `UsageError` without PyTorch, or if `every` is less than 3.

        with cclbench.torch.watch("traces/my-job", every=500) as watching:
            for batch in loader:
                train_step(batch)
                watching.step()
    """
    _require_torch()
    from cclbench.torch.job import CapturedJob
    from cclbench.torch.watching import TrainingWatch

    job = CapturedJob(model, mesh, global_batch, sequence_length, phase)
    place = Path(folder)
    return TrainingWatch(
        place, every, place.with_name(f"{place.name}.jsonl") if log is None else Path(log), shapes, job
    )


def handler(
    folder: str | Path,
    *,
    model: Any = None,
    mesh: Any = None,
    global_batch: int | None = None,
    sequence_length: int | None = None,
    phase: str | None = None,
) -> TraceHandler:
    """For `torch.profiler.profile(on_trace_ready=...)`: writes each rank's trace, and rank 0 begins a card.

    The first trace goes into `folder`, those of further cycles of the schedule into `folder`-2, `folder`-3,
    ...: each is a separate run.  The other arguments are those of `profile`.
    """
    _require_torch()
    from cclbench.torch.job import CapturedJob
    from cclbench.torch.writing import TraceHandler

    return TraceHandler(Path(folder), CapturedJob(model, mesh, global_batch, sequence_length, phase))


def annotate_collectives() -> None:
    """Record the process group of all further gloo collectives in traces; see `cclbench.torch.collectives`.

    `profile` does so by itself.  Call it on every rank at the same place, best right after
    init_process_group; further calls have no effect.
    """
    _require_torch()
    from cclbench.torch.collectives import annotate_collectives as annotate

    annotate()


def _require_torch() -> None:
    if find_spec("torch") is None:
        raise UsageError("cclbench.torch needs PyTorch, which is not installed", hint="pip install torch")

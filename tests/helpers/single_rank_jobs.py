# SPDX-License-Identifier: Apache-2.0
"""Simulated jobs traced on one rank, with the rows of their gradients, and projected to many."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import cclbench
from cclbench.card.model import card_of
from cclbench.replay.projection import project_run
from helpers.scaled_jobs import LARGE, SYSTEM, Job, Scaled, job
from helpers.synthetic import Distortion, Layout, simulate, write
from helpers.true_steps import _true_step

DEGREES = ((64, 1, 1), (32, 2, 1), (16, 4, 1), (8, 8, 1), (16, 1, 4), (4, 4, 4))
LAYOUTS = [Layout(dp=dp, tp=tp, pp=pp) for dp, tp, pp in DEGREES]
_HIDDEN = 1024
_KERNELS = 4
"""Kernels of a layer in one direction."""


def from_one_rank(seed: int) -> Scaled:
    """A job by chance: simulated on one rank and on 64, and projected from the former's trace."""
    large = LAYOUTS[seed % len(LAYOUTS)]
    drawn = job(seed)
    sizes = {"microbatches": 4, "layers": 8} if large.pp > 1 else {"microbatches": 1}
    one = replace(drawn, small=Layout(), large=large, sharded=False, **sizes)
    truth = simulate(one.small, one.program(one.small), one.network, seed)
    other = simulate(large, one.program(large), one.network, seed + 1)
    with TemporaryDirectory() as folder:
        traces = Path(folder) / "traces"
        write(truth, traces, Distortion(events=True))
        _add_gradients(traces / "rank0_trace.json", one)
        run = cclbench.ingest(traces, store=Path(folder) / "store")
        run.card = card_of(_card(one), run.path)
        layout = f"dp={large.dp},tp={large.tp},pp={large.pp}"
        (predicted,) = project_run(run, SYSTEM, LARGE, layout=layout).result.predicted
    return Scaled(one, _true_step(truth), _true_step(other), predicted)


def _card(one: Job) -> dict[str, object]:
    """What a card states of the job; two bytes an element."""
    model = {"layers": one.layers, "parameters": one.gradient * one.layers // 2, "hidden": _HIDDEN}
    batch = {"micro": 1, "sequence_length": one.activation // (2 * _HIDDEN)}
    workload = {"phase": "training", "model": model, "precision": "bf16", "batch": batch}
    stated = {"version": 2, "id": "simulated", "description": "A simulated job", "workload": workload}
    return stated | {"parallelism": {"microbatches": one.microbatches}}


def _add_gradients(trace: Path, one: Job) -> None:
    """Add a gradient's row behind the launch of the last kernel of each layer in backward."""
    told = json.loads(trace.read_text())
    events = told["traceEvents"]
    kernels = sorted(
        (event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"]
    )
    launches = {event["args"]["correlation"]: event for event in events if event.get("cat") == "cuda_runtime"}
    pass_ = _KERNELS * one.layers * one.microbatches
    each = 2 * pass_ + 1
    for step in range(len(kernels) // each):
        backward = kernels[step * each + pass_ : (step + 1) * each - 1]
        for kernel in backward[_KERNELS - 1 :: _KERNELS]:
            launch = launches[kernel["args"]["correlation"]]
            row = {name: launch[name] for name in ("ph", "pid", "tid")}
            row |= {"cat": "cpu_op", "name": "torch::autograd::AccumulateGrad", "dur": 0.001}
            row |= {"ts": launch["ts"] + launch["dur"] + 0.001}
            sizes = {"Input Dims": [[one.gradient // 2]], "Input type": ["c10::BFloat16"]}
            events.append(row | {"args": sizes | {"External id": 10_000_000 + len(events)}})
    trace.write_text(json.dumps(told))

# SPDX-License-Identifier: Apache-2.0
"""A job in which every text that a stranger writes is hostile: of kernels, groups, devices, files, models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

PLANTED: Final = "breakout"
"""File that a text which reaches a shell would make in the working folder."""

TEXTS: Final = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "</style></title></svg><svg onload=alert(3)>",
    "--><b>bold</b><!-- ]]>",
    "<a href='javascript:alert(4)'>link</a>",
    "{{ 7 * 7 }}{% raw %}{# no #}",
    f"$(touch {PLANTED})",
    f"`touch {PLANTED}`; touch {PLANTED} | touch {PLANTED} & touch {PLANTED}",
    f"../../{PLANTED}",
    f"/etc/../{PLANTED}",
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x07\x1b]52;c;eA==\x07\b\b\x7f\x90+q\x9d0;t\x9c\x9f",
    "\u202egnp.exe",
    "\u202a\u202b\u202c\u202d\u2067\u2068\u2069\u200e\u200f\u061c\u200c\u200d\U000e0041 tags",
    "zero\u200bwidth\u2066isolate\ufeff",
    "nul\x00here",
    "line\r\nbreaks\ttabs\u2028\u2029\x85",
    "| cell | [text](http://evil.example) | <details><summary>s</summary> **b** `c` # _e_ |",
    "![x](http://evil.example/pixel.png) @someone https://evil.example",
    '=cmd|"/C calc"!A1',
    "[bold red]markup[/] [link=http://evil.example]x[/link]",
    "$\\frac{1}{0}$ $x_",
    "%s%n {0} {x!r} %(y)d",
    "'; DROP TABLE events; --",
    "n" * 100_000,
)
"""What pages, terminals, shells, paths, templates, pictures, tables and queries could take for their own."""

SHORT: Final = tuple(text for text in TEXTS if len(text) < 200)
ALL: Final = " ".join(SHORT)


def _event(name: str, category: str, begin_us: float, length_us: float, **args: Any) -> dict[str, Any]:
    place = {"pid": 0, "tid": 7} if category in ("kernel", "gpu_memcpy") else {"pid": 4242, "tid": 4242}
    event = {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": length_us, **place}
    return {**event, "args": args}


def _step(step: int, rank: int) -> list[dict[str, Any]]:
    """20 µs for each text: annotation, module, operator, launch and kernel of that name; one all-reduce."""
    at, launch = 1000.0 + 1000 * step, 100 * step
    events = [_event(f"ProfilerStep#{step}", "user_annotation", at, 950)]
    for n, text in enumerate(TEXTS):
        begin = at + 20 * n + rank
        aside = text if len(text) < 1000 else "long"  # a megabyte for each kernel is enough
        events += [
            _event(aside, "user_annotation", begin + 1, 18),
            _event(f"nn.Module: {aside}_0", "python_function", begin + 1.5, 17),
            _event(aside, "cpu_op", begin + 2, 16),
            _event("cudaLaunchKernel", "cuda_runtime", begin + 3, 2, correlation=launch + n),
            _event(text, "kernel", begin + 6, 10, correlation=launch + n, grid=[54, 1, 1]),
        ]
    begin = at + 20 * len(TEXTS) + 10 * rank
    told = {"Collective name": "allreduce", "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000}
    told |= {"dtype": ALL if step else "Float", "Group size": 2, "Process Group Name": "0"}
    told |= {"Process Group Description": ALL, "Process Group Ranks": "[0, 1]", "correlation": launch + 99}
    name = f"ncclDevKernel_AllReduce_Sum_f32_RING_LL({ALL})"
    events.append(_event("cudaLaunchKernel", "cuda_runtime", begin, 2, correlation=launch + 99))
    return [*events, _event(name, "kernel", begin + 5, 60 - 10 * rank, **told)]


def trace(rank: int) -> dict[str, Any]:
    """Rank 0 or 1 of 2, as PyTorch's profiler writes it."""
    device = {"id": 0, "name": f"{ALL}{TEXTS[-1]}", "numSms": 108, "totalGlobalMem": 8 * 10**10}
    group = {"pg_name": "0", "pg_desc": ALL, "backend_config": ALL, "pg_size": 2, "ranks": [0, 1]}
    job = {"backend": "nccl", "rank": rank, "world_size": 2, "nccl_version": ALL, "pg_config": [group]}
    named = [
        {"ph": "M", "name": f"{what}_name", "pid": 0, "tid": tid, "ts": 0, "args": {"name": ALL}}
        for what, tid in (("process", 0), ("thread", 7))
    ]
    document = {"schemaVersion": 1, "deviceProperties": [device], "distributedInfo": job, ALL: TEXTS[-1]}
    return document | {"traceEvents": [*named, *_step(0, rank), *_step(1, rank)], "traceName": ALL}


def file_name(rank: int) -> str:
    """A name that a file may have, hostile in every medium; at most 255 bytes."""
    shells = f"`touch {PLANTED}`$(touch {PLANTED})"
    return f"rank{rank} <img src=x onerror=alert(5)>{shells}|\u202e{{{{7*7}}}}&=.json"


def card(identity: str, paths: list[str], **model: Any) -> dict[str, Any]:
    """A valid card; control characters aside, every text of it is hostile."""
    plain = "".join(c for c in ALL if c.isprintable() or c in "\u202e\u200b\u2066")
    sizes = {"parameters": 8_325_632, "embedding_parameters": 1_048_576, "tied_embeddings": False}
    sizes |= {"layers": 2, "heads": 8, "head_dim": 64}
    traces = [
        {"path": path, "format": "kineto", "ranks": [rank], "licence": plain}
        for rank, path in enumerate(paths)
    ]
    workload: dict[str, Any] = {"phase": "training", "precision": "bf16", "dataset": plain}
    workload["model"] = {"name": plain, "family": plain, **sizes, **model}
    workload["batch"] = {"global": 16, "sequence_length": 128}
    software: dict[str, Any] = {"framework": {"name": "pytorch", "version": plain}, "compiler": plain}
    software["communication"] = {"library": "nccl", "version": plain, "environment": {"NCCL_X": plain}}
    hardware = {"accelerator": "nvidia-a100-sxm-80gb", "count": 2, "per_node": 2, "driver": plain}
    stated = {"version": 2, "id": identity, "description": plain + "d" * 20_000, "workload": workload}
    stated |= {"hardware": hardware, "software": software, "parallelism": {"dp_replicate": 2}}
    return stated | {"evidence": {"traces": traces}, "contributor": {"name": plain}}


def write(folder: Path, identity: str = "hostile", **model: Any) -> Path:
    """The job's card, its traces beside it in the folder of its id; returns the card's path."""
    traces = folder / "traces" / identity
    traces.mkdir(parents=True)
    paths = []
    for rank in (0, 1):
        (traces / file_name(rank)).write_text(json.dumps(trace(rank)))
        paths.append(f"traces/{identity}/{file_name(rank)}")
    path = folder / "workload_cards" / f"{identity}.yaml"
    path.parent.mkdir(exist_ok=True)
    # A JSON document is a YAML document.
    path.write_text(json.dumps(card(identity, paths, **model)))
    scripts = folder / "scripts" / identity
    scripts.mkdir(parents=True)
    (scripts / "run.sh").write_text("#!/bin/sh\n# " + "".join(c for c in ALL if c.isprintable()))
    return path

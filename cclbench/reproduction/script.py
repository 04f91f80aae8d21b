# SPDX-License-Identifier: Apache-2.0
"""Write the micro-benchmark of recorded calls.

What a trace states gets into the program as one JSON literal, never as code.
"""

from __future__ import annotations

import json
from functools import partial
from importlib.resources import files
from typing import Any, Final

import numpy as np

from cclbench.classify.arithmetic import kernel_arithmetic
from cclbench.ground.errors import UsageError
from cclbench.reproduction.arguments import NotRecorded, recorded_arguments, require_reproducible
from cclbench.reproduction.recorded import RecordedCalls

_PLACE: Final = "r'''{}'''"
_VENDORS: Final = (None, "nvidia", "amd")
"""Vendors whose devices PyTorch calls `cuda`."""
_SECONDS: Final = 2.0
"""Aim of the time of all repeats."""
_REPEATS: Final = (10, 200)


def benchmark_script(calls: RecordedCalls, stated_dtype: str | None = None) -> str:
    """The program, which needs PyTorch alone.

    `stated_dtype`: element type of tensors whose type is not recorded.  `UsageError` if the calls cannot be
    reproduced, with the reason.
    """
    try:
        described = call_description(calls, stated_dtype)
    except NotRecorded as why:
        raise UsageError(f"{calls.operator} cannot be reproduced: {why}", where=calls.run) from None
    template = (files("cclbench.reproduction") / "microbenchmark.py").read_text("utf-8")
    before, after = template.split(_PLACE)
    # A raw literal ends at a quote, and JSON has an apostrophe only within texts, where it can be escaped.
    text = _lines(described).replace("'", "\\u0027")
    return f"{before}r'''\n{text}\n'''{after}"


def _lines(described: dict[str, Any]) -> str:
    """JSON with a line for each entry, and for each argument."""
    dump = partial(json.dumps, ensure_ascii=True, allow_nan=False)
    arguments = ",\n".join(f"    {dump(argument)}" for argument in described["arguments"])
    texts = {name: dump(value) for name, value in described.items()} | {"arguments": f"[\n{arguments}\n  ]"}
    return "{\n" + ",\n".join(f"  {dump(name)}: {text}" for name, text in texts.items()) + "\n}"


def call_description(calls: RecordedCalls, stated_dtype: str | None = None) -> dict[str, Any]:
    """The calls as the program has them; raises `NotRecorded` if they cannot be reproduced."""
    if calls.texts is None:
        raise NotRecorded("it is a kernel, and no operator call is linked to it")
    require_reproducible(calls.operator)
    arguments = recorded_arguments(calls.texts, stated_dtype)
    if any(name.startswith("Memcpy") and "DtoD" not in name for name in calls.kernels):
        raise NotRecorded("it copies between host and device, and which side is which is not recorded")
    on_host = calls.facts.works_on == "host"
    if not on_host and calls.facts.vendor not in _VENDORS:
        raise NotRecorded(
            f"micro-benchmarks run on CPUs and on GPUs of nvidia and amd, not {calls.facts.vendor}"
        )
    seconds = trace_seconds(calls)
    repeats = round(min(max(_SECONDS / max(seconds["p50_s"], 1e-9), _REPEATS[0]), _REPEATS[1]))
    return {
        "operator": calls.operator,
        "arguments": arguments,
        "stated_dtype": stated_dtype,
        "device": "cpu" if on_host else "cuda",
        "expected_kernels": list(calls.kernels),
        "tf32": any(kernel_arithmetic(name).precision == "tf32" for name in calls.kernels),
        "warmup": max(3, repeats // 10),
        "repeats": repeats,
        "trace": {"run": calls.run, "device_name": calls.facts.device_name, **seconds},
    }


def trace_seconds(calls: RecordedCalls) -> dict[str, Any]:
    """Number of the calls, and median, mean and least device time of one, in s."""
    ns = calls.times_ns
    return {
        "calls": len(ns),
        "p50_s": float(np.median(ns)) / 1e9,
        "mean_s": float(ns.mean()) / 1e9,
        "min_s": int(ns.min()) / 1e9,
    }

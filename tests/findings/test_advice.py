# SPDX-License-Identifier: Apache-2.0
"""No advice that the run refutes: each condition by a run that refutes it, and all actions by all of them."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import pytest
from helpers.hand_results import Row, a_rank, by_rank, case, listed, row

from cclbench.findings.advice import PRESUPPOSED, fitting_actions
from cclbench.findings.finding import FINDINGS

A100, V100, MI300X = "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-16GB", "AMD Instinct MI300X"


def products(*precisions: str) -> list[Row]:
    return [row("compute.product_time", 0.5, category="of_precision", stat=one) for one in precisions]


VOLTA = row("compute.product_time", 0.5, category="of_generation", stat="sm70")


def copies(*labels: str) -> list[Row]:
    return [row("time.exposed_copy", 0.1, category=label) for label in labels]


REFUTED: list[tuple[str, str | None, list[Row], str]] = [
    ("bf16 on a V100", V100, products("fp32"), "compute products in bf16"),
    ("TF32 on a V100", V100, products("fp32"), "let fp32 products use TF32"),
    ("bf16 where all kernels are Volta's", None, [*products("fp32"), VOLTA], "compute products in bf16"),
    ("fp8 on an A100", A100, products("bf16"), "compute products in fp8"),
    ("bf16 for a job in bf16", A100, products("bf16"), "compute products in bf16"),
    ("fp16 for a job in bf16", A100, products("bf16"), "autocast in fp16"),
    ("torch.compile, compiled", A100, [row("compute.compiled_share", 0.4)], "fuse with torch.compile"),
    ("pinned memory for d2d", A100, copies("d2d"), "copy from pinned memory"),
    ("pinned memory, pinned", A100, copies("h2d pinned"), "tensor.pin_memory()"),
    ("d2d where there is none", A100, copies("h2d pageable"), "copy less within the device"),
    ("the host where there is d2d alone", A100, copies("d2d"), "copies between it and the host"),
    ("NCCL's variables on AMD", MI300X, [], "NCCL_MAX_CTAS"),
    ("DDP for a serving engine", A100, [row("time.phase", 0.5, category="decode")], "DDP(bucket_cap_mb=...)"),
]

GRAPHS = "capture the step as a CUDA graph: torch.cuda.graph"
ON_HOST = {"works_on": "host", "device_name": None, "vendor": None, "producer": "PyTorch Profiler"}


def facts(name: str | None) -> dict[str, Any]:
    vendor = None if name is None else "amd" if "AMD" in name else "nvidia"
    return {"device_name": name, "vendor": vendor, "producer": "PyTorch Profiler"}


@pytest.mark.parametrize(
    ("device", "rows", "action"), [one[1:] for one in REFUTED], ids=[o[0] for o in REFUTED]
)
def test_what_the_run_refutes_is_not_advised(device: str | None, rows: list[Row], action: str) -> None:
    made = case(*rows, ranks=[a_rank(facts=facts(device))])
    assert fitting_actions([action], made) == []
    assert fitting_actions([action], case(ranks=[a_rank(facts=facts(None))])) == [action]  # nothing is known
    assert fitting_actions(["look at the timeline"], made) == ["look at the timeline"]


def test_the_catalog_knows_the_vendor_where_traces_do_not() -> None:
    unnamed = facts(MI300X) | {"vendor": None}
    assert fitting_actions(["set NCCL_MAX_CTAS"], case(ranks=[a_rank(facts=unnamed)])) == []


def test_each_condition_has_an_action_and_a_run_that_refutes_it() -> None:
    texts = [text for name in FINDINGS for text in chain(*FINDINGS.get(name).actions.values())]
    for pattern in PRESUPPOSED:
        assert any(re.search(pattern, text) for text in texts), pattern
        assert any(re.search(pattern, one) for one in (*(one[3] for one in REFUTED), GRAPHS)), pattern
    assert fitting_actions([GRAPHS], case(ranks=[a_rank(facts=ON_HOST)])) == []
    assert fitting_actions([GRAPHS], case(ranks=[a_rank(facts=facts(None))])) == [GRAPHS]
    assert fitting_actions([GRAPHS], case(ranks=[a_rank(facts=facts(None) | {"whole_graphs": 3})])) == []


def test_where_the_cpu_is_the_device_no_advice_is_for_another() -> None:
    ranks = [a_rank(one, facts=ON_HOST) for one in range(2)]
    rows = [row for row in EVERYTHING if row["metric"] != "time.exposed_copy"]
    rows += by_rank("time.idle_host_by", 0.2, 0.2, category="cold_start")
    rows += by_rank("time.idle_host_by", 0.2, 0.2, category="sync")
    told = {one.name: one for one in listed(*rows, ranks=ranks)}
    assert {"data_loading", "host_bound", "cold_start"} <= set(told)
    assert "synchronization" not in told  # the thread waits for transfers, never for a device
    for one in told.values():
        assert [text for text in one.try_ if re.search(r"(?i)cuda|nccl|gpu", text)] == []
        said = (one.claim, one.because, *one.try_) if one.host_causes else ()
        assert [text for text in said if re.search(r"(?i)\bdevice\b|kernel|launch", text)] == []


EVERYTHING = [
    *by_rank("time.step", 1.0, 1.0),
    *by_rank("time.exposed_copy", 0.2, 0.2),
    *by_rank("compute.time", 0.7, 0.7),
    *by_rank("compute.category_share", 0.5, 0.5, category="elementwise"),
    *by_rank("compute.above_roofline", 0.3, 0.3, category="gemm"),
    row("compute.gemm_efficiency", 0.3),
    *by_rank("time.idle_host_by", 0.3, 0.3, category="loader"),
    *by_rank("time.idle_host_by", 0.3, 0.3, category="python"),
    *by_rank("time.exposed_unmatched", 0.5, 0.5),
]


@pytest.mark.parametrize("framework", ["PyTorch Profiler", "JAX profiler", "XLA profiler", "Nsight Systems"])
@pytest.mark.parametrize(("device", "rows"), [one[1:3] for one in REFUTED], ids=[one[0] for one in REFUTED])
def test_no_finding_advises_what_the_run_refutes(framework: str, device: str | None, rows: list[Row]) -> None:
    ranks = [a_rank(one, facts=facts(device) | {"producer": framework}) for one in range(2)]
    made = case(*EVERYTHING, *rows, ranks=ranks)
    refuted = [pattern for pattern, fact in PRESUPPOSED.items() if fact(made) is False]
    told = [text for one in listed(*EVERYTHING, *rows, ranks=ranks) for text in one.try_]
    assert told
    assert [text for text in told for pattern in refuted if re.search(pattern, text)] == []
    own = {"PyTorch Profiler": "pytorch", "JAX profiler": "jax"}.get(framework)
    others = {
        text
        for name in FINDINGS
        for key, of in FINDINGS.get(name).actions.items()
        for text in of
        if key not in ("any", own)
    } - {text for name in FINDINGS for text in FINDINGS.get(name).advice(own)}
    assert not others & set(told)  # JAX's advice is not TensorFlow's

# SPDX-License-Identifier: Apache-2.0
"""Each of the 61 names that CCL-Bench's tools/main.py takes is answered: by a metric, or by why none is."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call  # noqa: F401 - a fixture

import cclbench
from cclbench.analyzers.aliases import ALIASES, REFUSALS, SYNONYMS
from cclbench.analyzers.metric import METRICS, resolve_metrics
from cclbench.ground.errors import UsageError

NAMES = [
    *("wall_time_s", "total_compute_time_s", "total_comm_time_s", "avg_comm_kernel_time_s"),
    *("allreduce_comm_time_s", "compute_utilization_proxy", "num_comm_kernels", "avg_comm_bandwidth_GBps"),
    *("hockney_alpha_s", "hockney_beta_s_per_byte", "hockney_inverse_beta_Bps"),
    *("achieved_flops_from_trace_json", "total_model_flops_from_args", "throughput"),
    *("estimated_throughput_tokens_per_s", "flops_per_token_used", "estimated_total_tokens"),
    *("coll_call_num", "mfu", "avg_step_time", "ttft", "tpot", "communication_ratio", "total_trace_time"),
    *("total_kernel_time", "total_communication_time", "break_down_steps", "communication_fraction"),
    *("moe_fraction", "dominant_kernel_concentration", "aggregate_gpu_utilization", "mean_sm_coverage"),
    *("memory_transfer_overhead", "average_memory_bandwidth", "memory_bound_fraction"),
    *("load_imbalance_ratio", "communication_overlap_ratio", "compute_comm_overlap", "ttft_group_6"),
    *("tpot_group_6", "bandwidth_utilization_allgather_group_6"),
    *("bandwidth_utilization_allreduce_group_6", "bandwidth_utilization_alltoall_group_6"),
    *("bandwidth_utilization_reducescatter_group_6", "bandwidth_utilization_peertopeer_group_6"),
    *("kernel_compute_time_group_6", "throughput_group_6", "straggler", "straggler_metrics"),
    *("comm_kernel_breakdown_tpu", "estimated_bandwidth", "traffic_window", "communication_overhead"),
    *("bandwidth_utilization", "gpu_step_score", "scale_up_bw_utility", "collective_vol_allreduce_gb"),
    *("collective_vol_allgather_gb", "collective_vol_reducescatter_gb", "collective_vol_alltoall_gb"),
    "collective_vol_total_gb",
]
"""Of github.com/cornell-sysphotonics/ccl-bench, tools/main.py, at 1d257f0."""
WITHOUT_VALUE = {
    "moe_fraction": "compute.moe_share",
    "bandwidth_utilization_peertopeer_group_6": "comm.bandwidth_utilization",
    "scale_up_bw_utility": "whatif.scale_up_bandwidth_x2",
    "straggler_metrics": "balance.straggler_slowdown",
}
"""Names whose answer on this evidence is why there is no value; tests of their metrics have values."""


def test_every_name_has_one_answer() -> None:
    assert len(NAMES) == len(set(NAMES)) == 61
    answers = [set(ALIASES), set(REFUSALS), set(SYNONYMS) & set(NAMES)]
    assert set().union(*answers) == set(NAMES)
    assert sum(map(len, answers)) == 61
    assert not set(METRICS) & set(NAMES)


@pytest.fixture(scope="module")
def values(repository: Path, test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, float]:
    """Values of runs by metric and kind of collective: two shipped data points, DLRM, a client's results."""
    cards = repository / "workload_cards"
    (results, *_) = sorted((test_data / "serving_vllm").rglob("cf_c4_b1_r1.json"))
    store = tmp_path_factory.mktemp("names")
    sources = (
        cards / "tiny-llama-fsdp2-tp2-gloo-cpu.yaml",
        cards / "llama-train-h100.yaml",
        test_data / "kineto" / "dlrm_8xv100",
        results,
    )
    return {
        (row["metric"], row["collective"]): row["value"]
        for source in sources
        for row in cclbench.run(source, store=store).rows
        if row["value"] is not None and row["rank"] is row["step"] is row["stat"] is None
    }


@pytest.mark.parametrize("name", sorted({*ALIASES, "throughput"} - set(WITHOUT_VALUE)))
def test_a_name_answers_with_a_value(name: str, values: dict[Any, float]) -> None:
    for metric, alias in resolve_metrics([name]):
        kinds = alias.collectives if alias is not None else (None,)
        found = [values[metric.name, kind] for kind in kinds if (metric.name, kind) in values]
        assert found, metric.name


@pytest.mark.parametrize(("name", "metric"), WITHOUT_VALUE.items())
def test_a_name_answers_with_the_reason(name: str, metric: str, repository: Path, tmp_path: Path) -> None:
    card = repository / "workload_cards" / "tiny-llama-fsdp2-tp2-gloo-cpu.yaml"
    rows = cclbench.run(card, store=tmp_path, metrics=[name]).rows
    own = [row for row in rows if row["rank"] is None and row["stat"] is None]
    assert [(row["metric"], row["value"], bool(row["reason"])) for row in own] == [(metric, None, True)]


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_a_refused_name_says_why_and_what_to_ask(name: str, call: Callable[..., Any]) -> None:  # noqa: F811
    with pytest.raises(UsageError, match=f"{name} of CCL-Bench stands for no metric: ") as raised:
        resolve_metrics([name])
    assert str(raised.value.hint) == f"instead: {REFUSALS[name].instead}"
    topics = {METRICS.get(metric).topic for metric in METRICS}
    asked = re.findall(rf"\b(?:{'|'.join(topics)})\.\w+", REFUSALS[name].instead)
    assert asked
    assert [metric for metric in asked if metric not in METRICS] == []
    answer = call("explain", name)
    assert (answer.code, answer.out) == (2, "")
    assert f"{name} of CCL-Bench stands for no metric" in answer.err


def test_peer_to_peer_is_a_share_of_the_link_and_no_rate() -> None:
    ((metric, alias),) = resolve_metrics(["bandwidth_utilization_peertopeer_group_6"])
    assert (metric.name, metric.unit) == ("comm.bandwidth_utilization", "1")
    assert alias is not None
    assert alias.collectives == ("send", "recv", "send_recv")

# SPDX-License-Identifier: Apache-2.0
"""Metric families of serving engines: our metric, its kind and unit by the engine's name.

Sources: vLLM, docs/usage/metrics.md and vllm/v1/metrics/loggers.py; SGLang,
docs/references/production_metrics.md and python/sglang/srt/metrics/collector.py; NIXL, docs/telemetry.md and
src/core/telemetry/telemetry_event.h.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric family: what it is of, and the divisor from its unit to ours."""

    metric: str
    kind: Literal["histogram", "counter", "gauge"] = "histogram"
    per_unit: float = 1


_ENGINES: Final = {
    "vllm:": {
        "time_to_first_token_seconds": MetricFamily("ttft"),
        "inter_token_latency_seconds": MetricFamily("itl"),
        "time_per_output_token_seconds": MetricFamily("itl"),  # the name of the same until 2025
        "request_time_per_output_token_seconds": MetricFamily("tpot"),
        "e2e_request_latency_seconds": MetricFamily("e2e_latency"),
        "request_queue_time_seconds": MetricFamily("queue"),
        "request_prefill_time_seconds": MetricFamily("prefill"),
        "request_decode_time_seconds": MetricFamily("decode"),
        "request_inference_time_seconds": MetricFamily("inference"),
        "nixl_xfer_time_seconds": MetricFamily("transfer"),
        "nixl_bytes_transferred": MetricFamily("transferred_bytes"),
        "prompt_tokens": MetricFamily("prompt_tokens", "counter"),
        "generation_tokens": MetricFamily("generated_tokens", "counter"),
        "request_success": MetricFamily("completed", "counter"),
        "num_preemptions": MetricFamily("preemptions", "counter"),
        "prefix_cache_queries": MetricFamily("prefix_queries", "counter"),
        "prefix_cache_hits": MetricFamily("prefix_hits", "counter"),
        "num_requests_running": MetricFamily("running", "gauge"),
        "num_requests_waiting": MetricFamily("waiting", "gauge"),
        "kv_cache_usage_perc": MetricFamily("kv_cache_usage", "gauge"),
    },
    "sglang:": {
        "time_to_first_token_seconds": MetricFamily("ttft"),
        "inter_token_latency_seconds": MetricFamily("itl"),
        "time_per_output_token_seconds": MetricFamily("itl"),
        "e2e_request_latency_seconds": MetricFamily("e2e_latency"),
        "queue_time_seconds": MetricFamily("queue"),
        "kv_transfer_latency_ms": MetricFamily("transfer", per_unit=1000),
        "kv_transfer_total_mb": MetricFamily("transferred_bytes", per_unit=2**-20),
        "prompt_tokens": MetricFamily("prompt_tokens", "counter"),
        "generation_tokens": MetricFamily("generated_tokens", "counter"),
        "num_requests": MetricFamily("completed", "counter"),
        "num_running_reqs": MetricFamily("running", "gauge"),
        "num_queue_reqs": MetricFamily("waiting", "gauge"),
        "token_usage": MetricFamily("kv_cache_usage", "gauge"),
    },
    # NIXL's agents: sent are writes, received are reads that the agent posted
    "agent_": {
        "xfer_time_us": MetricFamily("transfer", per_unit=10**6),
        "tx_bytes": MetricFamily("sent_bytes", "counter"),
        "rx_bytes": MetricFamily("received_bytes", "counter"),
        "tx_requests_num": MetricFamily("sent_transfers", "counter"),
        "rx_requests_num": MetricFamily("received_transfers", "counter"),
    },
}
_SUFFIXES: Final = {
    "histogram": {"_sum": "sum", "_count": "count", "_bucket": "bucket"},
    "counter": {"_total": "total", "": "total"},
    "gauge": {"": "value"},
}
SERIES: Final = {
    engine + name + suffix: (family, part)
    for engine, families in _ENGINES.items()
    for name, family in families.items()
    for suffix, part in _SUFFIXES[family.kind].items()
}
"""MetricFamily and part by the name of a sample."""
PREFIXES: Final = ("vllm:", "sglang:", "agent_xfer_time_")
"""How names of metrics begin that are of these engines alone."""
_RANK: Final = re.compile(r"\d{1,4}", re.ASCII)
LABELS: Final = {
    **dict.fromkeys(("engine", "tp_rank", "pp_rank", "dp_rank", "moe_ep_rank", "series"), _RANK),
    "engine_type": re.compile("unified|prefill|decode"),
    "finished_reason": re.compile("stop|length|abort|error|repetition"),
}
"""Labels that are kept, and their values; `series` numbers sets whose other labels, such as hosts, differ."""

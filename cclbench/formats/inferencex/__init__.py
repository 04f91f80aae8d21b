# SPDX-License-Identifier: Apache-2.0
"""InferenceX's aggregated results (InferenceMAX until 2025): an object or an array, a benchmark each.

Its utils/process_result.py writes rates per GPU and latencies in seconds.  On one node the number of GPUs is
tp · pp · pcp_size.  Of disaggregated serving `tput_per_gpu` is over all GPUs, but `output_tput_per_gpu` over
those that decode and `input_tput_per_gpu` over those that prefill: both are converted to rates of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.rewriting import SOURCE_PATH, SYSTEM
from cclbench.formats.serving.figures import LONGEST_WAIT_S, model_name
from cclbench.formats.serving.lines import WrittenResult, is_number, listed_results
from cclbench.formats.texts import strip_decoration
from cclbench.ground.errors import InputError
from cclbench.ground.evidence_schema import SERVING

_LATENCY: Final = re.compile(r"(mean|median|std|p[1-9]\d?|p99\.9)_(ttft|tpot|itl|e2el)")
_MOST_GPUS: Final = 1 << 20
_LONGEST_NAME: Final = 128
_AGREE: Final = 0.01
_OTHER_KIND: Final = "results without tput_per_gpu, as those of agents"
_CONTRADICT: Final = "results whose rates per GPU contradict their numbers of GPUs"
_NAMES: Final = ("hw", "framework", "precision", "spec_decoding")


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """One published point: what was served, on how many GPUs, at which load, and its figures."""

    model: str
    names: Mapping[str, str]
    """Hardware, framework, precision and speculative decoding, as far as they are stated."""
    input_length: int | None
    output_length: int | None
    devices: int
    concurrency: int
    total_per_s: float
    output_per_s: float | None
    latencies: Mapping[tuple[str, str], float]
    """Seconds by figure and stat."""
    is_disaggregated: bool
    """Whether some GPUs prefill and others decode."""
    contradicts: bool
    """Whether the rates per GPU contradict the numbers of GPUs by more than 1 %."""

    @property
    def workload(self) -> str:
        """What was served, in words."""
        lengths = (("input", self.input_length), ("output", self.output_length))
        stated = [f"{length:,} {side} tokens" for side, length in lengths if length is not None]
        return ", ".join([self.model, *stated])


def inference_results(path: Path) -> Iterator[InferenceResult | None]:
    """Each result of the file, None for one of another kind; `InputError` for a damaged one."""
    for written in listed_results(path):
        yield None if "tput_per_gpu" not in written.entries else _parsed_result(written)


def _parsed_result(written: WrittenResult) -> InferenceResult:
    model = model_name(written.entries.get("model"))
    if model is None:
        raise written.entry_error("does not name its model")
    devices, prefill, decode = _device_counts(written)
    per_gpu = {
        side: written.bounded_number(f"{side}tput_per_gpu", written.entries[f"{side}tput_per_gpu"])
        for side in ("", "output_", "input_")
        if written.entries.get(f"{side}tput_per_gpu") is not None
    }
    if "" not in per_gpu:
        raise written.entry_error("tput_per_gpu is not a number")
    total = per_gpu[""] * devices
    output = per_gpu["output_"] * decode if "output_" in per_gpu else None
    parts = None if output is None or "input_" not in per_gpu else output + per_gpu["input_"] * prefill
    return InferenceResult(
        model=model,
        names={key: name for key in _NAMES if (name := _name(written.entries.get(key)))},
        input_length=_count(written, "isl"),
        output_length=_count(written, "osl"),
        devices=devices,
        concurrency=_required_count(written, "conc"),
        total_per_s=total,
        output_per_s=output,
        latencies=dict(_latencies(written)),
        is_disaggregated=decode != devices,
        contradicts=parts is not None and abs(parts - total) > _AGREE * total,
    )


def _device_counts(written: WrittenResult) -> tuple[int, int, int]:
    """GPUs in all, and those over which the rates of input and of output are."""
    if written.entries.get("is_multinode") is True or written.entries.get("disagg") is True:
        prefill = _required_count(written, "num_prefill_gpu")
        decode = _count(written, "num_decode_gpu") or 0
        return prefill + decode, prefill, decode or prefill
    degrees = [_count(written, name) or 1 for name in ("pp", "pcp_size")]
    devices = _required_count(written, "tp") * degrees[0] * degrees[1]
    return devices, devices, devices


def _required_count(written: WrittenResult, name: str) -> int:
    count = _count(written, name)
    if not count:
        raise written.entry_error(f"does not state {name}")
    return count


def _count(written: WrittenResult, name: str) -> int | None:
    value = written.entries.get(name)
    if value is None or value == "":
        return None
    number = written.bounded_number(name, value, _MOST_GPUS)
    if not number.is_integer():
        raise written.entry_error(f"{name} is not a whole number")
    return int(number)


def _name(value: object) -> str | None:
    return (
        value if isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable() else None
    )


def _latencies(written: WrittenResult) -> Iterator[tuple[tuple[str, str], float]]:
    for name, value in written.entries.items():
        if (match := _LATENCY.fullmatch(name)) and is_number(value):
            stat = "p50" if match[1] == "median" else match[1]
            figure = "e2e_latency" if match[2] == "e2el" else match[2]
            yield (figure, stat), written.bounded_number(name, value, LONGEST_WAIT_S)


class InferenceX(EvidenceReader):
    """Reader of InferenceX's aggregated results."""

    name = "inferencex"
    description = "InferenceX's aggregated results (JSON): agg_*.json, one or an array"
    extensions: tuple[str, ...] = (".json",)
    capture = "the artifact `results_bmk` of a run of InferenceX"
    versions = "results of 2025 (tp alone) to 2026 (prefill and decode GPUs)"
    tested = (
        "documentation, no file: utils/process_result.py of InferenceX, run on a published client's result"
    )

    withheld: Mapping[str, str] = {"image": SYSTEM, "router": SYSTEM, "model_path": SOURCE_PATH}

    def sniff(self, head: bytes) -> float:
        """Sure of the keys that every result has."""
        head = strip_decoration(head)
        keys = (b'"hw"', b'"conc"', b'"tput_per_gpu"')
        return 0.9 if head.lstrip()[:1] in (b"{", b"[") and all(key in head for key in keys) else 0.0

    def read(self, path: Path) -> Evidence:
        """The figures of every result, numbered from 0."""
        all_results = list(inference_results(path))
        results = [result for result in all_results if result is not None]
        if not results:
            raise InputError("has no result with tput_per_gpu", where=str(path), hint="pass agg_*.json")
        rows = [row for number, result in enumerate(results) for row in _figure_rows(result, number)]
        counts = {
            _OTHER_KIND: len(all_results) - len(results),
            _CONTRADICT: sum(result.contradicts for result in results),
        }
        return Evidence(
            serving=pa.Table.from_pylist(rows, schema=SERVING),
            facts={"client": "InferenceX", "workloads": [result.workload for result in results]},
            left_out={reason: count for reason, count in counts.items() if count},
        )


def _figure_rows(result: InferenceResult, benchmark: int) -> Iterator[dict[str, Any]]:
    figures: list[tuple[str, str | None, str, float | None]] = [
        ("devices", None, "count", result.devices),
        ("max_concurrency", None, "count", result.concurrency),
        ("total_throughput", None, "1/s", result.total_per_s),
        ("output_throughput", None, "1/s", result.output_per_s),
        *((figure, stat, "s", value) for (figure, stat), value in result.latencies.items()),
    ]
    for figure, stat, unit, value in figures:
        if value is not None:
            yield {
                "benchmark": benchmark,
                "figure": figure,
                "stat": stat,
                "unit": unit,
                "value": float(value),
            }


READERS.add(InferenceX.name, InferenceX(), origin=__name__)

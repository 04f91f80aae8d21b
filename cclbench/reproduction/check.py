# SPDX-License-Identifier: Apache-2.0
"""The result of a micro-benchmark beside the calls of the trace that it reproduces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.units import humanise, size_text
from cclbench.record.run import Run
from cclbench.reproduction.arguments import NotRecorded, recorded_arguments
from cclbench.reproduction.recorded import RecordedCalls, recorded_calls, works_of_operator
from cclbench.reproduction.script import trace_seconds

COLUMNS: Final = ("quantity", "trace", "reproduction", "ratio")
_LARGEST: Final = 16 << 20


class MicrobenchmarkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON line that a micro-benchmark prints; times in seconds per call."""

    schema: Literal["microbenchmark.v1"]
    operator: str
    arguments: list[Any]
    stated_dtype: str | None
    expected_kernels: tuple[str, ...]
    overload: str
    device: Literal["cpu", "cuda"]
    device_name: str | None
    torch: str
    threads: int | None
    timing: str
    warmup: int
    repeats: int
    p50_s: float
    mean_s: float
    min_s: float
    kernels: tuple[str, ...] | None
    """Kernels of a call, where a profiler was available."""
    kernel_s: float | None
    """Their time per call by the profiler."""
    operand_bytes: int
    cache_bytes: int | None
    """Size of the GPU's last-level cache."""


@dataclass(frozen=True, slots=True)
class ReproductionCheck:
    """A reproduction beside the trace."""

    run: str
    result: MicrobenchmarkResult
    traced: dict[str, Any]
    """`calls`, `p50_s`, `mean_s`, `min_s` of the trace."""
    ratio: float | None
    """Median time of the reproduction divided by that of the trace; None where the trace's is 0."""
    same_kernels: bool | None
    """Whether it ran the kernels of the trace; None where that cannot be determined."""
    trace_kernels: tuple[str, ...]
    differences: tuple[str, ...]
    unknown: tuple[str, ...]
    """What the trace or the result do not state."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each quantity with the columns of `COLUMNS`."""
        return [
            {
                "quantity": name,
                "trace": self.traced[name],
                "reproduction": (seconds := getattr(self.result, name)),
                "ratio": seconds / self.traced[name] if self.traced[name] else None,
            }
            for name in ("p50_s", "mean_s", "min_s")
        ]

    @property
    def document(self) -> dict[str, Any]:
        """The document that `--json` prints."""
        return {
            "schema": "reproduction.v1",
            "run": self.run,
            "operator": self.result.operator,
            "calls": self.traced["calls"],
            "ratio": self.ratio,
            "same_kernels": self.same_kernels,
            "trace_kernels": list(self.trace_kernels),
            "kernels": None if self.result.kernels is None else list(self.result.kernels),
            "rows": self.rows,
            "differences": list(self.differences),
            "unknown": list(self.unknown),
        }


def read_result(path: Path) -> MicrobenchmarkResult:
    """The result in a file; `InputError` if it is not one."""
    with path.open("rb") as file:
        content = file.read(_LARGEST)
    try:
        result = msgspec.json.decode(content, type=MicrobenchmarkResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "give the file to which a script of `cclbench reproduce` wrote its stdout"
        raise InputError(
            f"not the result of a micro-benchmark: {error}", where=str(path), hint=hint
        ) from None
    if min(result.p50_s, result.mean_s, result.min_s) <= 0 or result.repeats < 1:
        raise InputError("a time per call is not above 0", where=str(path))
    return result


def check_result(run: Run, result: MicrobenchmarkResult, **selection: Any) -> ReproductionCheck:
    """Compare a result with the run's calls of the same operator, arguments and kernels.

    `selection`: options of `recorded_calls`.  `UsageError` if the run has no such calls.
    """
    alike = recorded_calls(run, partial(works_of_operator, result.operator), **selection)
    matching = [calls for calls in alike if _is_reproduced(calls, result)]
    if not matching:
        raise UsageError(
            f"no call of {result.operator} with the arguments of this result",
            where=run.id,
            hint="give the SOURCE and the options from which its script was written",
        )
    calls = max(matching, key=lambda candidate: candidate.time_ns)
    traced = trace_seconds(calls)
    reproduced_s = result.p50_s if result.kernel_s is None else result.kernel_s
    same = _runs_same_kernels(calls, result)
    return ReproductionCheck(
        run=run.id,
        result=result,
        traced=traced,
        ratio=reproduced_s / traced["p50_s"] if traced["p50_s"] else None,
        same_kernels=same,
        trace_kernels=calls.kernels,
        differences=tuple(_differences(calls, result, same)),
        unknown=tuple(_unknown(calls, result, same)),
    )


def _is_reproduced(calls: RecordedCalls, result: MicrobenchmarkResult) -> bool:
    if calls.texts is None or calls.kernels != result.expected_kernels:
        return False
    try:
        return recorded_arguments(calls.texts, result.stated_dtype) == result.arguments
    except NotRecorded:
        return False


def _runs_same_kernels(calls: RecordedCalls, result: MicrobenchmarkResult) -> bool | None:
    if not calls.kernels or result.kernels is None:
        return None
    return set(calls.kernels) <= set(result.kernels)


def _differences(calls: RecordedCalls, result: MicrobenchmarkResult, same: bool | None) -> Iterator[str]:
    traced = "cpu" if calls.facts.works_on == "host" else "cuda"
    if traced != result.device:
        yield f"device: the trace ran on {traced}, the reproduction on {result.device}"
    elif calls.facts.device_name and result.device_name and calls.facts.device_name != result.device_name:
        yield f"device: {calls.facts.device_name} in the trace, {result.device_name} in the reproduction"
    if same is False:
        traced_names, names = (", ".join(kernels) for kernels in (calls.kernels, result.kernels or ()))
        yield f"kernels: {traced_names} in the trace, {names} in the reproduction"
    if result.stated_dtype is not None:
        yield f"element type: {result.stated_dtype} is as stated with --dtype; the trace does not record it"


def _unknown(calls: RecordedCalls, result: MicrobenchmarkResult, same: bool | None) -> Iterator[str]:
    yield f"PyTorch's version in the trace; the reproduction ran {result.torch}"
    if result.threads is not None:
        yield f"number of threads in the trace; the reproduction had {result.threads}"
    if calls.facts.device_name is None:
        yield "name of the trace's device"
    if same is None:
        where = "a CPU runs none" if not calls.kernels else "no profiler was available to the reproduction"
        yield f"whether the kernels are the same: {where}"
    if result.cache_bytes is not None and result.operand_bytes < result.cache_bytes:
        yield (
            f"whether the trace's operands were in the cache: those of the reproduction,"
            f" {size_text(result.operand_bytes)}, fit in the device's {size_text(result.cache_bytes)}"
        )
    yield "values, storage offsets and aliasing of the operands: the reproduction's are random and disjoint"
    if calls.facts.works_on == "host":
        yield (
            "the profiler's overhead in the trace's calls, some microseconds each;"
            f" one takes {humanise(trace_seconds(calls)['p50_s'], 's')}"
        )

# SPDX-License-Identifier: Apache-2.0
"""Micro-benchmark of one operator call as a trace recorded it.  Needs PyTorch alone.

    python FILE [--device cpu|cuda] [--warmup N] [--repeats N] > RESULT.json

Writes a line of JSON to stdout and a readable one to stderr.  Operands have the recorded sizes, types and
strides and random values that the operator accepts; every call uses the same ones.  On a GPU, time is that of
CUDA events around each call, issued while the device is kept busy so that the host's launches are not timed,
and a second pass under the profiler gives the kernels; on a CPU it is that of `time.perf_counter`.

Written by `cclbench reproduce SOURCE --row N`.  `cclbench reproduce SOURCE --check RESULT.json` sets the
result beside the trace.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

CALL: dict[str, Any] = json.loads(r'''{}''')  # fmt: skip

DTYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64",
    5: "float16", 6: "float32", 7: "float64", 9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16",
    23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz",
}  # fmt: skip
"""Element types by their numbers in c10/core/ScalarType.h, which traces record of dtype arguments."""
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
TEXT_ARGUMENTS = (
    "approximate", "rounding_mode", "reduce", "ord", "equation", "mode", "padding_mode", "indexing", "side",
)  # fmt: skip
"""Arguments that may be texts; none of them names a file."""
POSITIVE = (
    "sqrt", "rsqrt", "log", "log2", "log10", "log1p", "lgamma", "digamma", "pow", "reciprocal", "acosh",
    "multinomial", "div", "remainder", "fmod", "floor_divide",
)  # fmt: skip
POSITIVE_ARGUMENTS = (
    "running_var", "save_var", "save_invstd", "invstd", "rstd", "var", "total_weight",
    "exp_avg_sqs", "max_exp_avg_sqs", "state_steps", "scale", "scale_a", "scale_b", "scale_result",
)  # fmt: skip
BETWEEN_0_AND_1 = (
    "logit", "binary_cross_entropy", "binary_cross_entropy_backward", "bernoulli",
    "asin", "acos", "atanh", "erfinv", "special_erfinv", "special_ndtri",
)  # fmt: skip
SLEEP_CYCLES = 20_000_000
"""Keep the GPU busy for some 10 ms, in which the host enqueues a batch of calls."""
BATCH, PROFILED = 32, 10


class NotReproducible(Exception):  # noqa: N818  (an answer, not an error)
    """The call cannot be made here; the message says why."""


def matching_overload(packet: Any, recorded: list[Any]) -> Any:
    """The overload whose schema takes the recorded arguments: traces do not name it."""
    fitting: list[tuple[int, int, Any]] = []
    reasons: list[str] = []
    for name in packet.overloads():
        overload = getattr(packet, name)
        schema = overload._schema.arguments
        missing = len(schema) - len(recorded)
        if missing < 0 or not all(argument.has_default_value() for argument in schema[len(recorded) :]):
            continue
        reason = next(filter(None, map(mismatch, schema, recorded)), None)
        if reason is None:
            fitting.append((missing, len(fitting), overload))
        else:
            reasons.append(f"{name}: {reason}")
    if not fitting:
        because = "; ".join(reasons) or f"none takes {len(recorded)} arguments"
        raise NotReproducible(f"no overload of this PyTorch takes the recorded arguments ({because})")
    return min(fitting)[2]


def mismatch(argument: Any, recorded: Any) -> str | None:
    """Why an argument of a schema cannot be the recorded one; None if it can."""
    kind = str(argument.type)
    optional = kind.startswith("Optional[") or argument.has_default_value()
    kind = kind.removeprefix("Optional[").removesuffix("]" if kind.startswith("Optional[") else "")
    if recorded is None:
        return None if optional or kind in ("Generator", "Device") else f"{argument.name} is not recorded"
    wanted = {"Tensor": "tensor", "List[Tensor]": "tensors", "List[Optional[Tensor]]": "tensors"}
    if wanted.get(kind, "value") not in recorded:
        return f"{argument.name} is a {kind}"
    value = recorded.get("value")
    if (isinstance(value, list) and not kind.startswith("List[")) or (
        isinstance(value, str) and kind.startswith("List[")
    ):
        return f"{argument.name} is a {kind}"
    if kind == "str" and argument.name not in TEXT_ARGUMENTS:
        return f"the text {argument.name} is not allowed"
    return None


def plain_value(argument: Any, value: Any) -> Any:
    """A recorded value as the type of its argument; raises `NotReproducible`."""
    kind = str(argument.real_type)
    kind = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
    if kind == "ScalarType":
        return torch_dtype(DTYPES.get(value, "")) if isinstance(value, int) else torch_dtype(str(value))
    if kind == "MemoryFormat" and value in range(len(MEMORY_FORMATS)):
        return getattr(torch, MEMORY_FORMATS[value])
    if kind == "Layout" and value == 0:
        return torch.strided
    if kind in ("number", "float") and isinstance(value, str):
        return float(value)
    if kind == "float":
        return float(value)
    if kind in ("int", "SymInt", "bool", "number", "str") or kind.startswith("List["):
        return value
    raise NotReproducible(f"{argument.name} is a {kind}, whose recorded value {value!r} has no meaning here")


def torch_dtype(name: str) -> Any:
    """The type of that name."""
    if name not in DTYPES.values() or not hasattr(torch, name):
        raise NotReproducible(f"this PyTorch has no element type {name!r}")
    return getattr(torch, name)


class Operands:
    """Makes the operands of a call; `sizes` and `values` are those of its arguments by name."""

    def __init__(self, operator: str, overload: Any, recorded: list[Any], device: str) -> None:
        self.operator = operator.removeprefix("aten::").rstrip("_")
        self.device = device
        self.bytes = 0
        named = {
            argument.name: given
            for argument, given in zip(overload._schema.arguments, recorded, strict=False)
        }
        self.sizes = {
            name: given["tensor"]["shape"] for name, given in named.items() if given and "tensor" in given
        }
        self.values = {name: given["value"] for name, given in named.items() if given and "value" in given}
        tensors = [given["tensor"] for given in named.values() if given and "tensor" in given]
        self.dimensioned = {tensor["dtype"] for tensor in tensors if tensor["shape"]}

    def make_argument(self, argument: Any, recorded: Any) -> Any:
        """The argument of the call; None where none is recorded."""
        if "Device" in str(argument.type):
            return torch.device(self.device) if recorded or not self.sizes else None
        if recorded is None:
            return argument.default_value if argument.has_default_value() else None
        written = argument.alias_info is not None and argument.alias_info.is_write
        if "tensor" in recorded:
            return self.make_tensor(argument.name, written, **recorded["tensor"])
        if "tensors" in recorded:
            return [self.make_tensor(argument.name, written, **tensor) for tensor in recorded["tensors"]]
        return plain_value(argument, recorded["value"])

    def make_tensor(
        self, name: str, written: bool, shape: list[int], dtype: str, strides: list[int] | None
    ) -> torch.Tensor:
        """A tensor of those sizes and strides with values that the operator accepts."""
        kind = torch_dtype(dtype)
        if self.is_number(name, shape, dtype) and not written:
            return torch.ones((), dtype=kind)  # on the host, where PyTorch keeps it
        if strides is None or len(strides) != len(shape):
            strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
        span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        span = 0 if 0 in shape else span
        self.bytes += span * kind.itemsize
        stored = self.random_values(name, written, span, kind)
        made = torch.as_strided(stored, shape, strides)
        normal_over = self.softmax_of(name)
        if normal_over is not None and shape and 0 not in strides:
            made.copy_(normal_over(made.float(), min(int(self.values.get("dim", 1)), len(shape) - 1)))
        return made

    def is_number(self, name: str, shape: list[int], dtype: str) -> bool:
        """Whether an operand is a Python number, which is recorded as a tensor of the widest type."""
        others = self.dimensioned - {dtype}
        is_widest = dtype in ("float64", "int64") and self.dimensioned == others
        return not shape and bool(others) and is_widest and self.index_end(name) is None

    def softmax_of(self, name: str) -> Any:
        """What the operator's own forward pass made of an operand: probabilities, or their logarithms."""
        if name == "output" and self.operator == "_softmax_backward_data":
            return torch.softmax
        if (name == "output" and self.operator == "_log_softmax_backward_data") or (
            name == "self" and self.operator.startswith("nll_loss")
        ):
            return torch.log_softmax
        return None

    def random_values(self, name: str, written: bool, count: int, kind: Any) -> torch.Tensor:
        """`count` random values of a type that the operator accepts as its argument `name`."""
        where = {"device": self.device}
        if kind == torch.bool:
            if name == "attn_mask":
                return torch.ones(count, dtype=kind, **where)
            return torch.randint(0, 2, (count,), **where).to(kind)
        if not kind.is_floating_point and not kind.is_complex:
            return self.random_integers(name, count, kind)
        drawn = torch.float64 if kind in (torch.float64, torch.complex128) else torch.float32
        if kind.is_complex:
            return torch.randn(count, dtype=kind, **where)
        if name in POSITIVE_ARGUMENTS or self.operator in POSITIVE:
            values = torch.rand(count, dtype=drawn, **where).add_(1.0)
        elif self.operator in BETWEEN_0_AND_1:
            values = torch.rand(count, dtype=drawn, **where).mul_(0.8).add_(0.1)
        elif written:  # written again by each call: neither overflow nor denormals after some hundred
            values = torch.rand(count, dtype=drawn, **where).mul_(0.2).add_(0.9)
        else:
            values = torch.randn(count, dtype=drawn, **where)
        return values.to(kind)

    def random_integers(self, name: str, count: int, kind: Any) -> torch.Tensor:
        """Indices within the dimension that they select from; other integers from 1 to 100."""
        where = {"dtype": kind, "device": self.device}
        if name == "offsets" and "indices" in self.sizes:
            return torch.linspace(0, math.prod(self.sizes["indices"]), count, device=self.device).to(kind)
        end = self.index_end(name)
        return (
            torch.randint(1, 101, (count,), **where)
            if end is None
            else torch.randint(0, end, (count,), **where)
        )

    def index_end(self, name: str) -> int | None:
        """One more than the largest index that the argument may hold; None if it holds no indices."""
        of_self = self.sizes.get("self", ())
        if name == "indices" and "weight" in self.sizes:
            return int(self.sizes["weight"][0])
        if name == "indices" and "num_weights" in self.values:
            return int(self.values["num_weights"])
        if name == "indices" and "output_size" in self.values:
            return int(math.prod(self.values["output_size"]))
        if name == "indices" and "kernel_size" in self.values:
            return int(math.prod(of_self[-len(self.values["kernel_size"]) :]))
        if name == "index" and "dim" in self.values and (of_self or "self_sizes" in self.values):
            return int((of_self or self.values["self_sizes"])[self.values["dim"]])
        if name == "index" and of_self:
            return 1 if "dim" in self.values else int(math.prod(of_self))
        if name == "target" and of_self:
            return int(of_self[min(1, len(of_self) - 1)])
        return None


def bound_call(operator: str, recorded: list[Any], device: str) -> tuple[Callable[[], Any], str, int]:
    """The call as a function without arguments, the name of its overload, and the bytes of its operands."""
    base = operator.removeprefix("aten::")
    if not operator.startswith("aten::") or not base.isidentifier() or not hasattr(torch.ops.aten, base):
        raise NotReproducible("this PyTorch has no such operator")
    overload = matching_overload(getattr(torch.ops.aten, base), recorded)
    operands = Operands(operator, overload, recorded, device)
    positional, named = [], {}
    for argument, given in zip(overload._schema.arguments, recorded, strict=False):
        value = operands.make_argument(argument, given)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return (lambda: overload(*positional, **named)), overload._overloadname, operands.bytes


def seconds_on_host(call: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of each call on a CPU."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return seconds


def seconds_on_device(call: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of each call on a GPU, between CUDA events."""
    seconds: list[float] = []
    while len(seconds) < repeats:
        pairs = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(min(BATCH, repeats - len(seconds)))
        ]
        torch.cuda._sleep(SLEEP_CYCLES)
        for begin, end in pairs:
            begin.record()
            call()
            end.record()
        torch.cuda.synchronize()
        seconds += [begin.elapsed_time(end) / 1e3 for begin, end in pairs]
    return seconds


def profiled_kernels(call: Callable[[], Any]) -> tuple[list[str], float] | None:
    """Names of the kernels of a call, and their seconds, by PyTorch's profiler; None where it has none."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for _ in range(PROFILED):
                call()
            torch.cuda.synchronize()
    except RuntimeError:
        return None
    rows = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    rows.sort(key=lambda event: event.time_range.start)
    if not rows:
        return None
    per_call = len(rows) // PROFILED if len(rows) % PROFILED == 0 else len(rows)
    names = [event.name for event in rows[:per_call]]
    return names, sum(event.time_range.elapsed_us() for event in rows) / 1e6 / PROFILED


def measured_result(device: str, warmup: int, repeats: int) -> dict[str, Any]:
    """What a run of the benchmark found, as its JSON line has it."""
    on_device = device != "cpu"
    if CALL["tf32"]:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    with torch.no_grad():
        call, overload, operand_bytes = bound_call(CALL["operator"], CALL["arguments"], device)
        for _ in range(warmup):
            call()
        if on_device:
            torch.cuda.synchronize()
        gc.disable()
        seconds = (seconds_on_device if on_device else seconds_on_host)(call, repeats)
        profiled = profiled_kernels(call) if on_device else None
    properties = torch.cuda.get_device_properties(0) if on_device else None
    return {
        "schema": "microbenchmark.v1",
        **{name: CALL[name] for name in ("operator", "arguments", "stated_dtype", "expected_kernels")},
        "overload": overload,
        "device": device,
        "device_name": properties.name if properties else None,
        "torch": str(torch.__version__),
        "threads": None if on_device else torch.get_num_threads(),
        "timing": "CUDA events" if on_device else "perf_counter",
        "warmup": warmup,
        "repeats": repeats,
        "p50_s": statistics.median(seconds),
        "mean_s": statistics.fmean(seconds),
        "min_s": min(seconds),
        "kernels": profiled[0] if profiled else None,
        "kernel_s": profiled[1] if profiled else None,
        "operand_bytes": operand_bytes,
        "cache_bytes": getattr(properties, "L2_cache_size", None),
    }


def readable_line(result: dict[str, Any]) -> str:
    """The result in words, beside the trace's time."""
    p50, mean, least = (f"{result[name] * 1e6:,.1f}" for name in ("p50_s", "mean_s", "min_s"))
    where = result["device_name"] or result["device"]
    kernels = f", in kernels {result['kernel_s'] * 1e6:,.1f}" if result["kernel_s"] is not None else ""
    traced = f"{CALL['trace']['p50_s'] * 1e6:,.1f} on {CALL['trace']['device_name'] or CALL['device']!r}"
    return (
        f"{result['operator']} on {where}: {p50} us a call (mean {mean}, least {least}{kernels});"
        f" in the trace {traced}"
    )


def main() -> int:
    """Run the benchmark; 1 if the call cannot be made here."""
    parser = argparse.ArgumentParser(description="Micro-benchmark of one operator call of a trace.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=CALL["device"])
    parser.add_argument("--warmup", type=int, default=CALL["warmup"])
    parser.add_argument("--repeats", type=int, default=CALL["repeats"])
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU here; --device cpu runs the call on the CPU")
    if options.warmup < 0 or options.repeats < 1:
        parser.error("--warmup is at least 0, --repeats at least 1")
    try:
        result = measured_result(options.device, options.warmup, options.repeats)
    except (NotReproducible, RuntimeError, TypeError, ValueError, IndexError) as error:
        sys.stderr.write(f"error: {CALL['operator']}: {str(error).splitlines()[0]}\n")
        return 1
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stderr.write(ascii(readable_line(result))[1:-1] + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

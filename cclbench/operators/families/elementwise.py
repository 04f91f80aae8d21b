# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators: broadcast operands, one result.

Each floating-point operation of the formula counts as one, as do transcendental functions, roots, comparisons
and minima; operations on integers and booleans are no FLOPs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import is_floating, promoted_type, promotion_rank, vector_precision
from cclbench.operators.shapes import broadcast_shape

FAMILY = "elementwise"

ONE_OPERAND: Final = {
    "abs": 1,
    "acos": 1,
    "asin": 1,
    "atan": 1,
    "ceil": 1,
    "cos": 1,
    "cosh": 1,
    "erf": 1,
    "erfc": 1,
    "erfinv": 1,
    "exp": 1,
    "exp2": 1,
    "expm1": 1,
    "floor": 1,
    "log": 1,
    "log10": 1,
    "log1p": 1,
    "log2": 1,
    "neg": 1,
    "reciprocal": 1,
    "round": 1,
    "rsqrt": 1,
    "sgn": 1,
    "sign": 1,
    "sin": 1,
    "sinh": 1,
    "sqrt": 1,
    "tan": 1,
    "tanh": 1,
    "trunc": 1,
    "frac": 2,
    "sigmoid": 4,
    "log_sigmoid": 4,
    "silu": 4,
    "mish": 4,
    "hardsigmoid": 4,
    "hardswish": 5,
    "relu": 1,
    "relu6": 2,
}
"""FLOPs per element of operators whose one tensor is argument 0.

sigmoid 1/(1 + exp(−x)); silu x/(1 + exp(−x)); mish x·tanh(log1p(exp x)); hardsigmoid min(max(x+3, 0), 6)/6;
hardswish x·min(max(x+3, 0), 6)/6.
"""

ONE_AND_NUMBERS: Final = {
    "clamp": (3, 2),
    "clamp_min": (2, 1),
    "clamp_max": (2, 1),
    "hardtanh": (3, 2),
    "leaky_relu": (2, 2),
    "elu": (4, 3),
    "logit": (2, 3),
    "nan_to_num": (4, 3),
    "softplus": (3, 4),
    "threshold": (3, 1),
}
"""Arguments and FLOPs per element of operators of a tensor and numbers.

leaky_relu x > 0 ? x : a·x; elu a·(exp(x) − 1); logit log(x/(1 − x)); softplus log1p(exp(b·x))/b.
"""

SEVERAL: Final = {
    "add": (3, 1),
    "sub": (3, 1),
    "rsub": (3, 1),
    "mul": (2, 1),
    "div": (2, 1),
    "true_divide": (2, 1),
    "floor_divide": (2, 2),
    "remainder": (2, 4),
    "fmod": (2, 4),
    "pow": (2, 1),
    "atan2": (2, 1),
    "maximum": (2, 1),
    "minimum": (2, 1),
    "fmax": (2, 1),
    "fmin": (2, 1),
    "addcmul": (4, 3),
    "addcdiv": (4, 3),
    "lerp": (3, 3),
    "where": (3, 0),
    "masked_fill": (3, 0),
    "bitwise_and": (2, 0),
    "bitwise_or": (2, 0),
    "bitwise_xor": (2, 0),
    "bitwise_not": (1, 0),
    "__and__": (2, 0),
    "__or__": (2, 0),
    "threshold_backward": (3, 1),
    "hardtanh_backward": (4, 2),
    "leaky_relu_backward": (4, 2),
    "elu_backward": (6, 3),
    "softplus_backward": (4, 5),
    "hardsigmoid_backward": (2, 3),
    "hardswish_backward": (2, 5),
    "sigmoid_backward": (2, 3),
    "tanh_backward": (2, 3),
    "silu_backward": (2, 9),
    "logit_backward": (3, 3),
}
"""Arguments and FLOPs per element of operators of several operands, tensors or numbers.

addcmul a + v·b·c; lerp a + w·(b − a); remainder a − b·floor(a/b); sigmoid_backward g·(1 − y)·y;
tanh_backward g·(1 − y²); elu_backward g·a·exp(x); softplus_backward g·e/(e + 1), e = exp(b·x);
hardsigmoid_backward −3 < x < 3 ? g/6 : 0; hardswish_backward g·(x/3 + 1/2) between two bounds;
silu_backward g·s·(1 + x·(1 − s)), s of 4; logit_backward g/(x·(1 − x)).
"""

TO_BOOL: Final = {
    "eq": (2, 1),
    "ne": (2, 1),
    "lt": (2, 1),
    "le": (2, 1),
    "gt": (2, 1),
    "ge": (2, 1),
    "isnan": (1, 1),
    "isinf": (1, 1),
    "isfinite": (1, 1),
    "isneginf": (1, 1),
    "isposinf": (1, 1),
    "logical_and": (2, 0),
    "logical_or": (2, 0),
    "logical_xor": (2, 0),
    "logical_not": (1, 0),
}
"""Arguments and FLOPs per element of operators whose result is boolean."""

ACTIVATIONS: Final = {"none": (5, 11), "tanh": (9, 18)}
"""FLOPs per element of gelu and of its gradient, by approximation.

none: x/2·(1 + erf(x/√2)); tanh: x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""

_FLOATING: Final = (
    r"a?(?:cos|sin|tan)h?|erf(?:c|inv)?|exp2?|expm1|log\w*|rsqrt|sqrt|reciprocal|sigmoid|div|true_divide"
)
"""Pattern of operators whose result is floating-point whatever the operands."""


def names_pattern(table: Iterable[str]) -> str:
    """Pattern of the named operators and their in-place variants."""
    return rf"aten::(?:{'|'.join(sorted(table))})_?"


def elementwise_cost(
    call: Call,
    operands: Sequence[Tensor],
    flops: int,
    *,
    result: Tensor | None = None,
    dtype: str | None = None,
) -> Cost:
    """Broadcast operands are read; the result is the recorded one, or in place the first operand."""
    if not operands:
        raise NoModel("no tensor is recorded among its operands")
    shape = broadcast_shape(*(operand.shape for operand in operands))
    if call.name.endswith("_") and not call.name.endswith("__"):
        result = operands[0]
    if result is None:
        result = Tensor(shape, dtype or promoted_type(operands))
    arithmetic = promoted_type(operands)
    if promotion_rank(arithmetic) < 2 <= promotion_rank(result.dtype):
        arithmetic = result.dtype
    return Cost.from_tensors(
        flops=flops * math.prod(shape) if is_floating(arithmetic) else 0,
        precision=vector_precision(arithmetic),
        reads=operands,
        writes=(result,),
    )


def operands_and_result(call: Call, count: int) -> tuple[list[Tensor], Tensor | None]:
    """Tensors among the first `count` arguments (the functional signature), and the next one, `out`."""
    operands = [tensor for tensor in map(call.optional_tensor, range(count)) if tensor is not None]
    return operands, call.optional_tensor(count)


def base_name(call: Call) -> str:
    """The operator's name without namespace and in-place underscore."""
    name = call.name.removeprefix("aten::")
    return name.removesuffix("_") if not name.endswith("__") else name


def result_type(call: Call, operands: Sequence[Tensor], count: int) -> str:
    """Promoted type, numbers included; float32 for integers where the result is always floating-point."""
    numbers = [call.value(index) for index in range(count) if call.optional_tensor(index) is None]
    dtype = promoted_type(operands, numbers)
    return "float32" if promotion_rank(dtype) < 2 and re.fullmatch(_FLOATING, base_name(call)) else dtype


@cost_model(FAMILY, names_pattern(ONE_OPERAND))
def function_of_one(call: Call) -> Cost:
    """A function of one tensor.

    FLOPs: an element: 1 of most functions, 4 of sigmoid and silu (the table ONE_OPERAND)
    Bytes: the operand, the result
    Source: native_functions.yaml: exp(self), exp_(self), exp.out(self, out)
    """
    operands, out = operands_and_result(call, 1)
    dtype = result_type(call, operands, 1)
    return elementwise_cost(call, operands, ONE_OPERAND[base_name(call)], result=out, dtype=dtype)


@cost_model(FAMILY, names_pattern(ONE_AND_NUMBERS))
def function_of_one_and_numbers(call: Call) -> Cost:
    """A function of one tensor and numbers, such as clamp.

    FLOPs: an element: 1 of clamp_min, 2 of clamp (the table ONE_AND_NUMBERS)
    Bytes: the operand, tensors of bounds, the result
    Source: native_functions.yaml: clamp(self, min, max), clamp.out(self, min, max, out)
    """
    count, flops = ONE_AND_NUMBERS[base_name(call)]
    operands, out = operands_and_result(call, count)
    if base_name(call) == "clamp":
        flops = sum(call.optional_tensor(i) is not None or call.value(i) is not None for i in (1, 2)) or 2
    return elementwise_cost(call, operands, flops, result=out, dtype=result_type(call, operands, count))


@cost_model(FAMILY, names_pattern(SEVERAL))
def function_of_several(call: Call) -> Cost:
    """A function of several operands, tensors or numbers.

    FLOPs: an element: 1 of add and mul (2 of add where alpha is not 1), 3 of addcmul (the table SEVERAL)
    Bytes: the operands, each at its own size, the result
    Source: native_functions.yaml: add(self, other, alpha), mul(self, other), mul.out(self, other, out)
    """
    name = base_name(call)
    count, flops = SEVERAL[name]
    operands, out = operands_and_result(call, count)
    if name in ("add", "sub", "rsub") and call.value(2) not in (None, 1, 1.0):
        flops += 1
    if name == "where" and len(call.arguments) < 3:
        raise NoModel("how many elements are true is not recorded")
    values = operands[1:] if name == "where" else operands
    dtype = result_type(call, values, count)
    if name == "masked_fill":
        dtype = call.tensor(0).dtype
    return elementwise_cost(call, operands, flops, result=out, dtype=dtype)


@cost_model(FAMILY, names_pattern(TO_BOOL))
def predicate(call: Call) -> Cost:
    """A comparison or a logical function.

    FLOPs: 1 an element of a comparison of floating numbers, 0 of a logical function
    Bytes: the operands, a byte an element of the result
    Source: native_functions.yaml: eq(self, other), logical_and(self, other)
    """
    count, flops = TO_BOOL[base_name(call)]
    operands, out = operands_and_result(call, count)
    return elementwise_cost(call, operands, flops, result=out, dtype="bool")


@cost_model(FAMILY, r"aten::gelu_?")
def gelu(call: Call) -> Cost:
    """gelu(x), exact or approximated with tanh.

    FLOPs: 5 an element, 9 with tanh
    Bytes: the operand, the result
    Source: native_functions.yaml: gelu(self, approximate)
    """
    operands, out = operands_and_result(call, 1)
    flops, _ = ACTIVATIONS[call.value(1) or "none"]
    return elementwise_cost(call, operands, flops, result=out)


@cost_model(FAMILY, r"aten::gelu_backward")
def gelu_backward(call: Call) -> Cost:
    """The gradient of gelu.

    FLOPs: 11 an element, 18 with tanh
    Bytes: the result's gradient, the input, its gradient
    Source: native_functions.yaml: gelu_backward(grad_output, self, approximate)
    Tested: no trace
    """
    operands, _ = operands_and_result(call, 2)
    _, flops = ACTIVATIONS[call.value(2) or "none"]
    return elementwise_cost(call, operands, flops)


GATED: Final = {"silu_and_mul": 5, "gelu_and_mul": 6, "gelu_tanh_and_mul": 10, "mul_and_silu": 5}


@cost_model(FAMILY, rf"(?:_C|sgl_kernel|aiter|vllm)::(?:{'|'.join(GATED)})")
def gated_activation(call: Call) -> Cost:
    """activation(x[..., :d])·x[..., d:].

    FLOPs: an element of the result: 5 of silu_and_mul, 6 of gelu_and_mul, 10 of gelu_tanh_and_mul
    Bytes: the input (..., 2·d), the result (..., d)
    Source: vLLM csrc/torch_bindings.cpp: silu_and_mul(result, input); sgl_kernel and AITER alike
    """
    out, x = call.tensor(0), call.tensor(1)
    if x.elements != 2 * out.elements:
        raise NoModel("its input is not twice as large as its result")
    flops = GATED[call.name.split("::")[1]] * out.elements
    return Cost.from_tensors(flops=flops, precision=vector_precision(x.dtype), reads=(x,), writes=(out,))


@cost_model(FAMILY, r"Liger(?:SiLU|GELU)MulFunction")
def liger_gated_activation(call: Call) -> Cost:
    """activation(a)·b of Liger's functions.

    FLOPs: an element: 5 with silu, 10 with gelu (by tanh), as of `gated_activation`
    Bytes: both inputs, the result
    Source: Liger Kernel src/liger_kernel/ops/swiglu.py, geglu.py: forward(ctx, a, b)
    Tested: no trace
    """
    a, b = call.tensor(0), call.tensor(1)
    if a.shape != b.shape:
        raise NoModel("its inputs have different sizes")
    if any(call.value(index) not in (None, 1, 1.0) for index in (2, 3)):
        raise NoModel("the multiplications by its multipliers are not modelled")
    flops = GATED["silu_and_mul" if "SiLU" in call.name else "gelu_tanh_and_mul"]
    return Cost.from_tensors(
        flops=flops * a.elements, precision=vector_precision(a.dtype), reads=(a, b), writes=(a,)
    )


@cost_model(FAMILY, r"aten::native_dropout")
def dropout(call: Call) -> Cost:
    """x·mask/(1 − p); what makes the random numbers is not counted.

    FLOPs: 2 an element
    Bytes: the input; the result, and a byte an element of the mask
    Source: native_functions.yaml: native_dropout(input, p, train)
    Tested: no trace
    """
    x = call.tensor(0)
    results = (Tensor(x.shape, x.dtype), Tensor(x.shape, "bool"))
    return Cost.from_tensors(
        flops=2 * x.elements, precision=vector_precision(x.dtype), reads=(x,), writes=results
    )


@cost_model(FAMILY, r"aten::native_dropout_backward")
def dropout_backward(call: Call) -> Cost:
    """gradient·mask·scale.

    FLOPs: 2 an element
    Bytes: the result's gradient, the mask, the input's gradient
    Source: native_functions.yaml: native_dropout_backward(grad_output, mask, scale)
    Tested: no trace
    """
    grad = call.tensor(0)
    return elementwise_cost(call, (grad, call.tensor(1)), 2, dtype=grad.dtype)

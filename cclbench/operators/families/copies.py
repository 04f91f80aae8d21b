# SPDX-License-Identifier: Apache-2.0
"""Copies, casts and fills; views and allocations, which move no data."""

from __future__ import annotations

import math

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import with_element_types

FAMILY = "copy"


@cost_model(FAMILY, r"aten::copy_")
def copy(call: Call) -> Cost:
    """A copy or a cast; clone, contiguous, to and _to_copy call it.

    FLOPs: 0
    Bytes: the source at its size, the destination at its own
    Source: native_functions.yaml: copy_(self, src, non_blocking)
    """
    return Cost.from_tensors(reads=(call.tensor(1),), writes=(call.tensor(0),))


@cost_model(FAMILY, r"aten::(?:flip|roll|tril_?|triu_?|_local_scalar_dense)")
def rearrangement(call: Call) -> Cost:
    """A copy in another order, or of one element to the host.

    FLOPs: 0
    Bytes: the source, the result
    Source: native_functions.yaml: flip(self, dims), tril(self, diagonal)
    """
    x = call.tensor(0)
    return Cost.from_tensors(reads=(x,), writes=(Tensor(x.shape, x.dtype),))


@cost_model(FAMILY, r"aten::_?cat")
def concatenation(call: Call) -> Cost:
    """Tensors side by side; stack calls it.

    FLOPs: 0
    Bytes: each tensor, the result; element sizes are read off kernels' names: traces record none of lists
    Source: native_functions.yaml: cat(tensors, dim)
    """
    argument = call.arguments[0] if call.arguments else ()
    items = argument if isinstance(argument, tuple) else ()
    tensors = [item for item in items if isinstance(item, Tensor)]
    if not tensors:
        raise NoModel("the sizes of its tensors are not recorded")
    tensors = list(with_element_types(call, tensors))
    results = [Tensor(tensor.shape, tensor.dtype) for tensor in tensors]
    return Cost.from_tensors(reads=tensors, writes=results)


@cost_model(
    FAMILY,
    r"aten::(?:fill_|zero_)",
    r"aten::(?:bernoulli|uniform|normal|exponential|random|geometric|cauchy|log_normal)_",
)
def fill(call: Call) -> Cost:
    """A tensor is overwritten: with a number, or with random numbers, whose making is not counted.

    FLOPs: 0
    Bytes: the tensor
    Source: native_functions.yaml: fill_(self, value), zero_(self)
    """
    return Cost.from_tensors(reads=(), writes=(call.tensor(0),))


@cost_model(FAMILY, r"aten::arange")
def arange(call: Call) -> Cost:
    """The numbers from start to end; its `out` is recorded before it gets its size.

    FLOPs: 0
    Bytes: the result
    Source: native_functions.yaml: arange.start_out(start, end, step, out)
    """
    start, end, step, out = call.value(0), call.value(1), call.value(2), call.optional_tensor(3)
    if out is None or not all(type(number) in (int, float) for number in (start, end, step)):
        raise NoModel("its bounds are not recorded")
    return Cost.from_tensors(reads=(), writes=(Tensor((math.ceil((end - start) / step),), out.dtype),))


@cost_model(
    FAMILY,
    r"aten::(?:view|_unsafe_view|_reshape_alias|alias|as_strided|detach_?|expand|expand_as|permute|select|slice"
    r"|split|split_with_sizes|chunk|narrow|squeeze_?|unsqueeze_?|t_?|transpose_?|numpy_T|unbind|unfold|diagonal"
    r"|view_as|view_as_real|view_as_complex|_conj|resolve_conj|resolve_neg|lift_fresh|movedim|swapaxes|real|imag)",
    r"aten::(?:empty|empty_like|empty_strided|new_empty|new_empty_strided|resize_|set_|result_type"
    r"|record_stream|is_nonzero|is_pinned|_version|sym_size|_assert_async)",
)
def view(call: Call) -> Cost:  # noqa: ARG001  (whatever its arguments)
    """A view of a tensor, or memory that nothing is written to.

    FLOPs: 0
    Bytes: 0
    Source: PyTorch's documentation, Tensor Views
    """
    return Cost.from_tensors(reads=(), writes=())

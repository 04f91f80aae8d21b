# SPDX-License-Identifier: Apache-2.0
"""Operators on lists of tensors: foreach and fused optimizers.

Traces record the sizes of a list's tensors but not their types; kernel names state the type.
"""

from __future__ import annotations

import re
from typing import Final

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_model
from cclbench.operators.element_types import is_floating, vector_precision, with_element_types

FAMILY = "lists of tensors"
TensorLists = tuple[tuple[Tensor, ...], ...]
ONE_TYPE = "all tensors are of the type in the kernel's name"
GRADIENTS = "its tensors are as large as the gradients accumulated before it, whose blocks its kernels have"
_LISTS: Final = re.compile(r"(?P<counts>FusedOptimizer)?TensorListMetadata<(?P<lists>[2-5])>")
"""Number of lists of equal sizes that a kernel takes, and whether it takes the number of each one's steps."""

FOREACH: Final = {
    "add": 1,
    "sub": 1,
    "mul": 1,
    "div": 1,
    "maximum": 1,
    "minimum": 1,
    "clamp_max": 1,
    "clamp_min": 1,
    "pow": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "exp": 1,
    "log": 1,
    "abs": 1,
    "neg": 1,
    "reciprocal": 1,
    "sigmoid": 4,
    "addcmul": 3,
    "addcdiv": 3,
    "lerp": 3,
    "copy": 0,
    "zero": 0,
}
"""FLOPs per element of a list."""


def tensor_lists(call: Call) -> TensorLists:
    """Lists of tensors among the arguments, typed by kernel names; `NoModel` where none is recorded."""
    lists = tuple(
        tuple(tensor for tensor in argument if isinstance(tensor, Tensor))
        for argument in call.arguments
        if isinstance(argument, tuple) and any(isinstance(tensor, Tensor) for tensor in argument)
    )
    if not lists:
        raise NoModel("the sizes of its tensors are not recorded")
    return tuple(with_element_types(call, tensors) for tensors in lists)


@cost_model(FAMILY, rf"aten::_foreach_(?:{'|'.join(FOREACH)})_?")
def foreach(call: Call) -> Cost:
    """An elementwise operator on each tensor of a list.

    FLOPs: an element: 1 of add and mul (2 of add where alpha is not 1), 3 of addcmul, 0 of copy
    Bytes: each list, and the result
    Source: native_functions.yaml: _foreach_add_(self, other, alpha), _foreach_addcmul_(self, tensor1,
    tensor2, value)
    """
    name = call.name.removeprefix("aten::_foreach_").removesuffix("_")
    lists = tensor_lists(call)
    flops = FOREACH[name]
    if name in ("add", "sub") and len(lists) > 1 and call.value(2) not in (None, 1, 1.0):
        flops += 1
    first = lists[0]
    read = lists[1:] if name == "copy" else () if name == "zero" else lists
    return Cost.from_tensors(
        flops=flops * sum(tensor.elements for tensor in first) if is_floating(first[0].dtype) else 0,
        precision=vector_precision(first[0].dtype),
        reads=(tensor for tensors in read for tensor in tensors),
        writes=(Tensor(tensor.shape, tensor.dtype) for tensor in first),
        assumes=None if first[0] in call.tensors else ONE_TYPE,
    )


@cost_model(FAMILY, r"aten::_foreach_norm")
def foreach_norm(call: Call) -> Cost:
    """The norm of each tensor of a list.

    FLOPs: 2 an element
    Bytes: the list, a number each
    Source: native_functions.yaml: _foreach_norm(self, ord)
    """
    (tensors, *_) = tensor_lists(call)
    return Cost.from_tensors(
        flops=2 * sum(tensor.elements for tensor in tensors),
        precision=vector_precision(tensors[0].dtype),
        reads=tensors,
        writes=(Tensor((), tensor.dtype) for tensor in tensors),
        assumes=ONE_TYPE,
    )


@cost_model(FAMILY, r"aten::_amp_foreach_non_finite_check_and_unscale_")
def unscale_gradients(call: Call) -> Cost:
    """Gradients are divided by the scale of the loss, and one that is not finite is noted.

    FLOPs: 2 an element
    Bytes: the list, read and written
    Source: native_functions.yaml: _amp_foreach_non_finite_check_and_unscale_(self, found_inf, inv_scale)
    Tested: no trace
    """
    (tensors, *_) = tensor_lists(call)
    return Cost.from_tensors(
        flops=2 * sum(tensor.elements for tensor in tensors),
        precision=vector_precision(tensors[0].dtype),
        reads=(*tensors, call.optional_tensor(2)),
        writes=(*tensors, call.optional_tensor(1)),
        assumes=ONE_TYPE,
    )


OPTIMIZERS: Final = {
    "_fused_adam_": (13, 2, 9),
    "_fused_adamw_": (13, 1, 9),
    "_fused_sgd_": (4, 2, 3),
    "_fused_adagrad_": (7, 2, 6),
}
"""FLOPs per element, additional ones with weight decay, and the position of weight decay.

adam: m + (1 − b1)·(g − m) 3, b2·v + (1 − b2)·g² 4, √v/c + eps 3, p − s·m/d 3; sgd b·m + g 2, p − lr·m 2;
adagrad v + g² 2, √v + eps 2, p − lr·g/d 3.
"""


@cost_model(FAMILY, *(f"aten::{name}" for name in OPTIMIZERS))
def fused_optimizer(call: Call) -> Cost:
    """A step of an optimizer on all parameters in one kernel.

    FLOPs: an element: adam 13, sgd 4, adagrad 7; with weight decay adamw 1 and others 2 more
    Bytes: parameters, gradients and states; parameters and states
    Source: native_functions.yaml: _fused_adamw_(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs,
    state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, ...)
    """
    flops, decay_flops, decay_index = OPTIMIZERS[call.name.removeprefix("aten::")]
    lists = tensor_lists(call)
    from_gradients = not isinstance(call.value(0), tuple) or not call.value(0)
    if from_gradients:
        lists = _lists_like_gradients(call, lists)
    parameters = lists[0]
    states = [tensors for tensors in lists[2:] if any(tensor.shape for tensor in tensors)]
    decay = call.value(decay_index)
    if type(decay) not in (int, float):
        raise NoModel("its weight decay is not recorded")
    if decay:
        flops += decay_flops
    return Cost.from_tensors(
        flops=flops * sum(tensor.elements for tensor in parameters),
        precision=vector_precision(parameters[0].dtype),
        reads=(tensor for tensors in lists for tensor in tensors),
        writes=(tensor for tensors in (parameters, *states) for tensor in tensors),
        assumes=f"{ONE_TYPE}; {GRADIENTS}" if from_gradients else ONE_TYPE,
    )


def _lists_like_gradients(call: Call, lists: TensorLists) -> TensorLists:
    """The lists of an optimizer of which only the gradients' sizes are known: as many as its kernel takes."""
    matches = [match for name in call.kernels if (match := _LISTS.search(name))]
    if len(lists) != 1 or not matches:
        raise NoModel("the sizes of its tensors are not recorded")
    steps = tuple(Tensor((), "float") for _ in lists[0])
    return (*lists * int(matches[0]["lists"]), *([steps] if matches[0]["counts"] else []))

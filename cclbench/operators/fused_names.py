# SPDX-License-Identifier: Apache-2.0
"""Arithmetic that the name of a kernel of TorchInductor states: the operators that are fused in it.

`triton_red_fused_add_mean_mul_pow_rsqrt_0` names each operator once, in alphabetical order, however often it
is called (torch/_inductor/codegen/wrapper.py: `get_fused_kernel_name`).
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from cclbench.operators.families import elementwise, reductions

_MOVES: Final = [
    "_to_copy",
    "_unsafe_view",
    "alias",
    "arange",
    "as_strided",
    "cat",
    "clone",
    "constant_pad_nd",
    "copy",
    "copy_",
    "detach",
    "embedding",
    "empty",
    "empty_like",
    "expand",
    "fill",
    "flip",
    "full",
    "full_like",
    "gather",
    "index",
    "index_select",
    "lift_fresh",
    "new_zeros",
    "ones",
    "permute",
    "repeat",
    "reshape",
    "roll",
    "scalar_tensor",
    "select",
    "slice",
    "slice_backward",
    "slice_scatter",
    "split",
    "split_with_sizes",
    "squeeze",
    "stack",
    "t",
    "transpose",
    "unbind",
    "unfold",
    "unsqueeze",
    "view",
    "zeros",
    "zeros_like",
    "embedding_dense_backward",
    "unsafe_index",
    "scatter",
    "index_put",
    "select_backward",
]
"""Operators that move elements and do not compute."""
_OTHERS: Final = {
    "addmm": 1,
    "mm": 0,
    "bmm": 0,
    "convolution": 1,
    "gelu": 5,
    "gelu_backward": 11,
    "native_dropout": 2,
    "native_dropout_backward": 2,
    "_softmax": 5,
    "_softmax_backward_data": 4,
    "_log_softmax": 5,
    "_log_softmax_backward_data": 4,
    "_fused_rms_norm": 4,
    "_fused_rms_norm_backward": 9,
    "native_layer_norm": 7,
    "linalg_vector_norm": 2,
    "cumsum": 1,
}
"""FLOPs an element as their own models count them; of a product that another kernel computes its addend."""


@lru_cache(maxsize=1 << 12)
def fused_flops(name: str) -> tuple[int, tuple[str, ...]]:
    """FLOPs an element of the operators in a kernel's name, and the words that are no known operator.

    Of several operators that can begin at a word the one with the most words is meant.
    """
    words = re.sub(r"^triton_[a-z]+_(?:fused_)?|_?\d*$", "", name).split("_")
    flops, most_words = _vocabulary()
    unknown: list[str] = []
    count = start = 0
    while start < len(words):
        for end in range(min(start + most_words, len(words)), start, -1):
            operator = "_".join(words[start:end])
            if operator in flops:
                count += flops[operator]
                break
        else:
            end = start + 1
            unknown += filter(None, words[start:end])
        start = end
    return count, tuple(unknown)


@cache
def _vocabulary() -> tuple[dict[str, int], int]:
    """FLOPs an element by the operator's name, and the most words of a name."""
    flops = dict.fromkeys(_MOVES, 0) | dict(elementwise.ONE_OPERAND)
    for table in (elementwise.ONE_AND_NUMBERS, elementwise.SEVERAL, elementwise.TO_BOOL):
        flops |= {name: row[1] for name, row in table.items()}
    flops |= {name: row[0] for name, row in reductions.REDUCTIONS.items()} | _OTHERS
    return flops, 1 + max(name.count("_") for name in flops)

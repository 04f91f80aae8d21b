# SPDX-License-Identifier: Apache-2.0
"""Collectives: no arithmetic is counted; communication has metrics of its own."""

from __future__ import annotations

from cclbench.operators.call import Call, NoModel
from cclbench.operators.cost import Cost, cost_model

FAMILY = "communication"


@cost_model(
    FAMILY,
    r"record_param_comms",
    r"c10d::\w+",
    r"_?c10d_functional(?:_autograd)?::\w+",
    r"(?:nccl|gloo|mpi|ucc):.*",
    r"symm_mem::\w+",
    r"(?:vllm|sglang|sgl_kernel|aiter)::\w*(?:all_reduce|all_gather|reduce_scatter|all_to_all)\w*",
    r"_C_custom_ar::\w+",
)
def collective(call: Call) -> Cost:
    """A collective.

    FLOPs: none stated
    Bytes: none stated
    Source: docs/concepts.md: communication has metrics of its own
    """
    raise NoModel(f"{call.name} is communication, which has metrics of its own")

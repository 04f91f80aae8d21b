# SPDX-License-Identifier: Apache-2.0
"""Parse the path of a framework op in a compiled program: operator, module and phase.

JAX writes name scopes and the transformations around them before the primitive
(jax/_src/source_info_util.py: `NameStack`), `jit(step)/transpose(jvp(Model))/layer_0/dot_general`;
TensorFlow's are name scopes alone, `model/layer_0/MatMul`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cclbench.normalize.phases import stated_phase

_COMPILED: Final = re.compile(r"\b(?:p?jit|pmap|xla_computation|shard_map|jax2tf)\([^()]*\)")
"""Compiled or mapped functions, which are not modules."""
_TRANSFORMS: Final = re.compile(r"\b\w+\(|\)")
"""Begin and end of a transformation around scopes, such as `vmap(` or `transpose(jvp(`."""
_BACKWARD: Final = re.compile(r"\btranspose\(")
_FORWARD: Final = re.compile(r"\bjvp\(")
_AGAIN: Final = "rematted_computation"
"""Scope that `jax.checkpoint` gives to forward ops that it runs again."""
_CONTROL: Final = re.compile(
    rf"main|while|body|cond|branch_\d+(?:_fun)?|scan|checkpoint|remat2?|{_AGAIN}|shard_map|pjit|closed_call"
    r"|core_call|custom_[jv][vj]p_call(?:_jaxpr)?|custom_lin|custom_partitioning|.*->.*"
)
"""Scopes of control flow, of calls, and of an einsum's subscripts, which are not modules."""


@dataclass(frozen=True, slots=True)
class NameStack:
    """Operator, module and phase of a path."""

    operator: str
    """The primitive, its last part."""
    module: str | None
    """The scopes around it, None if there are none."""
    phase: str
    """One of `schema.PHASES`: transposed ops are backward, differentiated ones forward or loss."""
    recomputed: bool


def name_stack(path: str) -> NameStack:
    """Parse the path of an op, or of the first of several that XLA combined."""
    path = _first_combined(path)
    scopes = _TRANSFORMS.sub("", _COMPILED.sub("", path)).split("/")
    module = [scope for scope in scopes[:-1] if scope and not _CONTROL.fullmatch(scope)]
    recomputed = _AGAIN in scopes
    stated = next((phase for scope in module if (phase := stated_phase(scope))), None)
    if recomputed or _BACKWARD.search(path):
        phase = "backward"
    elif _FORWARD.search(path):
        phase = "loss" if stated == "loss" else "forward"
    else:
        phase = stated or "other"
    return NameStack(scopes[-1] or path, "/".join(module) or None, phase, recomputed)


def _first_combined(path: str) -> str:
    """Path of the first of the ops that XLA combined into one instruction: `jit(step)/psum` of
    `jit(step)/(psum:transpose(jvp())/psum)`."""
    begin = 0 if path.startswith("(") else path.find("/(") + 1
    ops, ends, behind = path[begin + 1 :].rpartition(")")
    first, several, _ = ops.partition(":")
    return path[:begin] + first + behind if path[begin : begin + 1] == "(" and ends and several else path

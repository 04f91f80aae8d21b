# SPDX-License-Identifier: Apache-2.0
"""The path of a framework's op in a compiled program: which op, of which module, in which phase.

JAX writes name scopes and the transformations around them before the primitive
(jax/_src/source_info_util.py: `NameStack`), `jit(step)/transpose(jvp(Model))/layer_0/dot_general`;
TensorFlow's are name scopes alone, `model/layer_0/MatMul`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cclbench.normalize.phases import phase_told

_COMPILED: Final = re.compile(r"\b(?:p?jit|pmap|xla_computation|shard_map|jax2tf)\([^()]*\)")
"""A function that is compiled or mapped is no module."""
_TRANSFORMS: Final = re.compile(r"\b\w+\(|\)")
"""Begin and end of a transformation around scopes, such as `vmap(` or `transpose(jvp(`."""
_BACKWARD: Final = re.compile(r"\btranspose\(")
_FORWARD: Final = re.compile(r"\bjvp\(")
_AGAIN: Final = "rematted_computation"
"""What `jax.checkpoint` calls the forward ops that it runs again."""
_CONTROL: Final = re.compile(
    rf"main|while|body|cond|branch_\d+(?:_fun)?|scan|checkpoint|remat2?|{_AGAIN}|shard_map|pjit|closed_call"
    r"|core_call|custom_[jv][vj]p_call(?:_jaxpr)?|custom_lin|custom_partitioning|.*->.*"
)
"""Scopes of control flow, of calls, and of an einsum's subscripts, which are no modules."""


@dataclass(frozen=True, slots=True)
class NameStack:
    """What a path says."""

    operator: str
    """The primitive, its last part."""
    module: str | None
    """The scopes around it, None where it has none."""
    phase: str
    """Of `schema.PHASES`: what is transposed is backward, what is differentiated forward or loss."""
    recomputed: bool


def name_stack(path: str) -> NameStack:
    """What the path of an op says; of several that XLA combined, the first's."""
    path = _first_combined(path)
    scopes = _TRANSFORMS.sub("", _COMPILED.sub("", path)).split("/")
    module = [scope for scope in scopes[:-1] if scope and not _CONTROL.fullmatch(scope)]
    recomputed = _AGAIN in scopes
    stated = next((phase for scope in module if (phase := phase_told(scope))), None)
    if recomputed or _BACKWARD.search(path):
        phase = "backward"
    elif _FORWARD.search(path):
        phase = "loss" if stated == "loss" else "forward"
    else:
        phase = stated or "other"
    return NameStack(scopes[-1] or path, "/".join(module) or None, phase, recomputed)


def _first_combined(path: str) -> str:
    """The first of the ops of which XLA made one instruction: `jit(step)/psum` of
    `jit(step)/(psum:transpose(jvp())/psum)`."""
    begin = 0 if path.startswith("(") else path.find("/(") + 1
    ops, ends, behind = path[begin + 1 :].rpartition(")")
    first, several, _ = ops.partition(":")
    return path[:begin] + first + behind if path[begin : begin + 1] == "(" and ends and several else path

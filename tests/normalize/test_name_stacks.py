# SPDX-License-Identifier: Apache-2.0
"""Paths of ops as JAX and TensorFlow write them: op, module, phase, whether it is run again."""

from __future__ import annotations

import pytest

from cclbench.normalize.name_stacks import NameStack, name_stack


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("jit(f)/jit(main)/add", NameStack("add", None, "other", False)),
        ("jit(step)/jvp()/shard_map/mul", NameStack("mul", None, "forward", False)),
        ("jit(step)/transpose(jvp())/transpose", NameStack("transpose", None, "backward", False)),
        ("jit(step)/transpose", NameStack("transpose", None, "other", False)),
        (
            "jit(step)/jit(main)/transpose(jvp(Llama))/layer_0/attention/dot_general",
            NameStack("dot_general", "Llama/layer_0/attention", "backward", False),
        ),
        (
            "jit(step)/jvp(Llama)/while/body/layers/bhqk,bkhd->bqhd/dot_general",
            NameStack("dot_general", "Llama/layers", "forward", False),
        ),
        (
            "jit(step)/transpose(jvp(Wan))/while/body/checkpoint/rematted_computation/blocks/jit(silu)/mul",
            NameStack("mul", "Wan/blocks", "backward", True),
        ),
        ("jit(step)/jvp(loss)/reduce_sum", NameStack("reduce_sum", "loss", "loss", False)),
        ("jit(step)/optimizer/sub", NameStack("sub", "optimizer", "optimizer", False)),
        (
            "jit(f)/vmap(vmap(Encoder/block))/dot_general",
            NameStack("dot_general", "Encoder/block", "other", False),
        ),
        ("model/dense/MatMul", NameStack("MatMul", "model/dense", "other", False)),
        ("all-reduce", NameStack("all-reduce", None, "other", False)),
        # Of what XLA combined, the first.
        ("jit(step)/(transpose(jvp(A))/psum:jvp(B)/psum)", NameStack("psum", "A", "backward", False)),
        ("(A/psum:transpose(jvp(B))/mul)", NameStack("psum", "A", "other", False)),
        ("scope:0/jit(f)/mul", NameStack("mul", "scope:0", "other", False)),
        ("A/(B)/mul", NameStack("mul", "A/(B", "other", False)),
    ],
)
def test_what_a_path_says(path: str, said: NameStack) -> None:
    assert name_stack(path) == said


@pytest.mark.parametrize("part", ["(", "/(", "(:", "/(:", ")", "/(:)", "jit(", "a->", "transpose(jvp("])
def test_a_path_of_any_length_is_read_once(part: str) -> None:
    """A pattern that goes back and forth takes minutes for 400 of some of these."""
    assert name_stack(part * 20_000).operator

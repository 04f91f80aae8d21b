# SPDX-License-Identifier: Apache-2.0
"""A step of one rank: the order of its operators in each layout."""

from __future__ import annotations

from collections.abc import Iterator

from cclbench.selftest.job import EXCHANGE, GATHER, REDUCE
from cclbench.selftest.operators import RankOperators
from cclbench.selftest.program import (
    COMPUTE,
    Batch,
    Copy,
    Instruction,
    Pause,
    ProgramCall,
    StreamWait,
    item_call,
)

_FORWARD_OUT, _FORWARD_IN, _BACKWARD_OUT, _BACKWARD_IN = 31, 33, 35, 37


class RankSchedule(RankOperators):
    """The step of one rank, without noise."""

    def step_instructions(self) -> Iterator[Instruction]:
        """A whole step."""
        job = self.job
        yield Batch(period_ns=1, phase="loader")
        size = job.tokens * 8
        yield ProgramCall(
            "aten::copy_",
            (Copy("HtoD", size, 1_500 + round(size / 22.0), stream=COMPUTE),),
            dims=((job.tokens,), (job.tokens,)),
            dtype="long int",
            family="copy",
            phase="loader",
        )
        if job.layout == "pp":
            yield from self.one_forward_one_backward()
        elif job.layout in ("tp", "ep"):
            yield from self.interleaved_halves()
        else:
            yield from self.layer_sequence()
        yield from self.optimizer_calls()
        if job.logs_loss:
            yield item_call("optimizer")
        yield Pause(15_000, phase="optimizer")

    def layer_sequence(self) -> Iterator[Instruction]:
        """Layer after layer; FSDP gathers one layer ahead, DDP reduces in buckets."""
        job, is_sharded = self.job, self.job.layout == "fsdp"
        weights = 12 * job.hidden**2
        layers = range(job.layers)
        if is_sharded:
            yield StreamWait(GATHER, COMPUTE)
            yield self.gather_weights(0, weights, "forward")
        for layer in layers:
            if is_sharded:
                if layer + 1 < job.layers:
                    yield self.gather_weights(layer + 1, weights, "forward")
                yield StreamWait(COMPUTE, GATHER, f"gather{layer}")
            yield from self.attention_calls(layer, job.tokens)
            yield from self.mlp_calls(layer, job.tokens)
        yield from self.loss_calls()
        for layer in reversed(layers):
            if is_sharded:
                if layer > 0:
                    yield self.gather_weights(layer - 1, weights, "backward")
                if layer < job.layers - 1:
                    yield StreamWait(COMPUTE, GATHER, f"gather{layer}", phase="backward")
            yield from self.mlp_backward(layer, job.tokens)
            if not is_sharded:
                yield from self.reduce_gradients(layer, "all_reduce", 8 * job.hidden**2)
            yield from self.attention_backward(layer, job.tokens)
            if is_sharded:
                yield from self.reduce_gradients(layer, "reduce_scatter", weights)
            else:
                yield from self.reduce_gradients(layer, "all_reduce", 4 * job.hidden**2)
        yield StreamWait(COMPUTE, REDUCE, phase="backward")

    def interleaved_halves(self) -> Iterator[Instruction]:
        """Two halves of a batch alternate, so that one computes while the other exchanges."""
        tokens = self.job.tokens // 2
        for layer in range(self.job.layers):
            for part in (self.attention_calls, self.mlp_calls):
                for half in "ab":
                    yield StreamWait(COMPUTE, EXCHANGE, f"half{half}")
                    yield from part(layer, tokens)
                    yield from self.exchange_activations(layer, tokens, half, "forward")
        for half in "ab":
            yield StreamWait(COMPUTE, EXCHANGE, f"half{half}")
        yield from self.loss_calls()
        for layer in reversed(range(self.job.layers)):
            for backward in (self.mlp_backward, self.attention_backward):
                for half in "ab":
                    if backward == self.attention_backward or layer < self.job.layers - 1:
                        yield StreamWait(COMPUTE, EXCHANGE, f"half{half}", phase="backward")
                    yield from backward(layer, tokens)
                    yield from self.exchange_activations(layer, tokens, half, "backward")
            yield from self.reduce_gradients(layer, "all_reduce", 12 * self.job.hidden**2 // self.job.inner)
        yield StreamWait(COMPUTE, REDUCE, phase="backward")

    def one_forward_one_backward(self) -> Iterator[Instruction]:
        """One forward, one backward (1F1B)."""
        job = self.job
        warm_up = min(job.inner - self.stage - 1, job.microbatches)
        for _ in range(warm_up):
            yield from self.stage_forward()
        for _ in range(job.microbatches - warm_up):
            yield from self.stage_forward()
            yield from self.stage_backward()
        for _ in range(warm_up):
            yield from self.stage_backward()
        for layer in reversed(range(max(1, job.layers // job.inner))):
            yield from self.reduce_gradients(layer, "all_reduce", 12 * job.hidden**2)
        yield StreamWait(COMPUTE, REDUCE, phase="backward")

    def stage_forward(self) -> Iterator[Instruction]:
        """A micro-batch through this stage."""
        tokens = self.job.tokens // 2
        if self.stage > 0:
            yield self.stage_transfer("recv", self.rank - 1, _FORWARD_IN, "forward")
            yield StreamWait(COMPUTE, _FORWARD_IN)
        for layer in range(max(1, self.job.layers // self.job.inner)):
            yield from self.attention_calls(layer, tokens)
            yield from self.mlp_calls(layer, tokens)
        if self.stage < self.job.inner - 1:
            yield StreamWait(_FORWARD_OUT, COMPUTE)
            yield self.stage_transfer("send", self.rank + 1, _FORWARD_OUT, "forward")

    def stage_backward(self) -> Iterator[Instruction]:
        """A micro-batch's gradients through this stage."""
        tokens = self.job.tokens // 2
        if self.stage < self.job.inner - 1:
            yield self.stage_transfer("recv", self.rank + 1, _BACKWARD_IN, "backward")
            yield StreamWait(COMPUTE, _BACKWARD_IN, phase="backward")
        for layer in reversed(range(max(1, self.job.layers // self.job.inner))):
            yield from self.mlp_backward(layer, tokens)
            yield from self.attention_backward(layer, tokens)
        if self.stage > 0:
            yield StreamWait(_BACKWARD_OUT, COMPUTE, phase="backward")
            yield self.stage_transfer("send", self.rank - 1, _BACKWARD_OUT, "backward")

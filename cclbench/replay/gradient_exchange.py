# SPDX-License-Identifier: Apache-2.0
"""Where data-parallel training calls its collectives in a step: by PyTorch's DDP, and by its FSDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.replay.change import ChangeSubject, PlacedTransfer, TimeBounds
from cclbench.replay.gradients import Float64, StepGradients, in_phase, launched_kernels

FIRST_BUCKET: Final = 1 << 20
BUCKET: Final = 25 << 20
"""Bytes of DistributedDataParallel's buckets (`_DEFAULT_FIRST_BUCKET_BYTES`, `bucket_cap_mb`)."""
Price = Callable[[str, float], TimeBounds]
"""Time of a collective of a kind and bytes."""


def bucket_ends(nbytes: Float64, first: float, others: float) -> Int64:
    """Index of the last gradient of each bucket; a bucket is full as soon as it has its size or more."""
    ends, filled, limit = [], 0.0, first
    for i, size in enumerate(nbytes.tolist()):
        filled += size
        if filled >= limit:
            ends.append(i)
            filled, limit = 0.0, others
    if filled or not ends:
        ends.append(len(nbytes) - 1)
    return np.array(ends, np.int64)


def ddp_transfers(step: StepGradients, degree: int, price: Price) -> list[PlacedTransfer]:
    """All-reduces of DistributedDataParallel.

    Gradients fill buckets in the order in which they are ready, and what follows backward waits for all.
    """
    ends = bucket_ends(step.nbytes, FIRST_BUCKET, BUCKET)
    total = np.add.reduceat(step.nbytes, np.append(0, ends[:-1] + 1))
    return [
        PlacedTransfer(
            step.rank,
            "all_reduce",
            degree,
            nbytes,
            price("all_reduce", nbytes),
            int(step.node[end]),
            step.resume,
        )
        for nbytes, end in zip(total.tolist(), ends.tolist(), strict=True)
    ]


def fsdp_transfers(
    subject: ChangeSubject, step: StepGradients, units: int, degree: int, price: Price
) -> Iterator[PlacedTransfer]:
    """All-gathers and reduce-scatters of FullyShardedDataParallel, with that many units of equal bytes.

    Each unit is gathered before its forward and before its backward, from when the unit before it begins
    (one is prefetched), and its gradients are scattered once they are ready. The units of forward, in reverse
    order, share its time by bytes. `InputError` where the kernels of forward are unknown.
    """
    launched = launched_kernels(subject, step.rank)
    own = subject.step[launched.node] == step.step
    kernels = launched.node[own]
    forward = kernels[in_phase(subject, step.rank, launched, "forward")[own]]
    if not len(forward):
        raise InputError(
            "strategy=fsdp: the kernels of forward are unknown", hint="trace with recorded operators"
        )
    limit = step.nbytes.sum() / units * (1 - 1e-9)
    ends = bucket_ends(step.nbytes, limit, limit)
    total = np.add.reduceat(step.nbytes, np.append(0, ends[:-1] + 1))
    begun = np.cumsum(total[::-1]) - total[::-1]
    done = np.cumsum(subject.graph.nodes.dur[forward])
    firsts = forward[
        np.searchsorted(done, begun / total.sum() * done[-1], side="right").clip(0, len(done) - 1)
    ]
    place = {node: i for i, node in enumerate(kernels.tolist())}
    behind = [place[int(forward[-1])], *(place[int(node)] for node in step.node[ends[:-1]])]
    starts = kernels[np.minimum(np.array(behind) + 1, len(kernels) - 1)]

    def transfer(kind: str, nbytes: float, after: int, before: int) -> PlacedTransfer:
        return PlacedTransfer(step.rank, kind, degree, nbytes, price(kind, nbytes), int(after), int(before))

    launch = int(subject.graph.nodes.feeder[firsts[0]])
    for nbytes, after, before in zip(total[::-1].tolist(), [launch, *firsts[:-1]], firsts, strict=True):
        yield transfer("all_gather", nbytes, after, before)
    for i, nbytes in enumerate(total.tolist()):
        yield transfer("all_gather", nbytes, starts[i - 1] if i else forward[-1], starts[i])
        if i:
            yield transfer("reduce_scatter", total[i - 1], step.node[ends[i - 1]], step.resume)
    yield transfer("reduce_scatter", total[-1], step.node[ends[-1]], step.resume)

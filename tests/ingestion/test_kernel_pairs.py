# SPDX-License-Identifier: Apache-2.0
"""When a replay is of a capture, and which of its kernels pair: hand-made sequences of kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cclbench.ground.schema import OPERATORS
from cclbench.ingestion.captured_launches import Capture
from cclbench.ingestion.host_rows import Texts
from cclbench.ingestion.kernel_pairs import KernelPairs, Misfit, ReplayedKernels, pair_kernels

LAYER = [1, 2, 3, 4, 5, 6, 7, 8]
GRAPH = [100, *LAYER * 10, 101]
"""A graph of ten equal layers, 82 kernels."""


def capture(kernels: Sequence[int], work: Sequence[int] | None = None, *, named: bool = True) -> Capture:
    """A capture with a call for each launch, of its own content if `work` does not state it."""
    count = len(kernels)
    content = np.arange(count) if work is None else np.array(work)
    return Capture(
        file="capture.json",
        batch=None,
        kernels=Texts(np.arange(count, dtype=np.int32) if named else np.full(count, -1, np.int32), ()),
        copies=np.array(kernels) == -1,
        calls=OPERATORS.empty_table(),
        call=np.arange(count, dtype=np.int32),
        work=content,
        place=content,
    )


def pair(
    captured: Sequence[int],
    replayed: Sequence[int],
    streams: Sequence[int] | None = None,
    work: Sequence[int] | None = None,
    *,
    named: bool = True,
) -> KernelPairs | Misfit:
    stream = np.zeros(len(replayed), np.int64) if streams is None else np.array(streams)
    own = capture(captured, work, named=named)
    ran = ReplayedKernels(np.array(replayed, np.int64), stream)
    return pair_kernels(own, np.array(captured, np.int64), ran)


def launches(pairs: KernelPairs | Misfit) -> list[int]:
    assert isinstance(pairs, KernelPairs), pairs
    return list(pairs.launch.tolist())


def losses(pairs: KernelPairs | Misfit) -> tuple[int, int]:
    """Launches or rows without a partner; launches without a row."""
    assert isinstance(pairs, KernelPairs), pairs
    return pairs.loss, pairs.without_row


def without(values: list[int], place: int) -> list[int]:
    return values[:place] + values[place + 1 :]


@pytest.mark.parametrize("place", [0, 40, 81])
def test_a_launch_without_a_row_or_a_row_without_a_launch_is_a_loss_of_one(place: int) -> None:
    pairs = pair(GRAPH, without(GRAPH, place))
    assert (launches(pairs), losses(pairs)) == (without(list(range(82)), place), (1, 1))
    pairs = pair(without(GRAPH, place), GRAPH)
    assert (launches(pairs), losses(pairs)) == ([*range(place), -1, *range(place, 81)], (1, 0))


def test_a_long_graph_is_paired_in_bounded_work() -> None:
    pairs = pair(GRAPH, GRAPH)
    assert (launches(pairs), losses(pairs)) == (list(range(82)), (0, 0))
    graph = np.tile(np.arange(1_000), 100)
    pairs = pair(graph.tolist(), np.delete(graph, [5, 50_000, 99_999]).tolist())
    assert losses(pairs)[0] == 3
    assert min(launches(pairs)) >= 0


def test_of_kernels_with_one_name_in_a_row_none_is_certain_if_one_is_missing() -> None:
    """Unless their calls have the same arguments and module: then any is right."""
    graph = [*range(100, 160), 7, 7, 7]
    assert launches(pair(graph, graph[:-1])) == [*range(60), -1, -1]
    assert launches(pair(graph, graph[:-1], work=[*range(60), 60, 60, 60]))[:60] == list(range(60))
    assert -1 not in launches(pair(graph, graph[:-1], work=[*range(60), 60, 60, 60]))


@pytest.mark.parametrize(
    ("captured", "replayed", "why"),
    [
        # a layer, 10 % of the kernels, is no profiler's loss
        (GRAPH, [100, *LAYER * 9, 101], "74 device rows; the nearest capture has 82 launches"),
        (GRAPH, [*GRAPH[:-8], *range(200, 208)], "82 launches, 74 of the same kernels"),
        # one product's tile differs: the graph of another batch size
        (GRAPH, [*GRAPH[:-1], 102], "82 launches, with other kernels than the replay's at 1 place"),
        # 81 of 82 kernels are those of the capture, the last ones are another head
        *((GRAPH, [*GRAPH[:-1], 103, 104], ""), (GRAPH, GRAPH[::-1], "")),
        # few must be equal
        *(([1, 2, 3], [1, 2], ""), ([1, 2, 3], [1, 3, 2], ""), ([1, 2, 3], [], "")),
    ],
)
def test_another_graph_is_told(captured: list[int], replayed: list[int], why: str) -> None:
    misfit = pair(captured, replayed)
    assert misfit.why.endswith(why)


def test_streams_run_side_by_side() -> None:
    """Launched in turns on two streams; the replay's rows are by stream, then start."""
    captured = [kernel for n in range(30) for kernel in (n, 100 + n)]
    replayed = [*range(30), *range(100, 130)]
    streams = [0] * 30 + [1] * 30
    assert launches(pair(captured, replayed, streams)) == [*range(0, 60, 2), *range(1, 60, 2)]
    late = pair(captured, replayed[:-1], streams[:-1])
    assert launches(late) == [*range(0, 60, 2), *range(1, 59, 2)]
    assert losses(late) == (1, 1)


def test_a_stream_keeps_its_order() -> None:
    captured = [kernel for n in range(30) for kernel in (n, 100 + n)]
    replayed = [*range(28), 29, 28, *range(100, 130)]
    misfit = pair(captured, replayed, [0] * 30 + [1] * 30)
    assert misfit.why.endswith("in another order")


def test_one_name_on_two_streams_is_certain_by_content_alone() -> None:
    """Kernel 7 runs on both streams: which of its two rows belongs to which call, no trace tells."""
    captured = [*range(100, 130), 7, *range(200, 230), 7]
    replayed = [*range(100, 130), 7, *range(200, 230), 7]
    streams = [0] * 31 + [1] * 31
    pairs = launches(pair(captured, replayed, streams))
    assert (pairs[30], pairs[61]) == (-1, -1)
    alike = [*range(30), 99, *range(31, 61), 99]
    assert -1 not in launches(pair(captured, replayed, streams, alike))


def test_without_names_equal_calls_launch_equal_kernels() -> None:
    """CUDA's runtime states no names: ten layers of eight calls, whose kernels are alike in each."""
    work = [50, *[60 + n for n in range(8)] * 10, 51]
    assert launches(pair(GRAPH, GRAPH, work=work, named=False)) == list(range(82))
    shuffled = np.random.default_rng(0).permutation(GRAPH).tolist()
    assert isinstance(pair(GRAPH, shuffled, work=work, named=False), Misfit)
    assert isinstance(pair(GRAPH, GRAPH[1:], work=work, named=False), Misfit)
    assert isinstance(pair(GRAPH, GRAPH, named=False), Misfit), "no call occurs twice"


def test_without_names_copies_are_at_their_places() -> None:
    captured, work = [-1, *LAYER * 4], [50, *range(8), *range(8), *range(8), *range(8)]
    assert launches(pair(captured, captured, work=work, named=False)) == list(range(33))
    assert isinstance(pair(captured, [*LAYER * 4, -1], work=work, named=False), Misfit)

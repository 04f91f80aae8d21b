# SPDX-License-Identifier: Apache-2.0
"""Random layouts and programs, small and free of deadlocks, for hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import hypothesis
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.synthetic.program import (
    Await,
    Collective,
    Compute,
    Copy,
    Layout,
    Link,
    Network,
    Op,
    Pause,
    Program,
    Straggler,
    Transfer,
)
from helpers.synthetic.simulation import simulate
from helpers.synthetic.truth import Truth

LARGEST_WORLD = 16
KINDS = {"tp": ("all_reduce", "all_gather", "reduce_scatter"), "ep": ("all_to_all",)}
KINDS |= {"dp": ("all_reduce", "all_gather", "reduce_scatter")}
_DEGREES = [d for d in product((1, 2, 3, 4, 8), repeat=4) if 2 <= d[0] * d[1] * d[2] * d[3] <= LARGEST_WORLD]
_DEGREES.sort(key=lambda d: d[0] * d[1] * d[2] * d[3])


@dataclass(frozen=True, slots=True)
class Case:
    """What to simulate."""

    layout: Layout
    program: Program
    network: Network
    seed: int

    def simulate(self) -> Truth:
        return simulate(self.layout, self.program, self.network, self.seed)


@st.composite
def layouts(draw: st.DrawFn) -> Case:
    """2 to 16 ranks, 1 to 3 steps, communication in each of one or more dimensions. Collectives run in groups
    of two ranks and more; some are asynchronous; pipelines go forth and back."""
    dp, tp, pp, ep = draw(st.sampled_from(_DEGREES))
    layout = Layout(dp, tp, pp, ep, gpus_per_host=draw(st.sampled_from((2, 4, 8))))
    ops = draw(_programs(layout))
    stragglers = draw(st.lists(_stragglers(layout, len(ops)), max_size=2))
    slow = draw(st.dictionaries(st.integers(0, layout.world - 1), st.integers(500, 3000), max_size=2))
    program = Program(
        ops,
        steps=draw(st.integers(1, 3)),
        jitter=draw(st.sampled_from((0, 50, 300))),
        slow=slow,
        stragglers=tuple(stragglers),
        synchronise=draw(st.booleans()),
        closing=True,
    )
    keys: list[tuple[str, str | tuple[int, ...]]] = [("send_recv", "pp")]
    keys += [*((kind, dimension) for dimension in KINDS for kind in KINDS[dimension])]
    own = draw(st.dictionaries(st.sampled_from(keys), _links(), max_size=4))
    return Case(layout, program, Network(draw(_links()), own), draw(st.integers(0, 1 << 30)))


def _links() -> st.SearchStrategy[Link]:
    return st.builds(Link, st.integers(1_000, 40_000), st.integers(1, 200))


def _stragglers(layout: Layout, ops: int) -> st.SearchStrategy[Straggler]:
    return st.builds(
        Straggler,
        rank=st.integers(0, layout.world - 1),
        cause=st.sampled_from(("compute", "launch", "copy")),
        ns=st.integers(1_000, 400_000),
        op=st.integers(0, ops - 1),
        step=st.one_of(st.none(), st.integers(0, 2)),
    )


@st.composite
def _programs(draw: st.DrawFn, layout: Layout) -> tuple[Op, ...]:
    """Forward, backward, and what is still awaited; with a pipeline each between receive and send."""
    ops: list[Op] = []
    for way in (1, -1):
        moved = draw(st.integers(1, 64)) * 1024 * layout.world
        if layout.pp > 1:
            ops.append(Transfer("recv", moved, way))
        ops.append(draw(_compute()))
        for block in range(draw(st.integers(1, 2))):
            ops += draw(_blocks(layout, f"{way}/{block}"))
        if layout.pp > 1:
            ops.append(Transfer("send", moved, way, draw(st.sampled_from((None, f"send {way}")))))
    return (*ops, draw(_compute()))


@st.composite
def _blocks(draw: st.DrawFn, layout: Layout, name: str) -> list[Op]:
    """A few collectives among kernels, copies and pauses."""
    present = [d for d in KINDS if getattr(layout, d) > 1]
    ops: list[Op] = []
    for number in range(draw(st.integers(1, 3))):
        if present:
            dimension = draw(st.sampled_from(present))
            kind = draw(st.sampled_from(KINDS[dimension]))
            nbytes = draw(st.integers(1, 512)) * 1024 * layout.world
            label = draw(st.sampled_from((None, f"{name}/{number}")))
            coalesced = draw(st.sampled_from((1, 1, 3)))
            ops.append(Collective(kind, dimension, nbytes, label, coalesced))
        ops.append(draw(_compute()))
        if draw(st.integers(0, 3)) == 0:
            ops.append(draw(_others()))
    if draw(st.booleans()):
        ops += [Await(op.label) for op in ops if isinstance(op, Collective) and op.label][:1]
    return ops


def _compute() -> st.SearchStrategy[Compute]:
    return st.builds(Compute, st.integers(500, 300_000))


def _others() -> st.SearchStrategy[Op]:
    copies = st.builds(Copy, st.integers(500, 100_000), st.integers(1, 1 << 20), st.booleans())
    return st.one_of(copies, st.builds(Pause, st.integers(500, 200_000)))


def in_layouts(count: int, seed: int, check: Callable[[Case], None]) -> None:
    """Run the check on so many layouts, the same ones for a seed."""

    @hypothesis.seed(seed)
    @settings(max_examples=count, derandomize=False, database=None, phases=[Phase.generate])
    @given(layouts())
    def checked(case: Case) -> None:
        check(case)

    checked()

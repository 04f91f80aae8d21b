# SPDX-License-Identifier: Apache-2.0
"""The simulator of the self-test: times worked out by hand from its constants."""

from __future__ import annotations

from cclbench.selftest.program import (
    AUTOGRAD,
    COMPUTE,
    Collective,
    Copy,
    Instruction,
    Kernel,
    Program,
    ProgramCall,
    StreamWait,
    Synchronize,
)
from cclbench.selftest.simulation import DeviceWork, RankHistory, Simulation
from cclbench.selftest.truth import simulate_truth

SMALL = {"python_ns": 1_000, "operator_ns": 2_000, "launch_ns": 3_000}
"""A launch returns 6 µs after the call began, the operator 1 µs later; its work may start at 8 µs."""


def kernel(ns: int, **call: object) -> ProgramCall:
    return ProgramCall("aten::mm", (Kernel("gemm", ns),), **SMALL, **call)  # type: ignore[arg-type]


def reduction(ns: int) -> ProgramCall:
    return ProgramCall("c10d", (Collective("all_reduce", "0", (0, 1), 64, ns, 21),), **SMALL)  # type: ignore[arg-type]


def run(*ranks: tuple[Instruction, ...], contention: float = 1.0) -> list[RankHistory]:
    world = tuple(range(len(ranks)))
    program = Program(tuple((rank,) for rank in ranks), (("0", "default_pg", world),), contention=contention)
    return Simulation(program).simulate_ranks()


def spans(history: RankHistory) -> list[tuple[int, int]]:
    return [(work.start_ns, work.end_ns) for work in history.device]


def host(history: RankHistory, name: str) -> list[tuple[int, int]]:
    return [(row.start_ns, row.end_ns) for row in history.host if row.name == name]


def test_two_kernels_and_a_synchronisation() -> None:
    """The second is launched at 13 µs, and starts 1 µs after the first has ended at 58 µs."""
    (history,) = run((kernel(50_000), kernel(10_000), Synchronize(), kernel(1_000)))
    assert spans(history) == [(8_000, 58_000), (59_000, 69_000), (80_000, 81_000)]
    assert host(history, "cudaDeviceSynchronize")[0] == (14_000, 72_000)
    assert host(history, "cudaLaunchKernel") == [(3_000, 6_000), (10_000, 13_000), (75_000, 78_000)]
    assert host(history, "aten::mm")[0] == (1_000, 7_000)


def test_a_collective_ends_on_all_ranks_its_duration_after_the_last_has_come() -> None:
    """Rank 1 launches its part behind a kernel whose end its stream waits for."""
    late = (kernel(40_000), StreamWait(21, COMPUTE), reduction(5_000))
    first, second = run((reduction(5_000),), late)
    assert spans(first) == [(8_000, 53_000)]
    assert spans(second) == [(8_000, 48_000), (48_000, 53_000)]
    assert [work.arrived_ns for work in (*first.device, second.device[1])] == [48_000, 48_000]


def test_a_kernel_beside_a_collective_takes_longer() -> None:
    """Of 20 µs of work 7 µs run alone; 13 µs take 26 µs, of which 25 are beside the collective.

    Rank 1 comes 20 µs after rank 0, and the collective takes 5 µs from then.
    """
    delay = ProgramCall("aten::cat", (), python_ns=0, operator_ns=19_000)
    works = run((kernel(20_000), reduction(5_000)), (delay, reduction(5_000)), contention=2.0)[0].device
    assert (works[1].start_ns, works[1].end_ns) == (15_000, 33_000)
    # 8 to 15 µs alone, 15 to 33 at half the rate, which is 9 of the 13 µs left; 4 µs alone.
    assert (works[0].start_ns, works[0].end_ns) == (8_000, 37_000)


def test_a_blocking_copy_holds_the_host() -> None:
    """The call of a pageable copy returns 3 µs after its end; the wait behind it is none."""
    item = ProgramCall("item", (Copy("DtoH", 4, 2_000, pinned=False),), blocks=True, **SMALL)  # type: ignore[arg-type]
    (history,) = run((kernel(50_000), item))
    assert spans(history) == [(8_000, 58_000), (59_000, 61_000)]
    assert host(history, "cudaMemcpyAsync") == [(10_000, 64_000)]
    assert host(history, "cudaStreamSynchronize") == [(64_000, 65_500)]


def test_the_backward_pass_has_a_thread_of_its_own() -> None:
    (history,) = run((kernel(1_000), kernel(1_000, phase="backward")))
    assert [row.thread == AUTOGRAD for row in history.host if row.name == "aten::mm"] == [False, True]


def test_a_step_is_measured_between_first_kernels() -> None:
    """Two steps of two kernels: 10 µs and 20 µs, 1 µs between works; the second step is open."""
    step = (kernel(10_000), kernel(20_000))
    truth = simulate_truth(Program((((*step,), (*step,)),), (("0", "default_pg", (0,)),)))
    starts = [work.start_ns for work in works_of(truth.histories)]
    assert starts == [8_000, 19_000, 40_000, 51_000]
    assert truth.step_s == 32e-6
    assert truth.figures["compute.time"] == 30e-6
    assert truth.figures["time.idle"] == 2e-6


def works_of(histories: list[RankHistory]) -> list[DeviceWork]:
    return [work for history in histories for work in history.device]

# SPDX-License-Identifier: Apache-2.0
"""Benchmarks that narrow a machine's bands, and what they leave of them."""

from __future__ import annotations

import pytest

from cclbench.ground.errors import UsageError
from cclbench.hardware import catalog
from cclbench.hardware.probe import KINDS, ProbeCommand, band_rows, choose_commands

P5 = catalog.system("aws-p5")


def test_a_command_in_the_words_of_nccl_tests() -> None:
    one = ProbeCommand("all_to_all", 8, 1, 8, 64)
    assert one.sizes == (8, 512, 32768, 2097152)
    assert " ".join(one.arguments) == "env NCCL_DEBUG=VERSION alltoall_perf -b 8 -e 2097152 -f 64 -g 8"
    several = ProbeCommand("all_reduce", 16, 2, 8, 64)
    assert several.arguments[:5] == ("mpirun", "-np", "16", "--map-by", "ppr:8:node")
    assert several.arguments[-2:] == ("-g", "1")


def test_of_one_collective_its_own_sweep_narrows_most() -> None:
    """One node and two: a command for each, no third one, as every group is then measured."""
    chosen = choose_commands(P5, ["all_gather"], 2, 5)
    assert sorted((own.kind, own.nodes) for own in chosen) == [("all_gather", 1), ("all_gather", 2)]


def test_no_other_window_narrows_more() -> None:
    """The first choice leaves the narrowest bands, compared with each single command of other sizes."""

    def left(command: ProbeCommand) -> float:
        rows = band_rows(P5, ["all_reduce"], 1, [command])
        return sum(row["after"] for row in rows)

    (chosen,) = choose_commands(P5, ["all_reduce"], 1, 1)
    assert left(chosen) <= min(left(ProbeCommand("all_reduce", 8, 1, first, 8)) for first in (8, 1024))


@pytest.mark.parametrize("machine", ["aws-p5", "gb200-nvl72", "mi300x-8gpu", "rtx4090-8gpu"])
def test_no_band_grows_by_measuring(machine: str) -> None:
    system = catalog.system(machine)
    nodes = 2 if system.scale_out else 1
    commands = choose_commands(system, KINDS, nodes, 2)
    assert 1 <= len(commands) <= 2
    rows = band_rows(system, KINDS, nodes, commands)
    assert all(row["after"] <= row["before"] + 1e-9 for row in rows)
    assert min(row["after"] / row["before"] for row in rows) < 0.7


def test_machines_of_other_libraries_are_refused() -> None:
    with pytest.raises(UsageError, match="nccl-tests and rccl-tests do not run on google-tpu-v4-pod"):
        choose_commands(catalog.system("google-tpu-v4-pod"), KINDS, 1, 1)

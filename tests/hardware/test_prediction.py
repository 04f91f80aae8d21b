# SPDX-License-Identifier: Apache-2.0
"""Predicted collectives as rows, what does not go together, and benchmarks that narrow their bands."""

from __future__ import annotations

from pathlib import Path

import pytest

from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.hardware.calibration import Calibration, write_calibration
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.collectives.transport import PROTOCOLS
from cclbench.hardware.prediction import COLUMNS, predict_rows
from cclbench.hardware.probe import KINDS, ProbeCommand, band_rows, choose_commands
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.system import System

DGX = catalog.system("dgx-h100")


def test_rows_by_size() -> None:
    rows = predict_rows("all_reduce", [8, 1 << 20], 16, DGX)
    found = price_collective("all_reduce", [8, 1 << 20], range(16), DGX)
    assert [row["bytes"] for row in rows] == [8, 1 << 20]
    for at, row in enumerate(rows):
        assert tuple(row) == COLUMNS
        figures = {name: row[name] for name in ("time_s", "low_s", "high_s", "algbw", "busbw")}
        assert figures == {name: getattr(found, name)[at] for name in figures}
        assert (row["algorithm"], row["protocol"]) == (found.algorithm[at], found.protocol[at])
        asked = [row[name] for name in ("system", "collective", "ranks", "nodes")]
        assert asked == ["dgx-h100", "all_reduce", 16, 2]
        assert (row["basis"], row["provenance"], row["reason"]) == ("spec", "modelled", None)
    # ranks are spread over nodes where these are given
    (row,) = predict_rows("all_reduce", [8], 4, DGX, nodes=4)
    assert (row["ranks"], row["nodes"]) == (4, 4)
    (narrowed,) = predict_rows("all_reduce", [8], 4, DGX, algorithm="tree", protocol="LL")
    assert (narrowed["algorithm"], narrowed["protocol"]) == ("tree", "LL")


@pytest.mark.parametrize("system", catalog.systems().values(), ids=lambda system: system.id)
def test_a_protocol_that_is_asked_for_has_a_band(system: System) -> None:
    """Network software that may not let LL through does so where LL is asked for, at worst too."""
    for kind in ("gather", "all_reduce"):
        for protocol in PROTOCOLS:
            found = price_collective(
                kind, 4096, system.group_members(4 * system.per_node, None), system, protocol=protocol
            )
            assert isinstance(found, NoPrice) or found.low_s[0] < found.time_s[0] < found.high_s[0]


def test_a_figure_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        predict_rows("all_reduce", [8], 2, catalog.system("mi250x-node"))
    assert raised.value.hint == "state scale_up in a hardware file of your own (--hardware)"
    with pytest.raises(InputError) as raised:
        predict_rows("all_gather", [8], 16, DGX, algorithm="tree")
    assert raised.value.hint is None
    # a calibration tells of what libraries choose
    path = tmp_path / "calibration.yaml"
    write_calibration(Calibration(DGX.id, (Sweep("all_reduce", 8, 1, (8, 16), (1e-3, 2e-3)),)), path)
    (row,) = predict_rows("all_reduce", [8], 8, DGX, calibration=path)
    assert (row["basis"], row["time_s"]) == ("calibrated", pytest.approx(1e-3))
    for narrowed in ({"algorithm": "ring"}, {"protocol": "LL"}):
        with pytest.raises(UsageError, match="does not cover one algorithm or protocol; leave out --calib"):
            predict_rows("all_reduce", [8], 8, DGX, calibration=path, **narrowed)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="does not cover barriers"):
        predict_rows("barrier", None, 8, DGX, calibration=path)


P5 = catalog.system("aws-p5")


def test_commands_of_a_probe() -> None:
    one = ProbeCommand("all_to_all", 8, 1, 8, 64)
    assert one.sizes == (8, 512, 32768, 2097152)
    assert " ".join(one.arguments) == "env NCCL_DEBUG=VERSION alltoall_perf -b 8 -e 2097152 -f 64 -g 8"
    several = ProbeCommand("all_reduce", 16, 2, 8, 64)
    assert several.arguments[:5] == ("mpirun", "-np", "16", "--map-by", "ppr:8:node")
    assert several.arguments[-2:] == ("-g", "1")
    # one node and two: a command for each, no third one, as every group is then measured
    chosen = choose_commands(P5, ["all_gather"], 2, 5)
    assert sorted((own.kind, own.nodes) for own in chosen) == [("all_gather", 1), ("all_gather", 2)]
    # machines of other libraries are refused
    with pytest.raises(UsageError, match="nccl-tests and rccl-tests do not run on google-tpu-v4-pod"):
        choose_commands(catalog.system("google-tpu-v4-pod"), KINDS, 1, 1)


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

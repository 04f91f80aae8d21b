# SPDX-License-Identifier: Apache-2.0
"""The scoreboard: its page, a sweep that is added, and the baselines by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cclbench.ground.errors import InputError
from cclbench.hardware.catalog import system
from cclbench.hardware.sweep import Sweep

SWEEP = """\
# coll: all_reduce
# ranks: 16
# nodes: 2
# gpu: NVIDIA H100
# system: dgx-h100
# nccl: 2.21.5
# source: a page
size_bytes,count,dtype,redop,oop_time_us,oop_algbw_GBps,oop_busbw_GBps,ip_time_us,ip_algbw_GBps,ip_busbw_GBps
1024,,float,,40,,,,,
1073741824,,float,,5600,,,,,
"""


@pytest.fixture(autouse=True)
def scripts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(repository / "scripts")


def program(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_the_page_has_the_scores_of_the_shipped_and_of_all_sweeps(repository: Path, test_data: Path) -> None:
    board = program("scoreboard")
    page = (repository / "docs" / "scoreboard.md").read_text()
    folders = [test_data / name for name in ("nccl_tests", "nccl_tests_more", "published_jobs")]
    assert board.replace_block(page, "shipped", board.page([])) == page
    assert board.replace_block(page, "all", board.page(folders)) == page


def test_a_sweep_is_added_by_its_file(tmp_path: Path) -> None:
    """Its file alone puts it on the board, predicted without what its system taught."""
    board = program("scoreboard")
    (tmp_path / "mine_2n16_allreduce.csv").write_text(SWEEP)
    block = board.page([tmp_path])
    (row,) = [line for line in block.splitlines() if "mine_2n16_allreduce" in line]
    assert row.startswith("| mine_2n16_allreduce: all_reduce, 16 ranks (dgx-h100) | 1 | 2 | ")
    (tmp_path / "mine_2n16_allreduce.csv").write_text(SWEEP.replace("# source: a page\n", ""))
    with pytest.raises(InputError, match="without its source"):
        board.page([tmp_path])


def test_its_system_is_left_out(tmp_path: Path) -> None:
    """Times ten times longer do not change what is predicted for it."""
    board, sweeps = program("scoreboard"), program("public_sweeps")
    predicted = []
    for times in (SWEEP, SWEEP.replace(",40,", ",400,").replace(",5600,", ",56000,")):
        (tmp_path / "mine.csv").write_text(times)
        public = [*sweeps.folder_sweeps(sweeps.PUBLISHED), *sweeps.folder_sweeps(tmp_path)]
        found, _ = board.score_sweeps(public)
        (mine,) = [score for score in found if score.public.file == "mine"]
        predicted.append(np.log(mine.public.sweep.times_s) - mine.model.residual)
    assert predicted[0] == pytest.approx(predicted[1])


def test_fitted_figures_are_those_of_the_other_machine(test_data: Path) -> None:
    """TCPX: 0.47 of the line rate by SkyPilot's cluster predicts dstack's, 0.53 by dstack's SkyPilot's."""
    sweeps = program("public_sweeps")
    publics = [*sweeps.folder_sweeps(sweeps.PUBLISHED), *sweeps.folder_sweeps(test_data / "nccl_tests_more")]
    shares, errors = {}, {}
    for public in publics:
        if public.system == "gcp-a3-high":
            machine = sweeps.predicted_system(public)
            shares[public.file] = machine.scale_out.fabric.usable_fraction
            off = sweeps.price_sweep(public, machine).residual
            errors[public.file] = float(np.median(np.abs(np.expm1(-off))))
            assert sweeps.specified_system(public.system).scale_out.fabric.usable_fraction is None
        elif public.system != "mi250x-node":
            assert sweeps.predicted_system(public) == system(public.system), public.file
    assert shares == {"gcp_a3high_2n16_allgather": 0.47, "skypilot_a3high_2n16_allreduce": 0.53}
    assert max(errors.values()) < 0.2


def test_bias_error_and_coverage_by_hand(tmp_path: Path) -> None:
    """Three rows, 1, 2 and 8 times the predicted time, in a band of 0.25 to 4 times."""
    board, unseen = program("scoreboard"), program("unseen_machines")
    (tmp_path / "mine.csv").write_text(SWEEP)
    (public,) = program("public_sweeps").folder_sweeps(tmp_path)
    observed = program("public_sweeps").price_sweep(public)
    observed = type(observed)(
        *("mine", "m", "dgx-h100", observed.setting, np.array([1.0, 2.0, 3.0]), np.zeros(3))
    )
    log = np.log
    errors = unseen.HeldOutErrors(log([1.0, 2.0, 8.0]), np.full(3, log(4)), np.full(3, log(4)))
    score = board.Score(public, observed, errors, {"NCCL": log([0.5, 0.5, 4.0])})
    # |1/2 - 1| = 50 %, log 2 = +69 %, two of three within, 4 / 0.25; NCCL: |1/0.5 - 1| = 100 %
    assert (
        board.score_row("x", [score], None) == "| x | 1 | 3 | 50%, +69% | 67% (16.0 times) | 100%, -69% | - |"
    )


def test_baselines_by_hand() -> None:
    """NCCL's estimate, Ring, Simple, two nodes of eight H100, NCCL 2.18: 8.4 + 28 x 3.4 + 2 x 14 us, 1.4
    times, and 30/16 S at 8 x 50 GB/s; the tree passes 2 S at 0.92 of the node's links, 370.8 GB/s: slower at
    1 GiB. Alpha-beta: 2 log2 16 = 8 messages of 14 us, 30/16 S at a GPU's links; all-to-all: 15, 15/16 S at
    50 GB/s."""
    base = program("baselines")
    sweep, pairs = (Sweep(kind, 16, 2, (1 << 30,), (1.0,), "2.18.3") for kind in ("all_reduce", "all_to_all"))
    group = base.line_rate_group(system("dgx-h100"), sweep)
    passed_s = (1 << 30) * 30 / 16 / 370.8e9
    ring_s = 1.4 * (8.4 + 28 * 3.4 + 2 * 14) * 1e-6 + passed_s
    assert base.nccl_times(sweep, group)[0] == pytest.approx(ring_s, rel=1e-3)
    assert base.nccl_times(Sweep("all_to_all", 16, 2, (1 << 30,), (1.0,)), group) is None
    assert base.alpha_beta_times(sweep, group)[0] == pytest.approx(8 * 14e-6 + passed_s, rel=1e-3)
    pairs_s = 15 * 14e-6 + (1 << 30) * 15 / 16 / 50e9
    assert base.alpha_beta_times(pairs, group)[0] == pytest.approx(pairs_s, rel=1e-3)

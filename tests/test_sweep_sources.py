# SPDX-License-Identifier: Apache-2.0
"""From files of sweeps to a calibration in a notebook: read, merge, calibrate, validate."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import calibration, catalog
from cclbench.sweep_sources import read_sweeps

HEAD = (
    "size_bytes,count,dtype,redop,oop_time_us,oop_algbw_GBps,oop_busbw_GBps,"
    "ip_time_us,ip_algbw_GBps,ip_busbw_GBps"
)
P5 = catalog.system("aws-p5")


def csv(path: Path, *times: tuple[int, int], release: str = "2.19.3") -> Path:
    """A published sweep: (bytes, µs) of all-reduce among 16 ranks on 2 nodes, and one row in place."""
    rows = [f"{size},{size // 4},float,sum,{us},,,,," for size, us in times]
    in_place = f"{times[0][0]},1,float,sum,,,,9.0,,"
    header = ["# coll: all_reduce", "# ranks: 16", "# nodes: 2", f"# nccl: {release}", HEAD]
    path.write_text("\n".join([*header, *rows, in_place]) + "\n")
    return path


@pytest.fixture
def sweeps(tmp_path: Path) -> list[Path]:
    """Two sweeps of one group."""
    first = csv(tmp_path / "first.csv", (2**20, 100), (2**22, 200))
    return [first, csv(tmp_path / "second.csv", (2**20, 120), (2**24, 600))]


def test_each_sweep_names_its_file_and_rows_in_none_are_counted(sweeps: list[Path]) -> None:
    found = read_sweeps(sweeps, P5)
    assert [each.display_name for each in found.sweeps] == ["first.csv", "second.csv"]
    assert [each.library_version for each in found.sweeps] == ["2.19.3"] * 2
    assert found.sweeps[0].group_words == "all_reduce, 16 ranks on 2 nodes"
    assert found.sweeps[1].seconds == (120e-6, 600e-6)
    assert found.left_out == {"in place (only out-of-place is compared)": 2}
    assert found.caveats == []


def test_a_calibration_merges_them_and_does_not_keep_their_files(sweeps: list[Path], tmp_path: Path) -> None:
    by = calibration.calibrate(read_sweeps(sweeps, P5).sweeps, P5)
    assert isinstance(by, calibration.Calibration)
    (merged,) = by.sweeps
    assert merged.bytes == (2**20, 2**22, 2**24)
    assert merged.seconds == pytest.approx((110e-6, 200e-6, 600e-6))
    assert "source" not in msgspec.to_builtins(merged)
    calibration.write_calibration(by, tmp_path / "p5.yaml")
    assert "first.csv" not in (tmp_path / "p5.yaml").read_text()
    assert calibration.read_calibration(tmp_path / "p5.yaml") == by


def test_releases_do_not_merge_nor_is_a_file_without_a_sweep_read(sweeps: list[Path], tmp_path: Path) -> None:
    newer = csv(tmp_path / "newer.csv", (2**20, 90), release="2.27.3")
    with pytest.raises(UsageError, match=r"first\.csv and newer\.csv both measure all_reduce, 16 ranks"):
        calibration.calibrate(read_sweeps([sweeps[0], newer], P5).sweeps, P5)
    with pytest.raises(InputError, match="contains no sweep of a collective"):
        read_sweeps([csv(tmp_path / "none.csv", (2**20, 0))], P5)

# SPDX-License-Identifier: Apache-2.0
"""Ascend's tables of steps: exact times, ranks, what is left out; beside the rows of their rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.refused import refused

from cclbench.api import run
from cclbench.formats import recognise_format
from cclbench.formats.ascend_steps import AscendSteps
from cclbench.record.selection import Selection
from cclbench.results import full_results
from cclbench.source_summaries import source_summaries

COLUMNS = "Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble"
REST = ",Communication(Not Overlapped and Exclude Receive),Preparing"
RANK = f"Device_id,Step,{COLUMNS}{REST}\n"
CLUSTER = f"Step,Type,Index,{COLUMNS}{REST}\n"
FOLDER = "ascend/profiler/msprof_analyze/test/resource/advisor/cluster_analysis_output"
REAL = f"{FOLDER}/cluster_step_trace_time.csv"
# Step 1 computes 0 to 60 and 90 to 100, communicates 50 to 80, and is free 80 to 90: 70 + 20 + 10 = 100 us.
# Its row is as torch_npu would write it; step 2 is the last one, which is open here.
TABLE = RANK + "0,1,70,20,10,30,10,100,0.0,20,7.5\n0,2,10,0,0,0,0,10,0,0,1\n"
PARTS = ("compute", "exposed_comm", "overlapped", "free")
TASKS = """\
Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)
1,1,1,16,a,MatMul,AI_CORE,1000000,60,0
1,1,N/A,9,hcom_allReduce__1_0,hcom_allReduce_,HCCL,1000050,30,0
1,1,2,16,b,MatMul,AI_CORE,1000090,10,0
2,1,3,16,c,MatMul,AI_CORE,1000100,10,0
"""


@pytest.fixture
def write(written: Callable[..., Path]) -> Callable[[str], Path]:
    return lambda text: written(text, "step_trace_time.csv")


def test_times_are_exact_and_rows_of_stages_left_out(write: Callable[[str], Path]) -> None:
    rank = "2,rank,3,1.0005,2e-3,0,-0.5,4,5,0,0,1726054679554437.8\n"
    path = write("\ufeff" + CLUSTER + rank + ',stage,"(0, 1)",1,1,1,1,1,1,1,1,1\n')
    assert recognise_format(path, path.read_bytes()).name == "ascend_steps"
    found = AscendSteps().read(path)
    rows = [tuple(row.values())[3:] for row in found.stated_parts.to_pylist()]
    assert {row[:3] for row in rows} == {(3, None, 2)}
    assert {row[3]: row[4] for row in rows} == {
        "compute": 1000,  # half to even of 1,000.5 ns
        "exposed_comm": 2,
        "free": 4000,
        "stage": 5000,
    } | dict.fromkeys(("overlapped", "bubble", "exposed_comm_without_receive"), 0)
    assert found.left_out == {
        "Communication: negative, or no time": 1,
        # the first task's time since 1970, where the step has no begin
        "Preparing: negative, or no time": 1,
        "rows of stages, which are made of their ranks' rows": 1,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RANK, "has no times of a step"),
        (RANK + "0,1,1\n", "line 2: 3 cells, not 11"),
        (TABLE.replace("\n0,2", "\n0,two"), "line 3: has a Step that is no number"),
        (TABLE.replace("\n0,2", "\nx,2"), "has a Device_id that is no number"),
        (TABLE.replace("0,1,70", "0,1\r,70"), "line 2: is no row of a table"),
        (RANK + "0,1" + ",nan" * 9 + "\n", "has no times of a step"),
    ],
)
def test_damage_is_refused(write: Callable[[str], Path], text: str, words: str) -> None:
    refused(AscendSteps().read, write(text), words)


def difference(folder: Path, store: Path) -> dict[tuple[str, int | None, str | None], float | None]:
    rows = full_results(run(folder, store=store), Selection())
    names = ("time.stated_parts", "time.stated_difference")
    return {(str(row.metric), row.rank, row.category): row.value for row in rows if row.metric in names}


def test_a_table_beside_the_rows_of_its_rank(tmp_path: Path) -> None:
    """Equal by hand for the first table; the second states 5 us of free time as compute: 5 % of 100 us."""
    tables = {
        "equal": TABLE,
        "shifted": TABLE.replace("0,1,70,20,10,30,10,", "0,1,75,20,10,30,5,"),
        "whole": RANK + "0,,80,20,10,30,10,110,0,20,0\n",
        "other": RANK + "0,7,80,20,10,30,10,110,0,20,0\n",
    }
    for name, table in tables.items():
        folder = tmp_path / name
        for rank in (0, 1):
            output = folder / f"rank{rank}" / "ASCEND_PROFILER_OUTPUT"
            output.mkdir(parents=True)
            (output / "kernel_details.csv").write_text(TASKS + "\n" * rank)
        (folder / "rank1/ASCEND_PROFILER_OUTPUT/step_trace_time.csv").write_text(table)
    found = {name: difference(tmp_path / name, tmp_path / "store") for name in tables}
    parts, share = "time.stated_parts", "time.stated_difference"
    assert found["equal"][parts, 1, None] == pytest.approx(55e-6)  # of two steps, 100 and 10 us
    assert found["equal"][parts, 1, "preparing"] == pytest.approx(4.25e-6)
    assert {key: value for key, value in found["equal"].items() if key[0] == share} == dict.fromkeys(
        ((share, None, None), *((share, 1, part) for part in (None, *PARTS))), 0
    )
    assert found["shifted"][share, None, None] == pytest.approx(0.05)
    assert found["shifted"][share, 1, "compute"] == pytest.approx(-0.05)
    assert found["shifted"][share, 1, "free"] == pytest.approx(0.05)
    assert found["whole"][share, None, None] == 0
    assert found["other"][share, None, None] is None
    assert (share, 0, None) not in found["equal"]


def test_a_cluster_of_eight(test_data: Path) -> None:
    """Every row adds up as its columns say: within 0.4 us, the grid of a float of us since 1970."""
    found = AscendSteps().read(test_data / REAL)
    rows = {(row["rank"], row["part"]): row["dur_ns"] for row in found.stated_parts.to_pylist()}
    assert sorted({rank for rank, _ in rows}) == list(range(8))
    for rank in range(8):
        at = {part: ns for (own, part), ns in rows.items() if own == rank}
        assert at["exposed_comm"] + at["overlapped"] == pytest.approx(at["communication"], abs=1)
        assert at["compute"] + at["exposed_comm"] + at["free"] - at["bubble"] == pytest.approx(
            at["stage"], abs=400
        )
    assert rows[0, "compute"] == 80_309_687  # 80309.68717187493 us


def test_a_table_alone_has_a_summary(test_data: Path, tmp_path: Path) -> None:
    """Means over eight ranks, by hand from the columns."""
    made = run(test_data / REAL, store=tmp_path / "store")
    (summary,) = source_summaries(made, full_results(made, Selection()))
    (table,) = summary.tables
    assert table.values_of("rank") == [*(f"rank {rank}" for rank in range(8)), "all"]
    assert table.values_of("compute")[0] == pytest.approx(0.08030968717187493)
    assert summary.sentences == [
        "A step takes 1.71 s in the mean: compute 4.7 %, exposed communication 26.5 %, free 68.8 %."
    ]

# SPDX-License-Identifier: Apache-2.0
"""Result rows as a report reads them."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.report_run import by_rank, by_step, results, row, table
from helpers.typed import figures, run_of

from cclbench.ground.errors import InputError
from cclbench.ground.schema import RESULTS
from cclbench.record import results as of_record
from cclbench.record import rows as of_rows
from cclbench.record.metric_name import metric_name
from cclbench.record.results import Results
from cclbench.record.rows import rows_of, table_of


def test_the_runs_own_row_is_that_which_nothing_narrows() -> None:
    rows = Results(table(results()))
    assert rows.value("time.step") == 0.1
    assert rows.run["time.step"].stat is None
    assert rows.value("comm.measured_busbw") is None
    assert rows.missing_reason("comm.measured_busbw") == "no benchmark"
    assert rows.missing_reason(metric_name("comm.alpha")) == "its results have no comm.alpha"
    parts = [row("time.step_parts", 1.0, stat="compute")]
    parts.append(row("time.step_parts", 0.5, stat="compute", category="gemm"))
    told = Results(table(parts))
    assert told.value("time.step_parts", stat="compute") == 1.0
    assert told.value("time.step_parts", stat="compute", category="gemm") == 0.5
    assert rows.scope == Results.from_rows(figures(results())).scope == (["steps"], [0, 1], [3, 4], [])
    assert Results(table([])).scope == ([], [], [], [])


def test_ranks_and_steps() -> None:
    rows = Results(table(results()))
    assert rows.ranks("time.compute_only") == {0: 0.03, 1: 0.05}
    assert rows.steps("time.step") == {3: 0.1, 4: 0.1}
    grid = rows.grid("comm.wait")
    assert (grid.ranks.tolist(), grid.steps.tolist()) == ([0, 1], [3, 4])
    assert grid.values.tolist() == [[0.02, 0.03], [0.0, 0.01]]
    # a step that a rank lacks is masked and not zero
    grid = Results(table(by_step("comm.wait", [[0.1, 0.2], [0.3]]))).grid("comm.wait")
    assert np.ma.getmaskarray(grid.values).tolist() == [[False, False], [False, True]]
    # modelled numbers are none of ranks and steps
    modelled = by_rank("comm.transfer", (1.0, 2.0), provenance="modelled")
    modelled += by_step("comm.transfer", [[1.0], [2.0]], provenance="modelled")
    rows = Results(table(modelled))
    assert rows.ranks("comm.transfer") == {}
    assert rows.grid("comm.transfer").values.size == 0


def test_parts_are_bounded_and_the_rest_is_counted() -> None:
    many = [row("comm.volume", float(n), "B", group=str(n)) for n in range(7)]
    lacking = row("comm.volume", None, "B", group="7")
    parts, more = Results(table([row("comm.volume", 21.0, "B"), *many, lacking])).parts("comm.volume", most=5)
    assert [part.group for part in parts] == ["0", "1", "2", "3", "4"]
    assert more == 2


@pytest.mark.parametrize("rows_at_once", [1, 2, 1 << 14])
def test_rows_come_one_by_one_as_they_were_given(monkeypatch: pytest.MonkeyPatch, rows_at_once: int) -> None:
    monkeypatch.setattr(of_record, "ROWS_AT_ONCE", rows_at_once)
    given = figures(results())
    assert list(Results.from_rows(given)) == given == list(Results(table(results())))
    assert len(Results.from_rows(given)) == len(given)
    assert Results.from_rows(given).scope == Results(table(results())).scope
    assert list(Results.from_tables(())) == []


def test_rows_of_a_metric_keep_their_order_wherever_they_stand() -> None:
    given = figures([row("b", 1.0), row("a", 2.0), row("a", 3.0, rank=0), row("b", 4.0, rank=0)])
    found = Results.from_tables([table_of(given[:3]), table_of(given[3:])])
    assert found.metrics == ["b", "a"]
    assert [one.value for one in rows_of(found.metric_rows("b"))] == [1.0, 4.0]
    assert [one.value for one in rows_of(found.metric_rows("a"))] == [2.0, 3.0]
    assert rows_of(found.metric_rows("c")) == []
    assert Results.from_tables(()).metrics == []
    # in short there are no parts of single ranks
    kept = [row("a", 1.0), row("a", 2.0, step=3), row("a", 3.0, group="0-1"), row("a", 4.0, rank=0)]
    parts = [row("a", 5.0, rank=0, step=3), row("a", 6.0, rank=0, stat="p50")]
    assert list(Results.from_rows(figures([*kept, *parts])).summary) == figures(kept)


@pytest.mark.parametrize("in_memory", [0, 1, 3])
def test_rows_that_lie_in_a_file_answer_as_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    given = figures(results())
    near = Results.from_rows(given)
    monkeypatch.setattr(of_rows, "IN_MEMORY", in_memory)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = pa.total_allocated_bytes()
    far = Results.from_tables(table_of([one]) for one in given)
    assert pa.total_allocated_bytes() - before < near.table.nbytes / 4
    assert list(tmp_path.iterdir()) == []
    assert len(far) == len(given)
    assert list(far) == given
    assert far.rows == near.rows
    assert far.scope == near.scope
    assert list(far.summary) == list(near.summary)
    for metric in near.metrics:
        assert rows_of(far.metric_rows(metric)) == rows_of(near.metric_rows(metric))
        assert far.ranks(metric) == near.ranks(metric)
    assert [len(part) for part in far.slices(2)] == [len(part) for part in near.slices(2)]


def test_results_without_room_are_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(of_rows, "IN_MEMORY", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("pyarrow.ipc.new_stream", full)
    with pytest.raises(InputError, match="No space left on device"):
        Results.from_tables(table_of([one]) for one in figures(results()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_memory", [1, 1 << 18])
def test_saved_results_stay_those_that_they_were_when_others_take_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(of_rows, "IN_MEMORY", in_memory)
    run = run_of(tmp_path / "run", ["a.json"])
    given = figures(results())
    run.save_results(Results.from_rows(given))
    before = run.saved_results
    run.save_results(Results.from_rows(given[:1]))
    assert before is not None
    assert list(before) == given


def test_rows_are_stored_as_they_are_in_as_many_pieces_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path / "run", ["a.json"])
    given = figures(results())
    run.save_results(Results.from_rows(given))
    whole = pq.read_table(run.path / "results.parquet")
    assert whole.schema.equals(RESULTS)
    monkeypatch.setattr("cclbench.record.run.ROW_GROUP", 2)
    run.save_results(Results.from_rows(given))
    assert pq.read_table(run.path / "results.parquet").equals(whole)
    assert run.saved_results is not None
    assert list(run.saved_results) == given

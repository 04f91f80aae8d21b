# SPDX-License-Identifier: Apache-2.0
"""A profile of TensorFlow whose steps wait for tf.data: what scripts/workloads/tensorflow_input.py states."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import cclbench
from cclbench.operator_table import operator_costs

STEPS = 8
TAKES_NEXT = "EagerLocalExecute: IteratorGetNext"


@pytest.fixture(scope="module")
def run(repository: Path, evidence_store: Path, tmp_path_factory: pytest.TempPathFactory) -> cclbench.Run:
    path = tmp_path_factory.mktemp("input") / "tensorflow_input.xplane.pb"
    packed = repository / "tests/golden/cpu_input/tensorflow_input.xplane.pb.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return cclbench.run(path, store=evidence_store)


def test_ops_of_tensorflow_are_those_of_the_default_device(run: cclbench.Run) -> None:
    """TensorFlow states device −1 and run −1 of each op: it sets neither."""
    (rank,) = run.record.ranks
    assert (rank.rank, rank.facts.device_count) == (0, 1)
    counts = run.sql("SELECT count(*) AS n, count(correlation) AS linked FROM events WHERE side = 'device'")
    assert counts.table.to_pylist() == [{"n": 8 * STEPS, "linked": 0}]
    assert [row["step"] for row in run.steps().to_pylist() if row["source"] == "annotation"][:STEPS] == [
        *range(STEPS)
    ]


def test_operators_have_tensorflows_names_and_name_scopes(run: cclbench.Run) -> None:
    """Two products of a batch of 256 with weights of 512 by 1,024 in each step, all within `mlp`."""
    table = operator_costs(run, "program,module,op", tree=True, window="trace")
    (program,) = (row for row in table.rows if row.depth == 1)
    assert program.words[0].startswith("a_inference_step_")
    scopes = {row.words[1]: row for row in table.rows if row.depth == 2}
    assert {"mlp", "loss"} <= {scope.partition("/")[0] for scope in scopes}
    products = [row for row in table.rows if row.depth == 3 and row.family == "matrix product"]
    assert sum(row.calls for row in products) == 2 * STEPS


def test_the_device_stalls_while_the_program_takes_the_next_element(run: cclbench.Run) -> None:
    """A step takes an element first, then computes: nothing runs on the device meanwhile.

    A batch takes 10 ms and more to load, most of it in the prefetching thread, whose time is not the step's.
    """
    query = f"SELECT sum(dur_ns)::BIGINT AS ns FROM events WHERE name = '{TAKES_NEXT}'"  # noqa: S608
    (taken,) = run.sql(query).table.to_pylist()
    windows = run.sql("SELECT sum(end_ns - start_ns)::BIGINT AS ns FROM step_windows").table.to_pylist()
    share = run.figures.value("data.stall")
    assert share == pytest.approx(taken["ns"] / windows[0]["ns"], rel=1e-2)
    assert 0.5 < share < 0.9

# SPDX-License-Identifier: Apache-2.0
"""Copies of evidence have the tables of the original, by readers whose names are keys, cells or labels."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from formats import test_ascend as ascend
from formats import test_chakra, test_ebpf_session, test_nccl_profiler, test_rocprof, test_tpu_duty_cycle

from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Evidence
from cclbench.formats.files import read_head
from cclbench.formats.recognition import recognise_head

CASES: dict[str, Any] = {
    "chakra": test_chakra.write_json,
    "nccl_profiler": test_nccl_profiler.write,
    "ascend_communication": lambda folder: ascend.write_json(folder / "communication.json", ascend.RANK),
    "tpu_duty_cycle": lambda folder: test_tpu_duty_cycle.written(folder, "sampler", {0.25: (0, 50)}),
}


def copied(source: Path) -> Path:
    target = source.parent / "copy" / source.name
    target.parent.mkdir()
    redact_evidence(source, target)
    return target


def read(path: Path) -> tuple[str, Evidence]:
    reader, _ = recognise_head(path, read_head(path))
    assert reader is not None
    found = reader.read(path)  # type: ignore[call-arg]  # none is a trace
    assert isinstance(found, Evidence)
    return reader.name, found


@pytest.mark.parametrize("name", CASES)
def test_a_copy_is_recognised_and_has_the_tables_and_facts_of_its_original(name: str, tmp_path: Path) -> None:
    source = CASES[name](tmp_path)
    found = read(source)
    assert found[0] == name
    assert read(copied(source)) == found


def test_a_copy_of_a_traced_session_has_its_counters_and_no_chain(tmp_path: Path) -> None:
    """The rows that no reader reads are gone, and so is their number."""
    source = test_ebpf_session.write(tmp_path)
    copy = copied(source)
    (own, new) = (read(path) for path in (source, copy))
    assert (own[0], own[1].counters) == (new[0], new[1].counters)
    assert (own[1].left_out, new[1].left_out) == ({"rows of causal_chains": 1}, {})


def test_a_copy_of_rocm_profile_data_has_its_rows_and_no_other_column(tmp_path: Path) -> None:
    source = test_rocprof.write_rpd(tmp_path, test_rocprof.JOB)
    with closing(sqlite3.connect(source)) as base, base:
        base.execute("ALTER TABLE rocpd_api ADD COLUMN note TEXT DEFAULT 'acme'")
        base.execute("CREATE TABLE acme (note)")
    copy = copied(source)
    assert b"acme" not in copy.read_bytes()
    rows = [test_rocprof.plain(test_rocprof.read(path, "rocpd")[1]) for path in (source, copy)]
    assert rows[0] == rows[1] != []


def test_a_copy_of_ascends_trace_has_its_rows(tmp_path: Path) -> None:
    source = ascend.write_trace(tmp_path)
    own = ascend.read_trace(source)[1]
    named = {row[1] for row in own}
    assert "AscendCL@aclrtSynchronizeStream" in named
    assert ascend.read_trace(copied(source))[1] == own


def test_names_of_operations_and_groups_of_somebody_are_tokens(tmp_path: Path) -> None:
    """An entry keeps its place, its kind and its figures."""
    entry = ascend.operation(1.25, HCCS=2, acmelink=1) | {"note": "acme"}
    source = ascend.write_json(
        tmp_path / "communication.json", {"acme": {"p2p": {"hcom_send__1_0_1@acme": entry}}}
    )
    target = copied(source)
    assert "acme" not in target.read_text()
    (own, new) = (read(path)[1] for path in (source, target))
    assert own.timings == new.timings
    assert own.counters is not None
    assert new.counters is not None
    assert own.counters.drop_columns("port") == new.counters.drop_columns("port")
    assert new.counters["port"][0].as_py() == "HCCS"
    assert msgspec.json.decode(target.read_bytes())

# SPDX-License-Identifier: Apache-2.0
"""The benchmark's made-up export reads as the capture that it stands for; no test asserts a speed."""

from __future__ import annotations

import importlib

from helpers.nsys_files import read


def test_every_row_is_read_and_every_kernel_has_its_launch(repository, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(repository / "scripts" / "bench")
    path = tmp_path / "made.sqlite"
    written = importlib.import_module("synthetic_nsys").write_export(path, 20_000, ranks=2)
    members = [read(path, member) for member in ("4000", "4001")]
    assert sum(len(found.rows) for found in members) == written == 2 * 120 * 83
    for found in members:
        assert found.trace.dropped == {}
        launches = {row["correlation"]: row["start_ns"] for row in found.of("launch")}
        assert all(launches[row["correlation"]] < row["start_ns"] for row in found.of("kernel"))
        assert [row["name"] for row in found.of("annotation")] == [f"step {i}" for i in range(6)]
        assert {row["name"] for row in found.of("op")} == {
            "aten::mm",
            "aten::add_",
            "aten::empty",
            "aten::copy_",
            "aten::view",
        }

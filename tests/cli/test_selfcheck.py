# SPDX-License-Identifier: Apache-2.0
"""`cclbench selfcheck`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.command_line import Call

from cclbench.selfcheck.reading import row_key
from cclbench.selfcheck.relations import TimesScaled


def test_the_command(call: Call, test_data: Path) -> None:
    """Without traces there is nothing to check."""
    answer = call("selfcheck", test_data / "kineto" / "cpu_only", "--json")
    assert answer.code == 0
    document = json.loads(answer.out)
    assert document["schema"] == "selfcheck.v1"
    assert {one["status"] for one in document["checks"]} == {"holds", "not_applicable"}
    page = call("selfcheck", test_data / "kineto" / "cpu_only").out
    assert page.splitlines()[0] == "10 of 10 checks hold"
    answer = call("selfcheck", test_data / "nccl_tests")
    assert (answer.code, "holds no traces to check" in answer.err) == (3, True)


def test_a_check_that_does_not_hold_fails(
    call: Call, test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimesScaled, "expected_row", lambda _, row: (row_key(row), 3.0))
    answer = call("selfcheck", test_data / "kineto" / "cpu_only")
    assert answer.code == 1
    assert "1 of 18 checks do not hold: scaling of time" in answer.err

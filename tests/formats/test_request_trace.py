# SPDX-License-Identifier: Apache-2.0
"""Mooncake's request traces: exact times, all requests, damage by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.refused import refused

from cclbench.formats import Evidence
from cclbench.formats.request_trace import RequestTrace
from cclbench.ground.evidence_schema import REQUEST_TRACE

LINE = '{"timestamp": 27.5, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}'


def read(tmp_path: Path, *lines: str) -> Evidence:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join([*lines, ""]))
    return RequestTrace().read(path)


def test_each_line_is_a_request(tmp_path: Path) -> None:
    later = LINE.replace("27.5", "3000").replace(', "hash_ids": [0, 1]', "")
    found = read(tmp_path, LINE, "", later)
    assert found.request_trace.schema == REQUEST_TRACE
    columns = ("request", "arrival_ns", "input_tokens", "output_tokens", "blocks")
    assert [tuple(row[name] for name in columns) for row in found.request_trace.to_pylist()] == [
        *((0, 27_500_000, 600, 3, [0, 1]), (1, 3_000_000_000, 600, 3, None)),
    ]
    assert found.notes == []
    assert read(tmp_path, later, LINE).notes == ["its requests are not in the order of their arrival"]


BAD: dict[str, tuple[str, str]] = {
    "cut": (LINE[:-9], "line 2: is not a request"),
    "empty": ("", "has no request"),
    "a list": ("[]", "line 2: is not a request"),
    "no length": ('{"timestamp": 1, "input_length": 2}', "line 2: is not a request"),
    "a length of text": (LINE.replace("600", '"600"'), "line 2: is not a request"),
    "a negative length": (LINE.replace("600", "-600"), "line 2: has a length that is not"),
    "a time before the trace": (LINE.replace("27.5", "-1"), "line 2: has a timestamp that is not"),
    "an endless time": (LINE.replace("27.5", "1e300"), "line 2: has a timestamp that is not"),
    "a time that is no number": (LINE.replace("27.5", '"NaN"'), "line 2: has a timestamp that is not"),
    "an exponent without end": (LINE.replace("27.5", f"1e{'9' * 30}"), "line 2: is not a request"),
    "a large id": (LINE.replace("[0, 1]", f"[{1 << 70}]"), "line 2: "),
    "not text": (LINE.replace("600", "\\ud800"), "line 2: is not a request"),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error_that_says_where(tmp_path: Path, case: str) -> None:
    text, says = BAD[case]
    path = tmp_path / "trace.jsonl"
    refused(lambda _: read(tmp_path, *([LINE, text] if text else [])), path, says)


def test_no_other_key_is_published() -> None:
    assert set(json.loads(LINE)) == set(RequestTrace().published_keys or ())

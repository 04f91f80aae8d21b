# SPDX-License-Identifier: Apache-2.0
"""Base names of kernels, real and made up; names of all traces of the evidence."""

from __future__ import annotations

import csv
import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cclbench.classify import base_name, collective_name, kernel_category
from cclbench.classify.names import rule_subject

NAMES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text())


@pytest.mark.parametrize(("name", "expected"), NAMES["base_name"].items())
def test_base_name(name: str, expected: str) -> None:
    assert base_name(name) == expected


@pytest.mark.parametrize(("name", "expected"), NAMES["launched"].items())
def test_what_a_launcher_launches_decides_mangled_or_cut(name: str, expected: str | None) -> None:
    assert kernel_category(name) == expected
    assert collective_name(name) is None


@pytest.mark.parametrize(("before", "expected"), [(1020, "gemm"), (1021, None)])
def test_a_name_is_read_as_far_as_real_ones_reach(before: int, expected: str | None) -> None:
    """1,024 characters of a name tell what it is, and 8,192 stand for it."""
    assert kernel_category("x" * before + "gemm") == expected
    assert len(base_name("x" * 8192)) == len(base_name("x" * 8193)) == 8192


@pytest.mark.parametrize(("name", "expected"), NAMES["rule_subject"].items())
def test_what_the_rules_look_at(name: str, expected: str) -> None:
    assert rule_subject(name) == expected


@given(st.text(alphabet=st.sampled_from("ab_:<>(){}[] .Z0123456789~,&*-=!") | st.characters(), max_size=200))
def test_any_text_has_a_base_name_and_no_text_breaks_the_rules(name: str) -> None:
    assert bool(base_name(name)) == bool(name)
    found = collective_name(name)
    assert (found is not None) == (kernel_category(name) == "communication")


@pytest.mark.parametrize(
    "pattern", ["<", "(", "<)", "a::", "_", "all", "9", "_Z9", "n", "triton_poi_fused_t_"]
)
def test_names_of_a_megabyte_take_no_time(pattern: str) -> None:
    name = pattern * (1_000_000 // len(pattern))
    begin = time.perf_counter()
    base_name(name), collective_name(name), kernel_category(name)
    assert time.perf_counter() - begin < 2


def _rows(path: Path) -> list[dict[str, Any]]:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    rows = trace if isinstance(trace, list) else trace["traceEvents"]
    return [row for row in rows if row.get("ph") == "X" and row.get("cat") in ("kernel", "Kernel")]


def _union_ns(spans: list[tuple[int, int]]) -> int:
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def test_communication_time_of_real_traces(test_data: Path) -> None:
    """The union of communication kernels is that of an independent calculation, to the nanosecond."""
    paths = {path.name: path for path in (test_data / "kineto").glob("*/*.json.gz")}
    with (test_data / "expected" / "kineto_whole_trace.csv").open() as table:
        expected = {row["file"]: int(row["comm_ns"]) for row in csv.DictReader(table)}
    assert len(expected) >= 19
    measured = {}
    for name in expected:
        rows = [row for row in _rows(paths[name]) if kernel_category(row["name"]) == "communication"]
        begin = min((row["ts"] for row in rows), default=0)
        spans = [(round((row["ts"] - begin) * 1000), round(row["dur"] * 1000)) for row in rows]
        measured[name] = _union_ns([(start, start + length) for start, length in spans])
    assert measured == expected


def test_kernel_time_of_real_traces_is_classified(test_data: Path) -> None:
    """At most 2 % of a real trace's kernel time is left without a category."""
    unclassified = {}
    for path in sorted((test_data / "kineto").glob("*/*.json.gz")):
        rows = _rows(path)
        total = sum(row["dur"] for row in rows)
        unknown = sum(row["dur"] for row in rows if kernel_category(row["name"]) is None)
        if total:
            unclassified[path.name] = unknown / total
    assert len(unclassified) >= 19
    assert {name: share for name, share in unclassified.items() if share > 0.02} == {}

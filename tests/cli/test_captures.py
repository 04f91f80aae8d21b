# SPDX-License-Identifier: Apache-2.0
"""Captures of both sides on the command line, and repeated captures in the store: a server's benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.command_line import Call

import cclbench
from cclbench.comparison.build import compare
from cclbench.ground.errors import UsageError


def benchmark(folder: Path, name: str, rate: float, **changes: object) -> Path:
    """What SGLang's client writes of 100 requests at so many output tokens a second."""
    found = {"backend": "sglang", "dataset_name": "random", "request_rate": "inf", "max_concurrency": 16}
    found |= {"completed": 100, "total_input_tokens": 5000, "total_output_tokens": 1000, "mean_ttft_ms": 50.0}
    found |= {"duration": 1000 / rate, "request_throughput": rate / 10, "output_throughput": rate}
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**found, **changes}))
    return path


def test_the_stores_repeats_of_equal_work_tell_how_much_is_chance(tmp_path: Path) -> None:
    """Five that lie within 0.1 % make 3 % a difference; those of other work, or two of them, do not."""
    a, b = benchmark(tmp_path, "a", 100.0), benchmark(tmp_path, "b", 103.0)
    store, repeats = tmp_path / "store", (100.0, 100.1, 100.05, 99.95, 100.0)
    (found,) = compare(a, b, store=store).versus
    assert (found.measure, found.outcome) == ("serving.output_throughput", "no difference")
    assert found.spread.basis_words == "prior"
    assert found.work.status == "proved"
    assert found.words.startswith("B's rate is 3 % higher than A's in these captures, which may be chance (")
    assert "Their work is equal: 100 requests, 5,000 input and 1,000 output tokens each." in found.words
    for number, rate in enumerate(repeats):
        cclbench.run(benchmark(tmp_path, f"wide-{number}", 80 * rate, max_concurrency=32), store=store)
    assert compare(a, b, store=store).versus[0].spread.basis_words == "prior"
    for number, rate in enumerate(repeats):
        cclbench.run(benchmark(tmp_path, f"base-{number}", rate), store=store)
    (found,) = compare(a, b, store=store).versus
    assert (found.outcome, found.spread.basis_words, found.spread.stored) == ("faster", "store", 4)
    assert "as repeated captures in the store do" in found.words


def test_captures_of_each_side_by_words_and_patterns(call: Call, tmp_path: Path) -> None:
    for name, rates in {"a": (100.0, 101.0, 99.0), "b": (110.0, 111.0, 109.0)}.items():
        for number, rate in enumerate(rates):
            benchmark(tmp_path, f"{name}-{number}", rate)
    a = [tmp_path / f"a-{number}.json" for number in range(3)]
    done = call("compare", *a, "--against", tmp_path / "b-*.json", "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert [len(subject["captures"]) for subject in told["subjects"]] == [3, 3]
    (versus,) = told["versus"]
    assert (versus["outcome"], versus["ratio"]) == ("faster", pytest.approx(1.1))
    assert versus["spread"]["source"] == "captures"
    by_id = call("compare", "a-*", "--against", "b-*", "-q")
    words = " ".join(by_id.out.split())
    assert words.startswith("B is 1.10× faster than A (110 against 100 output tokens per second; 95 %")
    assert "over 3 captures of each; captures of one job differ by about" in words


def test_a_pattern_that_fits_nothing_and_an_option_without_a_word(call: Call, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'"none-\*" matches no file and no run in the store'):
        compare("none-*", "b", store=tmp_path)
    done = call("compare", "a", "b", "--against")
    assert (done.code, "--against" in done.err) == (2, True)

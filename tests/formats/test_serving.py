# SPDX-License-Identifier: Apache-2.0
"""Result files of vLLM's and SGLang's serving benchmarks, as their sources lay them out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats import READERS, Evidence
from cclbench.formats.serving import Serving, lines
from cclbench.ground.errors import InputError
from cclbench.ground.evidence_schema import REQUESTS, SERVING

READER = Serving()

MODEL = "/home/somebody/models/Tiny-1B"
VLLM: dict[str, Any] = {"date": "20260102-030405", "endpoint_type": "vllm", "backend": "vllm", "label": None}
VLLM |= {"model_id": MODEL, "tokenizer_id": MODEL, "num_prompts": 3, "owner": "somebody"}
VLLM |= {"request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8, "duration": 2.0}
VLLM |= {"completed": 2, "failed": 1, "total_input_tokens": 30, "total_output_tokens": 4}
VLLM |= {"request_throughput": 1.0, "request_goodput": None, "output_throughput": 2.0}
VLLM |= {"total_token_throughput": 17.0, "mean_ttft_ms": 150.0, "median_ttft_ms": 150.0}
VLLM |= {"std_ttft_ms": 50.0, "p99_ttft_ms": 199.0, "p99.9_ttft_ms": 199.9, "mean_e2el_ms": 170.0}
LISTS: dict[str, Any] = {"input_lens": [10, 20, 5], "output_lens": [3, 1, 0], "ttfts": [0.1, 0.2, 0.0]}
LISTS |= {"itls": [[0.01, 0.030000001], [], []], "generated_texts": ["a secret", "b", ""]}
LISTS |= {"errors": ["", "", "Traceback at somebody-host"]}
SGLANG: dict[str, Any] = {"tag": None, "backend": "sglang", "dataset_name": "random"}
SGLANG |= {"request_rate": float("inf"), "max_concurrency": None, "random_input_len": 1024}
SGLANG |= {"server_info": {"host": "somebody-host"}, "duration": 4.0, "completed": 2}
SGLANG |= {"total_input_tokens": 30, "total_output_tokens": 8, "total_output_tokens_retokenized": 8}
SGLANG |= {"request_throughput": 0.5, "input_throughput": 7.5, "output_throughput": 2.0}
SGLANG |= {"total_throughput": 9.5, "mean_e2e_latency_ms": 300.0, "median_e2e_latency_ms": 290.0}
SGLANG |= {"p99_e2e_latency_ms": 400.0, "mean_ttft_ms": 100.0, "mean_itl_ms": 20.0, "p95_itl_ms": 25.0}
SGLANG |= {"max_itl_ms": 26.0, "concurrency": 1.5, "accept_length": None}


def _read(tmp_path: Path, *results: dict[str, Any] | str, name: str = "result.jsonl") -> Evidence:
    path = tmp_path / name
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in results))
    return READER.read(path)


def _figures(evidence: Evidence, benchmark: int = 0) -> dict[tuple[str, str | None], tuple[float, str]]:
    assert evidence.serving.schema == SERVING
    rows = [row for row in evidence.serving.to_pylist() if row["benchmark"] == benchmark]
    found = {(row["figure"], row["stat"]): (row["value"], row["unit"]) for row in rows}
    assert len(found) == len(rows)
    return found


def _requests(evidence: Evidence) -> list[dict[str, Any]]:
    assert evidence.requests.schema == REQUESTS
    return evidence.requests.to_pylist()


def test_figures_in_base_units(tmp_path: Path) -> None:
    counts = {"completed": 2, "failed": 1, "max_concurrency": 8, "input_tokens": 30, "output_tokens": 4}
    rates = {"request_throughput": 1.0, "output_throughput": 2.0, "total_throughput": 17.0}
    ttft = {"mean": 0.15, "p50": 0.15, "std": 0.05, "p99": 0.199, "p99.9": 0.1999}
    known = {("duration", None): (2.0, "s"), ("e2e_latency", "mean"): (0.17, "s")}
    known |= {(figure, None): (value, "count") for figure, value in counts.items()}
    known |= {(figure, None): (value, "1/s") for figure, value in rates.items()}
    assert _figures(_read(tmp_path, VLLM)) == known | {("ttft", s): (v, "s") for s, v in ttft.items()}
    found = _figures(_read(tmp_path, SGLANG))
    stated = {("e2e_latency", "mean"): 0.3, ("e2e_latency", "p50"): 0.29, ("e2e_latency", "p99"): 0.4}
    stated |= {("itl", "p95"): 0.025, ("itl", "max"): 0.026}
    for key, value in stated.items():
        assert found[key] == (value, "s")
    assert found["total_throughput", None] == (9.5, "1/s")
    assert found["concurrency", None] == (1.5, "count")
    assert ("accept_length", None) not in found


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        *(("request_inthroughput", "request_throughput"), ("request_throughput", "request_throughput")),
        *(("request_goodput:", "goodput"), ("request_goodput", "goodput")),
        *((f"total_{kind}throughput", "total_throughput") for kind in ("token_", "")),
        *(("total_input", "input_tokens"), ("total_output", "output_tokens")),
    ],
)
def test_both_generations_of_names(tmp_path: Path, key: str, figure: str) -> None:
    result = {"tokenizer_id": "t", "num_prompts": 1, key: 3.5}
    assert [(f, v) for (f, _), (v, _) in _figures(_read(tmp_path, result)).items()] == [(figure, 3.5)]


def test_requests_to_the_nanosecond(tmp_path: Path) -> None:
    first, second, third = _requests(_read(tmp_path, VLLM | LISTS))
    told = {"benchmark": 0, "request": 0, "success": True, "input_tokens": 10, "output_tokens": 3}
    told |= {"ttft_ns": 100_000_000, "itl_ns": [10_000_000, 30_000_001]}
    assert first == dict.fromkeys(REQUESTS.names) | told
    assert (second["success"], second["ttft_ns"], second["itl_ns"]) == (True, 200_000_000, [])
    # 0 s is what the client begins with, not a time to first token.
    assert (third["success"], third["ttft_ns"], third["output_tokens"]) == (False, None, 0)
    requests = _requests(_read(tmp_path, VLLM | LATENCIES | {"queue_times": [0, 0, 0]}))
    assert [r["e2e_ns"] for r in requests] == [200_000_000, None, 300_000_000]
    # The product of floats is 80250023968184.5, which rounds to the even neighbour below.
    assert round(80250.023968184504 * 1e9) == 80_250_023_968_184
    text = json.dumps(VLLM | {"ttfts": ["T"]})
    (request,) = _requests(_read(tmp_path, text.replace('"T"', "80250.023968184504")))
    assert request["ttft_ns"] == 80_250_023_968_185
    # 0 to the nanosecond
    assert _requests(_read(tmp_path, text.replace('"T"', "1e-999999")))[0]["ttft_ns"] is None


LATENCIES = {"latencies": [0.2, 0.0, 0.3]}
NAN = float("nan")
NO_TIME = "ttfts has an entry that is not a time from 0 s to a day"


@pytest.mark.parametrize(
    ("lists", "success"),
    [
        (LATENCIES, [True, False, True]),  # as many as completed
        *((LATENCIES | {"completed": completed}, [None] * 3) for completed in (3, None)),
        ({"errors": ["", "down", None]}, [True, False, True]),
        ({"output_lens": [3, 0, 1]}, [True, False, True]),
        ({"errors": ["", "", "x"], "output_lens": [3, 0, 1]}, [True, False, False]),
    ],
)
def test_success_by_errors_counts(tmp_path: Path, lists: dict[str, Any], success: list[bool | None]) -> None:
    assert [r["success"] for r in _requests(_read(tmp_path, VLLM | lists))] == success


def test_nothing_private_is_kept(tmp_path: Path) -> None:
    evidence = _read(tmp_path, VLLM | LISTS, SGLANG)
    facts = {"client": ["vLLM", "SGLang"], "backend": ["vllm", "sglang"], "dataset": "random"}
    facts |= {"model": "Tiny-1B", "request_rate": "inf", "max_concurrency": 8}
    assert evidence.facts == facts | {"num_prompts": 3, "burstiness": 1}
    everything = str((evidence.facts, evidence.notes, evidence.left_out))
    everything += str(evidence.requests.to_pylist()) + str(evidence.serving.to_pylist())
    assert not any(word in everything for word in ("somebody", "secret", "Traceback", "2026"))


def test_names_that_are_no_names_are_no_facts(tmp_path: Path) -> None:
    odd = {"backend": "http://somebody-host:8000/v1", "model_id": "C:\\somebody\\Tiny-1B\\"}
    assert _read(tmp_path, VLLM | odd).facts["model"] == "Tiny-1B"
    assert "backend" not in _read(tmp_path, VLLM | odd).facts
    assert _read(tmp_path, VLLM | {"backend": "b" * 128}).facts["backend"] == "b" * 128
    assert "backend" not in _read(tmp_path, VLLM | {"backend": "b" * 129}).facts


def test_files_of_several_layouts(tmp_path: Path) -> None:
    evidence = _read(tmp_path, SGLANG, "", SGLANG | LISTS | {"duration": 9.0})
    assert _figures(evidence, 0)["duration", None] == (4.0, "s")
    assert _figures(evidence, 1)["duration", None] == (9.0, "s")
    assert [r["benchmark"] for r in _requests(evidence)] == [1, 1, 1]
    for text in (json.dumps(VLLM, indent=2), json.dumps([VLLM], indent=2)):
        assert _figures(_read(tmp_path, text)) == _figures(_read(tmp_path, VLLM))
    pairs = [[50.0, 35.0], [99.9, 81.5], [12.25, 1.0]]
    evidence = _read(tmp_path, {"num_prompts": 1, "percentiles_ttft_ms": pairs})
    assert _figures(evidence) == {("ttft", "p50"): (0.035, "s"), ("ttft", "p99.9"): (0.0815, "s")}
    assert evidence.left_out == {"settings and figures that have no column": 1}


def test_zeros_and_nan_that_stand_for_nothing_are_counted(tmp_path: Path) -> None:
    """A spread of 0 is a figure; what is negative is no latency."""
    nothing = {"num_prompts": 1, "completed": 0, "mean_ttft_ms": 0.0, "std_ttft_ms": 0, "p99_itl_ms": -1}
    nothing |= {"mean_e2e_latency_ms": float("nan"), "median_tpot_ms": -0.0004, "rtfx": 0.5, "rate": 7}
    evidence = _read(tmp_path, nothing | {"note": "x"})
    assert list(_figures(evidence)) == [("completed", None)]
    known = {"latencies that no request had, written as 0": 2, "figures that are NaN or infinite": 1}
    known |= {"negative latencies": 2, "settings and figures that have no column": 2}
    assert evidence.left_out == known
    told = {"num_prompts": 1, "mean_ttft_ms": 5, "std_ttft_ms": 0.0, "duration": 3, "p99_itl_ms": 0}
    known = {("ttft", "mean"): (0.005, "s"), ("ttft", "std"): (0.0, "s")}
    known |= {("duration", None): (3.0, "s"), ("itl", "p99"): (0.0, "s")}
    assert _figures(_read(tmp_path, told)) == known


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(({"ttfts": [0.1, odd, 0]}, NO_TIME) for odd in (-0.2, NAN, float("inf"), "0.2", True, None)),
        ({"ttfts": [0.1]}, "different numbers of requests: input_lens 3, output_lens 3, ttfts 1"),
        ({"ttfts": 0.1}, "ttfts is not a list"),
        ({"itls": [0.1, 0.2, 0.3]}, "itls has an entry that is not a list of times"),
        ({"itls": [[0.1], [-0.1], []]}, "itls has an entry that is not a time"),
        ({"itls": [[[0.1]], [], []]}, "itls has an entry that is not a time"),
        ({"output_lens": [1, 2.5, 3]}, "output_lens has an entry that is not a number of tokens"),
        ({"output_lens": [1, -2, 3]}, "output_lens has"),
        ({"duration": "2.0"}, "duration is not a number from 0 to 2.59e+06"),
        ({"completed": [2]}, "completed is not a number"),
        ({"completed": True}, "completed is not a number"),
        ({"mean_ttft_ms": "fast"}, "mean_ttft_ms is not a number from 0 to 8.64e+04"),
        ({"max_concurrency": "many"}, "max_concurrency is not a number"),
        ({"percentiles_ttft_ms": [[50]]}, "not a percentile and its time"),
        ({"percentiles_ttft_ms": {"50": 1}}, "percentiles_ttft_ms is not a list"),
        ({"percentiles_ttft_ms": [[101, 1]]}, "is not a number from 0 to 100"),
    ],
)
def test_entries_no_client_writes_are_one_line(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    message = refused(lambda _: _read(tmp_path, VLLM | LISTS | change), tmp_path / "result.jsonl", says)
    assert "result.jsonl: line 1: " in message
    assert "somebody-host" not in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((text, "the file is empty") for text in ("", " \n\n")),
        ("no json", "line 1: is not JSON (Expecting value, column 1)"),
        (json.dumps(VLLM)[:-40], "line 1: is not JSON"),
        (json.dumps(VLLM, indent=1)[:-40], "line 26: is not JSON"),
        ("[1, 2]", "entry 1: is not a JSON object"),
        (json.dumps(VLLM) + "\n" + json.dumps(SGLANG) + "\n{oops\n{}", "line 3: is not JSON"),
        (json.dumps(VLLM)[:60] + "\n" + json.dumps(SGLANG), "line 1: is not JSON"),
        (json.dumps(VLLM) + "\n[]", "line 2: is not a JSON object"),
        ('{"itls": ' + "[" * 100_000, "line 1: is nested too deeply"),
        ('{"duration": ' + "1" * 5_000 + "}", "a number with too many digits"),
        ('{"duration": 1e99999999999999999999}', "a number with too many digits"),
        (json.dumps({"summary": VLLM}), "line 1: has no figure and no request of a serving benchmark"),
        (json.dumps(VLLM | {"model_id": "\ud83d"}), "line 1: has a text with half a surrogate pair"),
        ('{"mean_ttft_ms": 1e9999999}', "mean_ttft_ms is not a number from 0 to 8.64e+04"),
        ('{"duration": 1e999999}', "duration is not a number"),
    ],
)
def test_damaged_files_are_one_clear_line(tmp_path: Path, text: str, says: str) -> None:
    refused(lambda _: _read(tmp_path, text), tmp_path / "result.jsonl", says)


def test_bytes_of_no_result(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LARGEST", 1 << 20)
    refused(READER.read, written(b'{"backend": "\xff"}'), "byte 13: bytes that are not UTF-8")
    refused(READER.read, written(gzip.compress(b" " * (2 << 20))), "is larger than 1 MiB")


def test_recognised_by_what_either_client_writes_first() -> None:
    assert READERS.get("serving").reads == "evidence"
    for head in (
        *(json.dumps(VLLM).encode(), json.dumps(SGLANG).encode(), json.dumps(VLLM, indent=2).encode()),
        b'{"duration": 1, "completed": 2, "request_throughput": 2}',
        *(b'{"mean_ttft_ms": 226.4, "p99_ttft_ms": 472.5}', json.dumps([VLLM], indent=4).encode()),
    ):
        assert READER.sniff(head) > 0.5


@pytest.mark.parametrize(
    ("believed", "beyond"),
    [
        *(({"duration": 2_592_000}, {"duration": 2_592_000.5}), ({"duration": 0}, {"duration": -0.5})),
        ({"completed": 1 << 50}, {"completed": (1 << 50) + 1}),
        ({"request_rate": 0.0}, {"request_rate": -0.5}),
        ({"mean_ttft_ms": 86_400_000}, {"mean_ttft_ms": 86_400_001}),
        ({"percentiles_itl_ms": [[99, 86_400_000]]}, {"percentiles_itl_ms": [[99, 86_400_001]]}),
        ({"percentiles_itl_ms": [[100, 1]]}, {"percentiles_itl_ms": [[100.5, 1]]}),
        ({"percentiles_itl_ms": [[0, 1]]}, {"percentiles_itl_ms": [[-0.5, 1]]}),
        ({"percentiles_itl_ms": [[50, 1]]}, {"percentiles_itl_ms": [[50, 1, 2]]}),
        ({"ttfts": [86_400, 0, 0]}, {"ttfts": [86_400.5, 0, 0]}),
        ({"latencies": [86_400, 0, 0]}, {"latencies": [86_400.5, 0, 0]}),
        ({"input_lens": [0, 1, (1 << 31) - 1]}, {"input_lens": [0, 1, 1 << 31]}),
        ({"input_lens": [0, 1, 2]}, {"input_lens": [True, 1, 2]}),
    ],
)
def test_bounds_of_what_is_believed(tmp_path: Path, believed: dict[str, Any], beyond: dict[str, Any]) -> None:
    _read(tmp_path, VLLM | believed)
    with pytest.raises(InputError, match=r"line 1: .*; run the benchmark again, or remove this result$"):
        _read(tmp_path, VLLM | beyond)


def test_settings_are_whole_numbers_where_they_are(tmp_path: Path) -> None:
    told = VLLM | {"request_rate": 2.5, "burstiness": 2.0, "max_concurrency": None}
    facts = _read(tmp_path, told).facts
    assert (facts["request_rate"], facts["burstiness"], facts.get("max_concurrency")) == (2.5, 2, None)
    assert isinstance(facts["burstiness"], int)
    assert _read(tmp_path, VLLM | {"request_rate": "trace"}).facts["request_rate"] == "trace"
    assert _read(tmp_path, VLLM | {"max_concurrency": float("inf")}).facts["max_concurrency"] == "inf"


def test_each_benchmarks_lists_are_compared_with_its_own_count(tmp_path: Path) -> None:
    """What was left out of all benchmarks is added up."""
    notes = _read(tmp_path, VLLM | LISTS, VLLM | LISTS | {"completed": 1}).notes
    assert notes == ["benchmark 2: the file states 1 completed requests, its lists have 2"]
    assert _read(tmp_path, VLLM | LISTS).notes == []
    assert _read(tmp_path, VLLM | LISTS | {"completed": None}).notes == []
    odd = {"num_prompts": 1, "duration": 3, "own": 1}
    assert _read(tmp_path, odd, odd).left_out == {"settings and figures that have no column": 2}


def test_an_object_that_begins_on_a_later_line_says_which(tmp_path: Path) -> None:
    spread = json.dumps(VLLM | {"duration": -1}, indent=2)
    with pytest.raises(InputError, match="line 3: duration is not a number"):
        _read(tmp_path, "\n\n" + spread)
    with pytest.raises(InputError) as raised:
        _read(tmp_path, "\n" + spread[:-30])
    assert f"line {1 + len(spread[:-30].splitlines())}: is not JSON" in str(raised.value)
    assert str(raised.value).endswith("; run the benchmark again, or remove this line")

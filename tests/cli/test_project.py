# SPDX-License-Identifier: Apache-2.0
"""Projections, what-ifs, pareto fronts and searches on the command line."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml
from formats.test_serving import SGLANG, VLLM
from helpers.command_line import Answer, Call
from helpers.neo_card import neo_card  # noqa: F401 - a fixture
from helpers.page_commands import blocks
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate, write
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

import cclbench
from cclbench.card.fields import put_field
from cclbench.comparison.serving_points import ServingPoint, ServingPoints, collected_points, non_dominated
from cclbench.ground.json_schema import packaged_schema
from cclbench.present.charts.pareto import draw_points

RESNET = "kineto/resnet50_2021/resnet50_num_workers_"
SOURCES = (
    *(
        f"graph_replay/{name}"
        for name in ("sglang_decode_mi300x", "vllm_decode_mi300x", "xdit_flux_sage_mi300x")
    ),
    *(f"kineto/{name}" for name in ("cuda_sync_a100", "gpu_only_mi210", "h100_qwen", "sglang_decode_mi300x")),
    *(f"{RESNET}{name}_worker0.pt.trace.json.gz" for name in ("0_2d19c6", "4_29dba6")),
    *(f"kineto_more/{name}.json.gz" for name in ("norm_layers_mi300x", "torch_compile_triton")),
    "nsys/synthetic/nsysai_healthy_1pct_710487.sqlite",
    *(f"traces/{name}" for name in ("llama-train-compiled-h100", "llama-decode-h100", "tiny-jax-h100")),
)
"""All evidence with a single rank and a step."""
STATED = {"workload.phase": "inference", "workload.model.parameters": 25_557_032}
STATED |= {"workload.precision": "fp32", "hardware.accelerator": "nvidia-a100-sxm4-80gb"}
"""What the person knows of the job, by the field that a refusal asks for."""


def page_commands(repository: Path) -> list[list[str]]:
    """The three commands of the page, as words without `cclbench`."""
    (block,) = [
        text
        for language, _, text in blocks((repository / "docs" / "scaling.md").read_text())
        if language == "bash"
    ]
    return [line.partition(" #")[0].split()[1:] for line in block.strip().splitlines()]


def asked_fields(refusal: str) -> list[str]:
    """The card's fields that a refusal asks for."""
    return re.findall(r"\b(?:workload|hardware|parallelism)\.[\w.]*\w", refusal)


def copied(name: str, repository: Path, test_data: Path, folder: Path) -> Path:
    """The evidence as `traces/my-job` in the folder."""
    source = (repository if name.startswith("traces/") else test_data) / name
    place = folder / "traces" / "my-job"
    if source.is_dir():
        shutil.copytree(source, place)
    else:
        place.mkdir(parents=True)
        shutil.copy(source, place)
    return place


@pytest.mark.parametrize("name", SOURCES)
def test_three_commands_lead_from_a_trace_to_a_figure(
    name: str, repository: Path, test_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    copied(name, repository, test_data, tmp_path)
    monkeypatch.chdir(tmp_path)
    first, new, last = page_commands(repository)
    code, out, refusal = call(*first)
    assert code in (0, 3), refusal
    assert call(*new).code == 0
    card = tmp_path / "my-job.yaml"
    stated: set[str] = set()
    while code:
        fields = {field for field in asked_fields(refusal) if field in STATED} - stated
        assert fields, refusal
        document = yaml.safe_load(card.read_text())
        for field in fields:
            put_field(document, field, STATED[field])
            put_field(document, "workload.phase", (document.get("workload") or {}).get("phase", "training"))
        stated |= fields
        card.write_text(yaml.safe_dump(document))
        code, out, refusal = call(*last)
    assert "dp 64" in out
    assert "all figures but the measured step are modelled" in out


NO_RANK = "has no trace of a rank; a measured step and a card suffice: --step 1.23s"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kineto/distributed_info_missing", "has no windows to replay"),
        ("memory/inference_ctx128.pickle", NO_RANK),
    ],
)
def test_a_run_without_a_step_has_no_figure(name: str, says: str, test_data: Path, call: Call) -> None:
    code, _, err = call("project", test_data / name, "--system", "aws-p5", "--gpus", 8)
    assert code == 3
    assert says in err


def test_a_cut_trace_is_projected_from_its_intact_part(test_data: Path, tmp_path: Path, call: Call) -> None:
    """With the option that the refusal names."""
    (packed,) = (test_data / "kineto" / "h100_qwen").iterdir()
    text = gzip.decompress(packed.read_bytes())
    cut = tmp_path / "cut.json"
    cut.write_bytes(text[: len(text) * 4 // 5])
    words = ("project", cut, "--system", "aws-p5", "--gpus", 8)
    code, _, err = call(*words)
    assert (code, "--allow-truncated" in err) == (3, True)
    code, out, err = call(*words, "--allow-truncated")
    assert code == 0, err
    assert "dp 8" in out


def test_the_page_and_the_document(neo: Path, call: Call) -> None:
    """The same table and the same schema as from a trace; nothing is stored."""
    words = ("project", neo, "--system", "alps-gh200", "--gpus", 256, "--step", "6.43s")
    code, out, _ = call(*words)
    assert code == 0
    assert "replayed unchanged" not in out
    assert out.index("measured ") < out.index("tp 4 x dp 32 x pp 2")
    assert "whether the layout fits into" in out
    document = json.loads(call(*words, "--json").out)
    jsonschema.validate(document, dict(packaged_schema("result")))
    assert document["run"]["notes"] == ["the measured step was given; no trace was read"]
    given, *others = document["results"]
    said = (given["metric"], given["value"], given["provenance"])
    assert said == ("whatif.measured_step", 6.43, "measured")
    assert {row["provenance"] for row in others} == {"modelled"}
    assert not (neo.parent / "runs").exists()


@pytest.mark.parametrize("step", ["0s", "6", "-1s", "inf s", "six"])
def test_a_step_is_a_time(neo: Path, call: Call, step: str) -> None:
    code, _, err = call("project", neo, "--system", "alps-gh200", "--gpus", 256, "--step", step)
    assert (code, "'--step'" in err) == (2, True)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=25))
def test_the_front_is_that_of_all_pairs(points: list[tuple[int, int]]) -> None:
    def beaten(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return b[0] >= a[0] and b[1] <= a[1] and b != a

    expected = [not any(beaten(point, other) for other in points) for point in points]
    rates, times = (np.array([point[n] for point in points], np.float64) for n in (0, 1))
    assert non_dominated(rates, times).tolist() == expected


def point(
    rate: float, ttft: float, workload: str = "m", devices: int | None = 2, **load: float
) -> ServingPoint:
    per_device = None if devices is None else rate / devices
    return ServingPoint("run", f"{rate}", workload, rate, per_device, {"ttft p99": ttft}, load)


def test_what_has_a_front_of_its_own_and_what_limits_it() -> None:
    """Workloads; accelerators that one does not state; requests of other lengths."""
    found = collected_points([[point(10, 1), point(20, 2), point(15, 3)], [point(5, 9, "other")]])
    assert found.fronts == {"ttft p99": (0, 1, 3)}
    assert found.notes == ["2 workloads, each with its own best points: m; other"]
    # per device the first would be better; in all it is not
    found = ServingPoints((point(10, 1, devices=1), point(20, 1, devices=8)))
    assert found.fronts["ttft p99"] == (0,)
    found = ServingPoints((*found.points, point(15, 5, devices=None)))
    assert (found.is_per_device, found.fronts["ttft p99"]) == (False, (1,))
    assert found.notes[0].startswith("throughput is in all, not per accelerator: 1 of 3 points")


@pytest.mark.parametrize(("latencies", "scale"), [((1.0, 1.5), "linear"), ((1.0, 20.0), "log")])
def test_marks_lie_within_axes_that_have_ticks(latencies: tuple[float, float], scale: str) -> None:
    axes = Figure().subplots()
    draw_points(axes, ServingPoints(tuple(point(175, seconds) for seconds in latencies)), "ttft p99")
    low, high = axes.get_xlim()
    assert axes.get_xscale() == scale
    assert low < min(latencies) < max(latencies) < high
    assert len([place for place in axes.get_xticks() if low <= place <= high]) >= 2
    assert axes.get_ylim() == (0, pytest.approx(1.12 * 87.5))  # per device, of two


def test_requests_of_other_lengths_are_unequal_work() -> None:
    found = ServingPoints((point(1, 1, input_tokens=100.0), point(2, 2, input_tokens=106.0)))
    assert found.notes == ["unequal work: a request has 100 to 106 input tokens in the mean"]
    assert ServingPoints((point(1, 1, input_tokens=100.0), point(2, 2, input_tokens=105.0))).notes == []


def results(folder: Path, *rates: tuple[int, float, float]) -> Path:
    """A client's results: concurrency, output tokens/s, p99 of the time to first token in ms."""
    folder.mkdir()
    for load, rate, ttft in rates:
        own = {"max_concurrency": load, "output_throughput": rate, "p99_ttft_ms": ttft}
        (folder / f"c{load}.json").write_text(json.dumps(VLLM | own))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Three loads, of which the last is slower and later than the second."""
    return results(tmp_path / "sweep", (1, 10, 100), (8, 40, 200), (64, 30, 900))


def test_the_command_marks_the_best(call: Call, sweep: Path, tmp_path: Path) -> None:
    """And a report has a drawing for each latency."""
    answer = call("pareto", sweep, "--json", "--plot", tmp_path / "p.svg")
    assert answer.code == 0, answer.err
    document = json.loads(answer.out)
    assert document["fronts"]["ttft p99"] == [0, 2]
    best = {point["max_concurrency"]: point["best_for"] or "" for point in document["points"]}
    assert {load: "ttft p99" in words for load, words in best.items()} == {1: True, 8: True, 64: False}
    assert document["per_device"] is False
    assert "64" in (tmp_path / "p.svg").read_text()
    printed = call("pareto", sweep).out
    assert "200 ms*" in printed
    assert "900 ms*" not in printed
    page = tmp_path / "run.html"
    assert call("report", sweep, "-o", page).code == 0
    text = page.read_text()
    assert "Throughput against time to first token" in text
    assert "p99, 2 of 3 points are best" in text
    assert "throughput is in all, not per accelerator" in text


def test_an_open_loop_is_of_its_model_too(call: Call, tmp_path: Path) -> None:
    """Without a limit of concurrency the rate names what was served, and without a rate the tokens do."""
    folder = tmp_path / "models"
    folder.mkdir()
    own = {"max_concurrency": None, "request_rate": 2.0, "p99_ttft_ms": 5}
    (folder / "a.json").write_text(json.dumps(VLLM | own | {"model_id": "a"}))
    (folder / "b.json").write_text(json.dumps(VLLM | own | {"model_id": "b", "request_rate": "inf"}))
    document = json.loads(call("pareto", folder, "--json").out)
    assert [point["workload"] for point in document["points"]] == ["a", "b"]
    assert document["fronts"]["ttft p99"] == [0, 1]


def test_one_point_is_no_drawing_and_none_an_error(call: Call, tmp_path: Path) -> None:
    path = results(tmp_path / "one", (1, 10, 100))
    assert call("pareto", path).code == 0
    answer = call("pareto", path, "--plot", tmp_path / "p.svg")
    assert (answer.code, "fewer than two points" in answer.err) == (2, True)
    path = tmp_path / "sglang.jsonl"
    path.write_text(json.dumps({k: v for k, v in SGLANG.items() if "throughput" not in k}))
    answer = call("pareto", path)
    assert (answer.code, "no serving benchmark states a throughput" in answer.err) == (2, True)


SPACE = "space:\n  scale_up.bandwidth: [x1, x2]\n  collective.all_reduce: [unchanged, tree]\n"


@pytest.fixture(scope="module")
def folder(traces: Path) -> Path:
    """The folder of those traces, with a space that has costs and one that has none."""
    place = traces.parent
    (place / "space.yaml").write_text(SPACE + "cost:\n  scale_up.bandwidth: {x2: 40}\ncost_unit: EUR/h\n")
    (place / "free.yaml").write_text(SPACE)
    return place


@pytest.fixture
def search(call: Call, folder: Path) -> Call:
    """The command on those traces, two ranks a node, in the space with costs unless another is given."""

    def run(*words: object) -> Answer:
        space = () if "--space" in words else ("--space", folder / "space.yaml")
        return call("search", folder / "traces", "--store", folder / "store", "--per-node", 2, *space, *words)

    return run


def test_the_page_ranks_scenarios_and_says_why_some_are_infeasible(search: Call, tmp_path: Path) -> None:
    code, out, _ = search()
    assert code == 0
    text = " ".join(out.split())
    for words in ("replayed unchanged", "EUR/h", "4 of 4 scenarios examined", "infeasible: 2", "--system ID"):
        assert words in text
    assert text.index("bandwidth=x2") < text.index("bandwidth=x1")
    code, out, _ = search("--json")
    assert code == 0
    found = json.loads(out)
    jsonschema.validate(found, dict(packaged_schema("result")))
    steps = [row for row in found["results"] if row["metric"] == "search.step" and row["stat"] is None]
    assert [row["value"] is None for row in steps] == [False, False, True, True]
    assert all(row["reason"] for row in steps if row["value"] is None)
    best, plot = tmp_path / "best.yaml", tmp_path / "front.png"
    assert search("--best", best, "--plot", plot).code == 0
    assert "scale_up.bandwidth" in best.read_text()
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--constraint", "price<=3"), 2, "is not KEY<=VALUE"),
        (("--objective", "tokens_per_second_per_device"), 3, "tokens per second unknown"),
        (("--constraint", "step<=1us", "--best", "best.yaml"), 3, "no point of the space is feasible"),
        (("--plot", "front.docx"), 2, "unsupported picture format"),
        (("--space", "FREE", "--plot", "front.png"), 2, "have no cost to plot"),
    ],
)
def test_what_cannot_be_is_a_clear_error(
    search: Call, folder: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    found, _, err = search(*(folder / "free.yaml" if word == "FREE" else word for word in arguments))
    assert found == code
    assert says in err


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, five sizes of all-reduce a step, between kernels."""
    ops = [op for i in range(1, 6) for op in (Compute(20_000), Collective("all_reduce", "dp", i << 20))]
    folder = tmp_path_factory.mktemp("whatif") / "traces"
    program = Program((*ops, Compute(20_000)), steps=2)
    write(simulate(Layout(dp=2, gpus_per_host=2), program, Network(Link(5_000, 100))), folder)
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for tests that only ask: the traces are read once."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def whatif(call: Call, traces: Path, store: Path) -> Call:
    """The command on those traces."""
    return lambda *words: call("whatif", traces, "--store", store, *words)


def test_the_page_and_the_result(whatif: Call, repository: Path) -> None:
    words = ("--set", "scale_up.bandwidth=x2")
    code, out, _ = whatif(*words, "--sweep", "kernels.time=x1..x2")
    assert code == 0
    text = " ".join(out.split())
    for said in ("measured", "replayed unchanged", words[1], "knee of kernels.time", "comm."):
        assert said in text
    code, out, _ = whatif(*words, "--json")
    assert code == 0
    document = json.loads(out)
    schema = json.loads((repository / "cclbench" / "schemas" / "result.json").read_text())
    jsonschema.validate(document, schema)
    rows = document["results"]
    (speedup,) = [r["value"] for r in rows if (r["metric"], r["stat"]) == ("whatif.speedup", None)]
    assert 1 < speedup < 2


def test_a_system_of_another_device_may_be_forced(whatif: Call) -> None:
    asked = ("--system", "mi300x-8gpu", "--force-system", "--set", "scale_up.bandwidth=x2")
    code, out, _ = whatif(*asked)
    assert (code, "mi300x-8gpu" in out) == (0, True)


def test_a_setting_that_touches_nothing_is_no_answer(whatif: Call) -> None:
    asked = ("--per-node", "2", "--set", "scale_out.bandwidth=x2")
    code, out, _ = whatif(*asked, "--json")
    rows = {r["metric"]: r for r in json.loads(out)["results"] if r["category"] and r["stat"] is None}
    assert code == 0
    for name in ("whatif.step", "whatif.speedup"):
        assert (rows[name]["value"], rows[name]["status"]) == (None, "not_applicable")
        assert "no collective of the run crosses scale_out" in rows[name]["reason"]
    out = whatif(*asked).out
    assert "no effect" in out
    assert "1.00×" not in out
    out = whatif(*asked, "--set", "kernels.time=x2").out
    assert "scale_out.bandwidth has no effect" in " ".join(out.split())
    assert "x2   no effect" not in out


def test_contention_may_be_fitted(whatif: Call) -> None:
    code, out, _ = whatif("--set", "kernels.time=x2", "--contention", "fit", "-q")
    assert (code, "inferred" in out) == (0, False)


def test_the_api_gives_what_the_command_prints(traces: Path, tmp_path: Path) -> None:
    found = cclbench.whatif(traces, "scale_up.bandwidth=x2", store=tmp_path)
    assert found == cclbench.whatif(cclbench.ingest(traces, store=tmp_path), "scale_up.bandwidth=x2")
    assert [one.scenario.label for one in found.predicted] == ["scale_up.bandwidth=x2"]
    assert found.measured_ns


def test_the_page_shows_its_output(repository: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    page = (repository / "docs" / "hardware-model.md").read_text()
    block = r"```console\n\$ COLUMNS=(\d+) cclbench whatif ([^\n]*)\n(.*?)```"
    ((columns, line, shown),) = re.findall(block, page, re.DOTALL)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.chdir(repository)
    code, out, _ = call("whatif", *line.split())
    assert code == 0
    assert [text.rstrip() for text in out.strip("\n").splitlines()] == shown.splitlines()


def test_a_scenario_is_saved_and_replayed_from_its_file(whatif: Call, tmp_path: Path) -> None:
    kept = tmp_path / "kept.yaml"
    first = whatif("--json", "--set", "kernels.time=x2", "--save", kept)
    second = whatif("--json", "--scenario", kept)
    assert (first.code, second.code) == (0, 0)
    assert json.loads(first.out)["results"] == json.loads(second.out)["results"]
    kept.write_text("name: slow\nset:\n  kernels.time: x2\n")
    named = json.loads(whatif("--json", "--scenario", kept).out)["results"]
    assert {row["category"] for row in named} == {None, "slow"}

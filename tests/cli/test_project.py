# SPDX-License-Identifier: Apache-2.0
"""`cclbench project`: from a trace to a figure in three commands, or from a measured step in one."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest
import yaml
from helpers.command_line import Call
from helpers.neo_card import neo_card  # noqa: F401 - a fixture
from helpers.page_commands import blocks

from cclbench.card.fields import put_field
from cclbench.ground.json_schema import packaged_schema

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
STATED = {
    "workload.phase": "inference",
    "workload.model.parameters": 25_557_032,
    "workload.precision": "fp32",
    "hardware.accelerator": "nvidia-a100-sxm4-80gb",
}
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

# SPDX-License-Identifier: Apache-2.0
"""Standard workloads, references, models' files and evidence of cards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.card import load_card, root_of, validate_card
from cclbench.card.json_schema import schema_part, value_misfit
from cclbench.card.model_config import read_model_config
from cclbench.card.references import accelerators_like, fabrics_like
from cclbench.card.standard import StandardWorkload, standard_workloads
from cclbench.ground.errors import CheckFailed
from cclbench.hardware import catalog

Change = Callable[[str, str], Path]
TRAINING = "ccl-bench-llama-3.1-8b-training"
OUR_CARD = "batch:\n    global: 8\n    sequence_length: 128"
THEIR_BATCH = "batch:\n    global: 4\n    sequence_length: 512"
ROWS = {
    "ccl-bench-qwen3-4b-inference": 13,
    "ccl-bench-llama-3.1-8b-inference": 11,
    "ccl-bench-deepseek-moe-16b-inference": 6,
    "ccl-bench-llama-3.1-8b-training": 11,
    "ccl-bench-deepseek-v3-16b-training-8x1024": 10,
    "ccl-bench-deepseek-v3-16b-training-64x2048": 1,
    "ccl-bench-deepseek-v3-236b-training": 1,
}
"""Published rows of each, counted by hand."""


def errors(card: Path) -> list[tuple[str, str]]:
    return [(p.path, p.message) for p in validate_card(card) if p.severity == "error"]


def named(
    changed: Change, name: str = TRAINING, batch: str = THEIR_BATCH, model: str = "Llama-3.1-8B"
) -> Path:
    """The complete card with the name of a standard, and with the batch and model given."""
    card = changed(OUR_CARD, batch)
    text = card.read_text().replace("phase: training", f"phase: training\n  standard: {name}")
    card.write_text(text.replace("name: Tiny,", f"name: {model},"))
    return card


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "meta-llama/llama_3.1_8b"])
def test_a_card_that_states_its_work_is_valid_whatever_may_vary(changed: Change, model: str) -> None:
    assert validate_card(named(changed, model=model)) == []


def test_each_difference_is_an_error_with_both_values(changed: Change) -> None:
    card = named(changed, batch=OUR_CARD, model="Llama-3.1-70B")
    card.write_text(card.read_text().replace("  precision: bf16\n", ""))
    by = f"by the standard workload {TRAINING}"
    assert dict(errors(card)) == {
        "workload.model.name": f'is "Llama-3.1-70B", but "Llama-3.1-8B" {by}',
        "workload.precision": f'is not filled in; "bf16" {by}',
        "workload.batch.global": f"is 8, but 4 {by}",
        "workload.batch.sequence_length": f"is 128, but 512 {by}",
    }


def test_an_unknown_one_is_an_error_with_the_nearest(changed: Change) -> None:
    ((path, message),) = errors(named(changed, name="ccl-bench-llama-3-8b-training"))
    assert path == "workload.standard"
    assert f"did you mean {TRAINING}" in message


def test_the_input_length_of_inference_may_be_stated_as_the_sequence_length() -> None:
    standard = standard_workloads()["ccl-bench-qwen3-4b-inference"]

    def differing(**batch: int) -> list[str]:
        model = {"name": "Qwen/Qwen3-4B"}
        workload = {"phase": "inference", "model": model, "precision": "bf16"}
        workload |= {"batch": {"global": 128, **batch}}
        return [path for path, _ in standard.contradictions({"workload": workload})]

    assert differing(sequence_length=1024) == []
    assert differing(input_length=1024, sequence_length=1152) == []
    assert differing(input_length=512, sequence_length=1024) == ["workload.batch.input_length"]
    assert differing() == ["workload.batch.input_length"]


@pytest.mark.parametrize("standard", standard_workloads().values(), ids=list(standard_workloads()))
def test_its_fields_are_those_of_cards(standard: StandardWorkload) -> None:
    assert {path: value_misfit(value, path) for path, value in standard.equal.items()} == dict.fromkeys(
        standard.equal
    )
    assert value_misfit(standard.name, "workload.standard") is None
    for path in (*standard.vary, *standard.open):
        assert schema_part(path)["title"]
        assert not any(f"{equal}.".startswith(f"{path}.") for equal in standard.equal)
    assert len(standard.capture) >= 3


def test_they_stand_for_the_published_rows(test_data: Path) -> None:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in standard_workloads()}
    document = json.loads((test_data / "ccl_bench" / "benchmark_data.json").read_text())
    for row in (row["metadata"] for row in document["rows"]):
        batch = {"global": row["batch_size"], "sequence_length": row["seq_len"]}
        if row["phase"] == "inference" and row["input_len"]:
            batch |= {"input_length": row["input_len"]}
        model = {"name": row["model_family"]}
        work = {"phase": row["phase"], "precision": "bf16", "model": model, "batch": batch}
        for standard in standard_workloads().values():
            if not list(standard.contradictions({"workload": work})):
                rows[standard.name].append(row)
    assert {name: len(found) for name, found in rows.items()} == ROWS
    assert {row["precision"] for found in rows.values() for row in found} == {"bf16"}
    for name, found in rows.items():
        if "deepseek-v3" in name:
            assert {row["hf_url"].rpartition("/")[2] for row in found} == {"deepseek-moe-16b-base"}
        if name.endswith("-inference"):
            lengths = {(row["hardware_type"], row["output_len"]) for row in found}
            on_tpu = set() if "moe" in name else {("TPU", "")}
            assert lengths == {("GPU", 128)} | on_tpu


UP = "{fabric: nvlink4, bandwidth: 450 GB/s}"
OUT = "fabric: infiniband-ndr, bandwidth: 400 Gb/s, "


def found(card: Path, severity: str = "error") -> list[tuple[str, str]]:
    return [(p.path, p.message.partition(";")[2]) for p in validate_card(card) if p.severity == severity]


@pytest.mark.parametrize(
    ("old", "new", "path", "hint"),
    [
        ("nvidia-h100-sxm", "amd-mi300", "accelerator", "did you mean amd-mi300a or amd-mi300x"),
        ("count: 16", "count: 16\n  system: dgx-h10", "system", "did you mean dgx-h100"),
        (UP, "{fabric: nvlink7}", "scale_up.fabric", "did you mean nvlink"),
        (UP, "{fabric: infiniband-ndr}", "scale_up.fabric", "known: "),
        (OUT, "fabric: infiniband-nrd, ", "scale_out.fabric", "did you mean infiniband-"),
    ],
)
def test_an_unknown_name_gets_the_nearest(changed: Change, old: str, new: str, path: str, hint: str) -> None:
    ((where, message),) = found(changed(old, new))
    assert where == f"hardware.{path}"
    assert hint in message
    assert catalog.VARIABLE in message


def test_an_unlisted_fabric_may_state_its_rate_or_be_of_hosts(changed: Change) -> None:
    card = changed("{fabric: nvlink4,", "{fabric: my-links,")
    assert found(card) == []
    assert [path for path, _ in found(card, "warning")] == ["hardware.scale_up.fabric"]
    card = changed("accelerator: nvidia-h100-sxm", "accelerator: generic-cpu")
    card.write_text(card.read_text().replace(UP, "{fabric: tcp-loopback}"))
    assert found(card) == []


def test_own_hardware_is_enough(changed: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = changed("nvidia-h100-sxm", "amd-mi300")
    shipped = Path(catalog.__file__).parent / "data" / "amd-mi300x.yaml"
    own = tmp_path / "own.yaml"
    own.write_text(shipped.read_text().replace("id: amd-mi300x", "id: amd-mi300"))
    monkeypatch.setenv(catalog.VARIABLE, str(own))
    assert found(card) == []


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("tpu_v6e", ["google-tpu-v6e"]),
        ("nvidia_a100", ["nvidia-a100-sxm-40gb", "nvidia-a100-sxm-80gb"]),
        ("nvidia_a100_80gb", ["nvidia-a100-sxm-80gb"]),
        ("a10", []),
    ],
)
def test_accelerators_have_all_words_of_a_name(name: str, ids: list[str]) -> None:
    assert accelerators_like(name) == ids


@pytest.mark.parametrize(
    ("name", "tier", "accelerator", "ids"),
    [
        ("slingshot", "scale_out", None, ["slingshot-11"]),
        ("Slingshot-11", "scale_out", None, ["slingshot-11"]),
        ("2D torus", "scale_up", "google-tpu-v5p", ["ici-v5p"]),
        ("roce", "scale_out", None, ["roce-100", "roce-200", "roce-400"]),
        ("nvlink4", "scale_up", "nvidia-a100-sxm-40gb", ["nvlink4"]),
        ("string", "scale_out", None, []),
    ],
)
def test_fabrics_by_words_or_topology(name: str, tier: str, accelerator: str | None, ids: list[str]) -> None:
    assert fabrics_like(name, tier, accelerator) == ids  # type: ignore[arg-type]


COMMON = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
COMMON |= {"intermediate_size": 14336, "tie_word_embeddings": False}
LLAMA = {**COMMON, "model_type": "llama", "vocab_size": 128256}
LARGER = {"num_hidden_layers": 80, "num_attention_heads": 64, "hidden_size": 8192, "intermediate_size": 28672}
EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2}
MIXTRAL = {**COMMON, "model_type": "mixtral", "vocab_size": 32000, **EXPERTS}
QWEN2 = {**COMMON, "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "num_hidden_layers": 28}
QWEN2 |= {"num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944}
QWEN3 = {**COMMON, "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2560, "num_hidden_layers": 36}
QWEN3 |= {"head_dim": 128, "intermediate_size": 9728, "tie_word_embeddings": True}


def sizes(tmp_path: Path, content: Any) -> dict[str, Any] | None:
    path = tmp_path / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_model_config(path)


@pytest.mark.parametrize(
    ("config", "parameters", "active"),
    [
        pytest.param(LLAMA, 8_030_261_248, None, id="Llama-3.1-8B"),
        pytest.param({**LLAMA, **LARGER}, 70_553_706_496, None, id="Llama-3.1-70B"),
        pytest.param(MIXTRAL, 46_702_792_704, 12_879_925_248, id="Mixtral-8x7B"),
        pytest.param(QWEN2, 7_615_616_512, None, id="Qwen2-7B"),
        pytest.param(QWEN3, 4_022_468_096, None, id="Qwen3-4B"),
    ],
)
def test_parameters_are_those_of_the_published_models(
    tmp_path: Path, config: dict[str, Any], parameters: int, active: int | None
) -> None:
    found = sizes(tmp_path, config)
    assert found is not None
    assert (found["parameters"], found.get("active_parameters")) == (parameters, active)
    assert (found["head_dim"], found["moe"]) == (128, active is not None)
    assert found["embedding_parameters"] == config["vocab_size"] * config["hidden_size"]


def test_what_a_configuration_does_not_state_is_left_out(tmp_path: Path) -> None:
    other = sizes(tmp_path, {**LLAMA, "model_type": "gpt_of_tomorrow"})
    stated = {"layers": 32, "heads": 32, "kv_heads": 8, "hidden": 4096, "vocabulary": 128256}
    assert other == {"family": "gpt_of_tomorrow", **stated, "tied_embeddings": False}
    untied = sizes(tmp_path, {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"})
    assert untied is not None
    assert {"parameters", "tied_embeddings"} & untied.keys() == set()
    latent = {**LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 512, "n_routed_experts": 256}
    found = sizes(tmp_path, latent)
    assert found is not None
    assert (found["moe"], "kv_heads" in found, "parameters" in found) == (True, False, False)
    assert "layers" not in (sizes(tmp_path, {**LLAMA, "num_hidden_layers": -3}) or {})


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"model_type": "llama"}', '{"hidden_size": 8}', "[" * 100_000, " " * 1_000_001),
        json.dumps({**LLAMA, "is_encoder_decoder": True}),
    ],
    ids=range(8),
)
def test_what_is_no_configuration_of_a_decoder_says_nothing(tmp_path: Path, content: str) -> None:
    assert sizes(tmp_path, content) is None


def messages(card: Path) -> list[str]:
    return [f"{problem.path}: {problem.message}" for problem in validate_card(card)]


def trace_of(card: Path) -> Path:
    return card.parent.parent / "traces/tiny/rank0.json"


def link_out(trace: Path) -> None:
    trace.rename(trace.parents[3] / "outside.json")
    trace.symlink_to(trace.parents[3] / "outside.json")


def link_to_itself(trace: Path) -> None:
    trace.unlink()
    trace.symlink_to(trace)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(Path.unlink, ["path: no such file: "], id="missing"),
        pytest.param(lambda t: t.write_bytes(b"{}\n"), ["sha256: does not match"], id="changed"),
        pytest.param(lambda t: t.write_bytes(b"[1]\n"),
            ["sha256: does not match", "bytes: is 3, but the file has 4 bytes"], id="grown"),
        pytest.param(link_out, ["path: leads out of the card's folder through a link"], id="a link out"),
        pytest.param(link_to_itself, ["path: "], id="a loop of links"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_the_cards_is_told(
    complete: Path, damage: Callable[[Path], object], said: list[str]
) -> None:
    damage(trace_of(complete))
    told = messages(complete)
    assert len(told) == len(said), told
    for one, words in zip(told, said, strict=True):
        assert one.startswith(f"evidence.traces[0].{words}")


def test_a_folder_or_a_script_that_is_not_there_is_named(changed: Change) -> None:
    (message,) = messages(changed("scripts/tiny/run.sh", "scripts/tiny/walk.sh"))
    assert message.startswith("evidence.launch: no such file")
    assert "is a folder; name its files" in messages(changed("traces/tiny/rank0.json", "traces/tiny"))[0]


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../outside", "traces/../../outside", "C:/x", r"traces\\x", r'"a\0b"', "//host/x", "c:x"],
)
def test_a_path_that_leads_out_is_refused_on_load(changed: Change, path: str) -> None:
    card = changed("path: traces/tiny/rank0.json", f"path: {path}")
    with pytest.raises(CheckFailed, match=r"evidence\.traces\[0\]\.path: (must|contains)"):
        load_card(card)


def test_paths_start_beside_workload_cards_or_at_the_card(tmp_path: Path) -> None:
    assert root_of(tmp_path / "workload_cards" / "x.yaml") == tmp_path
    assert root_of(tmp_path / "elsewhere" / "x.yaml") == tmp_path / "elsewhere"


def test_a_file_that_is_elsewhere_may_be_missing_here(changed: Change) -> None:
    card = changed(
        "      format: kineto\n", "      format: kineto\n      url: https://example.org/rank0.json\n"
    )
    assert messages(card) == []  # it is here as well, and is what the card says
    trace_of(card).unlink()
    (problem,) = validate_card(card)
    assert (problem.severity, problem.path) == ("warning", "evidence.traces[0].url")
    assert "not here" in problem.message
    card.write_text(card.read_text().replace("url:", "# url:"))
    assert load_card(card).evidence.traces[0].path == "traces/tiny/rank0.json"  # though it is an error


@pytest.mark.parametrize("url", ["http://example.org/x", "ftp://example.org/x", "/x", '"https://a b"'])
def test_a_file_is_elsewhere_only_by_https(changed: Change, url: str) -> None:
    card = changed("      format: kineto\n", f"      format: kineto\n      url: {url}\n")
    assert "evidence.traces[0].url: is " in messages(card)[0]


def test_a_file_elsewhere_needs_what_it_must_be(changed: Change) -> None:
    card = changed("      bytes: 3\n", "      url: https://example.org/rank0.json\n")
    assert "evidence.traces[0].url: requires sha256 and bytes" in messages(card)[0]

# SPDX-License-Identifier: Apache-2.0
"""Sizes by a Hugging Face configuration, against the parameters that the models' publishers count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cclbench.card.model_config import read_model_config

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

# SPDX-License-Identifier: Apache-2.0
"""FLOPs of published models, worked out from the shapes of their weights (Hugging Face: config.json)."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, card

from cclbench.analyzers.view.model_flops import flops_per_step

Matrices = dict[tuple[int, int], float]
"""How often a token is multiplied by a matrix of that shape."""


def flops(model: dict[str, Any], tokens: int, samples: int = 1, **workload: Any) -> dict[str | None, int]:
    """FLOPs of a step by the card of that model."""
    changes = {f"workload__{name}": value for name, value in workload.items()}
    batch = {"global": samples, "sequence_length": tokens}
    return flops_per_step(a_rank(card=card(workload__model=model, workload__batch=batch, **changes)))


def per_token(matrices: Matrices) -> float:
    """FLOPs of a token's forward products with those matrices."""
    return sum(2 * rows * columns * times for (rows, columns), times in matrices.items())


def a_model(
    name: str, parameters: int, table: int, vocabulary: int, hidden: int, layers: int, heads: int, **more: Any
) -> dict[str, Any]:
    """A card's model of causal attention with a head of its own, 128 wide; what is None it lacks."""
    told = {"name": name, "parameters": parameters, "embedding_parameters": table, "vocabulary": vocabulary}
    told |= {"hidden": hidden, "layers": layers, "heads": heads, "head_dim": 128}
    told |= {"tied_embeddings": False, "attention": "causal", **more}
    return {field: value for field, value in told.items() if value is not None}


# 32 layers; 8 key and value heads; feed-forward 14,336; vocabulary 128,256; a head of its own.
# Layer: q and o 4096·4096, k and v 4096·1024, gate, up and down 4096·14336, two norms of 4096:
# 218,112,000; 32 of them 6,979,584,000; embedding and head 525,336,576 each; the last norm 4,096.
LLAMA_8B_PARAMETERS = 6_979_584_000 + 2 * 525_336_576 + 4_096
LLAMA_8B = a_model("Llama-3.1-8B", LLAMA_8B_PARAMETERS, 525_336_576, 128_256, 4096, 32, 32)
LLAMA_8B_MATRICES = {(4096, 4096): 64, (4096, 1024): 64, (4096, 14_336): 96, (4096, 128_256): 1}

# 36 layers; 32 heads of 128 make 4096, wider than the hidden state's 2560; 8 key and value heads;
# feed-forward 9,728; vocabulary 151,936; the head is the embedding. Layer: q and o 2560·4096, k and v
# 2560·1024, feed-forward 3·2560·9728, norms 2·2560 + 2·128: 100,930,816; 36 of them 3,633,509,376.
QWEN_4B_PARAMETERS = 3_633_509_376 + 388_956_160 + 2_560
QWEN_4B = a_model("Qwen3-4B", QWEN_4B_PARAMETERS, 388_956_160, 151_936, 2560, 36, 32, tied_embeddings=True)
QWEN_4B_MATRICES = {(2560, 4096): 72, (2560, 1024): 72, (2560, 9728): 108, (2560, 151_936): 1}

# 32 layers; 8 experts of 3·4096·14336 of which a token takes 2, a router of 4096·8; vocabulary 32,000.
# Active in a layer: attention 41,943,040 + router 32,768 + 352,321,536 + norms 8,192 = 394,305,536.
EXPERTS = {"moe": True, "active_parameters": 32 * 394_305_536 + 2 * 131_072_000 + 4_096}
MIXTRAL = a_model("Mixtral-8x7B", 46_702_792_704, 131_072_000, 32_000, 4096, 32, 32, **EXPERTS)
MIXTRAL_MATRICES = {(4096, 4096): 64, (4096, 1024): 64, (4096, 8): 32, (4096, 14_336): 32 * 2 * 3}
MIXTRAL_MATRICES |= {(4096, 32_000): 1}

# 27 layers, the first dense with 10,944; 16 heads, query and key 128 + 64, value 128, latent 512;
# 64 experts of 3·2048·1408 of which a token takes 6, 2 shared ones; vocabulary 102,400; an own head.
# Attention of a layer 13,763,072 with the latent's norm, two norms of 2048; dense feed-forward 67,239,936;
# of a layer of experts 8·8,650,752 + router 131,072 = 69,337,088 are active.
LATENT = {"moe": True, "head_dim": None, "query_key_dim": 192, "value_dim": 128}
LATENT["active_parameters"] = 27 * 13_767_168 + 67_239_936 + 26 * 69_337_088 + 2 * 209_715_200 + 2_048
DEEPSEEK_LITE = a_model("DeepSeek-V2-Lite", 15_706_484_224, 209_715_200, 102_400, 2048, 27, 16, **LATENT)
DEEPSEEK_LITE_MATRICES = {(2048, 16 * 192): 27, (2048, 512 + 64): 27, (512, 16 * (128 + 128)): 27}
DEEPSEEK_LITE_MATRICES |= {(16 * 128, 2048): 27, (2048, 10_944): 3, (2048, 64): 26}
DEEPSEEK_LITE_MATRICES |= {(2048, 1408): 26 * (6 + 2) * 3, (2048, 102_400): 1}

# Tied, with learned positions: the token table, 50,257·768 = 38,597,376, is the head, that of the 1,024
# positions, 786,432, is looked up only. The 12 layers and the last norm have 85,056,000 parameters.
TABLES = 38_597_376 + 786_432
TIED = {"head_dim": 64, "tied_embeddings": True, "attention": None}
GPT_2 = a_model("GPT-2", 85_056_000 + TABLES, TABLES, 50_257, 768, 12, 12, **TIED)


@pytest.mark.parametrize(
    ("model", "tokens", "products", "pairs", "published"),
    [
        # 6·7,504,924,672 and 12·32·32·128·8192
        (LLAMA_8B, 8192, 45_029_548_032, 12_884_901_888, 8_030_261_248),
        # 6·4,022,468,096, the table once and as the head; 12·36·32·128·4096
        (QWEN_4B, 4096, 24_134_808_576, 7_247_757_312, 4_022_468_096),
        # 6·12,748,853,248 and 12·32·32·128·4096
        (MIXTRAL, 4096, 76_493_119_488, 6_442_450_944, 46_702_792_704),
        # 6·2,451,435,008 and 6·27·16·(192 + 128)·4096
        (DEEPSEEK_LITE, 4096, 14_708_610_048, 3_397_386_240, 15_706_484_224),
        # 6·123,653,376 and 12·12·12·64·1024
        (GPT_2, 1024, 741_920_256, 113_246_208, 124_439_808),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else None,
)
def test_training(model: dict[str, Any], tokens: int, products: int, pairs: int, published: int) -> None:
    assert model["parameters"] == published
    found = flops(model, tokens)
    assert found[None] == tokens * (products + pairs)
    assert flops(model, tokens, samples=16)[None] == 16 * found[None]
    if "attention" in model:  # a token attends to (S + 1) / 2 on average rather than to S
        assert found["causal"] == tokens * products + pairs * (tokens + 1) // 2


@pytest.mark.parametrize(
    ("model", "matrices"),
    [
        (LLAMA_8B, LLAMA_8B_MATRICES),
        (QWEN_4B, QWEN_4B_MATRICES),
        (MIXTRAL, MIXTRAL_MATRICES),
        (DEEPSEEK_LITE, DEEPSEEK_LITE_MATRICES),
    ],
    ids=lambda value: value.get("name") if isinstance(value, dict) else None,
)
def test_parameters_that_multiply_are_matrices_and_norms(model: dict[str, Any], matrices: Matrices) -> None:
    """A token alone: what is no matrix is norms, under 0.02 % of the parameters, and attention to itself."""
    counted = flops(model | {"layers": 1, "heads": 1}, 1)[None] / 3
    assert counted == pytest.approx(per_token(matrices), rel=2e-4)
    assert counted > per_token(matrices)


def test_active_parameters_as_published_leave_a_table_out() -> None:
    """Mixtral's 12.9 billion hold both tables; DeepSeek-V2-Lite's 2.4 hold the head and no embedding."""
    assert MIXTRAL["active_parameters"] == 12_879_925_248
    active = DEEPSEEK_LITE["active_parameters"]
    assert (active, active - DEEPSEEK_LITE["embedding_parameters"]) == (2_661_150_208, 2_451_435_008)


def test_a_prompt_needs_the_head_once() -> None:
    """Two prompts of 1,024 tokens: 6,979,588,096 parameters a token, 525,336,576 of the head a prompt."""
    found = flops(LLAMA_8B, 1024, samples=2, phase="inference")
    prompt = 2 * 6_979_588_096 * 1024 + 2 * 525_336_576
    pair = 4 * 32 * 32 * 128
    assert found == {None: 2 * (prompt + pair * 1024 * 1024), "causal": 2 * (prompt + pair * 524_800)}
    tied = flops(QWEN_4B, 1024, phase="inference")
    rest = 4_022_468_096 - 388_956_160
    assert tied[None] == 2 * rest * 1024 + 2 * 388_956_160 + 4 * 36 * 32 * 128 * 1024 * 1024


def test_a_window_shorter_than_the_sequence() -> None:
    """Of 8,192 tokens the first 4,096 see 1 to 4,096, the others 4,096 each: 25,167,872 of 67,108,864."""
    windowed = LLAMA_8B | {"attention": "window", "attention_window": 4096}
    found = flops(windowed, 8192)
    pair = 12 * 32 * 32 * 128
    assert found[None] - found["window"] == pair * (67_108_864 - 25_167_872)


def test_without_dimensions_of_their_own_query_key_and_value_are_as_wide_as_a_head() -> None:
    same = {"query_key_dim": 128, "value_dim": 128}
    assert flops(LLAMA_8B, 64) == flops({k: v for k, v in LLAMA_8B.items() if k != "head_dim"} | same, 64)
    wider = flops(LLAMA_8B | {"query_key_dim": 192}, 64)[None] - flops(LLAMA_8B, 64)[None]
    assert wider == 6 * 32 * 32 * 64 * 64 * 64

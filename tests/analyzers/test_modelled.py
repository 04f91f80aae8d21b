# SPDX-License-Identifier: Apache-2.0
"""Stand-ins: modelled transfers of hand-made ranks, and FLOPs of published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, card, collective, comm, window
from helpers.hand_values import rows_of, values
from msgspec import structs

from cclbench.analyzers.metric import METRICS, Coverage, Value
from cclbench.analyzers.rows import metric_rows, rank_rows
from cclbench.analyzers.stand_ins import FROM_EVIDENCE, STAND_INS, stand_in
from cclbench.analyzers.view.model_flops import flops_per_step
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground.errors import UsageError
from cclbench.hardware import catalog
from cclbench.hardware.calibration import OF_RUN, Calibration, write_calibration
from cclbench.hardware.collectives import price_collective
from cclbench.hardware.sweep import Sweep
from cclbench.record.rows import builtins

METRIC = "comm.transfer"
MS = 10**6
NODE = {"group": "0-7", "group_size": 8}
P4DE = "aws-p4de"


def a_talk(*calls: dict[str, Any], **options: Any) -> RankView:
    """A rank of two 10 ms steps whose collectives are these, on a p4de unless `options` say otherwise."""
    options = {"card": card(hardware__system=P4DE), **options}
    steps = [window(0, 10 * MS, 0), window(10 * MS, 20 * MS, 1)]
    return a_rank([comm(c["start_ns"], c["end_ns"]) for c in calls], steps, calls, **options)


def reduce(size: int, start: int, ns: int, **columns: Any) -> dict[str, Any]:
    """An all-reduce of a node, never matched."""
    full = {"in_bytes": size, "out_bytes": size, **NODE, **columns}
    return collective("all_reduce", start, start + ns, **full)


def modelled(rank: RankView, metric: str = METRIC) -> list[Value]:
    """What the metric says of the rank where stand-ins are wanted."""
    return rank_rows(rank, [METRICS.get(metric)], model=True)[metric]


def band(values: list[Value], collective: str | None = None, category: str | None = None) -> list[float]:
    """low, value, high of the rank or of one kind or dimension; fails where one lacks or they are no band."""
    own = {v.stat: v for v in values if (v.collective, v.category) == (collective, category)}
    assert {v.provenance for v in own.values()} == {"modelled"}
    found = [own[stat].value or 0.0 for stat in ("low", None, "high")]
    assert found == sorted(found)
    return found


def priced(kind: str, size: int) -> list[float]:
    """The model's own low, time and high among the eight of a node, s."""
    found = price_collective(kind, size, range(8), catalog.system(P4DE))
    return [float(times[0]) for times in (found.low_s, found.time_s, found.high_s)]


def test_an_unmatched_transfer_takes_what_the_model_says() -> None:
    """64 MiB among 8 A100: 7/4 · 64 MiB at about 240 GB/s is 0.49 ms and its latency, and 5 % learned."""
    found = modelled(a_talk(reduce(64 << 20, 0, 5 * MS), reduce(64 << 20, 10 * MS, 5 * MS)))
    low, value, high = band(found)
    assert value == pytest.approx(1.05 * 1.75 * (64 << 20) / 240e9, rel=0.2)
    assert low < value < high < 5e-3
    assert found[0].value == value
    said = found[0].reason or ""
    assert said.startswith("modelled, since no collective in the window is matched")
    assert "by its specification without contention, at most each collective's own" in said
    assert "the duration of collectives that took less" not in said


def test_it_is_a_sum_per_step_and_by_kind() -> None:
    gather = collective("all_gather", 6 * MS, 9 * MS, in_bytes=1 << 20, out_bytes=8 << 20, **NODE)
    found = modelled(a_talk(reduce(1 << 20, 0, 2 * MS), reduce(4 << 20, 10 * MS, 2 * MS), gather))
    one, other, third = (
        np.array(priced(*told))
        for told in (("all_reduce", 1 << 20), ("all_reduce", 4 << 20), ("all_gather", 8 << 20))
    )
    assert band(found, "all_reduce") == pytest.approx((one + other) / 2)
    assert band(found, "all_gather") == pytest.approx(third / 2)
    assert band(found) == pytest.approx((one + other + third) / 2)


SHORTER = "the duration of collectives that took less"
UNMODELLED = "of libraries whose algorithms are not modelled"


def test_no_transfer_is_longer_than_its_call() -> None:
    """Of three calls one took less than the model says: that one's duration stands in the whole band."""
    low, value, high = priced("all_reduce", 64 << 20)
    short = int(low * 0.5e9)
    long = [reduce(64 << 20, n * 6 * MS, 5 * MS) for n in range(2)]
    found = modelled(a_talk(*long, reduce(64 << 20, 18 * MS, short)))
    assert band(found) == pytest.approx([(2 * s + short / 1e9) / 2 for s in (low, value, high)])
    assert SHORTER in (found[0].reason or "")
    # One shorter than the model says and longer than its least bounds what is above.
    ns = round((low + value) / 2 * 1e9)
    found = modelled(a_talk(reduce(64 << 20, 0, ns)))
    assert band(found) == pytest.approx([low / 2, ns / 2e9, ns / 2e9])
    assert ns / 1e9 < high
    assert SHORTER not in (found[0].reason or "")


def test_a_machine_on_which_most_would_take_longer_is_not_the_machine() -> None:
    """One on which half would may be it."""
    (only,) = modelled(a_talk(*(reduce(64 << 20, n * MS, 100_000) for n in range(3))))
    assert (only.status, only.value) == ("not_applicable", None)
    assert "3 of 3 collectives took less than the modelled minimum on aws-p4de" in (only.reason or "")
    found = modelled(a_talk(reduce(64 << 20, 0, 5 * MS), reduce(64 << 20, 10 * MS, 100_000)))
    assert band(found)[1] == pytest.approx((priced("all_reduce", 64 << 20)[1] + 1e-4) / 2)
    assert SHORTER in (found[0].reason or "")
    assert (found[0].coverage, found[0].status) == (Coverage(2, 2, 5 * MS + 100_000, 5 * MS + 100_000), "ok")


def test_a_price_rests_on_the_collectives_that_have_one() -> None:
    silent = {"in_bytes": None, "out_bytes": None}
    calls = [reduce(1 << 20, 0, 3 * MS), reduce(1 << 20, 4 * MS, 2 * MS, library="custom")]
    calls += [reduce(1 << 20, at * MS, MS, **silent) for at in (10, 12)]
    found = modelled(a_talk(*calls))
    assert found[0].coverage == Coverage(1, 4, 3 * MS, 7 * MS)
    assert found[0].left_out == {"of unknown kind, payload or duration": 2, UNMODELLED: 1}
    assert band(found)[1] == pytest.approx(priced("all_reduce", 1 << 20)[1] / 2)
    # Where nothing communicates there is nothing to model.
    (only,) = modelled(a_talk())
    assert only.reason == "there are no collectives in the window"


@pytest.mark.parametrize("more", [0, 1])
def test_up_to_an_exbibyte_is_priced(more: int) -> None:
    known = [reduce(1 << 20, at, 3 * MS) for at in (0, 4 * MS)]
    found = modelled(a_talk(*known, reduce(2**60 + more, 10 * MS, MS)))
    assert found[0].left_out == ({"of more than 1 EiB": 1} if more else {})
    assert (SHORTER in (found[0].reason or "")) is not more


def test_what_was_measured_stays() -> None:
    told = reduce(64 << 20, 0, 5 * MS, instance=1, arrival_ns=0, wait_ns=MS, transfer_ns=4 * MS)
    rank = a_talk(told, reduce(64 << 20, 10 * MS, 5 * MS))
    assert modelled(rank) == values(rank, METRIC)
    assert (modelled(rank)[0].value, modelled(rank)[0].provenance) == (pytest.approx(2e-3), "measured")
    # Switched off, the reason is the old one.
    (row, of_rank) = rows_of(METRIC, a_talk(reduce(64 << 20, 0, 5 * MS)))
    why = "no collective is matched across its ranks: 1 not matched with another rank's"
    assert (row["value"], row["status"], row["reason"]) == (None, "not_applicable", why)
    assert of_rank["reason"] == why


def modelled_rows(*views: RankView) -> list[dict[str, Any]]:
    """The rows of those ranks where stand-ins are wanted."""
    answers, policies = {view.rank: modelled(view) for view in views}, {view.rank: "steps" for view in views}
    rows = metric_rows(METRICS.get(METRIC), answers, policies, [], default_window="steps", source="kineto")
    return builtins(rows)


def test_a_run_does_not_average_measured_ranks_with_modelled_ones() -> None:
    told = reduce(64 << 20, 0, 5 * MS, instance=1, arrival_ns=0, wait_ns=MS, transfer_ns=4 * MS)
    own, *_ = rows = modelled_rows(a_talk(told, rank=0), a_talk(reduce(64 << 20, 0, 5 * MS), rank=1))
    assert (own["value"], own["provenance"]) == (pytest.approx(2e-3), "measured")
    assert "1 of 2 ranks left out: modelled, since" in own["reason"]
    assert not [row for row in rows if row["rank"] is None and row["stat"] in ("low", "high")]
    assert {row["provenance"] for row in rows if row["rank"] == 1} == {"modelled"}


def test_ranks_that_are_all_modelled_have_a_modelled_mean_with_a_band() -> None:
    """Two ranks, each with one call in two steps."""
    rows = modelled_rows(*(a_talk(reduce(size << 20, 0, 5 * MS), rank=size) for size in (4, 16)))
    own = {row["stat"]: row for row in rows if row["rank"] is None and row["collective"] is None}
    both = zip(priced("all_reduce", 4 << 20), priced("all_reduce", 16 << 20), strict=True)
    assert [own[s]["value"] for s in ("low", None, "high")] == pytest.approx([(a + b) / 4 for a, b in both])
    assert {row["provenance"] for row in own.values()} == {"modelled"}


@pytest.mark.parametrize(
    ("call", "options", "why"),
    [
        ({"in_bytes": None, "out_bytes": None}, {}, "not modelled: no collective in the window has a known"),
        ({"library": "custom"}, {}, "1 of libraries whose algorithms are not modelled"),
        ({"in_bytes": 2**62}, {}, "1 of more than 1 EiB"),
        ({"group": "x" * 8}, {}, "1 of unknown ranks"),
        ({"group": "0-8", "group_size": 9}, {},
         "1 the group has 1 to 8 ranks per node, and formulas need equal numbers"),
        ({}, {"card": None}, "neither the card (hardware.accelerator) nor the trace names"),
        ({}, {"card": card(hardware__system="aws-p99")}, "the catalog knows no system 'aws-p99'"),
        ({}, {"works_on": "host"}, "the CPU is the device: the model prices"),
    ],
)  # fmt: skip
def test_what_cannot_be_priced_says_why(call: dict[str, Any], options: dict[str, Any], why: str) -> None:
    (only,) = modelled(a_talk(reduce(1 << 20, 0, MS, **call), **options))
    assert only.status == "not_applicable"
    assert (only.reason or "").startswith("no collective is matched across its ranks: ")
    assert why in (only.reason or "")


def test_a_calibration_beside_the_card_prices(tmp_path: Path) -> None:
    """Measured among eight: 1 ms at 1 MiB, 3 ms at 4 MiB; a step holds half of each."""
    sweep = Sweep("all_reduce", 8, 1, (1 << 20, 4 << 20), (1e-3, 3e-3))
    write_calibration(Calibration(P4DE, (sweep,)), tmp_path / OF_RUN)
    own = structs.replace(card(hardware__system=P4DE, hardware__calibration="mine.yaml"), root=tmp_path)
    found = modelled(a_talk(reduce(1 << 20, 0, 9 * MS), reduce(4 << 20, 10 * MS, 9 * MS), card=own))
    assert band(found)[1] == pytest.approx(2e-3)
    assert "modelled on aws-p4de by its calibration" in (found[0].reason or "")
    assert "measured among 8 ranks on 1 node" in (found[0].reason or "")


def test_a_metric_has_one_model_and_models_stand_in_for_metrics_there_are() -> None:
    with pytest.raises(UsageError, match=r"'comm\.transfer' has two models"):
        stand_in(METRIC)(lambda _: iter(()))
    assert {*STAND_INS, *FROM_EVIDENCE} <= set(METRICS)


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


def test_a_card_that_states_open_mpi_is_priced_by_its_rules() -> None:
    """Eight ranks: recursive doubling below 8 KiB, then Rabenseifner's; NCCL's call is priced as NCCL's."""
    version = "Open MPI 4.1.4"
    told = card(hardware__system=P4DE, software={"communication": {"library": "mpi", "version": version}})
    calls = [reduce(4096, 0, MS, library="mpi"), reduce(8192, 2 * MS, MS, library="mpi")]
    calls += [reduce(8191, 12 * MS, MS, library="mpi"), reduce(64, 14 * MS, MS, library="nccl")]
    rank = a_talk(*calls, card=told)
    prices = price_collective(
        "all_reduce", [4096, 8192, 8191], range(8), catalog.system(P4DE), library_version=version
    )
    _, nccl, _ = priced("all_reduce", 64)
    _, value, _ = band(modelled(rank))
    assert value == pytest.approx((prices.time_s.sum() + nccl) / 2)
    counts = {v.category: v.value for v in values(rank, "comm.mpi_algorithm")}
    assert counts == {None: 1.5, "recursive_doubling": 1.0, "rabenseifner": 0.5}
    for other, why in (("MPICH 4.1.2", "rules of MPICH 4.1.2"), (None, "neither the traces nor a card")):
        software = {"communication": {"library": "mpi", "version": other}}
        (none,) = values(a_talk(*calls, card=card(software=software)), "comm.mpi_algorithm")
        assert (none.status, why in none.reason) == ("not_applicable", True)

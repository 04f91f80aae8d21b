# SPDX-License-Identifier: Apache-2.0
"""Steps of serving engines, by the names of their annotations.

vLLM (vllm/v1/worker/gpu_worker.py) gives the number of requests in each phase,
`execute_context_2(512)_generation_6(6)`; SGLang (model_runner.py) gives the batch's mode,
`step[EXTEND bs=2 toks=512]`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_VLLM: Final = re.compile(r"execute_(?:\d+_)?context_(\d+)(?:\(.*?\))?_generation_(\d+).*")
_SGLANG: Final = re.compile(r"step\[(\w+) .*\]")
_SGLANG_BATCH: Final = re.compile(r"step\[\w+ bs=(\d+)")
_DIGITS: Final = 15
"""Most digits of a plausible number of requests."""
_MODES: Final = {"EXTEND": "prefill", "DECODE": "decode", "MIXED": "mixed"}
_PREFILL: Final = re.compile(r"execute_(?:\d+_)?context_(\d{1,15})\((\d{1,15})\)_generation_0+(?:\(0*\))?")
_SUMS: Final = r"\(sq(\d{1,15})sk(\d{1,15})sqsq(\d{1,15})sqsk(\d{1,15})\)"
_LENGTHS: Final = re.compile(rf"execute_(?:\d+_)?context_\d+{_SUMS}_generation_\d+{_SUMS}.*")


def is_vllm_step(name: str) -> bool:
    """Whether `name` is that of a vLLM step."""
    return _VLLM.fullmatch(name) is not None


def is_serving_step(name: str) -> bool:
    """Whether `name` is that of a vLLM or SGLang step, whatever its phase."""
    return is_vllm_step(name) or _SGLANG.fullmatch(name) is not None


def serving_phase(name: str) -> str | None:
    """prefill, decode or mixed, by the name of an engine's step; None where it states neither."""
    if vllm := _VLLM.fullmatch(name):
        has_phases = (vllm[1].strip("0") != "", vllm[2].strip("0") != "")
        return {(True, False): "prefill", (False, True): "decode", (True, True): "mixed"}.get(has_phases)
    sglang = _SGLANG.fullmatch(name)
    return _MODES.get(sglang[1]) if sglang else None


def batch_size(name: str) -> int | None:
    """Requests in a step, by its name; None where it does not state them."""
    match = _VLLM.fullmatch(name) or _SGLANG_BATCH.match(name)
    if match is None or max(map(len, match.groups())) > _DIGITS:
        return None
    return sum(map(int, match.groups()))


class Lengths(NamedTuple):
    """Sums over the requests in a step."""

    keys: int
    """Σ keys."""
    pairs: int
    """Σ pairs of a query and a key it attends to; a request's last query attends to all its keys."""


def request_lengths(name: str) -> Lengths | None:
    """Lengths from a step's name, which has sums over requests of q queries and k keys; None without.

    `execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)`: Σq, Σk, Σq², Σqk.
    """
    match = _LENGTHS.match(name)
    if match is None:
        return None
    sums = [int(number) for number in match.groups()]
    return Lengths(
        keys=sums[1] + sums[5],
        pairs=sum(qk - (qq - q) // 2 for q, _, qq, qk in (sums[:4], sums[4:])),
    )


def prefill_lengths(name: str) -> Lengths | None:
    """The fewest keys and pairs of a step that only prefills, `execute_context_2(512)_generation_0(0)`.

    Of 2 requests with 512 tokens together the pairs are fewest where they are equally long and no keys are
    cached.  None for other steps.
    """
    match = _PREFILL.fullmatch(name)
    requests, tokens = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < requests <= tokens:
        return None
    length, longer = divmod(tokens, requests)
    pairs = requests * (length * (length + 1) // 2) + longer * (length + 1)
    return Lengths(keys=tokens, pairs=pairs)

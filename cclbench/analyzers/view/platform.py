# SPDX-License-Identifier: Apache-2.0
"""The work and the machine by card and catalog, and the devices of each collective.

What a card lacks is named in `NotApplicable`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.columns import word_codes
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import group_id
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.system import System
from cclbench.machine import Learned, Machine

if TYPE_CHECKING:
    from cclbench.card import Card

T = TypeVar("T")
_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?")
_LIST: Final = re.compile(r"\d{1,9}(?:,\d{1,9})*")


class Platform(Protocol):
    """A rank or a run with a card and a machine."""

    @property
    def card(self) -> Card | None:
        """The workload card."""

    @property
    def machine(self) -> Machine:
        """The machine."""


def card_field(platform: Platform, path: str, *, use: str = "") -> Any:
    """The card's value at the path; `NotApplicable` with the field and its `use` where it is missing."""
    if platform.card is None:
        raise NotApplicable(f"needs a workload card with {path}")
    value: Any = platform.card
    for part in path.split("."):
        value = getattr(value, "global_" if part == "global" else part)
    if value is None:
        raise NotApplicable(f"the workload card lacks {path}{use and f', {use}'}")
    return value


def run_accelerator(platform: Platform) -> Accelerator:
    """The catalog's entry for the run's accelerator."""
    return _answer_value(platform.machine.accelerator)


def run_system(rank: RankView) -> tuple[System, str | None]:
    """The run's system, and what it is based on where the card does not name it."""
    return _answer_value(rank.machine.system), rank.machine.system.reason


def _answer_value(answer: Learned[T]) -> T:
    if answer.value is None:
        raise NotApplicable(answer.reason or "")
    return answer.value


def peak_flops_per_s(rank: RankView) -> float:
    """Dense peak of the card's precision on one accelerator, FLOP/s."""
    rank.needs_accelerator("the catalog has no peak for it")
    precision = card_field(rank, "workload.precision")
    device = run_accelerator(rank)
    peak = device.peak_flops_per_s.get(precision)
    if peak is None:
        raise NotApplicable(f"the catalog has no dense {precision} peak of {device.id}")
    return float(peak)


def hbm_bytes_per_s(rank: RankView) -> float:
    """Peak of the device's memory as the trace states it, else the catalog's, B/s."""
    if rank.facts.hbm_bytes_per_s is not None:
        return rank.facts.hbm_bytes_per_s
    return catalog_hbm_bytes_per_s(rank)


def catalog_hbm_bytes_per_s(platform: Platform) -> float:
    """Peak of the memory of the catalog's accelerator, B/s."""
    device = run_accelerator(platform)
    if device.hbm_bytes_per_s is None:
        raise NotApplicable(f"the catalog has no memory bandwidth of {device.id}")
    return float(device.hbm_bytes_per_s)


def samples_per_step(platform: Platform) -> int:
    """Samples of one step over all ranks; `NotApplicable` where a step serves parts of many requests."""
    phase = card_field(platform, "workload.phase")
    batch = card_field(platform, "workload.batch")
    if phase == "serving" or (phase == "inference" and (batch.output_length or 1) > 1):
        raise NotApplicable(
            f"a step of generating {phase} is a prefill or a decode, and the card does not state which"
        )
    return int(card_field(platform, "workload.batch.global"))


def tokens_per_sample(platform: Platform) -> int:
    """Tokens of one sample in a step: the sequence length, or the input length of inference."""
    if card_field(platform, "workload.phase") == "inference":
        batch = card_field(platform, "workload.batch")
        if batch.input_length is not None:
            return int(batch.input_length)
    return int(card_field(platform, "workload.batch.sequence_length"))


def devices_of(rank: RankView, table: pa.Table, system: System) -> tuple[list[Sequence[int] | str], Int64]:
    """Distinct sets of devices of collectives (a group's, or the two of a transfer), and each row's index.

    A string states why the devices are unknown.
    """
    group, names = word_codes(table, "group")
    pair = np.stack(
        [table[end].cast(pa.int64()).fill_null(-1).to_numpy() for end in ("src_rank", "dst_rank")]
    )
    pair[:, (pair < 0).any(axis=0)] = -1
    group = np.where(pair[0] < 0, group, -1)
    keys, row = np.unique(np.stack([group, *pair]), axis=1, return_inverse=True)
    listed = {group_id(g.ranks): g.ranks for g in rank.facts.groups if g.ranks}
    device_sets: list[Sequence[int] | str] = []
    for number, source, target in keys.T.tolist():
        ranks = (source, target) if source >= 0 else _listed_ranks(names[number], listed)
        devices = rank.machine.numbered_in(system, ranks) if ranks else None
        device_sets.append(devices or ("of unknown nodes" if ranks else "of unknown ranks"))
    return device_sets, row.ravel()


def _listed_ranks(name: str | None, listed: dict[str, tuple[int, ...]]) -> Sequence[int]:
    """The ranks of a group id (see `schema.group_id`); empty for an abbreviated one."""
    if name is None or name in listed:
        return listed.get(name or "", ())
    if match := _RANGE.fullmatch(name):
        return range(int(match[1]), int(match[2]) + 1, int(match[3] or 1))
    return tuple(map(int, name.split(","))) if _LIST.fullmatch(name) else ()

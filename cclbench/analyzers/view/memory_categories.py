# SPDX-License-Identifier: Apache-2.0
"""What blocks hold, by their call sites and lives: parameters, optimizer states, gradients, activations, ...

PyTorch's own split (torch.profiler's MemoryProfile) follows the data flow between operators, which a snapshot
does not record. Its categories follow here from the stack of a block's allocation and from what is allocated
while it lives. Memory that is older than the recording and has no stack remains unknown: there are the
parameters and optimizer states of a job whose recording began after its first step.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.analyzers.view.allocator import OLDER, RECOMPUTED, Owners
from cclbench.ground.intervals import Int64, Mask

CATEGORIES: Final = (
    "parameters",
    "optimizer states",
    "gradients",
    "activations",
    "inputs",
    "communication",
    "autograd detail",
    "workspace",
    "unknown",
)
_CODE: Final = {name: code for code, name in enumerate(CATEGORIES)}
_OPTIMIZER: Final = re.compile(r" torch/optim/")
_COMMUNICATION: Final = re.compile(r" torch/distributed/|c10d::|ProcessGroup")
_INPUT: Final = re.compile(r" torch/utils/data/|pin_memory")
_MODEL: Final = re.compile(
    r"(?:^| < )(?:convert|_apply|__init__|reset_parameters) torch/nn/modules/"
    r"| torch/nn/(?:init|parameter)\.py| torch/serialization\.py"
    r"|(?:^| < )(?:from_pretrained|load_state_dict) "
)
_CONSTRUCTOR: Final = re.compile(r"\): __init__$")
"""The line of Python of an operator in a trace."""
_BACKWARD: Final = re.compile(r"(?:^| < )\w*backward \S+\.py:")
_MODULE: Final = re.compile(r"(?:^| < )forward \S+\.py:| torch/nn/")
_PYTHON: Final = re.compile(r"\.py:\d")
_RECOMPUTED: Final = re.compile(r" torch/utils/checkpoint\.py")


def block_categories(owners: Owners) -> Int64:
    """Index into `CATEGORIES` of each block, shape (blocks,).

    - parameters: allocated by a module's creation, conversion or loading, and not freed before the last
      module, autograd or optimizer has allocated
    - optimizer states: allocated by an optimizer, and not freed before that
    - gradients: allocated by autograd, and live when it is done, when a forward or an optimizer allocates
    - autograd detail: allocated by autograd otherwise
    - activations: allocated by the program, and live when autograd allocates
    - inputs: allocated by a data loader, or by the program outside of modules before those of the step's
      forward, and live when they allocate; communication: by torch.distributed or a process group
    - workspace: what else is freed; unknown: what else is not, and what has no stack
    """
    by = _traits(owners)
    backward = by.autograd | by.recomputed
    of_step = backward | by.module
    last = owners.begin[of_step | by.optimizer].max(initial=-1)
    lasts = (owners.begin < owners.begin[of_step].max(initial=-1)) & (owners.end > last)
    stays = (owners.end == owners.moments) | lasts  # a job that ends in the recording frees all
    elsewhere = by.has_site & ~backward & ~by.communicates  # hooks of autograd communicate, too
    during_backward = _any_within(owners, np.sort(owners.begin[backward]))
    after_backward = _any_within(owners, np.sort(owners.begin[elsewhere]))
    in_forward = elsewhere & by.module & ~by.model
    outside = elsewhere & ~by.module & ~by.model & ~by.optimizer
    enters = outside & _precede(owners, owners.begin[in_forward], owners.begin[backward | by.optimizer])
    rules = (
        (~by.has_site, "unknown"),
        (by.communicates, "communication"),
        (by.loader | enters, "inputs"),
        (by.optimizer & stays, "optimizer states"),
        (by.model & stays, "parameters"),
        (by.optimizer | by.model, "workspace"),
        (by.autograd & after_backward, "gradients"),
        (by.autograd, "autograd detail"),
        (during_backward, "activations"),
        (~stays, "workspace"),
    )
    codes = [_CODE[name] for _, name in rules]
    return np.select([mask for mask, _ in rules], codes, _CODE["unknown"]).astype(np.int64)


def bytes_by_category(owners: Owners, moment: int) -> dict[str, int]:
    """Requested bytes of each category that holds any at a moment."""
    live = owners.live_at(moment)
    held = np.zeros(len(CATEGORIES), np.int64)
    np.add.at(held, block_categories(owners)[live], owners.bytes[live])
    return {name: size for name, size in zip(CATEGORIES, held.tolist(), strict=True) if size}


@dataclass(frozen=True, slots=True, eq=False)
class _Traits:
    """Who allocated each block; masks of shape (blocks,)."""

    has_site: Mask
    autograd: Mask
    recomputed: Mask
    communicates: Mask
    loader: Mask
    optimizer: Mask
    model: Mask
    """A module's creation, conversion or loading."""
    module: Mask
    """A module, or a function of one."""


def _traits(owners: Owners) -> _Traits:
    """By the operators' phases and modules where they are stated, else by the stacks."""
    sites, owner, calls = owners.call_sites, owners.owner, owners.calls

    def match(pattern: re.Pattern[str]) -> Mask:
        return _matching_owners(sites, pattern)[owner]

    if calls is not None:
        return _Traits(
            has_site=calls.phase >= 0,
            autograd=calls.has_phase("backward"),
            recomputed=calls.has_phase(RECOMPUTED),
            communicates=match(_COMMUNICATION),
            loader=calls.has_phase("data"),
            optimizer=calls.has_phase("optimizer"),
            model=match(_CONSTRUCTOR) & (calls.module < 0),
            module=calls.module >= 0,
        )
    has_site = np.array([site is not None for site in sites], np.bool_)
    has_site[OLDER] = False
    without_python = np.array([_runs_autograd(site) for site in sites], np.bool_)
    return _Traits(
        has_site=has_site[owner],
        autograd=match(_BACKWARD) | without_python[owner],
        recomputed=match(_RECOMPUTED),
        communicates=match(_COMMUNICATION),
        loader=match(_INPUT),
        optimizer=match(_OPTIMIZER),
        model=match(_MODEL),
        module=match(_MODULE),
    )


def _matching_owners(sites: tuple[str | None, ...], pattern: re.Pattern[str]) -> Mask:
    return np.array([site is not None and pattern.search(site) is not None for site in sites], np.bool_)


def _runs_autograd(site: str | None) -> bool:
    """Whether a stack without Python is one of autograd's threads."""
    return site is not None and "torch::autograd" in site and _PYTHON.search(site) is None


def _any_within(owners: Owners, births: Int64) -> Mask:
    """Whether any of the sorted births lies within each block's life, after its own."""
    first = np.searchsorted(births, owners.begin, side="right")
    return np.searchsorted(births, owners.end, side="left") > first


def _precede(owners: Owners, forward: Int64, others: Int64) -> Mask:
    """Whether the next of the moments in each block's life is a `forward` one and the last before was not."""
    moments = np.concatenate([forward, others])
    order = np.argsort(moments, kind="stable")
    moments, is_forward = moments[order], np.append(order < len(forward), False)  # the last element: none
    after = np.searchsorted(moments, owners.begin, side="right")
    within = np.searchsorted(moments, owners.end, side="left") > after
    before = np.searchsorted(moments, owners.begin, side="left") - 1
    return np.asarray(within & is_forward[after] & ~is_forward[before], np.bool_)

# SPDX-License-Identifier: Apache-2.0
"""What blocks hold, by their call sites and lives: parameters, optimizer states, gradients, activations, ...

PyTorch's own split (torch.profiler's MemoryProfile) follows the data flow between operators, which a snapshot
does not record. Its categories follow here from the stack of a block's allocation and from what is allocated
while it lives. Memory that is older than the recording and has no stack remains unknown: there are the
parameters and optimizer states of a job whose recording began after its first step.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from cclbench.analyzers.view.allocator import OLDER, Owners
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
_BACKWARD: Final = re.compile(r"(?:^| < )\w*backward \S+\.py:")
_MODULE: Final = re.compile(r"(?:^| < )forward \S+\.py:| torch/nn/")
_PYTHON: Final = re.compile(r"\.py:\d")
_RECOMPUTED: Final = re.compile(r" torch/utils/checkpoint\.py")


def block_categories(owners: Owners) -> Int64:
    """Index into `CATEGORIES` of each block, shape (blocks,).

    - parameters: allocated by a module's creation, conversion or loading, and never freed
    - optimizer states: allocated by an optimizer and never freed
    - gradients: allocated by autograd, and live when it is done, when a forward or an optimizer allocates
    - autograd detail: allocated by autograd otherwise
    - activations: allocated by the program, and live when autograd allocates
    - inputs: allocated by a data loader, or by the program outside of modules before those of the step's
      forward, and live when they allocate; communication: by torch.distributed or a process group
    - workspace: what else is freed; unknown: what else is not, and what has no stack
    """
    sites = owners.call_sites
    autograd = _matching_owners(sites, _BACKWARD) | np.array(
        [_runs_autograd(site) for site in sites], np.bool_
    )
    recomputed = _matching_owners(sites, _RECOMPUTED)
    known = np.array([site is not None for site in sites], np.bool_)
    known[OLDER] = False
    owner, stays = owners.owner, owners.end == owners.moments
    in_backward = owners.begin[(autograd | recomputed)[owner]]
    communicates = _matching_owners(sites, _COMMUNICATION)  # hooks of autograd do, too
    elsewhere = owners.begin[(known & ~autograd & ~recomputed & ~communicates)[owner]]
    during_backward = _any_within(owners, np.sort(in_backward))
    after_backward = _any_within(owners, np.sort(elsewhere))
    of_model, of_optimizer = (_matching_owners(sites, pattern)[owner] for pattern in (_MODEL, _OPTIMIZER))
    forward = known & ~autograd & ~recomputed & ~communicates & _matching_owners(sites, _MODULE)
    in_forward = owners.begin[forward[owner] & ~of_model]
    outside = (known & ~autograd & ~recomputed & ~forward)[owner] & ~of_optimizer
    enters = outside & _precede(owners, in_forward, np.append(in_backward, owners.begin[of_optimizer]))
    rules = (
        (~known[owner], "unknown"),
        (communicates[owner], "communication"),
        (_matching_owners(sites, _INPUT)[owner] | enters, "inputs"),
        (of_optimizer & stays, "optimizer states"),
        (of_model & stays, "parameters"),
        (of_optimizer | of_model, "workspace"),
        (autograd[owner] & after_backward, "gradients"),
        (autograd[owner], "autograd detail"),
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
    """Whether the next of the moments in each block's life is a `forward` one, and the last before was not."""
    moments = np.concatenate([forward, others])
    order = np.argsort(moments, kind="stable")
    moments, is_forward = moments[order], np.append(order < len(forward), False)  # the last element: none
    after = np.searchsorted(moments, owners.begin, side="right")
    within = np.searchsorted(moments, owners.end, side="left") > after
    before = np.searchsorted(moments, owners.begin, side="left") - 1
    return np.asarray(within & is_forward[after] & ~is_forward[before], np.bool_)

# SPDX-License-Identifier: Apache-2.0
"""Recorded blocks with other sizes and lives, as other settings of the job would have them.

A checkpointed module keeps its input for the backward pass, and computes everything else again (Chen et al.
2016, "Training deep nets with sublinear memory cost"). Optimizer states that ranks share are those of ZeRO-1
(Rajbhandari et al. 2020). What another setting needs besides, such as buffers of collectives, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cclbench.analyzers.view.allocator import RECOMPUTED, Calls, Owners
from cclbench.analyzers.view.memory_categories import CATEGORIES, block_categories
from cclbench.ground.errors import InputError, UsageError, near
from cclbench.ground.intervals import Int64

_STATES, _GRADIENTS, _ACTIVATIONS, _WORKSPACE = (
    CATEGORIES.index(name) for name in ("optimizer states", "gradients", "activations", "workspace")
)
_SCALED: Final = tuple(
    CATEGORIES.index(name) for name in ("activations", "inputs", "autograd detail", "workspace")
)
_NO_BLOCK: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class MemoryAccount:
    """Blocks and their categories, which follow them when their lives change."""

    owners: Owners
    category: Int64
    """Index into `CATEGORIES`, shape (blocks,)."""

    @classmethod
    def from_owners(cls, owners: Owners) -> MemoryAccount:
        """The blocks as recorded."""
        return cls(owners, block_categories(owners))

    def by_category(self, moment: int) -> dict[str, int]:
        """Bytes of each category that holds any at a moment."""
        live = self.owners.live_at(moment)
        held = np.zeros(len(CATEGORIES), np.int64)
        np.add.at(held, self.category[live], self.owners.bytes[live])
        return {name: size for name, size in zip(CATEGORIES, held.tolist(), strict=True) if size}


def with_batch(account: MemoryAccount, old: int, new: int) -> tuple[MemoryAccount, float]:
    """Blocks of another batch size, and the share of the activations' bytes that grows with it.

    What grows: activations, inputs, and what autograd and the forward pass use meanwhile, if it is a multiple
    of the batch size.
    """
    owners = account.owners
    if not (account.category == _ACTIVATIONS).any():
        raise InputError("no activations are known", hint="record allocations with stacks or profile_memory")
    of_optimizer = np.zeros(len(owners.bytes), np.bool_)
    if owners.calls is not None:
        of_optimizer = owners.calls.has_phase("optimizer")
    grows = np.isin(account.category, _SCALED) & ~of_optimizer & (owners.bytes % old == 0)
    sizes = np.where(grows, owners.bytes // old * new, owners.bytes)
    activations = np.where(account.category == _ACTIVATIONS, owners.bytes, 0)
    share = float(activations[grows].sum() / activations.sum())
    return replace(account, owners=replace(owners, bytes=sizes)), share


def with_sharded_states(account: MemoryAccount, shards: int) -> MemoryAccount:
    """Optimizer states shared evenly by so many ranks."""
    states = account.category == _STATES
    if not states.any():
        raise InputError(
            "no optimizer states are known", hint="begin the recording before the optimizer's first step"
        )
    sizes = np.where(states, -(-account.owners.bytes // shards), account.owners.bytes)
    return replace(account, owners=replace(account.owners, bytes=sizes))


def with_checkpoints(account: MemoryAccount, module: str) -> tuple[MemoryAccount, int]:
    """Blocks as if each call of a module were checkpointed, and the number of such calls.

    `module` is the path of a module, or the class of several. Moments of the result count twice: recomputed
    blocks begin before the backward pass's first own one.
    """
    owners = account.owners
    if owners.calls is None or not owners.calls.modules:
        raise InputError(
            "the recording names no modules", hint="record a trace with profile_memory=True, with_stack=True"
        )
    instance = _instances(owners.calls, module)
    if (owners.calls.has_phase(RECOMPUTED) & (instance >= 0)).any():
        raise InputError(f"{module} is recomputed already: which of its activations are kept is unknown")
    calls = _module_calls(owners, instance)
    in_backward = np.where(owners.calls.has_phase("backward"), instance, _NO_BLOCK)
    begin, end = 2 * owners.begin, 2 * owners.end
    copies, copied_begin, copied_end, extra = [], [], [], []
    for call in calls:
        saved = call.saved[account.category[call.saved] == _ACTIVATIONS]
        saved = saved[saved != _output(owners, call)]
        again = _backward_begin(owners, call, in_backward, saved)
        if not len(saved) or again is None:
            continue
        copies.append(saved)
        copied_begin.append(np.full(len(saved), 2 * again - 1))
        copied_end.append(end[saved])
        extra.append((call.blocks[0], 2 * again - 1, _most_held(owners, call) - owners.bytes[saved].sum()))
        end[saved] = 2 * call.ends
    if not copies:
        raise InputError(f"no call of {module} keeps activations for a backward pass in the recording")
    used = [(block, at, size) for block, at, size in extra if size > 0]
    chosen = np.concatenate([np.arange(len(begin)), *copies, np.array([b for b, _, _ in used], np.int64)])
    moments = np.array([at for _, at, _ in used], np.int64)
    begin = np.concatenate([begin, *copied_begin, moments])
    end = np.concatenate([end, *copied_end, moments + 1])
    sizes = owners.bytes[chosen]
    category = account.category[chosen]
    if used:
        sizes[-len(used) :], category[-len(used) :] = [size for _, _, size in used], _WORKSPACE
    order = np.argsort(begin, kind="stable")
    chosen, begin, end = chosen[order], begin[order], end[order]
    new = replace(
        owners,
        moments=2 * owners.moments,
        owner=owners.owner[chosen],
        bytes=sizes[order],
        address=owners.address[chosen],
        begin=begin,
        end=end,
        released=end,
        calls=replace(owners.calls, module=owners.calls.module[chosen], phase=owners.calls.phase[chosen]),
    )
    return MemoryAccount(new, category[order]), len(copies)


@dataclass(frozen=True, slots=True, eq=False)
class _ModuleCall:
    """One call of a module's forward."""

    instance: int
    blocks: Int64
    """Those that it allocated."""
    ends: int
    """The moment after its last event, when the next call outside of it allocates."""
    next: int
    """When the module is called again; the end of the recording if it is not."""
    saved: Int64
    """The blocks that are live then."""


def _instances(calls: Calls, module: str) -> Int64:
    """Number of the instance of a module that allocated each block, −1 for none."""
    prefixes: dict[str, int] = {}
    instance = np.full(len(calls.modules) + 1, _NO_BLOCK)
    for place, path in enumerate(calls.modules):
        parts = path.split("/")
        for depth, part in enumerate(parts, 1):
            prefix = "/".join(parts[:depth])
            if module in (prefix, part.rpartition("_")[0]):
                instance[place] = prefixes.setdefault(prefix, len(prefixes))
                break
    if not prefixes:
        classes = {part.rpartition("_")[0] for path in calls.modules for part in path.split("/")}
        raise UsageError(
            f"no module {module!r} allocates memory", hint=near(module, classes, others=calls.modules)
        )
    return instance[calls.module]


def _module_calls(owners: Owners, instance: Int64) -> list[_ModuleCall]:
    """The calls: successive allocations of one instance in forward passes."""
    calls = owners.calls
    assert calls is not None  # noqa: S101 - checked by the caller
    forward = calls.has_phase("forward")
    counts = forward | calls.has_phase("loss") | calls.has_phase("backward") | calls.has_phase(RECOMPUTED)
    blocks = np.flatnonzero(counts)
    key = np.where(forward, instance, _NO_BLOCK)[blocks]
    first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    bounds = np.append(first, len(key))
    module_calls: list[_ModuleCall] = []
    following: dict[int, int] = {}
    for start, stop in reversed(list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))):
        if key[start] == _NO_BLOCK:
            continue
        call_blocks, number = blocks[start:stop], int(key[start])
        ends = (
            int(owners.begin[blocks[stop]]) if stop < len(blocks) else int(owners.begin[call_blocks[-1]]) + 1
        )
        saved = call_blocks[owners.end[call_blocks] > ends]
        module_calls.append(
            _ModuleCall(number, call_blocks, ends, following.get(number, owners.moments), saved)
        )
        following[number] = int(owners.begin[call_blocks[0]])
    return module_calls


def _output(owners: Owners, call: _ModuleCall) -> int:
    """The largest of the last blocks of one call site that stay."""
    if not len(call.saved):
        return _NO_BLOCK
    site = owners.owner[call.saved]
    other = np.flatnonzero(site != site[-1])
    last = call.saved[other[-1] + 1 if len(other) else 0 :]
    return int(last[len(last) - 1 - np.argmax(owners.bytes[last][::-1])])


def _backward_begin(owners: Owners, call: _ModuleCall, in_backward: Int64, saved: Int64) -> int | None:
    """The moment when the call's backward pass first allocates or frees; None without one.

    Where the module is called again before, as with several micro-batches, only what the call frees counts.
    """
    first, last = np.searchsorted(owners.begin, [call.ends, call.next])
    allocations = owners.begin[first:last][in_backward[first:last] == call.instance]
    begins = int(allocations.min(initial=owners.moments))
    again = min(begins, int(owners.end[saved].min(initial=owners.moments)))
    return None if again == owners.moments else again


def _most_held(owners: Owners, call: _ModuleCall) -> int:
    """Most bytes that the call's blocks but its output held until it ended."""
    blocks = call.blocks[call.blocks != _output(owners, call)]
    begin, end = owners.begin[blocks], np.minimum(owners.end[blocks], call.ends)
    changes = np.append(owners.bytes[blocks], -owners.bytes[blocks])
    order = np.argsort(np.append(begin, end), kind="stable")
    return int(np.cumsum(changes[order]).max(initial=0))

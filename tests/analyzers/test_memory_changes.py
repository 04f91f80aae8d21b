# SPDX-License-Identifier: Apache-2.0
"""Blocks with other sizes and lives, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cclbench.analyzers.view.allocator import RECOMPUTED, Calls, Owners
from cclbench.analyzers.view.memory_changes import (
    MemoryAccount,
    with_batch,
    with_checkpoints,
    with_sharded_states,
)
from cclbench.ground.errors import InputError, UsageError

MODULES = ("Net_0/Block_0", "Net_0/Block_1", "Net_0/Head_0")
PHASES = ("forward", "backward", "optimizer", RECOMPUTED)

# begin, end, bytes, module, phase.  The first block allocates 100 B that it saves, 50 B that it frees at
# once, and its output; the second one 200 B and its output.  Their backward passes begin at 8 and 11.
ROWS = [
    *((1, 13, 100, 0, 0), (2, 3, 50, 0, 0), (4, 12, 10, 0, 0), (5, 10, 200, 1, 0), (6, 9, 20, 1, 0)),
    *((7, 14, 1, 2, 1), (8, 14, 5, 1, 1), (11, 14, 7, 0, 1)),
]


def account(rows: list[tuple[int, ...]] = ROWS, moments: int = 14) -> MemoryAccount:
    begin, end, size, module, phase = np.array(rows, np.int64).T
    sites, number = (None, *(f"line {n}" for n in range(len(rows)))), np.arange(len(rows))
    calls = Calls(MODULES, module, PHASES, phase)
    owners = Owners(sites, moments, number + 1, size, number, begin, end, released=end, calls=calls)
    return MemoryAccount.of_blocks(owners)


def test_a_checkpointed_module_frees_what_it_saves_and_allocates_it_again() -> None:
    recorded = account()
    assert recorded.owners.allocated().max() == 100 + 10 + 200 + 20 + 1 + 5
    new, calls = with_checkpoints(recorded, "Block")
    held = new.owners.allocated()
    assert calls == 2
    expected = {
        2 * 4: 100 + 10,
        2 * 5: 10 + 200,
        2 * 7: 10 + 20 + 1,
        2 * 8 - 1: 10 + 20 + 1 + 200,
        2 * 8: 10 + 20 + 1 + 200 + 5,
        # The first block held 150 B when it ran, and holds them when it runs again.
        2 * 11 - 1: 10 + 1 + 5 + 150,
        2 * 11: 10 + 1 + 5 + 100 + 7,
        len(held) - 1: 1 + 5 + 7,
    }
    assert {moment: held[moment] for moment in expected} == expected
    assert held.max() == held[2 * 8]
    assert new.by_category(2 * 11 - 1)["workspace"] == 50
    # One module by its path.
    new, calls = with_checkpoints(recorded, "Net_0/Block_1")
    assert (calls, new.owners.allocated()[2 * 7]) == (1, 100 + 10 + 20 + 1)


def test_calls_before_a_common_backward_pass_are_apart() -> None:
    """Two micro-batches: the second call is first in the backward pass, and frees its own block."""
    rows = [(1, 9, 100, 0, 0), (2, 9, 1, 0, 0), (3, 8, 5, 2, 0)]
    rows += [(4, 7, 100, 0, 0), (5, 7, 1, 0, 0), (6, 10, 3, 2, 1)]
    new, calls = with_checkpoints(account(rows, 10), "Block")
    held = new.owners.allocated()
    assert (calls, held[2 * 6], held[2 * 9 - 1]) == (2, 1 + 5 + 1 + 3, 1 + 3 + 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modules": ()}, "names no modules"),
        ({"phase": np.array([0, 0, 0, 0, 0, 1, 1, 3])}, "recomputed already"),
        ({"phase": np.zeros(8, np.int64)}, "no call of Block keeps activations"),
    ],
)
def test_what_cannot_be_checkpointed(change: dict[str, object], message: str) -> None:
    recorded = account()
    assert recorded.owners.calls is not None
    owners = replace(recorded.owners, calls=replace(recorded.owners.calls, **change))
    with pytest.raises(InputError, match=message):
        with_checkpoints(MemoryAccount.of_blocks(owners), "Block")


def test_modules_are_named_by_class_or_path() -> None:
    with pytest.raises(UsageError, match="no module 'Blok'"):
        with_checkpoints(account(), "Blok")
    with pytest.raises(InputError, match="names no modules"):
        with_checkpoints(replace(account(), owners=replace(account().owners, calls=None)), "Block")


def test_a_batch_scales_what_the_passes_use_but_gradients_and_odd_sizes() -> None:
    rows = [(*row, 2, 2) for row in [(9, 11, 50)]]
    recorded = account([*ROWS[:7], rows[0], (11, 14, 70, 0, 1), (12, 14, 8, 2, 0)])
    new, share = with_batch(recorded, 10, 20)
    assert new.owners.bytes.tolist() == [200, 100, 20, 400, 40, 1, 5, 50, 70, 8]
    assert share == 1.0
    assert with_batch(recorded, 200, 201)[1] == 200 / 330
    assert with_batch(recorded, 10, 5)[0].owners.bytes.tolist()[:5] == [50, 25, 5, 100, 10]
    with pytest.raises(InputError, match="no activations"):
        with_batch(account([(1, 2, 5, 0, 0)]), 1, 2)


def test_states_are_shared() -> None:
    recorded = account([*ROWS, (12, 14, 8, 2, 2), (13, 14, 7, 2, 2)])
    new = with_sharded_states(recorded, 2)
    assert new.owners.bytes.tolist()[-2:] == [4, 4]
    assert new.by_category(13)["optimizer states"] == 8
    with pytest.raises(InputError, match="no optimizer states"):
        with_sharded_states(account(), 2)

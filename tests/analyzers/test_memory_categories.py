# SPDX-License-Identifier: Apache-2.0
"""What blocks hold, by hand: a job of one step, and another whose recording began late."""

from __future__ import annotations

from typing import Any

from analyzers.test_snapshots import block, event, histories

from cclbench.analyzers.view.memory_categories import bytes_by_category

AUTOGRAD = "at::mm < torch::autograd::generated::MmBackward0_apply_functional"
FORWARD = "forward torch/nn/modules/linear.py:134 < train train.py:9"
STEP = "step torch/optim/adam.py:9 < train train.py:11"
EVENTS = [
    ("alloc", 1, 1, "convert torch/nn/modules/module.py:1370 < main train.py:3"),
    ("alloc", 2, 10, "__next__ torch/utils/data/dataloader.py:5 < train train.py:8"),
    ("alloc", 3, 100, FORWARD),
    ("alloc", 4, 1_000, FORWARD),
    ("free_requested", 4, 1_000, None),
    ("alloc", 5, 10_000, AUTOGRAD),  # lives until the optimizer
    ("alloc", 6, 100_000, AUTOGRAD),
    ("alloc", 7, 1_000_000, "all_reduce torch/distributed/distributed_c10d.py:9 < hook train.py:10"),
    ("free_requested", 6, 100_000, None),
    ("free_requested", 3, 100, None),
    ("alloc", 8, 10_000_000, STEP),
    ("alloc", 9, 100_000_000, STEP),
    ("free_requested", 9, 100_000_000, None),
    ("free_requested", 5, 10_000, None),
]


def held(events: list[Any], left: list[tuple[int, int]], moment: int) -> dict[str, int]:
    """Bytes by category at a moment, of events of action, address, bytes and call site, and blocks left."""
    made = [event(action, at, size, call_site=site) for action, at, size, site in events]
    (history,) = histories(made, [block(at, size) for at, size in left])
    return bytes_by_category(history.owners, moment)


def test_each_category_by_its_call_site_and_life() -> None:
    left = [(1, 1), (2, 10), (7, 1_000_000), (8, 10_000_000), (99, 7)]
    always = {"parameters": 1, "inputs": 10, "unknown": 7}
    later = {"gradients": 10_000, "communication": 1_000_000}
    assert held(EVENTS, left, 4) == always | {"activations": 100, "workspace": 1_000}
    passing = {"activations": 100, "autograd detail": 100_000}
    assert held(EVENTS, left, 8) == always | later | passing
    optimizer = {"optimizer states": 10_000_000, "workspace": 100_000_000}
    assert held(EVENTS, left, 12) == always | later | optimizer


def test_a_backward_in_python_is_autograds() -> None:
    flash = "backward flash.py:3 < apply torch/autograd/function.py:307"
    found = held([("alloc", 1, 5, FORWARD), ("alloc", 2, 7, flash)], [(1, 5), (2, 7)], 2)
    assert found == {"activations": 5, "autograd detail": 7}
    # Without modules nothing is an input.
    product = "at::mm < train train.py:7"
    found = held([("alloc", 1, 1, product), ("alloc", 2, 2, AUTOGRAD)], [(1, 1), (2, 2)], 2)
    assert found == {"activations": 1, "autograd detail": 2}


def test_inputs_are_what_precedes_the_modules() -> None:
    """A batch is an input, also the second one of two; a loss follows modules, nothing the last."""
    batch, loss = "at::empty_strided < train train.py:7", "at::mean < train train.py:10"
    sites = [batch, FORWARD, loss, AUTOGRAD, batch, FORWARD, AUTOGRAD, batch, AUTOGRAD]
    events = [("alloc", n, 10 ** (n - 1), site) for n, site in enumerate(sites, start=1)]
    events.insert(4, ("free_requested", 1, 1, None))
    left = [(n, 10 ** (n - 1)) for n in range(2, 10)]
    assert held(events, left, 2) == {"activations": 10, "inputs": 1}
    assert held(events, left, 10) == {
        "gradients": 1_001_000, "activations": 10_100_110, "inputs": 10_000, "autograd detail": 100_000_000
    }  # fmt: skip

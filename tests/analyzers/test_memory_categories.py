# SPDX-License-Identifier: Apache-2.0
"""What blocks hold, by hand: a job of one step, and another whose recording began late."""

from __future__ import annotations

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


def test_each_category_by_its_call_site_and_life() -> None:
    events = [event(action, at, size, call_site=site) for action, at, size, site in EVENTS]
    left = [block(at, size) for at, size in ((1, 1), (2, 10), (7, 1_000_000), (8, 10_000_000), (99, 7))]
    (history,) = histories(events, left)
    assert bytes_by_category(history.owners, 4) == {
        "parameters": 1,
        "activations": 100,
        "inputs": 10,
        "workspace": 1_000,
        "unknown": 7,
    }
    assert bytes_by_category(history.owners, 8) == {
        "parameters": 1,
        "gradients": 10_000,
        "activations": 100,
        "autograd detail": 100_000,
        "inputs": 10,
        "communication": 1_000_000,
        "unknown": 7,
    }
    assert bytes_by_category(history.owners, 12) == {
        "parameters": 1,
        "optimizer states": 10_000_000,
        "gradients": 10_000,
        "inputs": 10,
        "communication": 1_000_000,
        "workspace": 100_000_000,
        "unknown": 7,
    }


def test_a_backward_in_python_is_autograds() -> None:
    events = [
        event("alloc", 1, 5, call_site=FORWARD),
        event("alloc", 2, 7, call_site="backward flash.py:3 < apply torch/autograd/function.py:307"),
    ]
    (history,) = histories(events, [block(1, 5), block(2, 7)])
    assert bytes_by_category(history.owners, 2) == {"activations": 5, "autograd detail": 7}


def test_inputs_are_what_precedes_the_modules() -> None:
    """A batch is an input, also the second one of two; a loss follows modules, nothing the last."""
    batch = "at::empty_strided < train train.py:7"
    loss = "at::mean < train train.py:10"
    events = [
        event("alloc", 1, 1, call_site=batch),
        event("alloc", 2, 10, call_site=FORWARD),
        event("alloc", 3, 100, call_site=loss),
        event("alloc", 4, 1_000, call_site=AUTOGRAD),
        event("free_requested", 1, 1),
        event("alloc", 5, 10_000, call_site=batch),
        event("alloc", 6, 100_000, call_site=FORWARD),
        event("alloc", 7, 1_000_000, call_site=AUTOGRAD),
        event("alloc", 8, 10_000_000, call_site=batch),
        event("alloc", 9, 100_000_000, call_site=AUTOGRAD),
    ]
    left = [block(n, 10 ** (n - 1)) for n in range(2, 10)]
    (history,) = histories(events, left)
    assert bytes_by_category(history.owners, 2) == {"activations": 10, "inputs": 1}
    assert bytes_by_category(history.owners, 10) == {
        "gradients": 1_001_000,
        "activations": 10_100_110,
        "inputs": 10_000,
        "autograd detail": 100_000_000,
    }


def test_without_modules_nothing_is_an_input() -> None:
    events = [
        event("alloc", 1, 1, call_site="at::mm < train train.py:7"),
        event("alloc", 2, 2, call_site=AUTOGRAD),
    ]
    (history,) = histories(events, [block(1, 1), block(2, 2)])
    assert bytes_by_category(history.owners, 2) == {"activations": 1, "autograd detail": 2}

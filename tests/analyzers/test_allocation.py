# SPDX-License-Identifier: Apache-2.0
"""Memory metrics of snapshots and traces, and peaks under other settings, on paper."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from analyzers.test_traced_blocks import history, memory, operator
from formats.test_memory_snapshot import block, event, segment, snapshot
from helpers.hand_made import a_rank, compute, window
from helpers.hand_made import event as row
from helpers.hand_values import main, reason, run_parts, values

import cclbench
from cclbench.analyzers import stand_ins
from cclbench.analyzers.view.allocator import RECOMPUTED, Calls, Owners, Site
from cclbench.analyzers.view.histories import run_histories
from cclbench.analyzers.view.memory_changes import (
    MemoryAccount,
    with_batch,
    with_checkpoints,
    with_sharded_states,
)
from cclbench.analyzers.view.memory_scenarios import predict_memory
from cclbench.ground.errors import InputError, UsageError
from cclbench.record.run import Run


def measured(tmp_path: Path, **snapshots: Any) -> Run:
    """The memory metrics of a folder with those snapshots."""
    folder = tmp_path / "job"
    folder.mkdir(parents=True)
    for name, told in snapshots.items():
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(told))
    return cclbench.run(folder, store=tmp_path / "store", metrics=["memory.*"])


def figures(run: Run) -> dict[tuple[str, Any, Any, Any], Any]:
    """What the run tells by (metric without its topic, rank, category, stat)."""
    return {
        (one["metric"].partition(".")[2], one["rank"], one["category"], one["stat"]): one["value"]
        for one in run.rows
        if one["value"] is not None
    }


def peaks(run: Run) -> dict[Any, Any]:
    """The peak of each rank and device."""
    return {about[1:3]: value for about, value in figures(run).items() if about[0] == "peak_allocated"}


LOST = [event("alloc", 4096, 512), event("segment_alloc", 4096, 600)]
"""Of a snapshot that does not tell what was reserved."""


def test_a_snapshot_by_hand(tmp_path: Path) -> None:
    run = measured(tmp_path, a=snapshot())
    assert figures(run) == {
        ("peak_allocated", None, None, None): 650,
        ("peak_reserved", None, None, None): 8192,
        # Of blocks in use then that were freed since, up to 1 MiB may never have been split off.
        ("reserved_unused", None, None, None): 0,
        ("reserved_unused", None, None, "end"): 1000 + 4192,
        ("fragmentation", None, None, "end"): 1 - 4192 / (1000 + 4192),
        ("out_of_memory", None, None, None): 0,
    }
    assert {one["source"] for one in run.rows if one["value"] is not None} == {"memory_snapshot"}
    (history,) = run_histories(run)
    assert history.allocated.tolist() == [150, 450, 450, 650, 600, 600, 400, 400]
    assert history.reserved.tolist() == [4000, 4000, 8192, 8192, 8192, 8192, 8192, 8192]
    assert history.time_ns.tolist() == [1000, 1000, 2000, 2000, 3000, 3000, 4000, 4000]
    assert (history.peak_moment, history.contradictions, history.qualifier_words) == (3, 0, None)


def test_all_of_the_peak_is_a_call_sites_or_older_than_the_recording(tmp_path: Path) -> None:
    (history,) = run_histories(measured(tmp_path, a=snapshot()))
    older, sites = history.owners.owners_at(history.peak_moment)
    assert older == Site(None, 150, 2)
    assert [site for _, site in sites] == [
        Site("forward model.py:7", 300, 1),
        Site("step torch/optim/adam.py:9 < forward model.py:7", 200, 1),
    ]
    by_owner = [history.owners.allocated([owner]) for owner in range(3)]
    assert sum(by_owner).tolist() == history.allocated.tolist()
    assert by_owner[0].tolist() == [150, 150, 150, 150, 100, 100, 100, 100]


def test_ranks_and_devices_have_rows_and_the_run_the_worst(tmp_path: Path) -> None:
    more = snapshot(
        [segment(block(4096, 900)), segment(block(1 << 20, 500), address=1 << 20, device=1)],
        *([event("alloc", 4096, 900)], [event("alloc", 1 << 20, 500)]),
    )
    run = measured(tmp_path / "ranks", rank0=snapshot(), rank1=more)
    assert peaks(run) == {
        (None, None): 900, (0, "device 0"): 650, (1, "device 0"): 900, (1, "device 1"): 500
    }  # fmt: skip
    # Files of unknown ranks are told apart by name.
    names = {category for _, category in peaks(measured(tmp_path, a=snapshot(), b=snapshot(extra=1)))}
    assert names == {None, "a.pickle, device 0", "b.pickle, device 0"}


def at_the_end(reserved_unused: int, fragmentation: float) -> dict[Any, Any]:
    names = {"reserved_unused": reserved_unused, "fragmentation": fragmentation}
    return {(name, None, None, "end"): value for name, value in names.items()}


def test_without_a_history_only_the_end_is_known(tmp_path: Path) -> None:
    run = measured(tmp_path, a=snapshot([segment(block(4096, 512), block(4608, 512, "inactive"))], []))
    assert figures(run) == at_the_end(512, 0)
    (history,) = run_histories(run)
    assert (history.recorded, history.allocated.tolist()) == (False, [512])
    no_share, share = (one for one in run.rows if one["metric"] == "memory.fragmentation")
    assert (no_share["stat"], no_share["value"]) == (None, None)
    assert no_share["reason"] == "the run has no memory snapshot with a history"
    assert (share["provenance"], share["source"]) == ("derived", "memory_snapshot")


def test_of_several_snapshots_the_one_with_most_inactive_memory_is_the_end(tmp_path: Path) -> None:
    """Each has 512 B free before a block and `unused` after it."""
    before = (block(4096, 512, "inactive"), block(4608, 512))
    free = {
        name: snapshot([segment(*before, block(5120, unused, "inactive"))], [])
        for name, unused in (("a", 512), ("b", 1536), ("c", 1024))
    }
    assert figures(measured(tmp_path, **free)) == at_the_end(2048, 0.5)


def test_what_no_snapshot_tells_of_reserved_memory_says_so_and_is_partial_beside_one(tmp_path: Path) -> None:
    silent = snapshot([segment(block(4096, 512))], LOST)
    run = measured(tmp_path / "alone", a=silent)
    (own,) = (one for one in run.rows if one["metric"] == "memory.fragmentation")
    why = "the snapshots do not state reserved memory, or none of it is free"
    assert (own["value"], own["reason"]) == (None, why)
    run = measured(tmp_path, a=silent, b=snapshot())
    (row,) = [one for one in run.rows if one["metric"] == "memory.peak_reserved"]
    assert (row["value"], row["category"], row["status"], row["coverage"]) == (8192, None, "partial", 0.5)
    assert row["provenance"] == "derived"


def test_a_device_without_events_beside_one_with_some_did_not_change(tmp_path: Path) -> None:
    blocks = segment(block(4096, 900)), segment(block(1 << 20, 5000), address=1 << 20, device=1)
    run = measured(tmp_path / "devices", a=snapshot([*blocks], [event("alloc", 4096, 900)], []))
    assert peaks(run) == {(None, None): 5000, (None, "device 0"): 900, (None, "device 1"): 5000}
    assert [history.has_changes for history in run_histories(run)] == [True, False]
    # A snapshot without a history beside another leaves the peak partial.
    run = measured(tmp_path, a=snapshot(), b=snapshot([segment(block(4096, 9000))], []))
    (peak,) = (row for row in run.rows if row["metric"] == "memory.peak_allocated" and row["value"])
    assert (peak["value"], peak["status"], peak["coverage"]) == (650, "partial", 0.5)


def test_a_metric_has_one_answer_from_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "FROM_EVIDENCE", {})
    stand_ins.from_evidence("memory.peak_allocated")(lambda _: [])
    with pytest.raises(UsageError, match=r"'memory\.peak_allocated' has two functions from evidence"):
        stand_ins.from_evidence("memory.peak_allocated")(lambda _: [])


def allocator(at: int, held: int, reserved: int | None = None, device: int | None = 0) -> dict[str, Any]:
    return row("other", at, at, name="[memory]", bytes=held, reserved=reserved, device=device)


def test_reserved_and_unused_memory_of_a_trace() -> None:
    rows = [allocator(5, 700, 2000), allocator(6, 900, 1000), allocator(7, 800, 4000)]
    rows += [allocator(200, 1, 9000)]
    rank = a_rank(rows, [window(0, 100)])
    assert main(rank, "memory.peak_reserved") == 4000
    assert main(rank, "memory.reserved_unused") == 1000 - 900
    silent = a_rank([allocator(5, 700)], [window(0, 100)])
    for name in ("memory.peak_reserved", "memory.reserved_unused"):
        assert "does not state reserved memory" in reason(silent, name)
        assert "no allocator events" in reason(a_rank([compute(0, 1)], [window(0, 9)]), name)


def test_of_several_devices_or_ranks_the_worst_counts() -> None:
    rows = [allocator(5, 700, 1000, device=0), allocator(6, 300, 900, device=1)]
    rows += [allocator(7, 500, 4000, device=1), allocator(8, 99_999, 99_999, device=None)]
    rank = a_rank(rows, [window(0, 100)])
    worst = {"peak_allocated": 700, "peak_reserved": 4000, "reserved_unused": 4000 - 500}
    assert {name: main(rank, f"memory.{name}") for name in worst} == worst
    silent = a_rank([*rows[:1], allocator(6, 900, device=1)], [window(0, 100)])
    assert main(silent, "memory.peak_allocated") == 900
    assert main(silent, "memory.peak_reserved") == 1000
    assert values(silent, "memory.reserved_unused")[0].provenance == "derived"
    ranks = [a_rank([allocator(5, n, 1000)], [window(0, 100)], rank=n) for n in (700, 900)]
    assert run_parts("memory.peak_allocated", *ranks)[None] == 900
    assert run_parts("memory.reserved_unused", *ranks)[None] == 1000 - 700


@pytest.mark.parametrize("metric", ["peak_allocated", "peak_reserved", "reserved_unused", "growth"])
def test_a_trace_of_the_host_alone_tells_of_no_allocator(metric: str) -> None:
    rank = a_rank([allocator(5, 700, 1000)], [window(0, 100, 1, "annotation")], works_on=None)
    assert reason(rank, f"memory.{metric}") == "the trace has only host events, none of the accelerator"


def marks(*steps: int, still_open: int | None = None) -> list[dict[str, Any]]:
    """Annotated steps of 10 ns each."""
    return [window(10 * n, 10 * n + 10, n, "annotation", still_open=n == still_open) for n in steps]


def test_growth_adds_up_over_the_ranks_devices_and_leaves_the_hosts_memory_out() -> None:
    """Three steps of 10 ns: each device holds at a step's end what its last event before told."""
    told = [(1, 100, 0), (2, 1000, 1), (3, 5, None), (12, 130, 0), (25, 1500, 1), (26, 99_999, None)]
    rows = [allocator(at, held, device=device) for at, held, device in (*told, (30, 77_777, 0))]
    first = values(a_rank(rows, marks(0, 1, 2)), "memory.growth")[0]
    assert (first.value, first.provenance) == ((30 + 500) / 2, "derived")
    on_host = a_rank([*rows, row("op", 0, 30, name="aten::mm")], marks(0, 1, 2), works_on="host")
    assert main(on_host, "memory.growth") == (99_999 - 5) / 2
    hosts = a_rank([rows[2], rows[5]], marks(0, 1, 2))
    assert reason(hosts, "memory.growth") == "the trace has no allocator events of the device"
    assert main(a_rank(rows, marks(0, 1)), "memory.growth") == 30


def test_growth_is_what_stays_from_step_to_step() -> None:
    held = ((1, 100), (9, 50), (15, 900), (19, 70), (28, 110), (31, 5000))
    rows = [allocator(*one) for one in held]
    assert main(a_rank(rows, marks(0, 1, 2, 3, still_open=3)), "memory.growth") == (110 - 50) / 2
    # An event at a step's end is the next step's.
    edges = [allocator(9, 100), allocator(10, 500), allocator(19, 600), allocator(20, 900)]
    assert main(a_rank(edges, marks(0, 1)), "memory.growth") == 600 - 100
    for own, steps, why in (
        (rows, marks(0), "the trace has fewer than two complete steps"),
        (rows, [window(0, 40, source="whole_trace")], "no complete steps"),
        (rows[2:], marks(0, 1, 2), "before the first step's end"),
        (edges[1:], marks(0, 1), "before the first step's end"),
        ([compute(0, 1)], marks(0, 1, 2), "no allocator events"),
    ):
        assert why in reason(a_rank(own, steps), "memory.growth")


MODULES = ("Net_0/Block_0", "Net_0/Block_1", "Net_0/Head_0")
PHASES = ("forward", "backward", "optimizer", RECOMPUTED)

# begin, end, bytes, module, phase.  The first block allocates 100 B that it saves, 50 B that it frees at
# once, and its output; the second one 200 B and its output.  Their backward passes begin at 8 and 11.
ROWS = [(1, 13, 100, 0, 0), (2, 3, 50, 0, 0), (4, 12, 10, 0, 0), (5, 10, 200, 1, 0), (6, 9, 20, 1, 0)]
ROWS += [(7, 14, 1, 2, 1), (8, 14, 5, 1, 1), (11, 14, 7, 0, 1)]


def account(rows: list[tuple[int, ...]] = ROWS, moments: int = 14) -> MemoryAccount:
    begin, end, size, module, phase = np.array(rows, np.int64).T
    sites, number = (None, *(f"line {n}" for n in range(len(rows)))), np.arange(len(rows))
    calls = Calls(MODULES, module, PHASES, phase)
    owners = Owners(sites, moments, number + 1, size, number, begin, end, released=end, calls=calls)
    return MemoryAccount.from_owners(owners)


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
        with_checkpoints(MemoryAccount.from_owners(owners), "Block")


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


# An activation of 80 B, 16 B of autograd, and 3 B that no batch of 8 divides.
EVENTS = [memory(10, 80, 80, 1), memory(20, 83, 3, 2), memory(30, 99, 16, 3), memory(40, 19, -80, 1)]
FORWARD = {"module": "Net_0", "phase": "forward"}


def a_run(shapes: str | None = None, name: str = "aten::embedding", micro: int | None = None) -> Any:
    operators = [
        operator(25, 35, "aten::mm", "backward", module="Net_0", shapes="[[5, 5]]"),
        operator(8, 22, name, **FORWARD, shapes=shapes),
        operator(1, 2, "aten::randint", "forward", shapes="[[77]]"),
    ]
    batch = SimpleNamespace(workload=SimpleNamespace(batch=SimpleNamespace(micro=micro)))
    tables, told = a_rank(operators=operators).tables, history(EVENTS, operators)
    return SimpleNamespace(card=batch if micro else None, ranks=(0,), rank=lambda _: tables, told=told)


@pytest.mark.parametrize(
    ("run", "source"),
    [
        (a_run("[[1000, 4], [8, 24]]"), "by the sizes of aten::embedding"),
        (a_run("[[8, 3, 32, 32], [3]]", "aten::conv2d"), "by the sizes of aten::conv2d"),
        (a_run("[[5, 5]]", "aten::mm", micro=8), "by the card"),
    ],
)
def test_the_batch_is_the_cards_or_that_of_the_first_call_of_a_module(run: Any, source: str) -> None:
    prediction = predict_memory(run, run.told, ["batch=16"])
    assert (prediction.recorded, prediction.peak) == (99, 2 * 80 + 3 + 2 * 16)
    assert prediction.by_category["activations"] == 163
    assert source in prediction.assumed[0]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        *(
            (a_run(shapes), "the batch size is unknown")
            for shapes in (None, "[[1000, 4]]", "[]", "[3, 4]", '[[], ["a"]]', "[[1], [[2, 3]]]")
        ),
        # A batch that does not divide the activations, and a recording without owners.
        (a_run("[[7, 2]]", "aten::mm"), "only 0"),
        (SimpleNamespace(told=replace(a_run().told, owners=None)), "have no owners"),
    ],
)
def test_what_cannot_be_predicted_is_refused(run: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        predict_memory(run, run.told, ["batch=16"])

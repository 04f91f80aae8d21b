# SPDX-License-Identifier: Apache-2.0
"""What the card and the catalog say of the work and the machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.hand_made import a_rank, an_accelerator, card, collective, collectives_table

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view import platform
from cclbench.record.facts import ProcessGroup


def why(ask: Any, *told: Any, **more: Any) -> str:
    with pytest.raises(NotApplicable) as reason:
        ask(*told, **more)
    return str(reason.value)


def test_a_field_of_the_card_or_the_field_that_is_lacking() -> None:
    rank = a_rank(card=card(workload__model__hidden=None))
    assert platform.card_field(rank, "workload.model.layers") == 1
    assert platform.card_field(rank, "workload.batch.global") == 4
    assert why(platform.card_field, rank, "workload.model.hidden") == (
        "the workload card lacks workload.model.hidden"
    )
    assert why(platform.card_field, rank, "workload.model.hidden", use="for this") == (
        "the workload card lacks workload.model.hidden, for this"
    )
    assert why(platform.card_field, a_rank(), "workload.phase") == "needs a workload card with workload.phase"


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An accelerator of 1e12 FLOP/s in bf16 and 1e11 B/s."""
    return an_accelerator(monkeypatch, peak_flops_per_s={"bf16": 1e12}, hbm_bytes_per_s=1e11)


def test_the_peak_is_of_the_cards_precision_and_memory_as_the_trace_states(chip: SimpleNamespace) -> None:
    assert platform.run_accelerator(a_rank(card=card())) is chip
    assert platform.peak_flops_per_s(a_rank(card=card())) == 1e12
    other = a_rank(card=card(workload__precision="fp8"))
    assert why(platform.peak_flops_per_s, other) == "the catalog has no dense fp8 peak of chip"
    on_cpu = a_rank(card=card(), works_on="host")
    assert why(platform.peak_flops_per_s, on_cpu) == ("the CPU is the device: the catalog has no peak for it")
    assert why(platform.run_accelerator, a_rank()) == (
        "neither the card (hardware.accelerator) nor the trace names the accelerator"
    )
    # Memory is as fast as the trace states else as the catalog.
    assert platform.hbm_bytes_per_s(a_rank(card=card(), hbm_bytes_per_s=5e10)) == 5e10
    assert platform.hbm_bytes_per_s(a_rank(card=card())) == 1e11
    chip.hbm_bytes_per_s = None
    assert why(platform.hbm_bytes_per_s, a_rank(card=card())) == "the catalog has no memory bandwidth of chip"


GENERATES = "a step of generating {} is a prefill or a decode, and the card does not state which"


@pytest.mark.parametrize(
    ("phase", "batch", "samples", "tokens"),
    [
        ("training", {"global": 4, "sequence_length": 10}, 4, 10),
        ("inference", {"global": 3, "sequence_length": 10}, 3, 10),
        ("inference", {"global": 3, "input_length": 7, "sequence_length": 10}, 3, 7),
        ("inference", {"global": 3, "input_length": 7, "output_length": 1}, 3, 7),
        ("inference", {"global": 3, "input_length": 7, "output_length": 2}, GENERATES.format("inference"), 7),
        ("serving", {"global": 3, "sequence_length": 10}, GENERATES.format("serving"), 10),
        ("training", {"sequence_length": 10}, "the workload card lacks workload.batch.global", 10),
        ("training", {"global": 4}, 4, "the workload card lacks workload.batch.sequence_length"),
    ],
)
def test_work_of_a_step(phase: str, batch: dict[str, int], samples: int | str, tokens: int | str) -> None:
    rank = a_rank(card=card(workload__phase=phase, workload__batch=batch))
    for ask, expected in ((platform.samples_per_step, samples), (platform.tokens_per_sample, tokens)):
        assert (why(ask, rank) if isinstance(expected, str) else ask(rank)) == expected


SQUARES = (1, 4, 9, 16, 25, 36, 49, 60, 63)


def devices(*rows: dict[str, Any]) -> list[Any]:
    """What meets in each collective: a rank's device has ten times its number, and from rank 64 on none."""
    rank = a_rank(
        groups=(ProcessGroup("a", ranks=(0, 5, 6)), ProcessGroup("b", ranks=SQUARES), ProcessGroup("c"))
    )
    rank.machine = SimpleNamespace(
        numbered_in=lambda system, ranks: [system * one for one in ranks] if max(ranks) < 64 else None
    )
    found, row = platform.devices_of(rank, collectives_table(*rows), 10)
    assert len(row) == len(rows)
    known = [tuple(one) for one in found if isinstance(one, list)]
    assert len(set(known)) == len(known)
    return [found[n] for n in row.tolist()]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        *((["0-3"], [0, 10, 20, 30]), (["2-6:2", "2-7:2"], [20, 40, 60]), (["3"], [30]), (["1,5"], [10, 50])),
        (["0,5,6"], [0, 50, 60]),
        (["n9:0123abcd", None, "tensor", "0-3x", "1,5x"], "of unknown ranks"),
        (["62-64"], "of unknown nodes"),
        # A listed group is known though its id abbreviates it.
        ([platform.group_id(SQUARES)], [10 * one for one in SQUARES]),
    ],
)
def test_the_devices_of_a_group(groups: list[str | None], expected: Any) -> None:
    for group in groups:
        assert devices(collective("all_reduce", 0, 1, group=group)) == [expected]
    assert platform.group_id(SQUARES).startswith("n9:")


def test_a_transfer_is_between_two_devices_whatever_its_group() -> None:
    told: list[tuple[str, dict[str, Any], Any]] = [
        ("send", {"group": "0-3", "src_rank": 1, "dst_rank": 0}, [10, 0]),
        ("all_reduce", {"group": "0-3"}, [0, 10, 20, 30]),
        ("send", {"src_rank": 0, "dst_rank": 1}, [0, 10]),
        ("send", {"group": "0-3", "src_rank": 0, "dst_rank": 1}, [0, 10]),
        ("send", {"group": "2-3", "src_rank": 1, "dst_rank": 0}, [10, 0]),
        *(
            ("send", {"group": "2-3", "src_rank": 1}, [20, 30]),
            ("recv", {"group": "2-3", "dst_rank": 0}, [20, 30]),
        ),
        ("send", {"src_rank": 70, "dst_rank": 0}, "of unknown nodes"),
    ]
    rows = [collective(kind, 0, 1, **columns) for kind, columns, _ in told]
    assert devices(*rows) == [expected for *_, expected in told]

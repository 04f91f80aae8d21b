# SPDX-License-Identifier: Apache-2.0
"""How kernels use the device, and their frequent sequences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from helpers.hand_made import a_rank, card, collective, comm, event, window
from helpers.hand_values import main, reason, rows_of, values
from helpers.typed import figures
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.metric import Coverage, NotApplicable, resolve_metrics
from cclbench.analyzers.rows import select_alias_rows
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.sequences import SUMS, merge_sequences, rank_sequences
from cclbench.ground.schema import group_id
from cclbench.hardware.catalog import system
from cclbench.hardware.rates import Rate, rate_of
from cclbench.record.facts import ProcessGroup
from cclbench.record.rows import builtins

METRIC = "comm.bandwidth_utilization"
NODE = {"group": "0-7", "group_size": 8}
TWO_NODES = {"group": "0-15", "group_size": 16}


def a_talk(*calls: dict[str, Any], **options: Any) -> RankView:
    """A rank whose collectives are these, on a machine of the card, aws-p4de unless it says otherwise."""
    options = {"card": card(hardware__system="aws-p4de"), **options}
    return a_rank([comm(c["start_ns"], c["end_ns"]) for c in calls], [window(0, 10_000)], calls, **options)


def reduce(size: int, ns: int, start: int = 0, **group: Any) -> dict[str, Any]:
    """An all-reduce of `size` bytes."""
    return collective("all_reduce", start, start + ns, in_bytes=size, out_bytes=size, **group)


def send(size: int, start: int = 0, **ends: int) -> dict[str, Any]:
    """A transfer of 1 µs in a group over two nodes."""
    return collective("send", start, start + 1000, in_bytes=size, **ends, **TWO_NODES)


WAITING = "from the collective's duration, which includes waiting for other ranks"
INSIDE = {"src_rank": 1, "dst_rank": 2}


@pytest.mark.parametrize(
    ("call", "expected", "why"),
    [
        # NVLink 3: 12 links of 25 GB/s, of which NCCL counts on 20: 240 B/ns; 8 ranks: f = 7/4.
        (reduce(96_000, 1000, **NODE), 96_000 * 1.75 / 1000 / 240, WAITING),
        # Transfers leave waiting out.
        (
            reduce(96_000, 3000, **NODE) | {"instance": 1, "transfer_ns": 1000, "wait_ns": 2000},
            *(168 / 240, None),
        ),
        # EFA v1: 4 × 12.5 GB/s, 85 % of it usable: 42.5 B/ns; 16 ranks: f = 15/8.
        (reduce(8_000, 1000, **TWO_NODES), 8_000 * 1.875 / 1000 / 42.5, WAITING),
        # Ranks 0 and 8 share one interface each: 12.5 · 0.85 = 10.625 B/ns; f = 1.
        (reduce(5_000, 1000, group="0,8", group_size=2), 5_000 / 1000 / 10.625, WAITING),
        # In a group over two nodes, 1 → 2 stays within one: NVLink's 240 B/ns; with one end stated 42.5 B/ns.
        (send(24_000, **INSIDE), 0.1, WAITING),
        *((send(8_500, **{end: 1}), 0.2, WAITING) for end in INSIDE),
    ],
)
def test_it_is_of_what_its_ranks_links_attain(call: dict[str, Any], expected: float, why: str | None) -> None:
    rank = a_talk(call, rank=1)
    assert main(rank, METRIC) == pytest.approx(expected)
    row = rows_of(METRIC, rank)[0]
    assert (row["unit"], row["provenance"], row["reason"]) == ("1", "derived", why)


def test_groups_are_weighted_by_time_and_told_apart() -> None:
    rank = a_talk(reduce(96_000, 1000, **NODE), reduce(8_000, 3000, start=2000, **TWO_NODES))
    found = {v.group: v.value for v in values(rank, METRIC) if v.category is None and v.collective}
    inside, across = 168 / 240, 15_000 / 3000 / 42.5
    assert found["0-7"] == pytest.approx(inside)
    assert found["0-15"] == pytest.approx(across)
    assert main(rank, METRIC) == pytest.approx((inside * 1000 + across * 3000) / 4000)


def test_ccl_benchs_peer_to_peer_is_the_share_of_nvlink() -> None:
    """24 kB in 1 us are 24 of NVLink's 240 B/ns; the all-reduce beside it does not count."""
    rank = a_talk(send(24_000, **INSIDE), reduce(96_000, 1000, start=2000, **NODE), rank=1)
    ((metric, alias),) = resolve_metrics(["bandwidth_utilization_peertopeer_group_6"])
    kept = builtins(select_alias_rows(figures(rows_of(metric.name, rank)), alias))
    assert {(row["collective"], row["unit"]) for row in kept} == {("send", "1")}
    assert kept[0]["value"] == pytest.approx(0.1)


def test_where_nobody_states_the_usable_share_it_is_of_the_line_rate() -> None:
    """EFA v2: 32 × 12.5 GB/s = 400 B/ns."""
    rank = a_talk(reduce(40_000, 1000, **TWO_NODES), card=card(hardware__system="aws-p5"))
    (first, *_) = values(rank, METRIC)
    assert first.value == pytest.approx(40 * 1.875 / 400)
    line = "over the line rate, since the usable rate of efa-v2 is unknown; "
    assert (first.reason or "").startswith(line)


def test_above_one_says_why_that_can_be() -> None:
    """H100 with switches that reduce: 450 GB/s of bus bandwidth and more are published."""
    rank = a_talk(reduce(270_000, 1000, **NODE), card=card(hardware__system="dgx-h100"))
    first = values(rank, METRIC)[0]
    assert (first.value, first.status) == (pytest.approx(270 * 1.75 / 370.8), "ok")
    assert "in-network reduction" in (first.reason or "")
    # From 1 to 2 within a node: 240 B/ns, of which all is not above one.
    for size, above in ((240_000, False), (241_000, True)):
        first = values(a_talk(send(size, **INSIDE), rank=1), METRIC)[0]
        assert first.value == pytest.approx(size / 240_000)
        assert ("in-network reduction" in (first.reason or "")) is above


def test_what_has_no_rate_is_counted_by_why_and_leaves_the_figure_partial() -> None:
    """Two collectives in one group whose ranks nobody lists, and one in another."""
    lists = ((*range(8), 9), (*range(7), 8, 9))
    odd, other = ({"group": group_id(ranks), "group_size": 9} for ranks in lists)
    calls = [reduce(96_000, 1000, **NODE), reduce(96_000, 500, start=2000, **odd)]
    calls += [reduce(96_000, 500, start=3000, **odd), reduce(96_000, 500, start=4000, **other)]
    first = values(a_talk(*calls), METRIC)[0]
    assert first.value == pytest.approx(168 / 240)
    assert first.left_out == {"of unknown ranks": 3}
    assert first.coverage == Coverage(1, 4, 1000, 2500)
    assert reason(a_talk(*calls[1:]), METRIC).endswith("collectives in the window: 3 of unknown ranks")
    assert values(a_talk(*calls[1:]), METRIC)[0].coverage == Coverage(0, 3, 0, 1500)
    listed = a_talk(*calls[:2], groups=(ProcessGroup("odd", None, lists[0]),))
    assert {v.group for v in values(listed, METRIC)} == {None, "0-7", odd["group"]}


def test_without_a_system_the_catalogs_systems_with_such_nodes_must_agree() -> None:
    ours = card(hardware__accelerator="amd-mi300x", hardware__per_node=8)
    rank = a_talk(reduce(100_000, 1000, **NODE), card=ours)
    assert main(rank, METRIC) == pytest.approx(175 / (448 * 0.75))
    alike = "azure-nd-mi300x-v5, mi300x-8gpu, oci-mi300x-8"
    assert f"links as of {alike}, since no card names the system" in (values(rank, METRIC)[0].reason or "")
    across = a_talk(reduce(1000, 1000, **TWO_NODES), card=ours)
    assert "1 a node of 8 × amd-mi300x states no rate of its network interfaces" in reason(across, METRIC)


def test_the_card_may_state_its_own_rates() -> None:
    ours = card(
        hardware__accelerator="nvidia-h100-sxm",
        hardware__per_node=8,
        hardware__scale_up={"bandwidth": "200 GB/s"},
        hardware__scale_out={"fabric": "infiniband-ndr", "nics": 4, "bandwidth": "200 Gb/s"},
    )
    inside = a_talk(reduce(10_000, 1000, **NODE), card=ours)
    assert main(inside, METRIC) == pytest.approx(17.5 / (200 * 0.824))
    across = a_talk(reduce(10_000, 1000, **TWO_NODES), card=ours)
    assert main(across, METRIC) == pytest.approx(18.75 / (4 * 25 * 0.94))


def test_a_trace_can_tell_the_node_without_a_card() -> None:
    facts = {"device_name": "Tesla V100-SXM2-32GB", "device_count": 8}
    rank = a_talk(reduce(12_000, 1000, **NODE), card=None, **facts)
    assert main(rank, METRIC) == pytest.approx(21 / 120)
    half = a_talk(reduce(12_000, 1000, group="0-3", group_size=4), card=None, **facts)
    assert "the number of links between two of its accelerators is not known" in reason(half, METRIC)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"system": "aws-p99"}, "the catalog knows no system 'aws-p99'"),
        ({}, "neither the card (hardware.system, hardware.per_node) nor the trace says what a node holds"),
        ({"accelerator": "nvidia-h100-pcie", "per_node": 8}, "in a node are none"),
        ({"system": "mi250x-node"}, "states no rate in its scale-up"),
        ({"accelerator": "aws-trainium1", "per_node": 16}, "in a node differ: aws-trn1, aws-trn1n"),
    ],
)
def test_what_is_lacking_is_named(changes: dict[str, Any], why: str) -> None:
    own = card(**{f"hardware__{name}": value for name, value in changes.items()})
    assert why in reason(a_talk(reduce(1000, 1000, **NODE), card=own), METRIC)


@pytest.mark.parametrize(
    ("name", "ranks", "expected"),
    [
        # Perlmutter: 4 NVLink 3 to each of 3 others; 20 of 25 GB/s usable.
        ("perlmutter-gpu", range(4), (240e9, "scale_up", "nvlink3")),
        ("perlmutter-gpu", (0, 1), (80e9, "scale_up", "nvlink3")),
        ("perlmutter-gpu", range(8), (92.5e9, "scale_out", "slingshot-11")),
        ("perlmutter-gpu", (3,), "a group of one rank moves no data"),
        ("google-tpu-v6e-pod", range(16), "which axes of the torus the group fills is not known"),
        ("google-tpu-v6e-8", range(8), (180e9, "scale_up", "ici-v6e")),
        # 18 nodes of 4 interfaces of 47 GB/s
        ("gb200-nvl72", range(144), (18 * 4 * 47e9, "scale_out", "infiniband-ndr")),
    ],
)
def test_rates_of_groups_of_real_machines(name: str, ranks: Any, expected: Any) -> None:
    if not isinstance(expected, str):
        rate, level, link = expected
        expected = Rate(pytest.approx(rate), level, link, usable=True)
    assert rate_of(system(name), ranks) == expected


Found = dict[tuple[str, ...], tuple[int, int, int]]


def kernel(name: str, start: int, end: int, **columns: Any) -> dict[str, Any]:
    """A kernel that computes."""
    return event("kernel", start, end, **{"name": name, "category": "elementwise", **columns})


def found(table: Any, length: int) -> Found:
    """By names: count, time and gaps in ns."""
    rows = table.to_pylist()
    return {tuple(row[str(n)] for n in range(length)): tuple(row[name] for name in SUMS) for row in rows}


def sequences(rank: RankView, length: int) -> Found:
    return found(rank_sequences(rank, length).table, length)


# a 10 ns, gap 5, b 5 ns, gap 10, a 10 ns, gap 0, b 20 ns; a and b without their template arguments.
TURNS = [kernel("void a<float>(int)", 0, 10), kernel("b", 15, 20), kernel("void a<half>(int)", 30, 40)]
TURNS += [kernel("b", 40, 60)]
# Four kernels of 1, 2, 3 and 4 ns with gaps of 9, 8 and 7: three pairs, two triples.
ALIKE = [kernel("a", 10 * n, 11 * n + 1) for n in range(4)]
A, B = kernel("a", 0, 10), kernel("b", 20, 30)


@pytest.mark.parametrize(
    ("rows", "length", "expected"),
    [
        (TURNS, 2, {("a", "b"): (2, 45, 5), ("b", "a"): (1, 15, 10)}),
        *((TURNS, 4, {("a", "b", "a", "b"): (1, 45, 15)}), (TURNS, 5, {})),
        # Kernels and gaps of overlapping occurrences count once.
        *((ALIKE, 2, {("a", "a"): (3, 10, 24)}), (ALIKE, 3, {("a", "a", "a"): (2, 10, 24)})),
        # A copy or memset ends a run; a communication kernel is one of it, and no sequence alone.
        *(([A, event(kind, 12, 13), B], 2, {}) for kind in ("copy", "memset")),
        ([A, comm(12, 13, track=7), B], 2, {("a", "nccl"): (1, 11, 2), ("nccl", "b"): (1, 11, 7)}),
        ([comm(0, 10), comm(20, 30), kernel("a", 40, 50, track=20)], 2, {("nccl", "a"): (1, 20, 10)}),
        # Kernels of a graph may overlap on the stream that stands for it: until 100 there is no gap.
        (
            [kernel("a", 0, 100), kernel("b", 10, 20), kernel("c", 104, 110)],
            *(2, {("a", "b"): (1, 110, 0), ("b", "c"): (1, 16, 4)}),
        ),
    ],
)
def test_sequences_of_a_stream(rows: list[dict[str, Any]], length: int, expected: Found) -> None:
    assert sequences(a_rank(rows, [window(0, 200)]), length) == expected


def test_ranks_add_up() -> None:
    one = rank_sequences(a_rank(TURNS[:2], [window(0, 100)]), 2)
    assert (one.kernels, one.kernel_ns, one.windows, one.policy) == (2, 15, 1, "steps")
    other = rank_sequences(a_rank([*TURNS[:2], kernel("c", 30, 31)], [window(0, 100)], rank=1), 2)
    both = found(merge_sequences([one.table, other.table]), 2)
    assert both == {("a", "b"): (2, 30, 10), ("b", "c"): (1, 6, 10)}


def test_without_kernels_there_are_none_and_a_reason() -> None:
    with pytest.raises(NotApplicable, match="the rank runs no kernels in the window"):
        rank_sequences(a_rank([event("copy", 0, 10)], [window(0, 100)]), 2)
    with pytest.raises(NotApplicable, match="the CPU is the device"):
        rank_sequences(a_rank([event("op", 0, 10)], [window(0, 100)], works_on="host"), 2)


ROW = st.tuples(
    st.sampled_from("abcM"), st.integers(0, 4), st.integers(0, 5), st.sampled_from((7, 9))
)  # name (M a copy), gap before, duration, stream


def by_a_loop(rows: Sequence[dict[str, Any]], length: int) -> Found:
    """Looks at every place, and holds its kernels and gaps in sets, each once."""
    count: dict[tuple[str, ...], int] = defaultdict(int)
    kernel_ns: dict[tuple[str, ...], dict[tuple[int, int], int]] = defaultdict(dict)
    gap_ns: dict[tuple[str, ...], dict[tuple[int, int], int]] = defaultdict(dict)
    for track in (7, 9):
        own = [row for row in rows if row["track"] == track]
        for first in range(len(own) - length + 1):
            part = own[first : first + length]
            one_window = len({row["start_ns"] // 40 for row in part}) == 1
            if not one_window or any(row["kind"] != "kernel" for row in part):
                continue
            names = tuple(row["name"] for row in part)
            count[names] += 1
            for n, row in enumerate(part, first):
                kernel_ns[names][track, n] = row["end_ns"] - row["start_ns"]
                if n > first:
                    gap_ns[names][track, n] = row["start_ns"] - own[n - 1]["end_ns"]
    return {
        names: (number, sum(kernel_ns[names].values()), sum(gap_ns[names].values()))
        for names, number in count.items()
    }


@given(st.lists(ROW, min_size=1, max_size=30), st.integers(2, 5))
def test_every_sequence_of_any_streams(drawn: list[tuple[str, int, int, int]], length: int) -> None:
    """In windows of 40 ns."""
    at = {7: 0, 9: 0}
    rows = []
    for name, gap, duration, track in drawn:
        start = at[track] + gap
        at[track] = start + max(duration, 1)
        made = kernel(name, start, at[track], track=track)
        rows.append(made | {"kind": "copy"} if name == "M" else made)
    windows = [window(40 * n, 40 * n + 40, n) for n in range(max(at.values()) // 40 + 1)]
    expected = by_a_loop(rows, length)
    if any(row["kind"] == "kernel" for row in rows):
        assert sequences(a_rank(rows, windows), length) == expected

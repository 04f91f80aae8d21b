# SPDX-License-Identifier: Apache-2.0
"""Events tables from a reader's rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cclbench.formats import Names, Rows
from cclbench.ground.schema import CATEGORIES, EVENTS
from cclbench.normalize.rows import Categories, events_table


def rows(kind, names, listed, side="device", **columns):
    count = len(listed)
    return Rows(
        kind=kind,
        side=side,
        names=names,
        codes=np.array([names[name] for name in listed], np.int32),
        start_ns=np.arange(count, dtype=np.int64) * 10,
        dur_ns=np.full(count, 4, np.int64),
        track=np.full(count, 7, np.int64),
        **columns,
    )


def test_categories_follow_names_that_grow():
    names, known = Names(), Categories("kernel")
    names["ncclDevKernel_AllReduce_Sum_f32_RING_LL"], names["ampere_sgemm_128x64_nn"]
    assert [CATEGORIES[c] for c in known.category_codes(names)] == ["communication", "gemm"]
    names["some_kernel_nobody_knows"]
    assert [CATEGORIES[c] for c in known.category_codes(names)] == ["communication", "gemm", "other"]
    assert known.unclassified == [False, False, True]


def test_kinds_that_are_not_classified_by_name():
    for kind, category in (
        ("copy", "copy"),
        ("memset", "copy"),
        ("python", "other"),
        ("annotation", "other"),
    ):
        names = Names()
        names["gemm"]
        assert [CATEGORIES[c] for c in Categories(kind).category_codes(names)] == [category]


def test_batches_whose_names_grow_between_them():
    names, known = Names(), Categories("kernel")
    first = rows("kernel", names, ["ampere_sgemm", "k"], correlation=[1, None], blocks=[6, None])
    second = rows("kernel", names, ["ncclDevKernel_AllGather", "k"])
    made = events_table([first, second], known)
    assert made.schema.equals(EVENTS)
    assert made["name"].to_pylist() == ["ampere_sgemm", "k", "ncclDevKernel_AllGather", "k"]
    assert made["category"].to_pylist() == ["gemm", "other", "communication", "other"]
    assert made["correlation"].to_pylist() == [1, None, None, None]
    assert made["blocks"].to_pylist() == [6, None, None, None]
    assert made["start_ns"].to_pylist() == [0, 10, 0, 10]
    assert set(made["kind"].to_pylist()) == {"kernel"}
    assert set(made["side"].to_pylist()) == {"device"}
    assert made["step"].null_count == made["collective"].null_count == 4


def test_copies_with_and_without_direction_and_bytes():
    names = Names()
    batch = rows("copy", names, ["a", "b", "c"], bytes=[4096, None, 0], copy_direction=["h2d", None, "p2p"])
    made = events_table([batch], Categories("copy"))
    assert made["bytes"].to_pylist() == [4096, None, 0]
    assert made["copy_direction"].to_pylist() == ["h2d", None, "p2p"]


def test_shapes_of_batches_whose_texts_differ():
    names = Names()
    texts = pa.array(["[[2,3]]", None, "[]"]).dictionary_encode()
    first = rows("op", names, ["a", "b", "c"], side="host", operator=[1, None, 3], shapes=texts)
    second = rows("op", names, ["a"], side="host")
    third = rows("op", names, ["a", "a"], side="host", shapes=pa.array(["[]", "[[4]]"]).dictionary_encode())
    made = events_table([first, second, third], Categories("op"))
    assert made.schema.equals(EVENTS)
    assert made["shapes"].to_pylist() == ["[[2,3]]", None, "[]", None, "[]", "[[4]]"]
    assert made["operator"].to_pylist() == [1, None, 3, None, None, None]


def test_largest_numbers_fit():
    batch = rows("kernel", Names(), ["k"], correlation=[(1 << 63) - 1], blocks=[(1 << 31) - 1], device=[9999])
    made = events_table([batch], Categories("kernel"))
    assert made.select(["correlation", "blocks", "device"]).to_pylist() == [
        {"correlation": (1 << 63) - 1, "blocks": (1 << 31) - 1, "device": 9999}
    ]


def test_what_the_producer_states_goes_before_the_name():
    names, known = Names(), Categories("kernel")
    names["ampere_sgemm"], names["some_kernel_nobody_knows"], names["another"]
    assert [CATEGORIES[c] for c in known.category_codes(names, {0: "moe", 1: "attention"})] == [
        *("moe", "attention", "other")
    ]
    assert known.unclassified == [False, False, True]
    # A name is classified once, whatever is stated of it later.
    assert [CATEGORIES[c] for c in known.category_codes(names, {2: "gemm"})] == ["moe", "attention", "other"]


def test_what_the_last_batch_states_of_names_is_of_all_batches():
    names = Names()
    first = rows("copy", names, ["a", "b"])
    second = rows("copy", names, ["b"], name_categories={1: "reduction"})
    made = events_table([first, second], Categories("copy"))
    assert made["category"].to_pylist() == ["copy", "reduction", "reduction"]


def test_every_column_of_every_batch_arrives():
    names = Names()
    numbers = ("device", "correlation", "bytes", "flops", "hbm_bytes", "grid_x", "grid_y", "grid_z")
    numbers += ("blocks", "operator", "event_stream", "event_record", "sequence", "forward_thread")
    numbers += ("reserved", "change", "address", "occupancy")
    told = {name: [n + 1] for n, name in enumerate(numbers)}
    first = rows("kernel", names, ["k"], **told)
    second = rows("kernel", names, ["k"], **{name: pa.array([-n]) for n, name in enumerate(numbers, 2)})
    made = events_table([first, second], Categories("kernel"))
    for n, name in enumerate(numbers, 1):
        assert made[name].to_pylist() == [n, -n - 1]
    assert made["track"].to_pylist() == [7, 7]
    assert made["dur_ns"].to_pylist() == [4, 4]
    assert made["copy_direction"].to_pylist() == [None, None]

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


def categories(known, names, *stated):
    return [CATEGORIES[code] for code in known.category_codes(names, *stated)]


def test_categories_follow_names_that_grow():
    names, known = Names(), Categories("kernel")
    names["ncclDevKernel_AllReduce_Sum_f32_RING_LL"], names["ampere_sgemm_128x64_nn"]
    assert categories(known, names) == ["communication", "gemm"]
    names["some_kernel_nobody_knows"]
    assert categories(known, names) == ["communication", "gemm", "other"]
    assert known.unclassified == [False, False, True]
    # Kinds that are not classified by name.
    kinds = {"copy": "copy", "memset": "copy", "python": "other", "annotation": "other"}
    for kind, category in kinds.items():
        names = Names()
        names["gemm"]
        assert categories(Categories(kind), names) == [category]


def test_batches_whose_names_grow_between_them():
    names, known = Names(), Categories("kernel")
    first = rows("kernel", names, ["ampere_sgemm", "k"], correlation=[1, None], blocks=[6, None])
    made = events_table([first, rows("kernel", names, ["ncclDevKernel_AllGather", "k"])], known)
    assert made.schema.equals(EVENTS)
    expected = {"name": ["ampere_sgemm", "k", "ncclDevKernel_AllGather", "k"]}
    expected |= {"category": ["gemm", "other", "communication", "other"]}
    expected |= {"correlation": [1, None, None, None], "blocks": [6, None, None, None]}
    expected |= {"start_ns": [0, 10, 0, 10], "kind": ["kernel"] * 4, "side": ["device"] * 4}
    assert made.select([*expected]).to_pydict() == expected
    assert made["step"].null_count == made["collective"].null_count == 4


def test_copies_with_and_without_direction_and_bytes():
    told = {"bytes": [4096, None, 0], "copy_direction": ["h2d", None, "p2p"]}
    made = events_table([rows("copy", Names(), ["a", "b", "c"], **told)], Categories("copy"))
    assert made.select([*told]).to_pydict() == told
    largest = {"correlation": [(1 << 63) - 1], "blocks": [(1 << 31) - 1], "device": [9999]}
    made = events_table([rows("kernel", Names(), ["k"], **largest)], Categories("kernel"))
    assert made.select([*largest]).to_pydict() == largest


def test_shapes_of_batches_whose_texts_differ():
    names = Names()
    texts, others = (pa.array(one).dictionary_encode() for one in (["[[2,3]]", None, "[]"], ["[]", "[[4]]"]))
    first = rows("op", names, ["a", "b", "c"], side="host", operator=[1, None, 3], shapes=texts)
    second = rows("op", names, ["a"], side="host")
    third = rows("op", names, ["a", "a"], side="host", shapes=others)
    made = events_table([first, second, third], Categories("op"))
    assert made.schema.equals(EVENTS)
    assert made["shapes"].to_pylist() == ["[[2,3]]", None, "[]", None, "[]", "[[4]]"]
    assert made["operator"].to_pylist() == [1, None, 3, None, None, None]


def test_what_the_producer_states_goes_before_the_name():
    names, known = Names(), Categories("kernel")
    names["ampere_sgemm"], names["some_kernel_nobody_knows"], names["another"]
    assert categories(known, names, {0: "moe", 1: "attention"}) == ["moe", "attention", "other"]
    assert known.unclassified == [False, False, True]
    # A name is classified once, whatever is stated of it later.
    assert categories(known, names, {2: "gemm"}) == ["moe", "attention", "other"]
    # What the last batch states of names is of all batches.
    names = Names()
    batches = [rows("copy", names, ["a", "b"]), rows("copy", names, ["b"], name_categories={1: "reduction"})]
    made = events_table(batches, Categories("copy"))
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

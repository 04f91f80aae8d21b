# SPDX-License-Identifier: Apache-2.0
"""HCCL's operations as Ascend's tools list them, of one rank and of a cluster."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cclbench.formats import READERS, Evidence
from cclbench.formats.source_files import required_reader
from cclbench.ground.errors import InputError

CLUSTER = (
    "ascend/profiler/msprof_analyze/test/resource/advisor/cluster_analysis_output/cluster_communication.json"
)
BEGIN = 1_695_054_582_608_213


def operation(elapsed_ms: object, begin_us: object = BEGIN + 0.5, **megabytes: object) -> dict[str, Any]:
    return {
        "Communication Time Info": {"Start Timestamp(us)": begin_us, "Elapse Time(ms)": elapsed_ms},
        "Communication Bandwidth Info": {
            link: {"Transit Size(MB)": size, "Bandwidth(GB/s)": 1} for link, size in megabytes.items()
        },
    }


RANK = {
    "step7": {
        "collective": {
            "hcom_allReduce__445_0_1@17": operation(1.25, HCCS=2.097152, RDMA=0),
            "hcom_allGather__445_1_1@17": operation(0.5),
            "Total Op Info": operation(1.75, 0),
        },
        "p2p": {"hcom_receive__101_3_1@9": operation(2), "Total Op Info": operation(3, 0)},
    }
}


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def read(path: Path) -> Evidence:
    assert required_reader(path) == "ascend_communication"
    return READERS.get("ascend_communication").read(path)  # type: ignore[call-arg,return-value]


def rows(evidence: Evidence, *columns: str) -> list[tuple[Any, ...]]:
    assert evidence.timings is not None
    return [tuple(row.values()) for row in evidence.timings.select(columns).to_pylist()]


def test_operations_of_a_rank_by_hand(tmp_path: Path) -> None:
    found = read(write(tmp_path / "communication.json", RANK))
    begin = BEGIN * 1000 + 500
    assert rows(found, "rank", "kind", "library", "seq", "start_ns", "dur_ns", "bytes") == [
        (None, "all_reduce", "hccl", 0, begin, 1_250_000, None),
        (None, "all_gather", "hccl", 1, begin, 500_000, None),
        (None, "recv", "hccl", 3, begin, 2_000_000, None),
    ]
    assert found.counters is not None
    (link,) = found.counters.to_pylist()
    assert (link["port"], link["counter"], link["value"]) == ("HCCS", "hccl_bytes", 2_097_152)
    assert (link["start_ns"], link["end_ns"]) == (begin, begin + 1_250_000)
    # The total of p2p is 3 ms, and its operation takes 2.
    assert found.notes == ["1 of 2 totals differ from the sum of their operations"]
    assert found.left_out == {"totals, which are sums of others": 2}


def test_operations_of_a_cluster_by_hand(tmp_path: Path) -> None:
    ranks = {str(rank): operation(rank + 1) for rank in (0, 8)}
    total = {"0": operation(1, 0), "8": operation(9, 0)}
    cluster = {"(0, 8)": {"step": {"hcom_broadcast__501_2@62": ranks, "Total Op Info": total}}}
    found = read(write(tmp_path / "cluster_communication.json", cluster))
    assert rows(found, "rank", "kind", "group", "group_size", "seq", "dur_ns") == [
        (0, "broadcast", "0,8", 2, 2, 1_000_000),
        (8, "broadcast", "0,8", 2, 2, 9_000_000),
    ]
    assert [(group.name, group.ranks) for group in found.groups] == [("62", (0, 8))]
    assert found.notes == []


def test_broadcasts_of_a_cluster(test_data: Path) -> None:
    found = read(test_data / CLUSTER)
    by_rank = {0: 0, 1: 0}
    for rank, kind, duration in rows(found, "rank", "kind", "dur_ns"):
        assert kind == "broadcast"
        by_rank[rank] += duration
    # 121.73694384375 + 27.107999203125 ms, and 20.798642234375 + 17.367596484375 ms, each rounded to ns.
    assert by_rank == {0: 121_736_944 + 27_107_999, 1: 20_798_642 + 17_367_596}
    assert found.counters is not None
    sdma = [row for row in found.counters.to_pylist() if row["port"] == "SDMA"]
    assert sum(row["value"] for row in sdma) == 85_312 + 134_208 + 56 + 184


@pytest.mark.parametrize(
    ("elapsed", "left_out"),
    [(None, "without a time"), ("1", "without a time"), (-1, "without a time"), (1e300, "without a time")],
)
def test_what_has_no_time_is_left_out(elapsed: object, left_out: str, tmp_path: Path) -> None:
    entry = {"step": {"collective": {"hcom_send__1_2_3@4": operation(elapsed)}}}
    found = read(write(tmp_path / "communication.json", entry))
    assert (rows(found, "kind"), found.left_out) == ([], {left_out: 1})


def test_a_link_without_a_size(tmp_path: Path) -> None:
    entry = {"step": {"collective": {"hcom_send__1_2_3@4": operation(1, HCCS=1e30, PCIE="x")}}}
    assert read(write(tmp_path / "communication.json", entry)).left_out == {"link without a size": 2}


def test_mutations_are_read_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "communication.json", RANK)
    whole, chance = path.read_bytes(), random.Random(3)  # noqa: S311 - no secret
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content[: chance.choice([len(content), chance.randrange(len(content))])])
        with suppress(InputError):
            READERS.get("ascend_communication").read(path)  # type: ignore[call-arg]

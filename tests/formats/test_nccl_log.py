# SPDX-License-Identifier: Apache-2.0
"""What NCCL's debug logs tell of a run and of its calls; lines that are torn, cut or impossible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.nccl_job import Process

from cclbench.formats import Evidence, recognise_format
from cclbench.formats.nccl_log import NcclLog

PREFIX = "alpha-1:50292:50301 [0] NCCL INFO "
EFA = (
    *("Bootstrap: Using ens32:10.0.10.221<0>", "cudaDriverVersion 12080", "NCCL version 2.29.2+cuda12.8"),
    "Successfully loaded external network plugin /opt/amazon/lib/libnccl-net.so",
    *("NET/OFI Initializing aws-ofi-nccl 1.18.0", "NET/OFI Using Libfabric version 2.3"),
    *("NET/OFI Selected provider is efa, fabric is efa (found 32 nics)", "Using network Libfabric"),
    "TUNER/Plugin: Using nccl_ofi_tuner (v3)",
    "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
    "comm 0x63233dc434d0 rank 1 nRanks 16 nNodes 2 localRanks 8 localRank 1 MNNVL 0",
    "Channel 00/16 : 0 1 2 3",
    "16 coll channels, 16 collnet channels, 8 nvls channels, 32 p2p channels, 2 p2p channels per peer",
    "Channel 00/0 : 1[1] -> 8[0] [receive] via NET/Libfabric/0/GDRDMA",
    *("Channel 01/0 : 1[1] -> 2[2] via P2P/CUMEM/read", "NCCL_PROTO set by environment to simple"),
    *("NCCL_BUFFSIZE set by environment to 8388608.", "NCCL_SOCKET_IFNAME set by environment to ens32"),
    *("NCCL_IB_HCA set by environment to mlx5_0", "NCCL_TOPO_FILE set by environment to /home/user/topo.xml"),
    "NCCL_TUNER_PLUGIN set by environment to /home/user/libtuner.so",
)

Read = Callable[..., Evidence]


@pytest.fixture
def read_text(written: Callable[..., Path]) -> Read:
    """Reads a log of that text."""
    return lambda text: NcclLog().read(written(text, "job.log"))


@pytest.fixture
def read(read_text: Read) -> Read:
    """Reads a log of those messages."""
    return lambda *messages, prefix=PREFIX: read_text("".join(f"{prefix}{said}\n" for said in messages))


def test_a_log_tells_library_network_and_channels(read: Read) -> None:
    found = read(*EFA)
    known = {"library": "nccl", "library_version": "2.29.2+cuda12.8", "cuda_driver_version": 12080}
    known |= {"network": "Libfabric", "network_plugin": "aws-ofi-nccl 1.18.0", "network_provider": "efa"}
    known |= {"network_interfaces": 32, "libfabric_version": "2.3", "tuner_plugin": "nccl_ofi_tuner"}
    known |= {"nvls": "available", "ranks": 16, "nodes": 2, "rings": 16, "coll_channels": 16}
    known |= {"collnet_channels": 16, "nvls_channels": 8, "p2p_channels": 32, "gpudirect_rdma": "yes"}
    known |= {"transports": ["NET/Libfabric/GDRDMA", "P2P/CUMEM/read"]}
    assert found.facts == known | {"NCCL_PROTO": "simple", "NCCL_BUFFSIZE": "8388608"}
    assert (found.notes, found.timings) == ([], None)


def test_hosts_addresses_devices_and_paths_stay_in_the_log(read: Read) -> None:
    found = read(*EFA, "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB ens32:10.0.10.221<0>")
    secrets = ("alpha", "50292", "10.0.10", "ens32", "mlx5", "/opt", "/home", "user", "0x")
    assert [secret for secret in secrets if secret in str((found.facts, found.notes))] == []


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.4.7<0>\nUsing network IB",
            {"network_interfaces": 2, "network_link": "IB", "network": "IB"},
        ),
        (
            "NET/Socket : Using [0]eth0:10.0.4.7<0>\nUsing network Socket\n"
            "Channel 00 : 0 -> 1 via NET/Socket/0",
            {"network": "Socket", "transports": ["NET/Socket"], "gpudirect_rdma": "no"},
        ),
        (
            "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\nChannel 00/0 : 0[0] -> 1[1] via P2P/IPC",
            {"transports": ["P2P/IPC", "SHM/direct/direct"]},
        ),
        (
            "\n".join(f"Channel 00 : 0 -> 1 via NET/AWS Libfabric/0{end}" for end in ("(3)/GDRDMA", "")),
            {
                "transports": ["NET/AWS Libfabric", "NET/AWS Libfabric/GDRDMA"],
                "gpudirect_rdma": "some channels",
            },
        ),
        ("RCCL version : 2.26.6-HEAD:f224e2c", {"library": "rccl", "library_version": "2.26.6-HEAD:f224e2c"}),
        ("NCCL version 2.12.12+hip5.3", {"library": "rccl", "library_version": "2.12.12+hip5.3"}),
        (
            "NET/OFI Using aws-ofi-nccl 1.7.3-aws\nNET/OFI Selected Provider is efa (found 4 nics)",
            {"network_plugin": "aws-ofi-nccl 1.7.3-aws", "network_provider": "efa", "network_interfaces": 4},
        ),
        ("NVLS multicast support is not available on dev 3", {"nvls": "not available"}),
        ("8 coll channels, 8 p2p channels, 1 p2p channels per peer", {"coll_channels": 8, "p2p_channels": 8}),
    ],
)
def test_other_networks_and_versions(read: Read, messages: str, expected: dict[str, object]) -> None:
    assert read(*messages.splitlines()).facts == expected


def test_ranks_and_communicators_that_differ_are_listed(read: Read) -> None:
    """Sixty-four values of a fact are kept; warnings are counted, not copied."""
    sizes = [f"comm 0x1 rank 0 nRanks {n} nNodes 1 localRanks {n}" for n in (16, 2, 8, 2)]
    found = read("NCCL version 2.27.3+cuda12.9", "NCCL version 2.21.5+cuda12.4NCCL version 2.27.3", *sizes)
    assert found.facts["library_version"] == ["2.21.5+cuda12.4", "2.27.3+cuda12.9"]
    assert (found.facts["ranks"], found.facts["nodes"]) == (["2", "8", "16"], 1)
    found = read(*(f"x nRanks {n} nNodes 1" for n in (*range(1, 70), 5)))
    assert found.facts["ranks"] == [str(n) for n in range(1, 65)]
    found = read("/home/user/x.cc:1 failed", "again", prefix="alpha:1:2 [3] misc/socket.cc:1 NCCL WARN ")
    assert found.notes == ["the library warned 2 times: search the log for NCCL WARN"]


def test_a_hostile_log_stays_bounded(tmp_path: Path) -> None:
    """Lines beyond any length, thousands of values, and bytes that are no text."""
    path = tmp_path / "job.log"
    many = "".join(f"{PREFIX}NCCL version 2.{i}.0\n{PREFIX}x via NET/{i}x\n" for i in range(5000))
    path.write_bytes(b"\xff\x00" * 300_000 + b"\n" + many.encode() + PREFIX.encode() + b"via " * 500_000)
    facts = NcclLog().read(path).facts
    assert all(len(value) == 64 for value in facts.values() if isinstance(value, list))
    assert len(str(facts)) < 10_000


@pytest.mark.parametrize(
    ("head", "name"),
    [
        *((PREFIX + EFA[2], "nccl_log"), ("step 1\n[1,0]<stdout>:" + PREFIX + EFA[2], "nccl_log")),
        ("RCCL version : 2.22.3-HEAD:7d8d67c\n", "nccl_log"),
        (f"{PREFIX}{EFA[2]}\n# nThread 1 nGpus 1 minBytes 8 maxBytes 16\n", "nccl_tests"),
        *(("set NCCL_DEBUG=INFO to see more", None), ("", None)),
    ],
)
def test_recognised(head: str, name: str | None) -> None:
    reader = recognise_format(Path("job.log"), head.encode())
    assert (reader and reader.name) == name


def test_a_sweep_behind_a_long_log_is_not_passed_over_in_silence(read: Read) -> None:
    """It is said once with its line."""
    table = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    said = "a benchmark's table on line {} is not read: put it in a file of its own"
    assert read(f"{PREFIX}{EFA[2]}\n" * 3 + f"[1,0]<stdout>:{table}\n" * 2).notes == [said.format(4)]
    assert read(*["x"] * 1233, table, "y", table, prefix="").notes == [said.format("1,234")]


def test_facts_without_zeros_and_logs_without_facts(read: Read, tmp_path: Path) -> None:
    channels = "Channel 00/08 : 0 1", "Channel 00/008 : 0 1", "Channel 00/16 : 0 1", "Channel 00/00 : 0"
    found = read(*channels, "NET/OFI Using Libfabric version 0.9")
    assert found.facts == {"rings": ["0", "8", "16"], "libfabric_version": "0.9"}
    assert read("Channel 00/00 : 0").facts == {"rings": 0}
    path = tmp_path / "job.log"
    path.write_bytes(b"")
    assert NcclLog().read(path).facts == {}
    assert NcclLog().sniff(b"") == 0.0


def a_call(function: str, count: int, datatype: int, *, ranks: int = 4, root: int = 0, more: str = "") -> str:
    one = Process(0)
    one.say(
        f"{function}: opCount 1f sendbuff 0x1 recvbuff (nil) {more}count {count} datatype {datatype} op 0"
        f" root {root} comm 0xab [nranks={ranks}] stream 0x7"
    )
    return one.text


def rows(found: Evidence) -> list[dict[str, Any]]:
    return found.timings.to_pylist()


@pytest.mark.parametrize(
    ("function", "count", "datatype", "kind", "dtype", "size"),
    [
        *(("AllReduce", 10, 7, "all_reduce", "float32", 40), ("Broadcast", 10, 0, "broadcast", "int8", 10)),
        ("Reduce", 10, 8, "reduce", "float64", 80),
        # Of one rank's part: four ranks have four.
        ("AllGather", 10, 9, "all_gather", "bfloat16", 80),
        ("ReduceScatter", 10, 6, "reduce_scatter", "float16", 80),
        *(("AlltoAll", 10, 2, "all_to_all", "int32", 160), ("Gather", 10, 10, "gather", "float8e4m3", 40)),
        *(("Scatter", 10, 11, "scatter", "float8e5m2", 40), ("Send", 10, 4, "send", "int64", 80)),
        ("Recv", 10, 5, "recv", "uint64", 80),
        # A datatype that is not known, a function of which no line tells the counts, one that is not known.
        ("AllReduce", 10, 99, "all_reduce", None, None),
        ("AllToAllv", 0, 7, "all_to_all", "float32", None),
        *(("PutSignal", 10, 7, None, "float32", None), ("AllReduce", 0, 3, "all_reduce", "uint32", 0)),
    ],
)
def test_functions_and_datatypes(read_text, function, count, datatype, kind, dtype, size):
    found = read_text(a_call(function, count, datatype))
    (row,) = rows(found)
    assert (row["kind"], row["dtype"], row["bytes"], row["group_size"]) == (kind, dtype, size, 4)
    assert bool(found.notes) == (size is None)


def test_rccl_has_more_words_and_other_names(read_text: Read) -> None:
    """As of RCCL 2.22 and later, and of 2.4 with a time of its own."""
    more = a_call("AllReduce", 1, 7, more="acc (nil) ").replace("0x7", "0x7 task 0 globalrank 3")
    (row,) = rows(read_text(more))
    assert (row["bytes"], row["library"]) == (4, "rccl")
    (row,) = rows(read_text(a_call("AllReduce", 2, 7).replace(" NCCL", " 1558545003174220 NCCL")))
    assert (row["bytes"], row["library"]) == (8, "nccl")


def test_numbers_of_calls_within_a_communicator(read_text: Read) -> None:
    """Collectives are numbered together, the transfers of a pair one way by themselves."""
    one = Process(1)
    one.init("a", 1, 4)
    calls = ("AllReduce", 0), ("Send", 2), ("Send", 3), ("AllGather", 0), ("Send", 2), ("Recv", 2)
    for function, root in calls:
        one.call(function, "a", 4, 1, root=root)
    found = read_text(one.text)
    assert [(row["kind"], row["seq"], row["src_rank"], row["dst_rank"]) for row in rows(found)] == [
        *(("all_reduce", 0, None, None), ("send", 0, 1, 2), ("send", 0, 1, 3), ("all_gather", 1, None, None)),
        *(("send", 1, 1, 2), ("recv", 0, 2, 1)),
    ]
    (communicator,) = found.communicators
    assert (communicator.rank, communicator.size, communicator.process_id) == (1, 4, 4001)
    assert "node-7" not in str((found.facts, found.notes, found.communicators))


def test_torn_and_cut_lines_are_counted(read_text: Read) -> None:
    """A line in the middle of another one is whole; what is left of that one is not counted as a call."""
    first, second = a_call("AllReduce", 10, 7).rstrip(), a_call("AllGather", 3, 7).rstrip()
    for cut in (20, first.index("count") + 7, first.index("comm") + 6, first.index("[nranks") + 8):
        found = read_text(f"{first[:cut]}{second}{first[cut:]}\n{second}\n")
        assert [row["kind"] for row in rows(found)][-1] == "all_gather"
        whole = len(rows(found))
        torn = found.left_out.get("calls on torn lines", 0)
        assert (whole, torn) == (2, 1), cut
    found = read_text(f"{first}\n{first[: first.index('datatype')]}")
    assert (len(rows(found)), found.left_out) == (1, {"calls on torn lines": 1})
    assert found.notes == ["1 calls are not counted: their lines are torn or cut"]


def test_impossible_sizes_are_no_calls_and_a_log_may_have_none(read_text: Read) -> None:
    found = read_text(a_call("AllReduce", 10**18, 8) + a_call("AllReduce", 1, 7))
    assert (len(rows(found)), found.left_out) == (1, {"calls on torn lines": 1})
    # A peer outside of its communicator is none.
    (row,) = rows(read_text(a_call("Send", 1, 7, root=4)))
    assert (row["kind"], row["dst_rank"]) == ("send", None)
    one = Process(0)
    one.init("a", 0, 1)
    found = read_text(one.text)
    assert (found.timings, found.communicators) == (None, [])


def test_hostile_lines_take_no_time(read_text: Read) -> None:
    """Names and numbers without end, ranks beyond any job, and calls that all differ."""
    one = Process(0)
    for number in range(70_000):
        one.call("Send", "a", 4, number, root=1)
    endless = "a" * 60_000 + ":" + "1" * 60_000
    found = read_text(
        f"{endless}:1 [0] NCCL INFO AllReduce: opCount 0 \n"
        + a_call("AllReduce", 1, 7, ranks=9_999_999)
        + a_call("AllReduce", 1, 7, ranks=0)
        + f"node:{'9' * 5000}:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1\n"
        + one.text
    )
    assert len(rows(found)) == 70_000
    assert found.left_out["calls on torn lines"] >= 2
    assert len(found.communicators) == 1

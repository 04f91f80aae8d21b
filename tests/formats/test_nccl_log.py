# SPDX-License-Identifier: Apache-2.0
"""What NCCL's debug logs tell of a run, and what stays in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cclbench.formats import Evidence, recognise_format
from cclbench.formats.nccl_log import NcclLog

PREFIX = "alpha-1:50292:50301 [0] NCCL INFO "
EFA = (
    "Bootstrap: Using ens32:10.0.10.221<0>",
    "cudaDriverVersion 12080",
    "NCCL version 2.29.2+cuda12.8",
    "Successfully loaded external network plugin /opt/amazon/lib/libnccl-net.so",
    "NET/OFI Initializing aws-ofi-nccl 1.18.0",
    "NET/OFI Using Libfabric version 2.3",
    "NET/OFI Selected provider is efa, fabric is efa (found 32 nics)",
    "Using network Libfabric",
    "TUNER/Plugin: Using nccl_ofi_tuner (v3)",
    "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
    "comm 0x63233dc434d0 rank 1 nRanks 16 nNodes 2 localRanks 8 localRank 1 MNNVL 0",
    "Channel 00/16 : 0 1 2 3",
    "16 coll channels, 16 collnet channels, 8 nvls channels, 32 p2p channels, 2 p2p channels per peer",
    "Channel 00/0 : 1[1] -> 8[0] [receive] via NET/Libfabric/0/GDRDMA",
    "Channel 01/0 : 1[1] -> 2[2] via P2P/CUMEM/read",
    "NCCL_PROTO set by environment to simple",
    "NCCL_BUFFSIZE set by environment to 8388608.",
    "NCCL_SOCKET_IFNAME set by environment to ens32",
    "NCCL_IB_HCA set by environment to mlx5_0",
    "NCCL_TOPO_FILE set by environment to /home/user/topo.xml",
    "NCCL_TUNER_PLUGIN set by environment to /home/user/libtuner.so",
)

Read = Callable[..., Evidence]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a log of those messages."""

    def read(*messages: str, prefix: str = PREFIX) -> Evidence:
        path = tmp_path / "job.log"
        path.write_text("".join(f"{prefix}{message}\n" for message in messages))
        return NcclLog().read(path)

    return read


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
    found = read("NCCL version 2.27.3+cuda12.9", "NCCL version 2.21.5+cuda12.4", *sizes)
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
        (PREFIX + EFA[2], "nccl_log"),
        ("step 1\n[1,0]<stdout>:" + PREFIX + EFA[2], "nccl_log"),
        ("RCCL version : 2.22.3-HEAD:7d8d67c\n", "nccl_log"),
        (f"{PREFIX}{EFA[2]}\n# nThread 1 nGpus 1 minBytes 8 maxBytes 16\n", "nccl_tests"),
        ("set NCCL_DEBUG=INFO to see more", None),
        ("", None),
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

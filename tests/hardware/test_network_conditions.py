# SPDX-License-Identifier: Apache-2.0
"""Settings of networks that are known to be slow: when each holds, when it does not, where it is said."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from helpers.hand_made import card
from helpers.hand_results import by_rank, case

from cclbench.api import run
from cclbench.findings.case import Case
from cclbench.findings.finding import FINDINGS
from cclbench.hardware.network_conditions import known_conditions, network_conditions
from cclbench.machine import machine_of_ranks
from cclbench.record.selection import Selection
from cclbench.results import full_results
from cclbench.source_summaries import source_summaries

MANY = {"several_nodes": "yes", "several_per_node": "yes"}
ONE = {"several_nodes": "no", "several_per_node": "yes"}
OFI = {"network_plugin": "aws-ofi-nccl 1.18.0"}
EFA = {"fabric": "efa-v2", "nics": "32"}
IB = {"fabric": "infiniband-ndr", "nics": "8"}

HOLDS = {
    "tcp_channels": {"transports": "NET/Socket/0"},
    "tcp_network": {"network": "Socket"} | MANY,
    "no_gpudirect_rdma": {"gpudirect_rdma": "no", "transports": "NET/IB"},
    "some_gpudirect_rdma": {"gpudirect_rdma": "some channels"},
    "no_peer_to_peer": {"transports": "SHM/direct/direct"},
    "plugin_not_used": OFI | {"network": "IB"} | MANY,
    "efa_without_plugin": EFA | {"network": "IB"},
    "slow_provider": OFI | {"network": "AWS Libfabric", "network_provider": "tcp;ofi_rxm"} | MANY,
    "efa_device_rdma_off": {"FI_EFA_USE_DEVICE_RDMA": "False"},
    "peer_to_peer_disabled": {"NCCL_P2P_DISABLE": "1"} | ONE,
    "infiniband_disabled": {"NCCL_IB_DISABLE": "1"} | IB,
    "gpudirect_rdma_disabled": {"NCCL_NET_GDR_LEVEL": "LOC"} | MANY,
    "sockets_asked_for": {"NCCL_NET": "Socket"} | IB | MANY,
    "single_interface": IB | {"network_interfaces": "1", "network": "IB"},
}
USED = {"network": "AWS Libfabric", "network_provider": "efa", "gpudirect_rdma": "yes"}
FINE = {
    "sockets of one node carry nothing": {"network": "Socket", "nodes": "1"} | ONE,
    "sockets of an unknown number of nodes": {"network": "Socket"},
    "EFA": OFI | EFA | MANY | USED,
    "Slingshot by the same plug-in": OFI | MANY | {"network": "AWS Libfabric", "network_provider": "cxi"},
    "RDMA asked for": {"FI_EFA_USE_DEVICE_RDMA": "1"},
    "one GPU a node": {"NCCL_P2P_DISABLE": "1", "several_nodes": "yes", "several_per_node": "no"},
    "peer-to-peer used all the same": {"NCCL_P2P_DISABLE": "1", "transports": "P2P/CUMEM"} | ONE,
    "no InfiniBand": {"NCCL_IB_DISABLE": "1"} | EFA | MANY,
    "one node does not need it": {"NCCL_IB_DISABLE": "1"} | IB | ONE,
    "the only interface": {"network_interfaces": "1", "fabric": "roce-100", "nics": "1"},
    "nothing": {},
}


def holding(facts: dict[str, str]) -> list[str]:
    return [each.name for each in known_conditions({name: [value] for name, value in facts.items()})]


def test_each_condition_has_an_example_a_source_and_a_claim() -> None:
    assert [each.name for each in network_conditions()] == list(HOLDS)
    for condition in network_conditions():
        assert urlsplit(condition.source).scheme == "https"
        claim = condition.claim({fact: [value] for fact, value in HOLDS[condition.name].items()})
        assert "{" not in claim


@pytest.mark.parametrize("name", HOLDS)
def test_a_condition_holds_alone(name: str) -> None:
    assert holding(HOLDS[name]) == [name]


@pytest.mark.parametrize("name", FINE)
def test_other_settings_are_not_flagged(name: str) -> None:
    assert holding(FINE[name]) == []


PREFIX = "alpha-1:50292:50301 [0] NCCL INFO "
FALLEN_BACK = (
    "NCCL version 2.29.2+cuda12.8",
    "NET/OFI Initializing aws-ofi-nccl 1.18.0",
    "NET/Socket : Using [0]ens32:10.0.10.221<0>",
    "Using network Socket",
    "comm 0x63233dc434d0 rank 1 nRanks 16 nNodes 2 localRanks 8 localRank 1 MNNVL 0",
)


def test_the_first_screen_says_what_is_slow_and_who_says_so(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("".join(f"{PREFIX}{line}\n" for line in FALLEN_BACK))
    read = run(tmp_path / "job.log", store=tmp_path / "store")
    (summary,) = source_summaries(read, full_results(read, Selection()))
    assert summary.warnings == [
        "NCCL uses TCP sockets between nodes (Using network Socket), not the network's own transport.",
        "NCCL loads aws-ofi-nccl 1.18.0, but its network is Socket: the plug-in finds no provider.",
    ]
    _, conditions = summary.tables
    assert [column.name for column in conditions.columns] == ["condition", "what to do", "source"]
    assert conditions.rows[1][2] == "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html"


def test_a_finding_has_no_gain() -> None:
    """By the card alone: eight accelerators of a node, and NCCL_P2P_DISABLE=1."""
    software = {"communication": {"library": "nccl", "environment": {"NCCL_P2P_DISABLE": "1"}}}
    own = card(hardware__count=8, hardware__per_node=8, software=software)
    base = case(*by_rank("time.step", 1.0))
    with_card = Case(base.results, base.record, machine_of_ranks(own, {}, {}), own)
    (found,) = FINDINGS.get("network_setting").detect(with_card)
    assert found.claim.startswith("NCCL_P2P_DISABLE=1: GPUs of a node exchange data through host memory")
    assert (found.gain_s, found.lost_s, found.confidence) == (None, None, "low")
    assert "not measured" in (found.no_gain or "")
    assert list(FINDINGS.get("network_setting").detect(base)) == []

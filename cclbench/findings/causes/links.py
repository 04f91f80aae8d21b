# SPDX-License-Identifier: Apache-2.0
"""Links: compared with those of other groups, and with the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Final, NamedTuple

from cclbench.analyzers.view.transfers import WAITING
from cclbench.findings.case import Case
from cclbench.findings.finding import Finding, finding
from cclbench.findings.groups import ranks_of_group, shape_of
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_TRANSFER: Final = metric_name("time.exposed_transfer")
_USED: Final = metric_name("comm.bandwidth_utilization")
_BUS: Final = metric_name("comm.busbw")
_SLOW, _SLOW_OF_TWO = 0.75, 0.5
"""A group's links are slow below this share of its peers' bandwidth, and of a single peer's."""
_CALLS: Final = """SELECT rank, kind, "group", step, in_bytes, start_ns, end_ns - start_ns AS ns, wait_ns
FROM collectives WHERE kind = '{kind}' AND "group" = '{group}'
ORDER BY ns - coalesce(wait_ns, 0) DESC LIMIT 20"""
_FAR: Final = 0.25
"""Below this share of the links' rate large messages probably use another path."""
_LARGE: Final = 16
"""Message size from which latency no longer matters, MiB."""
_MIB: Final = {"MiB": 1, "GiB": 1 << 10, "TiB": 1 << 20}
_SIZE: Final = re.compile(r"(\d+)([MGT]iB)-")


class LinkUse(NamedTuple):
    """A group's large messages of one kind: bus bandwidth and link rate, B/s; range of sizes."""

    bus: float
    rate: float
    size: str

    @property
    def link_share(self) -> float:
        """Bus bandwidth as a share of the links' rate."""
        return self.bus / self.rate


def far_below_links(case: Case) -> dict[tuple[str, str], LinkUse]:
    """By kind and group: collectives whose largest messages use less than `_FAR` of the links' rate.

    Only transfers that are separated from waiting count.
    """
    rates = case.parts(_BUS)
    bus = {
        (row.collective, row.group, row.category): row.number
        for row in rates
        if row.category and not row.stat
    }
    largest: dict[tuple[str, str], tuple[int, LinkUse]] = {}
    rows = case.parts(_USED)
    for row in rows:
        size, key = _least_mebibytes(row.category), (row.collective, row.group, row.category)
        if size < _LARGE or not (row.collective and row.group) or not row.number or row.stat:
            continue
        if key in bus and WAITING not in (row.reason or ""):
            use = LinkUse(bus[key], bus[key] / row.number, row.category or "")
            largest[row.collective, row.group] = max(
                largest.get((row.collective, row.group), (0, use)), (size, use)
            )
    return {key: use for key, (_, use) in largest.items() if use.link_share < _FAR}


def _least_mebibytes(size: str | None) -> int:
    """The least size of a range such as `16MiB-64MiB`; 0 below a MiB."""
    match = _SIZE.match(size or "")
    return int(match[1]) * _MIB[match[2]] if match else 0


@finding(
    "slow_link",
    title="one group's links are slower than those of groups like it",
    rule="comm.busbw of a kind and group below 75 % of the median of other groups with the same kind, message"
    " size, number of ranks and stride; below 50 % where there is only one such group",
    gain="the group's transfers take its peers' time",
    actions={
        "any": (
            "run nccl-tests between those ranks alone, and check NIC or link errors, the negotiated width"
            " and speed, and the PCIe and NUMA placement of the ranks",
            "drain the node, or place the group within one node",
        ),
    },
)
def slow_link(case: Case) -> Iterator[Finding]:
    for (kind, group), (rate, usual, peers) in slow_groups(case).items():
        exposed = case.ranks(_TRANSFER, collective=kind, group=group)
        lost = {rank: seconds * (1 - rate / usual) for rank, seconds in exposed.items()}
        yield case.finding(
            "slow_link",
            f"{kind} in group {group} reaches {humanise(rate, 'B/s')}, while similar groups reach"
            f" {humanise(usual, 'B/s')} with messages of the same size.",
            lost=lost,
            whatif=[f"transfers[{kind}&group={group}].time=x{rate / usual:.3f}"],
            confidence="high" if peers > 2 else "medium",
            because="compares transfers without waiting, from the last rank's arrival on, with those of"
            f" {peers} similar group{'s' * (peers > 1)}",
            evidence=case.evidence(
                (_BUS, {"collective": kind, "group": group}),
                (_TRANSFER, {"collective": kind, "group": group}),
            ),
            query=_CALLS.format(kind=kind, group=group),
        )


def slow_groups(case: Case) -> dict[tuple[str, str], tuple[float, float, int]]:
    """Slow kinds and groups: bus bandwidth, that of the peers, and the number of peers.

    Of the message sizes shared with peers, the one with the median ratio counts.
    """
    rates: dict[tuple[str, tuple[int, ...], str], dict[str, float]] = {}
    rows = case.parts(_BUS)
    for row in rows:
        if row.collective and row.group and row.category and not row.stat and row.provenance != "modelled":
            rates.setdefault((row.collective, shape_of(row.group), row.category), {})[row.group] = row.number
    compared: dict[tuple[str, str], list[tuple[float, float, float, int]]] = {}
    for (kind, _, _), group_rates in rates.items():
        for group, rate in group_rates.items():
            others = [other for name, other in group_rates.items() if name != group]
            if others:
                usual = median(others)
                compared.setdefault((kind, group), []).append((rate / usual, rate, usual, len(others)))
    slow: dict[tuple[str, str], tuple[float, float, int]] = {}
    for key, ratios in compared.items():
        ratio, rate, usual, peers = sorted(ratios)[len(ratios) // 2]
        if ratio < (_SLOW if peers > 1 else _SLOW_OF_TWO):
            slow[key] = rate, usual, peers
    return slow


@finding(
    "slow_network",
    title="large messages reach far less than the links' bandwidth",
    rule=f"{_USED} of a kind and group below 25 % with messages of at least 16 MiB that are matched across"
    " ranks, and the group is not slower than others",
    gain="the group's transfers run at the catalog's link rate",
    actions={
        "pytorch": (
            "check what NCCL chose: NCCL_DEBUG=INFO prints NET/IB or NET/Socket, P2P or SHM; across nodes"
            " set NCCL_IB_HCA and NCCL_SOCKET_IFNAME, and give containers /dev/infiniband and memlock",
            "run nccl-tests (rccl-tests) of that size on the same nodes, and check nvidia-smi topo -m",
        ),
        "any": (
            "check what the communication library chose: RDMA or sockets across nodes, direct links or"
            " host memory within one",
            "run the library's own bandwidth test of that size on the same nodes",
        ),
    },
)
def slow_network(case: Case) -> Iterator[Finding]:
    slower = slow_groups(case)
    for (kind, group), use in far_below_links(case).items():
        if (kind, group) in slower:
            continue
        exposed = case.ranks(_TRANSFER, collective=kind, group=group)
        keys: Mapping[str, str] = {"collective": kind, "group": group}
        tier = case.machine.tier_of(ranks_of_group(group) or ()).value if ranks_of_group(group) else None
        path = {
            "scale_out": ": looks like sockets, or one interface of several",
            "scale_up": ": looks like PCIe or host memory",
        }.get(tier or "", "")
        yield case.finding(
            "slow_network",
            f"{kind} of {use.size} in group {group} reaches {humanise(use.bus, 'B/s')} of the"
            f" {humanise(use.rate, 'B/s')} of its links{path}.",
            lost={rank: seconds * (1 - use.link_share) for rank, seconds in exposed.items()},
            whatif=[f"transfers[{kind}&group={group}].time=x{max(use.link_share, 1e-6):.6f}"],
            confidence="medium",
            because="the transfer without waiting, from the last rank's arrival on; the links are taken from"
            " the card, else from the catalog's systems with such nodes",
            evidence=case.evidence(
                (_USED, {**keys, "category": use.size}),
                (_BUS, {**keys, "category": use.size}),
                (_TRANSFER, keys),
            ),
            query=_CALLS.format(kind=kind, group=group),
        )

# SPDX-License-Identifier: Apache-2.0
"""Network software: the latency a hop adds to NCCL's figures for InfiniBand, and the permitted protocols.

Both depend on the software: the same p5 nodes were published at 175 and at 69 µs for 8 bytes, which is what
Simple alone and LL take at the same hop latency.  So each has a range, whose ends count where two times of
one machine are compared (`ratio`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from cclbench.hardware.system import System

LL, LL128, SIMPLE = "LL", "LL128", "Simple"
PROTOCOLS: Final = (LL, LL128, SIMPLE)


class LatencyRange(NamedTuple):
    """Least, expected and most, s."""

    least: float = 0.0
    expected: float = 0.0
    most: float = 0.0

    def about_expected(self, expected: float) -> LatencyRange:
        """The range around another expected value: scaled, or shifted if the expected value was 0."""
        if self.expected == 0:
            return LatencyRange(expected, expected, expected + self.most)
        return LatencyRange(*(latency * (expected / self.expected) for latency in self))


NOTHING: Final = LatencyRange()


@dataclass(frozen=True, slots=True)
class TransportSoftware:
    """A transport: its latency per hop; messages above `eager_bytes` (None: no limit) add `rendezvous`.

    `protocols` are the NCCL protocols it permits, `surely` those that every release permitted.
    """

    hop: LatencyRange
    rendezvous: LatencyRange = NOTHING
    eager_bytes: float | None = None
    protocols: tuple[str, ...] = PROTOCOLS
    surely: tuple[str, ...] = PROTOCOLS
    assumed: str | None = None


_US: Final = 1e-6

# NCCL's table is for InfiniBand, so verbs add nothing to it.  LL128 is used only where NCCL sees interfaces
# on the GPU's PCIe switch, which virtual machines may hide.
_VERBS: Final = TransportSoftware(LatencyRange(0.0, 0.0, 5 * _US), surely=(LL, SIMPLE))
# aws-ofi-nccl: its own cost model assumes 20 µs a hop (TUNER_NET_LATENCY).  The 150, 75 and 35 µs that it
# passes to NCCL's tuner by machine steer the choice of an algorithm; no measured time agrees with them.
_OFI: Final = LatencyRange(8 * _US, 20 * _US, 40 * _US)
# It forces Simple where EFA does not write 128 bytes in order: before p5, and on p5 in releases before 1.8
# (aws-ofi-nccl issue 76, pull requests 280 and 516).
_EFA: Final = TransportSoftware(_OFI, surely=(SIMPLE,))
_EFA_BEFORE_P5: Final = TransportSoftware(_OFI, protocols=(SIMPLE,), surely=(SIMPLE,))
# fi_cxi(7): rendezvous from 2,049 B on; such a message costs what aws-ofi-nccl assumes.
_CXI: Final = TransportSoftware(
    LatencyRange(0.0, 0.0, 3 * _US), LatencyRange(5 * _US, 20 * _US, 40 * _US), eager_bytes=2048.0
)
# The installer's configuration sets NCCL_PROTO=Simple,LL128.  No latency is published: the expected one is
# the geometric mean of 20 and 75 µs, the two figures of the other cloud network plug-in.
_TCPXO: Final = TransportSoftware(
    LatencyRange(15 * _US, 39 * _US, 100 * _US),
    protocols=(LL128, SIMPLE),
    surely=(SIMPLE,),
    assumed="the latency of tcpxo is assumed to be 39 us a hop, as for another cloud's plug-in",
)
# The recommended settings of TCPX set NCCL_PROTO=Simple; its latency is not published either.
_TCPX: Final = replace(_TCPXO, protocols=(SIMPLE,), assumed=(_TCPXO.assumed or "").replace("tcpxo", "tcpx"))


def network_software(system: System, transport: str | None) -> TransportSoftware | None:
    """The software of a system's network, by name (None: its default); None if its latency is not known."""
    out = system.scale_out
    software = _transport_software(system, transport)
    if software is None or out is None or out.hop_latency_s is None:
        return software
    return replace(software, hop=software.hop.about_expected(out.hop_latency_s), assumed=None)


def _transport_software(system: System, transport: str | None) -> TransportSoftware | None:
    out = system.scale_out
    name = transport or (out.transport if out else None)
    if out is None or name is None:
        return None
    if name == "aws-ofi-nccl":
        return _EFA if system.architecture in ("hopper", "blackwell") else _EFA_BEFORE_P5
    software = {"ib-verbs": _VERBS, "cxi": _CXI, "tcpxo": _TCPXO, "tcpx": _TCPX}.get(name)
    stated = out.latency_s(transport)
    if stated is None:
        return software
    hop = LatencyRange(stated / 2, stated, 2 * stated)
    return TransportSoftware(hop) if software is None else replace(software, hop=hop, assumed=None)

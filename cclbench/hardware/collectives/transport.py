# SPDX-License-Identifier: Apache-2.0
"""Latency that network software adds to a hop, over what NCCL's table has for InfiniBand, by plug-in.

It is a fact of software: the same p5 nodes were published at 175 and at 69 µs for 8 bytes.  So each has a
range, which makes most of the band of small messages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from cclbench.hardware.system import System


class Range(NamedTuple):
    """Least, expected and most, s."""

    least: float = 0.0
    expected: float = 0.0
    most: float = 0.0


NOTHING: Final = Range()


@dataclass(frozen=True, slots=True)
class Software:
    """A transport: its latency a hop; messages above `eager_bytes` (None: no such limit) add `rendezvous`."""

    hop: Range
    rendezvous: Range = NOTHING
    eager_bytes: float | None = None
    assumed: str | None = None


_US: Final = 1e-6

# NCCL's table is of InfiniBand, so verbs add nothing to it.
_VERBS: Final = Software(Range(0.0, 0.0, 5 * _US))
# aws-ofi-nccl: its own tuner, which runs on p5 and later, counts on 20 µs (TUNER_NET_LATENCY); what it gives
# NCCL's tuner by machine (150, 75, 35 µs) is what older machines and older releases of it take.
_OFI_TUNED: Final = 20 * _US
# fi_cxi(7): rendezvous from 2,049 B on; such a message through aws-ofi-nccl costs what its tuner counts on.
_CXI: Final = Software(Range(0.0, 0.0, 3 * _US), Range(5 * _US, _OFI_TUNED, 40 * _US), eager_bytes=2048.0)
# Nothing published: between the two figures of the other plug-in for a network of a cloud, their mean
# (geometric) expected.
_CLOUD: Final = Software(
    Range(15 * _US, 39 * _US, 100 * _US),
    assumed="the transport's latency is taken for 39 us, as those of other clouds' plug-ins",
)


def software(system: System, transport: str | None) -> Software | None:
    """What drives a system's network, by name (None: its default); None where its latency is not known."""
    out = system.scale_out
    name = transport or (out.transport if out else None)
    if out is None or name is None:
        return None
    stated = out.latency_s(transport)
    if name == "aws-ofi-nccl":
        return _ofi(system, stated)
    known = {"ib-verbs": _VERBS, "cxi": _CXI, "tcpxo": _CLOUD}.get(name)
    if stated is None:
        return known
    hop = Range(stated / 2, stated, 2 * stated)
    return Software(hop) if known is None else replace(known, hop=hop, assumed=None)


def _ofi(system: System, stated: float | None) -> Software | None:
    if system.architecture in ("hopper", "blackwell"):
        return Software(Range(0.4 * _OFI_TUNED, _OFI_TUNED, max(stated or 0.0, 2 * _OFI_TUNED)))
    return None if stated is None else Software(Range(stated / 2, stated, 1.5 * stated))

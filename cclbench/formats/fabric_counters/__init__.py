# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the counters of RDMA devices, /sys/class/infiniband: InfiniBand, RoCE, AWS EFA.

A snapshot is the output of `grep -r . /sys/class/infiniband/*/ports/*/{counters,hw_counters}`: a line
`PATH:VALUE` for each counter; `PATH=VALUE`, `PATH VALUE` and the headings of `more` and `tail` are accepted,
too.  A file has one or several snapshots of one host, each after a line `# time_ns N` (nanoseconds since the
epoch) if the times are known; scripts/capture/fabric_counters.sh writes both.

Units.  `port_xmit_data` and `port_rcv_data` count words of four octets, in 64 bits (the kernel's
Documentation/ABI/stable/sysfs-class-infiniband); 32-bit hardware counters stop at 2³²−1.  EFA's `tx_bytes`
and `rx_bytes` are bytes and include messages and RDMA: in a published snapshot rx_bytes equals
recv_bytes + rdma_read_bytes and tx_bytes equals send_bytes + rdma_read_resp_bytes to 1e-7, so those parts
are rows under their own names and are never added to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.counter_rows import NO_COUNTER, CounterRows
from cclbench.formats.texts import strip_decoration

Counted = tuple[str, str, str]
Snapshot = dict[Counted, int | None]

# No text before a path, such as a host's name: ports of two hosts have the same names.
_FOLDERS: Final = r"(?:/\S*/|[\w./-]*/)?"
_LINE = re.compile(
    _FOLDERS + r"([\w.-]{1,64})/ports/(\d{1,4})/(counters|hw_counters)/(\w{1,64})(?:\s*[:=]\s*|\s+)(.*)"
)
_OTHER = re.compile(_FOLDERS + r"(?:infiniband/\S+|ports/\d{1,4}/\S+)[:=\s]")
_HEADING = re.compile(rf"(?:==> )?({_FOLDERS}[\w.-]{{1,64}}/ports/\d{{1,4}}/[\w./-]+)(?: <==)?")
_FENCE = re.compile(r":{5,}")
_SEEN = re.compile(
    rb"/ports/\d{1,4}/(?:hw_)?counters/\w{1,64}(?:\s*[:=]\s*|\s+)(?:(?:<==|:{5,})\s+)?(?:\d|N/A)"
)
_STUCK: Final = (1 << 32) - 1

WORDS: Final = {"port_xmit_data": "nic_tx_bytes", "port_rcv_data": "nic_rx_bytes"}
BYTES: Final = {"tx_bytes": "nic_tx_bytes", "rx_bytes": "nic_rx_bytes"}
PARTS: Final = frozenset(
    {
        *("send_bytes", "recv_bytes", "rdma_read_bytes", "rdma_read_resp_bytes", "rdma_write_bytes"),
        *("rdma_write_recv_bytes", "retrans_bytes"),
    }
)
EVENTS: Final = {
    "retrans_pkts": "nic_retransmits",
    "roce_adp_retrans": "nic_retransmits",
    "np_ecn_marked_roce_packets": "nic_congestion_marks",
    "np_cnp_sent": "np_cnp_sent_count",
    "rp_cnp_handled": "rp_cnp_handled_count",
    "packet_seq_err": "packet_seq_err_count",
    "out_of_sequence": "out_of_sequence_count",
    "local_ack_timeout_err": "local_ack_timeout_err_count",
    "port_xmit_discards": "port_xmit_discards_count",
}
"""An ECN mark, the notification it causes and its handling are one event counted three times, so only marks
are `nic_congestion_marks`; a packet out of sequence, or a timeout, may cause one retransmission or many."""


class FabricCounters(EvidenceReader):
    """Reader of snapshots of RDMA port counters."""

    name = "fabric_counters"
    counts: Mapping[str, str] = {"nic": "snapshots of /sys/class/infiniband from before and after"}
    precedence = 1
    description = "Snapshots of /sys/class/infiniband: InfiniBand, RoCE and AWS EFA port counters"
    extensions: tuple[str, ...] = (".txt", ".log", ".txt.gz", ".log.gz")
    capture = "snapshots of `/sys/class/infiniband`, EFA's included"
    versions = "Linux sysfs-class-infiniband; mlx5 and EFA hw_counters"
    figures = re.compile(
        r"/ports/\d{1,4}/(?:hw_)?counters/[a-z0-9_]{1,64}(?:\s*[:=]\s*|\s+)(?:\d{1,20})?\s*$"
        r"|^\d{1,20}\s*$|# time_ns 1\d{18}\b"
    )
    tested = "documentation: the kernel's ABI, published snapshots of mlx5 and EFA ports"

    def sniff(self, head: bytes) -> float:
        """Sure of lines with a counter's path."""
        return 0.9 if _SEEN.search(strip_decoration(head)) else 0.0

    def read(self, path: Path) -> Evidence:
        """Differences from each snapshot to the next, by port."""
        rows = CounterRows(path)
        at: int | None = None
        snapshot: Snapshot = {}
        for line in _expand_headings(rows.text_lines()):
            mark = rows.time_mark(line)
            match = _LINE.fullmatch(line)
            if mark is None and match is None:
                if _OTHER.match(line):
                    rows.left_out[NO_COUNTER] += 1
                elif line.strip():
                    raise rows.error_at_line(
                        "neither `# time_ns N` nor a counter's `PATH:VALUE`",
                        "leave out other lines, and text before the paths: one file for each host",
                    )
                continue
            key = None if match is None else (f"{match[1]}/{match[2]}", match[3], match[4])
            if key is None or key in snapshot:
                _add_snapshot(rows, snapshot, at)
                snapshot, at = {}, mark
            if key is not None and match is not None:
                snapshot[key] = _counter_value(rows, key, match[5].strip())
        _add_snapshot(rows, snapshot, at)
        return rows.evidence()


def _expand_headings(lines: Iterator[str]) -> Iterator[str]:
    """The lines, with a value under a heading rewritten as `PATH:VALUE`."""
    path = ""
    for line in map(str.rstrip, lines):
        if heading := _HEADING.fullmatch(line):
            path = heading[1]
        elif path and line and not _FENCE.fullmatch(line):
            yield f"{path}:{line}"
            path = ""
        elif not _FENCE.fullmatch(line):
            yield line


def _counter_value(rows: CounterRows, key: Counted, text: str) -> int | None:
    """A counter's value as stated; None, and counted, if the counter is not read."""
    _, folder, name = key
    if name not in EVENTS and name not in (WORDS if folder == "counters" else BYTES.keys() | PARTS):
        rows.left_out[NO_COUNTER] += 1
        return None
    value = rows.parse_number(text)
    if value is None:
        return None
    if value != int(value):
        raise rows.error_at_line("a count that is no whole number", "the file is damaged: capture it again")
    if folder == "counters" and value == _STUCK:
        rows.left_out["counts that stopped at 2³²−1"] += 1
        return None
    return int(value)


def _add_snapshot(rows: CounterRows, snapshot: Snapshot, at: int | None) -> None:
    words = {port for port, folder, name in snapshot if folder == "counters" and name in WORDS}
    for (port, folder, name), value in snapshot.items():
        if value is None:
            continue
        if folder == "counters" and name in WORDS:
            rows.add_cumulative(WORDS[name], value * 4, port=port, at_ns=at)
        elif name in BYTES and port not in words:
            rows.add_cumulative(BYTES[name], value, port=port, at_ns=at)
        else:  # of a port that counts its bytes in both places, one counts
            rows.add_cumulative(EVENTS.get(name, name), value, port=port, at_ns=at)


READERS.add(FabricCounters.name, FabricCounters(), origin=__name__)

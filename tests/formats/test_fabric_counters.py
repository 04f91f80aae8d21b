# SPDX-License-Identifier: Apache-2.0
"""Snapshots of RDMA ports: words and bytes, what is a part of what, and what damaged files say.

The layouts are the kernel's and published captures'; the figures are made up so that sums can be seen.
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats import recognise_format
from cclbench.formats.fabric_counters import FabricCounters
from cclbench.ground.evidence_schema import COUNTERS

SYS = "/sys/class/infiniband"
T0, T1 = 1_712_345_678_000_000_000, 1_712_345_680_000_000_000


def mlx5(xmit: int, rcv: int, **more: object) -> str:
    """A ConnectX port, as grep prints it."""
    lines = [f"counters/port_xmit_data:{xmit}", f"counters/port_rcv_data:{rcv}"]
    lines += [f"{name.replace('__', '/')}:{value}" for name, value in more.items()]
    return "".join(f"{SYS}/mlx5_0/ports/1/{line}\n" for line in lines)


def efa(tx: int, rx: int, read: int) -> str:
    """An EFA port, which counts bytes, and RDMA among them."""
    counted = {"lifespan": 12, "rdma_read_bytes": read, "tx_bytes": tx, "rx_bytes": rx, "retrans_pkts": 3}
    return "".join(f"{SYS}/rdmap144s27/ports/1/hw_counters/{n}:{v}\n" for n, v in counted.items())


def at(time: int, text: str) -> str:
    """A snapshot whose time is told."""
    return f"# time_ns {time}\n{text}"


def read(path: Path) -> tuple[list[tuple[Any, ...]], dict[str, int], list[str]]:
    """(counter, port, value, unit, start, end) of each row; what was left out; notes."""
    evidence = FabricCounters().read(path)
    assert evidence.counters.schema.equals(COUNTERS)
    keys = ("counter", "port", "value", "unit", "start_ns", "end_ns")
    rows = [tuple(row[key] for key in keys) for row in evidence.counters.to_pylist()]
    return rows, evidence.left_out, evidence.notes


def test_words_of_four_octets_count_once(written: Any) -> None:
    rows, left_out, notes = read(written(at(T0, mlx5(1000, 500)) + at(T1, mlx5(251_000, 1500))))
    assert rows == [
        ("nic_tx_bytes", "mlx5_0/1", 1_000_000.0, "B", T0, T1),
        ("nic_rx_bytes", "mlx5_0/1", 4000.0, "B", T0, T1),
    ]
    assert (left_out, notes) == ({}, [])
    text = [mlx5(n, n, hw_counters__tx_bytes=4 * n, hw_counters__rx_bytes=4 * n) for n in (10, 20)]
    rows, _, _ = read(written("".join(text)))
    names = ("nic_tx_bytes", "nic_rx_bytes", "tx_bytes", "rx_bytes")
    assert [(row[0], row[2]) for row in rows] == [(name, 40.0) for name in names]


def test_efa_counts_bytes_and_its_parts_are_not_added(written: Any) -> None:
    rows, left_out, _ = read(written(at(T0, efa(100, 200, 150)) + at(T1, efa(1100, 2200, 1900))))
    assert rows == [
        ("rdma_read_bytes", "rdmap144s27/1", 1750.0, "B", T0, T1),
        ("nic_tx_bytes", "rdmap144s27/1", 1000.0, "B", T0, T1),
        ("nic_rx_bytes", "rdmap144s27/1", 2000.0, "B", T0, T1),
        ("nic_retransmits", "rdmap144s27/1", 0.0, "count", T0, T1),
    ]
    assert left_out == {"values that are not read": 2}  # lifespan is how old values may be


def test_congestion_is_counted_once(written: Any) -> None:
    """The mark, the notification it causes and its handling are three counters of one event."""
    names = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "packet_seq_err")
    before = mlx5(0, 0, **{f"hw_counters__{name}": 10 for name in names})
    after = mlx5(0, 0, **{f"hw_counters__{name}": 10 + i for i, name in enumerate(names, 1)})
    rows, _, _ = read(written(at(T0, before) + at(T1, after)))
    counted = ("nic_congestion_marks", "np_cnp_sent_count", "rp_cnp_handled_count", "packet_seq_err_count")
    assert [(row[0], row[2], row[3]) for row in rows[2:]] == [
        (name, float(n), "count") for n, name in enumerate(counted, 1)
    ]


def test_counts_that_cannot_be_known_and_large_ones(written: Any) -> None:
    text = mlx5((1 << 32) - 1, 5).replace("port_rcv_data:5", "port_rcv_data:N/A (no PMA)")
    rows, left_out, _ = read(written(text + text))
    assert rows == []
    assert left_out == {"counts that stopped at 2³²−1": 2, "values that are not available": 2}
    # beyond 32 bits they are exact
    rows, _, _ = read(written(mlx5((1 << 61) + 1, 0) + mlx5((1 << 61) + 4, 0)))
    assert rows[0][2] == 12.0


def test_other_ways_to_name_ports(written: Any) -> None:
    text = mlx5(1, 1) + mlx5(2, 2)
    path = written(gzip.compress(text.replace(SYS + "/", "").encode()), "counters.txt.gz")
    devices = "/sys/devices/pci0000:00/0000:00:01.0/infiniband"
    for found in (read(path), read(written(text.replace(SYS, devices)))):
        assert [row[1:3] for row in found[0]] == [("mlx5_0/1", 4.0), ("mlx5_0/1", 4.0)]
    path = f"{SYS}/mlx5_0/ports/1/counters/port_rcv_data"
    text = "{fence}\n{path}\n{fence}\n7\n{fence}\n{path}\n{fence}\n9\n"
    assert [row[2] for row in read(written(text.format(path=path, fence=":" * 5)))[0]] == [8.0]
    refused(read, written(text.format(path=path, fence=":" * 4)))


def _under_headings(text: str, before: str, after: str) -> str:
    return "".join(before + line.replace(":", after, 1) + "\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("", "="), ("", " "), ("", "\t"), ("", ": "), ("", "\n"), ("==> ", " <==\n")),
        (":::::::::::::::\n", "\n::::::::::::::\n"),
    ],
)
def test_other_ways_to_print_a_path_and_its_value(written: Any, before: str, after: str) -> None:
    plain = efa(100, 200, 150) + f"{SYS}/rdmap144s27/ports/1/state:4: ACTIVE\n" + efa(1100, 2200, 1900)
    path = written(_under_headings(plain, before, after))
    assert FabricCounters().sniff(path.read_bytes()) > 0
    assert read(path) == read(written(plain, "plain.txt"))


@pytest.mark.parametrize("prefix", ["node1: ", "node1:", "[1,0]<stdout>:"])
def test_ports_of_two_hosts_are_never_one(written: Any, prefix: str) -> None:
    message = refused(read, written(_under_headings(mlx5(1, 1) + mlx5(2, 2), prefix, ":")))
    assert re.search(r"line 1: neither .* one file for each host", message)


def test_other_files_of_the_folder_are_counted_and_do_not_end_a_snapshot(written: Any) -> None:
    assert recognise_format(written(""), at(T0, efa(1, 1, 1)).encode()).name == "fabric_counters"
    state = f"{SYS}/mlx5_0/ports/1/state:4: ACTIVE\n"
    other = f"{state}{SYS}/mlx5_0/node_guid:0000:0000:0000:0001\n\n"
    rows, left_out, _ = read(written(mlx5(1, 1) + other + mlx5(2, 2)))
    assert [row[1] for row in rows] == ["mlx5_0/1", "mlx5_0/1"]
    assert left_out == {"values that are not read": 2}
    first, second = mlx5(1, 1).splitlines(keepends=True)
    text = at(T0, first + state + second) + at(T1, mlx5(2, 2))
    assert [row[4:] for row in read(written(text))[0]] == [(T0, T1), (T0, T1)]


BROKEN = {
    "empty": ("", "there is no counter in it"),
    "other text": ("hello\n", "line 1: neither"),
    "absurd": (mlx5(1 << 63, 1), "line 1: a counter below 0 or beyond 2⁶³"),
    "more digits than a number has": (mlx5(10**30, 1), "line 1: text where a number"),
    "a fraction": (f"{SYS}/mlx5_0/ports/1/counters/port_rcv_data:1.5\n", "line 1: a count that is no whole"),
    "absurd time": (f"# time_ns {1 << 63}\n", "line 1: a time beyond 2⁶³ ns"),
}


@pytest.mark.parametrize(("text", "says"), BROKEN.values(), ids=BROKEN)
def test_broken_files_say_where(written: Any, text: str, says: str) -> None:
    refused(read, written(text), says)


def test_the_capture_script_writes_what_is_read(repository: Path, tmp_path: Path) -> None:
    """Without RDMA devices only its time."""
    script = repository / "scripts" / "capture" / "fabric_counters.sh"
    subprocess.run(["sh", str(script), "out.txt"], cwd=tmp_path, check=True, env={"PATH": os.environ["PATH"]})  # noqa: S607
    assert re.match(r"# time_ns 1\d{18}\n", (tmp_path / "out.txt").read_text())


@pytest.mark.parametrize(
    ("folder", "name", "counter"),
    [
        *(("counters", "port_xmit_data", "nic_tx_bytes"), ("hw_counters", "port_xmit_data", None)),
        *(("hw_counters", "tx_bytes", "nic_tx_bytes"), ("counters", "tx_bytes", None)),
        *(("counters", "rdma_write_bytes", None), ("hw_counters", "rdma_write_bytes", "rdma_write_bytes")),
        ("counters", "port_xmit_discards", "port_xmit_discards_count"),
        ("hw_counters", "roce_adp_retrans", "nic_retransmits"),
        *(("hw_counters", name, f"{name}_count") for name in ("out_of_sequence", "local_ack_timeout_err")),
    ],
)
def test_a_counter_is_of_its_own_folder(written: Any, folder: str, name: str, counter: str | None) -> None:
    line = f"{SYS}/mlx5_0/ports/1/{folder}/{name}:"
    rows, left_out, _ = read(written(f"{line}1\n{line}3\n"))
    factor = 4 if name == "port_xmit_data" else 1
    assert [row[:3] for row in rows] == ([] if counter is None else [(counter, "mlx5_0/1", 2.0 * factor)])
    assert left_out == ({"values that are not read": 2} if counter is None else {})


def test_only_words_of_32_bits_stop(written: Any) -> None:
    """The count below the last of 32 bits, the next beyond it, and bytes that happen to be as many."""
    most = (1 << 32) - 1
    rows, left_out, _ = read(written(mlx5(most - 1, 0) + mlx5(most + 1, 0)))
    assert [row[2] for row in rows] == [8.0, 0.0]
    rows, more, _ = read(written(efa(0, 0, 0) + efa(most, 5, 7)))
    assert [row[2] for row in rows] == [7.0, most, 5.0, 0.0]
    assert "counts that stopped at 2³²−1" not in left_out | more

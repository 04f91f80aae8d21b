# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi's outputs: units, GPM's rates as bytes, NVLink's counts, and what damaged files say.

The layouts are those of published outputs; figures are made up so that products can be seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats import recognise_format
from cclbench.formats.nvidia_smi import NvidiaSmi
from cclbench.ground.evidence_schema import COUNTERS

KIB, MIB = 1024, 1 << 20

DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk  rxpci  txpci
# Idx      W      C      C      %      %    MHz    MHz   MB/s   MB/s
    0    150     60      -     90     70   7501   1882    120     80
    1    140     58      -      -     69   7501   1867    100     60
"""

DATED = """\
#Date, Time, gpu, pwr, smutil, dram, nvlrx, nvltx
#YYYYMMDD, HH:MM:SS, Idx, W, GPM:%, GPM:%, GPM:MiB/s, GPM:MiB/s
20240115, 12:34:56, 0, 70, -, -, -, -
20240115, 12:34:57, 0, 70, 95, 20, 100, 1
20240115, 12:34:59, 0, 71, 95, 20, 200, 2
20240115, 12:35:01, 0, 72, 95, 20, 300, 3
"""

QUERY = """\
timestamp, index, name, utilization.gpu [%], utilization.memory [%], power.draw [W], temperature.gpu
2023/07/16 19:57:29.292, 0, NVIDIA A10G, 99 %, 40 %, 125.72 W, 30
2023/07/16 19:57:29.302, 1, NVIDIA A10G, 0 %, 0 %, [N/A], 30
"""


def nvlink(*kib: int, gpu: int = 0) -> str:
    """A GPU's links, each with what it sent and twice that received."""
    lines = [f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-34bf77d1-c686)"]
    for link, sent in enumerate(kib):
        lines += [f"\t Link {link}: Data Tx: {sent} KiB", f"\t Link {link}: Data Rx: {2 * sent} KiB"]
    return "\n".join(lines) + "\n"


def read(path: Path) -> tuple[list[tuple[Any, ...]], dict[str, int], list[str]]:
    """(device, port, counter, value, unit, start, end) of each row; what was left out; notes."""
    evidence = NvidiaSmi().read(path)
    assert evidence.counters.schema.equals(COUNTERS)
    keys = ("device", "port", "counter", "value", "unit", "start_ns", "end_ns")
    rows = [tuple(row[key] for key in keys) for row in evidence.counters.to_pylist()]
    return rows, evidence.left_out, evidence.notes


def test_dmon_in_the_units_it_states(written: Any) -> None:
    rows, left_out, _ = read(written(DMON))
    found = {gpu: {row[2]: row[3] for row in rows if row[0] == gpu} for gpu in (0, 1)}
    first = {"power": 150.0, "gpu_utilization": 0.9, "memory_utilization": 0.7, "memory_clock": 7.501e9}
    first |= {"sm_clock": 1.882e9, "pcie_rx_rate": 120e6, "pcie_tx_rate": 80e6}
    second = {"power": 140.0, "memory_utilization": 0.69, "memory_clock": 7.501e9}
    second |= {"sm_clock": 1.867e9, "pcie_rx_rate": 100e6, "pcie_tx_rate": 60e6}
    assert (found, len(rows)) == ({0: first, 1: second}, 13)
    units = {"power": "W"} | dict.fromkeys(("gpu_utilization", "memory_utilization"), "1")
    units |= {f"pcie_{way}_rate": "B/s" for way in ("rx", "tx")} | {"memory_clock": "Hz", "sm_clock": "Hz"}
    assert {row[2]: row[4] for row in rows} == units
    assert {row[5:] for row in rows} == {(None, None)}
    assert left_out == {"values that are not read": 4, "values that are not available": 1}


LIMITS = """\
# gpu  pviol  tviol
# Idx      %   bool
    0     25      1
    0      -      0
"""
REASONS = """\
index, utilization.gpu [%], clocks.current.sm [MHz], memory.used [MiB], clocks_event_reasons.active
0, 90 %, 1410 MHz, 1024 MiB, 0x0000000000000004
0, 95 %, 1200 MHz, 2048 MiB, 0x0000000000000048
0, 0 %, 210 MHz, 2048 MiB, [N/A]
"""


def test_limits_of_clocks_by_cause(written: Any) -> None:
    """25 % of an interval over the power cap; hardware slows down (0x8) for its temperature (0x40)."""
    assert [row[2:5] for row in read(written(LIMITS))[0]] == [
        *(("power_limited", 0.25, "1"), ("thermally_limited", 1.0, "1"), ("thermally_limited", 0.0, "1"))
    ]
    rows, left_out, _ = read(written(REASONS))
    by_counter: dict[str, list[float]] = {}
    for row in rows:
        by_counter.setdefault(row[2], []).append(row[3])
    known: dict[str, Any] = {"gpu_utilization": [0.9, 0.95, 0.0], "sm_clock": [1.41e9, 1.2e9, 2.1e8]}
    known |= {"memory_used": [float(1 << 30), float(2 << 30), float(2 << 30)], "power_limited": [1, 0]}
    known |= {"thermally_limited": [0, 1], "hardware_limited": [0, 1]}
    assert by_counter == known
    assert left_out["values that are not available"] == 1


def test_evenly_spaced_means_of_nvlink_are_bytes(written: Any) -> None:
    """Samples at 57, 59 and 61 s: 2 s apart, so 200 MiB/s are 400 MiB; before the first nobody looked."""
    rows, left_out, notes = read(written(DATED))
    assert [row[:5] for row in rows if row[2].startswith("nvlink_rx")] == [
        *((0, None, "nvlink_rx_rate", 100.0 * MIB, "B/s"), (0, None, "nvlink_rx_bytes", 400.0 * MIB, "B")),
        (0, None, "nvlink_rx_bytes", 600.0 * MIB, "B"),
    ]
    assert [row[3] for row in rows if row[2] == "nvlink_tx_bytes"] == [4.0 * MIB, 6.0 * MIB]
    assert [row[3] for row in rows if row[2] == "sm_active"] == [0.95] * 3
    assert {row[5:] for row in rows} == {(None, None)}
    assert left_out == {"values that are not available": 4}
    assert len(notes) == 1
    assert "no zone" in notes[0]


@pytest.mark.parametrize(
    ("old", "new"), [("12:35:01", "12:39:01"), ("12:35:01", "12:34:50"), ("12:35:01", "12:34:57")]
)
def test_unevenly_spaced_means_stay_rates(written: Any, old: str, new: str) -> None:
    """A gap, a clock that goes back."""
    rows, _, _ = read(written(DATED.replace(old, new)))
    assert {row[2] for row in rows if row[2].startswith("nvlink")} == {"nvlink_rx_rate", "nvlink_tx_rate"}


def test_columns_and_units_may_change(written: Any) -> None:
    rows, _, _ = read(written(DATED + DMON.replace("# gpu    pwr", "# gpu  power")))
    assert [row[3] for row in rows if row[2] == "pcie_rx_rate"] == [120e6, 100e6]
    assert [row[3] for row in rows if row[2] == "nvlink_rx_bytes"] == [400.0 * MIB, 600.0 * MIB]
    rows, left_out, _ = read(written("# gpu   pwr  rxpci\n# Idx     W   GB/s\n    0    70    0.8\n"))
    assert [row[2:4] for row in rows] == [("power", 70.0)]
    assert left_out == {"values that are not read": 1}


def test_query_with_and_without_units(written: Any) -> None:
    rows, left_out, notes = read(written(QUERY))
    assert [(row[0], *row[2:5]) for row in rows] == [
        *((0, "gpu_utilization", 0.99, "1"), (0, "memory_utilization", 0.4, "1"), (0, "power", 125.72, "W")),
        *((1, "gpu_utilization", 0.0, "1"), (1, "memory_utilization", 0.0, "1")),
    ]
    assert left_out == {"values that are not read": 4, "values that are not available": 1}
    assert "no zone" in notes[0]
    assert read(written(QUERY.replace(" %,", ",").replace(" W,", ",")))[0] == rows


def test_nvlink_counts_kib_by_link_and_from_a_time(written: Any) -> None:
    """A new time begins a new dump; one after the last time is of no known time."""
    rows, left_out, _ = read(written(nvlink(10, 20) + nvlink(15, 120)))
    assert rows == [
        (0, f"nvlink {link}", f"nvlink_{way}_bytes", sent * KIB, "B", None, None)
        for link, way, sent in ((0, "tx", 5.0), (0, "rx", 10.0), (1, "tx", 100.0), (1, "rx", 200.0))
    ]
    assert left_out == {}
    dumps = [f"# time_ns {time}\n" + nvlink(sent) + nvlink(0, gpu=1) for time, sent in ((5, 1), (9, 3))]
    rows, _, _ = read(written("".join(dumps)))
    assert [row for row in rows if row[2] == "nvlink_tx_bytes"] == [
        (0, "nvlink 0", "nvlink_tx_bytes", 2.0 * KIB, "B", 5, 9),
        (1, "nvlink 0", "nvlink_tx_bytes", 0.0, "B", 5, 9),
    ]
    rows, _, _ = read(written(f"# time_ns 5\n{nvlink(1)}{nvlink(3)}"))
    assert [row[3:] for row in rows] == [(2.0 * KIB, "B", None, None), (4.0 * KIB, "B", None, None)]


def test_protocols_resets_and_links_that_count_nothing(written: Any) -> None:
    raw = nvlink(5).replace("Data", "Raw")
    rows, left_out, _ = read(written(nvlink(9) + raw + nvlink(1) + raw.replace(" 5 ", " 7 ")))
    assert [row[2:4] for row in rows if "rx" not in row[2]] == [("nvlink_raw_tx_bytes", 2.0 * KIB)]
    assert left_out == {"differences of a count that went back: reset or wrapped": 2}
    text = nvlink(10).replace("10 KiB", "N/A").replace("20 KiB", "N/A")
    none = "GPU 1: NVIDIA L4 (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are"
    rows, left_out, _ = read(written(f"{text}{none} inActive\n{text}"))
    assert (rows, left_out) == ([], {"values that are not available": 5})


@pytest.mark.parametrize("text", [DMON, DATED, QUERY, nvlink(1)])
def test_recognised_by_content_of_which_no_name_is_copied(written: Any, tmp_path: Path, text: str) -> None:
    assert recognise_format(tmp_path, text.encode()).name == "nvidia_smi"
    evidence = NvidiaSmi().read(written(text))
    said = repr((evidence.counters.to_pylist() if evidence.counters else [], evidence.notes, evidence.facts))
    assert "34bf77d1" not in said
    assert "A10G" not in said


TOOL = "not a line of `nvidia-smi nvlink -gt d`; leave out lines that it did not write"
NO_UNITS = "line 2: no line of units under the header"
KIB_COUNT = "line 2: an NVLink counter that is not a whole number of KiB"
LINKS = nvlink(3).partition("\n")[2]
BROKEN = {
    "empty": ("", "there is no counter in it"),
    "no head": ("    0    150     60\n", f"line 1: {TOOL}"),
    "no units": ("# gpu    pwr\n    0    150\n", f"{NO_UNITS}; print them: without `nounit`"),
    "too few values": (DMON + "    0    150\n", "line 5: 2 values under a header of 10"),
    "absurd": (DMON.replace("120", "9" * 20), "line 3: a counter below 0 or beyond 2⁶³"),
    "a GPU of no index": (DMON.replace("\n    1 ", "\n    x "), "line 4: no index of a GPU"),
    "no date": (DATED.replace("20240115, 12:34:57", "20241399, 12:34:57"), "line 4: no date and time"),
    "query of other length": (QUERY + "2023/07/16 19:57:30.000, 0\n", "line 4: 2 values under a header of 7"),
    "link before its GPU": ("\t Link 0: Data Tx: 1 KiB\n", f"line 1: {TOOL}"),
    "link before its GPU in a new dump": (f"# time_ns 5\n{nvlink(1)}# time_ns 7\n{LINKS}", f"line 6: {TOOL}"),
    "other text": (nvlink(1) + "text\n", f"line 4: {TOOL}"),
    "another unit": (nvlink(10).replace("KiB", "KB"), KIB_COUNT),
    "half of a KiB": (nvlink(10).replace("10 KiB", "10.5 KiB"), KIB_COUNT),
    "two hosts": (nvlink(10) + nvlink(20).replace("GPU-34", "GPU-35"), "line 4: GPU 0 is another one than"),
    "count cut": (nvlink(10).replace("10 KiB", "10"), "line 2: an NVLink count"),
    "a link twice": (nvlink(10) + nvlink(20).partition("\n")[2], "line 4: one dump counts link 0 twice;"),
}


@pytest.mark.parametrize(("text", "says"), BROKEN.values(), ids=BROKEN)
def test_broken_files_say_where_and_what_to_do(written: Any, text: str, says: str) -> None:
    refused(read, written(text), says)


def test_a_last_line_that_ends_with_its_unit_is_whole(written: Any) -> None:
    text = nvlink(10) + nvlink(30)
    assert read(written(text[:-1])) == read(written(text))
    rows, left_out, notes = read(written(text[:-2]))
    assert [row[2:4] for row in rows] == [("nvlink_tx_bytes", 20 * KIB), ("nvlink_rx_total", 20 * KIB)]
    assert left_out == {"the last line, which has no end": 1}
    assert "its last line has no end and may be cut: if it is whole, end it with a line feed" in notes


def test_gpus_without_uuid_dates_or_index(written: Any) -> None:
    text = (nvlink(10) + nvlink(30)).replace(" (UUID: GPU-34bf77d1-c686)", "")
    assert [row[3] for row in read(written(text))[0]] == [20 * KIB, 40 * KIB]
    text = "# gpu   nvltx\n# Idx   GPM:MiB/s\n    0   1\n    0   1\n"
    rows, left_out, notes = read(written(text))
    assert [(row[0], row[2], row[3]) for row in rows] == [(0, "nvlink_tx_rate", MIB)] * 2
    assert (left_out, notes) == ({}, [])
    text = "power.draw [W], utilization.gpu [%]\n50.5 W, 100 %\n"
    rows, left_out, notes = read(written(text))
    assert [(row[0], *row[2:4]) for row in rows] == [(None, "power", 50.5), (None, "gpu_utilization", 1.0)]
    assert (left_out, notes) == ({}, [])
    assert NvidiaSmi().sniff(text.encode()) == 0.9


@pytest.mark.parametrize(("share", "kept"), [(100, True), (101, False)])
def test_a_share_is_a_hundred_percent_at_most(written: Any, share: int, kept: bool) -> None:
    rows, left_out, _ = read(written(f"# gpu   sm\n# Idx    %\n    0   {share}\n"))
    assert [row[2:4] for row in rows] == [("gpu_utilization", 1.0)] * kept
    assert left_out == ({} if kept else {"shares above 1": 1})


def dated(*samples: tuple[str, int]) -> str:
    head = "#Date, Time, gpu, nvltx\n#YYYYMMDD, HH:MM:SS, Idx, GPM:MiB/s\n"
    return head + "".join(f"20240115, 12:34:{at}, 0, {rate}\n" for at, rate in samples)


@pytest.mark.parametrize(
    ("samples", "spacing"),
    [
        *(([("10", 1), ("12", 1)], 2), ([("10", 1), ("13", 1), ("14", 1)], 2)),
        ([("10", 1), ("14", 1), ("14", 2)], None),
        ([("10", 1), ("13", 1), ("14", 1), ("15", 1), ("16", 1)], None),
        *(([("10", 1), ("10", 2)], None), ([("10", 1)], None)),
    ],
)
def test_gaps_near_a_mean_are_even(written: Any, samples: list[tuple[str, int]], spacing: int | None) -> None:
    """Stamps are of whole seconds; the mean of 3, 1, 1 and 1 s is 1.5 s, from which 3 s are too far."""
    rows, _, _ = read(written(dated(*samples)))
    told = [(row[2], row[3]) for row in rows]
    assert told[0] == ("nvlink_tx_rate", MIB)
    if spacing is None:
        assert {name for name, _ in told} == {"nvlink_tx_rate"}
    else:
        assert told[1:] == [("nvlink_tx_bytes", float(spacing * MIB))] * (len(samples) - 1)


def test_samples_that_the_clock_meets_again_count_once(written: Any) -> None:
    """As long as it is not past the latest of them; one more of the same rate behind them counts."""
    again = dated(*(("10", 1), ("12", 2), ("12", 3)) * 2, ("12", 9), ("12", 3), ("14", 4), ("14", 4))
    rows, left_out, _ = read(written(again))
    assert [row[3] / MIB for row in rows] == [1.0, 2.0, 3.0, 9.0, 4.0, 4.0]
    assert left_out == {"values that the file states twice": 4}


def test_other_columns_begin_other_intervals(written: Any) -> None:
    """Samples 2 s apart, then under a new head 1 s apart; the same head again changes nothing."""
    first, second = dated(("10", 1), ("12", 1), ("14", 1)), dated(("20", 1), ("21", 1))
    wider = second.replace("gpu, nvltx", "gpu, pwr, nvltx").replace("Idx, GPM", "Idx, W, GPM")
    rows, _, _ = read(written(first + wider.replace(", 0, 1", ", 0, 70, 1")))
    told = [(row[2].removeprefix("nvlink_tx_"), row[3] / MIB) for row in rows if row[2] != "power"]
    assert told == [("rate", 1.0), ("bytes", 2.0), ("bytes", 2.0), ("rate", 1.0), ("bytes", 1.0)]
    rows, _, _ = read(written(first + second))
    assert {row[2] for row in rows} == {"nvlink_tx_rate"}

# SPDX-License-Identifier: Apache-2.0
"""DCGM's outputs: units, what a rate times its interval is, and what damaged files say.

The layouts are those of published outputs; figures are made up so that products can be seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats import recognise_format
from cclbench.formats.dcgm import Dcgm
from cclbench.ground.evidence_schema import COUNTERS

S = 1_700_000_000_000_000_000
NVLTX = "DCGM_FI_PROF_NVLINK_TX_BYTES"

DMON = """\
#Entity   SMACT        TENSO        DRAMA        PCITX        PCIRX        NVLTX        NVLRX
ID
GPU 1     N/A          N/A          N/A          N/A          N/A          N/A          N/A
GPU 0     0.998        0.452        0.310        1000         2000         5000000      7000000
"""

STAMPED = """\
1700000000.000000 #Entity   NVLTX        POWER        TOTEC        TMPTR
1700000000.000000 ID
1700000000.250000 GPU 0     4000         350.5        1000         40
1700000000.250000 GPU 1     4000         350.5        1000         40
1700000001.750000 GPU 0     8000         400          601500       41
"""

PROMETHEUS = f"""\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-6ad7ea4c",device="nvidia0",modelName="H100",Hostname="n,}}1"}} 83
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-6ad7ea4c",pod="secret \\"job\\""}} 455.5 1700000000123
# TYPE {NVLTX} counter
{NVLTX}{{gpu="3",UUID="GPU-6ad7ea4c"}} 2.5e+09 1700000000123
DCGM_FI_DEV_NVLINK_COUNT_RX_BYTES{{gpu="3"}} 100 1700000000000
DCGM_FI_DEV_NVLINK_COUNT_RX_BYTES{{gpu="3"}} 4100 1700000002000
DCGM_FI_PROF_SM_ACTIVE{{gpu="0",GPU_I_PROFILE="2g.20gb",GPU_I_ID="3"}} 0.5
DCGM_FI_DEV_XID_ERRORS{{gpu="0"}} 0
process_start_time_seconds 1.7e9
"""

CSV = f"""\
timestamp,gpu,{NVLTX},DCGM_FI_PROF_SM_ACTIVE,DCGM_FI_DEV_GPU_TEMP
2023-11-14T22:13:20Z,0,5e9,0.25,40
1700000001,1,6e9,1.5,41
1700000002500,1,140737488355328,0.5,41
"""


def read(path: Path) -> tuple[list[tuple[Any, ...]], dict[str, int], list[str]]:
    """(device, counter, value, unit, start, end) of each row; what was left out; notes."""
    evidence = Dcgm().read(path)
    assert evidence.counters.schema.equals(COUNTERS)
    keys = ("device", "counter", "value", "unit", "start_ns", "end_ns")
    rows = [tuple(row[key] for key in keys) for row in evidence.counters.to_pylist()]
    return rows, evidence.left_out, evidence.notes


def test_clocks_memory_and_limits(written: Any) -> None:
    """MHz, MiB and NVML's mask: 0x80 is the power brake, 0x20 the software's thermal slowdown."""
    rows, _, _ = read(written("#Entity   SMCLK MMCLK FBUSD DVCCTR\nID\nGPU 0  1980 2619 1024 160\n"))
    known = {"sm_clock": (1.98e9, "Hz"), "memory_clock": (2.619e9, "Hz"), "memory_used": (1 << 30, "B")}
    known |= {"power_limited": (1, "1"), "thermally_limited": (1, "1"), "hardware_limited": (0, "1")}
    assert [row[1:4] for row in rows] == [(name, *value) for name, value in known.items()]


def test_dmon_states_shares_and_rates_of_no_time(written: Any) -> None:
    rows, left_out, _ = read(written(DMON))
    shares = {"sm_active": 0.998, "tensor_active": 0.452, "dram_active": 0.31}
    rates = {"pcie_tx_rate": 1e3, "pcie_rx_rate": 2e3, "nvlink_tx_rate": 5e6, "nvlink_rx_rate": 7e6}
    known = [(name, share, "1") for name, share in shares.items()]
    known += [(name, rate, "B/s") for name, rate in rates.items()]
    assert rows == [(0, *one, None, None) for one in known]
    assert left_out == {"values that are not available": 7}


def test_a_rate_times_the_time_since_the_last_sample_is_bytes(written: Any) -> None:
    """8000 B/s over 1.5 s are 12,000 B; 601,500 − 1000 mJ are 600.5 J; one sample of GPU 1 is no energy."""
    rows, left_out, _ = read(written(STAMPED))
    first, second = S + 250_000_000, S + 1_750_000_000
    assert rows == [
        *((0, "nvlink_tx_rate", 4000.0, "B/s", first, first), (0, "power", 350.5, "W", first, first)),
        *((1, "nvlink_tx_rate", 4000.0, "B/s", first, first), (1, "power", 350.5, "W", first, first)),
        *((0, "nvlink_tx_bytes", 12_000.0, "B", first, second), (0, "power", 400.0, "W", first, second)),
        (0, "energy", 600.5, "J", first, second),
    ]
    once = "counts sampled once: their difference needs a second sample"
    assert left_out == {"values that are not read": 3, once: 1}


def test_heads_repeat_and_entities_are_whole_gpus(written: Any) -> None:
    rows, _, _ = read(written(DMON + DMON + "#Entity   POWER\nID\nGPU 0     99.5\n"))
    assert [row[1] for row in rows].count("sm_active") == 2
    assert rows[-1][1:3] == ("power", 99.5)
    # older versions indent their lines
    rows, _, _ = read(written("# Entity  SMACT  DRAMA\n      Id\n    GPU 0  0.5    0.25\n"))
    assert [row[1:3] for row in rows] == [("sm_active", 0.5), ("dram_active", 0.25)]
    rows, left_out, _ = read(written("#Entity   SMACT  DRAMA\nID\nGPU-I 3   0.5  0.5\nGPU 0     0.25  N/A\n"))
    assert [row[:3] for row in rows] == [(0, "sm_active", 0.25)]
    assert left_out == {"values of entities other than a whole GPU": 2, "values that are not available": 1}


def test_prometheus_text(written: Any) -> None:
    """A rate of unknown interval stays a rate; of what is cumulative there is the difference."""
    rows, left_out, _ = read(written(PROMETHEUS))
    scrape = S + 123_000_000
    assert rows == [
        *((0, "gpu_utilization", 0.83, "1", None, None), (0, "power", 455.5, "W", scrape, scrape)),
        (3, "nvlink_tx_rate", 2.5e9, "B/s", scrape, scrape),
        (3, "nvlink_rx_bytes", 4000.0, "B", S, S + 2_000_000_000),
    ]
    assert left_out == {"values of entities other than a whole GPU": 1, "values that are not read": 2}


def test_csv_of_fields_in_any_order(written: Any) -> None:
    """2⁴⁷ is DCGM's double for no value, and a share cannot exceed 1."""
    rows, left_out, _ = read(written(CSV))
    assert rows == [
        *((0, "nvlink_tx_rate", 5e9, "B/s", S, S), (0, "sm_active", 0.25, "1", S, S)),
        (1, "nvlink_tx_rate", 6e9, "B/s", S + 1_000_000_000, S + 1_000_000_000),
        (1, "sm_active", 0.5, "1", S + 2_500_000_000, S + 2_500_000_000),
    ]
    odd = {"values that are not read": 3, "values that are not available": 1}
    assert left_out == odd | {"shares above 1": 1}
    text = "GPU, DCGM_FI_DEV_POWER_USAGE, Time\n0, 5, 1700000000\n 1 , 6 , 1700000000\n"
    rows, _, _ = read(written(text))
    assert rows == [(0, "power", 5.0, "W", S, S), (1, "power", 6.0, "W", S, S)]
    assert Dcgm().sniff(text.encode()) > 0
    assert Dcgm().sniff(text.replace("Time", "When").encode()) == 0


def test_a_time_without_zone_is_no_time(written: Any) -> None:
    rows, _, notes = read(written(f"timestamp,{NVLTX}\n2023-11-14 22:13:20,5\n2023-11-14 22:13:21,5\n"))
    assert rows == [(None, "nvlink_tx_rate", 5.0, "B/s", None, None)] * 2
    assert len(notes) == 1
    assert "no zone" in notes[0]


@pytest.mark.parametrize("text", [DMON, STAMPED, PROMETHEUS, CSV])
def test_recognised_by_content_of_which_no_name_is_copied(written: Any, tmp_path: Path, text: str) -> None:
    assert recognise_format(tmp_path, text.encode()).name == "dcgm"
    evidence = Dcgm().read(written(text))
    said = repr((evidence.counters.to_pylist() if evidence.counters else [], evidence.notes, evidence.facts))
    assert not any(name in said for name in ("6ad7ea4c", "secret", "n,}1"))


POWER = "time,DCGM_FI_DEV_POWER_USAGE\n{},5\n"
NO_TIME = "line 2: no time where one belongs; write ISO 8601, or seconds"
BROKEN = {
    "empty": ("", "there is no counter in it"),
    "no head": ("GPU 0     0.5\n", "line 1: not a metric"),
    "too few values": (DMON + "GPU 0     0.998        0.452\n", "line 5: not a row of `dcgmi dmon`"),
    "another tool's line": (DMON + "Error setting watches.\n", "line 5: not a row of `dcgmi dmon`"),
    "absurd": (DMON.replace("5000000", "1e30"), "line 4: a counter below 0 or beyond 2⁶³"),
    "a GPU of no index": (PROMETHEUS.replace('gpu="3"', 'gpu="99999"'), "no index of a GPU"),
    "two hosts": (PROMETHEUS.replace('gpu="0",UUID="GPU-6', 'gpu="3",UUID="GPU-7'), "GPU 3 is another one"),
    "metric cut": (PROMETHEUS + f'{NVLTX}{{gpu="0\n', "line 12: not a metric"),
    "beyond all time": (STAMPED.replace("1700000001", "9999999999"), "line 5: a time before 1970 or beyond"),
    "CSV of other length": (CSV + "1700000003,1\n", "line 5: 2 values under a header of 5"),
    "CSV of no time": (CSV.replace("1700000001", "noon"), "line 3: no time where one belongs"),
    "before the epoch": (CSV.replace("2023-11-14", "1923-11-14"), "line 2: a time before 1970"),
    "beyond 63 bits": (POWER.format("9223372036.854775808"), "line 2: a time before 1970 or beyond 2262"),
    "more than 63 bits": (POWER.format("9223372036854775808"), "line 2: a counter below 0 or beyond 2⁶³"),
    "just before 1970": (POWER.format("1969-12-31T23:59:59Z"), "line 2: a time before 1970 or beyond 2262"),
    **{f"no time: {t}": (POWER.format(t), NO_TIME) for t in ("170000000", "17000000011", "noon", "")},
}


@pytest.mark.parametrize(("text", "says"), BROKEN.values(), ids=BROKEN)
def test_broken_files_say_where(written: Any, text: str, says: str) -> None:
    refused(read, written(text), says)


@pytest.mark.parametrize(
    ("time", "at"),
    [
        *(("1700000001", S + 10**9), ("1700000001.5", S + 1_500_000_000)),
        *(("1700000001002", S + 1_002_000_000), ("1700000001000003", S + 1_000_003_000)),
        *(("1700000001000000004", S + 1_000_000_004), ("9223372036854775807", (1 << 63) - 1)),
        *(("9223372036.854775807", (1 << 63) - 1), ("1970-01-01T00:00:00Z", 0)),
        *(("1970-01-03T00:00:01.000005Z", (2 * 86_400 + 1) * 10**9 + 5000), ("1970-01-01T01:00:00+01:00", 0)),
    ],
)
def test_times_are_seconds_or_their_thousandths_by_their_digits(written: Any, time: str, at: int) -> None:
    rows, _, _ = read(written(POWER.format(time)))
    assert rows == [(None, "power", 5.0, "W", at, at)]


@pytest.mark.parametrize(
    ("value", "known"),
    [
        *(((1 << 47) - 1, True), (1 << 47, False), ((1 << 47) + 15, False), ((1 << 47) + 16, True)),
        *(((1 << 63) - 17, True), ((1 << 63) - 16, False), ((1 << 63) - 1, False)),
    ],
)
def test_blank_values_of_each_type(written: Any, value: int, known: bool) -> None:
    rows, left_out, _ = read(written(f'DCGM_FI_PROF_PCIE_TX_BYTES{{gpu="0"}} {value}\n'))
    assert [row[1:3] for row in rows] == [("pcie_tx_rate", float(value))] * known
    assert left_out == ({} if known else {"values that are not available": 1})


@pytest.mark.parametrize(("share", "kept"), [("1", True), ("1.001", False), ("1.9", False)])
def test_a_share_is_one_at_most(written: Any, share: str, kept: bool) -> None:
    rows, left_out, _ = read(written(f'DCGM_FI_PROF_SM_ACTIVE{{gpu="0"}} {share}\n'))
    assert (len(rows), left_out) == ((1, {}) if kept else (0, {"shares above 1": 1}))


def test_stamps_of_a_line_have_nine_or_ten_digits_and_the_first_sample_no_interval(written: Any) -> None:
    text = "999999999.5 #Entity   NVLTX\n999999999.5 GPU 0   10\n1000000001.5 GPU 0   10\n"
    rows, _, _ = read(written(text))
    first, second = 999_999_999_500_000_000, 1_000_000_001_500_000_000
    assert [row[1:] for row in rows] == [
        *(("nvlink_tx_rate", 10.0, "B/s", first, first), ("nvlink_tx_bytes", 20.0, "B", first, second)),
    ]

# SPDX-License-Identifier: Apache-2.0
"""Samples of GPUs and network interfaces, in the documented layout of their tables."""

from __future__ import annotations

import pytest
from helpers.nsys_files import EPOCH, KERNEL, SESSION, kernel, read, strings, write
from helpers.refused import refused

OF_GPU_2, OF_GPU_3 = 0x1000100000002, 0x1000100000003
METRICS = [
    {"typeId": kind, "metricId": metric, "metricName": name}
    for kind in (OF_GPU_2, OF_GPU_3)
    for metric, name in enumerate(
        (
            *("SMs Active [Throughput %]", "Tensor Active [Throughput %]"),
            *("DRAM Read Bandwidth [Throughput %]", "PCIe TX Throughput [Throughput %]"),
            *("NVLink TX Requests User Data [Throughput %]", "GPC Clock Frequency [MHz]"),
        )
    )
]
GPUS = [{"id": 4, "pwGpuId": 2, "cuDevice": 6}, {"id": 5, "pwGpuId": 3, "cuDevice": 7}]
MAPPED = [{"pid": 10, "cudaId": 0, "gpuId": 4}, {"pid": 11, "cudaId": 0, "gpuId": 5}]
KERNELS = [kernel(1, 2), kernel(1, 2, pid=11)]


@pytest.fixture
def capture(tmp_path):
    """Writes a capture of two ranks with further tables."""
    known = {"StringIds": strings("k"), "TARGET_INFO_SESSION_START_TIME": SESSION, KERNEL: KERNELS}
    return lambda **tables: write(tmp_path / "trace.sqlite", **known | tables)


def sample(time, metric, value, kind=OF_GPU_2):
    return {"rawTimestamp": time, "timestamp": time, "typeId": kind, "metricId": metric, "value": value}


def gpu_tables(*samples, mapped=MAPPED):
    tables = {"GPU_METRICS": list(samples), "TARGET_INFO_GPU_METRICS": METRICS, "TARGET_INFO_GPU": GPUS}
    return tables | ({"TARGET_INFO_CUDA_DEVICE": mapped} if mapped else {})


def plain(found):
    names = ("device", "port", "counter", "unit")
    rows = [[row[name] for name in (*names, "start_ns", "end_ns", "value")] for row in found.counters]
    for row in rows:
        row[4:6] = [None if time is None else time - EPOCH for time in row[4:6]]
    return [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("metric", "counter", "unit", "value"),
    [
        *((0, "sm_active", "1", 0.5), (1, "tensor_active", "1", 0.5), (2, "dram_read_utilization", "1", 0.5)),
        *((3, "pcie_tx_utilization", "1", 0.5), (5, "GPC Clock Frequency [MHz]", None, 50.0)),
        (4, "NVLink TX Requests User Data [Throughput %]", None, 50.0),
    ],
)
def test_metrics_by_name(capture, metric, counter, unit, value):
    found = read(capture(**gpu_tables(sample(100, metric, 50))), "10")
    assert plain(found) == [(0, None, counter, unit, None, 100, value)]


def test_a_sample_is_about_the_time_since_the_one_before(capture, monkeypatch):
    monkeypatch.setattr("cclbench.formats.sqlite_file.BATCH_ROWS", 3)
    samples = [sample(t, m, v) for t, v in ((100, 10), (200, 20), (400, 30)) for m in (0, 1)]
    found = read(capture(**gpu_tables(*samples)), "10")
    spans = ((None, 100, 0.1), (100, 200, 0.2), (200, 400, 0.3))
    assert [r[2:] for r in plain(found) if r[2] == "sm_active"] == [("sm_active", "1", *one) for one in spans]
    assert len(found.counters) == 6


def test_each_rank_has_the_samples_of_its_gpu(capture):
    samples = [sample(100, 0, 10), sample(100, 0, 70, OF_GPU_3), sample(100, 0, 99, OF_GPU_2 + 5)]
    path = capture(**gpu_tables(*samples))
    first, second = read(path, "10"), read(path, "11")
    assert [row[-1] for row in plain(first)] == [0.1]
    assert [row[-1] for row in plain(second)] == [0.7]
    assert first.trace.dropped == {"GPU metric of a GPU that no rank is known to use": 1}
    assert second.trace.dropped == {}


def test_without_a_map_cudas_own_numbers_find_the_gpu(capture):
    kernels = [kernel(1, 2, deviceId=7), kernel(1, 2, pid=11, deviceId=1)]
    path = capture(**gpu_tables(sample(100, 0, 70, OF_GPU_3), mapped=None) | {KERNEL: kernels})
    assert [row[:3] for row in plain(read(path, "10"))] == [(7, None, "sm_active")]
    assert plain(read(path, "11")) == []


def test_samples_without_name_time_or_value_are_counted(capture):
    samples = [sample(100, 0, 10), sample(100, 77, 10), sample(None, 0, 10), sample(100, 0, None)]
    found = read(capture(**gpu_tables(*samples)), "10")
    assert len(found.counters) == 1
    assert found.trace.dropped == UNNAMED | {"hardware sample without a time or value": 2}


UNNAMED = {"hardware sample without a name": 1}


def test_samples_of_a_capture_without_names(capture):
    found = read(capture(GPU_METRICS=[sample(100, 0, 10)]), "10")
    assert (found.counters, found.trace.dropped) == ([], UNNAMED)


def nic_tables(*rows, unit="bytes/ms"):
    columns = ("start", "end", "globalId", "portId", "metricsListId", "metricsIdx", "value")
    names = ((6, "IB: Bytes sent", unit), (7, "IB: Bytes received", unit), (10, "IB: Send waits", "ticks/ms"))
    return {
        "NET_NIC_METRIC": [dict(zip(columns, row, strict=True)) for row in rows],
        "TARGET_INFO_NETWORK_METRICS": [
            {"metricsListId": 0, "metricsIdx": i, "name": name, "description": "", "unit": of}
            for i, name, of in names
        ],
        "NIC_ID_MAP": [{"nicId": 0, "globalId": 555}],
        "TARGET_INFO_NIC_INFO": [{"GUID": 1, "nicId": 0, "name": "mlx5_0"}],
    }


def test_bytes_of_network_interfaces_are_rate_times_interval(capture):
    rows = [(0, 2_000_000, 555, 1, 0, 6, 300), (0, 2_000_000, 555, 1, 0, 7, 7)]
    rows.append((0, 1_000_000, 556, 0, 0, 10, 9))
    path = capture(**nic_tables(*rows))
    assert sorted(plain(read(path, "10")), key=str) == [
        (None, "interface 556/0", "IB: Send waits", None, 0, 1_000_000, 9.0),
        (None, "mlx5_0/1", "nic_rx_bytes", "B", 0, 2_000_000, 14.0),
        (None, "mlx5_0/1", "nic_tx_bytes", "B", 0, 2_000_000, 600.0),
    ]
    assert plain(read(path, "11")) == []


def test_a_rate_in_unknown_units_stays_as_it_is(capture):
    path = capture(**nic_tables((0, 2_000_000, 555, 1, 0, 6, 300), unit="packets"))
    assert plain(read(path, "10")) == [(None, "mlx5_0/1", "IB: Bytes sent", None, 0, 2_000_000, 300.0)]


def test_the_lowest_byte_of_a_type_is_the_gpu(capture):
    samples = [sample(100, 0, 10), sample(100, 0, 20, OF_GPU_2 + 0x100), sample(100, 0, 30, OF_GPU_2 + 0x80)]
    path = capture(**gpu_tables(*samples) | {"TARGET_INFO_GPU_METRICS": [{"metricId": 0, "metricName": "x"}]})
    found = read(path, "10")
    assert sorted(row[-1] for row in plain(found)) == [10.0, 20.0]
    assert found.trace.dropped == {"GPU metric of a GPU that no rank is known to use": 1}


def test_a_sample_behind_a_clock_that_goes_back_begins_nowhere(capture, monkeypatch):
    monkeypatch.setattr("cclbench.formats.sqlite_file.BATCH_ROWS", 1)
    path = capture(**gpu_tables(*(sample(t, 0, 10) for t in (200, 100, 100, 150))))
    spans = [row[4:6] for row in plain(read(path, "10"))]
    assert spans == [(None, 200), (None, 100), (100, 100), (100, 150)]


def test_samples_of_one_batch_are_put_in_order_of_time(capture):
    path = capture(**gpu_tables(sample(300, 0, 30), sample(100, 0, 10), sample(200, 0, 20)))
    spans = [row[4:] for row in plain(read(path, "10"))]
    assert spans == [(None, 100, 0.1), (100, 200, 0.2), (200, 300, 0.3)]


@pytest.mark.parametrize("time", [1 << 61, (1 << 61) + 1, -(1 << 61), 1 << 62])
def test_times_of_samples_have_61_bits(capture, time):
    path = capture(**gpu_tables(sample(time, 0, 10)))
    if time > 1 << 61:
        refused(lambda path: read(path, "10"), path, "impossible time of a hardware sample")
        return
    assert [row[5] for row in plain(read(path, "10"))] == [time]


def test_samples_of_interfaces_that_cannot_be_told_are_counted(capture):
    rows = [(0, 2, 555, 1, 0, 99, 300), (0, 2, 555, 1, 0, 6, None), (0, None, 555, 1, 0, 6, 5)]
    path = capture(**nic_tables(*rows))
    found = read(path, "10")
    assert plain(found) == []
    assert found.trace.dropped == UNNAMED | {"hardware sample without a time or value": 2}
    assert read(path, "11").trace.dropped == {}


def test_interfaces_without_a_list_of_metrics_are_counted(capture):
    tables = nic_tables((0, 2, 555, 1, 0, 6, 300), (0, 2, 555, 1, 0, 7, 300))
    del tables["TARGET_INFO_NETWORK_METRICS"]
    assert read(capture(**tables), "10").trace.dropped == {"hardware sample without a name": 2}


def test_an_interface_without_ports_goes_by_its_name_alone(capture):
    tables = nic_tables((0, 1_000_000, 555, None, 0, 6, 8))
    tables["TARGET_INFO_NIC_INFO"] = [{"GUID": 1, "nicId": 0, "name": "n" * 70}]
    assert plain(read(capture(**tables), "10")) == [(None, "n" * 64, "nic_tx_bytes", "B", 0, 1_000_000, 8.0)]

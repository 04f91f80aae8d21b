# SPDX-License-Identifier: Apache-2.0
"""Hardware counters: metrics of GPUs and of network interfaces.

A GPU's sample is the mean since the previous one.  A network interface's is a rate over its interval,
in `bytes/ms` and the like (docs.nvidia.com/nsight-systems, SQLite schema reference and user guide).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.formats.nsys.capture import CapturedProcesses
from cclbench.formats.nsys.database import Database
from cclbench.formats.nsys.facts import cuda_devices
from cclbench.formats.trace import LATEST_NS, impossible_value
from cclbench.ground.evidence_schema import COUNTER_UNITS, COUNTERS
from cclbench.ground.intervals import Int64

_PERCENT: Final = " [Throughput %]"
_GPU: Final = {
    "SMs Active": "sm_active",
    "SM Active": "sm_active",
    "Tensor Active": "tensor_active",
    "DRAM Read Bandwidth": "dram_read_utilization",
    "DRAM Write Bandwidth": "dram_write_utilization",
    "NVLink TX Throughput": "nvlink_tx_utilization",
    "NVLink RX Throughput": "nvlink_rx_utilization",
    "PCIe TX Throughput": "pcie_tx_utilization",
    "PCIe RX Throughput": "pcie_rx_utilization",
}
"""Counters in percent by their names in TARGET_INFO_GPU_METRICS; all others keep their names."""
_NIC: Final = {
    "IB: Bytes sent": "nic_tx_bytes",
    "IB: Bytes received": "nic_rx_bytes",
    "Eth: Bytes sent": "nic_tx_bytes",
    "Eth: Bytes received": "nic_rx_bytes",
}
_RATE: Final = "bytes/ms"
_NAMELESS: Final = "hardware sample without a name"


def counter_samples(
    capture: CapturedProcesses, member: str, dropped: Counter[str], *, first: bool
) -> Iterator[pa.Table]:
    """Tables of `COUNTERS` for a member's GPUs; with the first member also for network interfaces."""
    yield from _gpu_samples(capture, member, dropped, first=first)
    if first:
        yield from _interface_samples(capture, dropped)


def _gpu_samples(
    capture: CapturedProcesses, member: str, dropped: Counter[str], *, first: bool
) -> Iterator[pa.Table]:
    database, table, names = capture.database, "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
    if table not in database.tables:
        return
    if not database.has_columns(
        table, "timestamp", "typeId", "metricId", "value"
    ) or not database.has_columns(names, "metricId", "metricName"):
        if first:
            dropped[_NAMELESS] = database.count_rows(table)
        return
    owners = _gpu_metric_owners(capture)
    type_ids = ", ".join(str(kind) for kinds in owners.values() for kind in kinds)
    if first and (unused := database.count_rows(table, f"typeId NOT IN ({type_ids})" if type_ids else "")):
        dropped["GPU metric of a GPU that no rank is known to use"] = unused
    device_by_gpu = owners.get(member, {})
    if not device_by_gpu:
        return
    metric_names = database.select_rows(
        names, f"{database.first_column_sql(names, 'typeId')}, metricId, metricName", then="LIMIT 65536"
    )
    names_by_id = {(gpu, metric): str(name) for gpu, metric, name in metric_names}
    columns = {"of": "typeId", "metric": "metricId", "end": '"timestamp"', "value": "CAST(value AS REAL)"}
    where = f"typeId IN ({', '.join(map(str, device_by_gpu))})"
    last_end: dict[tuple[int, int], int] = {}
    for batch in database.read_batches(table, columns, where, real=("value",)):
        for (gpu, metric), rows in _group_batch(batch, ("of", "metric"), dropped):
            name = names_by_id.get((gpu, metric), names_by_id.get((None, metric)))
            if name is None:
                dropped[_NAMELESS] += len(rows)
                continue
            rows = rows.sort_by("end")
            end = _sample_times(capture, rows["end"])
            start = np.concatenate([[last_end.get((gpu, metric), end[0])], end[:-1]])
            unknown = start > end
            unknown[0] |= (gpu, metric) not in last_end
            last_end[gpu, metric] = int(end[-1])
            yield _counter_table(
                rows,
                _GPU.get(name.removesuffix(_PERCENT)),
                name,
                scaled=np.asarray(rows["value"]) / 100,
                device=pa.repeat(pa.scalar(device_by_gpu[gpu], pa.int16()), len(rows)),
                start_ns=pa.array(start, pa.int64(), mask=unknown),
                end_ns=pa.array(end),
            )


def _gpu_metric_owners(capture: CapturedProcesses) -> dict[str, dict[int, int]]:
    """CUDA device by `typeId` of GPU metrics, whose lowest byte is `pwGpuId`, for each member."""
    database = capture.database
    kinds = [
        kind for (kind,) in database.select_rows("GPU_METRICS", "DISTINCT CAST(typeId AS INTEGER)") if kind
    ]
    columns = f"id, pwGpuId, {database.first_column_sql('TARGET_INFO_GPU', 'cuDevice')}"
    gpus = database.select_rows("TARGET_INFO_GPU", columns, then="LIMIT 1024", needs=["id", "pwGpuId"])
    by_id = {gpu: pw for gpu, pw, _ in gpus}
    by_cuda = {cuda: pw for _, pw, cuda in gpus if cuda is not None}
    owners: dict[str, dict[int, int]] = {}
    for member in capture.members:
        mapped = cuda_devices(database, capture.process_id(member))
        used = capture.device_ordinals(member)
        places = {cuda: by_id.get(mapped.get(cuda, -1)) if mapped else by_cuda.get(cuda) for cuda in used}
        owners[member] = {
            kind: cuda for cuda, pw in places.items() if pw is not None for kind in kinds if kind & 0xFF == pw
        }
    return owners


def _interface_samples(capture: CapturedProcesses, dropped: Counter[str]) -> Iterator[pa.Table]:
    """Metrics of network interfaces, which belong to the host rather than a rank."""
    database, table, names = capture.database, "NET_NIC_METRIC", "TARGET_INFO_NETWORK_METRICS"
    if table not in database.tables:
        return
    needed = ("start", "end", "globalId", "metricsListId", "metricsIdx", "value")
    if not database.has_columns(table, *needed) or not database.has_columns(
        names, "metricsListId", "metricsIdx", "name"
    ):
        dropped[_NAMELESS] += database.count_rows(table)
        return
    metric_names = database.select_rows(
        names,
        f"metricsListId, metricsIdx, name, {database.first_column_sql(names, 'unit')}",
        then="LIMIT 65536",
    )
    metrics = {(metric_list, index): (str(name), unit) for metric_list, index, name, unit in metric_names}
    interfaces = _interface_names(database)
    columns = {
        "of": "globalId",
        "port": f"coalesce({database.first_column_sql(table, 'portId')}, -1)",
        "one": "metricsListId",
        "at": "metricsIdx",
        "start": '"start"',
        "end": '"end"',
        "value": "CAST(value AS REAL)",
    }
    for batch in database.read_batches(table, columns, real=("value",)):
        for (interface, port, metric_list, index), rows in _group_batch(
            batch, ("of", "port", "one", "at"), dropped
        ):
            if (metric_list, index) not in metrics:
                dropped[_NAMELESS] += len(rows)
                continue
            name, unit = metrics[metric_list, index]
            place = interfaces.get(interface, f"interface {interface}")
            start, end = _sample_times(capture, rows["start"]), _sample_times(capture, rows["end"])
            yield _counter_table(
                rows,
                _NIC.get(name) if unit == _RATE else None,
                name,
                scaled=np.asarray(rows["value"]) * (end - start) / 1e6,
                port=place if port < 0 else f"{place}/{port}",
                start_ns=pa.array(start),
                end_ns=pa.array(end),
            )


def _group_batch(
    batch: pa.RecordBatch, keys: tuple[str, ...], dropped: Counter[str]
) -> Iterator[tuple[tuple[int, ...], pa.RecordBatch]]:
    """A batch's rows grouped by key; those without a key, time or value are counted as dropped."""
    complete = batch.drop_null()
    if lost := len(batch) - len(complete):
        dropped["hardware sample without a time or value"] += lost
    if not len(complete):
        return
    columns = np.stack([np.asarray(complete[key], np.int64) for key in keys], axis=1)
    unique, inverse = np.unique(columns, axis=0, return_inverse=True)
    for i, key in enumerate(unique.tolist()):
        yield tuple(key), complete.take(pa.array(np.flatnonzero(inverse == i)))


def _interface_names(database: Database) -> dict[int, str]:
    """Names of network interfaces, such as mlx5_0, by the `globalId` of their metrics."""
    last = "LIMIT 65536"
    names = dict(
        database.select_rows("TARGET_INFO_NIC_INFO", "nicId, name", "", last, needs=["nicId", "name"])
    )
    mapped = database.select_rows("NIC_ID_MAP", "globalId, nicId", "", last, needs=["nicId", "globalId"])
    return {key: str(names[nic])[:64] for key, nic in mapped if nic in names}


def _sample_times(capture: CapturedProcesses, column: pa.Array) -> Int64:
    times = np.asarray(column, np.int64)
    if len(times) and np.abs(times).max() > LATEST_NS:
        raise impossible_value("time of a hardware sample", capture.database.path)
    return times + capture.base_ns


def _counter_table(
    rows: pa.RecordBatch, counter: str | None, name: str, *, scaled: npt.NDArray[np.float64], **columns: Any
) -> pa.Table:
    """A table of `COUNTERS`: the values `scaled` under the standard name `counter`, else unchanged."""
    columns |= {"counter": counter or name, "unit": COUNTER_UNITS[counter] if counter else None}
    columns["value"] = pa.array(scaled) if counter else rows["value"]
    arrays = []
    for field in COUNTERS:
        column = columns.get(field.name)
        if isinstance(column, str):
            column = pa.repeat(pa.scalar(column), len(rows)).dictionary_encode()
        arrays.append(pa.nulls(len(rows), field.type) if column is None else column.cast(field.type))
    return pa.table(arrays, schema=COUNTERS)

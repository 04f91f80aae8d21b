# SPDX-License-Identifier: Apache-2.0
"""Databases of Nsight Systems, counters and operators of GPUs."""

from __future__ import annotations

import csv
import gzip
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cclbench
from cclbench.operator_table import operator_costs
from cclbench.record.run import Run

from .conftest import Measure

TWO_GPUS = "nsysai_mfu_2gpu_before_c8f71e.sqlite"
MPI = "pipit_saxpy_mpi_cuda_perlmutter0.sqlite"
MINIMAL = "synthetic/nsysai_healthy_1pct_710487.sqlite"
PROCESSES = {0: 281477392629760, 1: 281477409406976}
"""`globalPid` by rank: the process on device 0, then that on device 1."""
WORK = """
WITH named AS (SELECT id, value LIKE '%nccl%' AS communicates FROM StringIds),
     work AS (
       SELECT start, "end", CASE WHEN communicates THEN 'K' ELSE 'C' END AS kind
       FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN named ON id = demangledName WHERE globalPid = :process
       UNION ALL SELECT start, "end", 'M' FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE globalPid = :process
       UNION ALL SELECT start, "end", 'M' FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE globalPid = :process)
"""
UNION = """, swept AS (
       SELECT start, "end", max("end") OVER (
         ORDER BY start, "end" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
       FROM work WHERE instr(:kinds, kind))
SELECT coalesce(sum(max(0, "end" - max(start, coalesce(reach, start)))), 0) FROM swept
"""
"""After WORK: length of the union of some kinds of device work of a process."""
SPAN = ' SELECT max("end") - min(start) FROM work'
JOINED = """
SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
  ON r.correlationId = k.correlationId AND r.globalTid & ~0xFFFFFF = k.globalPid
WHERE k.globalPid = :process
"""


@pytest.fixture(scope="module")
def nsys(test_data: Path) -> Path:
    """The folder of Nsight Systems' exports."""
    return test_data / "nsys"


@pytest.fixture(scope="module")
def sql(nsys: Path) -> Iterator[Callable[..., int]]:
    """`sql(query, **values)`: the number that a query over the capture of two GPUs gives."""
    uri = f"{(nsys / TWO_GPUS).as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        yield lambda query, **values: connection.execute(query, values).fetchone()[0]


@pytest.fixture(scope="module")
def two_gpus(nsys: Path, measure: Measure) -> Run:
    """Both ranks' metrics over the whole trace."""
    return measure(nsys / TWO_GPUS, "trace")


def nanoseconds(run: Run, metric: str, rank: int) -> int:
    """A rank's own figure of a time."""
    return round(run.figures.ranks(metric)[rank] * 1e9)


def stored(run: Run, query: str) -> list[tuple[Any, ...]]:
    """Rows of the store's answer."""
    return [tuple(row.values()) for row in run.sql(query).to_pylist()]


@pytest.mark.parametrize("rank", PROCESSES)
def test_times_are_those_of_sql(two_gpus, sql, rank):
    process = PROCESSES[rank]
    length = {kinds: sql(WORK + UNION, process=process, kinds=kinds) for kinds in ("C", "K", "CK", "CKM")}
    window = sql(WORK + SPAN, process=process)
    both = length["C"] + length["K"] - length["CK"]
    expected = {"time.step": window, "compute.time": length["C"], "comm.time": length["K"]}
    expected |= {"time.compute_only": length["C"] - both, "time.overlapped": both}
    expected |= {"time.exposed_comm": length["K"] - both, "time.exposed_copy": length["CKM"] - length["CK"]}
    expected |= {"time.idle": window - length["CKM"]}
    assert {metric: nanoseconds(two_gpus, metric, rank) for metric in expected} == expected
    assert min(length.values()) > 0


def test_every_kernel_is_in_and_joined_to_its_own_process(two_gpus, sql):
    shared = sql(
        "SELECT count(*) FROM (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
        " GROUP BY 1 HAVING count(DISTINCT globalPid) > 1)"
    )
    assert shared == 78
    counts = stored(two_gpus, "SELECT rank, count(*) FROM events WHERE kind = 'kernel' GROUP BY 1 ORDER BY 1")
    assert counts == [(0, 1993), (1, 2017)]
    joined = (
        "SELECT rank, count(*) FROM events k JOIN events l USING (rank, correlation)"
        " WHERE k.kind = 'kernel' AND l.kind = 'launch' GROUP BY 1 ORDER BY 1"
    )
    own = [(rank, sql(JOINED, process=process)) for rank, process in PROCESSES.items()]
    assert stored(two_gpus, joined) == own
    late = (
        "SELECT count(*) FROM events k JOIN events l ON l.rank = k.rank AND l.correlation = k.correlation"
        " AND l.kind = 'launch' WHERE k.kind = 'kernel' AND k.start_ns < l.start_ns"
    )
    assert stored(two_gpus, late) == [(0,)]


COPIES = "SELECT rank, copy_direction, count(*), sum(bytes)::BIGINT FROM events WHERE kind = 'copy'"
ANSWERS = {
    "SELECT count(*) FROM events WHERE kind = 'kernel' AND category = 'communication'": [(66,)],
    # One rank's first two kernels were launched before the capture began.
    "SELECT kind, library, count(*), count(in_bytes) FROM collectives GROUP BY ALL ORDER BY 1": [
        *(("all_to_all", "nccl", 64, 0), ("send_recv", "nccl", 2, 0))
    ],
    f"{COPIES} GROUP BY ALL ORDER BY 1, 2": [
        *((0, "d2d", 493, 4023067136), (0, "h2d", 17, 136), (1, "d2d", 493, 4023067136), (1, "h2d", 17, 136))
    ],
}


def test_communication_copies_and_the_wall_clock(two_gpus, sql):
    """Sends and receives are of the kind that PyTorch names; an export without payloads says so."""
    assert {query: stored(two_gpus, query) for query in ANSWERS} == ANSWERS
    first = sql("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    epoch = sql("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
    assert stored(two_gpus, "SELECT min(start_ns) FROM events WHERE kind = 'kernel'") == [(epoch + first,)]
    notes = [note for entry in two_gpus.manifest["ranks"] for note in entry["notes"]]
    assert len(notes) == 2
    assert all("--include-blobs=true" in note for note in notes)


def test_mpi_and_kernels(nsys, measure):
    run = measure(nsys / MPI, "trace")
    names = "SELECT name, count(*) FROM events WHERE kind IN ('op', 'kernel') GROUP BY 1 ORDER BY 1"
    calls = [
        (f"MPI_{name}", count) for name, count in (("Finalize", 1), ("Init", 1), ("Recv", 5), ("Send", 10))
    ]
    assert stored(run, names) == [*calls, ("saxpy(double *, double *, double *, double, int)", 5)]
    category = "SELECT category, count(*) FROM events WHERE name LIKE 'MPI_%' GROUP BY 1 ORDER BY 2"
    assert ("communication", 15) in stored(run, category)
    (entry,) = run.manifest["ranks"]
    facts = entry["facts"]
    assert (entry["rank"], facts["rank_source"]) == (0, "MPI")
    assert (facts["device_name"], facts["sm_count"]) == ("NVIDIA A100-SXM4-40GB", 108)
    assert facts["producer_version"] == "2022.2.1.31 (schema 2.9.1)"
    assert entry["dropped"]["table SCHED_EVENTS"] == 3238


def test_mpi_beside_a_device(nsys, measure):
    run = measure(nsys / MPI, "trace")
    uri = f"{(nsys / MPI).as_uri()}?mode=ro&immutable=1"
    tables = ("KERNEL", "MEMCPY", "MEMSET")
    rows = " UNION ALL ".join(f'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_{of}' for of in tables)  # noqa: S608
    calls = (
        "SELECT lower(substr(value, 5)), count(*) FROM NVTX_EVENTS JOIN StringIds ON id = textId"
        " WHERE value IN ('MPI_Send', 'MPI_Recv') AND eventType IN (59, 60, 70, 71) GROUP BY 1 ORDER BY 1"
    )
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        (window,) = connection.execute(f'SELECT max("end") - min(start) FROM ({rows})').fetchone()  # noqa: S608
        expected = connection.execute(calls).fetchall()
    assert nanoseconds(run, "time.step", 0) == window
    assert expected == [("recv", 5), ("send", 10)]
    query = "SELECT kind, count(*) FROM collectives WHERE library = 'mpi' GROUP BY 1 ORDER BY 1"
    assert stored(run, query) == expected
    assert stored(run, "SELECT count(*) FROM collectives") == [(15,)]
    assert nanoseconds(run, "comm.time", 0) == 0


def secrets(path: Path) -> set[str]:
    """Environment, names of hosts, users and processes, command lines in an export, but for generic words."""
    wanted = {"META_DATA_CAPTURE": "name GLOB 'PROCESS_*' OR name GLOB 'DEVICE_*' OR name GLOB 'PACKAGE*'"}
    wanted |= {"TARGET_INFO_SYSTEM_ENV": "name IN ('Hostname', 'DeviceEnvironment', 'TargetInstallDir')"}
    texts: list[bytes] = []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = bytes
        tables = {name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        for table, where in wanted.items():
            if table in tables:
                query = f"SELECT value FROM {table} WHERE ({where}) AND typeof(value) = 'text'"  # noqa: S608
                texts += [value for (value,) in connection.execute(query)]
        if "PROCESSES" in tables:
            texts += [name for (name,) in connection.execute("SELECT name FROM PROCESSES") if b"/" in name]
    found = set()
    for text in texts:
        for entry in re.split(r"[;\0\n]", text.decode(errors="replace")):
            name, _, value = entry.partition("=")
            found |= {entry, value.strip('"') if name.isidentifier() else entry}
    return {one for one in found if len(one) > 5 and not re.fullmatch(r"[\d.]+|x86_64|NVIDIA|nvidia", one)}


def texts_of(folder: Path) -> str:
    """Everything that a store holds, as text: JSON as it is, and the texts of its Parquet files."""
    found = []
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            found += [str(table.schema.metadata), *table.column_names]
            for column in table.columns:
                if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
                    found += map(
                        str, column.unique().to_pylist() if not pa.types.is_list(column.type) else column
                    )
        elif path.is_file():
            found.append(path.read_text(errors="replace"))
    return "\n".join(found)


@pytest.mark.parametrize("file", [TWO_GPUS, MPI])
def test_nothing_of_the_machine_or_its_environment_is_stored(nsys, tmp_path, file):
    hidden = secrets(nsys / file)
    assert len(hidden) > 50
    capture = shutil.copy(nsys / file, tmp_path / "capture.sqlite")  # its own name says a machine's
    cclbench.run(capture, store=tmp_path / "store", window="trace")
    kept = texts_of(tmp_path / "store")
    assert "Nsight Systems" in kept
    assert "cudaLaunchKernel" in kept
    assert {one for one in hidden if one in kept} == set()


def test_six_tables_are_enough(nsys, measure):
    run = measure(nsys / MINIMAL, "trace")
    (entry,) = run.manifest["ranks"]
    assert (entry["facts"]["device_name"], entry["dropped"]) == ("NVIDIA H100 80GB HBM3", {})
    kinds = "SELECT kind, count(*) FROM events GROUP BY 1 ORDER BY 1"
    assert stored(run, kinds) == [("kernel", 400), ("launch", 400)]
    assert nanoseconds(run, "compute.time", 0) == 400_000_000


Moved = dict[str, tuple[float, float, float]]
"""By operator bytes of the model, of L2 and of DRAM in a step, MB."""


def counted(repository: Path) -> list[tuple[float, float]]:
    """Bytes that L2 and DRAM moved for each kernel of a step, in the order of their launches."""
    text = gzip.decompress((repository / "tests/golden/h100/kernel_counters.csv.gz").read_bytes()).decode()
    rows = [*csv.DictReader(line for line in text.splitlines() if line.startswith('"'))][1:]

    def number(row: dict[str, str], name: str) -> float:
        return float(row[name].replace(",", ""))

    return [
        (
            number(row, "lts__t_bytes.sum"),
            number(row, "dram__bytes_read.sum") + number(row, "dram__bytes_write.sum"),
        )
        for row in rows
    ]


@pytest.fixture(scope="module")
def moved(repository: Path, evidence_store: Path) -> dict[str, tuple[float, float, float]]:
    """Those of the step that was counted."""
    run = cclbench.ingest(repository / "workload_cards/llama-train-h100.yaml", store=evidence_store)
    kernels = run.sql(
        "SELECT o.name FROM events e LEFT JOIN operators o ON e.operator = o.operator AND e.rank = o.rank"
        " WHERE e.kind = 'kernel' AND e.step = 13 ORDER BY e.start_ns"
    )["name"].to_pylist()
    counts = counted(repository)
    assert len(kernels) == len(counts) == 327
    l2, dram = Counter[str](), Counter[str]()
    for name, (of_l2, of_dram) in zip(kernels, counts, strict=True):
        l2[name] += of_l2
        dram[name] += of_dram
    rows = operator_costs(run, "op", steps=(13, 14)).rows
    return {
        row.key: (row.bytes / 1e6, l2[row.key] / 1e6, dram[row.key] / 1e6)
        for row in rows
        if row.bytes and row.key in l2
    }


def test_no_model_counts_more_than_the_device_moves(moved: Moved) -> None:
    """Compulsory traffic is a lower bound of what passes L2."""
    assert len(moved) > 15
    for name, (model, l2, _) in moved.items():
        assert model <= l2, name


@pytest.mark.parametrize(
    "name", ["aten::silu_backward", "aten::_log_softmax_backward_data", "aten::silu", "aten::_log_softmax"]
)
def test_large_tensors_come_from_memory(moved: Moved, name: str) -> None:
    """What an operator reads and writes is DRAM's traffic but for what L2 keeps of each call."""
    model, _, dram = moved[name]
    assert dram <= model * 1.02
    assert dram >= model * 0.7


CAUSAL = 1024 * 1025 // 2
"""Pairs of 1,024 queries and keys with key ≤ query."""

FLOPS = {
    ("grouped_mm", "aten::_grouped_mm"): 2 * 8192 * 1024 * 2048,
    ("scaled_grouped_mm", "aten::_scaled_grouped_mm"): 2 * 8192 * 1024 * 2048,
    ("scaled_mm_rowwise", "aten::_scaled_mm"): 2 * 4096 * 2048 * 4096,
    ("int_mm", "aten::_int_mm"): 2 * 4096 * 2048 * 4096,
    ("int4_mm", "aten::_weight_int4pack_mm"): 2 * 16 * 2048 * 4096,
    ("fp16_fp32_mm", "aten::mm"): 2 * 4096**3 + 2 * 2 * 2048**3 + 2 * 1024**3,
    ("einsum_bmm", "aten::bmm"): 2 * 64 * 512 * 512 * 256,
    ("einsum_bmm", "aten::baddbmm"): 2 * 64 * 512 * 512 * 256,
    ("einsum_bmm", "aten::mm"): 2 * 64 * 512 * 512 * 256,
    ("conv2d_nhwc", "aten::cudnn_convolution"): 2 * 32 * 28 * 28 * 256 * 128 * 9,
    ("conv2d_nhwc", "aten::convolution_backward"): 2 * 2 * 32 * 28 * 28 * 256 * 128 * 9,
    ("conv2d_nchw", "aten::cudnn_convolution"): 2 * 32 * 56 * 56 * 128 * 128 * 9,
    ("conv2d_depthwise", "aten::_conv_depthwise2d"): 2 * 16 * 56 * 56 * 256 * 49,
    ("conv_transpose2d", "aten::cudnn_convolution_transpose"): 2 * 16 * 32 * 32 * 128 * 64 * 16,
    ("conv1d_dilated", "aten::cudnn_convolution"): 2 * 16 * 4096 * 256 * 256 * 3,
    ("conv3d", "aten::cudnn_convolution"): 2 * 4 * 16 * 56 * 56 * 64 * 32 * 27,
    # 2 layers of 4 gates with 512 + 512 inputs, 32 sequences of 128
    ("lstm", "aten::_cudnn_rnn"): 2 * 32 * 128 * 2 * 4 * 512 * 1024,
    ("lstm", "aten::_cudnn_rnn_backward"): 2 * 2 * 32 * 128 * 2 * 4 * 512 * 1024,
    # products of queries and keys, of weights and values; five in the backward pass
    ("sdpa_causal", "aten::_cudnn_attention_forward"): 2 * 8 * 16 * CAUSAL * 2 * 128,
    ("sdpa_causal", "aten::_scaled_dot_product_cudnn_attention_backward"): 2 * 8 * 16 * CAUSAL * 5 * 128,
    ("sdpa_mask", "aten::_cudnn_attention_forward"): 2 * 8 * 16 * 1024**2 * 2 * 64,
    ("sdpa_gqa", "aten::_cudnn_attention_forward"): 2 * 8 * 32 * CAUSAL * 2 * 128,
    ("sdpa_fp32", "aten::_efficient_attention_forward"): 2 * 4 * 16 * (512 * 513 // 2) * 2 * 64,
    # 4,581 tokens in 8 sequences: equally long ones would have 573, three of them 572
    ("nested_attention", "aten::_flash_attention_forward"): 2 * 16 * (5 * 573**2 + 3 * 572**2) * 2 * 64,
    # LAPACK's n³/3, 2·n³/3 twice, n³ for each of four triangles, 4·n³/3 for R and for Q
    ("linalg", "aten::linalg_cholesky_ex"): 1024**3 // 3,
    ("linalg", "aten::linalg_lu_factor_ex"): 2 * (2 * 1024**3 // 3),
    ("linalg", "aten::linalg_solve_triangular"): 4 * 1024**3,
    ("linalg", "aten::linalg_qr"): 8 * 1024**3 // 3,
    # real, 2.5·log2 N for each of N = 1,024² points
    ("linalg", "aten::_fft_r2c"): 1024**2 * 25 * 20 // 10,
    ("embedding_bag", "aten::_embedding_bag"): 65536 * 128,
    ("embedding_bag", "aten::_embedding_bag_dense_backward"): 65536 * 128,
    ("upsample_bilinear", "aten::upsample_bilinear2d"): 9 * 16 * 128 * 128 * 128,
    ("cross_entropy", "aten::_log_softmax"): 5 * 8192 * 32_000,
    ("batch_norm", "aten::native_batch_norm"): 5 * 32 * 128 * 56 * 56,
    ("pooling", "aten::max_pool2d_with_indices"): 9 * 32 * 128 * 28 * 28,
    # two layers, 2 of 8 experts for 2,048 tokens: up and gate, down, and their gradients twice as much
    ("moe_eager", "aten::_grouped_mm"): 2 * 3 * 2 * 4096 * (1024 * 3584 + 1792 * 1024),
    ("compiled_mlp", "aten::addmm"): 2 * 2 * 8192 * 1024 * 4096,
    ("compiled_mlp", "aten::mm"): 4 * 2 * 8192 * 1024 * 4096,
}
"""By kind of work and operator."""

BYTES = {
    # 131,072 indices and rows of 256 numbers in bf16, of which the tensor has 65,536
    ("indexing", "aten::index"): 131072 * 8 + 65536 * 512 + 131072 * 512,
    # the mask left 33,002 rows
    ("boolean_index", "aten::index"): 33002 * 8 + 2 * 33002 * 512,
    ("scatter_gather", "aten::index_add"): 8192 * 8 + 3 * 8192 * 1024 * 4,
    ("cat_stack", "aten::cat"): 2 * 2 * 8 * 1024 * 1024 * 2,
}
"""Likewise."""

QUERY = """
SELECT substr(marks.name, 5) AS kind, work.name, sum(work.flops) AS flops, sum(work.bytes) AS bytes
FROM operator_work AS work JOIN operators USING (rank, operator) JOIN events AS marks
ON marks.kind = 'annotation' AND marks.side = 'host'
AND operators.start_ns BETWEEN marks.start_ns AND marks.start_ns + marks.dur_ns
GROUP BY ALL"""


@pytest.fixture(scope="module")
def run(repository: Path, evidence_store: Path) -> cclbench.Run:
    return cclbench.ingest(repository / "tests/golden/h100/gpu_operators.json.gz", store=evidence_store)


def test_flops_and_bytes_are_those_of_the_programs_sizes(run: cclbench.Run) -> None:
    rows = run.sql(QUERY).table.to_pylist()
    flops = {(row["kind"], row["name"]): row["flops"] for row in rows}
    moved = {(row["kind"], row["name"]): row["bytes"] for row in rows}
    assert {key: flops[key] for key in FLOPS} == FLOPS
    assert {key: moved[key] for key in BYTES} == BYTES


def test_work_without_a_cost_says_why(run: cclbench.Run) -> None:
    """A graph without its capture, blocks of a mask in device memory, a solution whose products count."""
    table = cclbench.operator_table.operator_costs(run)
    assert table.linked_share > 0.999
    assert table.modelled_share > 0.985
    assert not [row.key for row in table.rows if row.mark == "above"]
    bounds = {row.key for row in table.rows if "lower bound" in (row.assumes or "")}
    assert bounds == {"aten::_index_put_impl_", "aten::_flash_attention_forward", "aten::nonzero"}
    reasons = {row.why_not for row in table.rows if row.why_not and row.share > 0.0001}
    counted = "the operators that it calls are counted instead"
    why = {"which blocks of keys", counted, "no operator call is linked to it"}
    assert {reason.split(" its mask")[0] for reason in reasons} == why

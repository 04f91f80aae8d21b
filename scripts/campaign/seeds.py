# SPDX-License-Identifier: Apache-2.0
"""Small clean inputs of every kind, built by the tests' helpers, each with the commands that read it."""

from __future__ import annotations

import base64
import gzip
import importlib
import importlib.util
import io
import json
import os
import pickle
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cclbench.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
LARGEST = 200_000
"""Bytes beyond which a file of the external evidence is no seed."""

sys.path.append(str(REPOSITORY / "tests"))

Files = dict[str, bytes]
RUN = ("run {source} --jobs 1 --json",) * 3 + (
    "run {source} --jobs 1 --json --window trace --allow-truncated",
)
MEMORY = ("memory {source} --jobs 1 --json", "report {source} --jobs 1 -o {out}.html")
PREDICT = (
    "hardware predict --collective all_reduce --system dgx-h100 --ranks 16 --size 1MB"
    " --hardware {source} --json"
)


@dataclass(frozen=True)
class Seed:
    """Files by their paths in a folder, and commands: {source} is it or its `entry`, {other} a clean run."""

    files: Files
    commands: tuple[str, ...] = RUN
    entry: str = ""
    stored: str | None = None
    """The id of the run that these files are, which lies in the store then."""


def _made(name: str, attribute: str) -> Any:
    """A module of the tests."""
    return getattr(importlib.import_module(name), attribute)


def files_below(folder: Path) -> Files:
    """The folder's files by their paths."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def kineto() -> Files:
    """Two ranks with two steps each, of compute and reductions."""
    from helpers.synthetic.kineto import write
    from helpers.synthetic.program import Collective, Compute, Copy, Layout, Link, Network, Program
    from helpers.synthetic.simulation import simulate

    ops = (Compute(3000), Collective("all_reduce", "dp", 4096), Copy(800, 2048), Compute(2000))
    truth = simulate(Layout(dp=2), Program(ops, steps=2, closing=True), Network(Link(1000, 10)), 1)
    with TemporaryDirectory() as folder:
        write(truth, Path(folder))
        return files_below(Path(folder))


def _nsys() -> Files:
    tables = {**_made("formats.test_nsys_run", "KNOWN"), **_made("formats.test_nsys_run", "two_processes")()}
    with TemporaryDirectory() as folder:
        _made("helpers.nsys_files", "write")(Path(folder) / "job.sqlite", **tables)
        return files_below(Path(folder))


def _xla_json() -> Files:
    named, event = (_made("formats.test_xla_json", name) for name in ("named", "event"))
    events = [
        *named(3, "/device:TPU:0", t1="Steps", t3="XLA Ops"),
        event(3, 1, "0", 1, 30, group_id="0"),
        event(
            3, 3, "fusion.1", 2, 10, hlo_category="loop fusion", long_name="%fusion.1 = f32[4]{0} fusion()"
        ),
        event(
            3,
            3,
            "all-reduce.2",
            14,
            8,
            hlo_category="all-reduce",
            long_name="%all-reduce.2 = f32[4]{0} all-reduce()",
        ),
        *named(701, "/host:CPU", t5="python"),
        event(701, 5, "train", 0, 40, step_num="0"),
    ]
    return {"host.trace.json": json.dumps({"displayTimeUnit": "ns", "traceEvents": [*events, {}]}).encode()}


def _execution_trace() -> Files:
    module = importlib.import_module("formats.test_execution_trace")
    own = [[module.FLOATS], 8, 94_594_108, 3, "allreduce", [], []]
    nodes = [
        module.old(
            20, "record_param_comms", 19, own, ["GenericList[Tensor(float)]", "Int"], [[module.FLOATS]]
        ),
        module.old(21, "nccl:all_reduce", 20, [module.FLOATS], ["Tensor(float)"]),
    ]
    trace = {
        "schema": "1.0.1",
        "pid": 4000,
        "time": "2023-09-07",
        "start_ts": 1,
        "nodes": nodes,
        "finish_ts": 2,
    }
    return {**kineto(), "et_0.json": json.dumps(trace).encode()}


def _evidence() -> Iterator[tuple[str, Files]]:
    """Inputs that are not traces, by reader."""
    entry, dump = (_made("formats.test_flight_recorder", name) for name in ("entry", "dump"))
    dumped = dump(entry(), entry("nccl:broadcast", record_id=1, collective_seq_id=2))
    yield "recorder-json", {"trace_0.json": json.dumps(dumped).encode()}
    torch = zlib.decompress(base64.b85decode(_made("formats.test_flight_recorder", "TORCH_2_13")))
    yield "recorder-pickle", {"trace_rank_0": torch, "trace_rank_1": pickle.dumps(dumped, 4)}
    taken = _made("formats.test_memory_snapshot", "snapshot")
    yield (
        "memory-snapshot",
        {"rank0.pickle": pickle.dumps(taken(), 4), "rank1.pickle": pickle.dumps(taken([], []), 2)},
    )
    call, transfer = (_made("formats.test_nccl_inspector", name) for name in ("call", "transfer"))
    lines = [call(), call("AllGather", coll_sn=8), transfer()]
    yield "inspector", {"node-pid7.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode()}
    yield "ras", {"ras.json": json.dumps(_made("formats.test_nccl_ras", "HANG")).encode()}
    serving = importlib.import_module("formats.test_serving")
    yield (
        "serving",
        {
            "vllm.json": json.dumps(serving.VLLM | serving.LISTS).encode(),
            "sglang.jsonl": json.dumps(serving.SGLANG).encode() + b"\n",
        },
    )
    yield "guidellm", {"report.json": json.dumps(_made("formats.test_guidellm", "REPORT")).encode()}
    yield "inferencex", {"agg.json": json.dumps([_made("formats.test_inferencex", "ONE_NODE")] * 2).encode()}
    yield "prometheus", {"metrics.prom": _made("formats.test_prometheus", "SNAPSHOT").encode()}
    line = _made("formats.test_request_trace", "LINE")
    yield "request-trace", {"trace.jsonl": f"{line}\n{line}\n".encode()}
    yield (
        "mlperf-system",
        {"system.json": json.dumps(_made("formats.test_mlperf_system", "SYSTEM")).encode()},
    )
    yield "otlp-spans", {"spans.jsonl": f"{_made('formats.test_otlp_spans', 'SPANS')}\n".encode()}
    log = (_made("formats.test_nccl_log", "PREFIX") + line for line in _made("formats.test_nccl_log", "EFA"))
    yield "nccl-log", {"job.log": "\n".join([*log, ""]).encode()}
    logs = importlib.import_module("helpers.job_logs")
    lines = (*logs.TITAN_HEAD, *(line for line, _ in logs.FAMILY_LINES.values()))
    yield "job-log", {"job.out": "\n".join([*lines, *lines]).encode()}
    tests, files = (importlib.import_module(f"formats.test_nccl_tests{part}") for part in ("", "_files"))
    table = tests.HEADER + tests.DEVICES + tests.COLUMNS + tests.ROW * 2 + tests.FOOTER
    yield (
        "nccl-tests",
        {
            "sweep.txt": table.encode(),
            "sweep.json": files.as_json().encode(),
            "sweep.csv": (files.CSV_HEAD + files.CSV_COLUMNS + files.CSV_ROW).encode(),
        },
    )
    dcgm, smi, fabric = (
        importlib.import_module(f"formats.test_{n}") for n in ("dcgm", "nvidia_smi", "fabric_counters")
    )
    yield (
        "dcgm",
        {
            "dmon.txt": dcgm.STAMPED.encode(),
            "exporter.txt": dcgm.PROMETHEUS.encode(),
            "fields.csv": dcgm.CSV.encode(),
        },
    )
    yield (
        "nvidia-smi",
        {
            "dated.csv": smi.DATED.encode(),
            "query.csv": smi.QUERY.encode(),
            "nvlink.txt": (smi.nvlink(10, 20) + smi.nvlink(30, 50)).encode(),
        },
    )
    ports = fabric.at(fabric.T0, fabric.mlx5(1, 2) + fabric.efa(1, 2, 1)) + fabric.at(
        fabric.T1, fabric.mlx5(9, 9) + fabric.efa(9, 9, 9)
    )
    yield "ports", {"ports.txt": ports.encode()}


def _vendors() -> dict[str, list[Seed]]:
    """Files of AMD's, Ascend's and other tools, as their tests write them."""

    def written(write: Callable[[Path], object]) -> Seed:
        with TemporaryDirectory() as folder:
            write(Path(folder))
            return Seed(files_below(Path(folder)))

    amd, ascend, steps, spyre, chakra, nccl, inspector, ebpf, tables = (
        importlib.import_module(f"formats.test_{name}")
        for name in (
            *("rocprof", "ascend", "ascend_steps", "spyre", "chakra", "nccl_profiler", "nccl_inspector"),
            *("ebpf_session", "nsys_run"),
        )
    )
    operations = [*spyre.pair("add_1 Cmpt Exec", 1, 2), *spyre.pair("x DmaI", 2, 3, tid=8, Bytes="64")]
    operations += spyre.pair("SenRdmaSend_8 DmaO", 3, 4.5, tid=9, CollGroup="AllReduce_1")
    proxies = [
        {"header": inspector.HEADER, "metadata": inspector.METADATA, "dump_stats": inspector.STATS},
        inspector.proxy("proxy_step", 12, inspector.SEND),
        inspector.proxy("proxy_op", 12, {"proxy_op_start": 80, "proxy_op_stop": 170}, trans_size_bytes=64),
    ]

    def table_folder(folder: Path) -> None:
        database = folder / "job.sqlite"
        _made("helpers.nsys_files", "write")(database, **tables.KNOWN, **tables.two_processes())
        tables.as_folder(database, folder / "job_pqtdir", ".parquet")
        database.unlink()

    return {
        "rocprof": [
            written(lambda f, write=write: write(f, amd.JOB))
            for name, write in amd.WRITERS.items()
            if name != "perfetto"
        ],
        "ascend": [
            Seed({"kernel_details.csv": f"{ascend.HEADING}\n{ascend.TASKS}".encode()}),
            written(ascend.write_trace),
            Seed({"communication.json": json.dumps(ascend.RANK).encode()}),
        ],
        "ascend-steps": [
            Seed({"kernel_details.csv": steps.TASKS.encode(), "step_trace_time.csv": steps.TABLE.encode()}),
            Seed({"step_trace_time.csv": f"{steps.CLUSTER},rank,3{',1.5' * 9}\n".encode()}),
        ],
        "spyre": [Seed({"job.json": json.dumps(operations).encode()})],
        "nccl-inspector-proxy": [
            Seed({"host-pid1.log": b"".join(json.dumps(line).encode() + b"\n" for line in proxies)})
        ],
        "chakra": [written(chakra.write_protobuf), written(chakra.write_json)],
        "nccl-profiler": [written(nccl.write), written(nccl.write_example)],
        "ebpf-session": [written(ebpf.write)],
        "nsys-tables": [written(table_folder)],
        "neuron": [written(importlib.import_module("formats.test_neuron").write)],
        "perfetto": [written(lambda f: amd.WRITERS["perfetto"](f, amd.JOB))],
    }


def _card() -> Seed:
    told = _made("card.conftest", "COMPLETE").encode()
    traces = {f"traces/tiny/{name}": content for name, content in kineto().items()}
    lines = b"".join(
        b"    - {path: %s, format: kineto, ranks: [%d]}\n" % (n.encode(), i) for i, n in enumerate(traces)
    )
    begin, end = told.index(b"    - path"), told.index(b"  launch")
    scripts = {"scripts/tiny/run.sh": b"true\n"}
    entry = "workload_cards/tiny.yaml"
    commands = (
        "card validate {source}",
        "card show {source} --json",
        "run {source} --jobs 1 --json",
        "card upgrade {source}",
    )
    return Seed({entry: told[:begin] + lines + told[end:], **traces, **scripts}, commands, entry)


def _stored(files: Files) -> Seed:
    """A run in its store, with results."""
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        write(source, files)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            main(["run", str(source), "--store", f"{folder}/store", "--jobs", "1"])
        (run,) = (Path(folder) / "store").iterdir()
        commands = (
            "metrics {run} --jobs 1 --json",
            "metrics {run} --jobs 1 --json --window trace",
            "list runs --json",
            "report {run} --jobs 1 -o {out}.html",
            "timeline {run} --jobs 1 -o {out}.svg",
            "open {run} --jobs 1 -o {out}.json",
            "compare {run} {other} --jobs 1 -o {out}.html",
            "whatif {run} --jobs 1 --set scale_up.bandwidth=x2 --per-node 2 --json",
            "hardware calibrate {run} --system dgx-h100 -o {out}.yaml",
            "sql {run} 'SELECT * FROM events, steps LIMIT 5'",
            "sql {run} 'SELECT * FROM results, groups, collectives LIMIT 5' --json",
        )
        return Seed(files_below(run), commands, stored=run.name)


def _archives() -> Iterator[tuple[str, Seed]]:
    files = {"traces/a.json": b"[]" * 50, "traces/b.txt": b"b" * 2000, "c/d/e.txt": b""}
    one, other = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(one, "w") as archive, tarfile.open(fileobj=other, mode="w") as tar:
        for name, content in files.items():
            archive.writestr(name, content)
            told = tarfile.TarInfo(name)
            told.size = len(content)
            tar.addfile(told, io.BytesIO(content))
    for name, content in (("a.zip", one.getvalue()), ("a.tar", other.getvalue())):
        yield name[2:], Seed({name: content}, ("unpack {source} {out}",), name)
    yield (
        "tar.gz",
        Seed({"a.tar.gz": gzip.compress(other.getvalue())}, ("unpack {source} {out}",), "a.tar.gz"),
    )


def json_lines(*rows: object) -> bytes:
    """A JSON document on each line."""
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def event_file(tag: str) -> bytes:
    """A file of TensorBoard with two scalars, the second with that tag."""
    written = _made("helpers.scalar_files", "event_file")([(1.0, 1, "loss", 2.0), (2.0, 2, tag, 2.0)])
    return bytes(written)


def wandb_file(key: str, value: object) -> bytes:
    """A file of Weights & Biases with a step, which has that value beside a loss."""
    scalars = importlib.import_module("helpers.scalar_files")
    step = {"_step": 1, "_timestamp": 1.5, "loss": 2.0, key: value}
    return bytes(scalars.wandb_file(scalars.history(step)))


def _jobs() -> dict[str, list[Seed]]:
    """Files of loaders, storage, agents, training loops and MPI jobs."""
    times, agents, dlio, stores, calls, chips, verl, mpi = (
        importlib.import_module(f"formats.test_{name}")
        for name in (
            *("step_times", "agent_session", "dlio", "stores", "dftracer", "tpu_duty_cycle"),
            *("verl_timings", "otf2"),
        )
    )
    summary = {"_step": 3, "_runtime": 9.5, "train/loss": 2.0, "mine": 1}
    with TemporaryDirectory() as folder:
        chips.written(Path(folder), "trainer", {0.25: (0, 50), 1: (12.5, 100)})
        duty = files_below(Path(folder))
    files: dict[str, Files] = {
        "tensorboard": {"events.out.tfevents.1.host": event_file("loss")},
        "wandb": {
            "wandb-summary.json": json.dumps(summary).encode(),
            "run-1.wandb": wandb_file("train/loss", 2.0),
        },
        "step-times": {"step-times-0.json": json.dumps(times.TIMES).encode()},
        "agent-session": {"rounds.jsonl": json_lines(agents.ROUND, agents.SECOND)},
        "dlio": {
            "summary.json": json.dumps(dlio.SUMMARY).encode(),
            "0_output.json": json.dumps(dlio.STEPS).encode(),
            "per_epoch_stats.json": json.dumps(dlio.EPOCHS).encode(),
        },
        "stores": {name: text.encode() for _, name, text in stores.FILES.values()},
        "dftracer": {"calls.pfw": b"[\n" + json_lines(*calls.ROWS)},
        "duty-cycle": duty,
        "verl": {"verl.log": f"{verl.CONSOLE}\n{verl.JSON}\n".encode()},
    }
    if importlib.util.find_spec("otf2"):  # which writes the archive, too
        with TemporaryDirectory() as folder:
            _made("helpers.otf2_archives", "write_job")(Path(folder) / "job", mpi.reduced, ranks=4)
            files["otf2"] = files_below(Path(folder))
    return {name: [Seed(own)] for name, own in files.items()}


def seeds() -> dict[str, list[Seed]]:
    """Seeds by target."""
    xplane = importlib.import_module("helpers.xplane_files")
    matching = importlib.import_module("formats.test_xplane_collectives")
    traces = kineto()
    found = {
        "kineto": [Seed(traces)],
        "kineto-gz": [Seed({f"{name}.gz": gzip.compress(content) for name, content in traces.items()})],
        "xla-json": [Seed(_xla_json())],
        "execution-trace": [Seed(_execution_trace())],
        "nsys": [Seed(_nsys())],
        "xplane": [
            Seed({"gpu.xplane.pb": xplane.gpu_file()}),
            Seed({"tpu.xplane.pb": matching.ONE_FILE["host"]}),
            Seed({f"{name}.xplane.pb": content for name, content in matching.TWO_HOSTS.items()}),
        ],
        **{
            name: [Seed(files, (*RUN[2:], *MEMORY) if name == "memory-snapshot" else RUN)]
            for name, files in _evidence()
        },
        **_vendors(),
        **_jobs(),
        "card": [_card()],
        "catalog": [
            Seed(
                {
                    f"{name}.yaml": (
                        REPOSITORY / "cclbench" / "hardware" / "data" / f"{name}.yaml"
                    ).read_bytes()
                },
                commands,
                f"{name}.yaml",
            )
            for name in ("dgx-h100", "nvidia-h100-sxm", "infiniband-ndr")
            for commands in [
                (
                    f"hardware show {name} --hardware {{source}} --json",
                    PREDICT,
                )
            ]
        ],
        "stored-run": [_stored(traces), _stored(_nsys())],
        **{name: [seed] for name, seed in _archives()},
    }
    published = importlib.import_module("studies.published.test_mlperf")
    place = "training_results_v5.1/lab"
    run = f"{place}/results/sys/m/Server/performance/run_1"
    log = "\n".join(published.result_log().splitlines()[:12])
    found["mlperf"] = [
        Seed(
            {
                f"{place}/results/sys/tiny_llm/result_0.txt": f"{log}\n".encode(),
                f"{run}/mlperf_log_summary.txt": published.SERVER.encode(),
                f"{place}/systems/sys.json": json.dumps(published.SYSTEM).encode(),
            },
            ("import mlperf {source} --json",),
        )
    ]
    sweep = {"sweep.csv": next(files for name, files in _evidence() if name == "nccl-tests")["sweep.txt"]}
    found["sweep"] = [
        Seed(
            sweep,
            (
                "hardware calibrate {source} --system dgx-h100 -o {out}.yaml",
                "hardware validate {source} --system dgx-h100 --json",
            ),
        )
    ]
    for folder in filter(None, [os.environ.get("CCLBENCH_TEST_DATA")]):
        _add_evidence(found, Path(folder))
    return found


def _add_evidence(found: dict[str, list[Seed]], folder: Path) -> None:
    """The small files of the external evidence, each a seed of the target that reads its kind."""
    targets = {
        "kineto": "kineto-gz",
        "nsys": "nsys",
        "nccl_tests": "nccl-tests",
        "nccl_logs": "nccl-tests",
        "rocprof": "rocprof",
    }
    for kind, target in targets.items():
        for path in sorted((folder / kind).rglob("*")):
            if path.is_file() and path.stat().st_size < LARGEST:
                found[target].append(Seed({path.name: path.read_bytes()}))
    board = folder / "ccl_bench" / "benchmark_data.json"
    if board.is_file():
        rows = json.loads(board.read_bytes())
        few = (
            rows[:3]
            if isinstance(rows, list)
            else {k: v[:3] if isinstance(v, list) else v for k, v in rows.items()}
        )
        found["leaderboard"] = [
            Seed(
                {"board.json": json.dumps(few).encode()}, ("import ccl-bench {source} --json",), "board.json"
            )
        ]


def write(folder: Path, files: Files) -> None:
    """Write the files below the folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

# SPDX-License-Identifier: Apache-2.0
"""Traces for Perfetto: tracks, lanes and rows."""

from __future__ import annotations

import gzip
import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from helpers.synthetic import Collective, Compute, Distortion, Layout, Program, simulate, write

import cclbench
from cclbench.ground.errors import UsageError
from cclbench.ground.schema import KINDS
from cclbench.present.perfetto.serve import PORT, VIEWER, serve_file
from cclbench.present.perfetto.trace import write_trace


def ns(micros: Any) -> int:
    """Microseconds as written, which must be whole nanoseconds."""
    value = Decimal(micros) * 1000
    assert value == int(value)
    return int(value)


@dataclass(frozen=True)
class Slice:
    """A complete event."""

    rank: int
    thread: str
    begin: int
    end: int
    kind: str
    name: str
    args: dict[str, Any]


@dataclass
class Viewer:
    """A trace as it is shown."""

    document: dict[str, Any]
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    crossing: list[Slice] = field(default_factory=list)
    """Slices that begin within another of their thread and end after it: viewers drop or bend them."""
    flows: dict[int, list[tuple[str, Slice | None]]] = field(default_factory=dict)
    """By id: the phase, and the slice it is tied to."""

    @classmethod
    def of(cls, path: Path) -> Viewer:
        """The file as it is shown."""
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
        viewer = cls(json.loads(text, parse_float=Decimal, parse_int=Decimal))
        events = viewer.document["traceEvents"]
        for event in events:
            viewer._named(event) if event["ph"] == "M" else None
        timed = [event for event in events if event["ph"] != "M"]
        timed.sort(key=lambda event: (ns(event["ts"]), event["ph"] != "X", -ns(event.get("dur", 0))))
        stacks: dict[int, list[Slice]] = {}
        for event in timed:
            viewer._take(event, stacks.setdefault(int(event["tid"]), []))
        return viewer

    def _named(self, event: dict[str, Any]) -> None:
        if event["name"] == "process_name":
            self.processes[int(event["pid"])] = event["args"]["name"]
        if event["name"] == "thread_name":
            assert int(event["tid"]) not in self.threads
            self.threads[int(event["tid"])] = event["args"]["name"]

    def _take(self, event: dict[str, Any], stack: list[Slice]) -> None:
        begin = ns(event["ts"])
        if event["ph"] != "X":
            assert event["ph"] != "f" or event["bp"] == "e"
            flow = self.flows.setdefault(int(event["id"]), [])
            flow.append((event["ph"], stack[-1] if stack and begin < stack[-1].end else None))
            return
        end = begin + ns(event["dur"])
        thread = self.threads[int(event["tid"])]
        one = Slice(int(event["pid"]), thread, begin, end, event["cat"], event["name"], event["args"])
        self.slices.append(one)
        while stack and stack[-1].end <= begin:
            stack.pop()
        if any(end > outer.end for outer in stack):
            self.crossing.append(one)
        else:
            stack.append(one)


Opened = Callable[[str], cclbench.Run]
DLRM = "kineto/dlrm_8xv100"
LLAMA = "tiny-llama-fsdp2-tp2-gloo-cpu"
JAX = "tiny-jax-dp2-tp4-cpu"
TPU = "xprof/tpu_v6e_4plane_host_offload_psum.xplane.pb"


def shown(run: cclbench.Run, path: Path, **selected: Any) -> Viewer:
    """What a viewer makes of the run."""
    write_trace(run, path, **selected)
    return Viewer.of(path)


def event_slices(viewer: Viewer) -> list[Slice]:
    """The slices that are rows of events."""
    return [one for one in viewer.slices if one.kind in KINDS]


@pytest.mark.parametrize(
    "name", [DLRM, LLAMA, JAX, TPU, "nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite", "kineto/h100_qwen"]
)
def test_counts_and_durations_are_the_stores(opened: Opened, tmp_path: Path, name: str) -> None:
    run = opened(name)
    viewer = shown(run, tmp_path / "trace.json.gz")
    told = run.sql("SELECT rank, kind, count(*) AS n, sum(dur_ns) AS ns FROM events GROUP BY ALL").to_pylist()
    count: Counter[tuple[int, str]] = Counter()
    length: Counter[tuple[int, str]] = Counter()
    for one in event_slices(viewer):
        count[one.rank, one.kind] += 1
        length[one.rank, one.kind] += one.end - one.begin
    assert count == {(row["rank"], row["kind"]): row["n"] for row in told}
    assert length == Counter({(row["rank"], row["kind"]): int(row["ns"]) for row in told})
    assert viewer.crossing == []
    assert min(one.begin for one in viewer.slices) == 0


def test_rows_that_cross_get_lanes_of_their_own(opened: Opened, tmp_path: Path) -> None:
    viewer = shown(opened(TPU), tmp_path / "trace.json")
    threads = {one.thread for one in viewer.slices if one.rank == 5 and one.kind == "copy"}
    assert threads == {"stream 4", "stream 4 (2)", "stream 4 (3)"}
    assert viewer.processes[5] == "rank 5 (device 1)"


def test_every_row_says_what_the_store_says(opened: Opened, tmp_path: Path) -> None:
    run = opened(DLRM)
    viewer = shown(run, tmp_path / "trace.json", ranks=[3])
    begin = int(viewer.document["otherData"]["begin_ns"])
    keys = ("category", "step", "correlation", "bytes", "copy_direction", "blocks", "flops", "hbm_bytes")
    rows, slices = [], []
    for row in run.events(rank=3).to_pylist():
        place = ("thread" if row["side"] == "host" else "stream", row["track"])
        told = tuple(sorted((key, row[key]) for key in keys if row[key] is not None))
        rows.append((row["kind"], row["name"], row["start_ns"] - begin, row["dur_ns"], *place, told))
    for one in event_slices(viewer):
        side, track, *_ = one.thread.split()
        told = tuple(sorted((key, one.args[key]) for key in keys if key in one.args))
        slices.append((one.kind, one.name, one.begin, one.end - one.begin, side, int(track), told))
    assert sorted(slices, key=repr) == sorted(rows, key=repr)


@pytest.mark.parametrize("name", [DLRM, LLAMA, JAX])
def test_an_arrow_runs_through_collectives_by_arrival(opened: Opened, tmp_path: Path, name: str) -> None:
    run = opened(name)
    viewer = shown(run, tmp_path / "trace.json")
    parts: dict[int, list[tuple[int, int, str, int]]] = {}
    begin = int(viewer.document["otherData"]["begin_ns"])
    for row in run.collectives().sort_by([("arrival_ns", "ascending"), ("rank", "ascending")]).to_pylist():
        of = (row["arrival_ns"] - begin, row["rank"], row["kind"], row["wait_ns"])
        parts.setdefault(row["instance"], []).append(of)
    assert viewer.flows.keys() == parts.keys()
    for instance, flow in viewer.flows.items():
        assert [phase for phase, _ in flow] == ["s", *"t" * (len(flow) - 2), "f"]
        tied = [(one.begin, one.rank, one.args["collective"], one.args["wait_ns"]) for _, one in flow if one]
        assert tied == parts[instance]


@pytest.fixture(scope="module")
def dlrm(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> tuple[cclbench.Run, Viewer, int]:
    """A run of eight ranks, what a viewer makes of it, and when it begins."""
    run = opened(DLRM)
    viewer = shown(run, tmp_path_factory.mktemp("dlrm") / "trace.json")
    return run, viewer, int(viewer.document["otherData"]["begin_ns"])


def test_waits_are_marked_and_say_for_whom(dlrm: tuple[cclbench.Run, Viewer, int]) -> None:
    run, viewer, begin = dlrm
    table = run.collectives()
    last = {row["instance"]: row["rank"] for row in table.to_pylist() if row["wait_ns"] == 0}
    expected = sorted(
        (row["rank"], row["arrival_ns"] - begin, row["wait_ns"], f"waits for rank {last[row['instance']]}")
        for row in table.to_pylist()
        if row["wait_ns"]
    )
    waits = [one for one in viewer.slices if one.thread == "collectives: wait"]
    assert sorted((one.rank, one.begin, one.end - one.begin, one.name) for one in waits) == expected
    assert {one.args["group"] for one in waits} == {"0-7"}


def test_steps_have_a_lane_for_each_way_they_were_found(dlrm: tuple[cclbench.Run, Viewer, int]) -> None:
    run, viewer, begin = dlrm
    expected = [
        (
            *(row["rank"], f"steps ({row['source']})", f"step {row['step']}{' (open)' * row['open']}"),
            *(row["start_ns"] - begin, row["end_ns"] - begin),
        )
        for row in run.steps().to_pylist()
        if row["step"] is not None
    ]
    assert {name for _, _, name, *_ in expected} == {"step 10", "step 10 (open)"}
    assert len(expected) == 16
    found = [one for one in viewer.slices if one.kind == "step"]
    assert sorted((one.rank, one.thread, one.name, one.begin, one.end) for one in found) == sorted(expected)


def test_chosen_steps_and_ranks(opened: Opened, tmp_path: Path) -> None:
    run = opened(LLAMA)
    viewer = shown(run, tmp_path / "trace.json", ranks=[2, 0], steps=(4, 5))
    assert viewer.processes == {0: "rank 0", 2: "rank 2"}
    assert {one.name for one in viewer.slices if one.kind == "step"} == {"step 4"}
    told = run.sql("""
        SELECT e.rank, count(*) AS n FROM events e JOIN steps s ON s.rank = e.rank AND s.step = 4
        WHERE e.rank IN (0, 2) AND CASE WHEN e.step IS NULL
            THEN e.start_ns >= s.start_ns AND e.start_ns < s.end_ns ELSE e.step = 4 END
        GROUP BY ALL""")
    count = Counter(one.rank for one in event_slices(viewer))
    assert count == {row["rank"]: row["n"] for row in told.to_pylist()}
    # Ranks 0 and 2 form a group of the data dimension; the collectives of 0-1 and 2-3 have one part here.
    groups = {one.args["group"] for flow in viewer.flows.values() for _, one in flow if one}
    assert groups == {"0,2"}
    # Others are waited for all the same.
    names = {one.name for one in viewer.slices if one.kind == "wait"}
    assert names == {f"waits for rank {n}" for n in range(4)}


def test_corrected_clocks(tmp_path: Path) -> None:
    """Rank 1's clock is 3 ms ahead and gains 40 µs a second: shown is the time of the others' clocks."""
    ops = (Compute(150_000_000), Collective("all_reduce", "dp", 1 << 20))
    truth = simulate(Layout(dp=4), Program(ops, steps=10, slow={1: 1200}))
    write(truth, tmp_path / "traces", Distortion(offset_ns={1: 3_000_000}, drift_ppm={1: 40}))
    run = cclbench.ingest(tmp_path / "traces", store=tmp_path / "store")
    (entry,) = [entry for entry in run.manifest["clocks"]["ranks"] if entry["applied"]]
    viewer = shown(run, tmp_path / "trace.json")
    assert viewer.crossing == []
    ends = [[one.end for _, one in flow if one] for flow in viewer.flows.values()]
    assert len(ends) == 10
    assert all(max(of) - min(of) <= entry["residual_ns"] + entry["uncertainty_ns"] + 1 for of in ends)
    kernels = [one for one in event_slices(viewer) if one.rank == 1 and one.kind == "kernel"]
    own = {row["correlation"]: row["dur_ns"] for row in run.events(rank=1, kinds=["kernel"]).to_pylist()}
    assert {one.args["correlation"]: one.args["own_dur_ns"] for one in kernels} == own
    # 180 ms of the slow rank's kernels are 7,200 ns longer on its own clock.
    gemms = [one for one in kernels if "collective" not in one.args]
    longer = [int(one.args["own_dur_ns"]) - (one.end - one.begin) for one in gemms]
    assert longer == pytest.approx([7200] * 10, abs=2)
    assert not [one for one in event_slices(viewer) if one.rank == 0 and "own_dur_ns" in one.args]


def test_the_same_run_gives_the_same_bytes(opened: Opened, tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz", "c.json"):
        write_trace(opened(DLRM), tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert (tmp_path / "c.json").read_bytes().startswith(b'{"traceEvents":[')


CONTENT = bytes(range(256)) * 60_000


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a served file; at the end it is fetched, so that serving ends."""
    path = folder / "trace.json.gz"
    path.write_bytes(CONTENT)
    links: Queue[str] = Queue()
    serving = Thread(target=serve_file, args=(path, links.put), kwargs={"port": 0})
    serving.start()
    page, _, address = links.get(timeout=10).partition("/#!/?url=")
    assert page == "https://ui.perfetto.dev"
    yield address
    with suppress(OSError):  # where it was fetched before
        asked(address)
    serving.join(timeout=10)
    assert not serving.is_alive()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of a served file."""
    with served(tmp_path) as address:
        yield address


def asked(
    address: str, method: str = "GET", path: str | None = None, **headers: str
) -> tuple[HTTPResponse, bytes]:
    """The answer to one request, and its body."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    with closing(HTTPConnection(parts.hostname, parts.port, timeout=10)) as connection:
        connection.request(method, path or parts.path, headers=headers)
        response = connection.getresponse()
        return response, response.read()


def test_the_viewer_fetches_it_once_on_this_machine_alone(address: str) -> None:
    """Looking whether it is there does not end it."""
    parts = urlsplit(address)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", parts.port or 0), timeout=1).close()
    response, _ = asked(address, "HEAD")
    assert (response.status, response.headers["Content-Length"]) == (200, str(len(CONTENT)))
    assert parts.scheme == "http"
    assert parts.hostname == "127.0.0.1"
    assert parts.path.endswith(".json.gz")
    assert len(parts.path) > 25
    response, body = asked(address, Origin=VIEWER)
    assert body == CONTENT
    assert response.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert response.headers["Cache-Control"] == "no-store"


def test_every_name_is_new(tmp_path: Path) -> None:
    with served(tmp_path) as first, served(tmp_path) as second:
        assert urlsplit(first).path != urlsplit(second).path


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 404),
        ("GET", "/../../../etc/passwd", {}, 404),
        ("GET", "/trace.json.gz", {}, 404),
        ("GET", None, {"Host": "attacker.example:9001"}, 403),
        ("GET", None, {"Host": "localhost"}, 403),
        ("GET", None, {"Origin": "https://attacker.example"}, 403),
        ("GET", None, {"Origin": "null"}, 403),
        ("HEAD", None, {"Origin": "https://ui.perfetto.dev.attacker.example"}, 403),
        ("POST", None, {}, 501),
        ("PUT", None, {}, 501),
        ("OPTIONS", None, {}, 501),
        ("DELETE", None, {}, 501),
    ],
)
def test_nobody_else_gets_it(
    address: str, method: str, path: str | None, headers: dict[str, str], status: int
) -> None:
    response, body = asked(address, method, path, **headers)
    assert response.status == status
    assert "Access-Control-Allow-Origin" not in response.headers
    assert CONTENT[:256] not in body


def test_a_fetch_that_breaks_off_can_be_made_again(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    parts = urlsplit(address)
    with socket.create_connection((str(parts.hostname), parts.port or 0)) as broken:
        broken.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        broken.recv(100)
    assert asked(address)[1] == CONTENT
    assert capfd.readouterr().err == ""


def test_a_port_in_use_names_the_way_out(tmp_path: Path) -> None:
    assert PORT == 9001
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} of this machine is in use; .*--output"):
            serve_file(tmp_path / "t.json", print, port=port)

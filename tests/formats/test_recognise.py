# SPDX-License-Identifier: Apache-2.0
"""Which reader a file's beginning asks for, and what is said of a trace that no reader reads."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.refused import refused

from cclbench.formats import FURTHER_BYTES, HEAD_BYTES, READERS, SURE, recognise_format, sort_by_precedence
from cclbench.formats.recognition import head_of, recognise_head
from cclbench.formats.source_files import required_reader
from cclbench.formats.unread import UnreadFormatError, refuse_unread
from cclbench.ground.errors import InputError
from cclbench.ingestion.source import find_source

FILE = Path("trace.json")
CATEGORIES = (b"cpu_op", b"python_function", b"mtia_ccp_events")
TOLD_IN_ORDER = [
    *("kineto", "nsys", "xplane", "xla_json", "timeline", "dcgm", "nvidia_smi", "fabric_counters"),
    *("execution_trace", "serving"),
]


SQLITE = b"SQLite format 3\0" + bytes(100)
VOTES = {
    "kineto": {
        b'{"schemaVersion": 1, "traceEvents": [': 0.9,
        b' \n{"deviceProperties": [], "x": 1': 0.9,
        b'[{"ph": "X", "cat": "Operator", "name": "a"}': 0.6,
        b'{"schemaVersion": 1, "traceEvents": [{"schema": 1, "pid": 1, "nodes": 2}]}': 0.9,
        b'{"traceEvents": [{"cat" : "user_annotation"': 0.6,
        b'[{"schemaVersion": 1}, {"cat": "cpu_op"': 0.6,
        **dict.fromkeys((b'{"traceEvents": [{"ph": "X", "cat": "' + of + b'"' for of in CATEGORIES), 0.6),
    },
    "xla_json": {
        b'{"traceEvents": [{"args": {"name": "/device:TPU:0"': 0.95,
        b'{"traceEvents": [{"args": {"name" : "/host:CPU"': 0.95,
    },
    "xplane": {
        b"\x0a\x0b\x12\x09/host:CPU": 0.9,
        b"\x0a\xef\xbf\xbd\xef\xbf\xbd\x06\x08\x02\x12\x0a/device:TPU:0": 0.9,
    },
    "nsys": {SQLITE + b"CREATE TABLE StringIds": 0.9, SQLITE: 0.2},
    "execution_trace": {
        b'{\n  "schema": "1.0.1", "pid": 7, "time": "x", "start_ts": 6,\n  "nodes": [': 1.0,
        b'{"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": []}': 1.0,
    },
}
"""Who votes for what begins so, and how surely; nobody else does."""
NOBODYS = [
    *(b"", b"PK\3\4", b"{}", b'{"results": [1]}', b"[1, 2]", b"id: a-card\n", b"\x1f\x8b\x08"),
    *(b'{"traceEvents": [{"ph": "X"', b'[{"ph": "M"', b'{"cat": "kernel"}', b'"cat": "cpu_op"'),
    *(b'{"traceEvents": [{"cat": "kernels"', b'[{"schemaVersion": 1}', b'x{"schemaVersion": 1'),
    *(b'{"traceEvents": [{"args": {"name": "/host:CPU 1"', b'{"args": {"name": "/device:TPU:0"'),
    *(b'["name": "/device:TPU:0"]', b"/host:CPU", b"SQLite format 2\0", b'["schema", "pid", "nodes"]'),
    *(b'{"schema": "1.1.0", "nodes": []}', b'{"collective_seq_id": 1}', b"size,count,type\n"),
    *(b"pg_config and pg_status, collective_seq_id and profiling_name", b"set NCCL_DEBUG=INFO to see more"),
    *(b'{"segments": [], "device_traces": []}', b"# a readme about all_reduce_perf\n", b"[]", b"x"),
    *(b'{"coll_perf": 1}', b'{"header": {"n_ranks": 8}}', b'[{"n_ranks": 8, "coll_perf": {}}]'),
    *(b'{"runs": [{"mean_ttft_ms": 3, "p99_ttft_ms": 4}]}', b'["tokenizer_id", "num_prompts"]'),
    b'{"model": {"mean_ttft_ms": 3, "p99_ttft_ms": 4}}',
    b"# DCGM FIELD, type, help\nDCGM_FI_DEV_SM_CLOCK, gauge, SM clock (in MHz).\n",
]


@pytest.mark.parametrize(("name", "head"), [(name, head) for name in VOTES for head in VOTES[name]])
def test_who_knows_what_begins_so(name, head):
    votes = {other: READERS.get(other).sniff(head) for other in (*VOTES, *HEADS)}
    assert {other: vote for other, vote in votes.items() if vote} == {name: VOTES[name][head]}


@pytest.mark.parametrize("head", NOBODYS)
def test_what_begins_so_is_nobodys(head):
    assert recognise_format(FILE, head) is None


def test_a_tie_names_both(monkeypatch):
    known = {"kineto": READERS.get("kineto"), "other": SimpleNamespace(sniff=lambda _: 0.9)}
    monkeypatch.setattr("cclbench.formats.READERS", type("Both", (dict,), {"get": dict.get})(known))
    with pytest.raises(InputError, match="kineto or other"):
        recognise_format(FILE, b'{"schemaVersion": 1}')


ROW = {"ph": "X", "pid": 0, "tid": 0, "ts": 1, "dur": 1}


def chrome(**row):
    return json.dumps({"traceEvents": [{**ROW, **row}]}).encode()


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b'[ {"name":"x","cat":"mine","ph":"X"}\r\n {"name":', "a trace with a row a line, as DFTracer's"),
        *((chrome(cat="forward-compute"), "an operator timeline"), (chrome(cat="FEE"), "a VizTracer trace")),
        (chrome(cat="disabled-by-default-devtools.timeline,v8"), "a trace of Chrome or Node.js"),
        (chrome(name="NEGOTIATE_ALLREDUCE"), "a Horovod timeline"),
        (chrome(pid="CPU functions"), "former autograd profiler, without streams and launches; capture with"),
        (chrome(cat="a"), "without rows of PyTorch's profiler: they are of a;"),
        (json.dumps([{**ROW, "cat": c} for c in "abcda"]).encode(), "they are of a, b, c, ...;"),
        (chrome(), "is a Chrome trace without rows of PyTorch's profiler;"),
        (b'{"traceEvents": []}', "is a Chrome trace without rows of PyTorch's profiler;"),
    ],
)
def test_a_trace_that_nobody_reads_is_refused_as_what_it_is(tmp_path, head, what):
    assert recognise_format(FILE, head) is None
    path = tmp_path / "trace.json"
    path.write_bytes(head)
    assert "truncated" not in refused(find_source, path, what)


@pytest.mark.parametrize("head", [b'[{"ph": 7.2, "sample": 1}]', b'{"events": []}', b"[1]", b"text"])
def test_what_is_no_chrome_trace_is_not_named_as_one(head):
    refuse_unread(FILE, head)


def test_files_of_further_kinds_are_read_or_refused_as_what_they_are(test_data):
    """Every file of these folders but documents, settings and plain output has a reader or a name."""
    folders = (
        *("spyre", "dlio", "dftracer", "rl_tpu", "agent_tools", "otf2", "ascend", "chakra", "rocprof"),
        *("mlperf_storage", "rocprof_v1", "nccl_profiler", "mooncake", "kineto_fused"),
    )
    nameless, kinds = set(), set()
    for path in (path for folder in folders for path in (test_data / folder).rglob("*") if path.is_file()):
        head = head_of(path)
        reader, head = recognise_head(path, head)
        if reader is not None:
            kinds.add(reader.name)
            continue
        try:
            refuse_unread(path, head)
            nameless.add(path.suffix)
        except UnreadFormatError as error:
            kinds.add(str(error).removeprefix(f"{path}: "))
    assert nameless <= {".md", ".yaml", ".cfg", ".log", ".gz", ".tgz", ".json"}
    assert kinds >= {"ascend", "rocprofv3", "rocpd", "request_trace"}
    assert len(kinds) >= 16


def test_an_operator_timeline_is_named(test_data):
    with pytest.raises(UnreadFormatError, match=r"is an operator timeline .*: stages of the job, no kernels"):
        find_source(test_data / "stragglers" / "timeline-ST.json.gz")


def test_beside_ranks_own_traces_it_is_passed_over_and_said(tmp_path):
    (tmp_path / "rank0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(chrome(cat="FEE"))
    (tmp_path / "io.pfw.gz").write_bytes(gzip.compress(b'[\n{"cat":"POSIX","ph":"X"}\n{"cat":"POSIX"}\n]'))
    found = find_source(tmp_path)
    assert [file.name for file in found.files] == ["rank0.json"]
    assert found.ignored == ("a.json", "b.json", "io.pfw.gz")
    assert list(found.unread) == ["a.json", "b.json", "io.pfw.gz"]
    assert found.unread["a.json"] == "is a VizTracer trace: Python functions and no kernels"


class TestFurtherIn:
    """Marks behind more than what every reader looks at."""

    TABLE = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n"
    LOG = "n:1:1 [0] NCCL INFO Using network Socket\n"

    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize("before", [HEAD_BYTES, FURTHER_BYTES[0], FURTHER_BYTES[1] - (1 << 15)])
    def test_a_table_behind_other_text(self, tmp_path, before, packed):
        lines = "cpu-bind=MASK - nid001, task 0: mask 0xff set\n"
        text = (lines * (before // len(lines) + 1) + self.TABLE).encode()
        path = tmp_path / ("job.log.gz" if packed else "job.log")
        path.write_bytes(gzip.compress(text, 1) if packed else text)
        assert [file.reader for file in find_source(path).evidence] == ["nccl_tests"]

    @pytest.mark.parametrize(
        ("behind", "reader"),
        [
            *(("", "nccl_log"), (TABLE, "nccl_tests")),
            # what others know their files by is not looked for
            ("GPU 0: NVIDIA H100\n\t Link 0: Data Tx: 10 KiB\n", "nccl_log"),
        ],
    )
    def test_what_stands_behind_the_librarys_own_lines(self, tmp_path, behind, reader):
        path = tmp_path / "job.log"
        path.write_text(self.LOG * (HEAD_BYTES // len(self.LOG) + 1) + behind)
        assert [file.reader for file in find_source(path).evidence] == [reader]

    def test_kineto_rows_behind_other_rows(self, tmp_path):
        label = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "x" * 1000}}
        path = tmp_path / "trace.json"
        path.write_text(json.dumps([label] * 100 + [{**ROW, "cat": "Kernel", "name": "k"}]))
        assert [file.reader for file in find_source(path).files] == ["kineto"]

    def test_no_further_than_a_bound_and_for_no_others_marks(self, tmp_path):
        path = tmp_path / "job.log"
        counters = "GPU 0: NVIDIA H100\n\t Link 0: Data Tx: 10 KiB\n"
        for text in ("text\n" * (FURTHER_BYTES[-1] // 5 + 1) + self.TABLE, "text\n" * HEAD_BYTES + counters):
            path.write_text(text)
            with pytest.raises(InputError, match="no trace of a known format"):
                find_source(path)


NUMBERED = "".join(f"line {n} of {n * n}\n" for n in range(40_000)).encode()


def damaged(text: bytes) -> bytes:
    """Compressed, with eight wrong bytes in the middle."""
    packed = bytearray(gzip.compress(text))
    packed[len(packed) // 2 : len(packed) // 2 + 8] = b"\xff" * 8
    return bytes(packed)


@pytest.mark.parametrize("size", [1, 100, 1 << 10, 1 << 16, 1 << 24])
def test_a_damaged_stream_is_known_by_what_it_still_gives(tmp_path: Path, size: int) -> None:
    path, packed = tmp_path / "job.log.gz", gzip.compress(NUMBERED)
    path.write_bytes(damaged(NUMBERED))
    head = head_of(path, size)
    assert NUMBERED.startswith(head[:60_000])
    assert min(size, 100_000) <= len(head) <= size
    # a stream that is cut
    path.write_bytes(packed[: len(packed) // 2])
    head = head_of(path, size)
    assert NUMBERED.startswith(head)
    assert min(size, 100_000) <= len(head) <= size


def test_damage_behind_the_first_member_of_a_stream(tmp_path: Path) -> None:
    """A stream that gives nothing is an error."""
    path, text = tmp_path / "job.log.gz", NUMBERED[:4000]
    path.write_bytes(gzip.compress(text) + damaged(text))
    assert head_of(path, 1 << 16) == text
    path.write_bytes(gzip.compress(b"text" * 100)[:10] + b"\xff" * 40)
    with pytest.raises(zlib.error):
        head_of(path)


def test_precedence_and_confidence():
    known = {*TOLD_IN_ORDER, "a format of old"}
    ordered = sort_by_precedence([*READERS, "a format of old"])
    assert [name for name in ordered if name in known] == [*TOLD_IN_ORDER, "a format of old"]
    assert READERS.get("nccl_log").sniff(b"n:1:1 [0] NCCL INFO Using network Socket\n") == 0.5
    assert 0 < READERS.get("nsys").sniff(b"SQLite format 3\0") < SURE
    assert READERS.get("timeline").sniff(b"rank,step,operator\n") == 0
    assert {READERS.get(name).sniff(b"any other text\n") for name in (*HEADS, "nccl_log")} == {0.0}


HEADS = {"dcgm": b"#Entity   SMACT\n", "execution_trace": b'{"schema": "1.0.1", "pid": 7, "nodes": ['}
HEADS |= {"fabric_counters": b"/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data:7\n"}
HEADS |= {"flight_recorder": b'{"version": "2.10", "pg_config": {}, "pg_status": {}'}
HEADS |= {"memory_snapshot": b"\x80\x04 segments device_traces"}
HEADS |= {"nccl_inspector": b'{"header": {"n_ranks": 8}, "coll_perf": {'}
HEADS |= {"nccl_tests": b"# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n"}
HEADS |= {"nsys": b"SQLite format 3\0 CUPTI_ACTIVITY_KIND_KERNEL", "nvidia_smi": b"# gpu    pwr\n"}
HEADS |= {"serving": b'{"tokenizer_id": "x", "num_prompts": 3'}
HEADS |= {"step_times": b'{"schema":"cclbench.step-times.v1"'}


@pytest.mark.parametrize("name", HEADS)
def test_a_format_that_knows_its_own_is_sure_of_it_and_no_other_is(name):
    votes = {other: READERS.get(other).sniff(HEADS[name]) for other in HEADS}
    assert {other for other, vote in votes.items() if vote} == {name}
    assert SURE <= votes[name] <= 1


def test_what_cannot_be_read_says_so(tmp_path):
    with pytest.raises(InputError, match=r"^/.*none.json: cannot be read: No such file or directory$"):
        head_of(tmp_path / "none.json")
    with pytest.raises(InputError, match=r"x.gz: timeline reads no parts of compressed files$"):
        READERS.get("timeline").inflate_parts(tmp_path / "x.gz", tmp_path)


def test_a_disk_that_fails_while_it_is_read_says_where(monkeypatch):
    def broken(_):
        raise OSError(5, "Input/output error")

    opened = nullcontext(SimpleNamespace(read=broken))
    monkeypatch.setattr("cclbench.formats.recognition.open_bytes", lambda _: opened)
    with pytest.raises(InputError) as caught:
        head_of(Path("n" * 250))
    assert str(caught.value) == "n" * 200 + ": cannot be read: Input/output error"


@pytest.mark.parametrize(
    ("head", "is_rows"),
    [
        *((b'  [{"name": "x", "ph" : "M"}', True), (b'[{"name": "' + b"x" * 1000 + b'", "ph": "X"}', True)),
        (b'[{"name": "' + b"x" * 1030 + b'", "ph": "X"}', False),
    ],
)
def test_rows_are_known_by_their_phase_near_the_begin(head, is_rows):
    says = "^trace.json: is a Chrome trace .*; give each rank's own trace"
    with pytest.raises(UnreadFormatError, match=says) if is_rows else nullcontext():
        refuse_unread(FILE, head)


LOG = b"n:1:1 [0] NCCL INFO Using network Socket\n"


@pytest.mark.parametrize(
    ("content", "name", "seen"),
    [
        *((b"text\n", None, 1 << 24), (LOG, "nccl_log", 1 << 24)),
        *((b"# gpu    pwr\n" + b"x" * 99, "nvidia_smi", 1 << 16), (b"\0text", None, 1 << 16)),
    ],
)
def test_how_much_is_looked_at_until_somebody_is_sure(tmp_path, content, name, seen):
    """64 KiB, then 1 MiB and 16 MiB of a text of which nobody is."""
    path = tmp_path / "job.log"
    path.write_bytes(content + b"text\n" * (1 << 22))
    reader, head = recognise_head(path, head_of(path))
    assert (reader and reader.name, len(head)) == (name, seen)


@pytest.mark.parametrize("size", [(1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 20, (1 << 20) + 1])
def test_a_text_that_is_shorter_is_looked_at_whole(tmp_path, size):
    path = tmp_path / "job.log"
    path.write_bytes(b"x" * size)
    assert len(head_of(path)) == min(size, 1 << 16)
    assert recognise_head(path, head_of(path)) == (None, b"x" * size)


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:a\n", "a Git LFS pointer.*git lfs pull"),
        (b"\n<!DOCTYPE html><title>Log in</title>", "an HTML page"),
        (b"PK\x03\x04 ", "an archive.*unpack it"),
        (b"a/rank0.json" + bytes(245) + b"ustar\x0000" + bytes(99), "an archive.*unpack it"),
        (b"\x28\xb5\x2f\xfd ", "compressed.*decompress it"),
        (b'{"results": []}', "JSON, an object that begins with 'results'; `cclbench list readers`"),
        (b"null and void", "a text that begins with 'null and void'"),
        (b"\xff\xfeh\0e\0", "binary, and begins with ff fe 68 00 65 00"),
        ("a\u202eb".encode(), r"a text that begins with 'a\\+u202eb'"),
    ],
)
def test_another_file_is_described_by_its_head(tmp_path: Path, head: bytes, what: str) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(head)
    with pytest.raises(InputError, match=f"is no trace of a known format: it is {what}"):
        required_reader(path)

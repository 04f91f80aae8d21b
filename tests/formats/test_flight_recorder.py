# SPDX-License-Identifier: Apache-2.0
"""Flight Recorder dumps: pickle and JSON alike, payloads by hand, and pickles that would do harm."""

from __future__ import annotations

import base64
import json
import os
import pickle
import struct
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.contribute.redaction import collect_identities, find_leftovers, redact_file
from cclbench.formats import Evidence, flight_recorder, pickled, recognise_format
from cclbench.formats.flight_recorder import FlightRecorder
from cclbench.ground.errors import InputError

Entry = dict[str, Any]
Read = Callable[..., Evidence]
# What torch 2.13 wrote (`_dump_fr_trace`, without stack frames) after all_reduce, broadcast, all_gather and
# barrier of 3 x 4 floats between two ranks of gloo; deflated.
TORCH_2_13 = (
    "c-oDV$!^p@5QaTl_GGf}gpdsbQ8W{h2yuc7hgg~$QcGxLId;d@!ehI-+lhh{iBlAK0-k{rcf^6GLE<H#+%rx>6a;gbuCA*7zy7=Y"
    "zI<-8e#^2>xKtvE(PCAKc6XW$EU`garlIR6@v#UoFQp9&E40X~Vz0xo3KbIsT=`g|phki8;<pO>SRbw5G`3fpZS2o7Hcp|RbUJP%"
    "j@&|VfO>jDN_#p}I7sK0Xs3Zgw3???<SFg)7&D&nfOw*a`&yiE9Cm7Kt|*{(ssGH69R8voTPR9MJ&pLSqEV+taJdUS)>3eVV{Mz1"
    "b1KRGL<X)1u<lsqZp2B^I7Op*Bom)2<%TlJQk;MxHe}2=_OeL3X^4{-Y?yX5NbUu$v24otlAdXx>rWe*UYZV`VRed|dyS`!{e!*c"
    "-u|=wg9gsB3FBSC>?)3V^_){Og6VErY|ZyLlQfSOs9>zic`PCkhh2n4qY_3*^4yCeSMnh9IWC!9Ejrxwi6^%yR=E6e;PcD$>+8Os"
    "^X4idPBSuFyd$ITwe7a;RGcd3Y~(5z=(CiPD{b45yowS}<Na<$lIiRA)f?@j*U4W0gSHLSl^>B$2FEqymGXgbBOc&7TP%13q5OnK"
    "ija#jAoPtETfU>>dJ3p!vt^!MaxEx_TbIVryoG4oj>3nBFHV;%^JYT1<TTnJvU3~iP6=oXfF2ztFJKC$VFqSl&M5=E0W8q}qVe9?"
    "d?XVu@M#9|5s;(9pH7XVaKk}ZF&Bm#u0YoVSc7%gXu)O+wl1Ly1O-L;Zi-5eq5`)bJM=VgiH~!P??1l$1Ec)^AeFm8sy&bzfs9<)"
    ";Ys?^BtFS0PM5x2Q5bn6ZZ!X@$TQsD`3-A9Vto"
)
FRAME = {"name": "train", "filename": "/home/user/train.py", "line": 7}


def entry(name: str = "nccl:all_reduce", **changes: Any) -> Entry:
    """An all_reduce of 12 floats, as the recorder's documentation shows one."""
    told = {
        "frames": [FRAME, FRAME],
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": name,
        "time_created_ns": 1_724_779_239_936_775_119,
        "duration_ms": 0.25,
        "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": 1_724_779_239_975_811_724,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
    return {key: value for key, value in (told | changes).items() if value != "absent"}


def dump(*entries: Entry, **changes: Any) -> dict[str, Any]:
    groups = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "7": {"name": "7", "desc": "tp", "ranks": "[1, 3]"},
    }
    status = {
        "0": {"last_enqueued_collective": 2, "last_started_collective": -1, "last_completed_collective": 2}
    }
    told = {"version": "2.10", "nccl_version": "2.27.3", "pg_config": groups, "pg_status": status}
    return told | {"entries": list(entries)} | changes


@pytest.fixture(params=["json", "pickle 2", "pickle 4"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Read:
    """Reads a dump in each of its layouts."""

    def read(told: dict[str, Any], name: str = "nccl_trace_rank_3") -> Evidence:
        path = tmp_path / name
        if request.param == "json":
            path.write_text(json.dumps(told, sort_keys=True))
        else:
            path.write_bytes(pickle.dumps(told, protocol=int(request.param[-1])))
        return FlightRecorder().read(path)

    return read


def rows(found: Evidence, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in found.timings.to_pylist()]


def test_an_entry(read: Read) -> None:
    found = read(dump(entry()))
    assert found.timings.to_pylist() == [
        {
            **dict.fromkeys(found.timings.column_names),
            "rank": 3,
            "kind": "all_reduce",
            "library": "nccl",
            "group": "0-3",
            "group_size": 4,
            "seq": 1,
            "dtype": "Float",
            "bytes": 48,
            "dur_ns": 250_000,
            "state": "completed",
        }
    ]
    assert found.facts == {"flight_recorder_version": "2.10", "library_version": "2.27.3"}
    assert found.notes == []


def test_a_dump_of_torch(tmp_path: Path) -> None:
    """Gloo's calls stay `scheduled` for ever: retired, they say nothing of their state."""
    path = tmp_path / "trace_rank_0"
    path.write_bytes(zlib.decompress(base64.b85decode(TORCH_2_13)))
    reader = recognise_format(path, path.read_bytes())
    assert reader.name == "flight_recorder"
    found = FlightRecorder().read(path)
    assert rows(found, "kind", "library", "rank", "seq", "dtype", "bytes", "state") == [
        ("all_reduce", "gloo", 0, 1, "Float", 48, None),
        ("broadcast", "gloo", 0, 2, "Float", 48, None),
        ("all_gather", "gloo", 0, 3, "Float", 96, None),
        ("barrier", "gloo", 0, 4, None, None, None),
    ]
    assert found.facts == {"flight_recorder_version": "2.10"}
    assert found.notes == ["4 of 4 collectives have no state: the backend states none"]


@pytest.mark.parametrize(
    ("name", "changes", "kind", "payload"),
    [
        ("nccl:_all_gather_base", {"output_sizes": [[12, 4]]}, "all_gather", 192),
        ("nccl:_reduce_scatter_base", {"input_sizes": [[12, 4]]}, "reduce_scatter", 192),
        ("nccl:_all_gather_base", {"output_sizes": [], "output_dtypes": []}, "all_gather", None),
        ("nccl:broadcast", {"output_sizes": [], "output_dtypes": []}, "broadcast", 48),
        ("nccl:all_to_all", {"input_sizes": [[8]], "output_sizes": [[10]]}, "all_to_all", 40),
        ("nccl:all_reduce", {"input_sizes": [[]], "output_sizes": [[]]}, "all_reduce", 4),
        ("nccl:all_reduce", {"input_sizes": [[0, 9]], "output_sizes": [[0, 9]]}, "all_reduce", 0),
        (
            "nccl:all_reduce",
            {
                "input_sizes": [[3], [5]],
                "input_dtypes": ["Half", "Long"],
                "output_sizes": [],
                "output_dtypes": [],
            },
            "all_reduce",
            46,
        ),
        ("nccl:all_reduce", {"input_dtypes": ["Odd"], "output_dtypes": ["Odd"]}, "all_reduce", None),
        ("nccl:all_reduce", {"input_dtypes": [], "output_dtypes": []}, "all_reduce", None),
        (
            "nccl:coalesced",
            {"input_sizes": [], "input_dtypes": [], "output_sizes": [], "output_dtypes": []},
            None,
            None,
        ),
    ],
)
def test_payload(read: Read, name: str, changes: Entry, kind: str | None, payload: int | None) -> None:
    assert rows(read(dump(entry(name, **changes))), "kind", "bytes") == [(kind, payload)]


def test_point_to_point_has_numbers_of_its_own(read: Read) -> None:
    told = {
        "is_p2p": True,
        "p2p_seq_id": 5,
        "process_group": ("7", "tp"),
        "output_sizes": [],
        "output_dtypes": [],
    }
    found = read(dump(entry("nccl:send 1->3", **told)))
    assert rows(found, "kind", "library", "group", "group_size", "seq", "bytes") == [
        ("send", "nccl", "1,3", 2, 5, 48)
    ]


def test_what_had_not_completed(read: Read) -> None:
    """What hangs is what these dumps are for."""
    found = read(
        dump(
            entry(),
            entry(duration_ms="absent"),
            entry(state="started", duration_ms="absent", retired=False),
            entry(state="scheduled", duration_ms="absent", retired=False),
            entry(state="odd", duration_ms="absent", retired=False),
        )
    )
    assert rows(found, "state", "dur_ns") == [
        ("completed", 250_000),
        ("completed", None),
        ("started", None),
        ("scheduled", None),
        (None, None),
    ]
    assert found.notes == [
        "2 of 5 collectives had not completed when it was written",
        "1 of 5 collectives have no state: the backend states none",
        "1 completed collectives have no duration: set TORCH_NCCL_ENABLE_TIMING=1",
    ]


def test_a_duration_keeps_its_single_precision(read: Read) -> None:
    exact = struct.unpack("f", struct.pack("f", 1.2345678))[0]
    assert exact != 1.2345678
    assert rows(read(dump(entry(duration_ms=exact))), "dur_ns") == [(1_234_568,)]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_3", 3),
        ("comm_lib_trace_rank_12.pkl", 12),
        ("rank9.trace.json", 9),
        ("dump_2", 2),  # 2 is a rank of the default group
        ("dump_20240801", None),
        ("trace_8", None),
        ("rank", None),
    ],
)
def test_rank_is_the_names_last_number(read: Read, name: str, rank: int | None) -> None:
    assert rows(read(dump(entry()), name), "rank") == [(rank,)]


@pytest.mark.parametrize("listed", ["[0, 1, ..., 7]", "", "0, 1", "[]", "[-1, 2]", "[9999999999]", None])
def test_groups_that_are_not_listed_are_unknown(read: Read, listed: str | None) -> None:
    found = read(dump(entry(), pg_config={"0": {"name": "0", "ranks": listed}}))
    assert rows(found, "group", "group_size", "rank") == [(None, None, 3)]


def test_an_empty_dump_says_so(read: Read) -> None:
    told = {"version": "2.10", "pg_config": {}, "pg_status": {}}
    found = read(told)
    assert rows(found, "kind") == []
    assert found.notes == [
        "holds no collectives: was TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE) set?"
    ]


def test_no_path_leaves_the_file(read: Read) -> None:
    found = read(dump(entry(thread_name="pt_main", thread_id="140")))
    told = str((found.timings.to_pylist(), found.facts, found.notes))
    assert not any(secret in told for secret in ("home", "train", "user", "pt_main"))


@pytest.mark.parametrize(
    ("head", "confident"),
    [
        (json.dumps(dump(entry()), sort_keys=True).encode(), True),
        (json.dumps(dump()).encode(), True),
        # the beginning of a long dump, which names no groups yet
        (json.dumps(dump(*[entry()] * 20), sort_keys=True).encode()[:4096], True),
        (b'{"collective_seq_id": 1}', False),
        (pickle.dumps(dump(entry()), protocol=2), True),
        (pickle.dumps({"segments": [], "device_traces": []}), False),
        (b'{"traceEvents": [], "distributedInfo": {"pg_config": []}}', False),
        (b"pg_config and pg_status, collective_seq_id and profiling_name", False),
        (b"", False),
    ],
)
def test_recognised(head: bytes, confident: bool) -> None:
    reader = recognise_format(Path("x"), head)
    assert (reader is not None and reader.name == "flight_recorder") is confident


class Harmful:
    """What a pickle may ask to be run when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harmed",)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "nccl_trace_rank_0"
    for protocol in (2, 4):
        harmful = pickle.dumps(dump(entry(duration_ms=Harmful())), protocol=protocol)
        path.write_bytes(harmful)
        with pytest.raises(InputError, match="holds more than data: instruction") as raised:
            FlightRecorder().read(path)
        assert raised.value.where == str(path)
        assert not Path("harmed").exists()
        with pytest.raises(Exception):  # noqa: B017, PT011 (whatever mkdir's result breaks)
            float(pickle.loads(harmful)["entries"][0]["duration_ms"])  # noqa: S301 (the test's own)
        Path("harmed").rmdir()


BOMBS = {
    "cut": pickle.dumps(dump(entry()), protocol=2)[:-40],
    "without an end": b"\x80\x02}",
    "garbage": b"\x80\x02\xff\xfe\x00",
    "two values": b"\x80\x02K\x01K\x02.",
    "no value": b"\x80\x02.",
    "items without a list": b"\x80\x02K\x01K\x02a.",
    "items without a mark": b"\x80\x02]K\x01e.",
    "keys that are lists": b"\x80\x02}]K\x01s.",
    "deep keys": b"\x80\x02})" + b"\x85" * 50_000 + b"K\x01s.",
    "odd items": b"\x80\x02}(K\x01u.",
    "a memo of nothing": b"\x80\x02h\x05.",
    "a short tuple": b"\x80\x02K\x01\x86.",
    "a long text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b".",
    "long bytes": b"\x80\x04\x8e" + struct.pack("<Q", (1 << 64) - 1) + b".",
    "a long integer": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "text instructions": b"\x80\x02I42\n.",
    "no dump": pickle.dumps([1, 2], protocol=2),
    "itself": b"\x80\x02]q\x00h\x00a.",
    "instructions": b"\x80\x02" + b"N" * 60_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_damaged_and_hostile_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(pickled, "_MOST_INSTRUCTIONS", 50_000)
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(BOMBS[name])
    with pytest.raises(InputError) as raised:
        FlightRecorder().read(path)
    assert raised.value.where == str(path)
    assert len(str(raised.value).splitlines()) == 1


def test_references_count_as_often_as_they_are_made() -> None:
    """A list of 200 numbers, a list of 200 times that list, ...: 2 KiB that no memory holds once followed."""
    lists = [b"]q\x00(" + b"K\x01" * 200 + b"e"]
    lists += [b"]q%c(" % level + b"h%c" % (level - 1) * 200 + b"e" for level in range(1, 5)]
    with pytest.raises(pickled.NotPlainError, match="unfolds to more"):
        pickled.load_plain(b"\x80\x02(" + b"".join(lists) + b"t.")


def test_a_deep_key_is_refused_before_it_is_hashed() -> None:
    """`pickle.loads` of it ends the process: hashing nested tuples recurses."""
    with pytest.raises(pickled.NotPlainError, match="damaged"):
        pickled.load_plain(b"\x80\x02}" + (b"(" + b"N" * 16) * 50_000 + b")" + b"t" * 50_000 + b"K\x01s.")


def test_a_far_place_in_the_memo_takes_no_memory() -> None:
    """`pickle.loads` of it takes a table of 2^32 places."""
    tracemalloc.start()
    try:
        assert pickled.load_plain(b"\x80\x02K\x07r\xff\xff\xff\x7f.") == 7
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_place_in_the_memo_can_be_taken_anew() -> None:
    """Instructions of either length refer to it, and to what was put there last."""
    both = b"h\x01j\x01\x00\x00\x00"
    assert pickled.load_plain(
        b"\x80\x02(K\x07q\x01" + both + b"K\x08r\x01\x00\x00\x00" + both + b"K\x09\x94h\x01t."
    ) == (
        *(7, 7, 7),
        *(8, 8, 8),
        *(9, 9),
    )


@pytest.mark.parametrize("cut", [b"h", b"j\x01\x00\x00", b"J\x01", b"X\x05\x00\x00\x00abcd", b"G\x00"])
def test_an_instruction_that_is_cut(cut: bytes) -> None:
    with pytest.raises(pickled.NotPlainError, match=r"cut|damaged"):
        pickled.load_plain(b"\x80\x02K\x07q\x01" + cut)


def test_deep_data_is_only_data() -> None:
    """No recursion: neither in reading nor in counting."""
    deep = pickled.load_plain(b"\x80\x02" + (b"](" + b"N" * 16) * 50_000 + b"e" * 50_000 + b".")
    for _ in range(49_999):
        *_, deep = deep
    assert deep == [None] * 16


@pytest.mark.parametrize(
    "told",
    [
        dump(entry(input_sizes=[[-1]])),
        dump(entry(input_sizes=[[1 << 59], [1 << 59]], input_dtypes=["Long", "Long"])),
        dump(entry(input_sizes=[[1 << 40, 1 << 40]])),
        dump(entry(input_sizes="many")),
        dump(entry(duration_ms=-1.0)),
        dump(entry(duration_ms=1e300)),
        dump(entry(collective_seq_id=1 << 70)),
        dump(entry(profiling_name=7)),
        dump(entries={"0": 1}),
        dump(pg_config=[]),
    ],
)
def test_impossible_figures(read: Read, tmp_path: Path, told: dict[str, Any]) -> None:
    with pytest.raises(InputError) as raised:
        read(told)
    assert raised.value.where == str(tmp_path / "nccl_trace_rank_3")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text", ['{"entries": [', '{"entries": ' + "[" * 100_000, "{}x", '{"version": "\\ud8"}']
)
def test_damaged_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        FlightRecorder().read(path)
    assert raised.value.where == str(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        FlightRecorder().read(tmp_path / "none")


class TestRewritten:
    """What `contribute` publishes of a pickle."""

    def redacted(self, tmp_path: Path, content: Any) -> tuple[Any, dict[tuple[str, str], int]]:
        source, target = tmp_path / "nccl_trace_rank_0", tmp_path / "redacted"
        source.write_bytes(pickle.dumps(content, protocol=2))
        known = collect_identities([source])
        told = redact_file(source, target, identities=known)
        assert find_leftovers(target, known) == []
        return pickled.load_plain(target.read_bytes()), {(one.place, one.kind): one.count for one in told}

    def test_texts_change_and_what_is_read_does_not(self, tmp_path: Path) -> None:
        calls = [entry(), entry("nccl:_all_gather_base", collective_seq_id=2)]
        content = dump(*calls, hostname="gpunode-17", host_of={"0": "on gpunode-17"}, job_id=1_234_567)
        new, told = self.redacted(tmp_path, content)
        assert told == {
            ("hostname", "host name"): 1,
            ("0", "host name"): 1,
            ("job_id", "job"): 1,
            ("frames", "source path"): 2,
        }
        assert new == content | {
            "entries": [call | {"frames": []} for call in calls],
            "hostname": "host-1",
            "host_of": {"0": "on host-1"},
            "job_id": None,
        }
        rows = [FlightRecorder().read(tmp_path / name).timings for name in ("nccl_trace_rank_0", "redacted")]
        assert rows[0].drop_columns("rank").equals(rows[1].drop_columns("rank"))

    def test_of_an_environment_only_what_tells_of_the_run_stays(self, tmp_path: Path) -> None:
        content = dump(
            env={"NCCL_DEBUG": "INFO", "LOCAL_PLACE": "behind the moon"}, argv=["train.py", "--fast"]
        )
        new, _ = self.redacted(tmp_path, content)
        assert new["env"] == {"NCCL_DEBUG": "INFO", "LOCAL_PLACE": "redacted-environment"}
        assert "argv" not in new
        assert b"train.py" not in pickle.dumps(new)

    def test_with_nothing_to_hide_it_says_the_same(self, tmp_path: Path) -> None:
        source, target = tmp_path / "a.pkl", tmp_path / "b.pkl"
        source.write_bytes(zlib.decompress(base64.b85decode(TORCH_2_13)))
        redact_file(source, target, identities=collect_identities([source]))
        assert FlightRecorder().read(target) == FlightRecorder().read(source)

    def test_what_is_nested_without_end_is_refused(self, tmp_path: Path) -> None:
        source = tmp_path / "a.pkl"
        source.write_bytes(
            b"\x80\x02" + (b"](" + b"N" * 16) * 2000 + pickle.dumps("pg_config", 2)[2:-1] + b"e" * 2000 + b"."
        )
        with pytest.raises(InputError, match="nested too deeply"):
            collect_identities([source])


@pytest.mark.parametrize(
    ("listed", "size"),
    [("[2147483647]", 1), ("[2147483648]", None), ("[ 0 , 1 ]", 2), ("[0,1,2]", 3), ("[0 1]", None)],
)
def test_ranks_of_a_group_have_31_bits(read: Read, listed: str, size: int | None) -> None:
    found = read(dump(entry(), pg_config={"0": {"name": "0", "ranks": listed}}))
    assert rows(found, "group_size") == [(size,)]


@pytest.mark.parametrize(("count", "known"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_a_group_has_a_million_ranks_at_most(tmp_path: Path, count: int, known: bool) -> None:
    path = tmp_path / "dump_rank_0"
    listed = f"[{'0,' * (count - 1)}0]"
    path.write_text(json.dumps(dump(entry(), pg_config={"0": {"name": "0", "ranks": listed}})))
    assert rows(FlightRecorder().read(path), "group_size") == [(count if known else None,)]


BELIEVED: dict[str, tuple[Entry, str, Any, Entry]] = {
    "number": ({"collective_seq_id": (1 << 62) - 1}, "seq", (1 << 62) - 1, {"collective_seq_id": 1 << 62}),
    "first number": ({"collective_seq_id": 0}, "seq", 0, {"collective_seq_id": -1}),
    "number of a transfer": (
        {"is_p2p": True, "p2p_seq_id": (1 << 62) - 1},
        *("seq", (1 << 62) - 1),
        {"p2p_seq_id": 1 << 62},
    ),
    "first number of a transfer": ({"is_p2p": True, "p2p_seq_id": 0}, "seq", 0, {"p2p_seq_id": -1}),
    "duration": ({"duration_ms": 1e11}, "dur_ns", 10**17, {"duration_ms": 1.00001e11}),
    "no duration": ({"duration_ms": 0.0}, "dur_ns", 0, {"duration_ms": -0.5}),
    "size": (
        {"input_sizes": [[1 << 57]], "input_dtypes": ["Long"]},
        *("bytes", 1 << 60),
        {"input_sizes": [[(1 << 57) + 1]], "input_dtypes": ["Long"]},
    ),
    "dimension": (
        {"input_sizes": [[1 << 60, 1]], "input_dtypes": ["Byte"]},
        *("bytes", 1 << 60),
        {"input_sizes": [[(1 << 60) + 1, 0]], "input_dtypes": ["Byte"]},
    ),
    "no dimension": ({"input_sizes": [[0]]}, "bytes", 48, {"input_sizes": [[-1]]}),
}


@pytest.mark.parametrize("name", BELIEVED)
def test_bounds_of_what_is_believed(read: Read, name: str) -> None:
    believed, column, value, beyond = BELIEVED[name]
    assert rows(read(dump(entry(**believed))), column) == [(value,)]
    with pytest.raises(InputError):
        read(dump(entry(**beyond)))


def test_an_impossible_size_says_of_which_entry(read: Read, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read(dump(entry(), entry(input_sizes=[[1 << 58]], input_dtypes=["Long"])))
    assert str(raised.value) == (
        f"{tmp_path / 'nccl_trace_rank_3'}: entry 2 has tensors of an impossible size;"
        " write it again, or remove it to do without"
    )


def test_a_type_for_each_shape_or_no_size(read: Read) -> None:
    odd = {"input_sizes": [[3], [4]], "output_sizes": [], "output_dtypes": []}
    assert rows(read(dump(entry(**odd))), "bytes", "dtype") == [(None, "Float")]
    mixed = {"input_sizes": [[3], [4]], "input_dtypes": ["Float", "Odd"], "output_sizes": [[1]]}
    assert rows(read(dump(entry(**mixed))), "bytes", "dtype") == [(4, None)]


def test_entries_without_tensors_are_counted_unless_they_have_none(read: Read) -> None:
    nothing: Entry = {"input_sizes": [], "input_dtypes": [], "output_sizes": [], "output_dtypes": []}
    found = read(
        dump(
            entry(**nothing),
            entry(**nothing),
            entry("nccl:barrier", **nothing),
            entry(**nothing | {"input_dtypes": ["Float"]}),
            entry(**nothing | {"output_dtypes": ["Float"]}),
        )
    )
    assert found.notes == ["2 entries state no tensors: their payload is unknown"]


def test_versions_are_told_but_cut(read: Read) -> None:
    found = read(dump(entry(), version="v" * 70, comm_lib_version="2.28.9"))
    assert found.facts == {"flight_recorder_version": "v" * 60, "library_version": "2.28.9"}
    assert read(dump(entry(), version=None, nccl_version=None)).facts == {}


def test_a_call_of_no_group_has_none(read: Read) -> None:
    assert rows(read(dump(entry(process_group=()))), "group", "group_size") == [(None, None)]


def test_a_pickle_of_more_than_data_may_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(b"\x80\x02cos\nmkdir\n.")
    with pytest.raises(InputError) as raised:
        FlightRecorder().read(path)
    assert str(raised.value) == (
        f"{path}: pickle holds more than data: instruction GLOBAL at byte 2;"
        " remove it; a Flight Recorder dump is data alone"
    )


class Plain:
    """Replaces the word `secret`."""

    learns = False

    def publishes(self, key: str) -> bool:
        """All are."""
        del key
        return True

    def __init__(self) -> None:
        self.counted: dict[str, dict[str, int]] = {}

    def text(self, text: str, _field: str = "") -> tuple[str, Counter[str]]:
        return text.replace("secret", "?"), Counter(word=1) if "secret" in text else Counter()

    def kind_of_field(self, _name: str) -> None:
        return None

    def keeps(self, *_: object) -> bool:
        return False

    def count(self, place: str, counts: dict[str, int]) -> None:
        self.counted |= {place: dict(counts)} if counts else {}


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_a_dump_of_either_layout_is_rewritten_as_what_it_is(tmp_path: Path, form: str) -> None:
    source, target = tmp_path / "dump_rank_0", tmp_path / "new"
    told = dump(note="a secret")
    source.write_bytes(json.dumps(told).encode() if form == "json" else pickle.dumps(told, 2))
    for written in (None, target):
        redactor = Plain()
        assert FlightRecorder().rewrite(source, written, redactor)  # type: ignore[arg-type]
        assert redactor.counted == {"note": {"word": 1}}
    content = target.read_bytes()
    new = json.loads(content) if form == "json" else pickled.load_plain(content)
    assert new == told | {"note": "a ?"}
    assert source.read_bytes() != content


def test_ranks_that_groups_share_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By reference a pickle names as many ranks as the product of its groups and the ranks of one."""
    texts = []
    monkeypatch.setattr(flight_recorder, "_parse_ranks", lambda text: texts.append(text) or (0, 1))
    shared, path = {"ranks": "[0, 1]"}, tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"pg_config": {str(n): shared for n in range(1000)}, "entries": []}, 2))
    FlightRecorder().read(path)
    assert texts == ["[0, 1]"]


def test_a_tensor_of_any_number_of_dimensions_is_refused(read: Read) -> None:
    """Their product would have as many digits."""
    assert read(dump(entry(input_sizes=[[1] * 64], input_dtypes=["Int"]))).timings["bytes"].to_pylist()
    with pytest.raises(InputError, match="of length <= 64"):
        read(dump(entry(input_sizes=[[1 << 40] * 65], input_dtypes=["Int"])))


def test_ends_of_a_transfer_are_ranks_of_the_job(read: Read) -> None:
    """By source, torch names them by their places in the group: here of ranks 1 and 3."""
    told: dict[str, Any] = {"process_group": ["7", "tp"], "is_p2p": True}
    found = read(dump(entry("nccl:send 0->1", **told), entry("nccl:recv 0<-1", **told)))
    ends = found.timings.select(["kind", "src_rank", "dst_rank"]).to_pylist()
    assert [tuple(row.values()) for row in ends] == [("send", 1, 3), ("recv", 3, 1)]
    assert [(group.description, group.ranks) for group in found.groups] == [
        ("default_pg", (0, 1, 2, 3)),
        ("tp", (1, 3)),
    ]

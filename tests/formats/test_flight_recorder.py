# SPDX-License-Identifier: Apache-2.0
"""Flight Recorder dumps: pickle and JSON alike, payloads by hand, and pickles that would do harm."""

from __future__ import annotations

import base64
import json
import pickle
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.plain_redactor import PlainRedactor
from helpers.refused import refused

from cclbench.contribute.redaction import redact_evidence
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
NO_OUTPUT: Entry = {"output_sizes": [], "output_dtypes": []}
NO_TENSORS = NO_OUTPUT | {"input_sizes": [], "input_dtypes": []}
HALF_AND_LONG: Entry = {"input_dtypes": ["Half", "Long"]}


def entry(name: str = "nccl:all_reduce", **changes: Any) -> Entry:
    """An all_reduce of 12 floats, as the recorder's documentation shows one."""
    told = {"frames": [FRAME, FRAME], "record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg")}
    told |= {"collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1, "is_p2p": False, "profiling_name": name}
    told |= {"input_sizes": [[3, 4]], "input_dtypes": ["Float"]}
    told |= {"output_sizes": [[3, 4]], "output_dtypes": ["Float"]}
    told |= {"time_created_ns": 1_724_779_239_936_775_119, "time_discovered_started_ns": None}
    told |= {"time_discovered_completed_ns": 1_724_779_239_975_811_724, "duration_ms": 0.25}
    told |= {"state": "completed", "retired": True, "timeout_ms": 600_000}
    return {key: value for key, value in (told | changes).items() if value != "absent"}


def dump(*entries: Entry, **changes: Any) -> dict[str, Any]:
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    groups |= {"7": {"name": "7", "desc": "tp", "ranks": "[1, 3]"}}
    status = {"0": {f"last_{done}_collective": 2 for done in ("enqueued", "started", "completed")}}
    told = {"version": "2.10", "nccl_version": "2.27.3", "pg_config": groups, "pg_status": status}
    return told | {"entries": list(entries)} | changes


def group(ranks: str | None) -> dict[str, Any]:
    return {"0": {"name": "0", "ranks": ranks}}


@pytest.fixture(params=["json", "pickle 2", "pickle 4"])
def read(request: pytest.FixtureRequest, written: Callable[..., Path]) -> Read:
    """Reads a dump in each of its layouts."""

    def read(told: dict[str, Any], name: str = "nccl_trace_rank_3") -> Evidence:
        as_json = request.param == "json"
        text = json.dumps(told, sort_keys=True) if as_json else pickle.dumps(told, int(request.param[-1]))
        return FlightRecorder().read(written(text, name))

    return read


def rows(found: Evidence, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in found.timings.to_pylist()]


def test_an_entry(read: Read) -> None:
    found = read(dump(entry()))
    told = {"rank": 3, "kind": "all_reduce", "library": "nccl", "group": "0-3", "group_size": 4, "seq": 1}
    told |= {"dtype": "Float", "bytes": 48, "dur_ns": 250_000, "state": "completed"}
    assert found.timings.to_pylist() == [dict.fromkeys(found.timings.column_names) | told]
    assert found.facts == {"flight_recorder_version": "2.10", "library_version": "2.27.3"}
    assert found.notes == []


def test_a_dump_of_torch(tmp_path: Path) -> None:
    """Gloo's calls stay `scheduled` for ever: retired, they say nothing of their state."""
    path = tmp_path / "trace_rank_0"
    path.write_bytes(zlib.decompress(base64.b85decode(TORCH_2_13)))
    assert recognise_format(path, path.read_bytes()).name == "flight_recorder"
    found = FlightRecorder().read(path)
    assert rows(found, "kind", "library", "rank", "seq", "dtype", "bytes", "state") == [
        *(("all_reduce", "gloo", 0, 1, "Float", 48, None), ("broadcast", "gloo", 0, 2, "Float", 48, None)),
        *(("all_gather", "gloo", 0, 3, "Float", 96, None), ("barrier", "gloo", 0, 4, None, None, None)),
    ]
    assert found.facts == {"flight_recorder_version": "2.10"}
    assert found.notes == ["4 of 4 collectives have no state: the backend states none"]


@pytest.mark.parametrize(
    ("name", "changes", "kind", "payload"),
    [
        ("nccl:_all_gather_base", {"output_sizes": [[12, 4]]}, "all_gather", 192),
        ("nccl:_reduce_scatter_base", {"input_sizes": [[12, 4]]}, "reduce_scatter", 192),
        ("nccl:_all_gather_base", NO_OUTPUT, "all_gather", None),
        ("nccl:broadcast", NO_OUTPUT, "broadcast", 48),
        ("nccl:all_to_all", {"input_sizes": [[8]], "output_sizes": [[10]]}, "all_to_all", 40),
        ("nccl:all_reduce", {"input_sizes": [[]], "output_sizes": [[]]}, "all_reduce", 4),
        ("nccl:all_reduce", {"input_sizes": [[0, 9]], "output_sizes": [[0, 9]]}, "all_reduce", 0),
        # 3 numbers of 2 bytes and 5 of 8
        ("nccl:all_reduce", {**NO_OUTPUT, "input_sizes": [[3], [5]], **HALF_AND_LONG}, "all_reduce", 46),
        ("nccl:all_reduce", {"input_dtypes": ["Odd"], "output_dtypes": ["Odd"]}, "all_reduce", None),
        ("nccl:all_reduce", {"input_dtypes": [], "output_dtypes": []}, "all_reduce", None),
        ("nccl:coalesced", NO_TENSORS, None, None),
    ],
)
def test_payload(read: Read, name: str, changes: Entry, kind: str | None, payload: int | None) -> None:
    assert rows(read(dump(entry(name, **changes))), "kind", "bytes") == [(kind, payload)]


def test_transfers_have_numbers_of_their_own_and_ends_that_are_ranks_of_the_job(read: Read) -> None:
    """By source, torch names ends by their places in the group: here of ranks 1 and 3."""
    told: Entry = {"process_group": ["7", "tp"], "is_p2p": True, "p2p_seq_id": 5}
    found = read(dump(entry("nccl:send 0->1", **told, **NO_OUTPUT), entry("nccl:recv 0<-1", **told)))
    columns = ("kind", "library", "group", "group_size", "seq", "bytes", "src_rank", "dst_rank")
    assert rows(found, *columns) == [
        *(("send", "nccl", "1,3", 2, 5, 48, 1, 3), ("recv", "nccl", "1,3", 2, 5, 48, 3, 1)),
    ]
    assert [(g.description, g.ranks) for g in found.groups] == [("default_pg", (0, 1, 2, 3)), ("tp", (1, 3))]


def test_what_had_not_completed(read: Read) -> None:
    """What hangs is what these dumps are for."""
    going = [entry(state=s, duration_ms="absent", retired=False) for s in ("started", "scheduled", "odd")]
    found = read(dump(entry(), entry(duration_ms="absent"), *going))
    assert rows(found, "state", "dur_ns") == [
        *(("completed", 250_000), ("completed", None), ("started", None), ("scheduled", None), (None, None))
    ]
    assert found.notes == [
        "2 of 5 collectives had not completed when it was written",
        "1 of 5 collectives have no state: the backend states none",
        "1 completed collectives have no duration: set TORCH_NCCL_ENABLE_TIMING=1",
    ]


def test_durations_keep_their_single_precision_and_paths_stay(read: Read) -> None:
    exact = struct.unpack("f", struct.pack("f", 1.2345678))[0]
    assert exact != 1.2345678
    assert rows(read(dump(entry(duration_ms=exact))), "dur_ns") == [(1_234_568,)]
    found = read(dump(entry(thread_name="pt_main", thread_id="140")))
    told = str((found.timings.to_pylist(), found.facts, found.notes))
    assert not any(secret in told for secret in ("home", "train", "user", "pt_main"))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        *(("nccl_trace_rank_3", 3), ("comm_lib_trace_rank_12.pkl", 12), ("rank9.trace.json", 9)),
        ("dump_2", 2),  # 2 is a rank of the default group
        *(("dump_20240801", None), ("trace_8", None), ("rank", None)),
    ],
)
def test_rank_is_the_names_last_number(read: Read, name: str, rank: int | None) -> None:
    assert rows(read(dump(entry()), name), "rank") == [(rank,)]


@pytest.mark.parametrize(
    ("listed", "size"),
    [
        *((text, None) for text in ("[0, 1, ..., 7]", "", "0, 1", "[]", "[-1, 2]", "[0 1]", None)),
        *(("[2147483647]", 1), ("[2147483648]", None), ("[ 0 , 1 ]", 2), ("[0,1,2]", 3)),
    ],
)
def test_groups_are_known_where_ranks_are_listed(read: Read, listed: str | None, size: int | None) -> None:
    """Ranks have 31 bits."""
    found = read(dump(entry(), pg_config=group(listed)))
    assert rows(found, "group_size", "rank") == [(size, 3)]
    assert (found.timings["group"][0].as_py() is None) is (size is None)


def test_an_empty_dump_says_so(read: Read) -> None:
    found = read({"version": "2.10", "pg_config": {}, "pg_status": {}})
    assert rows(found, "kind") == []
    assert found.notes == [
        "holds no collectives: was TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE) set?"
    ]


def test_recognised_in_each_layout() -> None:
    # of a long dump the beginning, which names no groups yet
    long = json.dumps(dump(*[entry()] * 20), sort_keys=True).encode()[:4096]
    heads = [json.dumps(dump(entry()), sort_keys=True).encode(), json.dumps(dump()).encode(), long]
    readers = [recognise_format(Path("x"), one) for one in (*heads, pickle.dumps(dump(entry()), protocol=2))]
    assert [reader and reader.name for reader in readers] == ["flight_recorder"] * 4


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(b"\x80\x02cos\nmkdir\n.")
    assert refused(FlightRecorder().read, path) == (
        f"{path}: pickle holds more than data: instruction GLOBAL at byte 2;"
        " remove it; a Flight Recorder dump is data alone"
    )


@pytest.mark.parametrize(
    "content",
    [
        *(b'{"entries": [', b'{"entries": ' + b"[" * 100_000, b"{}x", b'{"version": "\\ud8"}'),
        *(pickle.dumps([1, 2], protocol=2), pickle.dumps(dump(entry()), protocol=2)[:-40]),
    ],
    ids=["cut", "deep", "more", "half a character", "no dump", "cut pickle"],
)
def test_damaged_dumps(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    refused(FlightRecorder().read, path)


class TestRewritten:
    """What `contribute` publishes of a pickle."""

    def redacted(self, tmp_path: Path, content: Any) -> tuple[Any, dict[tuple[str, str], int]]:
        source, target = tmp_path / "nccl_trace_rank_0", tmp_path / "redacted"
        source.write_bytes(pickle.dumps(content, protocol=2))
        told = redact_evidence(source, target)
        return pickled.load_plain(target.read_bytes()), {(one.place, one.kind): one.count for one in told}

    def test_texts_change_and_what_is_read_does_not(self, tmp_path: Path) -> None:
        calls = [entry(), entry("nccl:_all_gather_base", collective_seq_id=2)]
        private = {"hostname": "acmenode-17", "job_id": 1_234_567, "argv": ["train.py", "--fast"]}
        content = dump(*calls, **private, env={"NCCL_DEBUG": "INFO", "LOCAL_PLACE": "behind the moon"})
        new, told = self.redacted(tmp_path, content)
        assert told["frames", "source path"] == 2
        assert not re.search(r"acme|1234567|train\.py|fast|moon", str(new))
        assert new["entries"] == [call | {"frames": []} for call in calls]
        rows = [FlightRecorder().read(tmp_path / name).timings for name in ("nccl_trace_rank_0", "redacted")]
        assert rows[0].drop_columns("rank").equals(rows[1].drop_columns("rank"))

    def test_what_is_nested_without_end_is_refused(self, tmp_path: Path) -> None:
        source = tmp_path / "a.pkl"
        inner = pickle.dumps("pg_config", 2)[2:-1]
        source.write_bytes(b"\x80\x02" + (b"](" + b"N" * 16) * 2000 + inner + b"e" * 2000 + b".")
        with pytest.raises(InputError, match="nested too deeply"):
            redact_evidence(source, tmp_path / "b.pkl")


@pytest.mark.parametrize(("count", "known"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_a_group_has_a_million_ranks_at_most(tmp_path: Path, count: int, known: bool) -> None:
    path = tmp_path / "dump_rank_0"
    path.write_text(json.dumps(dump(entry(), pg_config=group(f"[{'0,' * (count - 1)}0]"))))
    assert rows(FlightRecorder().read(path), "group_size") == [(count if known else None,)]


INT: Entry = {"input_dtypes": ["Int"]}
LONG, BYTE, P2P = {"input_dtypes": ["Long"]}, {"input_dtypes": ["Byte"]}, {"is_p2p": True}


def of(*sizes: list[int]) -> Entry:
    return {"input_sizes": list(sizes)}


BELIEVED: dict[str, tuple[Entry, str, Any, Entry]] = {
    f"{end} {name}": (of_kind | {name: believed}, "seq", believed, {name: beyond})
    for name, of_kind in (("collective_seq_id", {}), ("p2p_seq_id", P2P))
    for end, believed, beyond in (("last", (1 << 62) - 1, 1 << 62), ("first", 0, -1))
}
BELIEVED |= {
    "duration": ({"duration_ms": 1e11}, "dur_ns", 10**17, {"duration_ms": 1.00001e11}),
    "no duration": ({"duration_ms": 0.0}, "dur_ns", 0, {"duration_ms": -0.5}),
    "size": (LONG | of([1 << 57]), "bytes", 1 << 60, LONG | of([(1 << 57) + 1])),
    "dimension": (BYTE | of([1 << 60, 1]), "bytes", 1 << 60, BYTE | of([(1 << 60) + 1, 0])),
    "no dimension": (of([0]), "bytes", 48, of([-1])),
    # of any number of dimensions the product would have as many digits
    "dimensions": (INT | of([1] * 64), "bytes", 48, INT | of([1 << 40] * 65)),
    "product": ({}, "bytes", 48, of([1 << 40, 1 << 40])),
    "name": ({"profiling_name": "nccl:barrier"}, "kind", "barrier", {"profiling_name": 7}),
    "sizes": ({}, "bytes", 48, {"input_sizes": "many"}),
}


@pytest.mark.parametrize("name", BELIEVED)
def test_bounds_of_what_is_believed(read: Read, tmp_path: Path, name: str) -> None:
    believed, column, value, beyond = BELIEVED[name]
    assert rows(read(dump(entry(**believed))), column) == [(value,)]
    refused(lambda _: read(dump(entry(**beyond))), tmp_path / "nccl_trace_rank_3")


def test_parts_of_a_wrong_type_and_of_which_entry_a_size_is_impossible(read: Read, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_3"
    for changes in ({"entries": {"0": 1}}, {"pg_config": []}):
        refused(lambda _, changes=changes: read(dump(**changes)), path)
    told = dump(entry(), entry(input_sizes=[[1 << 58]], input_dtypes=["Long"]))
    assert refused(lambda _: read(told), path) == (
        f"{path}: entry 2 has tensors of an impossible size; write it again, or remove it to do without"
    )


def test_types_and_sizes_of_tensors(read: Read) -> None:
    odd = NO_OUTPUT | {"input_sizes": [[3], [4]]}
    assert rows(read(dump(entry(**odd))), "bytes", "dtype") == [(None, "Float")]
    mixed = {"input_sizes": [[3], [4]], "input_dtypes": ["Float", "Odd"], "output_sizes": [[1]]}
    assert rows(read(dump(entry(**mixed))), "bytes", "dtype") == [(4, None)]
    nothing = [entry(**NO_TENSORS), entry(**NO_TENSORS), entry("nccl:barrier", **NO_TENSORS)]
    typed = [entry(**NO_TENSORS | {name: ["Float"]}) for name in ("input_dtypes", "output_dtypes")]
    assert read(dump(*nothing, *typed)).notes == ["2 entries state no tensors: their payload is unknown"]


def test_versions_are_told_but_cut_and_a_call_of_no_group_has_none(read: Read) -> None:
    found = read(dump(entry(), version="v" * 70, comm_lib_version="2.28.9"))
    assert found.facts == {"flight_recorder_version": "v" * 60, "library_version": "2.28.9"}
    found = read(dump(entry(process_group=()), version=None, nccl_version=None))
    assert (found.facts, rows(found, "group", "group_size")) == ({}, [(None, None)])


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_a_dump_of_either_layout_is_rewritten_as_what_it_is(tmp_path: Path, form: str) -> None:
    source, target = tmp_path / "dump_rank_0", tmp_path / "new"
    told = dump(note="a secret")
    source.write_bytes(json.dumps(told).encode() if form == "json" else pickle.dumps(told, 2))
    for written in (None, target):
        redactor = PlainRedactor()
        assert FlightRecorder().rewrite(source, written, redactor)  # type: ignore[arg-type]
        assert redactor.counted == {("note", "word"): 1}
    content = target.read_bytes()
    new = json.loads(content) if form == "json" else pickled.load_plain(content)
    assert new == told | {"note": "a ?"}


def test_ranks_that_groups_share_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By reference a pickle names as many ranks as the product of its groups and the ranks of one."""
    texts = []
    monkeypatch.setattr(flight_recorder, "_parse_ranks", lambda text: texts.append(text) or (0, 1))
    shared, path = {"ranks": "[0, 1]"}, tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"pg_config": {str(n): shared for n in range(1000)}, "entries": []}, 2))
    FlightRecorder().read(path)
    assert texts == ["[0, 1]"]

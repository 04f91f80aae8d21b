# SPDX-License-Identifier: Apache-2.0
"""XLA profiles that are damaged, cut or absurd, and what of one is rewritten beside its planes."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from helpers.refused import refused
from helpers.xplane_files import (
    VMEM_READ_64,
    Plane,
    environment,
    hlo_field,
    programs,
    read,
    read_all,
    space,
    tpu,
    varint,
    write,
)

import cclbench
from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Part
from cclbench.formats.xplane import Xplane, proto
from cclbench.ground.errors import InputError


def test_rows_of_other_planes_and_aggregates_are_counted(tmp_path):
    plane = tpu(0, [("loop", 0, 1, {})])
    plane.message.lines[0].events.add(metadata_id=1, num_occurrences=3)
    sparse = Plane("/device:TPU:0 SparseCore 0").line("Sparse Core Ops", [("x", 0, 1, {}), ("y", 1, 1, {})])
    custom = Plane("/device:CUSTOM:Megascale").line("a", [("x", 0, 1, {})])
    trace, rows = read(write(tmp_path, space(plane, sparse, custom, environment())), "/device:TPU:0")
    assert len(rows["device kernel"]) == 1
    known = {"aggregate without a time": 1, "row of a SparseCore": 2}
    assert trace.dropped == known | {"row of another plane": 1}


def test_a_cut_file_is_refused_and_its_whole_planes_are_used_on_request(tmp_path):
    whole = space(tpu(0, [("loop", 0, 9, {})]), environment())
    path = write(tmp_path, whole + b"\x0a\x7f\x12\x09/host:CPU")
    message = refused(lambda path: Xplane().read(path, part=Part("/device:TPU:0")), path)
    assert f"byte {len(whole):,}: the file ends 116 bytes before" in message
    assert "--allow-truncated" in message
    trace, rows = read(path, "/device:TPU:0", allow_truncated=True)
    assert trace.cut.byte == len(whole)
    assert len(rows["device kernel"]) == 1


WHOLE = space(tpu(0, [("loop", 0, 9, {})]), environment())


def doubled(field: str) -> bytes:
    """A plane that holds something twice."""
    plane = tpu(0, [("loop", 0, 9, {})])
    again = getattr(plane.message, field)
    again.append(again[0])
    return space(plane)


BAD = {
    "empty": (b"", "empty file"),
    **{
        name: (data, "byte 0: is not a protobuf field")
        for name, data in (*(("garbage", b"\xff" * 64), ("text", b"{}"), ("group", b"\x0b\x0c")),)
    },
    "overlong": (b"\x0a" + b"\x80" * 11, "byte 1: is not a protobuf field"),
    "cut": (b"\x0a\x20\x12\x0d/device:GPU:0", "the file ends 17 bytes before its plane does"),
    "longer name": (b"\x0a\x10\x12\x7f/device:GPU:0" + b" ", "byte 2: is not a protobuf field"),
    "compressed": (gzip.compress(space(Plane("/device:GPU:0"))), "gunzip it first"),
    "cut in the host's plane": (
        space(environment()) + b"\x0a\x7f\x12\x09/host:CPU",
        "ends 116 bytes before its plane does, before any event of a device; copy the file again",
    ),
    **{
        name: (b"\x0a" + data, "plane '/device:GPU:0' is damaged")
        for name, data in (
            ("lengths within lengths", b"\x1d\x12\x0d/device:GPU:0" + b"\x1a\x0c" + b"\x22\x78" * 6),
            ("metadata of a wrong type", b"\x13\x12\x0d/device:GPU:0" + b"\x22\x02\xff\xff"),
        )
    },
    "assignment": (
        space(tpu(0, []), programs([[0]])).replace(b"\x7a\x09", b"\x7a\x7f"),
        "an HLO module is damaged",
    ),
    "accesses": (
        space(tpu(0, [("loop", 0, 1, {})])).replace(VMEM_READ_64, b"\x0a\x06\x08\x01\x10\x03\x1f\x40"),
        "is not a protobuf field",
    ),
    "time": (space(Plane("/device:GPU:0").line("Stream #1", [("k", 0, -1, {})])), "impossible time"),
    "start": (space(Plane("/device:GPU:0"), Plane("Task Environment", profile_start_time=-5)), "not a time"),
    "joined to itself": (WHOLE + WHOLE, f"byte {len(WHOLE):,}: has plane '/device:TPU:0' twice"),
    "a line twice": (doubled("lines"), "plane '/device:TPU:0' has line "),
    "metadata twice": (doubled("event_metadata"), "plane '/device:TPU:0' has event "),
    "a stat twice": (doubled("stat_metadata"), "plane '/device:TPU:0' has stat "),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_one_clear_line(case, tmp_path):
    data, message = BAD[case]
    refused(read_all, write(tmp_path, data), message)


def test_deep_nesting_ends_in_an_error_not_in_the_stack(tmp_path):
    body = b""
    for _ in range(5000):
        body = b"\x1a" + varint(len(body)) + body
    plane = b"\x12\x0d/device:GPU:0" + body
    trace, rows = read(write(tmp_path, b"\x0a" + varint(len(plane)) + plane), "/device:GPU:0")
    assert rows == {}
    assert trace.dropped == {}


def test_a_damaged_profile_beside_whole_ones_is_not_passed_over(tmp_path):
    whole = space(tpu(0, [("loop", 0, 9, {})]), environment())
    (tmp_path / "a.xplane.pb").write_bytes(whole)
    (tmp_path / "b.xplane.pb").write_bytes(b"\xff" * 8 + whole[8:])
    with pytest.raises(InputError, match=r"b\.xplane\.pb: does not begin with a plane: damaged"):
        cclbench.ingest(tmp_path, store=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("tag", [0x00, 0x02, 0x0B, 0x0C, 0x0E, 0x0F])
def test_fields_of_number_0_and_of_unknown_kinds_are_no_protobuf(tag: int) -> None:
    """A tag is number << 3 | kind; numbers begin at 1, groups (3, 4) are none here, 6 and 7 nowhere."""
    assert [field[0] for field in proto.message_fields(b"\x08\x01", 0, 2, "x")] == [1]
    with pytest.raises(InputError):
        list(proto.message_fields(bytes([tag, 1, 1]), 0, 3, "x"))


def test_complaints_are_counted(tmp_path):
    whole = space(tpu(0, [("loop", 0, 9, {})]), environment()) + b"\x12\x01x\x1a\x01y"
    trace, _ = read(write(tmp_path, whole), "/device:TPU:0")
    assert (trace.notes, trace.cut) == (["the profiler reports 2 errors or warnings"], None)


def test_only_what_is_called_a_profile_must_begin_as_one(tmp_path):
    for name in ("a.xplane.pb", "a.pb"):
        path = tmp_path / name
        path.write_bytes(b"{}")
        if name == "a.xplane.pb":
            message = refused(Xplane().refuse, path)
            assert message.endswith("; capture it again, or rename it if it is not a profile")
        else:
            Xplane().refuse(path)
        path.write_bytes(space(Plane("/host:CPU")))
        Xplane().refuse(path)


TOKEN, STAND_IN = re.compile(rb"x[jqvwxyz]{14}"), b"xqqqqqqqqqqqqqq"


def made_anew(tmp_path: Path, source: Path) -> tuple[bytes, dict[tuple[str, str], int]]:
    """The redacted profile, and how much of each rule was replaced at each place."""
    target = tmp_path / "redacted.xplane.pb"
    replaced = redact_evidence(source, target)
    return target.read_bytes(), {(one.place, one.kind): one.count for one in replaced}


def test_the_hosts_of_a_profile_and_what_it_complains_of(tmp_path: Path) -> None:
    """Fields 2 to 4 of an XSpace: errors, warnings, the hosts' names."""
    plane = space(Plane("/host:CPU"))
    told = hlo_field(2, b"gpunode-1 has lost events") + hlo_field(3, b"no clock") + hlo_field(4, b"gpunode-1")
    found, replaced = made_anew(tmp_path, write(tmp_path, plane + told))
    found = TOKEN.sub(STAND_IN, found)
    # errors and warnings are a program's own words, which are not published
    assert found == plane + hlo_field(2, b"") + hlo_field(3, b"") + hlo_field(4, STAND_IN)
    assert replaced == {("the profile", "host name"): 1, ("the profile", "captured output"): 2}


def test_an_empty_profile_or_one_that_is_cut_in_a_later_plane_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path, b"")
    message = refused(lambda path: Xplane().rewrite(path, None, None), source)
    assert message == f"{source}: empty file"
    source.write_bytes(space(Plane("/host:CPU"), Plane("/device:GPU:0"))[:-1])
    message = refused(lambda path: redact_evidence(path, tmp_path / "b"), source)
    said = "is cut within a plane; only a whole file can be redacted: copy or capture it again"
    assert message == f"{source}: {said}"


def test_a_text_is_replaced_in_the_plane_that_has_it_and_what_no_schema_knows_is_gone(tmp_path: Path) -> None:
    planes = Plane("/host:CPU").line("python", [("/home/zoe4/x", 0, 1, {})]), Plane("/device:GPU:0")
    unknown = hlo_field(99, b"/home/zoe4/secret") + hlo_field(98, 5)
    bodies = [plane.message.SerializeToString() for plane in planes]
    source = write(tmp_path, hlo_field(1, bodies[0]) + hlo_field(1, bodies[1] + unknown))
    found, replaced = made_anew(tmp_path, source)
    assert b"zoe4" not in found
    assert b"secret" not in found
    (where, _) = proto.find_planes(tmp_path / "redacted.xplane.pb").planes
    assert proto.parse_plane(tmp_path / "redacted.xplane.pb", where).lines == planes[0].message.lines
    assert {place for place, _ in replaced} == {"plane /host:CPU"}


@pytest.mark.parametrize("length", [100, 104, 106, 108, 109, 16_364, 16_365])
def test_lengths_around_a_text_that_shrinks_have_as_many_bytes_as_needed(tmp_path: Path, length: int) -> None:
    """A name becomes a token; 127 and 16,383 are the last lengths of one byte and of two."""
    names = ["acme" * (length // 4), STAND_IN.decode()]
    planes = [Plane("/host:CPU").line("a", [(name, 0, 1, {})]) for name in names]
    source = write(tmp_path, space(planes[0]) + hlo_field(4, names[0].encode()))
    found, _ = made_anew(tmp_path, source)
    assert TOKEN.sub(STAND_IN, found) == space(planes[1]) + hlo_field(4, STAND_IN)


def test_what_a_stat_calls_a_host_is_one_wherever_it_stands(tmp_path: Path) -> None:
    """On the plane, on what events have in common and on an event, as text or as bytes."""
    environment = Plane("Task Environment").line("x", [("e", 0, 1, {"hostname": b"zebra9"})])
    environment.described("d", hostname=b"zebra8")
    number = environment.stats["hostname"]
    environment.message.stats.add(metadata_id=number).str_value = "zebra7"
    names = [("zebra7", 0, 1, {}), ("zebra8", 1, 1, {}), ("zebra9", 2, 1, {})]
    source = write(tmp_path, space(environment, Plane("/host:CPU").line("python", names)))
    found, _ = made_anew(tmp_path, source)
    assert [name in found for name in (b"zebra7", b"zebra8", b"zebra9")] == [False] * 3

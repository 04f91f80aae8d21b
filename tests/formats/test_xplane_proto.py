# SPDX-License-Identifier: Apache-2.0
"""XSpace on disk, byte by byte: fields, planes, stats and times; lines become rows."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.refused import refused
from helpers.xplane_files import BEGIN_NS, Plane, environment, hlo_field, space, varint, write

from cclbench.formats.xplane import proto
from cclbench.formats.xplane.device import remember_last
from cclbench.formats.xplane.origins import line_of
from cclbench.formats.xplane.rows import LineEvents, kind_rows
from cclbench.formats.xplane.space import XSpace

AGAIN = "copy the file again, or profile again"


def test_fields_with_their_places() -> None:
    data = b"\x08\x96\x01" + b"\x12\x03abc" + b"\x1d1234" + b"\x2112345678" + b"\xfa\x01\x00"
    assert list(proto.message_fields(data, 0, len(data), "x")) == [
        *((1, 0, 1, 3), (2, 3, 5, 8), (3, 8, 9, 13), (4, 13, 14, 22), (31, 22, 25, 25))
    ]
    assert [field[:2] for field in proto.message_fields(data, 3, 13, "x")] == [(2, 3), (3, 8)]
    # The last may end beyond what is looked at; an integer or a length may not.
    assert list(proto.message_fields(data, 3, 7, "x")) == [(2, 3, 5, 8)]
    for stop in (1, 2):
        message = refused(lambda x, stop=stop: list(proto.message_fields(data, 0, stop, str(x))), Path("x"))
        assert message == f"x: byte 1: is not a protobuf field; {AGAIN}"


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 63) + 5, (1 << 64) - 1])
def test_integers_of_a_message(value: int) -> None:
    data = b"\xff" + hlo_field(3, value) + hlo_field(4, b"") + hlo_field(5, varint(value))
    assert proto.integer_fields(data, 1, len(data), "x") == {3: value, 4: 0, 5: value}


CONVERTED = "its bytes went through a text conversion (U+FFFD): copy it again as binary"


@pytest.mark.parametrize(
    ("zeros", "replaced", "hint"), [(1, 9, CONVERTED), (1, 8, AGAIN), (4070, 9, AGAIN), (4069, 9, CONVERTED)]
)
def test_why_bytes_may_be_damaged(zeros: int, replaced: int, hint: str) -> None:
    data = b"\x00" * zeros + b"\xef\xbf\xbd" * replaced
    message = refused(lambda x: list(proto.message_fields(data, 0, len(data), str(x))), Path("x"))
    assert message.endswith(f"; {hint}")


class TestSpace:
    """Planes are found without being parsed."""

    def test_planes_come_once_and_are_bounded(self, tmp_path: Path) -> None:
        twice = hlo_field(1, hlo_field(2, b"/host:metadata")) * 2
        assert len(proto.find_planes(write(tmp_path, twice)).planes) == 2
        path = write(tmp_path, hlo_field(1, hlo_field(2, b"/host:CPU")) * 2)
        says = "profiles joined to one file count everything twice: give each its own file"
        assert refused(proto.find_planes, path) == f"{path}: byte 13: has plane '/host:CPU' twice; {says}"
        planes = [hlo_field(1, hlo_field(2, f"{i}".encode())) for i in range(1025)]
        assert len(proto.find_planes(write(tmp_path, b"".join(planes[:1024]))).planes) == 1024
        path = write(tmp_path, b"".join(planes))
        message = refused(proto.find_planes, path)
        assert message == f"{path}: has more than 1,024 planes; profile fewer devices in one file"


class TestPlane:
    """One plane as a message."""

    @staticmethod
    def of(tmp_path: Path, plane: Plane) -> tuple[Path, proto.PlaneRange]:
        path = write(tmp_path, space(plane))
        (where,) = proto.find_planes(path).planes
        return path, where

    def test_parts_of_a_plane(self, tmp_path: Path) -> None:
        path, where = self.of(tmp_path, Plane("p", size=5).line("a", [("x", 0, 1, {})]))
        whole, without = proto.parse_plane(path, where), proto.parse_plane(path, where, lines=False)
        assert (len(whole.lines), len(without.lines)) == (1, 0)
        assert [entry.value.name for entry in without.event_metadata] == ["x"]
        assert proto.decode_stats(proto.stat_names(without), without.stats) == {"size": 5}
        plane = Plane("p").line("Stream #1", []).line("XLA Ops", [("x", 0, 1, {})], track=2)
        path, where = self.of(tmp_path, plane)
        names = ("XLA", "", "Stream", "Ops")
        assert [proto.has_events(path, where, name) for name in names] == [True, True, False, False]

    def test_one_of_more_than_2_gib_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert proto.LARGEST_PLANE == (1 << 31) - 1
        path, where = self.of(tmp_path, Plane("p"))
        monkeypatch.setattr(proto, "LARGEST_PLANE", where.end - where.begin)
        assert proto.parse_plane(path, where).name == "p"
        monkeypatch.setattr(proto, "LARGEST_PLANE", where.end - where.begin - 1)
        message = refused(lambda path: proto.parse_plane(path, where), path)
        assert message == f"{path}: byte 2: plane 'p' exceeds 2 GiB; profile fewer steps"


def test_stats_whose_name_or_value_is_unknown_are_left_out() -> None:
    known = {"count": 5, "text": "named", "ratio": 0.5, "raw": b"\x01"}
    plane = Plane("p", **known)
    plane.message.stats.add(metadata_id=99).int64_value = 1
    plane.message.stats.add(metadata_id=1).ref_value = 77
    assert proto.decode_stats(proto.stat_names(plane.message), plane.message.stats) == known


@pytest.mark.parametrize(("begin", "fits"), [(0, True), ((1 << 61) - 1, True), (1 << 61, False), (-1, False)])
def test_when_the_profile_began(tmp_path: Path, begin: int, fits: bool) -> None:
    path = write(tmp_path, space(Plane("/host:CPU"), Plane("Task Environment", profile_start_time=begin)))
    planes = proto.find_planes(path).planes
    assert proto.epoch_ns(path, planes[:1]) == 0
    if fits:
        assert proto.epoch_ns(path, planes) == begin
    else:
        says = f"profile_start_time is {begin}, not a time"
        refused(lambda path: proto.epoch_ns(path, planes), path, says)


class TestTimes:
    """Start and duration in ns of events in ps."""

    @staticmethod
    def times(begin: int, *events: tuple[int, int], epoch: int = 0) -> list[tuple[int, int]]:
        line = SimpleNamespace(timestamp_ns=begin, name="n" * 70)
        listed = [SimpleNamespace(offset_ps=offset, duration_ps=length) for offset, length in events]
        start, dur = proto.event_times(line, listed, Path("f"), epoch)
        return list(zip(start.tolist(), dur.tolist(), strict=True))

    def test_times_are_rounded_down_and_not_negative(self) -> None:
        """A line's time is the epoch's or counts from the profile's begin."""
        events = (1_999, 1_002), (3_001, 2_500), (-1, 1), (0, 0)
        assert self.times(5, *events) == [(6, 2), (8, 2), (4, 1), (5, 0)]
        assert self.times(5) == []
        begins = [self.times(t, (0, 1000), epoch=100) for t in (0, 99, 100, 101)]
        assert begins == [[(start, 1)] for start in (100, 199, 100, 101)]
        assert self.times(0, (5, 0)) == [(0, 0)]
        refused(lambda _: self.times(0, (5, -1)), Path("f"), "duration -1 ps")

    @pytest.mark.parametrize("event", [(1 << 61, 1), (-(1 << 61), 1), (0, 1 << 61)])
    def test_as_far_as_is_believed(self, event: tuple[int, int]) -> None:
        offset, length = event
        assert self.times(0, event) == [(offset // 1000, (offset + length) // 1000 - offset // 1000)]
        worse = offset + (offset > 0) - (offset < 0), length + (length > 1)
        said = f"impossible time in line {'n' * 60!r}: 7 ns, offset {worse[0]} ps, duration {worse[1]} ps"
        assert refused(lambda _: self.times(7, (0, 1), worse), Path("f")) == f"f: {said}; {AGAIN}"

    @pytest.mark.parametrize("sign", [1, -1])
    def test_a_line_s_time_to_its_bound(self, sign: int) -> None:
        assert self.times(sign * ((1 << 61) - 1), (0, 0)) == [(sign * ((1 << 61) - 1), 0)]
        refused(lambda _: self.times(sign << 61), Path("f"), f"': {sign << 61} ns; {AGAIN}")


def line(*events: tuple[int, int, int], track: int = 5) -> LineEvents:
    """Events as (code, begin, duration)."""
    code, start, dur = np.array(events, np.int64).reshape(-1, 3).T
    return LineEvents("line", track, code, start, dur)


class TestRows:
    """Lines of a device to rows."""

    def test_events_of_a_line_are_in_order_the_longer_first_and_may_hold_others(self) -> None:
        found = line((0, 5, 1), (1, 0, 2), (2, 0, 9))
        assert (found.code.tolist(), found.dur_ns.tolist()) == ([2, 1, 0], [9, 2, 1])
        assert found.take_events(np.array([True, False, True])).code.tolist() == [2, 0]
        nested = line((0, 0, 10), (1, 9, 3), (2, 12, 1), (3, 13, 0)).holds_others()
        assert nested.tolist() == [True, False, False, False]
        assert line().holds_others().tolist() == []

    def test_one_name_of_two_categories_is_two_names(self) -> None:
        events = line((0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 3, 1))
        made = kind_rows("kernel", "device", [events], ["x"] * 4, categories=["gemm", "copy", None, "gemm"])
        assert [list(made[0].names)[code] for code in made[0].codes] == ["x", "x (copy)", "x", "x"]
        assert made[0].name_categories == {0: "gemm", 1: "copy"}


@pytest.mark.parametrize(
    ("file", "function", "line"),
    [
        *(("/home/me/train.py", "", "train.py(31)"), ("C:\\\\me\\\\train.py", "f", "train.py(31): f")),
        *(("", "f", None), ("a/", "", None)),
    ],
)
def test_a_line_of_python_without_its_folders(file: str, function: str, line: str | None) -> None:
    assert line_of(file, 31, function) == line


def test_a_file_s_last_result_is_remembered_until_it_changes(tmp_path: Path) -> None:
    reads: list[Path] = []

    def read(path: Path) -> int:
        reads.append(path)
        return len(reads)

    path, other, known = tmp_path / "a", tmp_path / "b", remember_last(read)
    path.write_text("x")
    other.write_text("x")
    os.utime(path, ns=(1, 1))
    assert [known(path), known(path), known(other), known(path)] == [1, 1, 2, 3]
    os.utime(path, ns=(1, 2))
    assert known(path) == 4
    path.write_text("xy")
    os.utime(path, ns=(1, 2))
    assert (known(path), known(path)) == (5, 5)


def test_devices_are_in_the_order_of_their_numbers_and_the_first_busy_one_is_known(tmp_path: Path) -> None:
    planes = [Plane(f"/device:TPU:{i}") for i in (10, 2, 1)]
    planes[0].line("XLA Ops", [("x", 0, 1, {})])
    planes[1].line("Steps", [("x", 0, 1, {})])
    profile = XSpace(write(tmp_path, space(*planes, environment())))
    assert profile.devices == [f"/device:TPU:{i}" for i in (1, 2, 10)]
    assert (profile.first_busy, profile.epoch_ns) == ("/device:TPU:10", BEGIN_NS)
    idle = XSpace(write(tmp_path, space(*(Plane(f"/device:GPU:{i}") for i in (1, 0)))))
    assert (idle.first_busy, idle.epoch_ns) == ("/device:GPU:0", 0)


@pytest.mark.parametrize(
    ("chips", "ranks"), [((4, 5), [(4, "metadata"), (5, "metadata")]), ((4, 4), [(None, None)] * 2)]
)
def test_ids_that_two_devices_share_are_none(tmp_path: Path, chips: tuple[int, int], ranks: Any) -> None:
    planes = [Plane(f"/device:TPU:{n}", core_details=hlo_field(6, chip)) for n, chip in enumerate(chips)]
    profile = XSpace(write(tmp_path, space(*planes)))
    facts = [profile.device_trace(name).facts for name in profile.devices]
    assert [(one.rank, one.rank_source) for one in facts] == ranks
    assert [(one.local_rank, one.device_count) for one in facts] == [(0, 2), (1, 2)]

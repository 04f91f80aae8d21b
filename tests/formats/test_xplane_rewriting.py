# SPDX-License-Identifier: Apache-2.0
"""What of an XLA profile is rewritten beside its planes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.refused import refused
from helpers.xplane_files import Plane, hlo_field, space, write

from cclbench.contribute.redaction import Identities, collect_identities, find_leftovers, redact_file
from cclbench.formats.xplane import Xplane, proto


def made_anew(tmp_path: Path, source: Path) -> tuple[bytes, dict[tuple[str, str], int]]:
    """The redacted profile, and how much of each rule was replaced at each place."""
    target = tmp_path / "redacted.xplane.pb"
    known = collect_identities([source])
    replaced = redact_file(source, target, identities=known)
    assert find_leftovers(target, known) == []
    return target.read_bytes(), {(one.place, one.rule): one.count for one in replaced}


def test_the_hosts_of_a_profile_and_what_it_complains_of(tmp_path: Path) -> None:
    """Fields 2 to 4 of an XSpace: errors, warnings, the hosts' names."""
    plane = space(Plane("/host:CPU"))
    told = hlo_field(2, b"gpunode-1 has lost events") + hlo_field(3, b"no clock") + hlo_field(4, b"gpunode-1")
    found, replaced = made_anew(tmp_path, write(tmp_path, plane + told))
    # errors and warnings are a program's own words, which are not published
    assert found == plane + hlo_field(2, b"") + hlo_field(3, b"") + hlo_field(4, b"host-1")
    assert replaced == {("the profile", "host name"): 1, ("the profile", "captured output"): 2}


def test_an_empty_profile_or_one_that_is_cut_in_a_later_plane_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path, b"")
    message = refused(lambda path: Xplane().rewrite(path, None, None), source)
    assert message == f"{source}: empty file"
    source.write_bytes(space(Plane("/host:CPU"), Plane("/device:GPU:0"))[:-1])
    message = refused(lambda path: redact_file(path, tmp_path / "b", identities=Identities()), source)
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
def test_lengths_around_a_text_that_grows_have_as_many_bytes_as_needed(tmp_path: Path, length: int) -> None:
    """A name becomes shorter; 127 and 16,383 are the last lengths of one byte and of two."""
    names = ["gpunode-1", "host-1"]
    planes = [
        Plane("/host:CPU").line("a", [(name + " add" * (length // 4) + "/" * (length % 4), 0, 1, {})])
        for name in names
    ]
    source = write(tmp_path, space(planes[0]) + hlo_field(4, b"gpunode-1"))
    found, _ = made_anew(tmp_path, source)
    assert found == space(planes[1]) + hlo_field(4, b"host-1")


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

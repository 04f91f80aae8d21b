# SPDX-License-Identifier: Apache-2.0
"""What of an XLA profile is rewritten beside its planes."""

from __future__ import annotations

from pathlib import Path

from formats.xplane_files import Plane, hlo_field, space, write

from cclbench.contribute.redaction import collect, leftovers, redact


def test_the_hosts_of_a_profile_and_what_it_complains_of(tmp_path: Path) -> None:
    """Fields 2 to 4 of an XSpace: errors, warnings, the hosts' names."""
    plane = space(Plane("/host:CPU"))
    told = hlo_field(2, b"gpunode-1 has lost events") + hlo_field(3, b"no clock") + hlo_field(4, b"gpunode-1")
    source = write(tmp_path, plane + told)
    target = tmp_path / "redacted.xplane.pb"
    known = collect([source])
    replaced = {(one.place, one.rule): one.count for one in redact(source, target, known=known)}
    assert leftovers(target, known) == []
    told = hlo_field(2, b"host-1 has lost events") + hlo_field(3, b"no clock") + hlo_field(4, b"host-1")
    assert target.read_bytes() == plane + told
    assert replaced == {("the profile", "host name"): 1, ("the profile", "host name told elsewhere"): 1}

# SPDX-License-Identifier: Apache-2.0
"""Names of files on their way into a collection."""

from __future__ import annotations

import pytest

from cclbench.contribute.place import LONGEST_NAME, safe_names
from cclbench.ground.errors import UsageError


def as_it_is(name: str) -> str:
    """Nothing to redact."""
    return name


def safe(name: str) -> str:
    return safe_names([name], as_it_is)[name]


@pytest.mark.parametrize(
    ("name", "carried"),
    [
        ("rank0_trace.json.gz", "rank0_trace.json.gz"),
        ("sub/rank+1=a@b.pt.trace.json", "sub/rank+1=a@b.pt.trace.json"),
        ("report 1.sqlite", "report-1.sqlite"),
        ("$(touch x).json", "touch-x-.json"),
        ("`id`;rm -rf *.json", "id-rm--rf-.json"),
        ("rank\x1b[31m0.json", "rank-31m0.json"),
        ("rank\n0.json", "rank-0.json"),
        ("rank\u202egnp.json", "rank-gnp.json"),
        ("rank\udcff0.json", "rank-0.json"),
        ("-rf/--help.json", "rf/help.json"),
        (".hidden.json", "hidden.json"),
        ("ränk0.json", "r-nk0.json"),
    ],
)
def test_a_name_keeps_what_every_system_takes(name: str, carried: str) -> None:
    assert safe(name) == carried


@pytest.mark.parametrize(
    "name", ["日本", "..", "a/../b", "/etc/passwd", "a//b", "", "x" * (LONGEST_NAME + 1), "sub/" + "y" * 255]
)
def test_a_name_of_which_nothing_is_left_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be converted"):
        safe(name)


def test_every_folder_and_file_is_redacted() -> None:
    names = safe_names(["node-ada/ada_1.json", "b.json"], lambda part: part.replace("ada", "host-1"))
    assert names == {"node-ada/ada_1.json": "node-host-1/host-1_1.json", "b.json": "b.json"}


@pytest.mark.parametrize(("one", "other"), [("a b.json", "a-b.json"), ("Rank0.json", "rank0.json")])
def test_two_files_do_not_share_a_name(one: str, other: str) -> None:
    with pytest.raises(UsageError, match="would both be named"):
        safe_names([one, other], as_it_is)


def test_the_manifests_name_is_taken() -> None:
    with pytest.raises(UsageError, match="the manifest"):
        safe("manifest.json")
    assert safe("sub/manifest.json") == "sub/manifest.json"

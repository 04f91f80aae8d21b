# SPDX-License-Identifier: Apache-2.0
"""NCCL's RAS: calls of all ranks, who is behind, who does not answer; damage; redaction."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.changed_bytes import read_or_refused

import cclbench
from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import recognise_format
from cclbench.formats.nccl_ras import NcclRas
from cclbench.formats.unread import UnreadFormatError, refuse_unread
from cclbench.ground.errors import InputError

FINE: dict[str, Any] = {"init_state": 0, "async_error": 0, "abort_flag": False}


def member(rank: int, place: int, status: dict[str, Any] | None = None, **calls: int) -> dict[str, Any]:
    """Two GPUs a process, of which `place` is one; the example of NCCL's user guide has these keys."""
    where = {"host": f"10.64.0.{place // 2}", "pid": 900 + place // 2, "cuda_dev": 0, "nvml_dev": place % 2}
    return {"rank": rank, **where, "status": status or FINE, "collective_counts": calls}


def communicator(size: int, ranks: list[Any], missing: list[Any] | None = None) -> dict[str, Any]:
    missing = missing or []
    counts = {"ranks_count": len(ranks), "missing_ranks_count": len(missing)}
    names = {"hash": "0xae94423cfbb2ef4a", "secondary_hash": "0xb7:0xb8", "size": size}
    return {**names, **counts, "ranks": ranks, "missing_ranks": missing}


def snapshot(*communicators: Any, **more: Any) -> dict[str, Any]:
    head = {"nccl_version": "2.29.1", "cuda_runtime_version": 13000, "timestamp": "2025-12-19 13:06:53"}
    end = {"ras": {"collection_time_sec": 0.0, "timeouts_count": 0}}
    return {**head, "communicators": list(communicators), **end, **more}


GONE = member(3, 3, {"unresponsive": True, "considered_dead": False})
FAILED = {**FINE, "async_error": 6, "abort_flag": True}
HANG = snapshot(
    communicator(2, [member(0, 2, AllGather=7), member(1, 0, FAILED, AllGather=7)]),
    communicator(
        4,
        [member(0, 0, AllReduce=100, Reduce=0), member(1, 1, AllReduce=98), member(2, 2, AllReduce=100)],
        [GONE],
    ),
)
"""Of four ranks one does not answer, one made two calls less; another communicator has ranks 2 and 0."""


def written(folder: Path, document: object) -> Path:
    path = folder / "ras.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=2))
    return path


def test_each_rank_has_its_calls_and_the_one_behind_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, HANG)
    assert recognise_format(path, path.read_bytes()[:4096]).name == "nccl_ras"
    run = cclbench.run(path, store=tmp_path / "store")
    names = ("group", "kind", "rank", "calls")
    rows = [tuple(row[name] for name in names) for row in run.evidence("timings").to_pylist()]
    assert sorted(rows) == [
        ("0,2", "all_gather", 0, 7),
        ("0,2", "all_gather", 2, 7),
        ("0-3", "all_reduce", 0, 100),
        ("0-3", "all_reduce", 1, 98),
        ("0-3", "all_reduce", 2, 100),
    ]
    (behind,) = (r for r in run.rows if r["metric"] == "comm.missing_calls" and r["group"] and not r["stat"])
    assert (behind["value"], behind["reason"]) == (2, "rank 1 made 98 of 100")
    total = next(r for r in run.rows if r["metric"] == "comm.count" and r["stat"] == "total")
    assert total["value"] == 2 * 7 + 100 + 98 + 100
    (finding,) = run.findings
    assert (finding.name, finding.ranks) == ("missing_calls", [1])
    (file,) = run.record.evidence
    assert file.notes == [
        "ranks are missing: rank 3 does not answer",
        "ranks report errors: rank 0 (an error of another process since, aborted)",
    ]


@pytest.mark.parametrize(
    ("document", "notes"),
    [
        (
            snapshot(communicator(1, [member(0, 0)]), communicator(1, [member(0, 1)])),
            ["ranks of the job are"],
        ),
        (snapshot(communicator(1, [member(0, 0, {"init_state": 7})])), ["ranks report .*still initialises"]),
        (snapshot(communicator(1, [member(0, 0, {"init_state": 2})])), [r"rank 0 \(a system error while"]),
        (snapshot(communicator(1, [member(0, 0, {"async_error": 99})])), [r"rank 0 \(error 99 since\)"]),
        (
            snapshot(
                communicator(1, [], [member(0, 0, {"considered_dead": True})]), ras={"timeouts_count": 2}
            ),
            ["rank 0 is considered dead", "RAS had 2 timeouts"],
        ),
        (
            snapshot(communicator(9, [], [member(n, n, {"considered_dead": False}) for n in range(9)])),
            ["rank 7 is not in the communicator, or no longer, and 1 more"],
        ),
        (snapshot(), []),
    ],
)
def test_notes(tmp_path: Path, document: dict[str, Any], notes: list[str]) -> None:
    found = NcclRas().read(written(tmp_path, document)).notes
    assert len(found) == len(notes)
    for note, words in zip(found, notes, strict=True):
        assert re.search(words, note)


TWICE = snapshot(communicator(2, [member(0, 0), member(0, 1)]))
BAD = {
    "cut": (json.dumps(HANG)[:-40], "truncated"),
    "no number": (json.dumps(HANG).replace("98", '"98"'), "Expected 'int'"),
    "negative": (json.dumps(HANG).replace("98", "-98"), r"Expected 'int' >= 0"),
    "twice": (json.dumps(TWICE), "ranks are not distinct"),
    "beyond": (json.dumps(snapshot(communicator(1, [member(1, 0)]))), "or beyond it"),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error(tmp_path: Path, case: str) -> None:
    text, says = BAD[case]
    with pytest.raises(InputError, match=says):
        NcclRas().read(written(tmp_path, text))


def test_changed_bytes_are_read_or_refused(tmp_path: Path) -> None:
    read_or_refused(NcclRas().read, tmp_path / "ras.json", json.dumps(HANG).encode())


def test_addresses_are_not_published_and_counts_stay(tmp_path: Path) -> None:
    source = written(tmp_path, HANG)
    own, target = NcclRas().read(source), tmp_path / "copy.json"
    redact_evidence(source, target)
    assert not any(secret in target.read_text() for secret in ("10.64", "ae94423c", "900"))
    copied = NcclRas().read(target)
    assert (copied.timings, copied.notes, copied.groups) == (own.timings, own.notes, own.groups)


def test_its_text_is_refused_with_the_way_to_json() -> None:
    text = b"NCCL version 2.28.9 compiled with CUDA 12.9\n\nJob summary\n===========\n\n  Nodes  Processes\n"
    with pytest.raises(UnreadFormatError, match="is NCCL's RAS as text; write it as JSON: ncclras -f json"):
        refuse_unread(Path("ras.txt"), text)

# SPDX-License-Identifier: Apache-2.0
"""Forty planted secrets: none survives, in any format, and every metric stays, to the bit."""

from __future__ import annotations

import gzip
import json
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from helpers import redact_planted as planted

import cclbench
from cclbench.contribute.redaction import Identities, collect_identities, find_leftovers, kinds, redact_file
from cclbench.contribute.redaction.evidence import UNLISTED
from cclbench.formats.rewriting import CAPTURED, COMMAND_LINE, METADATA, SYSTEM, UNREAD

FORMATS: dict[str, tuple[Callable[[Path, Path], None], str, str]] = {
    "kineto": (planted.kineto, "kineto/cuda_sync_a100/event_sync_trace.json.gz", "rank0.json.gz"),
    "nsys": (planted.nsys, "nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite", "capture.sqlite"),
    "xplane": (planted.xplane, "xprof/mi300x_8gpu_jax_conv.xplane.pb", "host.xplane.pb"),
}


@pytest.fixture(scope="module")
def files(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A data point that tells everything, by format."""
    folder = tmp_path_factory.mktemp("planted")
    made = {}
    for name, (plant, source, target) in FORMATS.items():
        made[name] = folder / name / target
        made[name].parent.mkdir()
        plant(test_data / source, made[name])
    for name, target, text in (
        ("card", "card.yaml", planted.CARD),
        ("script", "run.sh", planted.SCRIPT),
        ("log", "job.log", planted.TEXT),
    ):
        made[name] = folder / target
        made[name].write_text(text)
    made["script"].chmod(0o755)
    return made


@pytest.fixture(scope="module")
def known(files: dict[str, Path]) -> Identities:
    """What is learnt from all of them together."""
    return collect_identities(files.values())


def bits(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Rows with their numbers as bytes: equal means equal to the bit."""
    return [{k: struct.pack("<d", v) if isinstance(v, float) else v for k, v in row.items()} for row in rows]


def test_there_are_forty_of_them_and_each_is_there(files: dict[str, Path]) -> None:
    everything = [secret for of in planted.SECRETS.values() for secret in of]
    assert len(planted.SECRETS) >= 12
    assert len(set(everything)) >= 40
    for name, path in files.items():
        missing = set(everything) - set(planted.left_in(path))
        # A log and a card have no command line; the others hold every one.
        assert missing <= set(planted.SECRETS[kinds.COMMAND] if name in ("log", "card", "script") else ()), (
            name
        )


WITHHELD = {
    **{name: dict.fromkeys({*planted.SECRETS} - {kinds.HOST}, UNLISTED) for name in FORMATS},
    "card": {kinds.COMMAND: kinds.USER},
    "script": {kinds.COMMAND: kinds.USER},
    "log": {kind: CAPTURED for kind in planted.SECRETS if kind not in (kinds.HOST, kinds.ADDRESS)},
}
"""Kinds that a format holds in parts that are not published alone, and what these hold."""


@pytest.mark.parametrize("name", [*FORMATS, "card", "script", "log"])
def test_none_survives(name: str, files: dict[str, Path], known: Identities, tmp_path: Path) -> None:
    copy = tmp_path / files[name].name
    assert find_leftovers(files[name], known)
    found = redact_file(files[name], copy, identities=known)
    left = planted.left_in(copy)
    published = {"Quimby-Lead", "quimby@corp.example.com"} if name == "card" else set()
    assert set(left) == published
    assert find_leftovers(copy, known) == []
    withheld = WITHHELD.get(name, {})
    assert {one.kind for one in found} >= set(planted.SECRETS) - withheld.keys() | set(withheld.values())
    assert not any(secret in str(one) for one in found for of in planted.SECRETS.values() for secret in of)


@pytest.mark.parametrize("name", FORMATS)
def test_every_metric_stays_to_the_bit(
    name: str, files: dict[str, Path], known: Identities, tmp_path: Path
) -> None:
    copy = tmp_path / files[name].name
    redact_file(files[name], copy, identities=known)
    before = cclbench.run(files[name], store=tmp_path / "before")
    after = cclbench.run(copy, store=tmp_path / "after")
    assert len(before.rows) > 50
    assert bits(after.rows) == bits(before.rows)


def test_a_name_has_one_pseudonym_in_all_formats(
    files: dict[str, Path], known: Identities, tmp_path: Path
) -> None:
    host, user = known.pseudonym_of(kinds.HOST, "gpunode-117"), known.pseudonym_of(kinds.USER, "Quimby-Lead")
    for name, path in files.items():
        redact_file(path, tmp_path / name, identities=known)
    script = (tmp_path / "script").read_text()
    assert f"launched by {user} on {host}\n" in script
    assert f"Hostname: {host}\n" in script
    with closing(sqlite3.connect(tmp_path / "nsys")) as base:
        assert base.execute("SELECT count(*) FROM TARGET_INFO_SYSTEM_ENV").fetchone() == (0,)
    assert f"\n# run by {user}\n" in (tmp_path / "card").read_text()


def test_a_card_keeps_its_form_and_its_contributor(
    files: dict[str, Path], known: Identities, tmp_path: Path
) -> None:
    redact_file(files["card"], tmp_path / "card.yaml", identities=known)
    old, new = (path.read_text().splitlines() for path in (files["card"], tmp_path / "card.yaml"))
    begin = new.index("workload:")
    assert new[begin:] == old[old.index("workload:") :]
    assert new[begin - 2 : begin] != old[begin - 2 : begin] or new[:2] == old[:2]
    assert new[:2] == ["version: 2", "id: planted"]


def test_a_script_stays_a_script(files: dict[str, Path], known: Identities, tmp_path: Path) -> None:
    redact_file(files["script"], tmp_path / "run.sh", identities=known)
    assert (tmp_path / "run.sh").stat().st_mode & 0o777 == 0o755
    last = (tmp_path / "run.sh").read_text().splitlines()[-1]
    assert last == 'srun python train.py --lr 1e-4 --token "$HF_TOKEN" --out "$HOME/x"'


def test_what_was_changed_is_told_by_its_place(
    files: dict[str, Path], known: Identities, tmp_path: Path
) -> None:
    found = {
        (one.place, one.kind): one.count
        for one in redact_file(files["kineto"], tmp_path / "x", identities=known)
    }
    assert found["hostname", METADATA] == found["job_id", METADATA] == 1
    assert found["name", UNLISTED] >= len(planted.LINES)
    found = {
        (one.place, one.kind): one.count
        for one in redact_file(files["nsys"], tmp_path / "y", identities=known)
    }
    assert found["META_DATA_EXPORT", SYSTEM] > 1
    assert found["PROCESSES", COMMAND_LINE] > 1
    assert ("NOTES.raw", UNREAD) in found


def test_a_kineto_copy_differs_in_texts_alone(
    files: dict[str, Path], known: Identities, tmp_path: Path
) -> None:
    redact_file(files["kineto"], tmp_path / "x.json.gz", identities=known)
    old, new = (json.loads(_plain(path)) for path in (files["kineto"], tmp_path / "x.json.gz"))
    assert (new["job_id"], new["environment"], new["hostname"]) == (None, {}, "")
    assert "argv" not in new
    kept = [e for e in old["traceEvents"] if e.get("cat") not in ("python_function",)]
    assert [e for e in new["traceEvents"] if e.get("cat") not in ("python_function",)] == kept


def _plain(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())

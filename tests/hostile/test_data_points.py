# SPDX-License-Identifier: Apache-2.0
"""Hostile data points and published rows: nothing leaves the folder that was named."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import pytest
from helpers import hostile_job as job
from hostile.test_terminal import assert_clean

from cclbench.contribute.archive import unpack_archive
from cclbench.ground.errors import InputError

Call = Callable[..., Any]


def files(folder: Path) -> set[str]:
    """All of them, relative to the folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_contribute_and_verify(call: Call, cards: tuple[Path, Path], tmp_path: Path) -> None:
    """The names of files are made plain, the evidence stays evidence."""
    card = cards[0]
    root, collection = card.parent.parent, tmp_path / "collection"
    collection.mkdir()
    before = files(tmp_path)
    traces, scripts = root / "traces" / card.stem, root / "scripts" / card.stem
    answer = call(
        *("contribute", card, "--traces", traces, "--scripts", scripts),
        *("--collection", collection, "--no-input", "--allow-gaps", "--licence", "Apache-2.0"),
    )
    assert answer.code == 0, answer.err
    assert_clean(answer.out + answer.err)
    made = files(collection)
    assert {path.split("/")[0] for path in made} == {"workload_cards", "traces", "scripts"}
    assert all(
        path.isascii() and path.isprintable() and not set(path) & set(" <>|`$&()'\";{}*?") for path in made
    )
    assert files(tmp_path) - before == {f"collection/{path}" for path in made}
    checked = call("verify", "--all", "--collection", collection)
    assert checked.code == 0, checked.out + checked.err
    assert_clean(checked.out + checked.err)


def test_a_member_without_a_name_is_refused(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(ZipInfo(""), b"x")
    with pytest.raises(InputError, match="it has no name"):
        unpack_archive(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["../breakout.json", "/breakout.json", "a/../../breakout.json", "$(touch breakout).json", "-rf"]
)
def test_archives_stay_in_a_folder(call: Call, cards: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    archive = tmp_path / "traces.tar.gz"
    content = json.dumps(job.trace(0)).encode()
    with tarfile.open(archive, "w:gz") as out:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        out.addfile(entry, BytesIO(content))
    (tmp_path / "collection").mkdir()
    root = cards[0].parent.parent
    answer = call(
        *("contribute", cards[0], "--traces", archive, "--scripts", root / "scripts" / cards[0].stem),
        *("--collection", tmp_path / "collection", "--no-input"),
    )
    assert answer.code in (1, 3)
    assert_clean(answer.out + answer.err)
    assert answer.err.startswith("error: ")
    assert files(tmp_path / "collection") == set()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("id", "../breakout"), ("id", "$(touch breakout)"), ("id", "<script>"),
        ("path", "../../breakout.json"), ("path", "/etc/passwd"), ("path", "\u0000"),
        ("calibration", "../../../../etc/passwd"), ("url", "javascript:alert(1)"),
        ("launch", "../../../etc/passwd"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["run", "card validate", "card show"])
def test_cards_that_point_elsewhere(call: Call, tmp_path: Path, command: str, key: str, text: str) -> None:
    card = job.card("hostile", ["traces/rank0.json"])
    places = {
        "id": card,
        "path": card["evidence"]["traces"][0],
        "calibration": card["hardware"],
        "url": card["workload"]["model"],
        "launch": card["evidence"],
    }
    places[key][key] = text
    path = tmp_path / "workload_cards" / "hostile.yaml"
    path.parent.mkdir()
    path.write_text(json.dumps(card))
    answer = call(*command.split(), path)
    assert answer.code in (1, 3), answer.out
    assert_clean(answer.out + answer.err)
    assert "error" in answer.err
    assert "root:" not in answer.out + answer.err


def test_published_rows(call: Call, tmp_path: Path) -> None:
    """Rows whose every text is hostile become runs of the store, and none of them anything else."""

    def row(n: int, text: str) -> dict[str, Any]:
        words = ("workload_name", "model_family", "hardware_model", "framework", "comm_library", "dataset")
        facts = dict.fromkeys(words, text) | {"phase": "training", "hardware_type": "GPU"}
        facts |= {"total_count": n + 1, "batch_size": 4, "seq_len": 512, "trace_types": [text[:300]]}
        facts |= {"description": text, text[:300]: text}
        return {"trace": text, "metadata": facts, "metrics": {"avg_step_time": 1.0 + n, text[:300]: 1.0}}

    board = tmp_path / "board.json"
    board.write_text(json.dumps({"rows": [row(n, text[:10_000]) for n, text in enumerate(job.TEXTS)]}))
    store = tmp_path / "store"
    for words in (
        ("import", "ccl-bench", board),
        ("list", "runs"),
        ("claims", "-v"),
        ("claims", "-o", tmp_path / "claims.svg"),
    ):
        answer = call(*words, "--store", store)
        assert answer.code == 0, answer.err
        assert_clean(answer.out + answer.err)
        assert max(map(len, answer.out.splitlines())) <= 80
    runs = [path.name for path in store.iterdir() if path.is_dir()]
    assert len(runs) == len(job.TEXTS)
    assert all(name.isascii() and not set(name) & set(" /\\<>|`$&()'\";{}*?") for name in runs)
    first, second = sorted(runs)[:2]
    answer = call("compare", first, second, "-v", "-o", tmp_path / "page.html", "--store", store)
    assert answer.code == 0, answer.err
    assert_clean(answer.out + answer.err)

# SPDX-License-Identifier: Apache-2.0
"""Real captures: what they tell of people and machines goes, every metric stays, to the bit."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Final

import pytest

from cclbench.contribute.record import row_changes
from cclbench.contribute.redaction import collect_identities, find_leftovers, has_token, redact_file
from cclbench.contribute.redaction.evidence import UNLISTED
from cclbench.contribute.verify import source_rows
from cclbench.formats.rewriting import UNREAD
from cclbench.ingestion.source import find_source
from cclbench.record.manifest import Options
from cclbench.record.rows import Row

CAPTURES = {
    "dlrm": ("kineto/dlrm_8xv100", ()),
    "vllm": ("kineto/h100_qwen", (r"hf_[A-Za-z0-9]{30}", r'"HOSTNAME": "[0-9a-f]{12}"', "/root")),
    "gloo": ("kineto/cpu_only", (r'"username": "user"',)),
    "mpi": (
        "nsys/pipit_saxpy_mpi_cuda_perlmutter0.sqlite",
        (
            "ocankur",
            "nid001608",
            r"nid\[001608,003593\]",
            "login03",
            "10675698",
            "m4177",
            r"129\.2\.90\.90",
            "SSH_CONNECTION",
        ),
    ),
    "tpu": ("xprof/tpu_v6e_4plane_host_offload_psum.xplane.pb", ("davelacey",)),
    "mi300x": ("xprof/mi300x_8gpu_jax_conv.xplane.pb", ("tw003",)),
}
"""Where each lies, and what it tells that must go."""


def rows_of(source: Path, store: Path) -> list[Row]:
    return source_rows(find_source(source), store, Options(), model=False)


def content(path: Path) -> bytes:
    """A file's bytes, decompressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


@pytest.mark.parametrize("name", CAPTURES)
def test_what_identifies_goes_and_metrics_stay(
    name: str, test_data: Path, evidence_store: Path, tmp_path: Path
) -> None:
    where, telling = CAPTURES[name]
    source, target = test_data / where, tmp_path / "copy" / Path(where).name
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
    known = collect_identities(files)
    before = after = b""
    for path in files:
        copy = target if path == source else target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        redact_file(path, copy, identities=known)
        assert find_leftovers(copy, known) == []
        before, after = before + content(path), after + content(copy)
    for pattern in telling:
        assert re.search(pattern.encode(), before), pattern
        assert not re.search(pattern.encode(), after), pattern
    before, after = rows_of(source, evidence_store), rows_of(target, tmp_path / "store")
    assert len(before) > 100
    assert row_changes(before, after, has_token) == []


NOT_REWRITTEN: Final = "mpi-training-4-cpu"
"""Its job gave its archive no other texts than tests/formats/test_otf2.py lists."""


def test_data_points_of_the_repository_have_nothing_to_hide(repository: Path, tmp_path: Path) -> None:
    """Nothing in any file gives a name away, so that none has to be collected from the traces.

    Ranks of a job are written alike, and so are two pairs of jobs of which one is read.
    """
    cards = sorted((repository / "workload_cards").glob("*.yaml"))
    scripts = [path for card in cards for path in sorted((repository / "scripts" / card.stem).iterdir())]
    traces = [
        path
        for path in sorted((repository / "traces").glob("*/*"))
        if path.parent.name not in ("llama-train-fp8-h100", "tiny-jax-dp2-tp4-cpu", NOT_REWRITTEN)
        and not re.match(r"manifest|rank[1-9]", path.name)
    ]
    assert len(traces) > 10
    known = collect_identities([*cards, *scripts])
    for path in (*cards, *scripts, *traces):
        found = redact_file(path, tmp_path / path.name, identities=known)
        assert {one.kind for one in found} <= {UNLISTED, UNREAD}

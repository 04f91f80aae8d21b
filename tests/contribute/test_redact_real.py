# SPDX-License-Identifier: Apache-2.0
"""Real captures: what they tell of people and machines goes, every metric stays, to the bit."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
import yaml

from cclbench.contribute.record import row_changes
from cclbench.contribute.redaction import PublicNames, has_token, redact_evidence, redact_statements
from cclbench.contribute.verify import source_rows
from cclbench.ingestion.source import find_source
from cclbench.record.manifest import Options
from cclbench.record.rows import Row

CAPTURES = {
    "dlrm": ("kineto/dlrm_8xv100", ()),
    "vllm": ("kineto/h100_qwen", (r"hf_[A-Za-z0-9]{30}", r'"HOSTNAME": "[0-9a-f]{12}"')),
    "gloo": ("kineto/cpu_only", (r'"username": "user"',)),
    "mpi": (
        "nsys/pipit_saxpy_mpi_cuda_perlmutter0.sqlite",
        (
            *("ocankur", "nid001608", r"nid\[001608,003593\]", "login03", "10675698", "m4177"),
            *(r"129\.2\.90\.90", "SSH_CONNECTION"),
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
    names = PublicNames()
    before = after = b""
    for path in files:
        copy = target if path == source else target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        redact_evidence(path, copy, names)
        before, after = before + content(path), after + content(copy)
    for pattern in telling:
        assert re.search(pattern.encode(), before), pattern
        assert not re.search(pattern.encode(), after), pattern
    before, after = rows_of(source, evidence_store), rows_of(target, tmp_path / "store")
    assert len(before) > 100
    assert row_changes(before, after, has_token) == []


def test_of_the_repository_s_cards_only_words_with_digits_or_paths_become_tokens(repository: Path) -> None:
    for path in sorted((repository / "workload_cards").glob("*.yaml")):
        card = yaml.safe_load(path.read_text())
        new, _ = redact_statements(card, PublicNames(), path.name)
        words = zip(card.pop("description").split(), new.pop("description").split(), strict=True)
        assert all(re.search(r"[\d/]", old) for old, word in words if old != word), path.name
        assert new == card

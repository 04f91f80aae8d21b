# SPDX-License-Identifier: Apache-2.0
"""No rule takes evidence of performance for a secret: it finds nothing in real files, or names alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cclbench.contribute.redaction import collect_identities, redact_file
from cclbench.contribute.redaction.evidence import UNLISTED
from cclbench.contribute.redaction.names import Learner
from cclbench.contribute.redaction.scrub import Scrubber
from cclbench.formats.rewriting import METADATA, UNREAD

CLEAN = (
    "nccl_tests/*.csv",
    "nccl_tests_more/**/*.csv",
    "expected/**/*.csv",
    "rocprof_v1/**/*.csv",
    "ascend/**/*.csv",
    "ascend/**/*.json",
    "graph_replay/**/replay.json.gz",
    "kineto/dlrm_8xv100/*.json.gz",
    "kineto/sampled_2of128/*.json.gz",
    "kineto/sglang_decode_mi300x/*.json.gz",
)
"""Tables, traces and logs that name no host, user or folder of somebody."""
NAMED: Mapping[str, frozenset[str]] = {
    "nccl_logs/*.*": frozenset({"host name", "address"}),
    "ccl_bench/cards/*.y*ml": frozenset({"home path", "folder", "host name"}),
    "agent_tools/**/*.json*": frozenset({"home path", "folder", "host name", "device id", METADATA}),
    "stragglers/*.json": frozenset({"job"}),
    "mlperf_training/**/*.*": frozenset({"captured output"}),
}
"""Kinds that others hold, of which none is a secret."""
SMALL = 150_000


@pytest.mark.parametrize("pattern", [*CLEAN, *NAMED])
def test_real_evidence_is_as_it_was(pattern: str, test_data: Path, tmp_path: Path) -> None:
    files = [path for path in sorted(test_data.glob(pattern)) if path.is_file()]
    files = [path for path in files if path.stat().st_size < SMALL]
    assert files
    found = set()
    for number, path in enumerate(files):
        target = tmp_path / f"{number}-{path.name}"
        found |= {one.kind for one in redact_file(path, target, identities=collect_identities([path]))}
        assert target.stat().st_size
    assert found - {UNLISTED, UNREAD} == NAMED.get(pattern, set())


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.5.1 at commit 3f10194ca38240ddb880bab79492384b12345678",
        "NCCL INFO Channel 00/08 :    0   1   2   3   4   5   6   7",
        "NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
        "NCCL INFO comm 0x55d0c8a5e0b0 rank 0 nranks 8 busId 1b000 commId 0x9f0fd1a1a1a1 - Init COMPLETE",
        '"cache_key": "fzgqmt3d2ak7lx5k4d3f10194ca38240ddb880bab79492384b"',
        '"trace_key": "claude:92ee5b8a:msg_3e0cf83dc2523801f59077fd"',
        "sort key := sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
        "sha256:9b74c9897bac770ffc029102a200c5de9b74c9897bac770ffc029102a200c5de",
    ],
)
def test_what_only_looks_random_stays(text: str) -> None:
    assert Scrubber(Learner()).text(text) == (text, {})

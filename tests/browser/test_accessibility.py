# SPDX-License-Identifier: Apache-2.0
"""Pages of every kind of evidence in Chromium: axe-core finds nothing, no page is wider than a phone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.accessibility import violations

from cclbench.cli import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SERVER = "serving_repeats/A0_baseline_rep1.json"
RANKS = "workload_cards/tiny-llama-fsdp2-tp2-gloo-cpu.yaml"
PAGES = {
    "ranks": [RANKS],
    "accelerator": ["workload_cards/llama-train-compiled-h100.yaml"],
    "long names": ["kineto/h100_qwen"],
    "Nsight Systems": ["nsys/pipit_saxpy_mpi_cuda_perlmutter0.sqlite"],
    "sweep": ["nccl_tests/aws_p5_2n16_allreduce.csv"],
    "server": [SERVER],
    "job logs": ["job_logs_ccl/megatron_logs"],
    "traces compared": [RANKS, "workload_cards/tiny-llama-ddp4-gloo-cpu.yaml"],
    "servers compared": [SERVER, "serving_repeats/B0_chunk8192_rep1.json"],
}
"""Sources of each page, cards of this repository or test data; two are compared."""
FORMS = (("light", 1280), ("dark", 390))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_silent_and_fits_a_phone(
    browser: Browser,
    axe: str,
    repository: Path,
    test_data: Path,
    evidence_store: Path,
    tmp_path: Path,
    name: str,
) -> None:
    sources = [(repository if one.startswith("workload_cards") else test_data) / one for one in PAGES[name]]
    words = ["report" if len(sources) == 1 else "compare", "-q", *sources, "-o", tmp_path / "page.html"]
    assert main([*map(str, words), "--store", str(evidence_store)]) == 0
    for scheme, width in FORMS:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page, said = context.new_page(), []
        page.on("console", lambda message: said.append(message.text))  # noqa: B023 - of this page
        page.on("pageerror", lambda error: said.append(str(error)))  # noqa: B023
        page.goto((tmp_path / "page.html").as_uri())
        assert violations(page, axe) == [], (scheme, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, scheme
        assert said == []
        context.close()

# SPDX-License-Identifier: Apache-2.0
"""Pages of every kind of evidence in Chromium: accessible, no wider than a phone; nothing hostile runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import hostile_job as job
from helpers.accessibility import silent, violations

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
        with silent(browser, (tmp_path / "page.html").as_uri(), scheme, width) as (page, _):
            assert violations(page, axe) == [], (scheme, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, scheme


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """A run's report, a comparison and two pictures, by name."""
    folder = tmp_path_factory.mktemp("hostile")
    card, other = (job.write(folder, name, layers=layers) for name, layers in (("hostile", 2), ("other", 3)))
    made = {name: folder / name for name in ("report.html", "compare.html", "timeline.svg", "run.svg")}
    for words in (
        ("report", card, "-o", made["report.html"]),
        ("compare", "-q", card, other, "-o", made["compare.html"]),
        ("timeline", card, "-o", made["timeline.svg"]),
        ("run", "-q", card, "--plot", made["run.svg"]),
    ):
        assert main([*map(str, words), "--store", str(folder / "runs")]) == 0
    return made


@pytest.mark.parametrize("name", ["report.html", "compare.html", "timeline.svg", "run.svg"])
def test_nothing_runs_and_nothing_is_asked_for(browser: Browser, pages: dict[str, Path], name: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    heard: list[str] = []
    page.on("dialog", lambda dialog: (heard.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda message: heard.append(f"console {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error {error}"))
    page.on("request", lambda request: heard.append(f"request {request.url}"))
    address = pages[name].as_uri()
    page.goto(address)
    for summary in page.locator("summary").all():
        summary.click()
    for title in page.locator("th[aria-sort], th button").all():
        title.click()
    page.mouse.move(300, 300)
    page.wait_for_timeout(200)
    assert heard == [f"request {address}"]
    made = "img, iframe, object, embed, form, [onerror], [onload], a[href^='javascript']"
    assert page.locator(made).count() == 0
    if name.endswith(".html"):
        assert "<script>alert(1)</script>" in page.locator("body").inner_text()
        # A name without a place to break must not widen the page.
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    context.close()

# SPDX-License-Identifier: Apache-2.0
"""Pages and pictures of a hostile job in Chromium: nothing of it runs, loads or moves anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import hostile_job as job

from cclbench.cli import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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

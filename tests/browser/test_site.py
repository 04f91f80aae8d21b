# SPDX-License-Identifier: Apache-2.0
"""A site in Chromium, from disk: every page in every form, its grid, its plots; hostile texts stay texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.accessibility import silent, violations
from helpers.site_store import DEFECT, write_store

from cclbench.present.board.build import build_site
from cclbench.present.board.pages import MARK

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FORMS = {"light": ("light", 1280), "dark phone": ("dark", 390)}
BOARD = "board.html"
ALL = "board.html#published=1&modelled=1"
PUBLISHED = "point.html#run=paper-00000"
OWN = "compare.html#run=paper-00000&run=paper-00001"
FRONTS = ("index.html", BOARD, ALL, PUBLISHED, OWN, "explore.html#published=1", "history.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site of hostile jobs, nights, servers and published rows."""
    folder = tmp_path_factory.mktemp("site")
    build_site(write_store(folder), output=folder / "out")
    return folder / "out"


@contextmanager
def opened(
    browser: Browser, site: Path, page: str, scheme: str = "light", width: int = 1280
) -> Iterator[Page]:
    """A page from disk; it says nothing on the console, and asks for files of the site alone."""
    with silent(browser, f"{site.as_uri()}/{page}", scheme, width) as (shown, asked):
        if page.startswith("board.html"):
            shown.wait_for_selector("#grid[data-ready='1']")
        yield shown
    assert [url for url in asked if not url.startswith((f"{site.as_uri()}/", "blob:"))] == []


def pages_of(site: Path) -> list[str]:
    """The front pages, and of each other kind the first."""
    others = [
        sorted((site / kind).glob("*.html"))[:1]
        for kind in ("runs", "compare", "systems", "workloads", "metrics")
    ]
    lists = ("systems.html", "workloads.html", "metrics.html")
    return [*FRONTS, *lists, *(path.relative_to(site).as_posix() for found in others for path in found)]


@pytest.mark.parametrize("form", FORMS)
def test_every_kind_of_page_opens_in_every_form(browser: Browser, site: Path, form: str) -> None:
    scheme, width = FORMS[form]
    for name in pages_of(site):
        with opened(browser, site, name, scheme, width) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, ground[4:-1].split(", "))) > 600) == (scheme == "light")
            # Nothing that a stranger wrote became an element.
            made = "img, iframe, object, embed, [onerror], [onload], a[href^='javascript'], body b b"
            assert page.locator(made).count() == 0, name


@pytest.mark.parametrize("form", FORMS)
def test_pages_are_accessible(browser: Browser, site: Path, axe: str, form: str) -> None:
    for name in (*pages_of(site), f"{ALL}&grouping=workload"):
        with opened(browser, site, name, *FORMS[form]) as page:
            assert violations(page, axe) == [], name


def rows(page: Page) -> list[str]:
    return page.locator("#grid .tabulator-row .name").all_inner_texts()


def test_published_rows_and_modelled_figures_are_shown_where_asked_for(browser: Browser, site: Path) -> None:
    total = json.loads((site / MARK).read_text())["rows"]
    with opened(browser, site, BOARD) as page:
        own = page.locator("#count").inner_text()
        assert not [name for name in rows(page) if name.startswith("paper")]
        assert page.locator("#grid .n.modelled:visible").count() == 0
        page.get_by_label("published rows").check()
        assert page.locator("#count").inner_text().startswith(f"{total} of {total} rows")
        assert own != page.locator("#count").inner_text()
        assert "published=1" in page.url
        page.get_by_label("Search").fill("paper-00001")
        assert rows(page) == ["paper-00001"]
        assert page.locator("#grid .tag.published").inner_text() == "paper"
        assert page.locator("#grid .n.published").count() > 0


def test_filters_and_the_order_are_in_the_address(browser: Browser, site: Path) -> None:
    with opened(browser, site, f"{BOARD}#published=1&publisher=paper&sort=time.step.desc") as page:
        names = rows(page)
        assert names == sorted(names, reverse=True)  # the step grows with the number
        assert names[0].startswith("paper")
        page.get_by_role("button", name="run", exact=True).press("Enter")
        names = rows(page)
        assert names == sorted(names)
        assert names[0] == "paper-00000"
        assert "sort=id.asc" in page.url


FRAME = "new Promise(done => requestAnimationFrame(() => setTimeout(done, 20)))"
"""Until columns that scrolling shows are rendered."""


def scroll(page: Page, left: float) -> None:
    """Scroll the board to the right by `left` pixels, and wait until it is drawn."""
    page.evaluate("left => document.querySelector('.tabulator-tableholder').scrollLeft = left", left)
    page.evaluate(FRAME)


def test_a_cell_opens_its_evidence(browser: Browser, site: Path) -> None:
    with opened(browser, site, f"{ALL}&q=paper-00000&topic=Communication") as page:
        flagged = page.locator("#grid .tabulator-row .flag").first
        for left in range(0, 12_000, 300):  # only the columns in view, and one or two beside them, are drawn
            scroll(page, left)
            if flagged.count():
                break
        flagged.evaluate("one => one.scrollIntoView({block: 'nearest', inline: 'center'})")
        page.evaluate(FRAME)
        flagged.click()
        evidence = page.locator("#evidence").inner_text()
        assert DEFECT in evidence
        assert "0.9 s" in evidence
        page.get_by_role("button", name="Close").click()
        # The same by keys: from the run's link to the right, then Enter.
        page.locator("#grid .tabulator-row a").first.focus()
        for _ in range(30):
            page.keyboard.press("ArrowRight")
            page.evaluate(FRAME)
            if page.evaluate("document.activeElement.querySelector('.n') !== null"):
                break
        page.keyboard.press("Enter")
        assert page.locator("#evidence").is_visible()
        page.keyboard.press("Escape")
        # So do the cells of facts and of proved work.
        sought = (("framework", 1e6, "As paper published it."), ("rank", 0, "not proved equal"))
        for field, left, words in sought:
            scroll(page, left)
            page.locator(f"#grid .tabulator-cell[tabulator-field={field}]").first.click()
            assert words in page.locator("#evidence").inner_text()
            page.get_by_role("button", name="Close").click()


def test_selected_rows_are_compared(browser: Browser, site: Path) -> None:
    with opened(browser, site, f"{BOARD}#published=1&publisher=paper") as page:
        boxes = page.locator("#grid input[type=checkbox]")
        boxes.nth(0).check()
        boxes.nth(1).check()
        page.get_by_role("button", name="Compare the selected").click()
        page.wait_for_url("**/compare.html*")
        words = page.locator("main").inner_text()
        assert "not proved to do equal work" in words
        assert "500 ms" in words
        assert "501 ms" in words
    with opened(browser, site, BOARD) as page:
        page.get_by_label("Search").fill("client")
        assert page.locator("#grid .tabulator-cell[tabulator-field=group]").all_inner_texts() == ["W1", "W1"]
        for place in (0, 1):
            page.locator("#grid input[type=checkbox]").nth(place).check()
        page.get_by_role("button", name="Compare the selected").click()
        page.wait_for_url("**/compare/*.html")


def test_shown_rows_are_downloaded(browser: Browser, site: Path, tmp_path: Path) -> None:
    def content(page: Page, button: str) -> str:
        with page.expect_download() as download:
            page.get_by_role("button", name=button, exact=True).click()
        download.value.save_as(tmp_path / button)
        return (tmp_path / button).read_text(encoding="utf-8")

    with opened(browser, site, f"{ALL}&publisher=paper") as page:
        document: dict[str, Any] = json.loads(content(page, "JSON"))
        first = next(row for row in document["rows"] if row["run"] == "paper-00000")
        step = first["figures"]["time.step"]
        assert (step["value"], step["provenance"], step["unit"]) == (0.5, "published", "s")
        assert first["figures"]["comm.time"]["reason"] == DEFECT
        table = content(page, "CSV")
        assert len(document["rows"]) > 10
        assert "'=cmd|" in table  # no cell is a formula
        assert '"=cmd' not in table


def test_plots_are_drawn_and_paper_has_a_plain_table(browser: Browser, site: Path) -> None:
    with opened(browser, site, "explore.html#published=1&x=time.step&y=throughput.tokens_per_device") as page:
        assert page.locator("#scatter-plot canvas").count() == 1
        assert "rows have both" in page.locator("#scatter-words").inner_text()
        assert "2 of 2 benchmarks are best" in page.locator("#pareto").inner_text()
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.querySelector('#scatter-plot canvas').clientWidth") <= 640
    with opened(browser, site, "history.html") as page:
        assert page.locator("canvas").count() == 1
        assert "nightly" in page.locator("main").inner_text()
    with opened(browser, site, f"{ALL}&q=paper") as page:
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("#printed tbody tr").count() > 10
        assert not page.locator("#grid").is_visible()

# SPDX-License-Identifier: Apache-2.0
"""The report in Chromium, from disk: no word, no request, in every form; sorting, filter and hover work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.accessibility import silent
from helpers.report_run import HOSTILE, Event, comparison, results, row, subject

from cclbench.present.html import write_page
from cclbench.present.page import comparison_page, run_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EVENTS: tuple[Event, ...] = (
    (0, "gemm_b", "gemm", 1000, 900),
    (1, "gemm_a", "gemm", 1010, 30),
    (0, "softmax_c", "reduction", 1020, 4000),
    (1, "copy_d", "copy", 1030, 100),
)
PRODUCT = {"name": "aten::mm", "dtypes": '["float","float"]'}
CALLS = {
    "gemm_b": PRODUCT | {"shapes": "[[512,512],[512,512]]", "module": "Net_0/Linear_0"},
    "gemm_a": PRODUCT | {"shapes": "[[16,16],[16,16]]", "module": "Net_0/Linear_1"},
    "softmax_c": {"name": HOSTILE[0], "module": f"{HOSTILE[4]}_0"},
}
FORMS = (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run's page, a comparison's, and those of hostile texts, on disk."""
    folder = tmp_path_factory.mktemp("pages")
    hostile = [(0, text, "gemm", 1000, 10) for text in HOSTILE]
    rows = [*results(), *(row("comm.volume", 1.0, "B", group=text[:300], reason=text) for text in HOSTILE)]
    one, two = subject(folder / "a", events=EVENTS), subject(folder / "b", "B", events=EVENTS[:2])
    bad = subject(folder / '"><script>alert(1)<', rows=rows, events=tuple(hostile))
    write_page(run_page(one), folder / "run.html")
    write_page(comparison_page(comparison(one, two)), folder / "comparison.html")
    write_page(run_page(bad), folder / "hostile.html")
    write_page(run_page(subject(folder / "c", events=EVENTS, calls=CALLS)), folder / "operators.html")
    write_page(comparison_page(comparison(bad, two, words=HOSTILE[0])), folder / "hostile comparison.html")
    return {path.stem: path for path in folder.glob("*.html")}


@contextmanager
def opened(browser: Browser, path: Path, scheme: str = "light", width: int = 1280) -> Iterator[Page]:
    """The page from disk; it says nothing on the console and asks for nothing but itself."""
    with silent(browser, path.as_uri(), scheme, width) as (page, asked):
        yield page
    assert asked == [path.as_uri()]


def names(page: Page) -> list[str]:
    """The kernel table's names that are shown, in order."""
    return page.locator("#kernel-table tbody tr:visible td:first-child").all_inner_texts()


@pytest.mark.parametrize(("scheme", "width"), FORMS)
@pytest.mark.parametrize("name", ["run", "operators", "comparison", "hostile", "hostile comparison"])
def test_the_page_in_every_form(browser: Browser, pages: Any, name: str, scheme: str, width: int) -> None:
    with opened(browser, pages[name], scheme, width) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ground, ink = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        assert (sum(map(int, ground[4:-1].split(", "))) > 600) == (scheme == "light")
        assert (sum(map(int, ink[4:-1].split(", "))) < 200) == (scheme == "light")
        assert page.locator("svg.chart").count() >= 4
        # A chart's ink follows the theme: what matplotlib drew is not what it drew it in.
        fill = page.locator("#partition text").first.evaluate("e => getComputedStyle(e).fill")
        assert fill != "rgb(0, 0, 0)"


def test_a_click_on_a_heading_sorts_and_words_filter(browser: Browser, pages: dict[str, Path]) -> None:
    with opened(browser, pages["run"]) as page:
        assert names(page) == ["softmax_c", "gemm_b", "copy_d", "gemm_a"]  # by time
        head = page.locator("#kernel-table th", has_text="name")
        head.get_by_role("button").click()
        assert names(page) == ["copy_d", "gemm_a", "gemm_b", "softmax_c"]
        assert head.get_attribute("aria-sort") == "ascending"
        head.get_by_role("button").press("Enter")
        assert names(page) == ["softmax_c", "gemm_b", "gemm_a", "copy_d"]
        assert head.get_attribute("aria-sort") == "descending"
        mean = page.locator("#kernel-table th", has_text="mean")
        mean.get_by_role("button").click()
        assert names(page) == ["softmax_c", "gemm_b", "copy_d", "gemm_a"]
        assert (head.get_attribute("aria-sort"), mean.get_attribute("aria-sort")) == (None, "descending")
        # the filter takes words
        page.get_by_label("Filter").fill("GEMM _a")
        assert names(page) == ["gemm_a"]
        assert page.locator("#kernel-table-count").inner_text() == "1 of 4"
        page.get_by_label("Filter").fill("nothing of that name")
        assert names(page) == []
        page.get_by_label("Filter").fill("")
        assert len(names(page)) == 4
    with opened(browser, pages["comparison"]) as page:  # what did not run is last, whichever way
        of_b = page.locator("#kernel-table th").get_by_role("button", name="B", exact=True)
        of_b.click()
        assert names(page)[:2] == ["gemm_b", "gemm_a"]
        of_b.click()
        assert names(page)[:2] == ["gemm_a", "gemm_b"]


def test_operators_are_sorted_filtered_and_told(browser: Browser, pages: dict[str, Path]) -> None:
    with opened(browser, pages["operators"]) as page:
        times = page.locator("#operator-table tbody tr:visible td:nth-child(3)")
        assert times.all_inner_texts() == ["4.00 µs", "900 ns", "100 ns", "30.0 ns"]
        page.locator("#operator-table th").get_by_role("button", name="time").click()
        assert times.all_inner_texts() == ["4.00 µs", "900 ns", "100 ns", "30.0 ns"]
        page.locator("#operator-table th").get_by_role("button", name="time").click()
        assert times.all_inner_texts()[0] == "30.0 ns"
        page.get_by_label("Filter").last.fill("mm fp32[16")
        assert times.all_inner_texts() == ["30.0 ns"]
        assert page.locator("#operator-table-count").inner_text() == "1 of 4"
        mark_of_mm = '[id="operator-roofline-operator-0"]'
        for mark, text in (
            ('[id="modules-module-2"]', "Net_0\n930 ns"),
            (mark_of_mm, "aten::mm\nfp32[512,512], fp32[512,512]\n900 ns in 1 call, 17.9 % of"),
        ):
            page.locator(mark).scroll_into_view_if_needed()
            page.locator(mark).hover()
            assert page.locator("#tip").inner_text().startswith(text)


def test_pointing_at_a_number_tells_where_it_is_from(browser: Browser, pages: dict[str, Path]) -> None:
    with opened(browser, pages["run"]) as page:
        number, tip = page.locator("#metrics .n:visible").first, page.locator("#tip")
        before = number.get_attribute("title")
        assert not tip.is_visible()
        number.hover()
        told = "time.step = 0.1 s\nthe whole run\nmeasured; window: steps; source: kineto"
        assert tip.inner_text().startswith(told)
        assert number.get_attribute("title") == ""  # or the browser showed it twice
        page.keyboard.press("Escape")
        assert not tip.is_visible()
        assert number.get_attribute("title") == before


def test_pointing_at_a_mark_tells_what_it_is(browser: Browser, pages: dict[str, Path]) -> None:
    compute = "compute: A 30.0 ms, B 55.0 ms; +25,000,000 ns"
    with opened(browser, pages["comparison"]) as page:
        for mark, text in (
            ('[id="waterfall-B-part-compute"]', compute),
            ('[id^="partition-bar-0-0-0"]', "A: mean of 2 ranks: compute only 40.0 ms, 40.0 % of 100 ms"),
            ('[id="straggler-0-rank-1"]', "rank 1: 10.0 ms later than the median rank on average"),
        ):
            page.locator(mark).scroll_into_view_if_needed()
            page.locator(mark).hover()
            assert page.locator("#tip").inner_text().startswith(text)
        page.locator("#waterfall-B svg, figure:has([id^='waterfall-B']) svg").first.focus()
        told = []
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
            page.keyboard.press(key)
            told.append(page.locator("#tip").inner_text().splitlines()[0])
        assert told[0] == told[2] == compute != told[1]
        assert page.locator("svg .at").count() == 1
        page.keyboard.press("Escape")
        assert page.locator("#tip").is_hidden()


READABLE = """() => {
  const parts = (colour) => (colour.match(/[\\d.]+/g) ?? []).map(Number);
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paint = (el) => {
    const style = getComputedStyle(el);
    if (!(el instanceof SVGElement)) return style.backgroundColor;
    return ["svg", "g"].includes(el.tagName) || !style.fill.startsWith("rgb") ? "" : style.fill;
  };
  const below = (text, x, y) => {
    const mixed = [0, 0, 0];
    let seen = 1;
    for (const el of [...document.elementsFromPoint(x, y), null]) {
      const colour = el === null ? [255, 255, 255] : el === text ? [] : parts(paint(el));
      if (!colour.length) continue;
      const { opacity, fillOpacity } = getComputedStyle(el ?? document.body);
      const share = seen * (colour[3] ?? 1) * (el instanceof SVGElement ? opacity * fillOpacity : 1);
      for (const at of [0, 1, 2]) mixed[at] += share * colour[at];
      seen -= share;
    }
    return mixed;
  };
  const found = [];
  for (const text of document.querySelectorAll("body *")) {
    const words = [...text.childNodes].filter((node) => node.nodeType === 3).map((node) => node.textContent);
    if (!/[\\p{L}\\p{N}]/u.test(words.join(""))) continue;
    const drawn = text.tagName === "text";
    if ((text.closest("svg") && !drawn) || !text.checkVisibility({ visibilityProperty: true })) continue;
    text.scrollIntoView({ block: "center", inline: "center" });
    const box = text.getBoundingClientRect(), style = getComputedStyle(text);
    const x = box.x + box.width / 2, y = box.y + box.height / 2;
    if (!box.width || x < 0 || x > innerWidth || y < 0 || y > innerHeight) continue;
    const matrix = drawn ? text.getScreenCTM() : { a: 1, b: 0 };
    const size = parseFloat(style.fontSize) * Math.hypot(matrix.a, matrix.b);
    const sides = [light(parts(drawn ? style.fill : style.color)), light(below(text, x, y))];
    const contrast = (Math.max(...sides) + 0.05) / (Math.min(...sides) + 0.05);
    found.push([text.textContent.trim().slice(0, 40), size, contrast]);
  }
  return found;
}"""
"""Each text that is seen: its beginning, its size in px, its contrast with what lies below its middle."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["run", "operators", "comparison"])
def test_texts_are_read_on_a_phone(browser: Browser, pages: dict[str, Path], name: str, scheme: str) -> None:
    with opened(browser, pages[name], scheme, 390) as page:
        texts = page.evaluate(READABLE)
    assert len(texts) > 100
    assert [text for text in texts if text[1] < 8.99] == []
    assert [text for text in texts if text[2] < 4.49] == []


def test_a_tap_tells_it_too(browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True)
    page = context.new_page()
    page.goto(pages["run"].as_uri())
    page.locator(".tile .n").first.tap()
    assert page.locator("#tip").inner_text().startswith("time.step = 0.1 s")
    assert page.locator("#tip").bounding_box()["x"] >= 0  # type: ignore[index]
    page.locator("h1").tap()
    context.close()


def test_the_timeline_names_kernels_and_zooms(browser: Browser, pages: dict[str, Path]) -> None:
    """Rank 1's copy_d takes 30 to 130 of the step's 1,000 ns; zoomed in twice, 375 to 625 remain."""
    with opened(browser, pages["run"]) as page:
        canvas, tip = page.locator(".timeline canvas"), page.locator("#tip")
        canvas.scroll_into_view_if_needed()
        width = canvas.bounding_box()["width"]  # type: ignore[index]
        canvas.hover(position={"x": 0.08 * width, "y": 76})
        assert tip.text_content() == "copy_d\n100 ns from 30 ns\nrank 1, stream 7"
        canvas.hover(position={"x": 0.5 * width, "y": 76})
        assert tip.is_hidden()
        for _ in range(2):
            page.get_by_role("button", name="zoom in").click()
        canvas.hover(position={"x": 0.08 * width, "y": 76})
        assert tip.is_hidden()


def test_paper(browser: Browser, pages: dict[str, Path]) -> None:
    with opened(browser, pages["comparison"], "dark") as page:
        assert page.pdf().startswith(b"%PDF-")
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not page.locator("nav").is_visible()
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details[open]").count() == 0


def test_a_browser_without_script_has_all_of_it(browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["run"].as_uri())
    assert page.locator("#kernel-table tbody tr").count() == 4
    assert not page.get_by_label("Filter").is_visible()
    context.close()

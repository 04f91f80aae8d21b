# SPDX-License-Identifier: Apache-2.0
"""Measure a site of many rows: `site.py STORE... --repository . --keep FOLDER --axe axe.min.js`.

Builds the site of stores of imported rows and a repository's data points, and prints its size and duration.
`--made N FILE` imports N variations of the rows of a leaderboard's `benchmark_data.json` beforehand, into the
first store.  Opens every kind of page from disk in each browser that is installed, light and dark, wide and
at 390 px, and as on paper: the first view, each filter, sorting, selecting, comparing, the address, keys;
messages, requests, axe-core.  Firefox needs a Playwright that drives stock Firefox (1.57 does).
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Error, Page, Playwright, sync_playwright

FORMS = [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)]
FRONTS = (
    "index.html",
    "board.html",
    "board.html#published=1&modelled=1",
    "board.html#published=1&grouping=work",
    "explore.html#published=1",
    "history.html",
    "workloads.html",
    "systems.html",
    "metrics.html",
)
KINDS = ("runs", "compare", "systems", "workloads", "metrics")
TIMED = """async ([id, value]) => {
  const control = document.getElementById(id) ?? document.querySelectorAll('#facts select')[id];
  const begin = performance.now();
  if (control.type === 'checkbox') control.checked = value; else control.value = value;
  control.dispatchEvent(new Event(control.type === 'search' ? 'input' : 'change', {bubbles: true}));
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begin;
}"""
SORTED = """async (field) => {
  const begin = performance.now();
  document.querySelector(`#grid .tabulator-col[tabulator-field="${field}"] button`).click();
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begin;
}"""
FILTERS = """[...document.querySelectorAll('#facts select')].map((one, place) =>
  [place, one.parentElement.firstChild.textContent.trim(), [...one.options].slice(1, 4).map(o => o.value)])"""
UNSET: Any = dict.fromkeys(("color_scheme", "reduced_motion", "forced_colors", "contrast"), "null")
Times = tuple[float, ...]
FRAME = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
OF_PLAYWRIGHT = "sha256-YjaKGiklmzC6wjXA513HAMmzus8VE61XCOT+SmwNZWA="
"""Hash of `body {}`, a style of Playwright's pictures in Firefox, which the page's policy refuses."""
AXE = "axe.run(document, {resultTypes: ['violations'], preload: false})"


def main() -> None:
    """Build, open, measure; print a line for each figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stores", type=Path, nargs="*")
    parser.add_argument("--repository", type=Path, help="folder with workload_cards/ and traces/")
    parser.add_argument("--made", nargs=2, metavar=("N", "FILE"), help="variations of a leaderboard's rows")
    parser.add_argument("--keep", type=Path, required=True, help="folder of the site, and of what it needs")
    parser.add_argument("--axe", type=Path, help="axe.min.js of `npm pack axe-core`")
    parser.add_argument("--no-build", action="store_true", help="measure the site that is there")
    given = parser.parse_args()
    site = given.keep.resolve() / "site"
    if not given.no_build:
        build(given, site)
    files = [path for path in site.rglob("*") if path.is_file()]
    print(f"{sum(path.stat().st_size for path in files) / 1e6:.2f} MB in {len(files)} files")
    axe = given.axe.read_text(encoding="utf-8") if given.axe else None
    for name in ("chromium", "firefox"):
        if shutil.which(name) is None:
            print(f"{name}: not installed")
            continue
        with sync_playwright() as playwright:
            browsers = {scheme: started(playwright, name, scheme) for scheme in ("light", "dark")}
            print(f"{name} {browsers['light'].version}")
            try:
                browsers["light"].new_context(**UNSET if name == "firefox" else {}).close()
            except Error as error:
                print(f"  this Playwright does not drive it: {str(error).splitlines()[0]}")
                continue
            measure_board(browsers["light"], site)
            use_by_keys(browsers["light"], site)
            look_at_pages(name, browsers, site, axe)


def build(given: argparse.Namespace, site: Path) -> None:
    """Write the site by the command line, after importing made rows if they are asked for."""
    command = [sys.executable, "-m", "cclbench"]
    given.keep.mkdir(parents=True, exist_ok=True)
    if given.made:
        count, leaderboard = int(given.made[0]), Path(given.made[1])
        made = given.keep / "made.json"
        made.write_text(json.dumps(varied(json.loads(leaderboard.read_text()), count)))
        imported = [*command, "import", "ccl-bench", str(made), "--store", str(given.stores[0]), "--json"]
        subprocess.run(imported, check=True, stdout=subprocess.DEVNULL)
    places = [str(place) for place in (given.repository, *given.stores) if place]
    begin, before = time.perf_counter(), cpu_seconds()
    subprocess.run(
        [*command, "site", *places, "-o", str(site), "--store", str(given.keep / "runs"), "-q"], check=True
    )
    print(f"built in {time.perf_counter() - begin:.1f} s, {cpu_seconds() - before:.1f} s of processors")


def cpu_seconds() -> float:
    """Time of processors that ended subprocesses took, s."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def varied(document: dict[str, Any], count: int) -> dict[str, Any]:
    """The document with `count` rows: its own in turn, with other names and numbers up to 20 % away."""
    draw = random.Random(1)  # noqa: S311 - no secret
    rows = []
    for number in range(count):
        row = json.loads(json.dumps(document["rows"][number % len(document["rows"])]))
        row["metadata"]["workload_name"] = f"{row['metadata']['workload_name']}-made-{number}"
        for name, value in row["metrics"].items():
            if isinstance(value, int | float) and value not in (-1, 0):
                row["metrics"][name] = value * draw.uniform(0.8, 1.2)
        rows.append(row)
    return document | {"rows": rows}


def started(playwright: Playwright, name: str, scheme: str) -> Browser:
    """A browser whose pages are light or dark."""
    if name == "chromium":
        flags = ["--no-sandbox", "--disable-gpu"]
        return playwright.chromium.launch(executable_path=shutil.which(name), args=flags)
    preferences = {"layout.css.prefers-color-scheme.content-override": ["dark", "light"].index(scheme)}
    return playwright.firefox.launch(
        executable_path=shutil.which(name), channel="moz-firefox", firefox_user_prefs=preferences
    )


@contextmanager
def opened(browser: Browser, address: str, scheme: str = "light", width: int = 1280) -> Iterator[Page]:
    """A page from disk; prints what it says on the console, and requests for anything but files beside it."""
    is_chromium = browser.browser_type.name == "chromium"
    how = {"color_scheme": scheme} if is_chromium else UNSET
    context = browser.new_context(viewport={"width": width, "height": 900}, **how)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    own = ("file:", "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(own) else said.append(request.url))
    page.goto(address)
    if "/board.html" in address:
        page.wait_for_selector("#grid[data-ready='1']")
    yield page
    context.close()
    for line in dict.fromkeys(line for line in said if OF_PLAYWRIGHT not in line):
        print(f"  SAID {address.rpartition('/')[2]}: {line[:300]}")


def measure_board(browser: Browser, site: Path) -> None:
    """First view, each filter, sorting; of each the worst of several tries."""
    views: dict[str, Times] = {}
    for number in range(3):
        with opened(browser, f"{site.as_uri()}/index.html") as page:
            busy_ms = main_thread(page)
            begin, before = time.perf_counter(), busy_ms() if busy_ms else 0.0
            page.goto(f"{site.as_uri()}/board.html")
            page.wait_for_selector("#grid[data-ready='1']")
            page.evaluate(FRAME)
            shown = 1000 * (time.perf_counter() - begin)
            views[f"visit {number}"] = (shown, *([busy_ms() - before] if busy_ms else []))
    print_times("first view of the board", views)
    with opened(browser, f"{site.as_uri()}/board.html#published=1") as page:
        print(f"  {page.locator('#count').inner_text()}")

        spent = stopwatch(page)

        def worst(control: str | int, values: list[Any]) -> Times:
            return max((spent(TIMED, [control, value]) for value in values), key=lambda times: times[-1])

        times = {title: worst(place, [*values, ""]) for place, title, values in page.evaluate(FILTERS)}
        times |= {"search": worst("search", ["l", "llama", "llama tp", ""])}
        times |= {name: worst(name, [False, True, False, True]) for name in ("modelled", "published")}
        print_times("filters", times)
        rankings = page.evaluate("[...document.getElementById('rank').options].map(one => one.value)")
        groupings = page.evaluate("[...document.getElementById('grouping').options].map(one => one.value)")
        print_times("rank by", {name: worst("rank", [name]) for name in rankings})
        print_times("group by", {name or "nothing": worst("grouping", [name]) for name in (*groupings, "")})
        names = {
            f"m{k}": name for name, k in page.evaluate("Site.shown.metrics().map(one => [one.name, one.k])")
        }
        names |= {field: field for field in ("id", "workload", "devices", "rank", "group")}
        print_times(
            "sorting", {name: max(spent(SORTED, field) for _ in range(3)) for field, name in names.items()}
        )


def main_thread(page: Page) -> Callable[[], float] | None:
    """A clock of what the page's main thread did, ms, which does not grow with the load of the machine.

    Only Chromium has one.
    """
    if page.context.browser is None or page.context.browser.browser_type.name != "chromium":
        return None
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_ms() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return 1000 * next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")

    return busy_ms


def stopwatch(page: Page) -> Callable[[str, Any], Times]:
    """Runs a script of the page; its milliseconds to the painted frame, and those of the main thread."""
    busy_ms = main_thread(page)

    def spent(script: str, about: Any) -> Times:
        before = busy_ms() if busy_ms else 0.0
        shown = float(page.evaluate(script, about))
        return (shown, *([busy_ms() - before] if busy_ms else []))

    return spent


def print_times(what: str, times: dict[str, Times]) -> None:
    """Median and worst of each kind of time, and what takes more than 100 ms."""
    for place, kind in enumerate(("to the painted frame", "of the main thread")):
        ordered = sorted((spent[place], name) for name, spent in times.items() if len(spent) > place)
        if ordered:
            median, (most, slowest) = ordered[len(ordered) // 2][0], ordered[-1]
            above = sum(spent > 100 for spent, _ in ordered)
            print(
                f"  {what}, ms {kind}: {len(ordered)}, median {median:.0f}, worst {most:.0f} ({slowest}),"
                f" {above} above 100"
            )


def use_by_keys(browser: Browser, site: Path) -> None:
    """Select, compare, and open a cell's evidence without a mouse; the address opens the same view again."""
    with opened(browser, f"{site.as_uri()}/board.html#published=1&modelled=1") as page:
        page.keyboard.press("Tab")
        tell("skip link is first", page.evaluate("document.activeElement.className === 'skip'"))
        page.locator("#search").focus()
        page.keyboard.type("llama")
        for place in (0, 1):
            page.locator("#grid input[type=checkbox]").nth(place).focus()
            page.keyboard.press("Space")
        page.locator("#grid .tabulator-row a").first.focus()
        for _ in range(40):
            page.keyboard.press("ArrowRight")
            if page.evaluate("document.activeElement.querySelector('.n') !== null"):
                break
        page.keyboard.press("Enter")
        tell("Enter opens the evidence", page.locator("#evidence").is_visible())
        page.keyboard.press("Escape")
        tell("Escape closes it", not page.locator("#evidence").is_visible())
        address, shown = page.url, page.locator("#count").inner_text()
        page.locator("#compare").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/compare**")
        tell("two selected rows are compared", page.locator("main table").count() > 0)
    with opened(browser, address) as page:
        tell("the address opens the same view", page.locator("#count").inner_text() == shown)


def tell(what: str, holds: bool) -> None:
    """A line for a check."""
    print(f"  {'ok' if holds else 'FAILED'}: {what}")


def look_at_pages(name: str, browsers: dict[str, Browser], site: Path, axe: str | None) -> None:
    """Every kind of page in every form: its width, axe-core, its height on paper, a picture of each."""
    pictures = site.parent / f"pictures-{name}"
    pictures.mkdir(exist_ok=True)
    row = next((site / "assets").glob("published.js"), None)
    pages = [*FRONTS, *(["point.html#run=" + published_run(site)] if row else [])]
    pages += [
        path.relative_to(site).as_posix()
        for kind in KINDS
        for path in spread(sorted((site / kind).glob("*.html")))
    ]
    wrong = 0
    for address in pages:
        for scheme, width in FORMS:
            with opened(browsers[scheme], f"{site.as_uri()}/{address}", scheme, width) as page:
                stem = address.partition("#")[0].replace("/", "-").removesuffix(".html")[:40]
                stem = f"{stem}-{pages.index(address)}-{scheme}-{width}"
                # by default Playwright hides the caret with a style, which the page's policy refuses
                page.screenshot(path=pictures / f"{stem}.png", full_page=True, caret="initial")
                across = page.evaluate("document.documentElement.scrollWidth")
                found = [] if axe is None else attempt(lambda: violations(page, axe))
                wrong += len(found) + (across > width)
                for words in [*found, *([f"{across} px wide"] if across > width else [])]:
                    print(f"  WRONG {address}, {scheme} {width}: {words}")
                if (scheme, width) == FORMS[0] and name == "chromium":
                    page.pdf(path=pictures / f"{stem}.pdf", width="210mm", height="297mm")
    print(f"  {len(pages)} pages in {len(FORMS)} forms: {wrong} violations of axe-core or of the width")


def spread(paths: list[Path]) -> list[Path]:
    """The first, the middle and the last."""
    return [paths[place] for place in sorted({0, len(paths) // 2, len(paths) - 1})] if paths else []


def published_run(site: Path) -> str:
    """The id of a published row."""
    text = (site / "assets" / "board.js").read_text(encoding="utf-8")
    board = json.loads(text[text.index("=") + 1 : text.rindex(";")])
    first = json.loads((site / "assets" / "published.js").read_text().partition("=")[2].rstrip().rstrip(";"))
    number = first["rows"][0][0]
    return str(board["texts"][board["rows"]["id"]["of"][number]])


def violations(page: Page, axe: str) -> list[str]:
    """Violated rules of axe-core with the first element of each; all that folds is open."""
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.evaluate(FRAME)  # in which boxes that now scroll become places of the focus
    page.evaluate(axe)
    return [f"{one['id']}: {one['nodes'][0]['html'][:160]}" for one in page.evaluate(AXE)["violations"]]


def attempt(check: Callable[[], list[str]]) -> list[str]:
    """What a check finds, or that it could not be made."""
    try:
        return check()
    except Error as error:
        return [f"not checked: {str(error).splitlines()[0]}"]


if __name__ == "__main__":
    main()

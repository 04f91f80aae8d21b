# SPDX-License-Identifier: Apache-2.0
"""Run the session of docs/tour.md, and renew its screens and pictures.

    python scripts/tour.py

The page's commands run in their order, in a copy of the repository's data points, on a terminal of 80
columns.  What each prints replaces the screen below it, unless that leaves lines out (`...`); pictures
need Chromium ($CHROMIUM, or on PATH).  tests/docs compares the screens.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "tour.md"
PICTURES: Final = ROOT / "docs" / "images" / "tour"
COMMAND: Final = re.compile(
    r"^```sh\n(?P<command>.*?)^```\n(?P<screen>\n```text\n.*?^```\n)?", re.DOTALL | re.MULTILINE
)
"""A block of commands, and what the page shows of their output."""


class Picture(NamedTuple):
    """What a picture shows of a page that the session wrote: its top, or what a selector finds."""

    page: str
    width: int = 1280
    height: int = 900
    scheme: Literal["light", "dark"] = "light"
    selector: str | None = None


SHOWN: Final = {
    "report": Picture("my-job.html"),
    "timeline": Picture("my-job.html", selector="#timeline"),
    "phone": Picture("my-job.html", width=390, height=844, scheme="dark"),
    "comparison": Picture("comparison.html"),
    "board": Picture("board/board.html", height=600),
}


def printed_by(command: str, folder: Path) -> str:
    """What a command prints in the folder, with the cclbench beside this Python."""
    environment = os.environ | {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "CCLBENCH_STORE": "runs",
        "COLUMNS": "80",
    }
    program = ["/bin/bash", "-ec", command]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def renewed_page(text: str, folder: Path) -> str:
    """The page with what its commands print in the folder."""

    def with_screen(match: re.Match[str]) -> str:
        screen = printed_by(match["command"], folder)
        if "\n...\n" in (match["screen"] or ""):
            return match[0]
        return f"```sh\n{match['command']}```\n" + f"\n```text\n{screen}\n```\n" * bool(match["screen"])

    return COMMAND.sub(with_screen, text)


def take_picture(browser: Browser, folder: Path, name: str, picture: Picture) -> None:
    """Write a picture as WebP."""
    context = browser.new_context(
        viewport={"width": picture.width, "height": picture.height}, color_scheme=picture.scheme
    )
    page = context.new_page()
    page.goto((folder / picture.page).as_uri())
    page.wait_for_load_state("networkidle")
    png = page.locator(picture.selector).first.screenshot() if picture.selector else page.screenshot()
    Image.open(BytesIO(png)).save(PICTURES / f"{name}.webp", lossless=True, method=6)
    context.close()


def main() -> None:
    """Renew the page."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = Path(temporary)
        for name in ("workload_cards", "traces", "scripts"):
            shutil.copytree(ROOT / name, folder / name)
        PAGE.write_text(renewed_page(PAGE.read_text("utf-8"), folder), "utf-8")
        printed_by("cclbench site . -o board", folder)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, picture in SHOWN.items():
            take_picture(browser, folder, name, picture)


if __name__ == "__main__":
    main()

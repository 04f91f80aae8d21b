# SPDX-License-Identifier: Apache-2.0
"""A Chromium to open pages in, without which these tests skip, in CI fail; and axe-core."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def chromium() -> str:
    """Chromium's path: `$CHROMIUM`, else the one that is installed."""
    found = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if found is None or not Path(found).is_file():
        missing = "no Chromium here: install it, or name it in $CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """One Chromium for all tests; each opens a context of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        running = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield running
        running.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, from npm; without it these tests skip."""
    folder = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here, so no axe-core: accessibility is not checked")
    try:
        subprocess.run(
            [npm, "pack", "--silent", "axe-core@4"], cwd=folder, check=True, capture_output=True, timeout=60
        )
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"axe-core cannot be had from npm, so accessibility is not checked: {error}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        script = archive.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()

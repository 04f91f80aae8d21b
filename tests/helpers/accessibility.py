# SPDX-License-Identifier: Apache-2.0
"""Pages in Chromium: opened in silence, and what axe-core finds on one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_RUN = "axe.run(document, {resultTypes: ['violations'], preload: false})"


def violations(page: Page, axe: str) -> list[tuple[str, str]]:
    """Each violated rule with the first element that violates it; everything that folds is open."""
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.evaluate(axe)
    return [(one["id"], one["nodes"][0]["html"]) for one in page.evaluate(_RUN)["violations"]]


@contextmanager
def silent(
    browser: Browser, address: str, scheme: str = "light", width: int = 1280
) -> Iterator[tuple[Page, list[str]]]:
    """A page that says nothing on the console, and what it asks for but data."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page, said, asked = context.new_page(), [], list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: None if request.url.startswith("data:") else asked.append(request.url))
    page.goto(address)
    yield page, asked
    context.close()
    assert said == []

# SPDX-License-Identifier: Apache-2.0
"""What axe-core finds on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_RUN = "axe.run(document, {resultTypes: ['violations'], preload: false})"


def violations(page: Page, axe: str) -> list[tuple[str, str]]:
    """Each violated rule with the first element that violates it; everything that folds is open."""
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.evaluate(axe)
    return [(one["id"], one["nodes"][0]["html"]) for one in page.evaluate(_RUN)["violations"]]

# SPDX-License-Identifier: Apache-2.0
"""What physics says of any layout under any setting; `monotone.drawn(200, 30, seed)` draws more."""

from __future__ import annotations

from helpers.monotone import drawn


def test_faster_never_lengthens_and_slower_never_shortens() -> None:
    found = drawn(10, 10, seed=1)
    assert not found.violations, found.violations[0]
    assert (found.layouts, found.settings) == (10, 100)
    assert found.idle + found.refused < found.settings / 2

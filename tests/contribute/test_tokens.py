# SPDX-License-Identifier: Apache-2.0
"""Forms of tokens say whose they are and who says so, and match what begins as they state."""

from __future__ import annotations

import re

import pytest

from cclbench.contribute.redaction.pattern import PATTERNS, Issued

ISSUED = [form for pattern in PATTERNS for form in pattern.issued]


@pytest.mark.parametrize("form", ISSUED, ids=lambda form: form.begins[0])
def test_a_form_has_a_source_and_matches_each_of_its_beginnings(form: Issued) -> None:
    assert form.issuer
    assert form.source == "unverified" or form.source.startswith(("gitleaks ", "AWS IAM User Guide"))
    for begin in form.begins:
        # Capitals, digits and a length that every form allows: keys of Google have exactly 35 characters.
        tails = ("b-" + "0" * 40, "0" * 40, "A" * 16, "A" * 35, "0" * 8 + "_" * 40)
        assert any(re.fullmatch(form.core, begin + tail) for tail in tails), begin
        assert not re.fullmatch(form.core, begin)
    assert not any(re.match(form.core, other) for other in ("token-" + "0" * 40, "0" * 40))

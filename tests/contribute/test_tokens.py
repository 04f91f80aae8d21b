# SPDX-License-Identifier: Apache-2.0
"""Issuers' tokens: each has a source, and its example is found by its own expression, cut short it is not."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest

from cclbench.contribute.redaction.names import Learner
from cclbench.contribute.redaction.pattern import ISSUED, PATTERNS, Issued
from cclbench.contribute.redaction.scrub import Scrubber

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "campaign"))
from secret_classes import draw

FORMS = [form for pattern in ISSUED for form in pattern.issued]
SOURCES = ("gitleaks ", "trufflehog ", "detect-secrets ", "AWS IAM User Guide", "https://", "unverified")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.marks[0])
def test_an_example_is_found_and_its_beginning_alone_is_not(form: Issued) -> None:
    rng = random.Random(form.example)  # noqa: S311 - of nothing real
    assert form.issuer
    assert form.source.startswith(SOURCES)
    for _ in range(20):
        token = draw(form.example, rng)
        assert re.fullmatch(form.core, token), token
        assert any(mark in token for mark in form.marks)
        new, counts = Scrubber(Learner()).text(f"use {token} here")
        assert new.removeprefix("use redacted-").removesuffix(" here") in ("token", "cloud-key", "secret"), (
            token
        )
        assert counts.total() == 1
    for mark in form.marks:
        assert not re.fullmatch(form.core, mark)
        assert Scrubber(Learner()).text(f"use_{mark}_here") == (f"use_{mark}_here", {})


def test_documentation_states_how_many_rules_and_issuers_there_are(repository: Path) -> None:
    security = (repository / "SECURITY.md").read_text(encoding="utf-8")
    contributing = (repository / "docs" / "contribute.md").read_text(encoding="utf-8")
    assert f"{len(PATTERNS)} rules of" in security
    assert f"the prefix of {len({form.issuer for form in FORMS})} issuers" in contributing

# SPDX-License-Identifier: Apache-2.0
"""Jobs' logs: steps and settings stay, and nothing that people, hosts or paths are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import redact_planted as planted
from helpers.job_logs import FAMILY_LINES, TITAN_HEAD

from cclbench.contribute.redaction import collect_identities, redact_file
from cclbench.formats.job_log import JobLog

SECRETS = [secret for of in planted.SECRETS.values() for secret in of if "\n" not in secret]


@pytest.mark.parametrize("family", FAMILY_LINES)
def test_no_planted_secret_is_left_and_every_step_stays(family: str, tmp_path: Path) -> None:
    """Secrets on lines of their own, and behind the figures of lines about steps."""
    line = ("[rank3]:" if family == "torchtitan" else "") + FAMILY_LINES[family][0]
    source, target = tmp_path / "job.log", tmp_path / "published.log"
    spoiled = [f"{line} # {secret} said so" for secret in SECRETS]
    source.write_text("\n".join([planted.TEXT, *TITAN_HEAD, line, *SECRETS, *spoiled, ""]))
    redact_file(source, target, identities=collect_identities([source]))
    assert planted.left_in(target) == []
    before, after = JobLog().read(source), JobLog().read(target)
    assert after.log_steps is not None
    assert before.log_steps is not None
    assert after.log_steps.to_pylist() == before.log_steps.to_pylist()
    assert after.facts == before.facts


def test_words_of_nobody_in_particular_are_not_published_either(tmp_path: Path) -> None:
    line, _ = FAMILY_LINES["torchtitan"]
    source, target = tmp_path / "job.log", tmp_path / "published.log"
    source.write_text(f"Our plan failed again\n{line} for the Zebra project, see 3notes, Müller\n")
    redact_file(source, target, identities=collect_identities([source]))
    text = target.read_text()
    assert "mfu: 1.50%" in text
    assert not any(word in text for word in ("plan", "failed", "Zebra", "project", "notes", "ü"))

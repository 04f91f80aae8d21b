# SPDX-License-Identifier: Apache-2.0
"""Redact texts with secrets from the tests of TruffleHog's detectors; count the secrets that remain.

`secrets_of_others.py CLONE --sample 200 --seed 1` draws detectors from a clone of TruffleHog
(https://github.com/trufflesecurity/trufflehog, AGPL-3.0: its texts are read and never kept), takes the
first text of each in which it must find something, and redacts it alone in a log, in JSON and in YAML.  It
prints a line for each detector with a remaining secret, and exits with 1 if there is one or a document no
longer parses.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

# This folder's files are called like modules that Python has.
sys.path.remove(str(Path(__file__).resolve().parent))

from cclbench.contribute import redaction

_STRING: Final = r'(?:`[^`]*`|"(?:[^"\\\n]|\\.)*")'
_CONSTANT: Final = re.compile(rf"^\s*(\w+)\s*:?=\s*({_STRING})\s*$", re.MULTILINE)
_CASE: Final = re.compile(
    rf"input:\s*(?P<input>{_STRING}|\w+),\s*(?:\w+:\s*\w+,\s*)?want:\s*\[\]string\{{(?P<want>[^{{}}]+)\}}"
)
_SHORTEST: Final = 8


def detector_texts(clone: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Each detector's name, the first text in which it must find something, and the secrets in that."""
    for path in sorted((clone / "pkg" / "detectors").rglob("*_test.go")):
        code = path.read_text(encoding="utf-8")
        constants = {name: _literal(value) for name, value in _CONSTANT.findall(code)}
        for case in _CASE.finditer(code):
            text = constants.get(case["input"]) or _literal(case["input"])
            words = re.findall(rf"{_STRING}|\w+", case["want"])
            wanted = [constants.get(word) or _literal(word) for word in words]
            secrets = [secret for secret in wanted if len(secret) >= _SHORTEST and secret in text]
            if secrets:
                yield path.parent.relative_to(clone / "pkg" / "detectors").as_posix(), text, secrets
                break


def _literal(code: str) -> str:
    """A string of Go; empty for anything else."""
    if code.startswith("`"):
        return code[1:-1]
    try:
        return str(json.loads(code)) if code.startswith('"') else ""
    except ValueError:
        return ""


def remaining_secrets(text: str, secrets: list[str]) -> tuple[list[str], list[str]]:
    """Secrets that remain in any of the three redacted files, and files that do not parse."""
    left, broken = list[str](), list[str]()
    for name, written, parse in (
        ("job.log", text, str),
        ("notes.json", json.dumps({"notes": [text]}), json.loads),
        ("config.yaml", yaml.safe_dump({"notes": [text]}, allow_unicode=True), yaml.safe_load),
    ):
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, name), Path(folder, f"redacted-{name}")
            source.write_text(written, encoding="utf-8")
            redaction.redact_evidence(source, target)
            new = target.read_text(encoding="utf-8")
        try:
            content = str(parse(new))
        except (ValueError, yaml.YAMLError):
            broken.append(name)
            content = new
        left += [secret for secret in secrets if secret in content or secret in new]
    return left, broken


def main() -> int:
    """Print a line for each detector with remaining secrets, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("--sample", type=int, default=200, help="number of detectors")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="detectors to skip, those of an earlier sample")
    asked = parser.parse_args()
    detectors = list(detector_texts(asked.clone))
    random.Random(asked.seed).shuffle(detectors)  # noqa: S311 - a sample
    chosen = detectors[asked.skip :][: asked.sample]
    missed, faults = 0, 0
    for detector, text, secrets in chosen:
        left, broken = remaining_secrets(text, secrets)
        missed, faults = missed + bool(left), faults + len(broken)
        if left or broken:
            print(f"{detector}: {len(left)} of {3 * len(secrets)} remain {' '.join(broken)}".rstrip())
    print(
        f"{len(chosen)} of {len(detectors)} detectors: {missed} with a remaining secret,"
        f" {faults} broken files"
    )
    return 1 if missed or faults else 0


if __name__ == "__main__":
    sys.exit(main())

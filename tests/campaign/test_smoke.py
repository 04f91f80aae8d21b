# SPDX-License-Identifier: Apache-2.0
"""A short run of each campaign: promises hold, tables are whole, a planted breach is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def campaign(repository: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`scripts/campaign/NAME.py WORDS`."""
    script = repository / "scripts" / "campaign" / f"{name}.py"
    return subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "words", "last"),
    [
        ("kill", ["--kills", "2", "--command", "import"], ["import", "1", "2", "0"]),
        ("kill", ["--kills", "0", "--changes", "1", "--command", "metrics"], ["lost", "1", *"0000"]),
        ("concurrency", ["--rounds", "1", "--processes", "2"], ["with", "deleting"]),
        ("disk", ["--sizes", "1", "--command", "import"], ["forbidden", "store", "1", "0"]),
    ],
)
def test_what_is_written_is_whole(repository: Path, name: str, words: list[str], last: list[str]) -> None:
    done = campaign(repository, name, *words)
    assert done.stderr == ""
    *_, row = done.stdout.splitlines()
    assert row.split()[: len(last)] == last or name == "concurrency"
    assert done.returncode == 0, done.stdout


def test_damaged_inputs_are_refused_or_mean_something(repository: Path, tmp_path: Path) -> None:
    """The second run goes on where the first stopped, and only reads."""
    state, findings = tmp_path / "state.json", tmp_path / "findings"
    targets = ["--target", "xla-json", "--target", "recorder-json", "--target", "tar"]
    shared = [*targets, "--jobs", "1", "--state", str(state), "--findings", str(findings)]
    for inputs, *read in (("3",), ("8", "--read")):
        done = campaign(repository, "fuzz", *shared, "--inputs", inputs, *read)
        assert done.stderr == ""
        assert done.returncode == 0, done.stdout
        head, *rows = done.stdout.splitlines()
        assert head.split()[:4] == ["target", "inputs", "refused", "accepted"]
        assert [row.split()[:2] for row in rows[:3]] == [
            [n, inputs] for n in ("recorder-json", "tar", "xla-json")
        ]
    assert json.loads(state.read_text())["targets"]["tar"]["inputs"] == 8
    assert not findings.exists()


def test_settings_are_replayed_or_refused_with_a_reason(repository: Path, tmp_path: Path) -> None:
    """Of the data points alone; the campaign itself takes all evidence."""
    done = campaign(repository, "settings", "--inputs", "40", "--data", str(tmp_path))
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    total = done.stdout.splitlines()[-1].split()
    assert total[:2] == ["all", "40"]
    assert int(total[3]) > 8


def test_settings_of_each_evidence_are_replayed_or_refused(repository: Path, test_data: Path) -> None:
    """A few of each run; `--inputs 2000` draws all that were asked for."""
    done = campaign(repository, "settings", "--each", "--inputs", "4", "--data", str(test_data))
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    runs = int(done.stdout.partition("\n")[0].removeprefix("runs: "))
    assert runs >= 50
    assert done.stdout.splitlines()[-1].split()[:2] == ["all", str(4 * runs)]


def test_a_finding_is_made_smaller_and_seen_again(repository: Path, tmp_path: Path) -> None:
    """Mutators and oracles would be worth nothing if a breach went unseen: here is one that is planted."""
    planted = tmp_path / "cclbench_planted.py"
    planted.write_text(
        "import runpy, sys\n"
        "from cclbench.contribute import archive\n"
        "def unpack_archive(path, folder):\n    raise KeyError('planted')\n"
        "archive.unpack_archive = unpack_archive\n"
        "sys.argv = sys.argv[1:]\nsys.path.insert(0, '')\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    script = repository / "scripts" / "campaign" / "fuzz.py"
    findings = tmp_path / "findings"
    words = ["--target", "tar", "--inputs", "1", "--jobs", "1", "--findings", str(findings)]
    done = subprocess.run(
        [sys.executable, str(planted), str(script), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    (finding,) = findings.iterdir()
    told = json.loads((finding / "finding.json").read_text())
    assert told["kind"] == "traceback"
    assert (finding / "input" / "a.tar").stat().st_size <= 1

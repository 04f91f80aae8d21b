# SPDX-License-Identifier: Apache-2.0
"""Compare the output of two checkouts of cclbench for the same commands, and print every difference.

    python scripts/same_results.py OLD NEW [EVIDENCE...]

OLD and NEW are checkouts, EVIDENCE is files and folders of traces (by default the test fixtures); NEW's data
points are added.  Each command runs in a folder of its own, once with each checkout, with the Python that
runs this script.  Exit code, output and written files are compared, except for values that must differ: the
hash in a run's id and the digests that it is computed from.  `contribute` draws its tokens with one salt.
Exit code 1 if anything differs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FIXTURES = Path(__file__).parents[2] / "shared" / "fixtures"
KINDS = ("kineto", "nsys", "nsys/synthetic", "xprof", "graph_replay", "nccl_logs")
SETTING = "scale_up.bandwidth=x2"
DIGESTS = {"fingerprint", "tables", "manifest_sha256"}
"""Keys of documents whose values depend on digests of cclbench itself."""
INSTALLED = "installed"
"""Folder of a checkout's entry points, within the folder of its commands."""
ONE_SALT = """
import runpy, secrets
secrets.token_bytes = bytes
runpy.run_module("cclbench", run_name="__main__", alter_sys=True)
"""
"""Runs cclbench with one salt for the tokens of `contribute`, which is drawn anew otherwise."""
SHOWN = 40
"""Most differences that are printed for one command."""


@dataclass(frozen=True)
class Command:
    """A command, and the file that it writes."""

    words: tuple[str, ...]
    file: str | None = None

    def __str__(self) -> str:
        return f"cclbench {' '.join(self.words)}"


def list_sources(new: Path, evidence: list[str]) -> list[Path]:
    """Cards of the data points, and entries of the folders of evidence."""
    cards = sorted((new / "workload_cards").glob("*.yaml"))
    if evidence:
        return [*cards, *(Path(name).absolute() for name in evidence)]
    found = [
        path for kind in KINDS if (FIXTURES / kind).is_dir() for path in sorted((FIXTURES / kind).iterdir())
    ]
    return [*cards, *found]


def list_commands(new: Path, sources: list[Path]) -> Iterator[Command]:
    """Every command on every source, `compare` on neighbouring sources, and `contribute` on data points."""
    for path in map(str, sources):
        yield Command(("run", path, "--json"))
        yield Command(("run", path))
        yield Command(("whatif", path, "--set", SETTING, "--json"))
        yield Command(("report", path, "-o", "page.html"), "page.html")
        yield Command(("card", "new", path))
    for first, second in pairwise(map(str, sources)):
        yield Command(("compare", first, second, "--json"))
        yield Command(("compare", first, second, "-o", "page.md"), "page.md")
    for card in sorted((new / "workload_cards").glob("*.yaml")):
        words = (
            "--traces",
            f"{new}/traces/{card.stem}",
            "--scripts",
            f"{new}/scripts/{card.stem}",
            "--no-input",
        )
        yield Command(
            ("contribute", str(card), *words, "--licence", "Apache-2.0", "--collection", "."),
            f"traces/{card.stem}/manifest.json",
        )
    for sweep in sorted((FIXTURES / "nccl_tests").glob("*.csv")):
        yield Command(("hardware", "validate", str(sweep), "--system", "dgx-h100", "--json"))
    for leaderboard in sorted((FIXTURES / "ccl_bench").glob("*.json")):
        yield Command(("import", "ccl-bench", str(leaderboard), "--json"))
        yield Command(("claims", "--json"))
    yield Command(("verify", "--all", "--collection", str(new), "--json"))
    for what in ("metrics", "readers", "hardware"):
        yield Command(("list", what, "--json"))


def install(checkout: Path, folder: Path) -> None:
    """Write the checkout's entry points into the folder, as pip would; first on the path, they win."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    about = folder / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, entries in project.get("entry-points", {}).items():
        lines += [f"[{group}]", *(f"{name} = {module}" for name, module in entries.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))


def run_command(checkout: Path, command: Command, folder: Path) -> dict[str, Any]:
    """Exit code, output and file of the command with that checkout."""
    path = os.pathsep.join([str(checkout), str(folder / INSTALLED)])
    environment = os.environ | {"PYTHONPATH": path, "COLUMNS": "80", "CCLBENCH_STORE": "runs"}
    done = subprocess.run(
        [sys.executable, "-c", ONE_SALT, *command.words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    written = folder / command.file if command.file else None
    text = written.read_text() if written and written.is_file() else None
    if written and written.is_file():
        written.unlink()
    for output in ("workload_cards", "traces", "scripts"):
        shutil.rmtree(folder / output, ignore_errors=True)
    texts = (done.stdout, done.stderr, text or "")
    outputs = (comparable(output.replace(str(folder), "HERE")) for output in texts)
    return {"code": done.returncode, **dict(zip(("out", "err", "file"), outputs, strict=True))}


def comparable(text: str) -> Any:
    """A parsed document, or lines of other text, without values that must differ."""
    text = re.sub(r"-[0-9a-f]{8}\b", "-HASH", text)
    try:
        return without_digests(json.loads(text))
    except ValueError:
        return text.splitlines()


def without_digests(value: Any) -> Any:
    """A document without the values of `DIGESTS`."""
    if isinstance(value, dict):
        return {key: without_digests(inner) for key, inner in value.items() if key not in DIGESTS}
    return [without_digests(inner) for inner in value] if isinstance(value, list) else value


def differences(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """Differences of two outputs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}, key=str):
            yield from differences(old.get(key), new.get(key), f"{at}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{at}[{index}]")
    elif old != new or type(old) is not type(new):
        yield f"{at}: {str(old)[:300]}  ->  {str(new)[:300]}"


def main() -> None:
    """Print each command with different output, and the differences."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("evidence", nargs="*", help="files and folders of traces")
    arguments = parser.parse_args()
    old, new = arguments.old.absolute(), arguments.new.absolute()
    for checkout in (old, new):
        if not (checkout / "pyproject.toml").is_file():
            parser.error(f"{checkout}: is no checkout of cclbench")
    commands = list(list_commands(new, list_sources(new, arguments.evidence)))
    differing = 0
    with TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        folders = [Path(scratch) / name for name in ("old", "new")]
        for checkout, folder in zip((old, new), folders, strict=True):
            install(checkout, folder / INSTALLED)
        for number, command in enumerate(commands, 1):
            print(f"\r{number} of {len(commands)}", end="", file=sys.stderr, flush=True)
            before, after = pool.map(run_command, (old, new), (command, command), folders)
            found = list(differences(before, after))
            if found:
                differing += 1
                print(f"\n{command}\n  " + "\n  ".join(found[:SHOWN]))
                if len(found) > SHOWN:
                    print(f"  ... {len(found) - SHOWN} more")
    print(f"\n{differing} of {len(commands)} commands differ")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()

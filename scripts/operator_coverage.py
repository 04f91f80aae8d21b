# SPDX-License-Identifier: Apache-2.0
"""How much of real traces' device time belongs to operators, and how much of it has a cost model.

    python scripts/operator_coverage.py [FOLDER...]

Each entry of a FOLDER is a source: by default the traces beside the fixtures of the tests, and the data
points.  A folder that is no one job is looked at file by file.  Prints a table in Markdown: `linked` is the
share of device time that an operator's call launched, `modelled` the share of the compute time that has FLOPs
and bytes. Then come the operators without, those with most time first, and why most of that time has none.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import cclbench
from cclbench.ground.errors import CclbenchError
from cclbench.operator_table import OperatorTable, operator_costs

REPOSITORY = Path(__file__).resolve().parents[1]
FIXTURES = REPOSITORY.parent / "shared" / "fixtures"
FOLDERS = (FIXTURES / "kineto", FIXTURES / "graph_replay", REPOSITORY / "traces")
NAMED, LEAST = 3, 0.001
"""Operators without a model that a line names, and the share of device time from which on it does."""
LONGEST = 40
"""Characters of a name: kernels that no operator launched have long ones."""


def tables(source: Path, name: str, store: str) -> Iterator[tuple[str, OperatorTable | str]]:
    """Name and operators of a source, or of each of its files; or why there are none."""
    try:
        found = operator_costs(cclbench.ingest(source, store=store))
    except CclbenchError as error:
        if source.is_file():
            yield name, error.what.removeprefix("no operators: ")
        else:
            for file in sorted(path for path in source.rglob("*") if path.is_file()):
                yield from tables(file, f"{name}/{file.relative_to(source)}", store)
    else:
        yield name, found if found.time_s else "no work of the device in its steps"


def line(name: str, found: OperatorTable | str) -> str:
    """A line of the table."""
    if isinstance(found, str):
        return f"| {name} | | | | | {found} |"
    lacking = {
        row: row.time_s * (1 - row.modelled_share) / found.time_s
        for row in found.rows
        if row.why_not is not None
    }
    most = sorted(lacking, key=lambda row: -lacking[row])[:NAMED]
    named = ", ".join(f"`{shortened(row.key)}` {lacking[row]:.1%}" for row in most if lacking[row] >= LEAST)
    reasons: dict[str, float] = defaultdict(float)
    for row, share in lacking.items():
        reasons[row.why_not or ""] += share
    why = max(reasons, key=reasons.__getitem__, default="")
    shares = f"{found.linked_share:.1%} | {found.modelled_share:.1%}"
    return f"| {name} | {found.all_rows} | {shares} | {named} | {why} |"


def shortened(name: str) -> str:
    """A name, cut where it is long."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER", default=FOLDERS)
    folders = parser.parse_args().folders
    print(f"cclbench {cclbench.__version__}, {datetime.now(UTC):%Y-%m-%d}\n")
    print("| trace | operators | linked | modelled | without a model, share of device time | because |")
    print("| --- | ---: | ---: | ---: | --- | --- |")
    with TemporaryDirectory() as store:
        for folder in folders:
            for source in sorted(folder.iterdir()):
                for name, found in tables(source, f"{folder.name}/{source.name}", store):
                    print(line(name, found), flush=True)


if __name__ == "__main__":
    main()

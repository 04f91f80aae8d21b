# SPDX-License-Identifier: Apache-2.0
"""Print the share of device time of real traces that is linked to operators and has a cost model.

    python scripts/operator_coverage.py [FOLDER...]

Each entry of a FOLDER is a source: by default the traces of the test fixtures, and the data points.  A folder
that is not one job is read file by file.  Columns of the Markdown table: `linked` is the share of device time
launched by an operator's call, `modelled` the share of compute time with known FLOPs and bytes; then the
operators without a model, longest first, and the reason for most of that time.
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
"""Operators without a model in a row: their largest number, and their least share of device time."""
LONGEST = 40
"""Characters of a name, since names of kernels are long."""


def operator_tables(source: Path, name: str, store: str) -> Iterator[tuple[str, OperatorTable | str]]:
    """Name and operators of a source, or of each of its files; or the reason if there are none."""
    try:
        table = operator_costs(cclbench.ingest(source, store=store))
    except CclbenchError as error:
        if source.is_file():
            yield name, error.what.removeprefix("no operators: ")
        else:
            for file in sorted(path for path in source.rglob("*") if path.is_file()):
                yield from operator_tables(file, f"{name}/{file.relative_to(source)}", store)
    else:
        yield name, table if table.time_s else "no device work in its steps"


def table_row(name: str, table: OperatorTable | str) -> str:
    """A row of the table."""
    if isinstance(table, str):
        return f"| {name} | | | | | {table} |"
    unmodelled = {
        row: row.time_s * (1 - row.modelled_share) / table.time_s
        for row in table.rows
        if row.why_not is not None
    }
    most = sorted(unmodelled, key=lambda row: -unmodelled[row])[:NAMED]
    named = ", ".join(
        f"`{shorten(row.key)}` {unmodelled[row]:.1%}" for row in most if unmodelled[row] >= LEAST
    )
    reasons: dict[str, float] = defaultdict(float)
    for row, share in unmodelled.items():
        reasons[row.why_not or ""] += share
    why = max(reasons, key=reasons.__getitem__, default="")
    shares = f"{table.linked_share:.1%} | {table.modelled_share:.1%}"
    return f"| {name} | {table.all_rows} | {shares} | {named} | {why} |"


def shorten(name: str) -> str:
    """A name, shortened if it is long."""
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
                for name, table in operator_tables(source, f"{folder.name}/{source.name}", store):
                    print(table_row(name, table), flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Print the share of device time of real traces that is linked to operators and has a cost model.

    python scripts/operator_coverage.py [FOLDER...]

Each entry of a FOLDER is a source: by default those of the test fixtures (CCLBENCH_TEST_DATA) and the data
points.  A folder that is not one job is read entry by entry; what has no device time is counted below the
tables.  Columns of the Markdown table: `linked` is the share of device time launched by an operator's call,
`modelled` the share of compute time with known FLOPs and bytes, `above` the number of rows by shape that are
marked as faster than the roofline, and of those above 105 % of it without a mark; then the operators without
a model, longest first, and the reason for most of that time.  The second mean is of the sources in which most
device time is launched by calls whose arguments' element types are recorded.  The second table has the shares
of device time by family of cost models, as a mean over the sources, the third those of the longest operators
without a model.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import NamedTuple

import cclbench
from cclbench.analyzers.view.operator_rows import OperatorRow
from cclbench.ground.errors import CclbenchError
from cclbench.operator_table import OperatorTable, operator_costs_by

REPOSITORY = Path(__file__).resolve().parents[1]
FIXTURES = Path(os.environ.get("CCLBENCH_TEST_DATA", REPOSITORY.parent / "shared" / "fixtures"))
NAMED, LEAST = 3, 0.001
"""Operators without a model in a row: their largest number, and their least share of device time."""
MOST = 0.5
"""Share of device time above which a source counts as one with recorded arguments."""
LACKING = 25
"""Rows of the table of operators without a model."""
LONGEST = 40
"""Characters of a name, since names of kernels are long."""
ABOVE_ROOF = 1.05
"""Least time over time from which a row is above the roofline: its formula, type or peak is wrong."""

HEADINGS = """\
| trace | operators | linked | modelled | above | without a model, share of device time | because |
| --- | ---: | ---: | ---: | ---: | --- | --- |"""

RECORDED_SHARE = """
SELECT
  coalesce(sum(device_ns) FILTER (regexp_matches(dtypes, '[a-z]')) / greatest(sum(device_ns), (
    SELECT sum(dur_ns) FROM device_rows
  )), 0)::DOUBLE AS share
FROM operators"""
"""Share of device time launched by calls whose arguments' element types are recorded."""


class Tables(NamedTuple):
    """A source's operators by name and by shape, and whether most of them have recorded arguments."""

    by_name: OperatorTable
    by_shape: OperatorTable
    has_arguments: bool


def operator_tables(source: Path, name: str, store: str) -> Iterator[tuple[str, Tables | str]]:
    """Name and operators of a source, or of each of its entries; or the reason if there are none."""
    try:
        run = cclbench.ingest(source, store=store)
        by_name, by_shape = operator_costs_by(run, ("op", "shape"))
    except CclbenchError as error:
        if source.is_file():
            yield name, error.what.removeprefix("no operators: ")
        else:
            for entry in sorted(source.iterdir()):
                yield from operator_tables(entry, f"{name}/{entry.name}", store)
    else:
        if not by_name.time_ns:
            yield name, "no device work in its steps"
            return
        (recorded,) = run.sql(RECORDED_SHARE).table.column("share").to_pylist()
        yield name, Tables(by_name, by_shape, has_arguments=recorded > MOST)


def unmodelled_time(row: OperatorRow) -> float:
    """Seconds of a row's compute that have no cost."""
    return row.time_s * (1 - row.modelled_share) if row.why_not is not None else 0.0


def table_row(name: str, tables: Tables) -> str:
    """A row of the table of sources."""
    table, by_shape, _ = tables
    shares = {row: unmodelled_time(row) / table.time_s for row in table.rows}
    most = sorted(shares, key=lambda row: -shares[row])[:NAMED]
    named = ", ".join(f"`{shorten(row.key)}` {shares[row]:.1%}" for row in most if shares[row] >= LEAST)
    reasons = Counter[str]()
    for row, share in shares.items():
        reasons[row.why_not or ""] += share
    ((why, _),) = reasons.most_common(1)
    marked = sum(row.mark is not None for row in by_shape.rows)
    unmarked = sum(row.mark is None and (row.roofline_share or 0) > ABOVE_ROOF for row in by_shape.rows)
    above = f"{marked}, {unmarked} unmarked" if unmarked else marked
    cells = (name, table.all_rows, f"{table.linked_share:.1%}", f"{table.modelled_share:.1%}", above)
    return f"| {' | '.join(map(str, cells))} | {named} | {why} |"


def shorten(name: str) -> str:
    """A name, shortened if it is long."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."


def family_shares(by_shape: OperatorTable) -> Counter[str]:
    """Share of a source's device time that has a cost, by family of cost models."""
    shares = Counter[str]()
    for row in by_shape.rows:
        shares[row.family or "several"] += row.time_s * row.modelled_share / by_shape.time_s
    return shares


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER")
    folders = parser.parse_args().folders or [*sorted(FIXTURES.iterdir()), REPOSITORY / "traces"]
    print(f"cclbench {cclbench.__version__}, {datetime.now(UTC):%Y-%m-%d}\n")
    print(HEADINGS)
    read, shares, lacking, without = list[Tables](), Counter[str](), Counter[str](), Counter[str]()
    reasons: dict[str, str] = {}
    with TemporaryDirectory() as store:
        for folder in folders:
            for source in sorted(folder.iterdir()) if folder.is_dir() else ():
                for name, tables in operator_tables(source, f"{folder.name}/{source.name}", store):
                    if isinstance(tables, str):
                        without[tables.splitlines()[0]] += 1
                        continue
                    print(table_row(name, tables), flush=True)
                    read.append(tables)
                    shares += family_shares(tables.by_shape)
                    for row in tables.by_name.rows:
                        lacking[row.key] += unmodelled_time(row) / tables.by_name.time_s
                        reasons[row.key] = row.why_not or ""
    if not read:
        print("\nno trace with device time")
        return
    recorded = [tables for tables in read if tables.has_arguments]
    for noun, chosen in ("sources", read), ("of them with recorded arguments", recorded):
        if chosen:
            linked, modelled = (
                mean(getattr(tables.by_name, share) for tables in chosen)
                for share in ("linked_share", "modelled_share")
            )
            print(f"| mean of {len(chosen)} {noun} | | {linked:.1%} | {modelled:.1%} | | | |")
    print("\n| family | share of device time |\n| --- | ---: |")
    for family, total in shares.most_common():
        print(f"| {family} | {total / len(read):.1%} |")
    print(f"| without a cost | {1 - shares.total() / len(read):.1%} |")
    print("\n| operator without a cost | share of device time | because |\n| --- | ---: | --- |")
    for key, total in lacking.most_common(LACKING):
        print(f"| `{shorten(key)}` | {total / len(read):.2%} | {reasons[key]} |")
    print(f"\nFiles and folders without device time: {without.total()}")
    for why, number in without.most_common():
        print(f"- {number}: {why}")


if __name__ == "__main__":
    main()

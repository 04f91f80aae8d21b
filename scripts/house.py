# SPDX-License-Identifier: Apache-2.0
"""How large the house is and what it repeats, in figures; docs/house.md shows what it prints.

    python scripts/house.py [CHECKOUT]

All are counted in the source, nothing is imported from it.

- core: lines of `cclbench/` without `studies/`, blank ones and comments included; studies, tests: of theirs.
- top-level files: of the package, without `__init__` and `__main__`.
- circles: groups of modules that import one another, also for types only.
- rooms of `source`: folders in which a function takes a parameter of that name.
- shapes of a run, of a rank: classes whose name ends so.
- column stores: Arrow, Parquet, and modules of the package's own that hold or order columns on disk.
- spill calls: calls that put columns on disk or let go of memory.
- sorts and joins: calls of NumPy's and Arrow's functions that order, look up and group.
- silent names: metrics' names as texts outside of `analyzers/` that nothing checks: all but the arguments of
  `metric_name` and `metric_names` where these are called outside of functions: plug-ins whose module declares
  what is no metric are not registered, and a test imports all other modules that declare any.
- names that stand twice: classes of one name in several modules.
- one-word functions: of functions and methods, without dunder ones.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import grimp

COLUMN_STORES: Final = (
    "disk_columns",
    "disk_order",
    "disk_arithmetic",
    "freed_memory",
    "record/stored_rows",
)
SPILLS: Final = {
    *("release", "rest", "pieces", "on_disk", "disk_array", "taken", "parted", "cuts", "hand_back_blocks"),
    *("DiskTable", "DiskColumn", "making_room"),
}
ORDERS: Final = {
    *("lexsort", "argsort", "sort", "searchsorted", "unique", "bincount", "reduceat", "index_in", "isin"),
    *("at", "join", "group_by", "sort_by", "digitize", "partition", "argpartition"),
}
_METRIC: Final = re.compile(
    r"(time|compute|memory|comm|overlap|balance|launch|serving|operators|goodput|energy|cost|scaling"
    r"|throughput|data)\.[a-z_]+"
)


def modules(folder: Path) -> dict[Path, ast.Module]:
    """All modules below a folder, parsed."""
    return {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}


def lines(paths: Iterator[Path] | list[Path]) -> int:
    """Lines of files."""
    return sum(len(path.read_text().splitlines()) for path in paths)


def nodes_of_kind(tree: ast.Module, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    """Its nodes of those kinds."""
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def circles(package: str) -> list[set[str]]:
    """Strongly connected modules, by Tarjan's algorithm over all imports."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=False)
    graph.remove_module(package)  # names the public API for everybody
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph.find_modules_directly_imported_by(name):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            group = set(stack[at:])
            del stack[at:]
            if len(group) > 1:
                found.append(group)

    for name in sorted(graph.modules):
        if name not in index:
            visit(name)
    return found


def called(tree: ast.Module) -> Iterator[str]:
    """The last part of the name of each call."""
    for node in nodes_of_kind(tree, ast.Call):
        function = node.func  # type: ignore[attr-defined]
        if isinstance(function, ast.Attribute | ast.Name):
            yield function.attr if isinstance(function, ast.Attribute) else function.id


def calls_of(trees: dict[Path, ast.Module], names: set[str]) -> str:
    """How many calls, in how many files."""
    counts = [n for tree in trees.values() if (n := sum(name in names for name in called(tree)))]
    return f"{sum(counts):,} in {len(counts)} files"


def functions(trees: dict[Path, ast.Module]) -> list[ast.FunctionDef]:
    """All functions and methods, without dunder ones."""
    nodes = chain(*(nodes_of_kind(tree, ast.FunctionDef, ast.AsyncFunctionDef) for tree in trees.values()))
    return [node for node in nodes if not node.name.startswith("__")]  # type: ignore[misc,attr-defined]


def _metrics_in(tree: ast.AST) -> Iterator[ast.Constant]:
    """The texts that are metrics' names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _METRIC.fullmatch(node.value):
            yield node


def _declared(tree: ast.AST) -> Iterator[ast.AST]:
    """The arguments of declarations of metrics' names outside of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and {*called(node)} <= {"metric_name", "metric_names"}:
            yield from node.args
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _declared(node)


def figures(checkout: Path) -> Iterator[tuple[str, str]]:
    """Name and figure of each."""
    package, tests = checkout / "cclbench", checkout / "tests"
    trees, of_tests = modules(package), modules(tests)
    core = [path for path in trees if path.relative_to(package).parts[0] != "studies"]
    yield "core, lines", f"{lines(core):,}"
    yield "core, files", f"{len(core):,}"
    yield "studies, lines", f"{lines([path for path in trees if path not in core]):,}"
    yield "tests, lines", f"{lines([*of_tests]):,}"
    yield "tests, functions", f"{sum(one.name.startswith('test_') for one in functions(of_tests)):,}"
    yield "top-level files", str(sum(not path.name.startswith("__") for path in package.glob("*.py")))
    found = circles("cclbench")
    yield "circles", f"{len(found)} over {sum(map(len, found))} files"
    made = {
        path: functions({path: tree})
        for path, tree in trees.items()
        if any(arg.arg == "source" for one in functions({path: tree}) for arg in one.args.args)
    }
    yield "rooms of `source`", str(len({path.parent for path in made}))
    classes = [
        (node.name, path)
        for path, tree in trees.items()
        for node in nodes_of_kind(tree, ast.ClassDef)  # type: ignore[attr-defined]
    ]
    for noun in ("Run", "Rank"):
        shapes = {name for name, _ in classes if re.search(rf"{noun}(View|s|Input)?$", name)}
        yield f"shapes of a {noun.lower()}", str(len(shapes))
    yield "column stores", str(sum((package / f"{name}.py").exists() for name in COLUMN_STORES) + 2)
    yield "spill calls", calls_of(trees, SPILLS)
    yield "sorts and joins", calls_of(trees, ORDERS)
    silent = [
        node
        for path, tree in trees.items()
        if not {"analyzers", "formats"} & {*path.parts}  # formats name what producers write, never metrics
        for node in {*_metrics_in(tree)} - {*_declared(tree)}
    ]
    yield "silent names", str(len(silent))
    twice = Counter(name for name, _ in {*classes})
    yield "class names that stand twice", str(sum(count > 1 for count in twice.values()))
    names = [one.name.strip("_") for one in functions(trees)]
    yield "one-word functions", f"{sum('_' not in name for name in names) / len(names):.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, nargs="?", default=Path(__file__).resolve().parents[1])
    rows = figures(parser.parse_args().checkout)
    print("| | now |", "| --- | ---: |", *(f"| {name} | {figure} |" for name, figure in rows), sep="\n")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: change single places of the package, and count the changes that a test detects.

    python scripts/campaign/mutate.py --mutants 250 --seed 7 --out mutants.jsonl

A mutant is one change: a comparison's bound or direction, + instead of -, `and` instead of `or`, a constant
off by one, a removed `not`, a removed statement, two swapped arguments, min instead of max.  At most one
mutant per source line is drawn.  Each runs in a copy of the checkout, against the closest tests first: those
named like the module, then those of its folder and those that import it, then tests of whole runs.  The first
test that fails or exceeds its time kills the mutant; it must pass without the mutant, else it is left out.

    python -m pytest --cov=cclbench --cov-context=test --cov-report=
    python scripts/campaign/mutate.py --mutants 250 --seed 7 --out mutants.jsonl --coverage .coverage

With coverage by test, a mutant runs only against tests that execute its line: an hour instead of a day.
Tests that start cclbench as a process are not covered, so that fewer mutants may be killed, never more.

Results are appended to --out; its mutants are not run again, so that a campaign can be resumed.
equivalent_mutants.yaml lists changes that no test can detect, each with an argument.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from threading import Lock

import yaml
from coverage import CoverageData

REPOSITORY = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.yaml")
MODULES = (".",)
"""The whole package."""
WHOLE_RUNS = ("tests/synthetic/test_truth.py", "tests/test_api.py", "tests/contract", "tests/golden")
"""Tests of everything at once, slow: they run where no nearer one has noticed."""
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.BitAnd: "|", ast.BitOr: "&"}
TEST_S = 180
"""How long one test may last; the slowest takes a third of it."""
PARAMETERS = 4
"""How many sets of parameters of a test not named like the module are run where tests' coverage is known."""
NO_TESTS = 5
"""What pytest ends with where it has run none."""
WAITING = 10
"""How many times its limit of CPU time a test run may last, on a machine that others use too."""
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
ANNOTATIONS = ("annotation", "returns")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a file: its bytes from `begin` to `end` become `new`."""

    path: str
    line: int
    begin: int
    end: int
    new: str

    def applied(self, text: bytes) -> bytes:
        """The file's text with the change."""
        return text[: self.begin] + self.new.encode() + text[self.end :]

    def diff(self, text: bytes) -> tuple[str, str]:
        """The lines that differ, before and after, stripped."""
        first = text.count(b"\n", 0, self.begin)
        behind = text.count(b"\n", self.end)
        before, after = (part.decode().split("\n") for part in (text, self.applied(text)))
        whole = (lines[first : len(lines) - behind] for lines in (before, after))
        before, after = ("\n".join(line.strip() for line in lines) for lines in whole)
        return before, after


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a mutant."""

    before: str
    after: str
    path: str
    line: int
    outcome: str
    """`killed`, `survived`, or `equivalent`."""
    by: str
    """The test that noticed, else why the mutant is equivalent."""


class Mutants(ast.NodeVisitor):
    """All mutants of one file, in the order of its text."""

    def __init__(self, path: str, text: bytes) -> None:
        self.path, self.text = path, text
        self.found: list[Mutant] = []
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.visit(ast.parse(text))

    def generic_visit(self, node: ast.AST) -> None:
        """Visit all nodes except annotations, which are not executed, and strings, without positions."""
        for name, value in ast.iter_fields(node):
            if name not in ANNOTATIONS:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                        self.visit(child)

    def visit_If(self, node: ast.If) -> None:
        """All branches except imports for type checking."""
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Include or exclude each bound; reverse each direction."""
        sides = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            self._between(left, right, COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Swap `and` and `or`, at the first operator."""
        self._between(node.values[0], node.values[1], "or" if isinstance(node.op, ast.And) else "and")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Swap + and -, & and |, unless the operands are strings."""
        if type(node.op) in OPERATORS and not (_is_text(node.left) or _is_text(node.right)):
            self._between(node.left, node.right, OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Remove a `not`, `~` or sign."""
        self._replace(node, self._of(node.operand))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Increase and decrease numbers by one."""
        if isinstance(node.value, int | float) and not isinstance(node.value, bool):
            for other in (node.value + 1, node.value - 1):
                self._replace(node, f"{other!r}" if other >= 0 else f"({other!r})")

    def visit_Call(self, node: ast.Call) -> None:
        """Swap the first two arguments; swap minimum and maximum."""
        if len(node.args) > 1 and not any(isinstance(one, ast.Starred) for one in node.args[:2]):
            first, second = map(self._of, node.args[:2])
            if first != second:
                begin, end = self._span(node.args[0])[0], self._span(node.args[1])[1]
                between = self.text[self._span(node.args[0])[1] : self._span(node.args[1])[0]].decode()
                self._add(node.args[0].lineno, begin, end, second + between + first)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """Swap `min` and `max`."""
        if node.id in EXTREMES:
            self._replace(node, EXTREMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Swap `np.minimum` and `np.maximum`, `.min()` and `.max()`."""
        if node.attr in EXTREMES:
            self._replace(node, f"{self._of(node.value)}.{EXTREMES[node.attr]}")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Remove a call; a `yield` is a statement, too."""
        if not isinstance(node.value, ast.Constant):
            self._replace(node, "pass")
        self.generic_visit(node)

    def _statement(self, node: ast.stmt) -> None:
        self._replace(node, "pass")
        self.generic_visit(node)

    visit_AugAssign = visit_Raise = visit_Continue = visit_Break = _statement  # noqa: N815

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: S101, PT018 - parsed
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _of(self, node: ast.expr) -> str:
        begin, end = self._span(node)
        return self.text[begin:end].decode()

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        self._add(node.lineno, *self._span(node), new)

    def _between(self, left: ast.expr, right: ast.expr, new: str) -> None:
        """Replace the operator between two operands, and keep parentheses and comments."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = re.sub(rb"#.*", lambda comment: b" " * len(comment[0]), self.text[begin:end])
        place = re.search(rb"[^\s()]+(?:\s+(?:in|not)\b)?", gap)
        assert place is not None  # noqa: S101 - an operator stands there
        line = self.text.count(b"\n", 0, begin + place.start()) + 1
        self._add(line, begin + place.start(), begin + place.end(), new)

    def _add(self, line: int, begin: int, end: int, new: str) -> None:
        self.found.append(Mutant(self.path, line, begin, end, new))


def draw_mutants(count: int, seed: int, modules: tuple[str, ...] = MODULES) -> list[Mutant]:
    """`count` mutants of different lines, in the order drawn."""
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for module in modules:
        root = REPOSITORY / "cclbench" / module
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            text = path.read_bytes()
            for mutant in Mutants(path.relative_to(REPOSITORY).as_posix(), text).found:
                by_line.setdefault((mutant.path, mutant.line), []).append(mutant)
    chance = random.Random(seed)  # noqa: S311 - a sample, no secret
    found: list[Mutant] = []
    for line in chance.sample(sorted(by_line), len(by_line)):
        if len(found) == count:
            break
        own = by_line[line]
        found += itertools.islice(filter(compiles, chance.sample(own, len(own))), 1)
    return found


def compiles(mutant: Mutant) -> bool:
    """Whether the changed module compiles."""
    text = mutant.applied((REPOSITORY / mutant.path).read_bytes())
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class TestsByLine:
    """Tests that execute a line, from coverage with one context per test."""

    def __init__(self, coverage: Path) -> None:
        self._data = CoverageData(str(coverage))
        self._data.read()
        self._files = {
            Path(name).as_posix().rpartition("/cclbench/")[2]: name for name in self._data.measured_files()
        }

    def select(self, mutant: Mutant) -> list[list[str]]:
        """Tests that execute the line, closest first; all tests of the file for a line executed on import."""
        by_line = self._data.contexts_by_lineno(self._files[mutant.path.removeprefix("cclbench/")])
        running = {name.rpartition("|")[0] for name in by_line.get(mutant.line, ())} - {""}
        # Of what importing runs only the first test that imports it has a context.
        if not (running and _in_function(mutant)):
            running = {name.rpartition("|")[0] for names in by_line.values() for name in names} - {""}
        parts = [*closest_tests(mutant.path), ["tests/"]]
        found: list[list[str]] = [[] for _ in parts]
        sets: Counter[str] = Counter()
        for test in sorted(running):
            near = next(i for i, part in enumerate(parts) if test.startswith(tuple(part)))
            function = test.partition("[")[0]
            sets[function] += 1
            if near == 0 or sets[function] <= PARAMETERS:
                found[near].append(test)
        return [part for part in found if part]


def closest_tests(path: str) -> list[list[str]]:
    """The test files for a module, nearest first, in three parts: named like it, of its folder, of all."""
    words = Path(path).with_suffix("").parts[1:]
    dotted = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
    above, _, stem = dotted.rpartition(".")
    imports = re.compile(
        rf"\b{re.escape(dotted)}\b|from {re.escape(above)} import \(?[^)\n]*\b{re.escape(stem)}\b"
    )
    parts: list[list[str]] = [[], [], list(WHOLE_RUNS)]
    for test in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        name = test.relative_to(REPOSITORY).as_posix()
        here = name.startswith(f"tests/{words[0]}/") or test.stem == f"test_{words[0]}"
        named = not words[1:] or any(
            _alike(word, other) for word in words[1:] for other in test.stem.split("_")[1:]
        )
        if not any(name.startswith(whole) for whole in WHOLE_RUNS):
            if here and named:
                parts[0].append(name)
            elif here or imports.search(test.read_text()):
                parts[1].append(name)
    return [part for part in parts if part]


def _in_function(mutant: Mutant) -> bool:
    """Whether it is executed by a call, not by importing the module."""
    return any(
        node.body[0].lineno <= mutant.line <= (node.end_lineno or 0)
        for node in ast.walk(ast.parse((REPOSITORY / mutant.path).read_bytes()))
        if isinstance(node, ast.FunctionDef)
    )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _alike(word: str, other: str) -> bool:
    return word.startswith(other[:5]) or other.startswith(word[:5]) or other in word.split("_")


class Copy:
    """A copy of the checkout with one changed file at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._changes = 0
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
            cwd=REPOSITORY,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (REPOSITORY / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, folder / name)
        here = {"PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"}
        command = [sys.executable, folder / "scripts" / "campaign" / "forked_tests.py", folder]
        pipe = subprocess.PIPE
        self._tests = subprocess.Popen(
            command, env={**os.environ, **here}, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )

    def close(self) -> None:
        """End the process that runs the tests."""
        self._tests.communicate()

    def write(self, path: str, text: bytes) -> None:
        """Write a file with a new modification time in whole seconds, so that stale bytecode is detected."""
        self._changes += 1
        target = self.folder / path
        target.write_bytes(text)
        os.utime(target, (1e9 + self._changes, 1e9 + self._changes))

    def failing(self, tests: list[str], limit_s: float, without: Collection[str] = ()) -> str | None:
        """The first test that fails, whatever its parameters; None where all pass, or do within the limit.

        Of the tests those `without` are not run.
        """
        arguments = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", f"--timeout={TEST_S}"]
        arguments += [f"--deselect={one}" for one in without]
        arguments.append("--hypothesis-profile=ci")  # the same examples each time, however slow
        asked = {
            "tests": tests,
            "arguments": arguments,
            "cpu_s": math.ceil(limit_s),
            "wall_s": WAITING * limit_s,
        }
        assert self._tests.stdin and self._tests.stdout  # noqa: S101, PT018 - both are pipes
        print(json.dumps(asked), file=self._tests.stdin, flush=True)
        answer = json.loads(self._tests.stdout.readline())
        code, said = answer["code"], answer["output"]
        if code in (None, 0, NO_TESTS):
            return None
        named = re.search(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::[^\s\[]+)?)", said, re.MULTILINE)
        if named is None and code not in (1, 2, 4):
            raise RuntimeError(f"pytest ended with {code}:\n{said[-2000:]}")
        return named[1] if named else "an import"


class Campaign:
    """Runs mutants in copies of the checkout, and appends the results to a file."""

    def __init__(self, out: Path, limit_s: float, by_line: TestsByLine | None) -> None:
        self.out, self.limit_s, self.by_line = out, limit_s, by_line
        self._lock = Lock()
        self._sound: set[str] = {"an import"}
        self._unsound: set[str] = set()
        known = yaml.safe_load(EQUIVALENT.read_text()) or []
        self._equivalent = {(one["path"], one["before"], one["after"]): one["why"] for one in known}
        lines = out.read_text().splitlines() if out.exists() else []
        found = [Result(**json.loads(line)) for line in lines]
        self.results = {(one.path, one.line, one.before, one.after): one for one in found}

    def run(self, mutants: list[Mutant], jobs: int) -> list[Result]:
        """Results of the mutants, in order."""
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
            copies: Queue[Copy] = Queue()
            with ExitStack() as opened:
                for job in range(jobs):
                    copy = opened.enter_context(closing(Copy(Path(folder) / str(job))))
                    copies.put(copy)
                return list(pool.map(lambda mutant: self._one(mutant, copies), mutants))

    def _one(self, mutant: Mutant, copies: Queue[Copy]) -> Result:
        text = (REPOSITORY / mutant.path).read_bytes()
        before, after = mutant.diff(text)
        key = mutant.path, mutant.line, before, after
        why = self._equivalent.get((mutant.path, before, after))
        if why is None and key in self.results and self.results[key].outcome != "equivalent":
            return self.results[key]
        if why is None:
            copy = copies.get()
            try:
                by = self._killer(copy, mutant, text)
            finally:
                copy.write(mutant.path, text)
                copies.put(copy)
            result = Result(before, after, mutant.path, mutant.line, "killed" if by else "survived", by or "")
        else:
            result = Result(before, after, mutant.path, mutant.line, "equivalent", why)
        with self._lock, self.out.open("a") as lines:
            lines.write(json.dumps(asdict(result)) + "\n")
        self.results[key] = result
        print(f"{result.outcome} {mutant.path}:{mutant.line} {result.by}", file=sys.stderr, flush=True)
        return result

    def _killer(self, copy: Copy, mutant: Mutant, text: bytes) -> str | None:
        for tests in self.by_line.select(mutant) if self.by_line else closest_tests(mutant.path):
            while True:
                copy.write(mutant.path, mutant.applied(text))
                by = copy.failing(tests, self.limit_s, self._unsound)
                if by is None:
                    break
                if by not in self._sound:
                    copy.write(mutant.path, text)
                    if copy.failing([by], self.limit_s) is not None:
                        self._unsound.add(by)
                        print(f"{by} fails without any mutant: left out", file=sys.stderr, flush=True)
                        continue
                    self._sound.add(by)
                return by
        return None


def table(results: list[Result]) -> Iterator[str]:
    """Mutants by folder, and the survivors with their changes."""
    counts: dict[str, Counter[str]] = {}
    for one in results:
        folder = Path(one.path).parts[1].removesuffix(".py")
        counts.setdefault(folder, Counter())[one.outcome] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    yield "| folder | mutants | killed | survived | killed, % |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name, own in [*sorted(counts.items()), ("all", total)]:
        tried = own["killed"] + own["survived"]
        share = f"{100 * own['killed'] / tried:.0f}" if tried else "-"
        yield f"| {name} | {tried} | {own['killed']} | {own['survived']} | {share} |"
    yield f"\n{total['equivalent']} more are named as equivalent, and not run."
    for one in results:
        if one.outcome == "survived":
            yield f"\n{one.path}:{one.line}"
            yield from (f"  - {line}" for line in one.before.splitlines())
            yield from (f"  + {line}" for line in one.after.splitlines())


def main() -> None:
    """Draw, run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mutants", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--limit",
        type=float,
        default=600.0,
        help="CPU seconds for each part of the tests: what they have not killed by then survives",
    )
    parser.add_argument("--modules", nargs="+", default=MODULES, help="below cclbench/, instead of all")
    parser.add_argument(
        "--coverage", type=Path, help="of the tests, a context each: only those that run the line"
    )
    parser.add_argument("--out", type=Path, required=True, help="results, one JSON object a line")
    given = parser.parse_args()
    mutants = draw_mutants(given.mutants, given.seed, tuple(given.modules))
    by_line = TestsByLine(given.coverage) if given.coverage else None
    results = Campaign(given.out, given.limit, by_line).run(mutants, given.jobs)
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()

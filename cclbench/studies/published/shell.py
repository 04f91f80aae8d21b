# SPDX-License-Identifier: Apache-2.0
"""What a launch script passes to the program that it starts: the script is read as text and never run.

Only assignments outside branches, loops and functions are followed.  A value that depends on anything else is
unknown, with the reason.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from cclbench.ground.text import quoted_value

_NAME: Final = r"[A-Za-z_]\w*"
_ASSIGNMENT: Final = re.compile(
    rf"""\s*(?:export\s+|readonly\s+)?({_NAME})=("[^"]*"|'[^']*'|\$\(\(.*\)\)|[^\s;&|"']*)\s*;?\s*"""
)
_SET_SOMEHOW: Final = re.compile(rf"(?<![\w.$-])({_NAME})\+?=|\b(?:for|read|unset)\s+({_NAME})")
_PRINTS: Final = re.compile(r"\s*(?:echo|printf)\b[^;&|]*")
_HERE_DOCUMENT: Final = re.compile(rf"<<-?\s*['\"]?({_NAME})")
_BLOCK: Final = re.compile(
    r"(?:^|[;&|{(]|\bthen|\bdo|\belse)\s*(if|for|while|until|case|select|fi|done|esac)\b"
)
_CLOSING: Final = ("fi", "done", "esac")
_COMMENT: Final = re.compile(r"(?:^|\s)#[^'\"]*$")
_VARIABLE: Final = re.compile(rf"\$(?:\{{({_NAME})(?::?-([^${{}}]*))?\}}|({_NAME}))")
_LONGEST_EXPRESSION: Final = 200
_OPERATORS: Final = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def passed_options(
    script: str, environment: Mapping[str, str], options: Iterable[str]
) -> dict[str, str | None]:
    """The value that the script passes for each of the options that it passes; None where it is unknown.

    `environment` holds the variables that are set before the script runs; files that it sources are not
    read.  An option that is passed in several places with different values is unknown.
    """
    names = "|".join(map(re.escape, options))
    option_and_value = re.compile(rf"(?<![\w.-])({names})(?:\s+|=)[\"']?([^\s\"']+)")
    passed: dict[str, set[str | None]] = {}
    variables: dict[str, str | None] = dict(environment)
    for line, nested in _command_lines(script):
        for option, value in option_and_value.findall(line):
            passed.setdefault(option, set()).add(_known_value(value, variables))
        single = None if nested else _ASSIGNMENT.fullmatch(line)
        if single:
            variables[single[1]] = _known_value(single[2], variables)
        elif not _PRINTS.fullmatch(line):
            variables |= dict.fromkeys(first or second for first, second in _SET_SOMEHOW.findall(line))
    return {option: next(iter(values)) if len(values) == 1 else None for option, values in passed.items()}


def _command_lines(script: str) -> Iterator[tuple[str, bool]]:
    """Lines without comments and here-documents, continued ones joined; whether each is in a block."""
    lines = script.replace("\r\n", "\n").replace("\\\n", " ").split("\n")
    last_line = {line.strip(): number for number, line in enumerate(lines)}
    depth, until = 0, ""
    for number, line in enumerate(lines):
        if until:
            until = "" if line.strip() == until else until
            continue
        line = _COMMENT.sub("", line)
        blocks = _BLOCK.findall(line)
        opens_function = line.rstrip().endswith("{") and "${" not in line
        closes_function = line.strip() == "}"
        yield line, depth > 0 or bool(blocks)
        depth += sum(-1 if word in _CLOSING else 1 for word in blocks) + opens_function - closes_function
        begun = _HERE_DOCUMENT.search(line)
        if begun and last_line.get(begun[1], -1) > number:
            until = begun[1]


def _known_value(word: str, variables: Mapping[str, str | None]) -> str | None:
    """The word, expanded; None if it depends on something that is not followed."""
    try:
        return _expand_word(word, variables)
    except ValueError:
        return None


def _expand_word(word: str, variables: Mapping[str, str | None]) -> str:
    if word.startswith("'"):
        return word.strip("'")
    word = word.strip('"')
    if word.startswith("$((") and word.endswith("))"):
        return str(_evaluate_arithmetic(word[3:-2], variables))

    def variable_value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        value = variables.get(name, match[2])
        if value is None:
            raise ValueError(f"{name} is unknown")
        return value or match[2] or ""

    before = None
    while before != word and len(word) < _LONGEST_EXPRESSION:
        before, word = word, _VARIABLE.sub(variable_value, word)
    if "$" in word or "`" in word:
        raise ValueError(f"{quoted_value(word)} is not followed")
    return word


def _evaluate_arithmetic(expression: str, variables: Mapping[str, str | None]) -> int:
    if len(expression) > _LONGEST_EXPRESSION:
        raise ValueError("a long expression is not followed")
    try:
        tree = ast.parse(re.sub(r"[${}]", "", expression).strip(), mode="eval").body
    except (SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{quoted_value(expression)} is not followed") from None
    return _arithmetic_value(tree, variables)


def _arithmetic_value(node: ast.expr, variables: Mapping[str, str | None]) -> int:
    """An integer expression as the shell computes it: division cuts off towards zero."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        value = variables.get(node.id) or ""
        if re.fullmatch(r"-?[0-9]{1,18}", value):
            return int(value)
    if isinstance(node, ast.BinOp):
        left, right = (_arithmetic_value(side, variables) for side in (node.left, node.right))
        if isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod) and right:
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return left - quotient * right if isinstance(node.op, ast.Mod) else quotient
        if type(node.op) in _OPERATORS:
            return int(_OPERATORS[type(node.op)](left, right))
    raise ValueError("an expression is not followed")

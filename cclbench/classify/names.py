# SPDX-License-Identifier: Apache-2.0
"""Kernel names as profilers print them: the part that rules match, and the part that people read."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

ANONYMOUS: Final = "(anonymous namespace)"

# Launchers whose first template argument is the kernel that they launch.
_LAUNCHER: Final = re.compile(
    r"^(?:cutlass\w*::(?:device_)?kernel\d*|ck_tile::kentry\w*|(?:\S*::)?enable_(?:sm|3x)\w+)$",
    re.IGNORECASE,
)
_TRAILER: Final = re.compile(r"(?:\.kd|\s*\[clone [^\]]*\])+$")
_RESULT_TYPE: Final = re.compile(r"^(?:void |std::enable_if<.*?>::type )")
_TOKEN: Final = re.compile(r"operator\(\)|operator ?[<>=!+*/-]+|->|[<>(){}\[\]]")
_CLOSES: Final = {">": "<", ")": "(", "}": "{", "]": "["}
_IDENTIFIER: Final = re.compile(r"(?<![\w(:])(?!true\b|false\b)[A-Za-z_]\w*(?:::[\w\0]+)*")
_PROSE: Final = re.compile(r"[^<({\[]* \(")
# Characters read: heads and signatures of real kernels are shorter, names from a broken file may not be.
_HEAD_REACH: Final = 1 << 10
_REACH: Final = 1 << 13
_DIGITS: Final = re.compile(r"L?(\d+)")
# What may precede a mangled type argument's components: integer arguments, nesting, a prefix named before.
_BEFORE_TYPE: Final = re.compile(r"I(?:L[a-z]n?\d+E)*N?K?(?:(S_)|S[0-9A-Z]+_)?")


def qualified_name(name: str) -> str:
    """The qualified name without result type, anonymous namespaces, template and call arguments.

    Takes the text before the first `<` or `(`, so it costs one scan: `void a::(anonymous
    namespace)::f<int>(int)` gives `a::f`, `_ZN1a1fIiEEvi` gives `a::f`, and a name that is no C++
    symbol is returned as it is.
    """
    if name.startswith("_Z"):
        return _mangled_head(name)
    text = _TRAILER.sub("", name) if name.endswith(("d", "]")) else name
    if text.startswith(("void ", "std::")):
        text = _RESULT_TYPE.sub("", text)
    text = text.replace(ANONYMOUS + "::", "").replace("<unnamed>::", "")
    ends = [at for at in (text.find("<"), text.find("(")) if at > 0]
    return text[: min([*ends, _HEAD_REACH])]


def _mangled_head(name: str) -> str:
    """The nested name of an Itanium-mangled symbol, up to its first template argument."""
    parts, _ = _mangled_components(name)
    return "::".join(parts)[:_HEAD_REACH] if parts else name[:_HEAD_REACH]


def _mangled_components(name: str, at: int | None = None) -> tuple[list[str], int]:
    """Components of a mangled name (from `at` on), without anonymous namespaces, and their end index."""
    parts: list[str] = []
    at = (3 if name.startswith("_ZN") else 2) if at is None else at
    while number := _DIGITS.match(name, at):
        begin = number.end()
        at = begin + int(number[1][:5])
        part = name[begin:at]
        if not part.startswith("_GLOBAL__N"):
            parts.append(part)
    return parts, at


def base_name(name: str) -> str:
    """The common name of all instances of a kernel, namespaces included.

    Result type, template arguments and parameter lists are removed:
    `void at::native::reduce_kernel<512, 1>(float*)` gives `at::native::reduce_kernel`.  A CUTLASS or
    CK launcher gives the name of the kernel it launches.  Mangled names, Triton names and anything else
    that is no demangled C++ signature are returned as they are.
    """
    text = _TRAILER.sub("", name)[:_REACH]
    plain = text.replace("<unnamed>", ANONYMOUS).replace(ANONYMOUS, "\0").replace("operator ()", "operator()")
    if text.startswith("_Z") or _PROSE.match(plain):
        return text
    outside, has_parameters = _outside_brackets(plain)
    if has_parameters or outside.startswith("void "):
        outside = outside.rpartition(" ")[2]
    if _LAUNCHER.match(outside):
        outside = launched_name(plain) or outside
    return outside.replace("\0", ANONYMOUS).replace("\1", " ") or name


@lru_cache(maxsize=1 << 13)
def rule_subject(name: str) -> str:
    """The text that rules match: the qualified name, or for a launcher its kernel's name; lower case."""
    return (launched_name(name) or qualified_name(name)).lower()


def launched_name(name: str) -> str | None:
    """The kernel of a CUTLASS or CK launcher (its first template argument that is a type), else None."""
    launcher = qualified_name(name)
    if not _LAUNCHER.match(launcher):
        return None
    if name.startswith("_Z"):
        return _mangled_launched(name)
    text = name.partition("<")[2][:_REACH].replace(ANONYMOUS + "::", "")
    identifiers = (inner[0] for inner in _IDENTIFIER.finditer(text))
    return next((inner for inner in identifiers if not _LAUNCHER.match(inner)), None)


def _mangled_launched(name: str) -> str | None:
    """`launched_name` of an Itanium-mangled symbol: the name after its integer template arguments."""
    parts, at = _mangled_components(name)
    outermost = parts[0]
    while _LAUNCHER.match("::".join(parts)):
        type_prefix = _BEFORE_TYPE.match(name, at)
        if type_prefix is None:
            return None
        parts, at = _mangled_components(name, type_prefix.end())
        if type_prefix[1]:  # S_ is the first prefix there was: the launcher's outermost namespace
            parts.insert(0, outermost)
    return "::".join(parts)[:_HEAD_REACH] or None


def _outside_brackets(text: str) -> tuple[str, bool]:
    """Text outside template and call arguments, and whether it had a parameter list.

    A parameter list ends the name, unless it belongs to an outer function (`f(int)::{lambda()#1}`) or
    to the result type (`decltype(f()) g()`).
    A space inside a lambda's name becomes `\\1`, so that it does not look like the end of a type.
    """
    outside: list[str] = []
    brackets: list[str] = []
    last, has_parameters = 0, False
    for token in _TOKEN.finditer(text):
        bracket = token[0]
        opener = _CLOSES.get(bracket)
        if len(bracket) > 1:
            continue
        if opener is None:
            if not brackets:
                outside.append(text[last : token.start()])
                last = token.start()
            brackets.append(bracket)
            continue
        if opener not in brackets or (bracket == ">" and brackets[-1] != "<"):
            continue  # a comparison inside parentheses
        while brackets.pop() != opener:
            pass
        if brackets:
            continue
        if bracket in "}]":
            outside.append(text[last : token.end()].replace(" ", "\1"))
        last = token.end()
        if bracket == ")":
            has_parameters = True
            if not text.startswith(("::", " "), last) or text.startswith(" const", last):
                return "".join(outside), has_parameters
    if not brackets:
        outside.append(text[last:])
    return "".join(outside), has_parameters or bool(brackets)

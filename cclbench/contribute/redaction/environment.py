# SPDX-License-Identifier: Apache-2.0
"""Hide environments in texts, except variables that describe the run's layout."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Final

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Identities
from cclbench.contribute.redaction.pattern import CLEAN

_ASSIGNED: Final = re.compile(r"(?:^|(?<=[\s;\0]))([A-Z_][A-Z0-9_]*)=(\"[^\"]*\"|[^\s;\0]*)")
_VARIABLE: Final = re.compile(r"([A-Za-z_]\w*)=")
_SHELL: Final = "PATH HOME USER SHELL PWD OLDPWD LOGNAME HOSTNAME TERM LANG SHLVL LD_LIBRARY_PATH"
_OF_A_SHELL: Final = frozenset(_SHELL.split())
_SOME, FEW, _MANY = 2, 5, 12
"""Least number of assignments that are an environment: in a field of that name; with one of a shell's own
variables; otherwise."""
_LONGEST_NAME: Final = 60


def count_assignments(text: str) -> int:
    """Number of assignments to variables in a text."""
    return len(_ASSIGNED.findall(text)) if text.count("=") >= FEW else 0


def hide_environment(
    text: str, identities: Identities, *, line: bool = False, sure: bool = False
) -> tuple[str, Counter[str]]:
    """A text that is an environment with its variables hidden, and their number by rule.

    A `line` of a script may set some variables for the command after them and is not an environment; `sure`:
    the text is known to be one.
    """
    assigned = _ASSIGNED.findall(text)
    hidden = [(n, v) for n, v in assigned if not kinds.is_kept(n) and not identities.keeps(n, v)]
    shell = any(name in _OF_A_SHELL for name, _ in assigned)
    command = line and _ASSIGNED.sub("", text).rpartition(":")[2].strip(" \t\r\n;")
    fewest = _SOME if sure else FEW if shell and not command else _MANY
    if not hidden or len(assigned) < fewest:
        return text, Counter()
    counts = Counter[str]()
    for name, value in hidden:
        identities.stand_in_for_value(kinds.ENVIRONMENT, value)
        counts[_variable_rule(name)] += 1
    stay = [f"{n}={v}" for n, v in assigned if (n, v) not in hidden]
    new = " ".join([*stay, kinds.HIDDEN[kinds.ENVIRONMENT]])
    return new + ("\n" if text.endswith("\n") else ""), counts


def hide_variable(
    name: str, text: str, identities: Identities, scrub: Callable[[str], tuple[str, Counter[str]]]
) -> tuple[str, Counter[str]]:
    """Hide one variable: `text` is its value if it has a `name`, else `NAME=value` or an environment."""
    new, counts = scrub(f"{name}={text}" if name else text)
    if not name:
        new, hidden = hide_environment(new, identities, sure=True)
        counts.update(hidden)
    assigned = _VARIABLE.match(new)
    variable = assigned[1] if assigned else name
    rule = _variable_rule(variable) if variable else kinds.ENVIRONMENT
    if variable and identities.keeps(variable, text.removeprefix(f"{variable}=").strip("\"'")):
        return text, Counter()
    is_environment = any(counted.startswith(f"{kinds.ENVIRONMENT} (") for counted in counts)
    if is_environment or CLEAN.fullmatch(text) or not text.strip():
        pass
    elif assigned is None:
        new, counts = identities.stand_in_for_value(kinds.ENVIRONMENT, text), Counter({rule: 1})
    elif not kinds.is_kept(assigned[1]):
        value = new[assigned.end() :].strip("\"'")
        if value and not CLEAN.fullmatch(value):
            identities.stand_in_for_value(kinds.ENVIRONMENT, text.removeprefix(assigned[0]))
            new = assigned[0] + kinds.HIDDEN[kinds.ENVIRONMENT]
            counts = Counter({rule: 1})
    return (new.removeprefix(f"{name}=") if name else new), counts


def _variable_rule(variable: str) -> str:
    return f"{kinds.ENVIRONMENT} ({variable[:_LONGEST_NAME]})"

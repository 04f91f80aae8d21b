# SPDX-License-Identifier: Apache-2.0
"""World size of a job that torchrun started under nsys, from torchrun's command line in the capture.

Names and defaults of its options are those of PyTorch's `torch/distributed/run.py`; an environment variable
`PET_NNODES` is used if the option `--nnodes` is not given.  Only two integers are used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from cclbench.formats.nsys.database import Database

_CAPTURE: Final = "META_DATA_CAPTURE"
_VALUE: Final = "CAST(substr(value, 1, 200) AS TEXT)"
_COMMAND: Final = re.compile(r"PROCESS_(\d{1,4}):(?:COMMAND|ARGUMENT_(\d{1,4}))")
_VARIABLE: Final = re.compile(r'PET_(NNODES|NPROC_PER_NODE)=("?)([^"]*)\2')
_PROGRAMS: Final = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_NODES: Final = "nnodes"
_PROCESSES: Final = "nproc_per_node"
_FLAGS: Final = ("standalone", "m", "module", "no_python", "run_path", "use_env", "virtual_local_rank")
"""Options without a value."""


def launched_world(database: Database, members: int) -> int | None:
    """Nodes × processes per node; None if they are not stated as numbers, or processes are not `members`.

    If the capture has another number of ranks than torchrun started, some are missing or foreign.
    """
    if not database.has_columns(_CAPTURE, "name", "value"):
        return None
    options = _torchrun_options(_started_command(database))
    if options is None:
        return None
    options = _torchrun_variables(database) | options
    nodes = re.fullmatch(r"(\d{1,6})(?::\1)?", options.get(_NODES, "1"))
    if nodes is None or options.get(_PROCESSES, "1") != str(members):
        return None
    return int(nodes[1]) * members or None


def _started_command(database: Database) -> list[str]:
    """Program and arguments of the process that nsys started; empty if it started several."""
    where = "name GLOB 'PROCESS_[0-9]*:COMMAND' OR name GLOB 'PROCESS_[0-9]*:ARGUMENT_[0-9]*'"
    commands: dict[str, dict[int, str]] = {}
    for name, value in database.select_rows(_CAPTURE, f"name, {_VALUE}", where, "LIMIT 4096"):
        if match := _COMMAND.fullmatch(str(name)):
            commands.setdefault(match[1], {})[int(match[2] or -1)] = str(value)
    if len(commands) != 1:
        return []
    (words,) = commands.values()
    return [words[place] for place in sorted(words)]


def _torchrun_options(command: Sequence[str]) -> dict[str, str] | None:
    """The options before the script, by name; None if the program is not torchrun."""
    program, arguments = (command[0].rpartition("/")[2], list(command[1:])) if command else ("", [])
    if re.fullmatch(r"python[\d.]*", program) and arguments[:1] == ["-m"]:
        program, arguments = "".join(arguments[1:2]), arguments[2:]
    if program not in _PROGRAMS:
        return None
    options: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = _full_option(name.replace("-", "_"))
        joined = equals or (not word.startswith("--") and len(word) > 2)
        if name not in _FLAGS:
            options[name] = value if joined else next(words, "")
    return options


def _full_option(name: str) -> str:
    """The full name of an option that argparse lets be abbreviated, of those used here."""
    return next(
        (option for option in (_NODES, _PROCESSES) if len(name) > 1 and option.startswith(name)), name
    )


def _torchrun_variables(database: Database) -> dict[str, str]:
    """Values of torchrun's environment variables, by option."""
    where = "name LIKE '%:ENVIRONMENT_VARIABLE' AND value GLOB 'PET_N*=*'"
    rows = database.select_rows(_CAPTURE, f"DISTINCT {_VALUE}", where, "LIMIT 64")
    matches = [_VARIABLE.fullmatch(str(value)) for (value,) in rows]
    return {match[1].lower(): match[3] for match in matches if match}

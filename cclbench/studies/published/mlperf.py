# SPDX-License-Identifier: Apache-2.0
"""MLPerf's published results: logs of Training, summaries of Inference, and the systems they ran on.

A submission is SUBMITTER/results/SYSTEM/BENCHMARK/..., with SUBMITTER/systems/SYSTEM.json.  The round stands
in the name of the repository alone, such as training_results_v5.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from cclbench.ground.errors import InputError
from cclbench.ground.text import printable
from cclbench.studies.published.importing import Entry, Imported, import_publication
from cclbench.studies.published.leaderboard import Publication
from cclbench.studies.published.mlperf_inference import inference_entry
from cclbench.studies.published.mlperf_training import training_entry

SOURCE: Final = "mlperf"
_MOST_BYTES: Final = 1 << 20
_MOST_FILES: Final = 10_000
_COUNT: Final = re.compile(r"\d{1,7}")
_ROUND: Final = re.compile(r"(?:training|inference)_results_(v\d+\.\d+)")
_ENTRIES: Final[Mapping[str, Callable[[Path, int, dict[str, Any]], Entry]]] = {
    "result_*.txt": training_entry,
    "mlperf_log_summary.txt": inference_entry,
}
_HINT: Final = "pass result_*.txt, mlperf_log_summary.txt, or a folder of a submission"


def import_mlperf(path: str | Path, store: str | Path | None = None) -> Imported:
    """Import a result of MLPerf, or all results below a folder, as published runs.

    `InputError` if a result or a system's description is invalid, or there is none.
    """
    path = Path(path)
    files = sorted(_result_files(path))
    if not files:
        raise InputError("there is no result of MLPerf", where=printable(str(path)), hint=_HINT)
    if len(files) > _MOST_FILES:
        what = f"has {len(files):,} results, more than {_MOST_FILES:,}"
        raise InputError(what, where=printable(str(path)), hint="pass the folder of one submitter")
    entries = []
    for number, file in enumerate(files, 1):
        read = next(entry for pattern, entry in _ENTRIES.items() if file.match(pattern))
        entries.append(read(file, number, _stated_by_place(file)))
    digest = sha256("".join(entry.row.sha256 for entry in entries).encode()).hexdigest()
    return import_publication(
        Publication(SOURCE, path, digest, None, tuple(e.row for e in entries)), entries, store
    )


def _result_files(path: Path) -> Iterator[Path]:
    """Results below a folder, without audits and accuracy runs; or the file itself."""
    if path.is_file():
        yield from (path for pattern in _ENTRIES if path.match(pattern))
        return
    for pattern in _ENTRIES:
        for file in path.rglob(pattern):
            parts = file.relative_to(path).parts
            is_run = pattern == "result_*.txt" or file.parent.parent.name == "performance"
            if is_run and "compliance" not in parts and not any(part.startswith("TEST") for part in parts):
                yield file


def _stated_by_place(file: Path) -> dict[str, Any]:
    """Metadata by the file's folders: round, system, benchmark and scenario; and the system's description."""
    parts = file.resolve().parts
    rounds = [match[1] for part in parts if (match := _ROUND.search(part))]
    metadata: dict[str, Any] = {"round": rounds[-1]} if rounds else {}
    if "results" not in parts[:-2]:
        return metadata
    place = len(parts) - 1 - parts[::-1].index("results")
    metadata |= dict(zip(("system", "benchmark", "scenario"), parts[place + 1 : -1], strict=False))
    description = Path(*parts[:place], "systems", f"{parts[place + 1]}.json")
    return metadata | (_system(description) if description.is_file() else {})


def _system(path: Path) -> dict[str, Any]:
    """Accelerators, framework, submitter and division of a system's description."""
    where = printable(str(path))
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError("is over 1 MiB", where=where, hint="it is no description of a system")
        stated = json.loads(content)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=where) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not valid JSON: {printable(str(error))}", where=where) from None
    if not isinstance(stated, dict):
        raise InputError("is not a JSON object", where=where)
    nodes, each = (_count(stated.get(key)) for key in ("number_of_nodes", "accelerators_per_node"))
    names = {
        "hardware_model": stated.get("accelerator_model_name"),
        "framework": stated.get("framework"),
        "submitter": stated.get("submitter"),
        "division": stated.get("division"),
    }
    counts = {"total_count": nodes and each and nodes * each, "count_per_node": each}
    texts = {key: name.strip() for key, name in names.items() if isinstance(name, str) and name.strip()}
    return texts | {key: count for key, count in counts.items() if count}


def _count(value: object) -> int | None:
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    return int(text) if _COUNT.fullmatch(text) else None

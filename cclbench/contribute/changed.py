# SPDX-License-Identifier: Apache-2.0
"""Data points that changed since a commit, by git."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path, PurePosixPath

from cclbench.contribute.place import CALIBRATION, data_point_ids
from cclbench.ground.errors import UsageError
from cclbench.ground.text import printable

_FOLDERS = ("workload_cards", "traces", "scripts")
_BESIDE = rf"({re.escape(CALIBRATION)}|\.yaml)$"
# The repository and its `.git/config` may be untrusted: run no monitor, hook or transport of it.
_NOTHING_RUNS = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_NOTHING_IS_FETCHED = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


def changed_since(collection: Path, commit: str) -> list[str]:
    """Ids of the collection's data points whose card, calibration, traces or scripts differ between HEAD and
    where it branched off from `commit`, sorted; removed ones are left out.

    Raises `UsageError` if git is missing, or does not know the folder or the commit.
    """
    if not commit:  # git would take it as HEAD, and nothing would have changed
        raise UsageError("there is no commit to compare with", hint="such as --changed-since origin/main")
    command = ["git", *_NOTHING_RUNS, "-C", str(collection), "diff", "--name-only", "--no-renames", "-z"]
    command += ["--relative", "--no-ext-diff", "--no-textconv"]
    try:
        result = subprocess.run(  # noqa: S603  (a list of arguments: no shell reads it)
            [*command, "--end-of-options", f"{commit}...HEAD", "--", *_FOLDERS],
            capture_output=True,
            check=False,
            env=os.environ | _NOTHING_IS_FETCHED,
        )
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}", hint="name the data points") from None
    if result.returncode != 0:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines() or ["it prints no message"]
        hint = "in a shallow clone, fetch the commit first"
        raise UsageError(f"git cannot compare with {commit!r}: {printable(lines[0])[:200]}", hint=hint)
    names = [PurePosixPath(name) for name in result.stdout.decode("utf-8", "replace").split("\0") if name]
    touched = {
        re.sub(_BESIDE, "", name.parts[1]) if len(name.parts) == 2 else name.parts[1]
        for name in names
        if len(name.parts) >= 2
    }
    return [identity for identity in data_point_ids(collection) if identity in touched]

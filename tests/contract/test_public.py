# SPDX-License-Identifier: Apache-2.0
"""The modules that docs/house.md calls public are those that lint-imports lets studies import."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def test_the_table_of_public_modules_is_what_studies_may_import(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    (contract,) = (
        one for one in project["tool"]["importlinter"]["contracts"] if one["name"].startswith("studies stand")
    )
    allowed = {line.rpartition(" -> cclbench.")[2].removesuffix(".*") for line in contract["ignore_imports"]}
    text = (repository / "docs" / "house.md").read_text()
    table = text.split("## What is public")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]+\|([^|]+)\|", table, re.MULTILINE)
    public = {name for modules in rows for name in re.findall("`(.+?)`", modules)}
    below = {name: {one for one in allowed if one == name or one.startswith(f"{name}.")} for name in public}
    assert [name for name, modules in below.items() if not modules] == []
    assert allowed - {"studies.**"} - set().union(*below.values()) == set()

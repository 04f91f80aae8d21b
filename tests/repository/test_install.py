# SPDX-License-Identifier: Apache-2.0
"""The package installs where its users are: true lower bounds, beside others' pins, from the repository."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement

from cclbench.ground.errors import install_hint
from cclbench.ground.schema import EVENTS, TABLES
from cclbench.ground.table_schema import file_schema
from cclbench.record.files import TableFile

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
REQUIRED = {one.name: one for one in map(Requirement, PROJECT["dependencies"])}
PINS = sorted((REPOSITORY / "tests" / "constraints").glob("*.txt"))
PROSE = (".md", ".py", ".yml", ".yaml", ".ipynb", ".toml", ".sh")


def pins(path: Path) -> dict[str, str]:
    """Versions by name."""
    lines = path.read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_the_lowest_versions_are_those_that_the_project_names() -> None:
    named = {name: re.escape(str(one.specifier)[2:]) for name, one in REQUIRED.items()}
    lowest = pins(REPOSITORY / "tests" / "constraints" / "lowest.txt")
    assert lowest.keys() == named.keys()
    for name, version in named.items():
        assert re.fullmatch(rf"{version}(\.0)*", lowest[name]), name
    assert "scripts/check_pins.sh lowest" in (REPOSITORY / ".ci" / "run").read_text()


@pytest.mark.parametrize("path", PINS, ids=lambda path: path.stem)
def test_pins_of_images_are_allowed(path: Path) -> None:
    pinned = pins(path)
    assert pinned.keys() & REQUIRED.keys() >= {"numpy", "pandas", "protobuf", "pyarrow"}
    both = pinned.keys() & REQUIRED.keys()
    assert [name for name in both if pinned[name] not in REQUIRED[name].specifier] == []
    assert path.read_text().startswith("# ")  # with their source


def test_both_generations_of_pandas_and_the_first_and_last_python_are_resolved() -> None:
    pandas = {".".join(pins(path)["pandas"].split(".")[:2]) for path in PINS}
    pythons = {match[1] for path in PINS if (match := re.match(r"# Python (3\.\d+)", path.read_text()))}
    assert "2.2" in pandas
    assert any(version.startswith("3.") for version in pandas)
    offered = [re.search(r"3\.\d+$", line) for line in PROJECT["classifiers"]]
    versions = sorted((match[0] for match in offered if match), key=lambda text: int(text[2:]))
    assert pythons >= {versions[0], versions[-1]}


def test_nothing_says_that_an_index_has_the_package() -> None:
    """Until one does: an install by that name would fetch whatever somebody puts there."""
    folders = (REPOSITORY / name for name in ("cclbench", "docs", "scripts", ".github", ".ci"))
    files = [*REPOSITORY.iterdir(), *(path for folder in folders for path in folder.rglob("*"))]
    texts = [path for path in files if path.suffix in PROSE or path.parent.name == ".ci"]
    assert len(texts) > 500
    claim = re.compile(r"""(pip3?|uv|pipx) (install|add|tool install) (-\S+ )*["']?cclbench\b|\bcclbench\[""")
    assert claim.search("pip install --quiet 'cclbench[mcp]'")
    claims = [
        f"{path.relative_to(REPOSITORY)}: {line.strip()[:80]}"
        for path in texts
        for line in path.read_text().splitlines()
        if claim.search(line)
    ]
    assert claims == []


@pytest.mark.parametrize("extra", ["cluster", "mcp", "remote"])
def test_a_hint_names_an_extra_that_there_is(extra: str) -> None:
    assert extra in EXTRAS
    assert install_hint(extra) == f"in cclbench's repository: pip install '.[{extra}]'"
    assert install_hint(extra, "gcsfs").endswith(f"pip install '.[{extra}]' gcsfs")


def test_files_are_the_same_under_every_arrow(tmp_path: Path) -> None:
    """Words have int8 indices in files, and a file without rows has a row group: Arrow 18 reads no other."""
    file = TableFile(tmp_path / "events.parquet", EVENTS)
    file.close()
    with pq.ParquetFile(tmp_path / "events.parquet") as written:
        assert (written.num_row_groups, written.metadata.num_rows) == (1, 0)
        assert written.read().schema.equals(EVENTS)
    assert str(file_schema(EVENTS).field("kind").type.index_type) == "int8"
    assert str(file_schema(EVENTS).field("name").type.index_type) == "int32"
    for schema in TABLES.values():
        assert file_schema(schema).names == schema.names
        assert schema.empty_table().cast(file_schema(schema)).schema.equals(file_schema(schema))
    assert pa.types.is_dictionary(EVENTS.field("kind").type)

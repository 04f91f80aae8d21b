# SPDX-License-Identifier: Apache-2.0
"""The reference pages of the site have all there is, escaped, and the navigation has every page."""

from __future__ import annotations

import importlib.util
import re
from html import unescape
from pathlib import Path
from types import ModuleType, SimpleNamespace

import click
import pytest
import yaml

from cclbench.analyzers.metric import METRICS
from cclbench.cli import cli
from cclbench.formats import READERS
from cclbench.ground import schema
from cclbench.hardware.catalog import catalog_entries
from cclbench.operators.cost import MODELS
from cclbench.sql import VIEWS
from cclbench.sql.machine_tables import TABLES as MACHINE_TABLES


@pytest.fixture(scope="module")
def site(repository: Path) -> ModuleType:
    """The script that makes the pages."""
    spec = importlib.util.spec_from_file_location("docs_site", repository / "scripts" / "docs_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def headings(page: str, level: int) -> list[str]:
    """Headings of a page, outside its blocks of code."""
    outside = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.findall(rf"^{'#' * level} (.*)$", outside, re.MULTILINE)


def test_every_metric_is_there_with_what_explain_says(site: ModuleType) -> None:
    page = site.metrics()
    assert sorted(headings(page, 3)) == list(METRICS)
    text = unescape(re.sub(r"</?code>|<wbr>", "", page)).replace("`", "")
    for metric in map(METRICS.get, METRICS):
        told = (metric.definition, metric.formula, metric.not_applicable, metric.combined)
        for words in (*told, *metric.aliases):
            assert words.replace("`", "") in text


def test_every_cost_model_is_there_and_every_family_on_its_page(site: ModuleType, repository: Path) -> None:
    models = [MODELS.get(name) for name in MODELS]
    page = site.operators()
    assert sorted(headings(page, 3)) == list(MODELS)
    text = unescape(re.sub(r"</?code>", "", page))
    for model in models:
        for words in model.docstring_parts.values():
            assert words.replace("`", "") in text.replace("`", "")
    table = (repository / "docs" / "operators.md").read_text().split("## Families")[1].split("##")[0]
    families = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:]
    assert sorted(families) == sorted({model.family for model in models}) == sorted(headings(page, 2))


def test_every_reader_table_and_entry_is_there(site: ModuleType) -> None:
    assert headings(site.readers(), 2) == list(READERS)
    tables = site.tables()
    own = ["events", "operators", "collectives", "groups", "steps", "results"]
    listed = schema.TABLES | MACHINE_TABLES
    assert headings(tables, 2) == [*own, *schema.EVIDENCE, *MACHINE_TABLES]
    assert tables.count("<tr>") == 1 + sum(map(len, listed.values()))
    hardware = [site.PAGES[name]() for name in ("accelerators", "fabrics", "systems")]
    assert [name for page in hardware for name in headings(page, 2)] == list(catalog_entries())
    # every figure of the catalog has its source
    h100 = hardware[0][hardware[0].index("## nvidia-h100-sxm") :].partition("\n## ")[0]
    row = "<tr><th><code>hbm_<wbr>bytes</code></th><td>80.0 GB</td><td>ml-engineering</td></tr>"
    assert row in h100
    assert '<li><code>ml-engineering</code>: <a href="https://' in h100
    assert "states for <code>peak_<wbr>flops_<wbr>per_<wbr>s.<wbr>bf16</code>: 900 TFLOP/s" in h100
    text = "|C| &lt; K &amp; <code>a_b*c*</code> &lt;script&gt;"  # markup in texts is text
    assert site.prose("|C| < K & `a_b*c*` <script>") == text


def test_every_view_is_there_with_its_columns_and_example(site: ModuleType) -> None:
    page = site.views()
    assert headings(page, 2) == list(VIEWS)
    text = unescape(re.sub(r"</?code>|<wbr>", "", page)).replace("`", "")
    for view in map(VIEWS.get, VIEWS):
        assert f"```sql\n{view.example}\n```" in page
        for words in (view.definition, *(column.meaning for column in view.columns)):
            assert words.replace("`", "") in text


def test_every_command_and_option_is_there(site: ModuleType) -> None:
    page = site.command_line()
    found = headings(page, 2)
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        below = command.list_commands(context) if isinstance(command, click.Group) else [""]
        assert {f"cclbench {name} {one}".strip() for one in below} <= set(found)
    whatif = page[page.index("## cclbench whatif") :].partition("\n## ")[0]
    assert "```text\ncclbench whatif [OPTIONS] RUN\n```" in whatif
    assert "```sh\ncclbench whatif my-job-3f2a91c0 --set scale_up.bandwidth=x2\n" in whatif
    assert "<code>--sweep KEY=xA.<wbr>.<wbr>xB</code>" in whatif


def test_the_navigation_has_every_page_and_leaves_out_what_is_not_there(
    site: ModuleType, repository: Path
) -> None:
    nav = yaml.safe_load((repository / "mkdocs.yml").read_text())["nav"]
    told = re.findall(r"[\w/-]+\.md", str(nav))
    docs = repository / "docs"
    assert {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} <= set(told)
    reference = [page for page in told if page.startswith("reference/")]
    assert reference == [f"reference/{name}.md" for name in site.PAGES]
    nav = [{"A": "none.md"}, {"B": [{"C": "none.md"}, {"D": "index.md"}]}]
    config = SimpleNamespace(nav=nav, docs_dir=repository / "docs")
    assert site.on_config(config).nav == [{"B": [{"D": "index.md"}]}]


@pytest.mark.parametrize(
    ("page", "written", "expected"),
    [
        ("a.md", "[x](../scripts/a.sh) [y](b.md#c)", "[x](files/scripts/a.sh) [y](b.md#c)"),
        ("questions/a.md", "[x](../b.md) [y](../../scripts/a.sh)", "[x](../b.md) [y](../files/scripts/a.sh)"),
    ],
)
def test_links_out_of_the_docs_lead_to_copies(
    site: ModuleType, page: str, written: str, expected: str
) -> None:
    """From a page in a folder of docs/ a link to the folder above stays within."""
    own = SimpleNamespace(file=SimpleNamespace(generated_by=None, src_uri=page))
    assert site.on_page_markdown(written, page=own) == expected

# SPDX-License-Identifier: Apache-2.0
"""The pages: whole, of one file, safe whatever the traces and cards say."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from helpers.parsed_page import Page
from helpers.report_run import HOSTILE, Event, comparison, manifest, results, row, subject, table
from helpers.typed import PUBLISHED, rewrite_manifest

from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.errors import InputError
from cclbench.present.html import check_page, write_page
from cclbench.present.page import comparison_page, run_page
from cclbench.record.results import Results
from cclbench.record.run import Run


def hostile(path: Path) -> ComparisonSubject:
    """A run in which every text that a stranger writes is hostile, under a name that is so too."""
    events: list[Event] = [(0, name, "gemm", 1000 + n, 10) for n, name in enumerate(HOSTILE)]
    rows = results()
    rows += [row("comm.volume", 1.0, "B", group=text[:5000], reason=text) for text in HOSTILE]
    rows += [row("compute.dominant_kernel", 0.5, "1", category=text) for text in HOSTILE]
    rows += [row(f"plugin.{text[:200]}", None, reason=text) for text in HOSTILE]
    mine = manifest("x")
    mine["ranks"][0]["notes"] = list(HOSTILE)
    mine["ranks"][0]["rows"], mine["ranks"][1]["rows"] = {"kernel": len(events)}, {}
    mine["ranks"][0]["files"] = [{"name": t, "bytes": 1, "sha256": t, "reader": "kineto"} for t in HOSTILE]
    mine["source"] = HOSTILE[0]
    card = {"description": list(HOSTILE), **{text: text for text in HOSTILE}}
    made = subject(path / '"><script>alert(3)<', rows=rows, card=card, events=tuple(events))
    rewrite_manifest(made.stored.path, mine)
    return ComparisonSubject(made.letter, Run(made.stored.path), made.results, card)


def test_a_run(tmp_path: Path) -> None:
    page = Page(run_page(subject(tmp_path / "my-run")))
    assert "my-run: where the time goes" in page.text
    told = "A step takes 100 ms: on the rank with the longest window 60 % compute, 30 % exposed transfer"
    assert told in page.text
    assert page.tags["svg"] == 4  # no kernel states its FLOPs, so there is no roofline
    assert "comm.measured_busbw = no number\nthe whole run" not in page.titles  # it has no number to point at
    (told, *_) = (title for title in page.titles if title.startswith("time.step = 0.1 s\n"))
    assert "measured; window: steps" in told
    assert "no benchmark" in page.text
    assert "more than the peak" in page.text
    assert "~50.0 %" in page.text


def test_a_comparison(tmp_path: Path) -> None:
    a, b = subject(tmp_path / "a"), subject(tmp_path / "b", "B", rows=results(1.2))
    page = Page(comparison_page(comparison(a, b)))
    for text in (
        *("B is 1.20× slower than A.", "B's step is 1.20× longer", "the work differs", "parallelism.tp"),
        "~120 ms",
    ):
        assert text in page.text
    assert "95 % interval 1.10× to 1.30×" in page.text
    assert page.tags["svg"] == 6  # waterfall, partition, overlap, bandwidth, two heat maps
    assert any("B: time.step = 0.12 s\nmodelled\nbetween 110 ms and 130 ms" in title for title in page.titles)
    assert any("A: serving.ttft[stat=p50] not applicable\nA lacks it" in title for title in page.titles)


def test_only_equal_work_is_called_faster_or_slower(tmp_path: Path) -> None:
    card = {"workload": {"model": {"name": "m"}}}
    a, b = (replace(subject(tmp_path / letter, letter), card=card) for letter in "AB")
    assert "B is 1.20× slower\n" in Page(comparison_page(comparison(a, b, words="."))).text
    of_tokens = replace(comparison(a, b).versus[0], measure="throughput.tokens_per_device", outcome="slower")
    page = Page(comparison_page(comparison(a, b, versus=(of_tokens,))))
    assert "B is 1.20× slower per token" in page.text


@pytest.mark.parametrize("of_two", [False, True])
def test_hostile_texts_stay_texts(tmp_path: Path, of_two: bool) -> None:
    a = hostile(tmp_path / "a")
    if of_two:
        b = ComparisonSubject("B", hostile(tmp_path / "b").stored, a.results, a.card)
        fields: dict[str, Any] = {"warnings": HOSTILE}
        text = comparison_page(comparison(a, b, words=HOSTILE[0] + HOSTILE[4], **fields))
    else:
        text = run_page(a)
    page = Page(text)
    assert (page.tags["script"], page.tags["style"], page.tags["title"] > 0) == (1, 1, True)
    assert not {"img", "iframe", "object", "link", "base", "form", "a:script"} & set(page.tags)
    assert not [name for name in page.attributes if name.startswith("on")]
    assert "style" not in page.attributes
    assert not set("\u202e\x1b\x00") & set(text)
    assert "<script>alert(1)</script>" in page.text  # to be read, not run
    assert "{{ 7 * 7 }}" in page.text
    assert "(cut, 1,000,000 characters)" in page.text
    assert len(text) < 1_500_000


@pytest.mark.parametrize("of_two", [False, True])
def test_a_page_needs_nothing_and_lets_nothing_else_run(tmp_path: Path, of_two: bool) -> None:
    a, b = subject(tmp_path / "a"), subject(tmp_path / "b", "B")
    text = comparison_page(comparison(a, b)) if of_two else run_page(a)
    page = Page(text)
    assert not [link for link in page.links if not link.startswith(("#", "data:image/png;base64,"))]
    assert "url(http" not in text
    assert "@import" not in text
    assert len(page.ids) == len(set(page.ids))
    anchors = {link[1:] for link in page.links if link.startswith("#")}
    assert anchors <= set(page.ids)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src &#39;none&#39;; img-src data:;")
    for tag in ("style", "script"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest}&#39;" in policy
        assert tag == "style" or len(inline) < 12_000


def test_a_run_of_no_trace_and_no_rows(tmp_path: Path) -> None:
    made = subject(tmp_path / "empty", rows=[])
    rewrite_manifest(made.stored.path, manifest("empty") | {"ranks": []})
    page = Page(run_page(ComparisonSubject("A", Run(made.stored.path), Results(table([])), None)))
    assert "No step time" in page.text
    assert page.tags["svg"] == 0


def test_published_figures_are_marked(tmp_path: Path) -> None:
    published = {"published": {**PUBLISHED, "metadata": {"flags": ["<b>summed</b>"]}}, "ranks": []}
    rows = [row("time.step", 1.5, provenance="published", source="somebody", reason="summed over streams")]
    made = subject(tmp_path / "pub", "B", rows=rows)
    rewrite_manifest(made.stored.path, manifest("pub") | published)
    made = ComparisonSubject("B", Run(made.stored.path), made.results, None)
    text = comparison_page(comparison(subject(tmp_path / "a"), made))
    assert '<span class="tag published">published</span>' in text
    assert "Published by" in text
    assert "&lt;b&gt;summed&lt;/b&gt;" in text
    assert 'class="n published"' in run_page(made)


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, one = tmp_path / "report.html", subject(tmp_path / "run")
    write_page(run_page(one), path)
    assert run_page(one) == path.read_text(encoding="utf-8")  # the same run gives the same page
    check_page(Path("a.HTML"))
    before = path.read_text(encoding="utf-8")
    assert before.startswith("<!doctype html>")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(InputError, match=r"report\.html: cannot be written: disk full"):
        write_page("half", path)
    assert path.read_text(encoding="utf-8") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "run"]

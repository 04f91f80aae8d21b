# SPDX-License-Identifier: Apache-2.0
"""The HTML report of a run or a comparison, as one self-contained file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from cclbench.classify.kernel_labels import kernel_label, shorten_name
from cclbench.comparison.comparison import PARTS, Comparison, Versus
from cclbench.comparison.operators import OperatorTables
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.work import is_work_unknown
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.findings.finding import Finding
from cclbench.ground.units import humanise
from cclbench.operator_table import has_operators
from cclbench.present.charts.chart import FAILED, charts_of, merge_alike
from cclbench.present.charts.palette import colour_name
from cclbench.present.charts.waterfall import signed_time, waterfall_chart
from cclbench.present.facts_section import about_run, facts_section
from cclbench.present.figure_tables import (
    cell_text,
    comparison_cells,
    comparison_heads,
    unmatched_words,
    used_columns,
)
from cclbench.present.headline import headline_tiles, run_findings, step_story
from cclbench.present.html import render_page
from cclbench.present.kernels import absence_words, kernel_table
from cclbench.present.operators import NO_OPERATORS, operator_section
from cclbench.present.program_memory import AS_COMPILED, buffer_words, peak_owners, program_documents
from cclbench.present.sections import (
    family_rows,
    foremost_finding,
    has_roofline,
    kernel_notes,
    match_notes,
    remaining_works,
    replaced_rows,
    subject_headline,
    unmatched_notes,
    work_totals,
)
from cclbench.present.step_spans import step_spans
from cclbench.present.table import comparison_topics, missing_metrics, run_topics
from cclbench.present.words import (
    FITS,
    breakable_name,
    gain_words,
    hover_attribute,
    name_markup,
    operator_markup,
    prose_markup,
    quantity_markup,
)
from cclbench.record.metric_name import metric_name

if TYPE_CHECKING:
    from cclbench.present.board.origin import PageOrigin

_STEP: Final = metric_name("time.step")

MOST_WORKS: Final = 40
"""Most operators, and modules, listed for each difference."""
MOST_ROWS: Final = 200
"""Most rows of a table of a source without device steps."""
MOST_PROGRAMS: Final = 5
"""Most compiled programs whose memory is listed."""
MOST_OWNERS: Final = 20
"""Most owners of a program's temporaries at their peak."""
MOST_MOVERS: Final = 5
"""Most entries for each part of the difference."""


def run_page(
    subject: ComparisonSubject,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
    origin: PageOrigin | None = None,
    operators: OperatorTables | None = None,
) -> str:
    """The report of one run, as HTML; with `origin`, as a page of a site; see `operator_section`."""
    run = replace(subject, letter="")
    programs = program_documents(run.stored)
    timeline = step_spans(run.stored) if run.ranks else "the run has no trace"
    absent = [("timeline", timeline)] if isinstance(timeline, str) else []
    topics = run_topics(run)
    context = {
        "about": list(about_run(run)),
        "timeline": None if isinstance(timeline, str) else timeline,
        "story": step_story(run),
        "causes": run_findings(run),
        "tiles": headline_tiles(run),
        "most_rows": MOST_ROWS,
        "topics": topics,
        "has_ranges": any(line.cells[1] for _, lines in topics for line in lines),
        "operators": operator_section(run, engine=engine, progress=progress, operators=operators),
        "programs": programs[:MOST_PROGRAMS],
        "more_programs": len(programs[MOST_PROGRAMS:]),
        "most_owners": MOST_OWNERS,
        "as_compiled": AS_COMPILED,
        "origin": origin,
    }
    return render_page("run.html", _common_context([run], f"{run.id}: where the time goes", absent) | context)


def comparison_page(comparison: Comparison, *, in_site: bool = False) -> str:
    """The report of a comparison, as HTML; with `in_site`, with links to the site's other pages."""
    runs = comparison.subjects
    context = {
        "comparison": comparison,
        "in_site": in_site,
        "differences": [
            (versus, _short_verdict(versus, comparison), waterfall_chart(versus))
            for versus in comparison.versus
        ],
        "parts_of_step": PARTS,
        "most_movers": MOST_MOVERS,
        "most_works": MOST_WORKS,
        "most_rows": MOST_ROWS,
        "topics": comparison_topics(comparison),
        "lacking": merge_alike((run, NO_OPERATORS) for run in runs if not has_operators(run.stored)),
    }
    title = " against ".join(run.id for run in runs)
    return render_page("comparison.html", _common_context(runs, title) | context)


def _common_context(
    runs: Sequence[ComparisonSubject], title: str, absent: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    return {
        "title": title,
        "runs": runs,
        **_charts(runs, absent),
        "kernels": kernel_table(runs),
        "facts": [facts_section(run) for run in runs],
        "missing": missing_metrics(runs),
        **{function.__name__: function for function in _CALLED},
    }


def _charts(runs: Sequence[ComparisonSubject], absent: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The charts and texts that runs have, and failures; the others in words: headings by reason."""
    charts = charts_of(runs)
    drawn = [
        chart
        for chart in charts
        if chart.svg is not None or not chart.missing or chart.missing[0].startswith(FAILED)
    ]
    reasons: dict[str, list[str]] = {}
    missing = [(chart.heading, "; ".join(chart.missing)) for chart in charts if chart not in drawn]
    for heading, reason in (*absent, *missing):
        plain = heading if heading[1:2] == ":" else heading[0].lower() + heading[1:]
        reasons.setdefault(reason, []).append(plain)
    return {
        "traceless": all(run.summaries and not run.ranks for run in runs),
        "charts": drawn,
        "not_drawn": [
            ", ".join(headings) + (f" ({reason})" if reason else "") for reason, headings in reasons.items()
        ],
    }


def most_gain(finding: Finding) -> str:
    """Upper bound of a gain as a share of the step, in %."""
    return f"{100 * min(finding.gain_share or 0.0, 1.0):.1f}"


def least_gain(finding: Finding) -> str:
    """Lower bound of a gain as a share of the step, in %."""
    least, most = finding.gain_s or (0.0, 0.0)
    return f"{100 * min(finding.gain_share or 0.0, 1.0) * (least / most if most else 0.0):.1f}"


def seconds_markup(value: float, *lines: str) -> Markup:
    """A measured time, with hover text."""
    return quantity_markup(value, "s", "measured", *lines)


def kernel_markup(name: str, length: int = 0) -> Markup:
    """A kernel's name as `cclbench ops --by kernel` shows it, with the recorded one on hover."""
    return name_markup(name, length, shorten_name(kernel_label(name), FITS))


_CALLED: Final = (
    absence_words,
    breakable_name,
    buffer_words,
    operator_markup,
    colour_name,
    foremost_finding,
    gain_words,
    has_roofline,
    subject_headline,
    hover_attribute,
    humanise,
    kernel_notes,
    least_gain,
    most_gain,
    replaced_rows,
    family_rows,
    match_notes,
    kernel_markup,
    name_markup,
    prose_markup,
    peak_owners,
    remaining_works,
    seconds_markup,
    signed_time,
    used_columns,
    cell_text,
    comparison_cells,
    comparison_heads,
    unmatched_notes,
    unmatched_words,
    work_totals,
)
"""Functions for templates."""


def _short_verdict(versus: Versus, comparison: Comparison) -> str:
    """`B is 1.35× faster`: the verdict in few words; `step is longer` if the work may differ."""
    if versus.outcome == "no difference" and versus.ratio != 1:
        return "may be chance"
    if versus.ratio is None or versus.outcome not in ("faster", "slower"):
        return versus.outcome
    factor = humanise(max(versus.ratio, 1 / versus.ratio), "ratio")
    pair = [subject for subject in comparison.subjects if subject.letter in (versus.base, versus.other)]
    if versus.measure == _STEP and any(map(is_work_unknown, pair)):
        return f"{versus.other}'s step is {factor} {'shorter' if versus.outcome == 'faster' else 'longer'}"
    per = "" if versus.measure == _STEP else " per token"
    return f"{versus.other} is {factor} {versus.outcome}{per}"

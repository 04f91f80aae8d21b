# SPDX-License-Identifier: Apache-2.0
"""Brief answers: within 2 kB whatever the document holds, what matters first, and nothing that is missing."""

from __future__ import annotations

import json
from typing import Any

from helpers.hand_results import by_rank, found
from hypothesis import given
from hypothesis import strategies as st

from cclbench.present.brief import BRIEF_BYTES, brief_answer, brief_text

RUN = {"id": "job-1", "accelerators": ["H100"], "ranks_found": [0, 1], "steps": [3], "notes": []}
RUN["truncated"] = []


def sequences(rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    head = {"schema": "sequences.v1", "run": "job-1", "length": 2, "kernel_time_s": 1.5, "notes": []}
    return head | {"rows": rows} | changes


def test_numbers_have_units_and_missing_values_are_left_out() -> None:
    row = {"kernels": ["a", "b"], "count": 3, "time_s": 0.0125, "share": None, "gap_s": 0.0}
    assert brief_answer(sequences([row])) == {
        "rows": [{"kernels": ["a", "b"], "count": 3, "time": "12.5 ms", "gap": "0 s"}],
        "run": "job-1",
        "length": 2,
        "kernel_time": "1.50 s",
        "next": ["sequences RUN with another length", "--json without --brief: the whole document"],
    }


def test_what_does_not_fit_is_counted() -> None:
    rows = [
        {"kernels": [f"kernel{n}"], "count": n, "time_s": 1.0, "share": 0.1, "gap_s": 0.0} for n in range(99)
    ]
    answer = brief_answer(sequences(rows))
    assert answer["left_out"] == {"rows": 99 - len(answer["rows"])}
    assert [row["count"] for row in answer["rows"]] == [*range(len(answer["rows"]))]
    assert len(answer["rows"]) >= 5


def test_the_culprit_is_the_first_field_and_its_gain_is_in_words() -> None:
    one = found(*by_rank("time.step", 1.0, 1.0), *by_rank("time.idle_host_by", 0.2, 0.1, category="loader"))
    import msgspec

    rows = [msgspec.to_builtins(one["data_loading"])]
    answer = brief_answer({"schema": "findings.v1", "run": RUN, "findings": rows})
    assert next(iter(answer)) == "findings"
    (shown,) = answer["findings"]
    assert "200 ms" in shown["claim"]
    assert "ranks" not in shown  # none stands out
    nothing = brief_answer({"schema": "findings.v1", "run": RUN, "findings": []})
    assert nothing["answer"] == "no cause was found that would gain 1 % of the time"
    unknown = brief_answer({"schema": "findings.v1", "run": RUN, "findings": [], "unknown": "no steps"})
    assert unknown["answer"] == "no step time: no steps"


@given(st.lists(st.text(max_size=3000), max_size=20), st.text(max_size=500))
def test_any_text_fits_and_the_same_document_gives_the_same_bytes(texts: list[str], run: str) -> None:
    rows = [{"kernels": texts, "count": 1, "time_s": 1.0, "share": 1.0, "gap_s": 0.0}] * 30
    document = sequences(rows, run=run, notes=texts)
    text = brief_text(brief_answer(document))
    assert len(text.encode("utf-8", "surrogatepass")) <= BRIEF_BYTES
    assert json.loads(text)["next"]
    assert text == brief_text(brief_answer(document))

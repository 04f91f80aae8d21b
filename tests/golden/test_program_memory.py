# SPDX-License-Identifier: Apache-2.0
"""Buffers of real compiled programs: sums, the peak of the heap, and the measured peak that they explain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cclbench.analyzers.view.histories import of_run
from cclbench.cli import main
from cclbench.present.program_memory import peak_allocation, program_documents, program_rows


def by_kind(program: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {
        f"{row['kind']} {row['memory_space']}": (row["allocations"], row["bytes"])
        for row in program["buffers"]
    }


def test_a_training_step_on_an_h100(measure: Any, repository: Path) -> None:
    run = measure(repository / "traces/tiny-jax-h100")
    (program,) = program_documents(run)
    assert (program["module"], program["bytes"], program["reasons"]) == ("jit_train_step", 4_666_540_952, [])
    kinds = {"parameter 0": (2, 65_536), "parameter_output 0": (18, 209_715_200), "output 0": (2, 156)}
    kinds |= {"temporary 0": (1, 4_456_759_568), "thread_local 0": (123, 492)}
    assert by_kind(program) == kinds
    assert sum(row["bytes"] for row in program["buffers"]) == program["bytes"]
    peak = program["peak"]
    live = sum(row["bytes"] for row in peak["live"])
    assert (len(peak["live"]), live, peak["untraced"], peak["unused"]) == (68, 4_456_742_912, 1056, 15_600)
    # Scores and probabilities of attention in each of 4 layers: 16 sequences, 16 heads, 512² of float32.
    attention = [row for row in peak["live"] if row["bytes"] == 16 * 16 * 512 * 512 * 4]
    sites = {f"tiny_jax.py({line}): attention" for line in (79, 81)}
    assert {row["call_site"] for row in attention} == sites
    (history,) = of_run(run)
    held = {"bytes": 4_456_759_808, "assigned": 4_456_759_568}
    assert peak_allocation(history, [program]) == {"module": "jit_train_step", "kind": "temporary", **held}


def test_its_rows_and_page_say_that_they_are_compiled(measure: Any, repository: Path, tmp_path: Path) -> None:
    source = repository / "traces/tiny-jax-h100"
    rows = list(program_rows(program_documents(measure(source))))
    assert {(row["source"], row["module"]) for row in rows} == {("compiler", "jit_train_step")}
    sizes = {row["buffers"]: (row["blocks"], row["bytes"]) for row in rows}
    assert sizes["temporaries"] == (1, 4_456_759_568)
    assert sum(size for _, size in sizes.values()) == 4_666_540_952
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    page = tmp_path / "page.html"
    assert main(["report", str(source), "-o", str(page), "--store", str(tmp_path / "runs"), "-q"]) == 0
    _, _, rest = page.read_text(encoding="utf-8").partition('<section id="programs">')
    section = rest.partition("</section>")[0]
    assert "as compiled, not measured" in section
    assert "4,456,759,568 bytes, assigned by the compiler" in section
    assert "tiny_jax.py(79): attention" in section  # it holds most of them
    unknown = {
        "provenance": "compiler", "module": "jit_f", "bytes": None, "buffers": [], "reasons": ["a", "b"],
    }  # fmt: skip
    assert list(program_rows([unknown])) == [{"source": "compiler", "module": "jit_f", "reason": "a; b"}]


def test_a_training_step_on_cpu_devices(measure: Any, repository: Path) -> None:
    (program,) = program_documents(measure(repository / "traces/tiny-jax-dp2-tp4-cpu"))
    assert (program["module"], program["bytes"]) == ("jit_train_step", 4_282_280)
    assert by_kind(program)["temporary 0"] == (1, 3_036_256)
    assert sum(row["bytes"] for row in program["peak"]["live"]) == 3_036_160


def test_a_convolution_on_eight_gpus(measure: Any, test_data: Path) -> None:
    run = measure(test_data / "xprof" / "mi300x_8gpu_jax_conv.xplane.pb")
    programs = program_documents(run)
    assert (len(programs), programs[0]["module"]) == (8, "jit_forward_3d_conv")
    matched = [peak_allocation(history, programs) for history in of_run(run)]
    expected = {"module": "jit_forward_3d_conv", "kind": "temporary", "bytes": 579_072_256}
    assert matched == [expected | {"assigned": 579_072_256}] * 8


def test_parameters_in_the_memory_of_a_tpus_host(measure: Any, test_data: Path) -> None:
    run = measure(test_data / "xprof" / "tpu_v6e_4plane_host_offload_psum.xplane.pb")
    program = program_documents(run)[0]
    assert program["module"] == "jit_f"
    assert by_kind(program)["parameter_output 5"] == (3, 3 * 5 * 1 << 30)
    assert by_kind(program)["temporary 1"] == (1, 0)

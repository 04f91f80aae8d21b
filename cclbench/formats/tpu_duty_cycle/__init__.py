# SPDX-License-Identifier: Apache-2.0
"""Duty cycles of TPUs, sampled from libtpu's RuntimeMetricService, a row for each chip and moment (CSV).

`duty_cycle_pct` is `tpu.runtime.tensorcore.dutycycle.percent`, as `tpu-info` shows it.  A file is of one role
of the job, such as the sampler's or the trainer's machines; its name says which.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.counter_rows import CounterRows
from cclbench.formats.texts import strip_decoration

_HEAD: Final = ("ts", "wall", "phase", "chip", "duty_cycle_pct")
_ROLE: Final = re.compile(r"(?:.*duty_cycle_)?([A-Za-z][A-Za-z0-9_-]{0,60})\.csv")
_COUNTERS: Final = {
    "duty_cycle_pct": ("gpu_utilization", Decimal("0.01")),
    "mem_used_mib": ("memory_used", Decimal(1 << 20)),
}
_MOST_PERCENT: Final = 100


class TpuDutyCycle(EvidenceReader):
    """Reader of tables of TPUs' duty cycles."""

    name = "tpu_duty_cycle"
    description = "duty cycles and memory of TPUs over time (CSV), a file for each role of a job"
    extensions: tuple[str, ...] = (".csv",)
    capture = "samples of libtpu's RuntimeMetricService with the columns `ts,wall,phase,chip,duty_cycle_pct`"
    versions = "the only one"
    figures = re.compile(rf"ts|chip|{'|'.join(_COUNTERS)}")
    tested = "real: sampler and trainer of a job on two nodes of eight TPU v5e"

    def sniff(self, head: bytes) -> float:
        """Sure of the names of the first columns."""
        return float(strip_decoration(head).startswith(",".join(_HEAD).encode()))

    def read(self, path: Path) -> Evidence:
        """Rows of `counters`: each sample is the value at its moment."""
        rows = CounterRows(path)
        first, lines = rows.first_and_all()
        names = [name.strip() for name in first.split(",")]
        for cells in rows.csv_cells(lines):
            if cells and cells[0] == _HEAD[0]:
                continue
            if len(cells) != len(names):
                raise rows.error_at_line(f"{len(cells)} cells, not {len(names)}")
            row = dict(zip(names, cells, strict=True))
            seconds = rows.parse_number(row["ts"])
            at_ns = None if seconds is None else rows.check_time(int(seconds * 10**9))
            for name, (counter, factor) in _COUNTERS.items():
                value = rows.parse_number(row[name]) if name in row else None
                if value is None:
                    continue
                if name == "duty_cycle_pct" and value > _MOST_PERCENT:
                    raise rows.error_at_line("a duty cycle of more than 100 %")
                device = rows.device_index(row["chip"])
                rows.add_row(counter, value * factor, device=device, start_ns=at_ns, end_ns=at_ns)
        evidence = rows.evidence()
        if role := _ROLE.fullmatch(path.name):
            evidence.facts["role"] = role[1]
        return evidence


READERS.add(TpuDutyCycle.name, TpuDutyCycle(), origin=__name__)

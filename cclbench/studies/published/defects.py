# SPDX-License-Identifier: Apache-2.0
"""Known defects of published numbers: the entries of `defects.yaml`, and when each applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import filter as matching
from importlib.resources import files
from typing import Final

import msgspec

from cclbench.studies.published.columns import COLUMNS
from cclbench.studies.published.leaderboard import PublishedRow


class Defect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A known defect of the numbers in some columns."""

    key: str
    columns: tuple[str, ...]
    when: str
    """When it applies: a key of `_WHEN`."""
    words: str
    no_number: bool = False
    """Whether the number means that there is no data; a reason then replaces it."""

    def __post_init__(self) -> None:
        """Expand patterns to column names."""
        columns = tuple(column for pattern in self.columns for column in matching(COLUMNS, pattern))
        msgspec.structs.force_setattr(self, "columns", columns)

    def applies_to(self, row: PublishedRow, value: float) -> bool:
        """Whether the defect applies to that row and value."""
        return _WHEN[self.when](row, value)


def _splits_tensors(row: PublishedRow) -> bool:
    """Whether each layer's tensors are split over devices, which requires collectives."""
    return (row.whole_number("tp") or 1) > 1


_WHEN: Final[Mapping[str, Callable[[PublishedRow, float], bool]]] = {
    "always": lambda _, __: True,
    "is -1": lambda _, value: value == -1,
    "is 0": lambda _, value: value == 0,
    "is not 0": lambda _, value: value != 0,
    "exceeds the step": lambda row, value: value > row.number_in("avg_step_time"),
    "equals the step": lambda row, value: value == row.number_in("avg_step_time"),
    "above 0 on one device": lambda row, value: row.whole_number("total_count") == 1 and value > 0,
    "on more than 16 devices": lambda row, _: (row.whole_number("total_count") or 0) > 16,
    "on TPUs": lambda row, _: row.is_on_tpu,
    "not on TPUs": lambda row, _: not row.is_on_tpu,
    "all-gathers, not on TPUs": lambda row, _: (
        not row.is_on_tpu and row.number_in("collective_vol_allgather_gb") > 0
    ),
    "traced by nsys": lambda row, _: row.traced_by("nsys"),
    "traced as JSON alone": lambda row, _: (
        not row.is_on_tpu and row.traced_by("json") and not row.traced_by("nsys")
    ),
    "not of training": lambda row, _: row.text("phase") != "training",
    "split, but no communication": lambda row, _: (
        _splits_tensors(row) and row.number_in("total_communication_time") == 0
    ),
    "split, but no volume": lambda row, _: (
        _splits_tensors(row) and row.number_in("collective_vol_total_gb") == 0
    ),
}
DEFECTS: Final = msgspec.yaml.decode(
    files(__package__).joinpath("defects.yaml").read_bytes(), type=tuple[Defect, ...]
)


def defects_of(row: PublishedRow, column: str) -> Iterator[Defect]:
    """Defects of the row's number in that column; none if it has no number."""
    value = row.metrics.get(column)
    if value is not None:
        yield from (
            defect for defect in DEFECTS if column in defect.columns and defect.applies_to(row, value)
        )

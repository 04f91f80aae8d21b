# SPDX-License-Identifier: Apache-2.0
"""Sweeps of nccl-tests and rccl-tests: wrong results, bandwidth by size against the model, latency, dips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from cclbench.analyzers.timings import group_size_words
from cclbench.analyzers.view.collectives import UNKNOWN
from cclbench.analyzers.view.columns import with_words
from cclbench.classify import bus_factor
from cclbench.formats import READERS
from cclbench.ground.errors import InputError
from cclbench.ground.text import first_few
from cclbench.ground.units import KIB, humanise, size_text
from cclbench.hardware.collectives import NoPrice
from cclbench.hardware.deviation import Deviation
from cclbench.hardware.matching import StatedMachine, fitting_systems, stated_machine, system_contradiction
from cclbench.hardware.sweep import sweeps_of
from cclbench.hardware.system import System
from cclbench.hardware.validation import SweepValidation, validate_sweeps
from cclbench.machine import Machine
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_NS_PER_S: Final = 1e9
_STATED_DIGIT: Final = 1e7
"""Bandwidths are printed in 0.01 GB/s."""
_AGREE: Final = 0.01
_DIP: Final = 0.9
"""Bandwidth below this factor of a smaller size's is a dip."""
_SMALL_BYTES: Final = 64 * KIB
"""Up to this size a message's time is mostly latency."""
_COLUMNS: Final = (
    FigureColumn(name="size", unit="B", key=True),
    FigureColumn(name="time", unit="s"),
    FigureColumn(name="algbw", unit="B/s"),
    FigureColumn(name="busbw", unit="B/s", lead=True),
    FigureColumn(name="time in place", unit="s"),
    FigureColumn(name="algbw in place", unit="B/s", detail=True),
    FigureColumn(name="busbw in place", unit="B/s"),
    FigureColumn(name="wrong", unit="count"),
    FigureColumn(name="of model", unit="ratio"),
    FigureColumn(name="model", unit="B/s", detail=True),
    FigureColumn(name="model low", unit="B/s", detail=True),
    FigureColumn(name="model high", unit="B/s", detail=True),
)
_OVERVIEW: Final = (
    FigureColumn(name="sweep", key=True),
    FigureColumn(name="collective"),
    FigureColumn(name="ranks", unit="count"),
    FigureColumn(name="nodes", unit="count"),
    FigureColumn(name="busbw", unit="B/s", lead=True),
    FigureColumn(name="smallest", unit="s"),
    FigureColumn(name="of model", unit="ratio"),
    FigureColumn(name="wrong", unit="count"),
    FigureColumn(name="dips at"),
)
"""Highest bandwidth, time of the smallest message, median over sizes of measured / modelled bandwidth."""


class _Setting(NamedTuple):
    """What is equal in all rows of one sweep; None where not stated."""

    kind: str | None
    file: str | None
    library: str | None
    group_size: int | None
    nodes: int | None
    dtype: str | None

    @property
    def group_words(self) -> str:
        """`16 ranks on 2 nodes`, as far as stated."""
        return group_size_words(self.group_size, self.nodes)

    @property
    def bus_factor(self) -> float | None:
        """busbw / algbw; None where the collective or its ranks are not stated."""
        is_stated = self.kind is not None and self.group_size is not None
        return bus_factor(self.kind or "", self.group_size or 1) if is_stated else None


@dataclass(frozen=True, slots=True)
class _Measured:
    """Means of a sweep's rows of one size and placement: s, B/s; None where not known."""

    time_s: float | None = None
    algbw: float | None = None
    busbw: float | None = None
    wrong: int | None = None
    """Sum over the rows."""


_Points = Mapping[tuple[int, bool], _Measured]
"""By size, B, and whether in place."""


@dataclass(frozen=True, slots=True)
class _SummarisedSweep:
    """A sweep, and its comparison with the model, or why there is none."""

    setting: _Setting
    title: str
    points: _Points
    checked: SweepValidation | None
    unpriced: str | None

    @property
    def deviations(self) -> dict[int, Deviation]:
        """Measured and predicted times by size."""
        return {each.size: each for each in self.checked.size_deviations} if self.checked else {}

    @property
    def model_share(self) -> float | None:
        """Median over sizes of measured / predicted bandwidth; None without a prediction."""
        ratios = [each.predicted_s / each.measured_s for each in self.deviations.values()]
        return median(ratios) if ratios else None

    @property
    def wrong(self) -> int | None:
        """Number of wrong results; None where no row was checked."""
        counts = [point.wrong for point in self.points.values() if point.wrong is not None]
        return sum(counts) if counts else None


def summarise_sweeps(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """All sweeps of the source, with a table of sizes each; wrong results first."""
    benchmarks = [name for name in READERS if READERS.get(name).benchmark]
    rows = with_words(inputs.view.table("timings"), "source", benchmarks)
    rows = rows.filter(rows["bytes"].is_valid())
    points_by_setting = _sweeps_of_rows(rows)
    if not points_by_setting:
        return
    files = Counter(setting.file for setting in points_by_setting)
    sweeps = [
        _SummarisedSweep(
            setting, _title(setting, with_file=len(files) > 1), points, *_validation(inputs, rows, setting)
        )
        for setting, points in points_by_setting.items()
    ]
    tables = [_size_table(sweep, detail=len(sweeps) > 2) for sweep in sweeps]
    if len(sweeps) == 1:
        (sweep,) = sweeps
        heading, sentences = f"Sweep of {sweep.title}", list(_sweep_sentences(sweep))
        absent = list(_absences(sweep))
    else:
        heading, sentences = f"{len(sweeps)} sweeps of collectives", list(_best_sentence(sweeps))
        tables.insert(0, _overview(sweeps, by_file=max(files.values()) == 1))
        reasons = Counter(words for sweep in sweeps for words in _absences(sweep))
        absent = [f"{count} sweep{'s'[: count > 1]}: {words}" for words, count in reasons.items()]
    yield SourceSummary(
        kind="sweep",
        heading=heading,
        warnings=[
            words if len(sweeps) == 1 else f"{sweep.title}: {words}"
            for sweep in sweeps
            for words in _failures(sweep)
        ],
        sentences=sentences,
        tables=tables,
        absent=absent,
    )


def _sweeps_of_rows(rows: pa.Table) -> dict[_Setting, _Points]:
    """Points of each sweep, by size; sweeps by kind, file and the rest of their setting."""
    keys = [*_Setting._fields, "bytes", "in_place"]
    plain = rows.select([*keys, "dur_ns", "algbw", "busbw", "errors"])
    plain = plain.set_column(
        plain.column_names.index("in_place"), "in_place", plain["in_place"].fill_null(False)
    )
    plain = plain.cast(pa.schema([(f.name, _plain_type(f.type)) for f in plain.schema]))
    points_by_setting: dict[_Setting, dict[tuple[int, bool], _Measured]] = {}
    grouped = plain.group_by(keys).aggregate(
        [(name, "mean") for name in ("dur_ns", "algbw", "busbw")] + [("errors", "sum")]
    )
    for row in grouped.to_pylist():
        setting = _Setting(*(row[name] for name in _Setting._fields))
        seconds = None if row["dur_ns_mean"] is None else row["dur_ns_mean"] / _NS_PER_S
        algbw = _rate(row["bytes"], seconds, 1.0, row["algbw_mean"])
        busbw = _rate(row["bytes"], seconds, setting.bus_factor, row["busbw_mean"])
        point = _Measured(seconds, algbw, busbw, row["errors_sum"])
        points_by_setting.setdefault(setting, {})[row["bytes"], row["in_place"]] = point
    order = sorted(points_by_setting, key=lambda setting: [(value is not None, value) for value in setting])
    return {setting: dict(sorted(points_by_setting[setting].items())) for setting in order}


def _rate(size: int, seconds: float | None, factor: float | None, stated: float | None) -> float | None:
    """size · factor / time, as small bandwidths are stated with few digits; the stated one if it differs."""
    if not seconds or factor is None or not size:
        return stated or None
    rate = size * factor / seconds
    differs = stated is not None and abs(stated - rate) > _STATED_DIGIT / 2 + _AGREE * rate
    return stated if differs else rate


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _rows_of(rows: pa.Table, setting: _Setting) -> pa.Table:
    """The rows of one sweep."""
    for name, value in zip(setting._fields, setting, strict=True):
        column = rows[name].cast(_plain_type(rows[name].type))
        rows = rows.filter(pc.is_null(column) if value is None else pc.equal(column, value))
    return rows


def _title(setting: _Setting, *, with_file: bool) -> str:
    """`all_reduce, 16 ranks on 2 nodes, float`."""
    file = setting.file if with_file else None
    return ", ".join(filter(None, (setting.kind or UNKNOWN, setting.group_words, setting.dtype, file)))


def _validation(
    inputs: SummaryInputs, rows: pa.Table, setting: _Setting
) -> tuple[SweepValidation | None, str | None]:
    """The sweep against the model of its system; else why there is none."""
    facts = inputs.view.settings.get(setting.file or "", {})
    version = facts.get("library_version")
    try:
        sweeps, left_out = sweeps_of(_rows_of(rows, setting), None if version is None else str(version))
    except InputError as error:
        return None, f"no model: {error.what}"
    if not sweeps:
        why = first_few([f"{count:,} rows {reason}" for reason, count in left_out.items()])
        return None, f"no model: {why}"
    stated = stated_machine(setting.file or "", facts, sweeps)
    system = _system(inputs.view.machine, stated)
    if isinstance(system, str):
        return None, f"no model: {system}"
    (checked,) = validate_sweeps(sweeps, system)
    if isinstance(checked.deviations, NoPrice):
        return None, f"no model of {system.id}: {checked.deviations.reason}"
    return checked, None


def _system(machine: Machine, stated: StatedMachine) -> System | str:
    """The card's system, else the only one of the catalog that fits; or why there is none."""
    named = machine.named_system
    if named.value is not None:
        return system_contradiction(stated, named.value) or named.value
    fits = fitting_systems([stated])
    if len(fits) == 1:
        return fits[0]
    card = "a card can name the system (hardware.system)"
    if not fits:
        return f"no machine in the catalog fits what the file states; {card}"
    names = first_few([system.id for system in fits])
    return f"{len(fits)} machines in the catalog fit what the file states ({names}); {card}"


def _size_table(sweep: _SummarisedSweep, *, detail: bool) -> FigureTable:
    setting, points, by_size = sweep.setting, sweep.points, sweep.deviations
    rows = list[tuple[Cell, ...]]()
    for size in dict.fromkeys(size for size, _ in points):
        out, in_place = (points.get((size, placement), _Measured()) for placement in (False, True))
        model = by_size.get(size)
        seconds = (model.predicted_s, model.high_s, model.low_s) if model else ()
        busbw: list[Cell] = [size / each * (setting.bus_factor or 1.0) for each in seconds]
        counts = [each.wrong for each in (out, in_place) if each.wrong is not None]
        rows.append(
            (
                *(size, out.time_s, out.algbw, out.busbw),
                *(in_place.time_s, in_place.algbw, in_place.busbw),
                sum(counts) if counts else None,
                model.predicted_s / out.time_s if model and out.time_s else None,
                *(busbw or [None] * 3),
            )
        )
    return FigureTable(
        subject=setting.kind or UNKNOWN,
        title=sweep.title,
        columns=_columns(_COLUMNS, sweep.wrong or 0),
        rows=rows,
        detail=detail,
        ascending=True,
    )


def _columns(columns: Sequence[FigureColumn], wrong: int) -> tuple[FigureColumn, ...]:
    """The columns, with that of wrong results on a terminal if there are any."""
    return tuple(replace(each, detail=not wrong) if each.name == "wrong" else each for each in columns)


def _overview(sweeps: Sequence[_SummarisedSweep], *, by_file: bool) -> FigureTable:
    """A row for each sweep: its highest bandwidth, its smallest message, and whether something is wrong."""
    rows: list[tuple[Cell, ...]] = [
        (
            sweep.setting.file if by_file else sweep.title,
            sweep.setting.kind,
            sweep.setting.group_size,
            sweep.setting.nodes,
            max((point.busbw for point in sweep.points.values() if point.busbw), default=None),
            None if (latency := _latency(sweep.points)) is None else latency[1],
            sweep.model_share,
            sweep.wrong,
            ", ".join(size_text(size) for _, (size, _) in _dips(sweep.points)) or None,
        )
        for sweep in sweeps
    ]
    wrong = sum(sweep.wrong or 0 for sweep in sweeps)
    return FigureTable(subject="sweeps", title="Sweeps", columns=_columns(_OVERVIEW, wrong), rows=rows)


def _failures(sweep: _SummarisedSweep) -> Iterator[str]:
    """Wrong results, with the sizes; sizes that are far slower than the model."""
    wrong = {key: point.wrong for key, point in sweep.points.items() if point.wrong}
    if wrong:
        places = [
            f"{size_text(size)} {'in' if in_place else 'out of'} place: {count:,}"
            for (size, in_place), count in wrong.items()
        ]
        yield f"{sum(wrong.values()):,} wrong results ({first_few(places)})"
    if sweep.checked is not None and sweep.checked.suspicion:
        yield sweep.checked.suspicion


def _best_sentence(sweeps: Sequence[_SummarisedSweep]) -> Iterator[str]:
    """The sweep with the highest bandwidth."""
    bandwidths = [
        (point.busbw, sweep.title) for sweep in sweeps for point in sweep.points.values() if point.busbw
    ]
    if bandwidths:
        busbw, title = max(bandwidths)
        yield f"At most {humanise(busbw, 'B/s')} bus bandwidth: {title}."


def _sweep_sentences(sweep: _SummarisedSweep) -> Iterator[str]:
    points, by_size = sweep.points, sweep.deviations
    bandwidths = [(point.busbw, size, in_place) for (size, in_place), point in points.items() if point.busbw]
    if bandwidths:
        busbw, size, in_place = max(bandwidths)
        where = f"at {size_text(size)}, {'in' if in_place else 'out of'} place"
        yield f"At most {humanise(busbw, 'B/s')} bus bandwidth, {where}."
    if (latency := _latency(points)) is not None:
        yield f"A message of {size_text(latency[0])} takes {humanise(latency[1], 's')}."
    dips = _dips(points)
    if dips:
        low, high = min(dips, key=lambda dip: dip[1][1] / dip[0][1])
        before, after = (f"{humanise(busbw, 'B/s')} at {size_text(size)}" for size, busbw in (low, high))
        sizes = first_few([size_text(size) for _, (size, _) in dips])
        yield f"Bandwidth dips at {sizes}: {after} after {before}."
    if sweep.model_share is not None:
        within = sum(each.is_within_band for each in by_size.values())
        yield (
            f"{humanise(sweep.model_share, 'ratio')} of the model's bandwidth in the median of {len(by_size)}"
            f" sizes, {within} of them within its 80 % band."
        )
    checked = sum(point.wrong is not None for point in points.values())
    if checked and not sweep.wrong:
        yield f"No wrong results in {checked:,} checked rows."


def _latency(points: _Points) -> tuple[int, float] | None:
    """Size and time of the smallest message out of place; None if it is large or its time unknown."""
    times = [(size, point.time_s) for (size, in_place), point in points.items() if not in_place and size]
    size, seconds = min(times, default=(0, None))
    return (size, seconds) if seconds is not None and size <= _SMALL_BYTES else None


def _dips(points: _Points) -> list[tuple[tuple[int, float], tuple[int, float]]]:
    """Sizes out of place with less than `_DIP` times the bandwidth of a smaller size, which stands first.

    Below `_SMALL_BYTES`, where latency varies from size to size, there are none.
    """
    curve = [(size, p.busbw) for (size, in_place), p in points.items() if p.busbw and not in_place]
    dips, highest = [], (0, 0.0)
    for size, busbw in curve:
        if busbw >= highest[1]:
            highest = (size, busbw)
        elif size >= _SMALL_BYTES and busbw < _DIP * highest[1]:
            dips.append((highest, (size, busbw)))
    return dips


def _absences(sweep: _SummarisedSweep) -> Iterator[str]:
    if sweep.unpriced is not None:
        yield sweep.unpriced
    if not any(point.busbw for point in sweep.points.values()):
        yield "no bandwidth: none is stated, and times or ranks are unknown"
    if _latency(sweep.points) is None:
        yield f"no latency: no time of a message up to {size_text(_SMALL_BYTES)}"
    if sweep.wrong is None:
        yield "whether results are right is not stated (nccl-tests checks them with -c 1)"

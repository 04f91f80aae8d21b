# SPDX-License-Identifier: Apache-2.0
"""Calibration on sweeps whose truth is known, because they were made from the model itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from cclbench.errors import InputError, UsageError
from cclbench.hardware.calibration import (
    Calibration,
    calibrate,
    deviations,
    left_out_by_nodes,
    left_out_by_size,
    read_calibration,
    write_calibration,
)
from cclbench.hardware.collectives import Group, Prediction, Refusal, costs, group_of
from cclbench.hardware.collectives.cost import EXPECTED, Assumed
from cclbench.hardware.deviation import Deviation, summary
from cclbench.hardware.fabric import Fabric, Transport
from cclbench.hardware.sweep import Sweep, sweeps_of
from cclbench.hardware.system import ScaleOut, ScaleUp, System
from cclbench.schema import TIMINGS

UP = Fabric("up", "fabric", "scale_up", "switch", 25e9, usable_fraction=0.8)
OUT = Fabric(
    "out",
    "fabric",
    "scale_out",
    "fat-tree",
    25e9,
    usable_fraction=0.9,
    transports={"ib-verbs": Transport(None)},
)
NODE = System(
    "node",
    "system",
    "an-accelerator",
    4,
    ScaleUp(UP, "switch", 4, links=12, bytes_per_s=300e9),
    ScaleOut(OUT, nics=4, bytes_per_s=25e9, transport="ib-verbs"),
    "ampere",
    "intel",
)
SIZES = tuple(4**power for power in range(2, 16))


def swept(nodes: int, assumed: Assumed, bump: float = 1.0, kind: str = "all_reduce") -> Sweep:
    """What a machine of these parameters measures, times `bump` at every size."""
    group = group_of(NODE, range(4 * nodes))
    assert isinstance(group, Group)
    sizes = np.array(SIZES, np.float64)
    times = np.min([cost.time_s(sizes) for cost in costs(kind, group, assumed)], axis=0)
    return Sweep(kind, 4 * nodes, nodes, SIZES, tuple((times * bump).tolist()))


TRUE = Assumed(launch_s=2e-6, latency=1.25, rate=0.9, edge=1)


def calibrated(*given: Sweep) -> Calibration:
    """The calibration by these sweeps."""
    found = calibrate(given, NODE)
    assert isinstance(found, Calibration), found
    return found


def predicted(by: Calibration, size: float, ranks: int, kind: str = "all_reduce") -> Prediction:
    """A prediction of the calibrated model."""
    found = by.price(kind, size, range(ranks), NODE)
    assert isinstance(found, Prediction), found
    return found


def test_parameters_of_the_machine_are_found() -> None:
    """Launch, latency and rate that made the sweeps; then an unseen node count is exact."""
    found = calibrated(swept(2, TRUE), swept(8, TRUE))
    assert (found.launch_s, found.latency, found.rate) == (TRUE.launch_s, TRUE.latency, TRUE.rate)
    truth = swept(4, TRUE)
    own = deviations(truth, NODE, found)
    assert isinstance(own, list)
    assert max(abs(each.error) for each in own) < 1e-9
    assert predicted(found, 1e6, 16).basis == "calibrated"


def test_a_swept_group_is_interpolated_between_its_sizes() -> None:
    """Between 4 and 16 MiB in log time over log size: 8 MiB is their geometric mean, whatever the model."""
    sweep = Sweep("all_reduce", 4, 1, (2**20, 2**22, 2**24), (1e-3, 2e-3, 8e-3))
    by = calibrated(sweep)
    found = predicted(by, 2**23, 4)
    assert found.time_s[0] == pytest.approx(4e-3)
    assert found.reason is not None
    assert "measured among 4 ranks" in found.reason
    # Beyond its ends the model's course goes on, from the end's ratio.
    model = dict(zip(SIZES, swept(1, by.assumed).seconds, strict=True))
    beyond = predicted(by, 2**26, 4)
    assert beyond.time_s[0] == pytest.approx(8e-3 * model[2**26] / model[2**24])


def test_the_ratio_is_interpolated_over_node_counts() -> None:
    """Twice the model on 2 nodes, eight times on 8: four times on 4, in equal steps of log nodes."""
    model = Assumed(6e-6, 1.0, 1.0, 1)
    by = Calibration("node", 6e-6, 1.0, 1.0, (swept(2, model, 2.0), swept(8, model, 8.0)))
    truth = swept(4, model, 4.0)
    found = predicted(by, SIZES[5], 16)
    assert found.time_s[0] == pytest.approx(truth.seconds[5])
    assert "2, 8 nodes" in str(found.reason)


def test_one_node_learns_parameters_but_no_ratio_from_several() -> None:
    """Across nodes all is twice as slow: inside one node only fitted parameters count."""
    model = Assumed(6e-6, 1.0, 1.0, 1)
    by = Calibration("node", 6e-6, 1.0, 1.0, (swept(2, model, 2.0),))
    assert predicted(by, SIZES[5], 4).time_s[0] == pytest.approx(swept(1, model).seconds[5])
    other = predicted(by, SIZES[5], 8, "all_gather")
    assert other.time_s[0] == pytest.approx(swept(2, model, kind="all_gather").seconds[5])
    assert "fitted to other groups" in str(other.reason)


def test_a_barrier_goes_by_the_parameters_of_the_machine() -> None:
    """It is an all-reduce of a byte, of which the sweeps tell launch and latency."""
    found = predicted(calibrated(swept(2, TRUE), swept(4, TRUE)), 0, 8, "barrier")
    group = group_of(NODE, range(8))
    assert isinstance(group, Group)
    byte = np.ones(1)
    expected = min(cost.time_s(byte)[0] for cost in costs("all_reduce", group, TRUE))
    assert found.time_s[0] == pytest.approx(expected)


def test_leave_one_out_errors_are_reported() -> None:
    """A machine that is the model: nothing is missed; one wild size is missed by what it is off."""
    clean = calibrated(swept(2, TRUE), swept(4, TRUE), swept(8, TRUE))
    assert max(own.p90 for own in clean.by_nodes.values()) < 1e-9
    sweep = Sweep("all_reduce", 4, 1, (2**20, 2**21, 2**22), (1e-3, 8e-3, 4e-3))
    left = left_out_by_size(sweep, NODE)
    assert isinstance(left, list)
    assert left[1].predicted_s == pytest.approx(2e-3)
    assert left[1].error == pytest.approx(-0.75)
    assert set(left_out_by_nodes([swept(2, TRUE), swept(4, TRUE)], NODE)) == {2, 4}
    assert left_out_by_nodes([sweep], NODE) == {}


def test_the_band_is_what_leaving_out_missed() -> None:
    """Five per cent at least; without such errors a factor of two."""
    clean = predicted(calibrated(swept(2, TRUE), swept(4, TRUE), swept(8, TRUE)), 1e6, 64)
    assert clean.high_s[0] / clean.time_s[0] == pytest.approx(np.exp(0.05))
    bare = Calibration("node", 6e-6, 1.0, 1.0, (swept(2, TRUE),))
    assert predicted(bare, 1e6, 64).high_s[0] / predicted(bare, 1e6, 64).time_s[0] == pytest.approx(2.0)


def test_a_calibration_is_of_its_system() -> None:
    """Another system's is refused; ranks that do not fit the nodes too."""
    found = calibrated(swept(2, TRUE))
    other = msgspec.structs.replace(NODE, id="other")
    with pytest.raises(UsageError, match="of node, not of other"):
        found.price("all_reduce", 8, range(8), other)
    odd = Sweep("all_reduce", 9, 2, (8,), (1e-5,))
    assert isinstance(calibrate([odd], NODE), Refusal)
    assert isinstance(calibrate([], NODE), Refusal)


def test_kept_as_yaml(tmp_path: Path) -> None:
    """What is written is read back; it is small and says what it is."""
    found = calibrated(swept(2, TRUE), swept(4, TRUE))
    path = tmp_path / "calibration.yaml"
    write_calibration(found, path)
    assert read_calibration(path) == found
    assert path.stat().st_size < 10_000
    assert "kind: calibration" in path.read_text("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "\0",
        "kind: calibration",
        "system: node\nlaunch_s: 0\nlatency: 1\nrate: 1\nsweeps: []\nmore: 1",
        "system: node\nlaunch_s: x\nlatency: 1\nrate: 1\nsweeps: []",
        "system: node\nlaunch_s: -1\nlatency: 1\nrate: 1\nsweeps: []",
        "system: node\nlaunch_s: 0\nlatency: .nan\nrate: 1\nsweeps: []",
        "system: node\nlaunch_s: 0\nlatency: 1\nrate: 0\nsweeps: []",
        "!!python/object/apply:os.system ['true']",
        "{" * 5000,
        "system: node\nlaunch_s: 0\nlatency: 1\nrate: 1\nsweeps:\n"
        "- {kind: all_reduce, ranks: 2, nodes: 1, bytes: [8, 4], seconds: [1, 1]}",
    ],
)
def test_what_is_no_calibration(tmp_path: Path, text: str) -> None:
    """One error that names the file."""
    path = tmp_path / "c.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as error:
        read_calibration(path)
    assert "c.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_or_huge_calibration(tmp_path: Path) -> None:
    """Neither is read."""
    with pytest.raises(InputError, match="cannot be read"):
        read_calibration(tmp_path / "none.yaml")
    path = tmp_path / "huge.yaml"
    path.write_bytes(b" " * ((1 << 24) + 1))
    with pytest.raises(InputError, match="too large"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"kind": "x"}, "no known collective"),
        ({"ranks": 1}, "no group of ranks"),
        ({"nodes": 5}, "no group of ranks"),
        ({"bytes": (8,)}, "1 sizes and 2 times"),
        ({"bytes": (8, 8)}, "do not rise"),
        ({"bytes": (0, 8)}, "1 B and 1 PiB"),
        ({"bytes": (8, 1 << 60)}, "1 B and 1 PiB"),
        ({"seconds": (0.0, 1.0)}, "above 0 s"),
        ({"seconds": (float("nan"), 1.0)}, "above 0 s"),
        ({"seconds": (1.0, float("inf"))}, "above 0 s"),
    ],
)
def test_what_is_no_sweep(fields: dict[str, object], what: str) -> None:
    """Lists that do not fit and absurd figures."""
    good: dict[str, object] = {
        "kind": "all_reduce",
        "ranks": 4,
        "nodes": 1,
        "bytes": (8, 16),
        "seconds": (1e-5, 1e-5),
    }
    with pytest.raises(InputError, match=what):
        Sweep(**{**good, **fields})  # type: ignore[arg-type]


def test_sweeps_of_a_timings_table() -> None:
    """Medians by size out of place; rows that cannot be placed are counted by reason."""

    def timing(size: int | None, ns: int | None, **fields: object) -> dict[str, object]:
        base = {"kind": "all_reduce", "group_size": 4, "nodes": 1, "in_place": False}
        return dict.fromkeys(TIMINGS.names) | base | {"bytes": size, "dur_ns": ns} | fields

    table = pa.Table.from_pylist(
        [
            timing(16, 3000),
            timing(8, 1000),
            timing(8, 2000, in_place=None),
            timing(8, 5000),
            timing(8, 1, in_place=True),
            timing(32, None),
            timing(None, 1000),
            timing(0, 1000),
            timing(8, 1000, nodes=None),
            timing(8, 9000, kind="all_gather"),
        ],
        schema=TIMINGS,
    )
    (gather, reduce), left_out = sweeps_of(table, "2.27.3")
    assert (gather.kind, gather.bytes, gather.seconds) == ("all_gather", (8,), (9e-6,))
    assert (reduce.bytes, reduce.seconds) == ((8, 16), (2e-6, 3e-6))
    assert reduce.library_version == "2.27.3"
    assert left_out == {
        "in place, where out of place is compared": 1,
        "without collective, ranks, nodes, size or time": 3,
        "of no bytes, no time or a single rank": 1,
    }
    assert sweeps_of(TIMINGS.empty_table()) == ([], {})


def test_summary_of_deviations() -> None:
    """Errors of 0, 100 and −90 %: median 90 %, p90 98 %, one of three within; ten times slower is suspect."""
    found = summary(
        [
            Deviation(8, 1.0, 1.0, 0.9, 1.1),
            Deviation(2**20, 1.0, 2.0, 1.5, 3.0),
            Deviation(2**30, 1.0, 0.1, 0.05, 0.2),
        ]
    )
    assert found is not None
    assert (found.count, found.median, found.within) == (3, pytest.approx(0.9), pytest.approx(1 / 3))
    assert found.p90 == pytest.approx(0.98)
    assert not found.suspect
    slow = summary([Deviation(8, 10.0, 1.0, 0.5, 2.0)])
    assert slow is not None
    assert slow.suspect
    assert summary([]) is None


def test_beyond_the_sizes_measured_it_says_so() -> None:
    """Inside no word and the band of what leaving out missed; four doublings on the model, less surely."""
    fitted = calibrate([swept(2, EXPECTED, 2.0)], NODE)
    assert isinstance(fitted, Calibration)
    inside, beyond = (
        fitted.price("all_reduce", size, range(8), NODE) for size in (SIZES[-1], SIZES[-1] * 16)
    )
    assert isinstance(inside, Prediction)
    assert isinstance(beyond, Prediction)
    assert "beyond the sizes" not in (inside.reason or "")
    assert "beyond the sizes that were measured" in (beyond.reason or "")
    assert beyond.high_s[0] / beyond.time_s[0] > inside.high_s[0] / inside.time_s[0]
    assert beyond.time_s[0] == pytest.approx(16 * inside.time_s[0], rel=0.1)


@pytest.mark.parametrize("size", [-1, float("nan"), float("inf"), 2**61])
def test_sizes_are_bounded(size: float) -> None:
    """As `price` bounds them."""
    fitted = calibrate([swept(2, EXPECTED)], NODE)
    assert isinstance(fitted, Calibration)
    with pytest.raises(UsageError):
        fitted.price("all_reduce", size, range(8), NODE)


def test_a_calibration_is_of_one_system() -> None:
    """Deviations of another system by it are refused."""
    fitted = calibrate([swept(2, EXPECTED)], NODE)
    assert isinstance(fitted, Calibration)
    other = msgspec.structs.replace(NODE, id="other")
    with pytest.raises(UsageError, match="the calibration is of node, not of other"):
        deviations(swept(2, EXPECTED), other, fitted)

# SPDX-License-Identifier: Apache-2.0
"""Version 1's bandwidth pairs: believed where the hardware has that rate, else reported."""

from __future__ import annotations

import pytest

from cclbench.card.bandwidth import believable_bandwidths

BOTH = {"scale_out": "200 Gb/s", "scale_up": "2400 Gb/s"}


@pytest.mark.parametrize(
    ("values", "accelerator", "topology", "believed", "doubt"),
    [
        ([200, 2400], "nvidia_a100", "slingshot", BOTH, None),
        ([200, 2400], "nvidia_a100_40gb", "Slingshot-11", BOTH, None),
        ([2400, 200], "nvidia_a100", "slingshot", {}, "scale-out above scale-up: swapped"),
        (
            [200, 2000],
            "nvidia_a100",
            "slingshot",
            {"scale_out": "200 Gb/s"},
            "2000 for scale-up, but nvidia_a100 has 2400",
        ),
        (
            [200, 600],
            "nvidia_a100",
            "slingshot",
            {"scale_out": "200 Gb/s"},
            "it is that rate in GB/s with both directions counted",
        ),
        ([200, 300], "nvidia_a100", "slingshot", {"scale_out": "200 Gb/s"}, "(it is that rate in GB/s)"),
        ([25, 300], "nvidia_a100", "slingshot", {}, "25 for scale-out, but slingshot has 200 Gb/s"),
        ([200, 6400], "tpu_v6e", "2d torus", {}, "it is that rate with both directions counted"),
        (["N/A", 800], "tpu_v6e", "torus", {}, "it is that rate in GB/s with both directions counted"),
        (["N/A", 3200], "tpu_v6e", "torus", {"scale_up": "3200 Gb/s"}, "no number for scale-out"),
        (["TBD", "TBD"], "nvidia_a100", "", {}, "no number for scale-up"),
        ([600], "nvidia_a100_40gb", "slingshot-11", {}, "has 1 of the two values"),
        ([200, 2400, 1], "nvidia_a100", "slingshot", {}, "has 3 of the two values"),
        ([400, 3600], "nvidia_h100", "fat-tree", {"scale_out": "400 Gb/s", "scale_up": "3600 Gb/s"}, None),
        ([-200, 0], "nvidia_h100", "fat-tree", {}, "has 0 for scale-up"),
        ([True, 2400], "nvidia_a100", "slingshot", {"scale_up": "2400 Gb/s"}, "no number for scale-out"),
    ],
)
def test_a_pair_is_believed_or_doubted_side_by_side(
    values: list[object], accelerator: str, topology: str, believed: dict[str, str], doubt: str | None
) -> None:
    found, doubts = believable_bandwidths(values, accelerator, topology)
    assert found == believed
    assert {side for side, _ in doubts} == {"scale_out", "scale_up"} - set(believed)
    assert doubt is None or any(doubt in reason for _, reason in doubts)

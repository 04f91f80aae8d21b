# SPDX-License-Identifier: Apache-2.0
"""Jobs' logs: steps and settings stay, and nothing that people, hosts or paths are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import redact_planted as planted
from helpers.job_logs import FAMILY_LINES, TITAN_HEAD

from cclbench.contribute.redaction import collect_identities, redact_file
from cclbench.formats.job_log import JobLog
from cclbench.formats.job_log.publishing import published_line

SECRETS = [secret for of in planted.SECRETS.values() for secret in of if "\n" not in secret]


@pytest.mark.parametrize("family", FAMILY_LINES)
def test_no_planted_secret_is_left_and_every_step_stays(family: str, tmp_path: Path) -> None:
    """Secrets on lines of their own, and behind the figures of lines about steps."""
    line = ("[rank3]:" if family == "torchtitan" else "") + FAMILY_LINES[family][0]
    source, target = tmp_path / "job.log", tmp_path / "published.log"
    spoiled = [f"{line} # {secret} said so" for secret in SECRETS]
    source.write_text("\n".join([planted.TEXT, *TITAN_HEAD, line, *SECRETS, *spoiled, ""]))
    redact_file(source, target, identities=collect_identities([source]))
    assert planted.left_in(target) == []
    before, after = JobLog().read(source), JobLog().read(target)
    assert after.log_steps is not None
    assert before.log_steps is not None
    assert after.log_steps.to_pylist() == before.log_steps.to_pylist()
    assert after.facts == before.facts


def test_words_of_nobody_in_particular_are_not_published_either(tmp_path: Path) -> None:
    line, _ = FAMILY_LINES["torchtitan"]
    source, target = tmp_path / "job.log", tmp_path / "published.log"
    source.write_text(f"Our plan failed again\n{line} for the Zebra project, see 3notes, Müller\n")
    redact_file(source, target, identities=collect_identities([source]))
    text = target.read_text()
    assert "mfu: 1.50%" in text
    assert not any(word in text for word in ("plan", "failed", "Zebra", "project", "notes", "ü"))


def test_what_the_librarys_lines_state_is_published_without_its_hosts(tmp_path: Path) -> None:
    """The facts of a run's manifest; calls, hosts, addresses, paths, and devices' names are not."""
    line, _ = FAMILY_LINES["megatron"]
    library = [
        "NCCL version 2.27.3+cuda12.8",
        "zebra07:411:412 [0] NCCL INFO Using network Socket",
        "zebra07:411:412 [0] NCCL INFO NET/Plugin: /opt/zebra/lib/libnccl-net.so: cannot open",
        "zebra07:411:412 [0] NCCL INFO NET/IB : Using [0]mlx5_zebra:1/RoCE [1]mlx5_1:1/RoCE; OOB 10.1.2.3<0>",
        "zebra07:411:412 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA",
        "zebra07:411:412 [0] NCCL INFO Channel 01/16 : 0 1 2 3",
        "zebra07:411:412 [0] NCCL INFO comm 0x5581 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 0",
        "zebra07:411:412 [0] NCCL INFO NCCL_ALGO set by environment to Ring.",
        "zebra07:411:412 [0] NCCL INFO NCCL_HOSTID set by environment to zebra-cluster",
        "zebra07:411:412 [0] zebra.cc:99 NCCL WARN zebra is on fire",
    ]
    source, target = tmp_path / "job.log", tmp_path / "published.log"
    source.write_text("\n".join([*library[:5], line, *library[5:], ""]))
    redact_file(source, target, identities=collect_identities([source]))
    text = target.read_text()
    assert "zebra" not in text
    assert not any(word in text for word in ("10.1.2.3", "mlx5", "0x", "411"))
    call = "zebra07:411:412 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 recvbuff 0x2 count 4"
    assert published_line(call.encode()) is None
    before, after = JobLog().read(source), JobLog().read(target)
    assert before.facts["transports"] == ["NET/IB/GDRDMA"]
    assert before.facts["network_link"] == "RoCE"
    assert before.facts["NCCL_ALGO"] == "Ring"
    assert (before.facts, before.notes) == (after.facts, after.notes)

# SPDX-License-Identifier: Apache-2.0
"""Sweeps of `nccl-tests` and `rccl-tests`: printed tables, their JSON, CSV of published sweeps.

S is the size column (nccl-tests, doc/PERFORMANCE.md), which for all_gather and reduce_scatter is the whole
array, the larger side.  Times are the benchmark's mean µs per operation; its GB/s are 1e9 B/s.  Out of place
and in place are separate rows.  The measured collective is stated by newer headers ("# Collective test
starting: all_reduce_perf"), by the command that a script echoes, by the CSV's header, by the file's name
(all_reduce_perf-2n.txt), or not at all: then it is null.
"""

from __future__ import annotations

import re
from pathlib import Path

from cclbench.formats import HEAD_BYTES, READERS, Evidence, EvidenceReader
from cclbench.formats.texts import read_beginning, strip_decoration

_CSV = re.compile(rb"(?:#[^\n]*\n)*size_bytes,count,dtype,redop,")
# As the benchmark writes it, or with its keys in another order.
_JSON = re.compile(
    rb'\s*\{(?:\s*"version"\s*:\s*\d+\s*,\s*"start_time"\s*:\s*"[^"]*"\s*,\s*"args"\s*:\s*\[|(?s:.*)"alg_bw"\s*:)'
)
_ROCM_JSON = re.compile(rb'\s*\[\s*\{\s*"numCycle"\s*:')
_PRINTED = re.compile(
    rb"# nThread +\d+ +nGpus +\d+ +minBytes|# Collective test starting: |# +size +count +type .* busbw "
)


class NcclTests(EvidenceReader):
    """Reader of the benchmarks' output."""

    name = "nccl_tests"
    description = "nccl-tests and rccl-tests sweeps: printed tables, JSON, CSV of published sweeps"
    extensions: tuple[str, ...] = (".txt", ".out", ".log", ".csv", ".json")
    capture = (
        "what `all_reduce_perf` and the others print, with the job's other output and the labels of `srun -l`"
        " or `mpirun --tag-output` in it, or their `-J` JSON"
    )
    versions = "nccl-tests 2.0 to 2.20 (JSON 2), rccl-tests of RCCL 2.18 to 2.30"
    figures = re.compile(
        r"size_bytes|count|\w+_(?:us|GBps)|start_time"
        r"|# (?:ranks|nodes|gpus_per_node): \d{1,7}|# nccl: [\d.]{3,20}"
        r"|^ *\d{1,13} +\d{1,13} +[a-z]+\d{0,2}(?:_?e\dm\d)? +[a-z]+ +-?\d{1,7}"
        r"(?: +(?:\d{1,9}(?:\.\d{1,4})?(?:e[-+]\d\d)?|N/A)){8}\s*$"
        r"|\b(?:minBytes|maxBytes|step:) +\d{1,13}\b"
        r"|\b(?:nThread|nGpus|iters:|agg iters:|validation:|graph:|Rank|Group|Pid|device) +\d{1,7}\b"
        r"|\[0000:[0-9a-f:]{5}\]|\bccl-tests:? [Vv]ersion:? \d[\d.]{0,20}|-(?:headers|library)=\d{4,6}\b"
        r"|# Out of bounds values +: +\d{1,9} (?:OK|FAILED)\s*$"
        r"|# Avg bus bandwidth +: +\d{1,9}(?:\.\d{1,6})?\s*$"
    )
    tested = (
        "real: published sweeps as CSV, tables of NCCL on H100, whole and torn apart by debug output;"
        " documentation: older tables, RCCL's and JSON, by the benchmarks' source"
    )
    after_other_text = True
    benchmark = True

    def sniff(self, head: bytes) -> float:
        """Sure of the benchmarks' own first lines."""
        head = strip_decoration(head)
        match = any(pattern.match(head) for pattern in (_CSV, _JSON, _ROCM_JSON)) or _PRINTED.search(head)
        return 0.9 if match else 0.0

    def read(self, path: Path) -> Evidence:
        """Every row of every table; `InputError` with the damaged line of a JSON or CSV file."""
        # Imports that are not needed to recognise a file.
        from cclbench.formats.nccl_tests.printed import Printed
        from cclbench.formats.nccl_tests.stated import read_csv, read_json, read_rocm_json

        head = read_beginning(path, HEAD_BYTES)
        files = ((_CSV, read_csv), (_JSON, read_json), (_ROCM_JSON, read_rocm_json))
        read = next((read for pattern, read in files if pattern.match(head)), None)
        return (Printed(path).read_log() if read is None else read(path)).evidence()


READERS.add(NcclTests.name, NcclTests(), origin=__name__)

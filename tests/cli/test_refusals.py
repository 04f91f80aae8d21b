# SPDX-License-Identifier: Apache-2.0
"""What commands refuse: one short message that says what to do, no output, nothing written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from helpers.command_line import Call

REFUSED = """\
rum                                                      | 2 | unknown command 'rum'; did you mean run?
run                                                      | 2 | Missing argument 'SOURCE'
run x --widnow steps                                     | 2 | --widnow
run x --window epoch                                     | 2 | 'epoch' is not one of
run x --steps 5                                          | 2 | '5' is not A:B, such as 2:5
run x --steps 5:5                                        | 2 | holds no step
run x --ranks 0,b                                        | 2 | not a list of ranks
run x --jobs 0                                           | 2 | '--jobs'
run x --step-annotation (                                | 2 | not a regular expression
run x --json --format csv                                | 2 | --json contradicts --format csv
run x -v -q                                              | 2 | -q contradicts -v
run x --plot x.gif                                       | 2 | use .png, .svg, .pdf
run x --store rank0.json                                 | 2 | is a file
list dragons                                             | 2 | 'dragons' is not one of
explain time.stpe                                        | 2 | time.step
metrics no-such-run                                      | 2 | no run 'no-such-run'
sql no-such-run 'SELECT 1'                               | 2 | no run 'no-such-run'
open rank0.json -o x.json --ranks 3                      | 2 | has no rank 3; it has [0]
open rank0.json -o x.json --steps 7:                     | 2 | there is nothing to show; its steps are 0, 1
open rank0.json -o x.json --steps x                      | 2 | 'x' is not A:B
open rank0.json -o none/x.json                           | 2 | there is no folder none; create it first
open rank0.json -o full.json                             | 3 | full.json: No space left on device
open rank0.json -o x.html | 2 | unsupported suffix for a trace; use .json or .json.gz
open ./none                                              | 3 | no such file or folder
report rank0.json -o x.png                               | 2 | a report is an HTML page; use .html or .htm
report rank0.json -o none/x.html                         | 2 | there is no folder none; create it first
report rank0.json -o .                                   | 2 | is a directory
report rank0.json                                        | 2 | Missing option '-o' / '--output'
report no-such-run -o x.html                             | 2 | no-such-run
report empty -o x.html                                   | 3 | empty
report cut.json -o x.html                                | 3 | cut.json
timeline rank0.json -o x.gif | 2 | unsupported picture format; use .png, .svg, .pdf
timeline rank0.json -o x.png --step 7                    | 2 | the run has no complete step 7; it has 0, 1
timeline rank0.json -o x.png --ranks 3                   | 2 | has no rank 3; it has [0]
timeline rank0.json -o x.png --from-ms 2 | 2 | there is nothing from 2 to 0.1 ms; it lasts 0.1 ms
timeline rank0.json -o none/x.png                        | 2 | there is no folder
timeline rank0.json                                      | 2 | Missing option '-o' / '--output'
compare                                                  | 2 | Missing argument
compare rank0.json                                       | 2 | 2 to 26 runs, not 1
compare rank0.json rank0.json                            | 2 | the same run
compare rank0.json nowhere                               | 2 | no run 'nowhere'
compare rank0.json empty                                 | 3 | the folder is empty
compare rank0.json cut.json                              | 3 | --allow-truncated
compare rank0.json other.json --fail-on 'time.step > 5%' | 2 | needs a sign
compare rank0.json other.json --metric time.stp          | 2 | did you mean time.step
compare rank0.json other.json -o x.pdf                   | 2 | use .html, .md, .json
compare rank0.json other.json -o /nowhere/x.md           | 2 | there is no folder /nowhere
sequences rank0.json --length 1                          | 2 | --length
sequences rank0.json --top 0                             | 2 | --top
sequences rank0.json --ranks 5                           | 2 | has no rank 5
sequences rank0.json --steps 7:9                         | 2 | 7:9
ops rank0.json --where modul~x                           | 2 | keys: op, shape, module, class, phase, kernel
ops rank0.json --where op~relu | 2 | no work matches op~relu; cclbench ops --by op lists
ops rank0.json --by name                                 | 2 | 'name' is no key
ops rank0.json --by op --tree | 2 | a tree is by module or class, or by several keys
whatif rank0.json                                        | 2 | no setting is given
whatif rank0.json --set scale_up.bandwith=x2             | 2 | did you mean scale_up.bandwidth
whatif rank0.json --set scale_up=nvlink4 --per-node 2    | 3 | needs a named machine; give --system ID
whatif rank0.json --set kernels.time=x2 --contention 0.5 | 2 | is not off, fit or a factor
whatif rank0.json --set kernels.time=x2 --system dgx-h1000 | 2 | did you mean dgx-h100
whatif rank0.json --sweep kernels.time=x2                | 2 | is not KEY=xA..xB
whatif rank0.json --set kernels.time=x2 --ranks 7        | 2 | has no rank 7
whatif rank0.json --set kernels.time=x2 --set kernels.time=x3 | 2 | kernels.time is set twice
whatif rank0.json --set scale_up=infiniband-ndr          | 2 | infiniband-ndr is a scale_out fabric
whatif rank0.json --set kernels.time=x2 --system mi300x-8gpu | 2 | has amd-mi300x, the traces name NVIDIA A100
whatif rank0.json --scenario kernels.time=x1 --scenario kernels.time=x3 --save x | 2 | there are 2 scenarios
hardware probe nowhere                                   | 2 | nowhere
hardware probe aws-p5 --collective gossip                | 2 | no program for 'gossip'
hardware probe aws-p5 --run x.txt                        | 2 | --run and answers exclude each other
hardware probe aws-p5 missing.txt                        | 3 | missing.txt
"""
"""A command, its exit code and what it says."""


@pytest.fixture
def desk(trace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a trace, with another one, one that is cut, an empty folder and a full disk."""
    monkeypatch.chdir(trace.parent)
    text = trace.read_text()
    Path("other.json").write_text(text.replace("ampere", "hopper"))
    Path("cut.json").write_text(text[:900])
    Path("empty").mkdir()
    Path("full.json").symlink_to("/dev/full")
    return trace.parent


@pytest.mark.parametrize("line", REFUSED.splitlines())
def test_a_refusal_is_one_message(call: Call, desk: Path, line: str) -> None:
    words, code, says = (part.strip() for part in line.split(" | "))
    before = sorted(desk.iterdir())
    answer = call(*shlex.split(words))
    assert (answer.code, answer.out) == (int(code), ""), answer.err
    assert says in " ".join(answer.err.split())
    assert answer.err.startswith("error: ")
    assert len(answer.err.splitlines()) <= 3
    assert [path for path in sorted(desk.iterdir()) if path.name != "store"] == before

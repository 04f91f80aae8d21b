# SPDX-License-Identifier: Apache-2.0
"""Every cost model explains itself, and one from outside is like ours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from helpers.packages import with_module

from cclbench.operators.cost import MODELS

OUTSIDE = '''
"""A cost model of one's own operator."""

from cclbench.operators.call import Call
from cclbench.operators.cost import Cost, cost_model

print("loaded")


@cost_model("mine", r"mine::add_twice(?:_out)?")
def add_twice(call: Call) -> Cost:
    """a + 2·b.

    FLOPs: 2 an element
    Bytes: both operands, the result
    Source: mine/ops.py: add_twice(a, b)
    """
    a, b = call.tensor(0), call.tensor(1)
    return Cost.from_tensors(flops=2 * a.elements, precision="fp32", reads=(a, b), writes=(a,))
'''

ASK = """
from cclbench.operators.call import parse_call
from cclbench.operators.cost import MODELS, cost_of, model_of

call = parse_call("mine::add_twice", "[[2, 3], [2, 3]]", '["float", "float"]')
cost = cost_of(call)
about = model_of(call.name).docstring_parts["FLOPs"]
print(cost.flops, cost.bytes, about, MODELS.origin("add_twice"), sorted(MODELS.broken))
print(cost_of(parse_call("aten::mm", "[[2, 3], [3, 4]]", '["float", "float"]')).flops)
"""


def asked(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False
    )


def test_a_model_from_outside_is_like_ours(tmp_path: Path) -> None:
    done = asked(with_module(tmp_path, "my_costs", OUTSIDE, "cclbench.operators"))
    assert done.stdout.splitlines() == ["12 72 2 an element my_costs []", "48"]
    assert "loaded" in done.stderr


def test_a_model_of_an_operator_that_has_ours_goes_before_it_and_says_so(tmp_path: Path) -> None:
    source = OUTSIDE.replace('add_twice(?:_out)?"', 'add_twice", "aten::mm"')
    done = asked(with_module(tmp_path, "my_costs", source, "cclbench.operators"))
    assert done.stdout.splitlines()[-1] == "12"
    assert re.search(
        r"aten::mm has two cost models: add_twice of my_costs is used, \w+ of cclbench\.\S+ is not",
        done.stderr,
    )


def test_a_model_that_does_not_load_leaves_ours(tmp_path: Path) -> None:
    done = asked(with_module(tmp_path, "my_costs", OUTSIDE + "\n1 / 0\n", "cclbench.operators"))
    assert "cost model plug-in 'my_costs' (my_costs) did not load: division by zero" in done.stderr
    assert done.stdout.splitlines()[0].endswith("['my_costs']")


def test_models_explain_themselves() -> None:
    for name in MODELS:
        model = MODELS.get(name)
        tested = ["Tested"] if model.tested == "no trace" else []
        parts = ["definition", "FLOPs", "Bytes", "Source", *tested]
        assert list(model.docstring_parts) == parts, name
        assert all(model.docstring_parts.values()), name
        assert model.docstring_parts["definition"].endswith("."), name
        for pattern in model.patterns:
            re.compile(pattern)

# SPDX-License-Identifier: Apache-2.0
"""Names and the model that each has; whatever arguments are, a model gives a cost or a reason."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cclbench.operators.call import Argument, Call, NoModel, Tensor, parse_call
from cclbench.operators.cost import MODELS, Cost, _library, cost_of, model_of

NAMES = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text())
MODELLED, WRAPPERS = NAMES["modelled"], NAMES["wrappers"]


@pytest.mark.parametrize(("name", "model"), [(name, model) for model in MODELLED for name in MODELLED[model]])
def test_a_name_has_its_model(name: str, model: str) -> None:
    found = model_of(name)
    assert found.name == model


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_has_none(name: str) -> None:
    assert model_of(name) is None


def test_what_a_name_starts_with_changes_no_model() -> None:
    patterns = [(pattern, model) for model in map(MODELS.get, MODELS) for pattern in model.patterns]
    for name in (*MODELLED, *WRAPPERS, "aten::add", "aten::add_", "aten::add__", "aten::t__", "mine::x"):
        whole = (model.name for pattern, model in patterns if re.fullmatch(pattern, name))
        found = model_of(name)
        assert (found and found.name) == next(whole, None), name


@pytest.mark.parametrize(
    ("pattern", "library"),
    [
        *(("mine::one", "mine"), ("mine::(?:one|two)_?", "mine"), ("mine::one|theirs::two", None)),
        *(("mine::(?:one)|theirs::(?:two)", None), (r"mine::\(one|theirs::two\)", None)),
        *(("(?:mine|theirs)::one", None), ("one", None), (r"\w+::one", None)),
    ],
)
def test_a_pattern_is_of_a_library_where_it_can_match_no_other(pattern: str, library: str | None) -> None:
    assert _library(pattern) == library


TYPES = (
    *("float", "c10::BFloat16", "long int", "bool", "c10::Float8_e4m3fn", "double", "c10::complex<float>"),
    *("", "?"),
)
SIZES = st.one_of(st.integers(0, 9), st.sampled_from([64, 1 << 40]))


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = tuple(draw(st.lists(SIZES, max_size=5)))
    strides = draw(st.none() | st.lists(st.integers(0, 9), min_size=(n := len(shape)), max_size=n).map(tuple))
    return Tensor(shape, draw(st.sampled_from(TYPES)), strides)


SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 99) | st.floats() | st.sampled_from(["none", "tanh", "x"])
)
ARGUMENTS: st.SearchStrategy[Argument] = st.one_of(
    tensors(), SCALARS, st.lists(SCALARS, max_size=4).map(tuple), st.lists(tensors(), max_size=3).map(tuple)
)
KERNELS = st.sampled_from(["", "OpaqueType<2u>", "Functor<float, 4>", "s1688gemm", "Functor<what>"])


def an_operator(pattern: str) -> str:
    """A name that the pattern matches: its first alternatives, without what is optional."""
    name = pattern
    while found := re.search(r"\((?:\?:)?([^()]*)\)(\?)?", name):
        name = name.replace(found[0], "" if found[2] else found[1].split("|")[0], 1)
    name = re.sub(r"\\w[*+]|\.\*", "x", re.sub(r"\[(.)[^]]*\]\??", r"\1", name))
    return re.sub(r".\?", "", name.split("|")[0])


def names_in(pattern: str) -> list[str]:
    """Names that a pattern matches: all alternatives of a group, if it has one group of plain names."""
    groups = re.findall(r"\((?:\?:)?([\w|]+)\)", pattern)
    if len(groups) == 1 and ")?" not in pattern:
        made = [re.sub(r"\((?:\?:)?[\w|]+\)", one, pattern) for one in groups[0].split("|")]
        return [an_operator(one) for one in made]
    return [an_operator(pattern)]


OPERATORS = {model: [name for p in MODELS.get(model).patterns for name in names_in(p)] for model in MODELS}
"""Names of operators by model."""


def test_every_model_has_an_operator_here() -> None:
    for model, names in OPERATORS.items():
        patterns = MODELS.get(model).patterns
        assert any(re.fullmatch(pattern, name) for pattern in patterns for name in names), model


@given(arguments=st.lists(ARGUMENTS, max_size=28).map(tuple), kernel=KERNELS)
def test_any_arguments_give_a_cost_or_a_reason(arguments: tuple[Argument, ...], kernel: str) -> None:
    """Of every operator: the same arguments mean something else to each."""
    for operator in chain(*OPERATORS.values()):
        try:
            cost = cost_of(Call(operator, arguments, (kernel,)))
        except NoModel:
            continue
        assert isinstance(cost, Cost), operator
        assert min(cost.flops, cost.read_bytes, cost.written_bytes) >= 0, operator
        assert all(type(one) is int for one in (cost.flops, cost.read_bytes, cost.written_bytes)), operator


@given(st.tuples(*[st.none() | st.text() | st.recursive(SCALARS, st.lists).map(json.dumps)] * 4))
def test_any_texts_are_a_call(texts: tuple[str | None, ...]) -> None:
    call = parse_call("aten::mm", *texts)
    assert call.name == "aten::mm"


def test_no_operator_has_two_models() -> None:
    """Of several the first by name would be taken, which nobody would see."""
    recorded = json.loads(Path(__file__).with_name("counted_flops.json").read_text())["models"]
    known = {*chain(*OPERATORS.values()), *(call[0] for one in recorded.values() for call in one["calls"])}
    models = {model: [re.compile(one) for one in MODELS.get(model).patterns] for model in MODELS}
    for name in known:
        fitting = [model for model, patterns in models.items() if any(p.fullmatch(name) for p in patterns)]
        assert len(fitting) <= 1, (name, fitting)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0.", 0.0), ("-1.", -1.0), ("1e-05", 1e-5), ("9.9999999999999995e-07", 1e-6), ("True", True)),
        *(("[1, 1]", (1, 1)), ("[0., 1.5]", (0.0, 1.5)), ("[True, False]", (True, False)), ("[]", ())),
        *(("tanh", "tanh"), ("", None)),
    ],
)
def test_values_are_read_as_pytorch_prints_them(text: str, value: object) -> None:
    call = parse_call("aten::any", "[[]]", '["Scalar"]', None, json.dumps([text]))
    assert call.value(0) == value
    assert type(call.value(0)) is type(value)

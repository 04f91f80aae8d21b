# SPDX-License-Identifier: Apache-2.0
"""What a field's name tells, which values are told again elsewhere, which names are too common."""

from __future__ import annotations

import pytest

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.kinds import (
    is_common_word,
    is_kept,
    is_public_domain,
    is_telling,
    kind_of_field,
    kind_of_rule,
)


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("hostname", kinds.HOST),
        ("service_key", kinds.BARE_KEY),
        ("godaddyKey", kinds.BARE_KEY),
        ("sumoKey1", kinds.BARE_KEY),
        ("cache_key", None),
        ("traceKey", None),
        ("monkey", None),
        ("Host Name", kinds.HOST),
        ("PROCESS_0:USER_NAME", kinds.USER),
        ("USER_NAME:x", None),
        ("user" + "_" * 59, kinds.USER),  # 63 signs
        ("user" + "_" * 60, None),
        ("x" * 57 + "_token", kinds.SECRET),
        ("x" * 58 + "_token", None),
        ("bos_token", None),
        ("ARGUMENT_12", kinds.COMMAND),
        ("ARGUMENT_", None),
        ("x_ARGUMENT_1", None),
        ("kernel", None),
    ],
)
def test_a_field_s_name_tells_its_kind(field: str, kind: str | None) -> None:
    assert kind_of_field(field) == kind


def test_a_rule_is_of_its_kind_with_or_without_the_variable_behind_it() -> None:
    assert kind_of_rule("user name (OWNER)") == kind_of_rule("user name") == kinds.USER
    assert kind_of_rule("secret known from elsewhere") == kind_of_rule("encoded secret") == kinds.SECRET
    assert kind_of_rule("home folder") == kinds.HOME
    assert kind_of_rule("something else") == "something else"


def test_variables_that_tell_of_the_run_alone_are_kept() -> None:
    assert [is_kept(name) for name in ("RANK", "XRANK", "NCCL_ALGO", "NCCL_COMM_ID")] == [
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("kind", "value", "tells"),
    [
        (kinds.PHONE, "+49 30 123-456", True),
        (kinds.PHONE, "123-456-78", True),
        (kinds.PHONE, "123-456-7", False),
        # six signs are enough for a credential of letters and digits, eight for all else
        (kinds.SECRET, "zq7x9w", True),
        (kinds.SECRET, "zq7x9", False),
        (kinds.SECRET, "zqxwvtkj", True),
        (kinds.SECRET, "zqxwvtk", False),
        (kinds.ENVIRONMENT, "zq7x9wkp", True),
        (kinds.ENVIRONMENT, "zq7x9wk", False),
        (kinds.SECRET, "12345678901", False),
        (kinds.SECRET, "zq7x" * 1024, True),
        (kinds.SECRET, "zq7x" * 1024 + "z", False),
        # what is left without common words
        (kinds.ENVIRONMENT, "training-zqk", False),
        (kinds.ENVIRONMENT, "training-zqkx", True),
        (kinds.SECRET, "redacted-secret", False),
        (kinds.ENVIRONMENT, "/usr/local/zqkx", False),
        (kinds.SECRET, "/usr/local/zqkx", True),
    ],
)
def test_values_that_are_the_same_secret_wherever_they_stand(kind: str, value: str, tells: bool) -> None:
    assert is_telling(kind, value) is tells


def test_domains_of_one_label_and_of_clouds_are_everybody_s() -> None:
    domains = ("lab", "lab.example", "eu.compute.internal", "s3.amazonaws.com", "amazonaws.com.example")
    assert [is_public_domain(domain) for domain in domains] == [True, False, True, True, False]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (kinds.HOST, "zqk", True),
        (kinds.HOST, "zqkx", False),
        (kinds.USER, "zq", True),
        (kinds.USER, "zqk", False),
        (kinds.USER, "TRAIN", True),
        (kinds.JOB, "train12", True),
        (kinds.JOB, "train-1", True),
        (kinds.JOB, "train123", False),
        # two digits make a machine's name of some words, one does not
        (kinds.HOST, "gpu17", False),
        (kinds.HOST, "gpu-17", False),
        (kinds.HOST, "gpu7", True),
        (kinds.HOST, "cuda17", True),
        (kinds.USER, "z12", True),
        (kinds.USER, "zq12", False),
    ],
)
def test_names_that_are_too_short_or_too_common(kind: str, name: str, expected: bool) -> None:
    assert is_common_word(kind, name) is expected

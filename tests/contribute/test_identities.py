# SPDX-License-Identifier: Apache-2.0
"""How names are learnt, compared and numbered, and what of them is replaced wherever it stands."""

from __future__ import annotations

import pytest

from cclbench.contribute.redaction import kinds
from cclbench.contribute.redaction.names import Identities, Learner, name_key, replace_names
from cclbench.contribute.redaction.scrub import Scrubber

NOTHING: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("kind", "name", "compared"),
    [
        (kinds.USER, " Bobby. ", "bobby"),
        (kinds.HOST, "GPU-17.lab.example.", "gpu-17"),
        (kinds.HOST, ".lab.example", "lab"),
        (kinds.HOST, "10.1.2.3", "10.1.2.3"),
        (kinds.HOST, "fe80::1ff:fe23", "fe80::1ff:fe23"),
        (kinds.JOB, "plan.a", "plan.a"),
        (kinds.DEVICE, "GPU-672a", "672a"),
        (kinds.DEVICE, "x-GPU-672a", "x-gpu-672a"),
    ],
)
def test_how_a_name_is_compared(kind: str, name: str, compared: str) -> None:
    assert name_key(kind, name) == (kind, compared)


def test_names_are_numbered_by_kind_in_the_order_they_are_met() -> None:
    learner = Learner()
    met = [(kinds.USER, "ada"), (kinds.HOST, "gpu-17"), (kinds.USER, "ben"), (kinds.USER, "ADA")]
    assert [learner.pseudonym_of(kind, name) for kind, name in met] == [
        "user-1",
        "host-1",
        "user-2",
        "user-1",
    ]
    known = learner.learnt_identities(NOTHING)
    assert known.pseudonym_of(kinds.USER, "Ben") == "user-2"
    assert known.pseudonym_of(kinds.USER, "carl") == "user-unknown"
    assert known.everywhere == NOTHING
    assert repr(known) == str(known) == "<Identities: 3 names, 0 replaced everywhere>"


def test_what_is_learnt_of_a_host_is_its_label_and_its_domain() -> None:
    learner = Learner()
    learner.pseudonym_of(kinds.HOST, " Node-A7.Lab.Example. ", learn=True)
    learner.pseudonym_of(kinds.USER, "zoe.q", learn=True)
    known = learner.learnt_identities(NOTHING)
    assert known.everywhere == {(kinds.HOST, "node-a7"), (kinds.USER, "zoe.q")}
    assert known.domains == {"lab.example"}
    assert {form for kind, form in known.spellings if kind == kinds.HOST} == {"Node-A7", "node-a7", "NODE-A7"}
    # without a domain there is none, and everybody's is none
    for name in ("node-b7", "node-b7.compute.internal"):
        other = Learner()
        other.pseudonym_of(kinds.HOST, name, learn=True)
        assert other.learnt_identities(NOTHING).domains == NOTHING


@pytest.mark.parametrize(
    ("name", "everywhere"),
    [
        ("zqkx", True),
        ("z" * 64, True),
        ("z" * 65, False),
        ("zq(kx", False),
        ("train", False),
        ("-zqkx", False),
    ],
)
def test_which_names_are_replaced_everywhere(name: str, everywhere: bool) -> None:
    learner = Learner()
    learner.pseudonym_of(kinds.USER, name, learn=True)
    assert bool(learner.learnt_identities(NOTHING).everywhere) is everywhere


def test_what_is_published_is_replaced_nowhere_but_credentials_are() -> None:
    learner = Learner()
    learner.pseudonym_of(kinds.JOB, "mega-plan", learn=True)
    learner.pseudonym_of(kinds.HOST, "node-a7.lab.example", learn=True)
    learner.stand_in_for_value(kinds.SECRET, "hunter2-xyz")
    learner.stand_in_for_value(kinds.ENVIRONMENT, "moonshot-staging")
    texts = {"a mega-plan here", "at lab.example", "hunter2-xyz", "moonshot-staging!"}
    known = learner.learnt_identities(frozenset(texts))
    assert known.everywhere == {(kinds.HOST, "node-a7")}
    assert (known.domains, known.values) == (NOTHING, {"hunter2-xyz": kinds.SECRET})
    assert {kind for kind, _ in known.spellings} == {kinds.HOST}
    within = learner.learnt_identities(frozenset({"xmega-planx", "moonshot-stagings"}))
    assert (kinds.JOB, "mega-plan") in within.everywhere
    assert "moonshot-staging" in within.values


def test_what_its_owner_reveals_is_no_secret_anywhere() -> None:
    learner = Learner(["Deploy", "A_PASSWORD"])
    learner.stand_in_for_value(kinds.SECRET, "Hunter2-xyz")
    learner.pseudonym_of(kinds.JOB, "mega-plan", learn=True)
    assert not learner.keeps("OTHER", "mega-plan")
    assert learner.keeps("x:DEPLOY", "mega-plan")
    assert learner.keeps("a_password", "HUNTER2-XYZ")
    assert learner.used == {"deploy", "a_password"}
    known = learner.learnt_identities(NOTHING)
    assert (known.everywhere, known.values) == (NOTHING, {})
    assert known.keeps("deploy", "x")
    assert not Identities().is_revealed("")


@pytest.mark.parametrize(
    ("kind", "value", "values"),
    [
        (kinds.PASSWORD, "zoe4:hunter2-xyz", {"zoe4:hunter2-xyz", "hunter2-xyz"}),
        (kinds.BUCKET, "moonshot-lab/a/b", {"moonshot-lab/a/b", "moonshot-lab"}),
        (kinds.SECRET, " 'hunter2-xyz' ", {"hunter2-xyz"}),
        (kinds.HOME, "/home/moonshot", set()),
        (kinds.COMMAND, "python moonshot.py", set()),
        (
            kinds.PRIVATE_KEY,
            "-----BEGIN-PRIVATE-KEY-----\nQUJDREVGR0hJSkw0\nQUJDREVGR0hJSk0\n-----END",
            {"QUJDREVGR0hJSkw0"},  # of sixteen signs, not of fifteen
        ),
    ],
)
def test_what_of_a_hidden_value_is_one_by_itself(kind: str, value: str, values: set[str]) -> None:
    learner = Learner()
    learner.stand_in_for_value(kind, value)
    assert set(learner.learnt_identities(NOTHING).values) == values


def test_a_value_is_of_the_kind_that_was_met_first() -> None:
    learner = Learner()
    assert learner.stand_in_for_value(kinds.TOKEN, "hunter2-xyz") == "redacted-token"
    assert learner.stand_in_for_value(kinds.SECRET, "hunter2-xyz") == "redacted-secret"
    known = learner.learnt_identities(NOTHING)
    assert known.values == {"hunter2-xyz": kinds.TOKEN}
    assert (
        known.stand_in_for(kinds.TOKEN, "hunter2-xyz")
        == known.stand_in_for_value(kinds.TOKEN, "x")
        == "redacted-token"
    )
    assert known.stand_in_for(kinds.USER, "x") == "user-unknown"
    assert known.by_value == {"hunter2-xyz": kinds.TOKEN}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu-17:29500,gpu-18", "host-1:29500,host-2"),
        ("nid[0009-0011]:7", "host-1,host-2,host-3:7"),
        ("nid[9,0012]x", "host-1,host-2"),
        ("nid[3-1]", ""),
        ("a[1-2]b[3]", "host-1"),
        ("10.1.2.3:80", "address-1:80"),
        ("10.1.2.3", "address-1"),
        ("fe80::1ff:fe23:4567", "address-1"),
        ("localhost:80 gpu-17", "localhost:80 host-1"),
        ("host-3", "host-3"),
    ],
)
def test_lists_of_hosts(text: str, expected: str) -> None:
    assert replace_names(Learner(), kinds.HOST, text) == expected


def test_what_slurm_abbreviates_keeps_its_leading_zeros() -> None:
    learner = Learner()
    replace_names(learner, kinds.HOST, "nid[0009-0010,0012]-x", learn=True)
    known = learner.learnt_identities(NOTHING)
    assert {name for _, name in known.everywhere} == {"nid0009-x", "nid0010-x", "nid0012-x"}


def test_an_abbreviation_is_of_4096_hosts_at_most() -> None:
    for hosts, count in (
        ("n[1-4096]", 4096),
        ("n[1-4097]", 4096),
        ("n[1-3000,5001-8000]", 4096),
        ("n[7]", 1),
    ):
        assert replace_names(Learner(), kinds.HOST, hosts).count(",") + 1 == count


def test_names_of_other_kinds_are_replaced_whole() -> None:
    assert replace_names(Learner(), kinds.USER, "ada b") == "user-1"
    for text in ("", "  ", "user-3"):
        assert replace_names(Learner(), kinds.USER, text) == text


def known_by(*names: tuple[str, str], values: dict[str, str] | None = None) -> Scrubber:
    """Who has learnt these names and values."""
    learner = Learner()
    for kind, name in names:
        learner.pseudonym_of(kind, name, learn=True)
    for value, kind in (values or {}).items():
        learner.stand_in_for_value(kind, value)
    return Scrubber(learner.learnt_identities(NOTHING))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on node-a7.lab.example.", "on host-1."),
        ("on NODE-A7, node-a7x and xnode-a7", "on host-1, node-a7x and xnode-a7"),
        ("login.lab.example and lab.example", "host-unknown and host-unknown"),
        ("a.b.c.d.lab.example", "host-unknown"),
        ("a.b.c.d.e.lab.example", "a.host-unknown"),
        ("xlab.example", "xlab.example"),
        ("job 4711000, 4711000 and x/4711000, 4711000-a", "job job-1, 4711000 and x/job-1, job-1-a"),
        ("14711000-a", "14711000-a"),
        ("x hunter2-xyzy", "x redacted-secrety"),
        ("x moonshot-stagingy moonshot-staging", "x moonshot-stagingy redacted-environment"),
    ],
)
def test_names_and_values_wherever_they_stand(text: str, expected: str) -> None:
    """Names and values of variables as whole words, numbers beside what marks an id, credentials anywhere."""
    values = {"hunter2-xyz": kinds.SECRET, "moonshot-staging": kinds.ENVIRONMENT}
    scrubber = known_by((kinds.HOST, "node-a7.lab.example"), (kinds.JOB, "4711000"), values=values)
    assert scrubber.text(text)[0] == expected


def test_nothing_known_is_nowhere() -> None:
    assert Identities().name_pattern is None
    assert not Identities().may_be_mentioned("anything")
    known = known_by((kinds.USER, "bobby")).identities
    assert known.may_be_mentioned("XBOBBYX")
    assert not known.may_be_mentioned("bobb")


def test_names_domains_and_values_must_be_nowhere() -> None:
    values = {"hunter2-xyz": kinds.SECRET}
    known = known_by((kinds.HOST, "node-a7.lab.example"), (kinds.USER, "bobby"), values=values).identities
    texts = (b"x lab.example y", b"NODE-A7", b"bobby", b"bobbyx", b"xhunter2-xyzx", b"lab", b"host name")
    found = [[one.form.kind for one in known.secret_needles.find_in_blocks([text])] for text in texts]
    assert found == [[kinds.HOST], [kinds.HOST], [kinds.USER], [], [kinds.SECRET], [], []]

# SPDX-License-Identifier: Apache-2.0
"""What must be nowhere in a package is found in every encoding, across blocks, and only as itself."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from helpers.redact_files import gz

from cclbench.contribute.redaction import collect_identities, find_leftovers, kinds, leftovers_in, redact_file
from cclbench.contribute.redaction.names import Identities
from cclbench.contribute.redaction.needles import NeedleForm, Needles, encoded_forms, forms_pattern
from cclbench.ground.errors import InputError, UsageError

SECRET = 'pa/ss "wörd" 9x'  # noqa: S105 - of nothing
ENCODED = {
    "as it is": SECRET.encode(),
    "in capitals": b'PA/SS "W\xc3\xb6RD" 9X',
    "UTF-16 little": SECRET.encode("utf-16-le"),
    "UTF-16 big": SECRET.encode("utf-16-be"),
    "JSON": json.dumps(SECRET).encode(),
    "JSON in JSON": json.dumps(json.dumps(SECRET)).encode(),
    "JSON with every letter escaped": "".join(f"\\u{ord(letter):04X}" for letter in SECRET).encode(),
    "JSON with escaped slashes": json.dumps(SECRET).replace("/", "\\/").encode(),
    "percent": quote(SECRET, safe="").encode(),
    "percent but slashes": quote(SECRET).encode(),
    "percent everywhere": "".join(f"%{byte:02X}" for byte in SECRET.encode()).encode(),
    "base64": base64.b64encode(SECRET.encode()),
    "base64 behind one byte": base64.b64encode(b"x" + SECRET.encode() + b"!"),
    "base64 behind two bytes": base64.b64encode(b"xy" + SECRET.encode() + b"?!"),
    "base64 for URLs": base64.urlsafe_b64encode(b"~~" + SECRET.encode()),
    "hex": SECRET.encode().hex().encode(),
    "hex in capitals": SECRET.encode().hex().upper().encode(),
    "reversed": SECRET[::-1].encode(),
}


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("encoding", ENCODED)
def test_every_encoding_is_found_wherever_blocks_end(encoding: str, size: int) -> None:
    needles = Needles({SECRET: kinds.SECRET, "other-secret-1": kinds.TOKEN})
    data = b"x" * 301 + b" " + ENCODED[encoding] + b" " + b"y" * 200
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    found = list(needles.find_in_blocks(blocks))
    assert {one.form.value for one in found} == {SECRET}
    assert len({one.at for one in found}) == 1
    assert found[0].at in range(302, 306)


def test_a_secret_at_the_ends_is_found() -> None:
    needles = Needles({"hunter2-x": kinds.SECRET})
    for data in (b"hunter2-x", b"hunter2-x and more", b"more and hunter2-x"):
        assert len(list(needles.find_in_blocks([data]))) == 1
    assert list(needles.find_in_blocks([])) == list(needles.find_in_blocks([b""])) == []
    assert list(Needles({}).find_in_blocks([b"anything"])) == []


def test_names_are_words_and_secrets_are_not() -> None:
    needles = Needles({"bobby": kinds.USER, "hunter2-x": kinds.SECRET, "7654321": kinds.JOB})
    text = b"abobby bobbyx bobby_1 xhunter2-xx 7654321"
    found = sorted((one.at, one.form.value) for one in needles.find_in_blocks([text]))
    assert found == [(14, "bobby"), (23, "hunter2-x")]
    assert [one.form.value for one in needles.find_in_blocks([b"7654321".hex().encode()])] == ["7654321"]


def told(tmp_path: Path, text: str) -> Identities:
    """What a script tells."""
    (tmp_path / "run.sh").write_text(text)
    return collect_identities([tmp_path / "run.sh"])


@pytest.mark.parametrize("encoding", [name for name in ENCODED if "UTF-16" not in name])
def test_an_encoded_secret_is_replaced_and_would_be_found(encoding: str, tmp_path: Path) -> None:
    known = told(tmp_path, f"export A_PASSWORD='{SECRET}'\n")
    assert known.values == {SECRET: kinds.SECRET}
    log = tmp_path / "a.log"
    log.write_bytes(b"note " + ENCODED[encoding] + b" end\n")
    assert find_leftovers(log, known)
    redact_file(log, tmp_path / "copy.log", identities=known)
    assert find_leftovers(tmp_path / "copy.log", known) == []
    copy = (tmp_path / "copy.log").read_bytes()
    assert b"redacted-secret" in copy
    assert copy.endswith(b" end\n")


def test_what_is_compressed_is_searched_too(tmp_path: Path) -> None:
    known = told(tmp_path, "export A_PASSWORD=hunter2-x\n")
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gz(b'{"a": "' + b"hunter2-x".hex().encode() + b'"}'))
    (one,) = find_leftovers(packed, known)
    assert one.rule == "encoded secret"
    packed.write_bytes(gz(b"{}", name="hunter2-x"))
    assert find_leftovers(packed, known)


def test_names_of_files_are_searched(tmp_path: Path) -> None:
    known = told(tmp_path, "export USER=bobby7 A_PASSWORD=hunter2-x\n")
    assert leftovers_in("traces/x/bobby7_1.json", known) == [kinds.USER]
    assert leftovers_in("traces/x/HUNTER2-X.json", known) == [kinds.SECRET]
    assert leftovers_in("traces/x/rank0.json", known) == []


def test_what_one_file_reveals_is_gone_from_the_others(tmp_path: Path) -> None:
    environment = {"DEPLOY": "moonshot-staging", "LANG": "en_US.UTF-8", "PORT": "12345678", "RANK": "0"}
    files = {
        "a.json": json.dumps({"environment": environment, "hostname": "gpu17.acme.example"}),
        "b.log": "moonshot-staging at ops.acme.example, not xmoonshot-stagings; en_US.UTF-8 12345678\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    known = collect_identities([tmp_path / name for name in files])
    redact_file(tmp_path / "b.log", tmp_path / "copy", identities=known)
    assert (tmp_path / "copy").read_text() == (
        "redacted-environment at host-unknown, not xmoonshot-stagings; en_US.UTF-8 12345678\n"
    )


@pytest.mark.parametrize("key", ["DEPLOY", "deploy", "hostname", "A_PASSWORD"])
def test_what_its_owner_reveals_stays_everywhere(key: str, tmp_path: Path) -> None:
    trace, log = tmp_path / "a.json", tmp_path / "b.log"
    environment = {"DEPLOY": "moonshot-staging", "TERM": "vt-special-9"}
    trace.write_text(json.dumps({"environment": environment, "hostname": "gpu-17"}))
    log.write_text("on gpu-17 with moonshot-staging and vt-special-9\nexport A_PASSWORD=hunter2-x\n")
    known = collect_identities([trace, log], [key])
    for path in (trace, log):
        redact_file(path, tmp_path / f"copy-{path.name}", identities=known)
        assert find_leftovers(tmp_path / f"copy-{path.name}", known) == []
    both = (tmp_path / "copy-a.json").read_text() + (tmp_path / "copy-b.log").read_text()
    values = {"deploy": "moonshot-staging", "hostname": "gpu-17", "a_password": "hunter2-x"}
    for name, value in values.items():
        assert (value in both) is (name == key.lower())
    assert "vt-special-9" not in both


def test_a_revealed_field_that_is_nowhere_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("USER=bobby\n")
    with pytest.raises(UsageError, match="no field or variable of that name"):
        collect_identities([tmp_path / "a.log"], ["NOWHERE"])


def test_rules_name_the_field_that_reveals(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "export HF_TOKEN=abcdefgh1\nuse hunter2-x --api-key abcdefg12\nssh -p 22 ghp_" + "a1" * 18
    )
    found = redact_file(script, tmp_path / "copy", identities=collect_identities([script]))
    assert {one.rule for one in found} == {
        "token by its prefix",
        "secret in a variable (HF_TOKEN)",
        "secret in an option (api-key)",
    }


def test_bytes_that_no_text_holds_are_refused_not_searched(tmp_path: Path) -> None:
    known = told(tmp_path, f"export A_PASSWORD='{SECRET}'\n")
    (tmp_path / "a.log").write_bytes(ENCODED["UTF-16 little"])
    with pytest.raises(InputError, match="has no format that can be redacted"):
        redact_file(tmp_path / "a.log", tmp_path / "copy", identities=known)


def test_a_value_is_found_once_wherever_the_first_block_ends() -> None:
    """At the beginning, in the middle and at the end, in blocks of any size."""
    needles = Needles({"hunter2-x": kinds.SECRET, "zqkx": kinds.USER})
    longest = max(map(len, needles.forms))
    data = b"hunter2-x zqkx " + b"." * longest + b"hunter2-x zqkx"
    at = [0, 10, 15 + longest, 25 + longest]
    for size in range(1, 3 * longest):
        found = needles.find_in_blocks([data[:size], data[size:]])
        assert sorted(one.at for one in found) == at
        again = needles.find_in_blocks(data[begin : begin + size] for begin in range(0, len(data), size))
        assert sorted(one.at for one in again) == at


@pytest.mark.parametrize("text", [b"xzqkx", b"zqkx1", b"9zqkx"])
def test_a_word_stays_a_word_where_blocks_end(text: bytes) -> None:
    """The letter beside it may be in another block."""
    needles = Needles({"zqkx": kinds.USER})
    data = b". " * 20 + text + b" ." * 20
    for size in range(1, len(data)):
        assert list(needles.find_in_blocks([data[:size], data[size:]])) == []


def test_short_values_are_looked_for_as_they_are_alone() -> None:
    """Encoded ones of six letters and more; a number only encoded."""
    assert {form.encoding for form in encoded_forms("zqk-x", kinds.USER)} == {"as it is"}
    assert len(list(encoded_forms("zqk-xy", kinds.USER))) > 8
    assert "as it is" not in {form.encoding for form in encoded_forms("1234567", kinds.JOB)}
    assert list(encoded_forms("12345", kinds.JOB)) == []
    assert "reversed" not in {form.encoding for form in encoded_forms("1234567", kinds.JOB)}
    for kind, words in ((kinds.USER, True), (kinds.SECRET, False)):
        plain, *encoded = encoded_forms("zqk-xyz", kind)
        assert (plain.data, plain.words) == (b"zqk-xyz", words)
        assert not any(form.words for form in encoded)


def test_no_form_is_there_twice() -> None:
    """What percent-encoding or JSON leave as it is, is the value itself."""
    data = [form.data for form in encoded_forms("ZQK/xyz", kinds.SECRET)]
    assert len(data) == len(set(data))
    assert all(one == one.lower() for one in data)
    assert data[0] == b"zqk/xyz"


def test_values_that_begin_alike_are_told_apart() -> None:
    needles = Needles({"moonshot-one": kinds.SECRET, "moonshot-two": kinds.TOKEN, "moonshot": kinds.USER})
    found = [
        (one.at, one.form.value) for one in needles.find_in_blocks([b"moonshot-two moonshot moonshot-one"])
    ]
    assert sorted(found) == [
        (0, "moonshot"),
        (0, "moonshot-two"),
        (13, "moonshot"),
        (22, "moonshot"),
        (22, "moonshot-one"),
    ]


def test_the_longest_form_counts_where_several_begin() -> None:
    wanted = [form for form in encoded_forms("zqk-xyz", kinds.SECRET) if form.encoding in ("as it is", "hex")]
    longer = NeedleForm(b"zqk-xyz1", "x", "zqk-xyz1", kinds.SECRET, False)
    found = forms_pattern([*wanted, longer])
    assert [match[0] for match in found.finditer("ZQK-XYZ1 zqk-xyz")] == ["ZQK-XYZ1", "zqk-xyz"]
    assert forms_pattern([]) is None

# SPDX-License-Identifier: Apache-2.0
"""A signed manifest: whose key it was, and that it is still what was signed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cclbench.cli import main
from cclbench.contribute.evidence import evidence_elsewhere
from cclbench.contribute.place import DataPointPlace
from cclbench.contribute.signature import NAMESPACE
from cclbench.contribute.verify import Verdict, record_data_point, verify_data_point

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")


SSH_KEYGEN = ("ssh-keygen",)


@pytest.fixture
def point(contributed: Path, tmp_path: Path) -> DataPointPlace:
    shutil.copytree(contributed, tmp_path / "collection")
    return DataPointPlace(tmp_path / "collection", "my-job")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    subprocess.run([*SSH_KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def verify(point: DataPointPlace) -> Verdict:
    with evidence_elsewhere(()) as nowhere:
        return verify_data_point(point, nowhere)


def sign(point: DataPointPlace, key: Path, *more: str) -> int:
    return main(["verify", "my-job", "--collection", str(point.collection), "--sign", str(key), *more])


def allow(point: DataPointPlace, key: Path, principals: str, options: str = "") -> None:
    public = key.with_suffix(".pub").read_text()
    (point.collection / "allowed_signers").write_text(f"{principals} {options} {public}")


def fingerprint(key: Path) -> str:
    listed = subprocess.run([*SSH_KEYGEN, "-l", "-f", str(key)], capture_output=True, text=True, check=True)
    return listed.stdout.split()[1]


def test_the_signer_is_shown(point: DataPointPlace, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(point).signature is None
    assert sign(point, key) == 0
    unnamed = f"my-job: signed with {fingerprint(key)}, which allowed_signers does not name"
    assert unnamed in " ".join(capsys.readouterr().out.split())
    allow(point, key, "grace@example.org,ada@example.org")
    assert main(["verify", "my-job", "--collection", str(point.collection), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["data_points"][0]["signature"]
    assert found == {"key": fingerprint(key), "signer": "grace@example.org", "unchecked": None}
    assert str(verify(point).signature) == f'signed by "grace@example.org" with {fingerprint(key)}'


@pytest.mark.parametrize("options", ['namespaces="git"', 'valid-before="20200101"'])
def test_a_key_that_is_not_accepted_for_it_has_no_signer(
    point: DataPointPlace, key: Path, options: str
) -> None:
    assert sign(point, key) == 0
    allow(point, key, "ada@example.org", options)
    verdict = verify(point)
    assert (verdict.status, verdict.signature and verdict.signature.signer) == ("verified", None)


def test_a_changed_manifest_is_not_what_was_signed(point: DataPointPlace, key: Path) -> None:
    assert sign(point, key) == 0
    point.manifest_path.write_text(point.manifest_path.read_text().replace('"cclbench": "', '"cclbench": "1'))
    verdict = verify(point)
    assert verdict.status == "changed"
    assert verdict.reasons[0].startswith("the signature does not fit the manifest: ")


def test_a_signature_for_another_purpose_does_not_count(point: DataPointPlace, key: Path) -> None:
    command = [*SSH_KEYGEN, "-q", "-Y", "sign", "-n", "git", "-f", str(key), str(point.manifest_path)]
    subprocess.run(command, check=True)
    assert point.signature_path.is_file()
    assert NAMESPACE != "git"
    assert verify(point).status == "changed"


@pytest.mark.parametrize("content", [b"", b"junk", b"\xff" * 1000])
def test_a_damaged_signature_is_a_change(point: DataPointPlace, content: bytes) -> None:
    point.signature_path.write_bytes(content)
    assert verify(point).status == "changed"


def test_recording_keeps_the_signature_of_an_unchanged_manifest(point: DataPointPlace, key: Path) -> None:
    assert sign(point, key, "--record") == 0
    with evidence_elsewhere(()) as nowhere:
        record_data_point(point, nowhere)
        assert verify(point).signature is not None
        record_data_point(point, nowhere, revealed=["author"])
    assert not point.signature_path.exists()


def test_only_what_is_verified_is_signed(
    point: DataPointPlace, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    point.card_path.write_text(point.card_path.read_text() + "# later\n")
    assert sign(point, key) == 1
    assert not point.signature_path.exists()
    assert sign(point, key.with_name("none"), "--record") == 2
    assert "cannot sign: Couldn't load public key" in capsys.readouterr().err
    assert not point.signature_path.exists()


def test_without_openssh_a_signature_is_not_checked(
    point: DataPointPlace, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sign(point, key) == 0
    monkeypatch.setenv("PATH", "")
    verdict = verify(point)
    assert verdict.status == "verified"
    assert str(verdict.signature) == "the signature is not checked: ssh-keygen is not installed"

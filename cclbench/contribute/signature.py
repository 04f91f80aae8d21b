# SPDX-License-Identifier: Apache-2.0
"""SSH signatures of manifests: who vouches for a data point.

`traces/<id>/manifest.json.sig` is OpenSSH's signature of the manifest (`ssh-keygen -Y sign`), and with the
manifest's hashes one of the card and all evidence.  The collection's `allowed_signers`, in OpenSSH's format,
names the keys that it accepts.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cclbench.contribute.place import DataPointPlace
from cclbench.ground.errors import CheckFailed, UsageError
from cclbench.ground.text import printable, quoted_value

NAMESPACE: Final = "cclbench-data-point"
"""Part of what is signed: a signature for another purpose, such as a commit's, does not count."""
_ALLOWED: Final = "allowed_signers"


@dataclass(frozen=True)
class Signature:
    """A signature that holds: the key's fingerprint, and its owner if the collection's allowed signers name
    it; or why it is `unchecked`.
    """

    key: str | None
    signer: str | None = None
    unchecked: str | None = None

    def __str__(self) -> str:
        if self.unchecked is not None:
            return f"the signature is not checked: {self.unchecked}"
        owner = f"by {quoted_value(self.signer)} " if self.signer else ""
        unknown = "" if self.signer else f", which {_ALLOWED} does not name"
        return f"signed {owner}with {self.key}{unknown}"


def sign_manifest(place: DataPointPlace, key: Path) -> None:
    """Sign the manifest with a private key, or the agent's key of a public one; an old signature is replaced.

    Raises `UsageError` if the key cannot be used.
    """
    done = _run_ssh_keygen(["sign", "-f", str(key)], place.manifest_path)
    if done.returncode != 0:
        raise UsageError(f"cannot sign: {_last_line(done)}", where=str(key))
    draft = place.signature_path.with_name(f".{place.signature_path.name}.draft")
    draft.write_bytes(done.stdout)
    draft.replace(place.signature_path)


def read_signature(place: DataPointPlace) -> Signature | None:
    """The signature of the manifest as it is; None if it is not signed.

    Raises `CheckFailed` if the signature does not fit the manifest.
    """
    if not place.signature_path.is_file():
        return None
    beside = ["-s", str(place.signature_path)]
    try:
        done = _run_ssh_keygen(["check-novalidate", *beside], place.manifest_path)
    except UsageError as error:
        return Signature(None, unchecked=error.what)
    fingerprint = re.search(r"\bSHA256:[\w+/]{43}", done.stdout.decode("utf-8", "replace"))
    if done.returncode != 0 or fingerprint is None:
        raise CheckFailed(f"the signature does not fit the manifest: {_last_line(done)}")
    allowed = place.collection / _ALLOWED
    if not allowed.is_file():
        return Signature(fingerprint[0])
    named = _run_ssh_keygen(["find-principals", *beside, "-f", str(allowed)], place.manifest_path)
    signers = re.split(r"[,\n]", named.stdout.decode("utf-8", "replace").strip())
    for signer in filter(None, signers if named.returncode == 0 else []):
        accepted = _run_ssh_keygen(["verify", *beside, "-f", str(allowed), "-I", signer], place.manifest_path)
        if accepted.returncode == 0:
            return Signature(fingerprint[0], signer)
    return Signature(fingerprint[0])


def _run_ssh_keygen(arguments: Sequence[str], manifest: Path) -> subprocess.CompletedProcess[bytes]:
    """Run `ssh-keygen -Y`, which reads the manifest from its standard input."""
    command = ["ssh-keygen", "-Y", arguments[0], "-n", NAMESPACE, *arguments[1:]]
    try:
        with manifest.open("rb") as content:
            return subprocess.run(command, stdin=content, capture_output=True, check=False)  # noqa: S603
    except FileNotFoundError as error:
        what = "ssh-keygen is not installed" if error.filename == command[0] else "there is no manifest"
        raise UsageError(what, where=str(manifest)) from None


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return printable(lines[-1])[:200] if lines else f"ssh-keygen exits with {done.returncode}"

# SPDX-License-Identifier: Apache-2.0
"""Download and verify the external traces and logs that the tests read, listed in tests/fixtures.yaml.

    python scripts/fetch_fixtures.py [FOLDER] [--only GLOB] [--check]

FOLDER is the tests' data folder: by default CCLBENCH_TEST_DATA, or ../shared/fixtures.  Files that match the
manifest are kept, so that an interrupted download can be resumed; a file is complete or absent.  `--check`
downloads nothing.  Exit code 1 if a public file is missing or does not match the manifest.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from email.message import Message
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import IO, Final
from urllib.error import URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec
from rich.console import Console
from rich.progress import Progress

REPOSITORY: Final = Path(__file__).resolve().parents[1]
MANIFEST: Final = REPOSITORY / "tests" / "fixtures.yaml"
FOLDER: Final = Path(os.environ.get("CCLBENCH_TEST_DATA", REPOSITORY.parent / "shared" / "fixtures"))
SCHEMES: Final = ("https",)
MOST_ARCHIVE_BYTES: Final = 1 << 26
BLOCK: Final = 1 << 16
SECONDS: Final = 60


class Fixture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file below the folder, and its path in its repository.

    A `member` of an archive is kept compressed by gzip: `bytes` and `sha256` are of its content.
    """

    file: str
    bytes: int
    sha256: str
    path: str = ""
    member: str = ""


class Repository(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files of one commit of a public repository."""

    repository: str
    commit: str
    licence: str
    files: list[Fixture]


class NotPublic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files that cannot be downloaded, and the reason."""

    reason: str
    licence: str
    files: list[Fixture]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All files of the tests; `origin` is the address of a file by repository, commit and path."""

    origin: str
    repositories: list[Repository]
    not_public: list[NotPublic]

    def by_address(self, only: str = "*") -> Iterator[tuple[str, list[Fixture]]]:
        """The public files whose name matches, by download address."""
        for repository in self.repositories:
            wanted = [file for file in repository.files if fnmatch(file.file, only)]
            for path in dict.fromkeys(file.path for file in wanted):
                address = self.origin.format(
                    repository=repository.repository, commit=repository.commit, path=quote(path, safe="/")
                )
                yield address, [file for file in wanted if file.path == path]


def read_manifest(path: Path = MANIFEST) -> Manifest:
    """Read a manifest."""
    return msgspec.yaml.decode(path.read_bytes(), type=Manifest)


def matches_manifest(path: Path, fixture: Fixture) -> bool:
    """Whether the file exists and matches the manifest."""
    if not path.is_file():
        return False
    with gzip.open(path) if fixture.member else path.open("rb") as file:
        content = file.read(fixture.bytes + 1)
    return sha256(content).hexdigest() == fixture.sha256


class SecureRedirects(HTTPRedirectHandler):
    """Follow redirections to allowed schemes only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        """See `HTTPRedirectHandler`; refuses other schemes."""
        check_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def check_scheme(address: str) -> None:
    """Refuse an address that is not encrypted."""
    if urlsplit(address).scheme not in SCHEMES:
        raise ValueError(f"{address}: refused: it does not begin with https")


def download(address: str, target: Path, most: int, advance: Callable[[int], object]) -> None:
    """Read the missing rest of a file of at most `most` bytes; `advance` is called for each part."""
    check_scheme(address)
    begin = target.stat().st_size if target.exists() else 0
    begin = begin if begin < most else 0
    request = Request(address, headers={"Range": f"bytes={begin}-"} if begin else {})  # noqa: S310
    with build_opener(SecureRedirects).open(request, timeout=SECONDS) as response:
        resumed = response.status == 206
        advance(begin if resumed else 0)
        with target.open("ab" if resumed else "wb") as out:
            while block := response.read(BLOCK):
                out.write(block)
                if out.tell() > most:
                    raise ValueError(f"{address}: larger than {most:,} bytes")
                advance(len(block))


def fetch(address: str, fixtures: list[Fixture], folder: Path, advance: Callable[[int], object]) -> list[str]:
    """Download an address and store its files; returns the problems."""
    part = folder / f".{sha256(address.encode()).hexdigest()[:16]}.part"
    in_archive = bool(fixtures[0].member)
    download(address, part, MOST_ARCHIVE_BYTES if in_archive else fixtures[0].bytes, advance)
    wrong = []
    for fixture in fixtures:
        target, content = folder / fixture.file, part
        if in_archive:
            content = part.with_suffix(".member")
            with tarfile.open(part) as archive, archive.extractfile(fixture.member) as member:  # type: ignore[union-attr]
                content.write_bytes(gzip.compress(member.read(fixture.bytes + 1), mtime=0))
        if matches_manifest(content, fixture):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(content, target)
        else:
            wrong.append(f"{fixture.file}: {address} does not match the manifest")
    part.unlink(missing_ok=True)
    return wrong


def main(words: list[str] | None = None) -> int:
    """Parse arguments, download or check; returns the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--only", default="*", metavar="GLOB", help="only files with such names")
    parser.add_argument("--check", action="store_true", help="download nothing")
    parser.add_argument("--manifest", type=Path, default=MANIFEST, help="list of files")
    asked = parser.parse_args(words)
    manifest = read_manifest(asked.manifest)
    wanted = dict(manifest.by_address(asked.only))
    missing = {
        address: needed
        for address, fixtures in wanted.items()
        if (needed := [file for file in fixtures if not matches_manifest(asked.folder / file.file, file)])
    }
    problems: list[str] = []
    if asked.check:
        problems = [
            f"{file.file}: missing or does not match the manifest"
            for files in missing.values()
            for file in files
        ]
    elif missing:
        asked.folder.mkdir(parents=True, exist_ok=True)
        with Progress(console=Console(stderr=True)) as progress:
            for address, fixtures in missing.items():
                size = None if fixtures[0].member else fixtures[0].bytes
                task = progress.add_task(Path(fixtures[0].file).name[:40], total=size)
                try:
                    problems += fetch(
                        address, fixtures, asked.folder, lambda n, task=task: progress.advance(task, n)
                    )
                except (OSError, URLError, ValueError, KeyError, tarfile.TarError) as error:
                    problems.append(f"{fixtures[0].file}: {error}")
                progress.update(task, visible=False)
    count = sum(map(len, wanted.values()))
    print(f"{asked.folder}: {count - len(problems)} of {count} public files are present")
    for group in manifest.not_public:
        names = [file.file for file in group.files if fnmatch(file.file, asked.only)]
        absent = [name for name in names if not (asked.folder / name).exists()]
        wrong = [
            f"{file.file}: does not match the manifest"
            for file in group.files
            if file.file in names
            and file.file not in absent
            and not matches_manifest(asked.folder / file.file, file)
        ]
        problems += wrong if asked.check else []
        if absent:
            print(f"not public, {len(absent)} of {len(names)} absent: {group.reason}")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

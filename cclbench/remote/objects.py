# SPDX-License-Identifier: Apache-2.0
"""List, download and upload the objects below a URL, with bounded and retried requests.

Requests go through fsspec's file systems, for http and https through `web`.  Error texts of other libraries
are never quoted, since they may contain a signature or a key.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from cclbench.engine import Progress
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.signals import WAIT_S
from cclbench.ground.units import MIB
from cclbench.remote import web
from cclbench.remote.failures import NO_BUCKET, Kind, ShortError, code_of, failure_words, kind_of
from cclbench.remote.file_systems import S3, SECONDS, open_file_system
from cclbench.remote.url import WEB, Url, check_names

Result = TypeVar("Result")
Work = TypeVar("Work")

MOST_OBJECTS: Final = 1_000_000
"""Maximum number of objects of a source or a run."""
BLOCK: Final = 8 * MIB
"""Bytes per request."""
ATTEMPTS: Final = 5
"""Attempts before a request fails; a block that arrives resets the count."""
PAUSE: Final = 0.25
"""Upper limit in seconds of the random pause before the second attempt; doubles with each further one."""
LONGEST_PAUSE: Final = 20.0
_LISTING_SECONDS: Final = 600.0
_TOGETHER: Final = 8
"""Objects read or written in parallel."""
_VERSIONS: Final = ("ETag", "etag", "generation", "LastModified", "last_modified", "mtime", "created")
"""Fields in which file systems state an object's version, the most reliable first."""
_MOST_PARTS: Final = 10_000
"""Maximum number of parts of an upload to S3."""
_NO_WORD: Final = "400"
"""s3fs's code for a bad request whose response has no body."""


@dataclass(frozen=True, slots=True)
class Object:
    """One object: `name` is its path below the URL, "" for the URL itself; `version` changes with it."""

    name: str
    size: int
    version: str | None


class ForbiddenError(InputError):
    """Credentials are missing, expired or insufficient."""


class MissingError(InputError):
    """There is no such object."""


class _StoppedError(Exception):
    """The request was abandoned: another one failed, or the user interrupted."""


class Objects:
    """The objects below a URL.  A request that fails finally raises `InputError`, or one of its kinds above.

    With `public`, web servers are contacted over https at public addresses only, also after redirects.
    """

    def __init__(self, url: Url, *, public: bool = False) -> None:
        self.url, self._public = url, public
        self._stop = threading.Event()

    def own_object(self) -> Object | None:
        """The object at the URL itself, None if it names a folder or nothing."""
        if self.url.scheme in WEB:
            size, version = self._with_retries(
                "", lambda: web.size_and_version(self.url.full, public=self._public)
            )
            return Object("", size, version)
        info = self._with_retries("", self._own_info, missing=None)
        return None if info is None or info["type"] == "directory" else self._object_from_info(info)

    def list_all(self, below: str = "") -> list[Object]:
        """All objects in the folder `below` and its folders, sorted by name relative to it.

        Names are checked to be valid relative paths of files.
        """
        base = self._path_to(below)
        infos = self._with_retries(below, lambda: self._find_all(base), missing=dict[str, Any]())
        # Web consoles mark folders with empty objects whose names end in a slash.
        infos = {name: info for name, info in infos.items() if not self._is_folder(info)}
        where = self.url.below(below) if below else self.url
        if len(infos) > MOST_OBJECTS:
            hint = "name a narrower folder"
            raise InputError(f"holds more than {MOST_OBJECTS:,} objects", where=str(where), hint=hint)
        objects = [self._object_from_info(info, base) for info in infos.values()]
        check_names((entry.name for entry in objects), where)
        return sorted(objects, key=lambda entry: entry.name)

    def list_folders(self) -> list[str]:
        """Names of the folders directly below the URL."""
        infos = self._with_retries(
            "", lambda: self._call_method("ls", self._path, detail=True), missing=list[Any]()
        )
        paths = sorted(
            {str(info["name"]).rstrip("/") for info in infos if self._is_folder(info)} - {self._path}
        )
        names = [name.rpartition("/")[2] for name in paths]
        check_names(names, self.url)
        return names

    def list_top(self, folder: str) -> list[Object]:
        """The objects directly in one of the folders, named as in `list_all`."""
        base = self._path_to(folder)
        infos = self._with_retries(
            folder, lambda: self._call_method("ls", base, detail=True), missing=list[Any]()
        )
        objects = [self._object_from_info(info, base) for info in infos if not self._is_folder(info)]
        check_names((entry.name for entry in objects), self.url.below(folder))
        return objects

    def download_all(
        self,
        objects: Sequence[Object],
        into: Path,
        *,
        below: str = "",
        most: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Download objects of the folder `below` into a local one, under their names; see `download`."""

        def download_one(remote: Object) -> None:
            target = into / remote.name
            target.parent.mkdir(parents=True, exist_ok=True)
            self.download(remote, target, below=below, most=most)

        self._in_threads(download_one, objects, progress, f"reading {self.url}")

    def download(self, remote: Object, target: Path, *, below: str = "", most: int | None = None) -> None:
        """Download one object, or its first `most` bytes, to a file, in the version that was listed.

        Continues after the bytes that the file already has.  `InputError` if the object changed.
        """
        name = "/".join(filter(None, (below, remote.name)))
        end = remote.size if most is None else min(most, remote.size)
        try:
            with target.open("ab") as file:
                while file.tell() < end:
                    self._with_retries(name, lambda: self._read_on(name, remote, end, file))
        except OSError as error:
            where, hint = str(target.parent), "make room there"
            raise InputError(
                f"cannot be written: {error.strerror or error}", where=where, hint=hint
            ) from None
        if end == remote.size and self.url.scheme not in (*S3, *WEB):
            info = self._with_retries(name, lambda: self._call_method("info", self._path_to(name)))
            if self._object_from_info(info).version != remote.version or info["size"] != remote.size:
                raise self._changed_error(name)

    def upload_all(self, files: Sequence[tuple[Path, str]], progress: Progress | None = None) -> None:
        """Upload local files, each under a name below the URL, whole or not at all."""

        def upload_one(file: tuple[Path, str]) -> None:
            path, name = file
            size = path.stat().st_size
            seconds = SECONDS + size / web.SLOWEST
            # One part at a time: s3fs would hold up to ten of 50 MiB per file.
            part = max(BLOCK, size // _MOST_PARTS + 1)
            parts = {"chunksize": part, "max_concurrency": 1} if self.url.scheme in S3 else {}
            self._with_retries(
                name,
                lambda: self._call_method(
                    "put_file", str(path), self._path_to(name), seconds=seconds, **parts
                ),
            )

        self._in_threads(upload_one, files, progress, f"writing {self.url}")

    def remove_all(self, names: Iterable[str]) -> None:
        """Remove objects by their names below the URL."""

        def remove_one(name: str) -> None:
            self._with_retries(name, lambda: self._call_method("rm_file", self._path_to(name)), missing=None)

        self._in_threads(remove_one, list(names), None, "")

    # ------------------------------------------------------------------------------------ requests

    def _own_info(self) -> Any:
        """The file system's information on the URL itself."""
        try:
            return self._call_method("info", self._path)
        except Exception as error:
            if code_of(error) == _NO_WORD:
                # A HEAD response has no body that states the reason (expired credentials), a listing has.
                self._call_method("ls", self._path)
            raise

    def _read_on(self, name: str, remote: Object, end: int, file: Any) -> None:
        """Append the missing bytes up to `end`; a failure after at least a block arrived is not an error.

        Bytes that arrived are kept: the next attempt continues from there.
        """
        begun = file.tell()
        try:
            for piece in self._object_pieces(name, remote, begun, end):
                if self._stop.is_set():
                    raise _StoppedError
                if file.tell() + len(piece) > end:
                    raise self._changed_error(name)
                file.write(piece)
            if file.tell() < end:
                raise ShortError
        except (InputError, _StoppedError):
            raise
        except Exception as error:
            if file.tell() - begun < BLOCK or kind_of(error) != "again":
                raise

    def _object_pieces(self, name: str, remote: Object, start: int, until: int) -> Iterator[bytes]:
        if self.url.scheme in WEB:
            yield from web.body_pieces(
                self.url.full, size=remote.size, start=start, version=remote.version, public=self._public
            )
            return
        for begin in range(start, until, BLOCK):
            end = min(begin + BLOCK, until)
            if self.url.scheme in S3:
                piece = self._s3_range(self._path_to(name), begin, end, remote.version)
            else:
                piece = self._call_method("cat_file", self._path_to(name), begin, end)
            yield piece
            if len(piece) < end - begin:
                raise ShortError

    def _s3_range(self, path: str, begin: int, end: int, version: str | None) -> bytes:
        """Bytes of an S3 object, on condition that its ETag is the one that was listed."""
        fs = self._fs
        bucket, key, _ = fs.split_path(path)
        condition = {} if version is None else {"IfMatch": version}

        async def get_range() -> bytes:
            request = {"Bucket": bucket, "Key": key, "Range": f"bytes={begin}-{end - 1}", **condition}
            response = await fs._call_s3("get_object", **request)
            try:
                if response["ContentLength"] > end - begin:
                    raise web.BadAnswerError("the service sent more than was requested")
                return bytes(await response["Body"].read())
            finally:
                response["Body"].close()

        piece: bytes = self._wait_for(get_range(), SECONDS + BLOCK / web.SLOWEST)
        return piece

    def _find_all(self, base: str) -> dict[str, Any]:
        return dict(self._call_method("find", base, detail=True, seconds=_LISTING_SECONDS))

    def _call_method(
        self, method: str, *args: Any, seconds: float = SECONDS + BLOCK / web.SLOWEST, **named: Any
    ) -> Any:
        """Call a method of the file system; `TimeoutError` after so many seconds."""
        fs = self._fs
        if not fs.async_impl:
            return getattr(fs, method)(*args, **named)
        return self._wait_for(getattr(fs, f"_{method}")(*args, **named), seconds)

    def _wait_for(self, coroutine: Any, seconds: float) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._fs.loop)
        until = time.monotonic() + seconds
        try:
            while not wait([future], timeout=WAIT_S).done:
                if self._stop.is_set():
                    raise _StoppedError
                if time.monotonic() > until:
                    raise TimeoutError
            return future.result()
        finally:
            future.cancel()

    def _with_retries(self, name: str, act: Callable[[], Result], **otherwise: Result) -> Result:
        """Call `act`, with retries where these may help; without an object, return `missing=` if given."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return act()
            except (InputError, UsageError, _StoppedError):
                raise
            except Exception as error:  # each kind of store has exceptions of its own
                kind = kind_of(error)
                if kind == "missing" and otherwise and code_of(error) != NO_BUCKET:
                    return otherwise["missing"]
                if kind == "local":
                    raise
                if kind in ("expired", "forbidden") and self.url.scheme not in WEB:
                    self._fs.clear_instance_cache()  # so that renewed credentials are read
                if kind != "again" or attempt == ATTEMPTS:
                    raise self._failure_error(name, kind, error) from None
            longest = min(PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)
            if self._stop.wait(random.uniform(0, longest)):  # noqa: S311  (no secret)
                raise _StoppedError
        raise AssertionError("unreachable")

    def _in_threads(
        self, work: Callable[[Work], None], tasks: Sequence[Work], progress: Progress | None, what: str
    ) -> None:
        """Call `work` for each task, in threads; the first failure, or Ctrl-C, stops the others."""
        self._stop.clear()
        with ThreadPoolExecutor(_TOGETHER) as pool:
            try:
                running = {pool.submit(work, task) for task in tasks}
                while running:
                    done, running = wait(running, timeout=WAIT_S, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                    if progress and done:
                        progress(what, len(tasks) - len(running), len(tasks))
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            finally:
                self._stop.clear()

    # ------------------------------------------------------------------------------------- details

    @cached_property
    def _file_system(self) -> tuple[Any, str]:
        return open_file_system(self.url)

    @property
    def _fs(self) -> Any:
        return self._file_system[0]

    @property
    def _path(self) -> str:
        return self._file_system[1]

    def _path_to(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    def _is_folder(self, info: dict[str, Any]) -> bool:
        return info["type"] == "directory" or str(info["name"]).endswith("/")

    def _object_from_info(self, info: dict[str, Any], base: str | None = None) -> Object:
        size = info["size"]
        stamp = next((info[key] for key in _VERSIONS if info.get(key)), None)
        version = None if stamp is None else str(stamp.timestamp() if isinstance(stamp, datetime) else stamp)
        name = str(info["name"]).removeprefix(base).removeprefix("/") if base is not None else ""
        if base is not None and str(info["name"]).startswith(f"{base}//"):
            name = f"/{name}"  # refused later, for its empty part
        if not isinstance(size, int):
            raise InputError("size unknown", where=str(self.url.below(name) if name else self.url))
        return Object(name, size, version)

    def _changed_error(self, name: str) -> InputError:
        where = self.url.below(name) if name else self.url
        return InputError("changed while it was read", where=str(where), hint="wait for its writer")

    def _failure_error(self, name: str, kind: Kind, error: Exception) -> InputError:
        """The error for the user."""
        where = str(self.url.below(name) if name else self.url)
        words = failure_words(error)
        if kind == "missing":
            what = "no such bucket" if code_of(error) == NO_BUCKET else "no such object or folder"
            return MissingError(what, where=where)
        if kind == "changed":
            return self._changed_error(name)
        if kind == "expired":
            hint = "renew them and try again"
            return ForbiddenError(f"the credentials have expired ({words})", where=where, hint=hint)
        if kind == "forbidden":
            hint = "set up credentials that allow it, as for the service's own tools, such as AWS_PROFILE"
            return ForbiddenError(f"access denied ({words})", where=where, hint=hint)
        tries = f", {ATTEMPTS} times" if kind == "again" else ""
        return InputError(f"the service failed{tries}: {words}", where=where, hint="try again later")

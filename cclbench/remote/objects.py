# SPDX-License-Identifier: Apache-2.0
"""What lies below a URL: listed, read and written, each request bounded, retried and its failure told.

Requests are those of fsspec's file systems; of http and https those of `web`.  What other libraries raise
is never quoted, since it may hold a signature or a key.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from cclbench.engine import Progress
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.units import MIB
from cclbench.remote import web
from cclbench.remote.failures import NO_BUCKET, Kind, ShortError, code_of, failure_words, kind_of
from cclbench.remote.file_systems import S3, SECONDS, open_file_system
from cclbench.remote.url import WEB, Url, check_names

Result = TypeVar("Result")
Work = TypeVar("Work")

MOST_OBJECTS: Final = 1_000_000
"""Objects of a source or a run."""
BLOCK: Final = 8 * MIB
"""Bytes asked for at once."""
ATTEMPTS: Final = 5
"""How often a request is made before it has failed; a block that arrives starts the count again."""
PAUSE: Final = 0.25
"""Longest pause before the second attempt, in seconds: a random part of it, which doubles each time."""
LONGEST_PAUSE: Final = 20.0
_LISTING_SECONDS: Final = 600.0
_TOGETHER: Final = 8
"""Objects read or written side by side."""
_VERSIONS: Final = ("ETag", "etag", "generation", "LastModified", "last_modified", "mtime", "created")
"""What file systems call what changes with an object, the surest first."""
_MOST_PARTS: Final = 10_000
"""Of an upload to S3."""
_NO_WORD: Final = "400"
"""What s3fs makes of a bad request whose answer has no body."""


@dataclass(frozen=True, slots=True)
class Object:
    """One object: `name` is its path below the URL, "" of the URL's own; `version` changes with it."""

    name: str
    size: int
    version: str | None


class ForbiddenError(InputError):
    """The credentials are missing, expired, or do not allow it."""


class MissingError(InputError):
    """Nothing is there."""


class _StoppedError(Exception):
    """Another request failed, or a person interrupted: nobody waits for this one."""


class Objects:
    """The objects below a URL.  A request that fails for good raises `InputError`, of the kinds above.

    With `public` a web server is asked over https at a public address alone, redirected or not.
    """

    def __init__(self, url: Url, *, public: bool = False) -> None:
        self.url, self._public = url, public
        self._stop = threading.Event()

    def own_object(self) -> Object | None:
        """The URL's own object, None where it names a folder or nothing."""
        if self.url.scheme in WEB:
            size, version = self._with_retries(
                "", lambda: web.size_and_version(self.url.full, public=self._public)
            )
            return Object("", size, version)
        info = self._with_retries("", self._own_info, missing=None)
        return None if info is None or info["type"] == "directory" else self._object_from_info(info)

    def list_all(self, below: str = "") -> list[Object]:
        """All objects, by name, of the folder `below`, which is left out of their names.

        Names are checked to be those of files within any folder.
        """
        base = self._path_to(below)
        infos = self._with_retries(below, lambda: self._find_all(base), missing=dict[str, Any]())
        # Consoles mark folders by empty objects whose names end in a slash.
        infos = {name: info for name, info in infos.items() if not self._is_folder(info)}
        where = self.url.below(below) if below else self.url
        if len(infos) > MOST_OBJECTS:
            hint = "name a narrower folder"
            raise InputError(f"holds more than {MOST_OBJECTS:,} objects", where=str(where), hint=hint)
        objects = [self._object_from_info(info, base) for info in infos.values()]
        check_names((entry.name for entry in objects), where)
        return sorted(objects, key=lambda entry: entry.name)

    def list_folders(self) -> list[str]:
        """Names of the folders right below the URL."""
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
        """The objects right within one of the folders, named as `list_all` does."""
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
        """Write objects of the folder `below` into a local one, by their names; see `download`."""

        def download_one(wanted: Object) -> None:
            target = into / wanted.name
            target.parent.mkdir(parents=True, exist_ok=True)
            self.download(wanted, target, below=below, most=most)

        self._in_threads(download_one, objects, progress, f"reading {self.url}")

    def download(self, wanted: Object, target: Path, *, below: str = "", most: int | None = None) -> None:
        """Write one object, or its first `most` bytes, to a file as it was when it was listed.

        What the file has of the object already is not asked for again.  `InputError` where it changed.
        """
        name = "/".join(filter(None, (below, wanted.name)))
        end = wanted.size if most is None else min(most, wanted.size)
        try:
            with target.open("ab") as file:
                while file.tell() < end:
                    self._with_retries(name, lambda: self._read_on(name, wanted, end, file))
        except OSError as error:
            where, hint = str(target.parent), "make room there"
            raise InputError(
                f"cannot be written: {error.strerror or error}", where=where, hint=hint
            ) from None
        if end == wanted.size and self.url.scheme not in (*S3, *WEB):
            info = self._with_retries(name, lambda: self._call_method("info", self._path_to(name)))
            if self._object_from_info(info).version != wanted.version or info["size"] != wanted.size:
                raise self._changed_error(name)

    def upload_all(self, files: Sequence[tuple[Path, str]], progress: Progress | None = None) -> None:
        """Write local files, each under a name below the URL, whole or not at all."""

        def upload_one(file: tuple[Path, str]) -> None:
            path, name = file
            size = path.stat().st_size
            seconds = SECONDS + size / web.SLOWEST
            # A part at a time: s3fs would hold up to ten of 50 MiB, for each file.
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
        """What is told of the URL's own object."""
        try:
            return self._call_method("info", self._path)
        except Exception as error:
            if code_of(error) == _NO_WORD:
                # The answer to a HEAD has no body to say why (expired credentials, say): a listing's has.
                self._call_method("ls", self._path)
            raise

    def _read_on(self, name: str, wanted: Object, end: int, file: Any) -> None:
        """Append what is missing of an object's first bytes; ends early, without an error, when some came.

        What arrived stays whatever happens: the next attempt goes on from there.
        """
        begun = file.tell()
        try:
            for piece in self._object_pieces(name, wanted, begun, end):
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

    def _object_pieces(self, name: str, wanted: Object, start: int, until: int) -> Iterator[bytes]:
        if self.url.scheme in WEB:
            yield from web.body_pieces(
                self.url.full, size=wanted.size, start=start, version=wanted.version, public=self._public
            )
            return
        for begin in range(start, until, BLOCK):
            end = min(begin + BLOCK, until)
            if self.url.scheme in S3:
                piece = self._s3_range(self._path_to(name), begin, end, wanted.version)
            else:
                piece = self._call_method("cat_file", self._path_to(name), begin, end)
            yield piece
            if len(piece) < end - begin:
                raise ShortError

    def _s3_range(self, path: str, begin: int, end: int, version: str | None) -> bytes:
        """Bytes of an object of S3, which answers only while the ETag is the one that was listed."""
        fs = self._fs
        bucket, key, _ = fs.split_path(path)
        condition = {} if version is None else {"IfMatch": version}

        async def get_range() -> bytes:
            asked = {"Bucket": bucket, "Key": key, "Range": f"bytes={begin}-{end - 1}", **condition}
            response = await fs._call_s3("get_object", **asked)
            try:
                if response["ContentLength"] > end - begin:
                    raise web.BadAnswerError("the service gives more than it was asked for")
                return bytes(await response["Body"].read())
            finally:
                response["Body"].close()

        piece: bytes = self._wait_for(get_range(), SECONDS + BLOCK / web.SLOWEST)
        return piece

    def _find_all(self, base: str) -> dict[str, Any]:
        return dict(self._call_method("find", base, detail=True, seconds=_LISTING_SECONDS))

    def _call_method(
        self, method: str, *given: Any, seconds: float = SECONDS + BLOCK / web.SLOWEST, **named: Any
    ) -> Any:
        """What a method of the file system returns; `TimeoutError` after so many seconds."""
        fs = self._fs
        if not fs.async_impl:
            return getattr(fs, method)(*given, **named)
        return self._wait_for(getattr(fs, f"_{method}")(*given, **named), seconds)

    def _wait_for(self, coroutine: Any, seconds: float) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._fs.loop)
        until = time.monotonic() + seconds
        try:
            while not wait([future], timeout=0.2).done:
                if self._stop.is_set():
                    raise _StoppedError
                if time.monotonic() > until:
                    raise TimeoutError
            return future.result()
        finally:
            future.cancel()

    def _with_retries(self, name: str, act: Callable[[], Result], **otherwise: Result) -> Result:
        """What `act` returns, which is tried again where that may help; `missing=` where nothing is there."""
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
                    self._fs.clear_instance_cache()  # who renews credentials is to be asked for them again
                if kind != "again" or attempt == ATTEMPTS:
                    raise self._failure_error(name, kind, error) from None
            longest = min(PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)
            if self._stop.wait(random.uniform(0, longest)):  # noqa: S311  (no secret)
                raise _StoppedError
        raise AssertionError("unreachable")

    def _in_threads(
        self, work: Callable[[Work], None], tasks: Sequence[Work], progress: Progress | None, what: str
    ) -> None:
        """`work` on each task, in threads; the first failure, or Ctrl-C, stops the others."""
        self._stop.clear()
        with ThreadPoolExecutor(_TOGETHER) as pool:
            try:
                for done, future in enumerate(as_completed([pool.submit(work, task) for task in tasks]), 1):
                    future.result()
                    if progress:
                        progress(what, done, len(tasks))
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
            name = f"/{name}"  # to be refused: its name has an empty part
        if not isinstance(size, int):
            raise InputError("its size is not known", where=str(self.url.below(name) if name else self.url))
        return Object(name, size, version)

    def _changed_error(self, name: str) -> InputError:
        where = self.url.below(name) if name else self.url
        return InputError("changed while it was read", where=str(where), hint="wait for its writer")

    def _failure_error(self, name: str, kind: Kind, error: Exception) -> InputError:
        """The error people see."""
        where = str(self.url.below(name) if name else self.url)
        words = failure_words(error)
        if kind == "missing":
            what = "no such bucket" if code_of(error) == NO_BUCKET else "there is nothing of that name"
            return MissingError(what, where=where)
        if kind == "changed":
            return self._changed_error(name)
        if kind == "expired":
            hint = "renew them and try again"
            return ForbiddenError(f"the credentials have expired ({words})", where=where, hint=hint)
        if kind == "forbidden":
            hint = "give credentials that allow it, as the service's own tools take them, such as AWS_PROFILE"
            return ForbiddenError(f"access is refused ({words})", where=where, hint=hint)
        tries = f", {ATTEMPTS} times" if kind == "again" else ""
        return InputError(f"the service failed{tries}: {words}", where=where, hint="try again later")

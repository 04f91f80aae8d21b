# SPDX-License-Identifier: Apache-2.0
"""Tasks as futures of a Dask cluster, on this machine or of a given scheduler.

Each task is one future; Dask's collections are not used.  Workers read sources and write rows at the same
paths as this process: both must be on a shared file system.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cclbench import __version__
from cclbench.engine import available_cores
from cclbench.engine.pool import PoolEngine
from cclbench.ground.errors import CclbenchError, UsageError, install_hint

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_S: Final = 15
_WORKERS_S: Final = 60


class Dask(PoolEngine):
    """The cluster of a scheduler's address, of a client, or a new one on this machine.

    Tasks that run on workers of a scheduler cannot be killed; those that have not started are cancelled.
    """

    most_bundled = 16  # a future takes some 8 ms of the scheduler, the client and the worker

    def __init__(
        self, where: str | Client | None, jobs: int | None, tell: Callable[[str], object] | None
    ) -> None:
        self._where, self._jobs, self._tell = where, jobs, tell
        self._client: Client | None = None

    def start_executor(self) -> tuple[Executor, int]:
        """See `PoolEngine`."""
        try:
            client = self._connect_client()
            client.wait_for_workers(1, timeout=_WORKERS_S)
            _require_same_versions(client)
        except ImportError as error:
            raise UsageError(f"Dask cannot be used: {error}", hint=install_hint("cluster")) from None
        except (OSError, TimeoutError) as error:
            self._close_client()
            hint = "start `dask scheduler` and `dask worker`, or use --engine processes"
            raise UsageError(
                f"no Dask cluster answers: {error}", where=self._cluster_name, hint=hint
            ) from None
        except BaseException:
            self._close_client()
            raise
        if self._tell and client.dashboard_link:
            self._tell(f"Dask's dashboard: {client.dashboard_link}")
        return client.get_executor(pure=False), sum(client.nthreads().values())

    @property
    def _cluster_name(self) -> str:
        return self._where if isinstance(self._where, str) else "the Dask cluster"

    def _connect_client(self) -> Client:
        from distributed import Client

        if isinstance(self._where, Client):
            self._client = self._where
            return self._where
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        if self._where is None:
            from cclbench.engine.dask_cluster import local_cluster

            cluster = local_cluster(self._jobs or available_cores())
            self._client = Client(cluster)
        else:
            self._client = Client(self._where, timeout=_CONNECT_S, set_as_default=False)
        return self._client

    def require_shared(self, *paths: Path) -> None:
        """See `Engine`."""
        self.ensure_executor()
        assert self._client is not None  # noqa: S101 - just begun
        for worker, missing in self._client.run(
            _missing_paths, [str(path.absolute()) for path in paths]
        ).items():
            if missing:
                hint = "sources and store must be on a file system that all workers share"
                raise UsageError(f"the worker {worker} does not see {missing[0]}", hint=hint)

    def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None and client is not self._where:
            with suppress(Exception):  # a cluster that is gone already
                client.close()
                if client.cluster is not None:
                    client.cluster.close()

    def stop_executor(self, executor: Executor, *, kill: bool) -> None:  # noqa: ARG002 - workers are not ours to kill
        """See `PoolEngine`; in either case unstarted tasks are cancelled, and running ones continue."""
        with suppress(Exception):
            executor.shutdown(wait=False)
        self._close_client()

    def explain_error(self, error: BaseException) -> BaseException:
        """See `PoolEngine`."""
        from distributed import KilledWorker
        from distributed.comm import CommClosedError

        if isinstance(error, KilledWorker):
            hint = "give the workers more memory, or see their logs"
            return CclbenchError("a task's workers died repeatedly", where=self._cluster_name, hint=hint)
        if isinstance(error, CancelledError | CommClosedError):
            hint = "restart it, and repeat the command"
            return CclbenchError("lost the connection to the cluster", where=self._cluster_name, hint=hint)
        return error


def _require_same_versions(client: Client) -> None:
    """`UsageError` if a worker has other versions than this process: results could differ."""
    expected = _library_versions()
    try:
        by_worker = client.run(_library_versions)
    except ModuleNotFoundError as error:
        raise UsageError(f"the workers lack a package: {error}", hint="install cclbench there") from None
    for worker, versions in by_worker.items():
        for package, release in expected.items():
            if versions[package] != release:
                message = f"the worker {worker} has {package} {versions[package]}, here it is {release}"
                raise UsageError(message, hint="install the same versions everywhere")


def _library_versions() -> dict[str, str]:
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "cclbench": __version__,
        "python": python,
        "pyarrow": version("pyarrow"),
        "numpy": version("numpy"),
    }


def _missing_paths(paths: list[str]) -> list[str]:
    return [path for path in paths if not Path(path).exists()]

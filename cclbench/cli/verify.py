# SPDX-License-Identifier: Apache-2.0
"""`cclbench verify`: a data point computed again from its evidence; a run's files against their hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli import options
from cclbench.ground.errors import CheckFailed, InputError, UsageError
from cclbench.present.terminal.streams import say_on_stderr

if TYPE_CHECKING:
    from cclbench.contribute.place import DataPointPlace
    from cclbench.contribute.verify import Verdict
    from cclbench.engine import Engine

_COLUMNS: Final = ("id", "status", "files", "rows", "exact", "changed")
_RUN_COLUMNS: Final = ("run", "status", "files", "bytes", "changed")


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every data point of the collection.")
@click.option(
    "--changed-since", metavar="COMMIT", help="Those that git says changed since they branched off COMMIT."
)
@click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A folder or archive (.zip, .tar.gz) with files that are too large for the collection; repeatable.",
)
@click.option("--fetch", is_flag=True, help="Fetch such files from where their manifest says, by https.")
@click.option("--record", "record_it", is_flag=True, help="Write what comes out into the manifests.")
@click.option(
    "--run",
    "runs",
    metavar="RUN",
    multiple=True,
    shell_complete=options.run_ids,
    help="Instead of data points, check every file of that run of the store against its hash; repeatable.",
)
@options.collection
@options.engine
@options.store
@options.page
def verify(
    ids: tuple[str, ...],
    every: bool,
    changed_since: str | None,
    evidence: tuple[Path, ...],
    fetch: bool,
    record_it: bool,
    runs: tuple[str, ...],
    collection: Path,
    engine: Engine,
    store: Path,
    form: str,
    verbosity: int,
) -> None:
    """Compute data points again from their evidence, and compare with what is recorded.

    ID names workload_cards/ID.yaml and traces/ID/manifest.json. The files' hashes are checked, the traces
    read and the metrics computed, in a store of its own; every recorded row must come out again, within
    1e-12 of its value. Exits with 1 unless all are verified, with 3 where a file cannot be read.

    With --run, every file of a stored run is compared with the hash in the run's manifest. Other commands
    compare presence and sizes when they open a run, and the tables that they read. Exits with 3 where a file
    is missing, changed, or was not written with the run.

    \b
    Examples:
      cclbench verify tiny-llama-ddp4-gloo-cpu
      cclbench verify --all --json
      cclbench verify --changed-since origin/main
      cclbench verify my-job --evidence /scratch/my-job.tar.gz
      cclbench verify --record my-job
      cclbench verify --run my-job-3f2a91c0 --store /scratch/runs
    """
    if runs:
        if ids or every or changed_since or evidence or fetch or record_it:
            raise UsageError("--run checks runs of the store: give it without data points and their options")
        _verify_runs(runs, store, engine, form, verbosity)
        return
    from cclbench.contribute.evidence import evidence_elsewhere
    from cclbench.contribute.verify import record_data_point
    from cclbench.contribute.verify import verify_data_point as verified
    from cclbench.present.terminal.data_points import verification_page
    from cclbench.present.terminal.output import emit_answer, progress_bar

    places = _chosen(collection, ids, every, changed_since)
    with progress_bar(verbosity) as bars, evidence_elsewhere(evidence, fetching=fetch) as elsewhere:
        if record_it:
            for place in places:
                record_data_point(place, elsewhere, engine=engine, progress=bars)
                say_on_stderr(f"recorded {place.manifest_path}")
        verdicts = [verified(place, elsewhere, engine=engine, progress=bars) for place in places]
    rows = [_row(verdict) for verdict in verdicts]
    emit_answer(
        form,
        document={"schema": "verification.v1", "data_points": [_document(v) for v in verdicts]},
        rows=rows,
        columns=_COLUMNS,
        table=lambda: verification_page(verdicts, rows, verbose=verbosity > 0),
    )
    failed = [verdict for verdict in verdicts if verdict.status != "verified"]
    if failed:
        error = InputError if any(v.status == "unreadable" for v in failed) else CheckFailed
        raise error(f"{len(failed)} of {len(verdicts)} data points are not verified")


def _verify_runs(names: Sequence[str], store: Path, engine: Engine, form: str, verbosity: int) -> None:
    from cclbench.present.terminal.output import emit_answer, progress_bar
    from cclbench.present.terminal.runs import changes_page
    from cclbench.workspace import store_at

    kept = store_at(store)
    with progress_bar(verbosity) as bars:
        found = [kept.get(name).verified(engine=engine, progress=bars) for name in dict.fromkeys(names)]
    rows = [
        {
            "run": one.run,
            "status": "changed" if one.changes else "verified",
            "files": one.files,
            "bytes": one.bytes,
            "changed": len(one.changes),
        }
        for one in found
    ]
    emit_answer(
        form,
        document={"schema": "run_verification.v1", "runs": [asdict(one) for one in found]},
        rows=rows,
        columns=_RUN_COLUMNS,
        table=lambda: changes_page(found, rows, verbose=verbosity > 0),
    )
    changed = [one for one in found if one.changes]
    if changed:
        commands = "; ".join(dict.fromkeys(one.command for one in changed))
        raise InputError(
            f"{len(changed)} of {len(found)} runs are not what was written",
            hint=f"read their sources again: {commands}; or remove them: cclbench remove RUN",
        )


def _chosen(collection: Path, ids: Sequence[str], every: bool, commit: str | None) -> list[DataPointPlace]:
    from cclbench.contribute.changed import changed_since
    from cclbench.contribute.place import existing_place, known_ids, place_of

    if (bool(ids), every, commit is not None).count(True) != 1:
        raise UsageError("name data points, or give one of --all and --changed-since COMMIT")
    if ids:
        return [existing_place(collection, identity) for identity in dict.fromkeys(ids)]
    wanted = known_ids(collection) if commit is None else changed_since(collection, commit)
    if every and not wanted:
        raise UsageError("holds no workload_cards/ and no traces/", where=str(collection))
    return [place_of(collection, identity) for identity in wanted]


def _document(verdict: Verdict) -> dict[str, Any]:
    told = asdict(verdict)
    for file in told["files"]:
        del file["where"]
    return told


def _row(verdict: Verdict) -> dict[str, Any]:
    compared = verdict.comparison
    return {
        "id": verdict.id,
        "status": verdict.status,
        "files": len(verdict.files) or None,
        "rows": compared.rows if compared else None,
        "exact": compared.exact if compared else None,
        "changed": len(compared.changes) if compared else None,
    }

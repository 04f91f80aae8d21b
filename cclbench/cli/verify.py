# SPDX-License-Identifier: Apache-2.0
"""`cclbench verify`: recompute a data point from its evidence; check a run's files against their hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cclbench.cli import completion, options
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
@click.option("--all", "every", is_flag=True, help="Verify every data point of the collection.")
@click.option(
    "--changed-since",
    metavar="COMMIT",
    help="Verify the data points that changed since this branch left COMMIT.",
)
@click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Folder or archive (.zip, .tar.gz) of files that are too large for the collection; repeatable.",
)
@click.option("--fetch", is_flag=True, help="Download such files from the https URLs of their manifest.")
@click.option("--record", "record_it", is_flag=True, help="Write the recomputed results into the manifests.")
@click.option(
    "--sign",
    "key",
    metavar="KEY",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Sign the manifests that are verified with this SSH key, such as ~/.ssh/id_ed25519.",
)
@click.option(
    "--run",
    "runs",
    metavar="RUN",
    multiple=True,
    shell_complete=completion.run_ids,
    help="Check every file of this stored run against its hash, instead of data points; repeatable.",
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
    key: Path | None,
    runs: tuple[str, ...],
    collection: Path,
    engine: Engine,
    store: Path,
    form: str,
    verbosity: int,
) -> None:
    """Recompute data points from their evidence, and compare with the recorded results.

    ID names workload_cards/ID.yaml and traces/ID/manifest.json. The files' hashes are checked, the traces are
    read and the metrics computed, in a temporary store; every recorded row must be reproduced, within 1e-12
    of its value. Exits with 1 unless all are verified, with 3 if a file cannot be read.

    A signature of the manifest (manifest.json.sig, made by OpenSSH) must fit it; the collection's file
    allowed_signers says whose key it is.

    With --run, every file of a stored run is compared with the hash in the run's manifest. (Other commands
    check presence and size of all files, and the hashes of the tables they read.) Exits with 3 if a file is
    missing, changed, or was not written with the run.

    \b
    Examples:
      cclbench verify tiny-llama-ddp4-gloo-cpu
      cclbench verify --all --json
      cclbench verify --changed-since origin/main
      cclbench verify my-job --evidence /scratch/my-job.tar.gz
      cclbench verify --record my-job
      cclbench verify --sign ~/.ssh/id_ed25519 my-job
      cclbench verify --run my-job-3f2a91c0 --store /scratch/runs
    """
    if runs:
        if ids or every or changed_since or evidence or fetch or record_it or key:
            raise UsageError(
                "--run checks stored runs: it cannot be combined with data points and their options"
            )
        _verify_runs(runs, store, engine, form, verbosity)
        return
    from cclbench.contribute.evidence import evidence_elsewhere
    from cclbench.contribute.verify import record_data_point
    from cclbench.contribute.verify import verify_data_point as verified
    from cclbench.present.terminal.data_points import verification_page
    from cclbench.present.terminal.output import emit_answer, progress_bar

    places = _selected_places(collection, ids, every, changed_since)
    with progress_bar(verbosity) as bars, evidence_elsewhere(evidence, fetching=fetch) as elsewhere:
        if record_it:
            for place in places:
                record_data_point(place, elsewhere, engine=engine, progress=bars)
                say_on_stderr(f"recorded {place.manifest_path}")
        verdicts = [verified(place, elsewhere, engine=engine, progress=bars) for place in places]
    if key is not None:
        verdicts = [_sign(verdict, place, key) for verdict, place in zip(verdicts, places, strict=True)]
    rows = [_verdict_row(verdict) for verdict in verdicts]
    emit_answer(
        form,
        document={"schema": "verification.v1", "data_points": [_verdict_document(v) for v in verdicts]},
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

    opened_store = store_at(store)
    with progress_bar(verbosity) as bars:
        checked = [
            opened_store.get(name).verify_files(engine=engine, progress=bars) for name in dict.fromkeys(names)
        ]
    rows = [
        {
            "run": run.run,
            "status": "changed" if run.changes else "verified",
            "files": run.files,
            "bytes": run.bytes,
            "changed": len(run.changes),
        }
        for run in checked
    ]
    emit_answer(
        form,
        document={"schema": "run_verification.v1", "runs": [asdict(run) for run in checked]},
        rows=rows,
        columns=_RUN_COLUMNS,
        table=lambda: changes_page(checked, rows, verbose=verbosity > 0),
    )
    changed = [run for run in checked if run.changes]
    if changed:
        commands = "; ".join(dict.fromkeys(run.command for run in changed))
        raise InputError(
            f"{len(changed)} of {len(checked)} runs differ from what was written",
            hint=f"read their sources again: {commands}; or remove them: cclbench remove RUN",
        )


def _selected_places(
    collection: Path, ids: Sequence[str], every: bool, commit: str | None
) -> list[DataPointPlace]:
    from cclbench.contribute.changed import changed_since
    from cclbench.contribute.place import data_point_ids, existing_place, place_of

    if (bool(ids), every, commit is not None).count(True) != 1:
        raise UsageError("name data points, or give one of --all and --changed-since COMMIT")
    if ids:
        return [existing_place(collection, identity) for identity in dict.fromkeys(ids)]
    selected = data_point_ids(collection) if commit is None else changed_since(collection, commit)
    if every and not selected:
        raise UsageError("holds no workload_cards/ and no traces/", where=str(collection))
    return [place_of(collection, identity) for identity in selected]


def _sign(verdict: Verdict, place: DataPointPlace, key: Path) -> Verdict:
    """Sign the manifest of a verified data point; the verdict has the signature."""
    from cclbench.contribute.signature import read_signature, sign_manifest

    if verdict.status != "verified":
        return verdict
    sign_manifest(place, key)
    return replace(verdict, signature=read_signature(place))


def _verdict_document(verdict: Verdict) -> dict[str, Any]:
    document = asdict(verdict)
    for file in document["files"]:
        del file["where"]
    return document


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    compared = verdict.comparison
    return {
        "id": verdict.id,
        "status": verdict.status,
        "files": len(verdict.files) or None,
        "rows": compared.rows if compared else None,
        "exact": compared.exact if compared else None,
        "changed": len(compared.changes) if compared else None,
    }

# SPDX-License-Identifier: Apache-2.0
"""Which files and URLs `run` and `whatif` may read."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from helpers.mcp_session import Server, answer, first_run, refusal, session
from mcp.client import Client

from cclbench.agents.reach import Reach
from cclbench.cli import main

OUTSIDE = "is outside of the folders that this server may read"
CARD = "tiny-llama-ddp4-gloo-cpu"


@pytest.fixture
def root(tmp_path: Path, repository: Path) -> Path:
    """An allowed folder with a card and its traces; beside it `secret`, a folder with the same traces."""
    folder = tmp_path / "root"
    shutil.copytree(repository / "traces" / CARD, folder / "traces" / CARD)
    (folder / "workload_cards").mkdir()
    shutil.copy(repository / "workload_cards" / f"{CARD}.yaml", folder / "workload_cards")
    shutil.copytree(repository / "traces" / CARD, tmp_path / "secret")
    return folder


def refusals(store: Path, sources: list[str], *options: str, cwd: Path) -> list[str]:
    """What `run` says of each source."""
    found: list[str] = []

    async def asks(client: Client) -> None:
        found.extend([await refusal(client, "run", source=source) for source in sources])

    session(Server(store, *options), asks, cwd=cwd)
    return found


def test_sources_within_the_root_are_read(root: Path, tmp_path: Path) -> None:
    """The working directory by default, by a card, a folder, a way that stays within, and the run's id."""

    async def asks(client: Client) -> None:
        run = (await answer(client, "run", source=f"workload_cards/{CARD}.yaml"))["run"]
        again = await answer(client, "run", source=f"traces/../workload_cards/{CARD}.yaml")
        assert again["run"] == run
        assert (await answer(client, "run", source=run))["run"] == run
        assert (await answer(client, "run", source=str(root / "traces" / CARD)))["findings"]

    session(Server(tmp_path / "runs"), asks, cwd=root)


def test_paths_that_lead_out_of_the_root_are_refused(root: Path, tmp_path: Path) -> None:
    """Also by links: of the source, of a file in a folder, of a file beside the source."""
    trace = next((root / "traces" / CARD).iterdir())
    secret = next((tmp_path / "secret").iterdir())
    (root / "link").symlink_to(tmp_path / "secret")
    for folder in ("folder", "file"):
        (root / folder).mkdir()
        shutil.copy(trace, root / folder / trace.name)
        (root / folder / "other.json").symlink_to(secret)
    (root / "loop").symlink_to(root / "loop")
    sources = [
        *(str(tmp_path / "secret"), "../secret", "link", f"link/{secret.name}", "traces/../../secret"),
        *("folder", f"file/{trace.name}", "/etc/passwd", "/nowhere/at/all", "~"),
    ]
    errors = refusals(tmp_path / "runs", [*sources, "loop", "x\0y"], cwd=root)
    assert [source for source, error in zip(sources, errors, strict=False) if OUTSIDE not in error] == []
    assert all("allow others with --root of `cclbench mcp`" in error for error in errors[: len(sources)])
    assert all("is not a path" in error for error in errors[len(sources) :])
    assert not any((tmp_path / "runs").glob("*/manifest.json"))


def test_what_a_card_names_must_lie_within_the_root(root: Path, tmp_path: Path) -> None:
    """Its traces, which lie beside the folder of cards; a link among them; what lies beside one of them."""
    card = root / "workload_cards" / f"{CARD}.yaml"
    own = refusals(tmp_path / "runs", [str(card)], "--root", str(card.parent), cwd=root)
    assert OUTSIDE in own[0]
    trace = next((root / "traces" / CARD).iterdir())
    shutil.move(trace, tmp_path / trace.name)
    trace.symlink_to(tmp_path / trace.name)
    assert "leads out of the card's folder" in refusals(tmp_path / "runs", [str(card)], cwd=root)[0]
    trace.unlink()
    shutil.move(tmp_path / trace.name, trace)
    (trace.parent / "timeline.yaml").symlink_to(tmp_path / "secret" / trace.name)
    assert OUTSIDE in refusals(tmp_path / "runs", [str(card)], cwd=root)[0]


def test_a_setting_that_names_a_file_is_checked(store: Path, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "steps.yaml").write_text("secret: contents\n", "utf-8")

    async def asks(client: Client) -> None:
        run = await first_run(client)
        error = await refusal(client, "whatif", run=run, settings=["schedule=../steps.yaml"])
        assert OUTSIDE in error
        assert "secret" not in error

    session(Server(store), asks, cwd=tmp_path / "root")


@pytest.mark.parametrize("options", [(), ("--allow-url", "https", "--allow-url", "s3")])
def test_this_machine_is_not_asked_by_a_url(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Neither http, which is never allowed, nor https at an address that is not public: nobody connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        urls = [
            f"http://127.0.0.1:{port}/rank0.json?token=secret",
            f"https://127.0.0.1:{port}/rank0.json?token=secret",
            f"https://localhost:{port}/card.yaml",
            f"file://{tmp_path}",
        ]
        errors = refusals(tmp_path / "runs", urls, *options, cwd=tmp_path)
        with pytest.raises(BlockingIOError):
            server.accept()
    said = "is not read by this server"
    assert [said in error for error in errors] == [True, not options, not options, True]
    assert all("not a public" in error for error in errors[1:3]) == bool(options)
    assert not any("secret" in error for error in errors)


@pytest.mark.parametrize("scheme", ["http", "file", "local"])
def test_some_urls_cannot_be_allowed(scheme: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["mcp", "--allow-url", scheme, "--store", str(tmp_path)]) == 2
    assert f"--allow-url: {scheme}://" in capsys.readouterr().err


def test_the_default_is_the_working_directory_unless_that_is_the_home_folder_or_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    found = []
    for folder in (tmp_path, tmp_path / "home", Path("/")):
        monkeypatch.chdir(folder)
        found.append(Reach.from_roots([], []).folders)
    assert found == [(tmp_path,), (), ()]
    assert Reach.from_roots([tmp_path / "home"], []).folders == (tmp_path / "home",)

"""A stranger who can write to the storage commands nothing: every forgery, with the verbs that meet it.

The tests need no JVM and no server. The fast tests try one verb for each forgery, which meets the rule that
stops it. The long tests try all verbs.
"""

from __future__ import annotations

import shlex
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from tests.support.stranger import FORGERIES, Stranger, World

from lakebackup.errors import Refused
from lakebackup_jobs.cli import main
from lakebackup_jobs.logs.control.http_api import app_of, serving
from lakebackup_jobs.logs.control.verbs import LogTasks

VERBS: Sequence[str] = (
    "status", "list", "due", "due --run", "prune", "prune --delete", "verify", "policy show",
    "restore snapshot --source src1 --to {out}", "drill src1", "show latest", "files latest",
    "diff latest latest", "report --json",
    "log status", "log pause forged", "log resume forged", "log stop forged", "log run forged",
    "approve --dry-run", "approve", "catalog export {out}-export", "status --metrics {out}.prom",
    "sql 'SELECT backup_id, note FROM backups' --timeout 20s",
    "sql 'SELECT path FROM files' --timeout 20s --csv",
    "hold latest --forever --reason x", "config",
)  # fmt: skip
# The verb that each kind of forgery is made for.
_VERBS_BY_KIND = {
    "a policy": "due --run",
    "a log task": "log run forged",
    "a prune": "prune --delete",
    "a restore": "drill src1",
    "a snapshot": "restore snapshot --source src1 --to {out}",
    "objects": "restore snapshot --source src1 --to {out}",
    "the destination": "backup snapshot {tree} --source src1",
    "a table": "sql 'SELECT backup_id, note FROM backups' --timeout 20s",
    "a name": "due --run",
    "backups": "status",
}
REQUESTS = (
    "GET /log/tasks", "GET /log/tasks/forged", "POST /log/tasks/forged/pause",
    "POST /log/tasks/forged/resume", "POST /log/tasks/forged/stop", "GET /metrics", "GET /openapi.json",
)  # fmt: skip
_CODES = range(2, 11)
# Every verb refuses this one too, after two minutes and 20 GB of temporary files.
_BOMB = "a table's file has millions of rows"


@pytest.fixture(scope="module")
def repos_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two repositories with a snapshot each."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "src").mkdir()
    for name in ("a", "b"):
        (folder / "src" / name).write_text(name * 10)
    for name in ("repo", "other"):
        assert (
            main(
                ["backup", "snapshot", str(folder / "src"), "--source", "src1", "--repo", str(folder / name)]
            )
            == 0
        )
    return folder


@pytest.fixture
def listener() -> Iterator[tuple[int, list[object]]]:
    """The port of a server, and the peers that connected to it."""
    connections: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, peer = server.accept()
                except OSError:
                    return
                connections.append(peer)
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1], connections


def _files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _verb_against(forgery: str) -> str:
    """The verb that meets the rule which stops a forgery."""
    return next((verb for kind, verb in _VERBS_BY_KIND.items() if forgery.startswith(kind)), "verify")


class Forged:
    """A repository with a forgery in it, and the files outside that may not change."""

    def __init__(self, forgery: str, repos_folder: Path, folder: Path, port: int) -> None:
        self.folder, self.repo = folder, folder / "repo"
        for name in ("repo", "other"):
            shutil.copytree(repos_folder / name, folder / name)
        self.world = World(folder, folder / "other", port)
        FORGERIES[forgery](Stranger(self.repo), self.world)
        self._outside = self._state_outside()

    def _state_outside(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in _files(self.world.other_repository, self.world.private)}

    def check(self, connections: Sequence[object]) -> None:
        """Nothing was run, nobody was called, and no file beside the repository was read or changed."""
        assert self._state_outside() == self._outside
        assert not self.world.ran.exists()
        assert connections == []
        secret, repo_files = World.SECRET.encode(), _files(self.repo, self.folder / "out")
        assert [path for path in repo_files if secret in path.read_bytes()] == []


@pytest.fixture(autouse=True)
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings with a password for another server."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LAKEBACKUP_KAFKA__BOOTSTRAP_SERVERS", "kafka.invalid:9092")
    monkeypatch.setenv("LAKEBACKUP_KAFKA__SASL_PASSWORD", "the password")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("forgery", "verbs"),
    [
        *(pytest.param(forgery, [_verb_against(forgery)], id=forgery) for forgery in FORGERIES),
        *(
            pytest.param(forgery, VERBS, id=f"{forgery}, every verb", marks=pytest.mark.long)
            for forgery in FORGERIES
            if forgery != _BOMB
        ),
    ],
)
def test_a_forgery_commands_nothing(
    forgery: str,
    verbs: Sequence[str],
    repos_folder: Path,
    tmp_path: Path,
    listener: tuple[int, list[object]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    port, connections = listener
    forged = Forged(forgery, repos_folder, tmp_path, port)
    for verb in verbs:
        words = shlex.split(verb.format(out=tmp_path / "out", tree=repos_folder / "src"))
        code = main([*words, *([] if words == ["config"] else ["--repo", str(forged.repo)])])
        captured = capsys.readouterr()
        assert code == 0 or code in _CODES, (verb, code, captured.err[-2000:])
        assert "defect of lakebackup" not in captured.err, verb
        assert "--help" not in captured.err, f"{verb}: with wrong arguments it meets no rule"
        assert World.SECRET not in captured.out + captured.err, verb
        assert "\x1b]0;" not in captured.out + captured.err, verb
    forged.check(connections)


@pytest.mark.long
@pytest.mark.parametrize("forgery", [name for name in FORGERIES if name != _BOMB])
def test_a_forgery_commands_nothing_over_http(
    forgery: str, repos_folder: Path, tmp_path: Path, listener: tuple[int, list[object]]
) -> None:
    """HTTP is the second way to the verbs of log tasks, under the same rules. A forgery takes two seconds."""
    port, connections = listener
    forged = Forged(forgery, repos_folder, tmp_path, port)
    repository = LogTasks(
        str(forged.repo), None, {"bootstrap.servers": "kafka.invalid:9092", "sasl.password": "x"}
    )
    try:
        app = app_of(repository, None)
    except Refused:  # the server does not start
        assert forgery == "the catalog is a link"
        forged.check(connections)
        return
    with serving(app, "127.0.0.1", 0) as (url, _), httpx.Client(base_url=url) as client:
        for request in REQUESTS:
            answer = client.request(*request.split(), timeout=120)
            if answer.status_code != 200:
                error = answer.json()
                assert error["error"] != "Unexpected", (request, error)
                assert error["message"], request
            assert World.SECRET not in answer.text, request
    forged.check(connections)


def test_there_are_forgeries_of_every_kind() -> None:
    assert len(FORGERIES) >= 40

"""Whoever can write the storage commands nothing: every forgery, and what each verb does with it.

No JVM, no server. In the fast layer one verb a forgery, which meets the rule that holds it; all verbs in the
long one.
"""

from __future__ import annotations

import shlex
import shutil
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.stranger import FORGERIES, Stranger, World

from lakebackup_jobs.cli import main

VERBS: Sequence[str] = (
    "status", "list", "due", "due --run", "prune", "prune --delete", "verify", "policy show",
    "restore snapshot src1 --to {out}", "drill src1", "show latest", "files latest", "diff", "report --json",
    "log status", "log pause forged", "log resume forged", "log stop forged", "log run forged",
    "approve --dry-run", "approve", "catalog export {out}-export", "status --metrics {out}.prom",
    "sql 'SELECT backup_id, note FROM backups' --timeout 20s",
    "sql 'SELECT path FROM files' --timeout 20s --csv",
    "hold latest --forever --reason x", "config",
)  # fmt: skip
# What each kind of forgery is for, first of all.
_FIRST = {
    "a policy": "due --run",
    "a log task": "log run forged",
    "a prune": "prune --delete",
    "a restore": "drill src1",
    "a snapshot": "restore snapshot src1 --to {out}",
    "objects": "restore snapshot src1 --to {out}",
    "the destination": "backup snapshot {tree} --source src1",
    "a table": "sql 'SELECT backup_id, note FROM backups' --timeout 20s",
    "a name": "due --run",
    "backups": "status",
}
_CODES = range(2, 11)
# Every verb refuses it too, after two minutes and 20 GB of temporary files.
_BOMB = "a table's file has millions of rows"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def called() -> Iterator[tuple[int, list[object]]]:
    """A server that notes who connects."""
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


def _first(forgery: str) -> str:
    """The verb that meets the rule which holds a forgery."""
    return next((verb for kind, verb in _FIRST.items() if forgery.startswith(kind)), "verify")


@pytest.mark.parametrize(
    ("forgery", "verbs"),
    [
        *(pytest.param(forgery, [_first(forgery)], id=forgery) for forgery in FORGERIES),
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
    made: Path,
    tmp_path: Path,
    called: tuple[int, list[object]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port, connections = called
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LAKEBACKUP_KAFKA__BOOTSTRAP_SERVERS", "kafka.invalid:9092")
    monkeypatch.setenv("LAKEBACKUP_KAFKA__SASL_PASSWORD", "the password")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "repo", tmp_path / "repo")
    shutil.copytree(made / "other", tmp_path / "other")
    world = World(tmp_path, tmp_path / "other", port)
    FORGERIES[forgery](Stranger(tmp_path / "repo"), world)
    outside = {path: path.read_bytes() for path in _files(world.other, world.private)}
    for verb in verbs:
        words = shlex.split(verb.format(out=tmp_path / "out", tree=made / "src"))
        code = main([*words, *([] if words == ["config"] else ["--repo", str(tmp_path / "repo")])])
        said = capsys.readouterr()
        assert code == 0 or code in _CODES, (verb, code, said.err[-2000:])
        assert "defect of lakebackup" not in said.err, verb
        assert World.SECRET not in said.out + said.err, verb
        assert "\x1b]0;" not in said.out + said.err, verb
    assert {path: path.read_bytes() for path in _files(world.other, world.private)} == outside
    assert not world.ran.exists()
    assert connections == []
    secret = World.SECRET.encode()
    restored = [path for path in _files(tmp_path / "repo", tmp_path / "out") if secret in path.read_bytes()]
    assert restored == []


def test_there_are_forgeries_of_every_kind() -> None:
    assert len(FORGERIES) >= 40

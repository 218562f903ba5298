"""Commands on repositories in S3, to try the table of rights in docs/s3.md, and these repositories."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.archives import Doc, write_backup
from tests.support.command_line import Commands
from tests.support.encrypted import Host
from tests.support.encrypted_metadata import new_key, use_catalog
from tests.support.made_backups import MadeBackups, Record
from tests.support.made_changes import MadeChanges, put_change, table_name_row
from tests.support.made_queues import MadeQueues
from tests.support.s3_faults import FaultProxy, right_of
from tests.support.s3_roles import Rights, acting_as, rights_by_command

from lakebackup.rules import layout
from lakebackup.sql_engine.delta.log import remote_log
from lakebackup.storage import Storage, open_storage
from lakebackup.store import lease, proof
from lakebackup.store.writer import CatalogWriter

# Kind of repository -> command of the table -> the lines that are run, with fields in braces.
Lines = Mapping[str, Mapping[str, tuple[str, ...]]]
_READ = {"s3:ListBucket", "s3:GetObject"}
_DAY_MS = 86_400_000
_RUNS = 60


@dataclass
class S3Commands:
    """Runs command lines on a repository behind a proxy, and tells which actions they used.

    `fields`: the values of the fields of lines. `{out}` is a new path for each line, and `{run}` its number;
    `{round}` is another number with other rights.
    """

    uri: str
    proxy: FaultProxy
    commands: Commands
    folder: Path
    fields: dict[str, Any] = field(default_factory=dict)
    runs: int = 0

    def run(self, line: str, rights: frozenset[str]) -> tuple[int, str, frozenset[str]]:
        """Run a line as a process of its own would. Returns its exit code, its errors and the actions."""
        self.runs += 1
        remote_log.cache_clear()
        proof._proved.clear()
        self.proxy.requests.clear()
        words = line.format(**self.fields, out=self.folder / f"out{self.runs}", run=self.runs)
        with acting_as(rights, self.proxy):
            code, _, stderr = self.commands.run(*shlex.split(words), "--repo", self.uri)
        return code, stderr, frozenset(right_of(method, path) for method, path, _ in self.proxy.requests)

    def forget_proof(self) -> None:
        """Let the next command test the server again, as the first one of a repository does."""
        for folder in (self.uri, f"{self.uri}/catalog"):
            open_storage(folder).delete(f"{layout.PROOF_FOLDER}proved.json")

    def check_rights(self, lines: Mapping[str, tuple[str, ...]]) -> None:
        """Run commands of one row with what they need, then with all that they use.

        Each must succeed and use what it needs, and together they must use everything. Without an action that
        writes or deletes and that it needs, each must end with exit code 6 and name the action.
        """
        (rights,) = {rights_by_command()[command] for command in lines}
        used_by_all: set[str] = set()
        for number, allowed in enumerate(dict.fromkeys((rights.needed, rights.all_actions)), 1):
            self.forget_proof()
            self.fields["round"] = number
            used_by_all.clear()
            for command, command_lines in lines.items():
                for action in rights.needed - _READ if number == 1 else ():
                    code, stderr, _ = self.run(command_lines[0], rights.needed - {action})
                    is_named = action.removeprefix("s3:") in stderr
                    assert (code, is_named) == (6, True), f"{command} without {action}: {code} {stderr}"
                used_by_command: set[str] = set()
                for line in command_lines:
                    code, stderr, actions = self.run(line, allowed)
                    assert code == 0, f"{line} with {sorted(allowed)}: {stderr}"
                    used_by_command |= actions
                used_by_all |= used_by_command
                assert rights.needed <= used_by_command, f"{command} uses only {sorted(used_by_command)}"
                assert used_by_command <= rights.all_actions, f"{command} also uses {sorted(used_by_command)}"
        assert used_by_all == rights.all_actions


def groups(lines: Lines, often: Collection[str]) -> Iterator[Any]:
    """Commands of one repository with equal rights, as parameters `kind`, `commands` of a test. Those that
    `make test` does not run `often` are `long`."""
    for kind, lines_by_command in lines.items():
        commands_by_rights: dict[tuple[bool, Rights], list[str]] = {}
        for command in lines_by_command:
            key = (command in often, rights_by_command()[command])
            commands_by_rights.setdefault(key, []).append(command)
        for (is_often, _), commands in commands_by_rights.items():
            marks = () if is_often else pytest.mark.long
            yield pytest.param(kind, tuple(commands), id=f"{kind}: {', '.join(commands)}", marks=marks)


def _topics(root: Path) -> None:
    """Write three backups of a topic."""
    backups = MadeBackups(root)
    for first in (0, 10, 20):
        records = [Record(0, offset, 1000 * offset, b"k", b"v") for offset in range(first, first + 10)]
        backups.backup([records])
    backups.flush()


def _queues(root: Path) -> None:
    """Write two fulls of an engine and an incremental between them. The newest full needs no other backup."""
    engine = MadeQueues(root, CatalogWriter(None, str(root)))
    engine.write(5)
    engine.full(10)
    engine.write(12)
    engine.incremental(20)
    engine.full(30)


def _changes(root: Path) -> None:
    """Write two flushes of a change log and a full after each."""
    feed = MadeChanges(root, CatalogWriter(None, str(root)), domain="ms")
    feed.flush([put_change(21, b"a", 5, b"1")], 10, names=[table_name_row(21, "t", 1)])
    feed.full(10)
    feed.flush([put_change(21, b"b", 15, b"2")], 20)
    feed.full(20)


# Kind of repository -> a function that makes its backups in a folder with an empty catalog.
MAKERS: Mapping[str, Callable[[Path], None]] = {"topics": _topics, "queues": _queues, "log": _changes}


def _archive(commands: Commands, folder: Path, root: Path) -> dict[str, Any]:
    """Import an archive; returns the fields of lines."""
    archive = folder / "archive"
    docs = [Doc(b"a", b"1", 1), Doc(b"b", b"2", 2)]
    write_backup(archive, "2014-02-02T020000Z", "full", docs)
    commands.output("archive", "import", archive, "--source", "shop", "--repo", root)
    return {"archive": archive}


def _snapshots(
    commands: Commands, folder: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Take two backups of a snapshot, encrypted, signed and with a policy; returns the fields of lines."""
    host, tree, repo = Host(monkeypatch, folder / "keys"), folder / "tree", ("--repo", root)
    pair, signing_key = host.key_pair("identity"), folder / "keys" / "signing"
    host.has(pair.recipient, identity_file=pair.file)
    commands.output("key", "create", signing_key)
    monkeypatch.setenv("LAKEBACKUP_SIGNING__KEY_FILE", str(signing_key))
    tree.mkdir()
    for content in (b"one", b"two!"):
        (tree / "a").write_bytes(content)
        commands.output("backup", "snapshot", tree, "--source", "store", *repo)
    commands.output("verify", *repo)
    policy = ("--full", "daily 02:30", "--window", "14d", "--command", f"snapshot {tree}")
    commands.output("policy", "set", "store", *policy, *repo)
    commands.output("catalog", "export", folder / "rows", *repo)
    (row, *_) = commands.rows("sql", "SELECT path FROM files", *repo)
    newest, oldest = (row["backup_id"] for row in commands.rows("list", *repo))
    return {
        "tree": tree, "identity": pair.file, "path": row["path"], "newest": newest, "oldest": oldest,
        "rows": folder / "rows", "manifest": folder / "manifest.json",
    }  # fmt: skip


def _encrypted_metadata(commands: Commands, folder: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a backup of a snapshot into a new repository whose metadata is encrypted."""
    host, tree = Host(monkeypatch, folder / "keys"), folder / "tree"
    pair = host.key_pair("identity")
    host.has(pair.recipient, identity_file=pair.file, metadata_key_file=new_key(host))
    use_catalog(folder / "catalog", monkeypatch)
    tree.mkdir()
    (tree / "a").write_bytes(b"one")
    commands.output("backup", "snapshot", tree, "--source", "store", "--repo", uri)


def _put_dead_leases(storage: Storage) -> None:
    """Put a lease for each line, whose holder is dead."""
    record = lease.Record("a dead run", "token", "held", 0, 0, ttl_ms=_DAY_MS)
    for run in range(1, _RUNS):
        storage.put(layout.lease_path(f"source-gone{run}", 1), json.dumps(asdict(record)).encode())


def s3_commands(
    kind: str,
    bucket: str,
    proxy: FaultProxy,
    commands: Commands,
    empty_catalog: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> S3Commands:
    """Make a repository of a kind in a bucket, for commands behind the proxy."""
    root, uri = folder / "root", f"s3://{bucket}/{kind}"
    fields: dict[str, Any] = {"bucket": bucket}
    monkeypatch.setenv("LAKEBACKUP_RUNNER", "local")
    shutil.copytree(empty_catalog, root / "catalog")
    if maker := MAKERS.get(kind):
        maker(root)
    if kind == "archives":
        fields |= _archive(commands, folder, root)
    if kind == "snapshots":
        fields |= _snapshots(commands, folder, root, monkeypatch)
    storage = open_storage(uri)
    files = [
        file
        for file in root.rglob("*")
        if file.is_file() and ".tmp" not in file.parts and not file.name.endswith(".crc")
    ]
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda file: storage.put(str(file.relative_to(root)), file.read_bytes()), files):
            pass
    if kind == "metadata":
        _encrypted_metadata(commands, folder, uri, monkeypatch)
    # From here on, since a process opens a repository once.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
    if kind == "snapshots":
        _put_dead_leases(storage)
        commands.output("catalog", "manifest", "latest", "--out", fields["manifest"], "--repo", uri)
    return S3Commands(uri, proxy, commands, folder, fields)

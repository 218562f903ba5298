"""Rotation of recipients: no data object is read or written, and an interrupted rotation is completed.

The tests need no JVM and no server. test_key_mistakes.py has rotations with wrong keys.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.catalogs import backup_id, made_backup
from tests.support.command_line import Commands
from tests.support.encrypted import Host, KeyPair
from tests.support.faults import expire_leases
from tests.support.made_backups import MadeBackups

from lakebackup.encryption.objects import BackupKey, DataKey
from lakebackup.storage import open_storage
from lakebackup.store import data_keys

# Runs a command that is killed when it has written the given number of objects of keys.
KILLED = """
import itertools, os, signal, sys
from lakebackup.store import data_keys
from lakebackup_jobs.cli import main
store, numbers = data_keys.store, itertools.count(1)

def store_and_die(*arguments, **keywords):
    key_object = store(*arguments, **keywords)
    if next(numbers) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return key_object

data_keys.store = store_and_die
sys.exit(main(sys.argv[2:]))
"""


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_rotation_needs_no_data_object(
    count: int, commands: Commands, host: Host, keys: KeyPair, tmp_path: Path
) -> None:
    """The data objects are away while the keys are rotated."""
    tree, objects = tmp_path / "db", tmp_path / "backups" / "db" / "snapshots"
    tree.mkdir()
    for number in range(count):
        (tree / f"{number:05d}").write_bytes(b"row %d; " % number * 20)
    host.has(keys.recipient)
    assert commands.result("backup", "snapshot", tree, "--pack-below", "0")["copied"] == count
    assert len([path for path in objects.rglob("*") if path.is_file()]) == count
    new = host.key_pair("new.identity")
    host.has(new.recipient, identity_file=keys.file)
    objects.rename(tmp_path / "away")
    assert commands.result("key", "rotate")["wrapped"] == 1
    assert not objects.exists()
    (tmp_path / "away").rename(objects)

    assert "opens the data key" in commands.fails(7, "restore", "snapshot", "--to", tmp_path / "no")
    assert not (tmp_path / "no").exists()
    assert "1 of 1 data keys cannot be opened" in commands.fails(7, "key", "test", keys.file)
    host.has(identity_file=new.file)
    commands.output("restore", "snapshot", "--to", tmp_path / "out", "--layout", "flat")
    assert contents(tmp_path / "out") == contents(tree)


def test_a_rotation_that_was_killed_is_completed(
    commands: Commands, host: Host, keys: KeyPair, tmp_path: Path
) -> None:
    """200 backups. The identity no longer opens the keys that the killed rotation has wrapped."""
    backups, storage = MadeBackups(tmp_path / "backups"), open_storage(str(tmp_path / "backups"))
    for number in range(1, 201):
        backups.add(made_backup(number, destination=backups.destination))
        key = BackupKey(DataKey.random(), "prod", backup_id(number))
        backups.add(*data_keys.store(storage, key, [keys.recipient]).rows)
    backups.flush()
    new = host.key_pair("new.identity")
    host.has(new.recipient, identity_file=keys.file)
    process = subprocess.run([sys.executable, "-c", KILLED, "100", "key", "rotate"], capture_output=True)
    assert process.returncode == -signal.SIGKILL, process.stderr
    query = "SELECT recipient, count(*) AS keys FROM data_keys GROUP BY recipient"
    assert commands.rows("sql", query) == [{"recipient": keys.recipient, "keys": 200}]
    expire_leases(tmp_path / "backups")
    assert "of 200 data keys cannot be opened" in commands.fails(7, "key", "test", keys.file)
    assert "of 200 data keys cannot be opened" in commands.fails(7, "key", "test", new.file)

    result = commands.result("key", "rotate")
    assert (result["wrapped"], result["problems"]) == (200, [])
    assert commands.rows("sql", query) == [{"recipient": new.recipient, "keys": 200}]
    assert commands.result("key", "test", new.file)["opened"] == 200
    assert "200 of 200 data keys cannot be opened" in commands.fails(7, "key", "test", keys.file)
    rows = commands.rows("sql", "SELECT backup_id, key_id, wrapped_at FROM data_keys")
    objects = [data_keys.read(storage, "prod", row["backup_id"], row["key_id"]) for row in rows]
    assert [key_object.wrapped_at for key_object in objects] == [row["wrapped_at"] for row in rows]

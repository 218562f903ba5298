"""Encrypted backups of snapshots: a host with public keys alone makes them, and an identity restores them.

Commands run without Java; tests/spark/test_encrypted_snapshots_spark.py has Spark's tasks and the rebuild.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd
from tests.support.command_line import Commands
from tests.support.disks import flip
from tests.support.encrypted import Host, KeyPair, leaks, opened_keys
from tests.support.faults import Killed, expire_leases, watched

from lakebackup.encryption.objects import MAGIC, BackupKey, DataKey, Keyring
from lakebackup.errors import EnvironmentProblem
from lakebackup.storage import open_storage
from lakebackup_jobs.snapshots.ranges import Ranges

SECRET = b"secret row of a customer; "
FIRST_MS = 1_700_000_000_000


class Database:
    """A folder that is backed up, in a repository of its own."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self.tree, self.repository = commands, folder / "db", folder / "backups"
        self._folder, self._backups, self._restores = folder, 0, 0
        self.tree.mkdir()
        self.write("text", SECRET * 2_000)
        self.write("noise", os.urandom(200_000))
        self.write("large", SECRET * 100_000)
        self.write("empty", b"")
        self.write("below/CURRENT", SECRET)

    def write(self, name: str, data: bytes) -> None:
        (self.tree / name).parent.mkdir(exist_ok=True)
        (self.tree / name).write_bytes(data)

    def run(self, *flags: str) -> tuple[int, str, str]:
        """Back up the folder; returns the exit code, the output and the standard error."""
        self._backups += 1
        taken_at = str(FIRST_MS + 3_600_000 * self._backups)
        return self.commands.run("backup", "snapshot", self.tree, "--taken-at", taken_at, *flags, "--json")

    def back_up(self, *flags: str) -> dict[str, Any]:
        """Back up the folder; returns the result."""
        code, output, err = self.run(*flags)
        assert code == 0, err
        result: dict[str, Any] = json.loads(output.splitlines()[-1])
        return result

    def restored(self, *flags: str) -> dict[str, bytes]:
        self._restores += 1
        target = self._folder / f"out{self._restores}"
        self.commands.output("restore", "snapshot", "--to", target, "--layout", "flat", *flags)
        return files_below(target)

    def files(self) -> dict[str, bytes]:
        return files_below(self.tree)

    def rows(self, condition: str = "gone_in IS NULL") -> dict[str, dict[str, Any]]:
        query = f"SELECT * FROM snapshot_files WHERE {condition} ORDER BY added_in"
        return {row["name"]: row for row in self.commands.rows("sql", query)}

    def backups_with_keys(self) -> list[str]:
        """The ids of the backups that have objects of data keys, in their order."""
        return sorted({path.parts[-3] for path in self.repository.glob("*/backups/*/data-keys/*.json")})

    def objects(self) -> list[Path]:
        return sorted(path for path in self.repository.glob("*/snapshots/**/*") if path.is_file())


def files_below(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def database(commands: Commands, tmp_path: Path) -> Database:
    return Database(commands, tmp_path)


@pytest.mark.parametrize("flags", [(), ("--codec", "none"), ("--codec", "zstd")])
def test_a_host_with_public_keys_makes_backups_that_an_identity_restores(
    database: Database, commands: Commands, host: Host, keys: KeyPair, flags: tuple[str, ...]
) -> None:
    host.has(keys.recipient)
    database.back_up(*flags)
    first = database.files()
    database.write("text", SECRET * 3_000)
    database.write("new", SECRET * 10)
    second = database.back_up(*flags)
    assert (second["copied"], second["unchanged"]) == (3, 3)  # CURRENT is always copied
    assert len(database.objects()) == 8
    for path in database.objects():
        assert path.read_bytes().startswith(MAGIC)
        assert path.name.endswith(".enc")
    key_ids = {name: row["key_id"] for name, row in database.rows().items()}
    assert key_ids["noise"] == key_ids["large"] != key_ids["text"] == key_ids["new"]
    query = (
        "SELECT count(*) AS files, count(DISTINCT f.key_id) AS keys, min(k.recipient) AS recipient "
        "FROM files AS f JOIN data_keys AS k ON f.key_id = k.key_id"
    )
    assert commands.rows("sql", query) == [{"files": 8, "keys": 2, "recipient": keys.recipient}]
    (sizes,) = commands.rows("sql", "SELECT sum(bytes) AS bytes FROM files WHERE role = 'data'")
    assert sizes["bytes"] == sum(path.stat().st_size for path in database.objects())
    checked = commands.result("verify")
    assert not any(checked[name] for name in ("damaged", "changed", "missing", "orphan"))

    host.has(identity_file=keys.file)
    assert commands.result("key", "test", keys.file)["opened"] == 2
    assert database.restored() == database.files()
    assert database.restored("--to-time", str(FIRST_MS + 4_000_000)) == first
    select = "SELECT * FROM snapshot_files WHERE name = 'noise' AND added_in = 1"
    assert database.restored("--select", select) == {"noise": first["noise"]}
    for mode in ("--decode", "--restore"):
        assert commands.result("verify", mode)["damaged"] == 0
    (drill,) = commands.result("drill")["drills"]
    assert drill["outcome"] == "ok"


def test_packs_are_encrypted_whole_and_files_in_them_are_restored_alone(
    database: Database, commands: Commands, host: Host, keys: KeyPair
) -> None:
    for number in range(90):
        database.write(f"small{number:02d}", os.urandom(5_000) if number % 2 else SECRET * number)
    host.has(keys.recipient)
    database.back_up()
    (pack,) = (path for path in database.objects() if path.suffix == ".pack")
    assert pack.read_bytes().startswith(MAGIC)
    host.has(identity_file=keys.file)
    assert database.restored() == database.files()
    select = "SELECT * FROM snapshot_files WHERE name IN ('small07', 'small88')"
    names = ("small07", "small88")
    assert database.restored("--select", select) == {name: database.files()[name] for name in names}
    assert commands.result("verify", "--decode")["damaged"] == 0


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_stolen_repository_shows_no_content_and_no_key(
    codec: str, database: Database, commands: Commands, host: Host, keys: KeyPair
) -> None:
    """The same thief finds what a plain backup stores, and what an encrypted one calls the files."""
    for number in range(90):
        database.write(f"small{number:02d}", SECRET + b"%d" % number)
    contents = [content for content in database.files().values() if content]
    secrets = [content[at : at + 24] for content in contents for at in (0, len(content) // 2)]
    host.has()
    database.back_up("--codec", codec)
    assert {secret for _, secret in leaks(database.repository, secrets)} == set(secrets)
    shutil.rmtree(database.repository)

    host.has(keys.recipient)
    database.back_up("--codec", codec)
    database.write("text", SECRET * 3_000)
    database.back_up("--codec", codec)
    new = host.key_pair("new.identity")
    host.has(new.recipient, keys.recipient, identity_file=keys.file)
    commands.output("key", "rotate")
    database.restored()
    database.restored("--select", "SELECT * FROM snapshot_files WHERE name = 'small40' AND gone_in IS NULL")
    for mode in ("--decode", "--restore"):
        commands.output("verify", mode)
    commands.output("drill")
    data_keys = [key.data_key.key for key in opened_keys(database.repository, new.file).values()]
    assert len(data_keys) == 2
    identities = [pair.file.read_bytes().split()[-1] for pair in (keys, new)]
    assert leaks(database.repository, [*secrets, *data_keys, *identities]) == []
    assert leaks(database.repository, [b"small40"])


@pytest.mark.parametrize(
    "form",
    [
        lambda text: text,
        lambda text: text.hex().encode(),
        lambda text: base64.b64encode(b"x" + text),
        lambda text: json.dumps({"value": base64.b64encode(b"xx" + text).decode()}).encode(),
        zstd.compress,
        lambda text: gzip.compress(zstd.compress(text)),
        lambda text: parquet_of(gzip.compress(text)),
        lambda text: avro_of(text),
    ],
)
def test_the_thief_reads_every_form(form: Callable[[bytes], bytes], tmp_path: Path) -> None:
    secret = b"secret \xff of a customer"
    (tmp_path / "object").write_bytes(form(b"before " + secret + b" after"))
    assert set(leaks(tmp_path, [secret, b"another one"])) == {("object", secret)}


def parquet_of(value: bytes) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"rows": [[{"value": value}]]}), file, compression="zstd")
    return file.getvalue()


def avro_of(value: bytes) -> bytes:
    file, field = io.BytesIO(), {"name": "value", "type": "bytes"}
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": [field]})
    fastavro.writer(file, schema, [{"value": value}], codec="deflate")
    return file.getvalue()


def test_a_part_of_an_encrypted_object_is_read_again(tmp_path: Path) -> None:
    """Two files of one part, which spans two decrypted pieces, while later pieces of the window wait."""
    key = BackupKey(DataKey.random(), "db", "backup")
    content = os.urandom(6 << 20)
    storage = open_storage(str(tmp_path))
    storage.put("pack", key.seal("files", ("pack",), content))
    parts = [(0, 900_000), (900_000, 1_000_000), (900_000, 1_000_000), (1_900_000, 4_000_000)]
    ranges = Ranges(storage, "pack", parts, Keyring([key]))
    for start, size in parts:
        assert b"".join(ranges.read(start, size)) == content[start : start + size]


def test_a_file_that_is_taken_over_keeps_its_object_and_its_key(
    database: Database, commands: Commands, host: Host, keys: KeyPair, tmp_path: Path
) -> None:
    """Unchanged files of a plain backup stay plain, and those of an encrypted one encrypted."""
    host.has()
    database.back_up()
    host.has(keys.recipient)
    shutil.copy(database.tree / "noise", database.tree / "same")
    database.write("new", SECRET * 2)
    output = database.run("--find-same")[1]
    assert json.loads(output.splitlines()[-1])["copied"] == 2
    assert "5 files of this backup are not encrypted, since an earlier backup stored them in clear" in output
    rows = database.rows()
    assert (rows["same"]["path"], rows["same"]["key_id"]) == (rows["noise"]["path"], None)
    key_id = rows["new"]["key_id"]
    assert key_id
    host.has()
    (database.tree / "new").chmod(0o600)
    shutil.copy(database.tree / "new", database.tree / "new2")
    assert database.back_up("--find-same")["copied"] == 1
    rows = database.rows()
    assert [rows[name]["key_id"] for name in ("new", "new2", "below/CURRENT")] == [key_id, key_id, None]
    assert "is encrypted, and no identity is set" in commands.fails(
        2, "restore", "snapshot", "--to", tmp_path / "no"
    )
    assert not (tmp_path / "no").exists()
    host.has(keys.recipient, identity_file=keys.file)
    assert database.restored() == database.files()
    assert "in clear" not in database.run("--mode", "full")[1]
    assert all(row["key_id"] for row in database.rows().values())
    assert database.restored() == database.files()


def test_the_keys_of_a_pruned_backup_stay_while_later_ones_need_them(
    database: Database, commands: Commands, host: Host, keys: KeyPair
) -> None:
    host.has(keys.recipient)
    first_id = database.back_up()["backup_id"]
    database.write("text", SECRET)
    host.has()
    second_id = database.back_up()["backup_id"]
    commands.output("policy", "set", "db", "--redundancy", "1")
    assert commands.result("prune", "--source", "db", "--delete")["deleted"]
    assert [row["backup_id"] for row in commands.rows("list") if row["state"] == "complete"] == [second_id]
    assert commands.rows("sql", "SELECT backup_id FROM data_keys") == [{"backup_id": first_id}]
    assert commands.result("verify", second_id)["missing"] == 0
    new = host.key_pair("new.identity")
    host.has(new.recipient, identity_file=keys.file)
    assert commands.result("key", "rotate")["keys"] == 1
    host.has(identity_file=new.file)
    assert commands.result("key", "test", new.file)["opened"] == 1
    assert database.restored() == database.files()
    assert commands.result("verify", second_id, "--decode")["damaged"] == 0


def test_a_prune_deletes_the_keys_that_no_stored_file_needs_any_more(
    database: Database, commands: Commands, host: Host, keys: KeyPair
) -> None:
    """Only the third backup stores all files again."""
    host.has(keys.recipient)
    first_id = database.back_up()["backup_id"]
    database.write("text", SECRET)
    second_id = database.back_up()["backup_id"]
    commands.output("policy", "set", "db", "--redundancy", "1")
    commands.output("prune", "--source", "db", "--delete")
    assert database.backups_with_keys() == [first_id, second_id]
    third_id = database.back_up("--mode", "full")["backup_id"]
    commands.output("prune", "--source", "db", "--delete")
    assert database.backups_with_keys() == [third_id]
    assert commands.rows("sql", "SELECT backup_id FROM data_keys") == [{"backup_id": third_id}]
    checked = commands.result("verify")
    assert not any(checked[name] for name in ("damaged", "changed", "missing", "orphan"))
    new = host.key_pair("new.identity")
    host.has(new.recipient, identity_file=keys.file)
    assert commands.result("key", "rotate")["wrapped"] == 1
    host.has(identity_file=new.file)
    assert database.restored() == database.files()


@pytest.mark.parametrize("step", ["delete data", "delete data key", "delete data key #2", "put done"])
def test_a_prune_that_was_killed_deletes_its_keys_later(
    step: str, database: Database, commands: Commands, host: Host, keys: KeyPair, tmp_path: Path
) -> None:
    host.has(keys.recipient)
    for number in range(2):
        database.write("text", b"%d" % number)
        database.back_up()
    third_id = database.back_up("--mode", "full")["backup_id"]
    commands.output("policy", "set", "db", "--redundancy", "1")
    with watched(tmp_path / "steps", kill_at=step) as steps, suppress(Killed, EnvironmentProblem):
        commands.run("prune", "--source", "db", "--delete")
    assert steps.dead
    assert (len(database.backups_with_keys()) == 1) == (step == "put done")
    expire_leases(database.repository)
    assert commands.result("verify")["missing"] == 0
    assert commands.result("prune", "--source", "db", "--delete")["resumed"] == 1
    assert database.backups_with_keys() == [third_id]
    assert list(database.repository.glob("prunes/*/done"))
    host.has(identity_file=keys.file)
    assert database.restored() == database.files()


def test_a_manifest_for_other_tools_names_the_keys(
    database: Database, commands: Commands, host: Host, keys: KeyPair, tmp_path: Path
) -> None:
    host.has(keys.recipient)
    backup_id = database.back_up()["backup_id"]
    text = commands.output("catalog", "manifest", backup_id)
    files = json.loads(text)["db"]["-"]
    assert {name: entry["key_id"] for name, entry in files.items()} == {
        name: row["key_id"] for name, row in database.rows().items()
    }
    file = tmp_path / "manifest.json"
    file.write_text(text)
    commands.output("catalog", "import-manifest", file, "--source", "copy")
    host.has(identity_file=keys.file)
    target = tmp_path / "imported"
    commands.output("restore", "snapshot", "--source", "copy", "--to", target, "--layout", "flat")
    assert files_below(target) == database.files()
    file.write_text(text.replace(f'"key_id": "{files["noise"]["key_id"]}"', f'"key_id": "{"0" * 16}"'))
    error = commands.fails(2, "catalog", "import-manifest", file, "--source", "other")
    assert (
        "db/-/noise: it is encrypted with data key 0000000000000000, which the catalog does not know" in error
    )


def flipped_bit(first: Path, second: Path) -> None:
    flip(first, first.stat().st_size // 2)


def cut_off(first: Path, second: Path) -> None:
    first.write_bytes(first.read_bytes()[:-1])


def exchanged(first: Path, second: Path) -> None:
    first.write_bytes(second.read_bytes())


def decrypted(first: Path, second: Path) -> None:
    first.write_bytes(SECRET)


@pytest.mark.parametrize("fault", [flipped_bit, cut_off, exchanged, decrypted])
def test_a_damaged_object_is_named_and_all_other_files_are_restored(
    fault: Callable[[Path, Path], None],
    database: Database,
    commands: Commands,
    host: Host,
    keys: KeyPair,
    tmp_path: Path,
) -> None:
    host.has(keys.recipient)
    database.back_up("--codec", "none")
    first, second = (database.repository / database.rows()[name]["path"] for name in ("noise", "text"))
    fault(first, second)
    host.has(identity_file=keys.file)
    error = commands.fails(7, "restore", "snapshot", "--to", tmp_path / "out", "--layout", "flat")
    assert "1 file could not be restored" in error
    assert "noise: " in error
    assert first.name in error
    assert files_below(tmp_path / "out").keys() - {".lakebackup-restore/state.json"} >= {"text", "large"}
    assert not (tmp_path / "out" / "noise").exists()
    checked = json.loads(commands.run("verify", "--decode", "--json")[1].splitlines()[-1])
    assert checked["damaged"] + checked["changed"] >= 1


def test_verify_without_an_identity_says_what_it_did_not_decode(
    database: Database, commands: Commands, host: Host, keys: KeyPair
) -> None:
    host.has(keys.recipient)
    database.back_up()
    code, _, err = commands.run("verify", "--decode")
    assert code == 0
    assert "5 files are encrypted and cannot be decoded: set identity_file" in err
    query = "SELECT count(*) AS files FROM checks WHERE detail LIKE 'not decoded%'"
    assert commands.rows("sql", query) == [{"files": 5}]

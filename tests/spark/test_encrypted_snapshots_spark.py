"""Encrypted snapshots on Spark: tasks copy, check and restore them, and a rebuilt catalog knows their keys.

Layer: make test.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.support.command_line import Commands
from tests.support.encrypted import Host, leaks
from tests.support.encrypted_metadata import names_in_clear, new_key, use_catalog

from lakebackup_jobs.lifecycle.deletion import executor

pytestmark = pytest.mark.spark


def test_spark_copies_and_restores_what_a_rebuilt_catalog_knows(
    cli: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repository, tree, on_spark = tmp_path / "backups", tmp_path / "db", ("--runner", "spark")
    monkeypatch.setenv("LAKEBACKUP_REPO", str(repository))
    host = Host(monkeypatch, tmp_path / "keys")
    keys = host.key_pair("identity")
    host.has(keys.recipient)
    tree.mkdir()
    for number in range(80):
        (tree / f"small{number}").write_bytes(b"row %d; " % number * 100)
    (tree / "noise").write_bytes(os.urandom(3 << 20))
    first_id = cli.result("backup", "snapshot", tree, *on_spark)["backup_id"]
    (tree / "small1").write_bytes(b"a later row; ")
    cli.output("backup", "snapshot", tree, *on_spark)
    cli.output("policy", "set", "db", "--redundancy", "1")
    assert cli.result("prune", "--source", "db", "--delete")["deleted"]
    queries = (
        "SELECT * FROM data_keys ORDER BY key_id, recipient",
        "SELECT name, key_id, codec, stored_bytes FROM snapshot_files ORDER BY name, added_in",
    )
    rows = [cli.rows("sql", query) for query in queries]
    assert first_id in {row["backup_id"] for row in rows[0]}
    shutil.move(repository / "catalog", tmp_path / "lost")
    host.has()
    cli.output("catalog", "rebuild")
    assert [cli.rows("sql", query) for query in queries] == rows
    assert cli.rows("sql", queries[0], "--engine", "spark") == rows[0]
    host.has(identity_file=keys.file)
    assert cli.result("verify", "--decode", *on_spark)["damaged"] == 0
    cli.output("restore", "snapshot", "--to", tmp_path / "out", "--layout", "flat", *on_spark)
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == {
        file.name: file.read_bytes() for file in tree.iterdir()
    }

    # After a full, nothing needs the keys of the first two backups. Spark's tasks delete them.
    host.has(keys.recipient)
    full_id = cli.result("backup", "snapshot", tree, "--mode", "full", *on_spark)["backup_id"]
    monkeypatch.setattr(executor, "is_large", lambda _: True)
    assert cli.result("prune", "--source", "db", "--delete")["deleted"]
    key_objects = list(repository.glob("db/backups/*/data-keys/*.json"))
    assert [file.parts[-3] for file in key_objects] == [full_id]
    rows = [cli.rows("sql", query) for query in queries]
    assert {row["backup_id"] for row in rows[0]} == {full_id}
    shutil.move(repository / "catalog", tmp_path / "lost too")
    cli.output("catalog", "rebuild")
    assert [cli.rows("sql", query) for query in queries] == rows
    assert cli.result("verify", *on_spark)["missing"] == 0


def test_metadata_is_encrypted_by_tasks_and_by_a_rebuild(
    cli: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repository, tree, on_spark = tmp_path / "backups", tmp_path / "secret-db", ("--runner", "spark")
    monkeypatch.setenv("LAKEBACKUP_REPO", str(repository))
    use_catalog(tmp_path / "catalog", monkeypatch)
    host = Host(monkeypatch, tmp_path / "keys")
    keys, file = host.key_pair("identity"), new_key(host)
    host.has(keys.recipient, metadata_key_file=file)
    (tree / "secret-folder").mkdir(parents=True)
    for number in range(80):  # so many small files are stored in packs
        (tree / f"secret-folder/secret-{number}").write_bytes(b"secret row %d; " % number * 100)
    (tree / "secret-noise").write_bytes(os.urandom(3 << 20))
    for number in range(2):
        cli.output("backup", "snapshot", tree, "--mode", "full", *on_spark)
        (tree / "secret-folder/secret-1").write_bytes(b"a later row; %d" % number)
        cli.output("backup", "snapshot", tree, *on_spark)
    cli.output("policy", "set", "secret-db", "--redundancy", "1")
    assert cli.result("prune", "--source", "secret-db", "--delete")["deleted"]
    queries = (
        "SELECT backup_id, state, files, bytes FROM backups ORDER BY 1",
        "SELECT name, key_id, stored_bytes FROM snapshot_files ORDER BY name, added_in",
    )
    rows = [cli.rows("sql", query) for query in queries]
    packs = "SELECT count(*) AS n FROM files WHERE path LIKE '%.pack'"
    assert cli.rows("sql", packs) != [{"n": 0}]
    use_catalog(tmp_path / "rebuilt", monkeypatch)
    cli.output("catalog", "rebuild")
    assert [cli.rows("sql", query) for query in queries] == rows
    host.has(identity_file=keys.file, metadata_key_file=file)
    assert cli.result("verify", "--decode", *on_spark)["damaged"] == 0
    cli.output("restore", "snapshot", "--to", tmp_path / "out", "--layout", "flat", *on_spark)
    restored = {file.name: file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file()}
    assert restored == {file.name: file.read_bytes() for file in tree.rglob("*") if file.is_file()}
    assert names_in_clear(repository) == []
    assert leaks(repository, [b"secret"]) == []

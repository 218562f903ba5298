"""Writes to the catalog's tables: rows that keep the constraints, durable commits, checkpoints."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from sqlglot import parse_one
from tests.support.disks import flip
from tests.support.rows import filled

from lakebackup.errors import Busy, Damaged, EnvironmentProblem, UsageProblem
from lakebackup.rows.tables import ARROW_SCHEMAS, TABLES, as_row
from lakebackup.rows.upkeep import Audit
from lakebackup.sql_engine.delta import ddl, log
from lakebackup.sql_engine.delta import table as delta
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.sql_engine.delta.ddl import definition, make_table
from lakebackup.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebackup.storage import Storage

# For each table its constraints in their order, each with values that keep it and values that break it.
CASES: dict[str, list[tuple[str, dict[str, Any], dict[str, Any]]]] = {
    "backups": [
        ("number_positive", {"number": 1, "place": 1}, {"number": 0, "place": 1}),
        ("levels", {"number": 2, "place": 1}, {"number": 2, "place": 3}),
    ],
    "departures": [("lifetime", {"added_in": 1, "gone_in": 2}, {"added_in": 2, "gone_in": 2})],
    "files": [
        ("ts_order", {"min_ts": 1, "max_ts": 1}, {"min_ts": 2, "max_ts": 1}),
        ("position_order", {"end_position": 1}, {"end_position": 0}),
        ("path_relative", {"path": "a/b.c"}, {"path": "/etc/passwd"}),
        ("path_relative", {"path": "a.b"}, {"path": "a/../b"}),
        ("bytes_positive", {"bytes": 0}, {"bytes": -1}),
    ],
    "gaps": [("ts_order", {"from_ts": 1, "to_ts": 1}, {"from_ts": 2, "to_ts": 1})],
    "groups": [("position_positive", {"position": 0}, {"position": -1})],
    "holds": [("instant", {"at": 0}, {"at": -1})],
    "log_regions": [("numbered", {"number": 1}, {"number": 0})],
    "log_tables": [("action_known", {"action": "drop"}, {"action": "alter"})],
    "log_tasks": [("instant", {"at": 0}, {"at": -1})],
    "policies": [("limits", {"window_days": None}, {"window_days": -1})],
    "positions": [("position_order", {"end_position": 0}, {"end_position": -1})],
    "queue_points": [("counted", {"carried": 0}, {"carried": -1})],
    "queue_positions": [("positive", {"no_transaction_position": 0}, {"no_transaction_position": -1})],
    "queue_restores": [("ordered", {"base_position": 0}, {"base_position": 1})],
    "queue_schemas": [("numbered", {"version": 0}, {"version": -1})],
    "queue_transactions": [("counted", {"entries": 1}, {"entries": 0})],
    "scopes": [("regions_positive", {"regions": 0}, {"regions": -1})],
    "snapshot_departures": [("lifetime", {"added_in": 1, "gone_in": 2}, {"added_in": 2, "gone_in": 1})],
    "snapshot_files": [
        ("place", {"position": 0}, {"position": -1}),
        ("bytes_positive", {"bytes": None}, {"bytes": -1}),
        ("path_relative", {"path": "a"}, {"path": "/a"}),
    ],
    "translations": [("position_order", {"first_position": 0}, {"first_position": 1})],
}
RULES = {table: definition(table).constraints for table in TABLES}


def settings(table: str) -> Mapping[str, str]:
    return definition(table).properties


def batch(table: str, **columns: Any) -> pa.Table:
    rows = [as_row(filled(TABLES[table], **columns))]
    return pa.Table.from_pylist(rows, schema=ARROW_SCHEMAS[table])


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A catalog's folder with the table `audit`, which has no constraints, and `files`."""
    catalog = open_storage(str(tmp_path))
    for table in ("audit", "files"):
        make_table(catalog, table)
    return catalog


def entry(number: int) -> Audit:
    return Audit(at=number, actor="me", action="looked", subject="x", detail="{}")


def audit_times(storage: Storage) -> list[int]:
    return sorted(rows_of(f"{storage.uri}/audit")["at"].to_pylist())


def test_each_constraint_has_a_case() -> None:
    assert {table: {name for name, _, _ in cases} for table, cases in CASES.items()} == {
        table: set(rules) for table, rules in RULES.items() if rules
    }


@pytest.mark.parametrize(
    ("table", "number"), [(t, n) for t, cases in CASES.items() for n in range(len(cases))]
)
def test_a_row_that_breaks_a_constraint_is_refused(table: str, number: int, storage: Storage) -> None:
    valid: dict[str, Any] = {}
    for _, keeps, _ in CASES[table]:
        valid |= keeps
    defaults = {"level": 1, "min_redundancy": 1} if table == "policies" else {}
    defaults |= {"added_in": 1} if table == "snapshot_files" else {}
    delta._check(table, batch(table, **defaults | valid), settings(table))
    name, _, breaks = CASES[table][number]
    with pytest.raises(UsageProblem, match=f"{table} breaks its rule {name} "):
        delta.write_rows(storage, table, batch(table, **defaults | valid | breaks), settings(table))
    assert not list(
        storage.list(f"{table}/part-"[: len(table) + 1]) if table not in ("audit", "files") else []
    )


def test_constraints_mean_the_same_to_both_engines() -> None:
    for rules in RULES.values():
        for text in rules.values():
            assert parse_one(text, dialect="spark") == parse_one(text, dialect="duckdb")


def test_a_row_for_which_a_constraint_is_null_is_refused() -> None:
    unknown = batch("policies", level=1, min_redundancy=1)
    rules = {f"{delta.CONSTRAINT}window": "window_days >= 0"}
    with pytest.raises(UsageProblem, match="breaks its rule window"):
        delta._check("policies", unknown, rules)


def test_a_commit_is_synced_before_anything_that_depends_on_it(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    original_fsync = os.fsync

    def fsync(handle: int) -> None:
        target = Path(f"/proc/self/fd/{handle}")
        synced.append(
            str(target.readlink()) if target.readlink().is_dir() else target.read_text("latin-1")[:12]
        )
        original_fsync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    assert delta.append(storage, "audit", [entry(1)], "one")
    rows, commit = (
        next(n for n, label in enumerate(synced) if label.startswith(start)) for start in ("PAR1", '{"')
    )
    assert rows < commit
    assert any(label.endswith("/audit") for label in synced[rows:commit]), "the file's name is durable before"
    assert synced[commit + 1].startswith("crc"), "and the folder is synced once for both"
    assert [label for label in synced if label.endswith("/audit/_delta_log")] == [synced[commit + 2]]


def test_a_commit_that_lost_a_race_follows_the_winner(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster = delta.write_rows(storage, "audit", batch("audit", at=1))
    put_entry, winners = delta.put_entry, [faster]

    def put_after_winner(storage: Storage, table: str, name: str, data: bytes) -> None:
        if winners:
            add = json.loads(winners.pop()) | {
                "partitionValues": {},
                "modificationTime": 0,
                "dataChange": True,
            }
            put_entry(storage, table, name, json.dumps({"add": add}).encode())
        put_entry(storage, table, name, data)

    monkeypatch.setattr(delta, "put_entry", put_after_winner)
    assert delta.append(storage, "audit", [entry(2)], "two")
    assert not delta.append(storage, "audit", [entry(2)], "two")
    assert audit_times(storage) == [1, 2]
    monkeypatch.setattr(delta, "commit_once", lambda *_: False)
    with pytest.raises(Busy, match="Others commit"):
        delta.append(storage, "audit", [entry(3)], "three")


def test_a_table_with_unknown_features_is_not_written(storage: Storage) -> None:
    for features, refused in ((["appendOnly", "checkConstraints"], False), (["rowTracking"], True)):
        version = delta.open_table(f"{storage.uri}/audit").version() + 1
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
        log.put_entry(storage, "audit", f"{version:020d}.json", json.dumps({"protocol": protocol}).encode())
        if refused:
            with pytest.raises(EnvironmentProblem, match="features of Delta"):
                delta.append(storage, "audit", [entry(1)], features[0])
        else:
            assert delta.append(storage, "audit", [entry(1)], features[0])


def test_checkpoints_are_written_and_old_entries_deleted(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_IN_FOLDER", 3)
    folder = Path(storage.uri.removeprefix("file://"), "audit", "_delta_log")
    long_ago = time.time() - 40 * 86_400
    for number in range(8):
        assert delta.append(storage, "audit", [entry(number)], f"{number}")
        assert audit_times(storage) == list(range(number + 1))
        if number == 3:  # the log has a checkpoint now
            for old in folder.glob("*.*"):
                os.utime(old, (long_ago, long_ago))
    entries = {path.name for path in folder.iterdir()}
    assert f"{5:020d}.checkpoint.parquet" in entries
    assert f"{0:020d}.json" not in entries
    assert not [
        name for name in entries if name.startswith(".") and name[1:].removesuffix(".crc") not in entries
    ]
    assert not delta.append(storage, "audit", [entry(0)], "0"), "the checkpoint knows what was committed"
    assert len(DeltaTable(str(folder.parent)).file_uris()) == 8
    flip(folder / f"{5:020d}.checkpoint.parquet")
    with pytest.raises(Damaged):
        delta.open_table(f"{storage.uri}/audit")


def test_a_checkpoint_that_fails_does_not_fail_the_commit(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: DeltaTable) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(log, "_IN_FOLDER", 1)
    monkeypatch.setattr(DeltaTable, "create_checkpoint", full)
    for number in range(3):
        assert delta.append(storage, "audit", [entry(number)], f"{number}")
    assert audit_times(storage) == [0, 1, 2]
    assert "no new checkpoint: No space left" in caplog.text


def test_all_tables_are_created_as_they_are_declared(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    for table in TABLES:
        make_table(storage, table)
        make_table(storage, table)  # the second call changes nothing
        declared, created = definition(table), DeltaTable(str(tmp_path / table))
        assert created.version() == 0
        assert created.metadata().configuration.items() >= declared.properties.items()
        assert created.metadata().description == declared.comment
        columns = [
            (f.name, f.type.type, f.nullable, f.metadata.get("comment", "")) for f in created.schema().fields
        ]
        assert columns == [(c.name, c.type, c.nullable, c.comment) for c in declared.columns]
        protocol = created.protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 3 if RULES[table] else 2)


def test_a_table_of_an_earlier_version_gets_the_columns_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, declared = open_storage(str(tmp_path)), definition("backups")
    with monkeypatch.context() as earlier:
        earlier.setattr(ddl, "definition", lambda _: replace(declared, columns=declared.columns[:-1]))
        make_table(storage, "backups")
    old_rows = batch("backups", number=1, place=1).drop_columns(["runner"])
    write_deltalake(str(tmp_path / "backups"), old_rows, mode="append")
    # The old table can be read as it is.
    assert rows_of(f"{storage.uri}/backups")["runner"].to_pylist() == [None]
    make_table(storage, "backups")
    make_table(storage, "backups")
    upgraded = DeltaTable(str(tmp_path / "backups"))
    assert upgraded.version() == 2
    assert [field.name for field in upgraded.schema().fields] == [column.name for column in declared.columns]
    assert upgraded.metadata().configuration.items() >= declared.properties.items()
    added = delta.write_rows(storage, "backups", batch("backups", number=2, place=2, runner="local"))
    assert delta.commit(storage, "backups", [added], "later")
    assert sorted(map(str, rows_of(f"{storage.uri}/backups")["runner"].to_pylist())) == ["None", "local"]


def test_cached_rows_are_used_until_their_file_changes(storage: Storage) -> None:
    for number in range(3):
        assert delta.append(storage, "audit", [entry(number)], f"{number}")
        assert audit_times(storage) == list(range(number + 1))
    first, second, _ = sorted(Path(storage.uri.removeprefix("file://"), "audit").glob("part-*.parquet"))
    assert audit_times(storage) == [0, 1, 2]
    first.write_bytes(second.read_bytes())
    with pytest.raises(Damaged):
        rows_of(f"{storage.uri}/audit")
    first.unlink()
    with pytest.raises(Damaged):
        rows_of(f"{storage.uri}/audit")

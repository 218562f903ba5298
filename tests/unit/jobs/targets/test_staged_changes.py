"""Encrypted objects of changes: what a task writes, only their key reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakebackup.encryption.objects import MAGIC, BackupKey, DataKey, Keyring
from lakebackup.errors import Damaged
from lakebackup_jobs.targets.staged_changes import SealChanges, open_staged

COLUMNS = "table_id BIGINT, name STRING, value BINARY"
KEY = BackupKey(DataKey.random(), "shop", "log-1")


def batch(*values: bytes) -> pa.RecordBatch:
    """Rows in another order of columns than COLUMNS has."""
    names = ["orders"] * len(values)
    return pa.RecordBatch.from_pydict({"value": list(values), "name": names, "table_id": [7] * len(values)})


def seal(folder: Path, *batches: pa.RecordBatch) -> list[str]:
    """Run the task over batches. Returns the paths of its objects."""
    task = SealChanges(str(folder), "restores/log-1/changes/", KEY, COLUMNS)
    return [path for paths in task(batches) for path in paths["path"].to_pylist()]


def test_a_task_writes_one_object_that_its_key_reads(tmp_path: Path) -> None:
    large_value = b"secret" * 100_000
    (path,) = seal(tmp_path, batch(), batch(b"secret 1", large_value), batch(), batch(b"secret 2"))
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()] == [path]
    content = (tmp_path / path).read_bytes()
    assert content.startswith(MAGIC)
    assert b"secret" not in content
    assert b"PAR1" not in content
    rows = open_staged(str(tmp_path), path, Keyring([KEY])).read()
    assert rows.column_names == ["table_id", "name", "value"]
    assert rows["value"].to_pylist() == [b"secret 1", large_value, b"secret 2"]


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert seal(tmp_path, batch()) == []
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_a_repeated_task_replaces_nothing(tmp_path: Path) -> None:
    assert seal(tmp_path, batch(b"a")) != seal(tmp_path, batch(b"a"))


def test_an_exchanged_object_is_not_read(tmp_path: Path) -> None:
    (path,) = seal(tmp_path, batch(b"a"))
    (other_path,) = seal(tmp_path, batch(b"b"))
    (tmp_path / path).write_bytes((tmp_path / other_path).read_bytes())
    with pytest.raises(Damaged, match="belongs elsewhere"):
        open_staged(str(tmp_path), path, Keyring([KEY])).read()
    (tmp_path / path).write_bytes(b"PAR1 in clear")
    with pytest.raises(Damaged, match="not encrypted"):
        open_staged(str(tmp_path), path, Keyring([KEY]))

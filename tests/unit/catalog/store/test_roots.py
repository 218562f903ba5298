"""A root proves which destination it is before anything is read or deleted below it."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.roots import roots_of

from lakebackup.errors import Refused
from lakebackup.rows.backups import Removal
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.roots import Roots, destination_id
from lakebackup.store.tombstones import Chunk, WriteRemovals, removals_schema
from lakebackup_jobs.lifecycle.deletion.task import DeleteKeys, DeleteObjects


def test_a_root_with_the_id_is_opened(tmp_path: Path) -> None:
    roots = roots_of(d=str(tmp_path))
    assert roots.open("d").uri == roots.uri("d") == f"file://{tmp_path}"
    assert pickle.loads(pickle.dumps(roots)).uri("d") == f"file://{tmp_path}"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "is none"), (b'{"format": 1, "destination": "e"}', "is that of repository e")],
)
def test_a_root_without_the_id_is_refused(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    storage = open_storage(str(tmp_path))
    if content:
        storage.put(layout.ROOT_FILE, content)
    with pytest.raises(Refused, match=complaint) as raised:
        Roots({"d": str(tmp_path)}).open("d")
    assert '"destination": "d"' in raised.value.hint
    with pytest.raises(Refused, match="does not know where repository x is"):
        roots_of(d=str(tmp_path)).open("x")


def test_no_new_id_beside_old_backups(tmp_path: Path) -> None:
    """A lost lakebackup.json must not cut off the backups whose rows have its id."""
    storage = open_storage(str(tmp_path))
    storage.put("leases/source-prod/000000000001.json", b"{}")
    storage.put("theirs/one.sst", b"x")
    assert destination_id(storage) == destination_id(storage)
    storage.delete(layout.ROOT_FILE)
    storage.put(layout.marker_path("prod", "20260101T000000Z-00000000", "complete"), b"")
    with pytest.raises(Refused, match=r"holds backups of prod, but no lakebackup\.json"):
        destination_id(storage)


def removal(destination: str, path: str) -> dict[str, Any]:
    row = Removal(
        prune_id="20260101T000000Z-00000000", at=1, source="prod", destination=destination, path=path,
        backup_id="b", scope="t", epoch="e", region="0", bytes=1, reason="obsolete",
    )  # fmt: skip
    return asdict(row)


def delete_objects(
    roots: Roots, home: Path, *rows: dict[str, Any], foreign: frozenset[str]
) -> dict[str, Any]:
    """Runs the task that deletes the objects of these rows. Returns the task's row."""
    prune_id = "20260101T000000Z-00000000"
    storage = open_storage(str(home))
    removals = pa.Table.from_pylist(list(rows), removals_schema())
    ((row,),) = (b.to_pylist() for b in WriteRemovals(storage.uri, prune_id, 1)(removals.to_batches()))
    chunk = Chunk(**row)
    assert len(tombstones.read_removals(storage, chunk)) == len(rows)
    job = DeleteObjects(str(home), layout.prune_folder(prune_id), roots, (chunk,), frozenset(), foreign)
    result: dict[str, Any] = job.run(0)
    return result


def test_a_prune_deletes_nothing_below_an_unproved_or_foreign_root(tmp_path: Path) -> None:
    """An imported row once caused the deletion of three files in a folder that never was a destination."""
    folders = {name: tmp_path / name for name in ("own", "forged", "foreign")}
    roots = roots_of(own=str(folders["own"]), foreign=str(folders["foreign"]))
    roots = Roots({**roots.uris, "forged": str(folders["forged"])})
    for folder in folders.values():
        open_storage(str(folder)).put("victim", b"x")
    rows = [removal(name, "victim") for name in (*folders, "unknown")]
    result = delete_objects(roots, folders["own"], *rows, foreign=frozenset({"foreign"}))
    assert (result["files"], result["foreign"], result["failed"]) == (1, 1, 2)
    assert "does not" in result["first"]
    assert [name for name, folder in folders.items() if (folder / "victim").exists()] == ["forged", "foreign"]
    keys = pa.RecordBatch.from_pylist([{"destination": "foreign", "keys_path": "victim"}])
    (batch,) = DeleteKeys(roots, frozenset({"foreign"}))([keys])
    assert batch.to_pylist()[0]["objects"] == 0
    keys = pa.RecordBatch.from_pylist([{"destination": "forged", "keys_path": "victim"}])
    (batch,) = DeleteKeys(roots, frozenset())([keys])
    assert "does not prove" in batch.to_pylist()[0]["error"]
    assert (folders["forged"] / "victim").exists()

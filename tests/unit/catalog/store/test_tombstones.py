"""The record that a prune writes before it deletes: complete or absent, and marked when the prune ends."""

from __future__ import annotations

import json
from dataclasses import asdict

import pyarrow as pa
import pytest

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.rows.backups import Floor, Removal
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store import tombstones
from lakebackup.store.tombstones import Chunk, Prune, RemovalReader, WriteRemovals, removals_schema

ID, OTHER_ID = "20260101T000000Z-0000000a", "20260102T000000Z-0000000b"


def removal(number: int) -> Removal:
    return Removal(
        prune_id=ID, at=7, source="prod", destination="d", path=f"prod/ü/{number}", backup_id="b",
        scope="orders", epoch="e", region="0", bytes=number, reason="time",
    )  # fmt: skip


def write_chunks(storage: Storage, count: int) -> tuple[Chunk, ...]:
    """Write so many removals, which come in batches of two."""
    rows = pa.Table.from_pylist([asdict(removal(number)) for number in range(count)], removals_schema())
    batches = WriteRemovals(storage.uri, ID, 7)(rows.to_batches(2))
    return tuple(Chunk(**row) for batch in batches for row in batch.to_pylist())


@pytest.fixture
def prune(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Prune:
    """A prune of seven files in three chunks, which is not yet recorded."""
    monkeypatch.setattr(tombstones, "CHUNK_ROWS", 3)
    chunks = write_chunks(storage, 7)
    floor = Floor(
        prune_id=ID, at=7, source="prod", scope="orders", epoch="e", region="0", low_position=9, reason="time"
    )
    return Prune(ID, 7, "me", "prod", "{}", (floor,), chunks)


def test_a_prune_is_read_as_it_was_written(storage: Storage, prune: Prune) -> None:
    assert [chunk.files for chunk in prune.chunks] == [3, 3, 1]
    assert (prune.files, prune.bytes) == (7, 21)
    tombstones.write_prune(storage, prune)
    assert tombstones.read_prune(storage, ID) == prune
    rows = [row for chunk in prune.chunks for row in tombstones.read_removals(storage, chunk)]
    assert rows == [removal(number) for number in range(7)]
    (numbers,) = pa.table({"id": [2, 0]}).to_batches()
    removal_batches = list(RemovalReader(storage.uri, prune.chunks)([numbers]))
    assert [row["bytes"] for batch in removal_batches for row in batch.to_pylist()] == [6, 0, 1, 2]
    assert removal_batches[0].schema == ARROW_SCHEMAS["removals"]


def test_a_prune_exists_with_prune_json_and_ends_with_done(storage: Storage, prune: Prune) -> None:
    storage.put(f"{layout.PRUNES_FOLDER}/a-strangers/prune.json", b"")
    assert list(tombstones.prune_ids(storage)) == []
    with pytest.raises(NotFound):
        tombstones.read_prune(storage, ID)
    tombstones.write_prune(storage, prune)
    storage.put(layout.prune_path(OTHER_ID), b"")
    tombstones.finish(storage, OTHER_ID)
    assert list(tombstones.prune_ids(storage)) == [ID, OTHER_ID]
    assert tombstones.incomplete(storage) == [ID]
    tombstones.finish(storage, ID)
    tombstones.finish(storage, ID)
    assert tombstones.incomplete(storage) == []


def test_chunks_of_an_unrecorded_prune_are_deleted(storage: Storage, prune: Prune) -> None:
    storage.put(f"{layout.PRUNES_FOLDER}/a-strangers/file", b"{}")
    storage.put(f"{layout.prune_folder(OTHER_ID)}notes.txt", b"not ours")
    storage.put(f"{layout.prune_folder(ID)}removals-.jsonl", b"")  # its writer was cut off; listed first
    object_count = len(list(storage.list("prunes/")))
    tombstones.discard_unrecorded(storage, "other")
    assert len(list(storage.list("prunes/"))) == object_count
    tombstones.discard_unrecorded(storage, "prod")
    assert len(list(storage.list("prunes/"))) == 3
    tombstones.write_prune(storage, prune)
    tombstones.discard_unrecorded(storage, "prod")
    assert tombstones.incomplete(storage) == [ID]


def test_any_changed_byte_is_damage(storage: Storage, prune: Prune) -> None:
    tombstones.write_prune(storage, prune)
    path = layout.prune_path(ID)
    content = storage.get(path)
    for position in range(0, len(content), 7):
        storage.put(path, content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(Damaged, match=r"prune\.json"):
            tombstones.read_prune(storage, ID)
    chunk = prune.chunks[0]
    data = storage.get(chunk.path)
    for damaged in (data[:-1], data + b"\n", data.replace(b'"bytes":1', b'"bytes":9')):
        storage.put(chunk.path, damaged)
        with pytest.raises(Damaged, match="removals-"):
            tombstones.read_removals(storage, chunk)


@pytest.mark.parametrize(
    "change",
    [
        {"prune_id": OTHER_ID},
        {"floors": [{"region": 0}]},
        {"chunks": None},
        {"chunks": [{"path": "p"}]},
        {"more": 1},
    ],
)
def test_a_sealed_record_with_invalid_fields_is_damage(
    storage: Storage, prune: Prune, change: dict[str, object]
) -> None:
    from lakebackup.store.manifest import put_sealed

    tombstones.write_prune(storage, prune)
    content = json.loads(storage.get(layout.prune_path(ID)))
    del content["sha256"]
    put_sealed(storage, layout.prune_path(ID), content | change)
    with pytest.raises(Damaged):
        tombstones.read_prune(storage, ID)
    put_sealed(storage, layout.prune_path(ID), content | {"format": 2})
    with pytest.raises(UsageProblem, match="newer one"):
        tombstones.read_prune(storage, ID)

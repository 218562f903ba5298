"""`.meta` objects describe every log file of one flush, in one object or in pieces."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from tests.support.rows import file_row
from tests.support.stream_metas import read_stream_meta

from lakebackup.errors import Damaged, NotFound
from lakebackup.formats.logs import metafile
from lakebackup.formats.logs.metafile import file_info, write_stream_meta
from lakebackup.rows.backups import DataFile
from lakebackup.storage import Storage

BACKUP, OTHER_BACKUP = "20260131T134511Z-0a1b2c3d", "20260131T134611Z-0a1b2c3e"
TS = 0x1234
PATH = f"task/stream-metas/0000000000001234-{BACKUP}.meta"


def file(number: int, **changes: Any) -> DataFile:
    columns: dict[str, Any] = {
        "path": f"task/log/{number}", "backup_id": BACKUP, "source": "task", "scope": str(number),
        "region": "7", "format": "log-arrow-1", "codec": "zstd", "key_id": "k", "bytes": 100 + number,
        "sha256": f"{number:064x}", "entries": number, "min_ts": 10, "max_ts": 20, "min_begin_ts": 5,
        "resolved_ts": 30, "start_key": "61", "end_key": "62", "cf": "write", "op": "put",
    }  # fmt: skip
    return file_row(1, **{**columns, **changes})


def write(storage: Storage, count: int, backup: str = BACKUP, **limits: int) -> list[dict[str, Any]]:
    rows = [file(number) for number in range(1, count + 1)]
    with mock.patch.multiple(metafile, **limits):
        path = write_stream_meta(storage, "task", backup, TS, iter(rows))
    assert path == PATH.replace(BACKUP, backup)
    return [file_info(row) for row in rows]


def names(storage: Storage) -> list[str]:
    return [entry.path.rpartition("/")[2] for entry in storage.list("task/stream-metas/")]


def test_the_columns_of_a_file_are_stored(storage: Storage) -> None:
    rows = [
        file(31),
        file(0, scope="meta", role="schema", cf="default", op="delete", min_begin_ts=None, end_key=None),
        file(32, region="-", resolved_ts=None, key_id=None),
        file(33, format="log-regions", role="meta", scope="", cf=None, op=None),
    ]
    assert write_stream_meta(storage, "task", BACKUP, TS, rows) == PATH
    first, second, third = read_stream_meta(storage, PATH)
    assert first == {
        "path": "task/log/31", "sha_256": f"{31:064x}", "bytes": 131, "number_of_entries": 31,
        "min_ts": 10, "max_ts": 20, "min_begin_ts": 5, "resolved_ts": 30, "region_id": 7,
        "start_key": "61", "end_key": "62", "cf": "write", "type": "Put", "is_meta": False,
        "table_id": 31, "codec": "zstd", "key_id": "k",
    }  # fmt: skip
    assert [second[name] for name in ("is_meta", "table_id", "type", "cf")] == [True, 0, "Delete", "default"]
    assert [third[name] for name in ("region_id", "resolved_ts", "key_id")] == [0, None, None]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_files_are_in_one_object(storage: Storage, count: int) -> None:
    infos = write(storage, count, MOST_FILES=3)
    assert list(read_stream_meta(storage, PATH)) == infos
    assert names(storage) == [f"0000000000001234-{BACKUP}.meta"]


@pytest.mark.parametrize("limits", [{"MOST_FILES": 3}, {"MOST_BYTES": 1200}])
def test_many_files_are_in_pieces(storage: Storage, limits: dict[str, int]) -> None:
    infos = write(storage, 7, **limits)
    assert list(read_stream_meta(storage, PATH)) == infos
    assert names(storage) == [f"0000000000001234-{BACKUP}{piece}.meta" for piece in ("-0", "-1", "-2", "")]
    contents = {name: storage.get(f"task/stream-metas/{name}") for name in names(storage)}
    write(storage, 7, **limits)
    assert contents == {name: storage.get(f"task/stream-metas/{name}") for name in names(storage)}


def test_rows_are_not_held_in_memory(storage: Storage) -> None:
    """A piece is stored as soon as it is full, not after the last row."""
    object_counts = []

    def rows() -> Any:
        for number in range(1, 10):
            object_counts.append(len(names(storage)))
            yield file(number)

    with mock.patch.object(metafile, "MOST_FILES", 2):
        write_stream_meta(storage, "task", BACKUP, TS, rows())
    assert object_counts == [0, 0, 0, 1, 1, 2, 2, 3, 3]


def test_no_flipped_byte_goes_unseen(storage: Storage) -> None:
    write(storage, 4, MOST_FILES=2)
    for name in names(storage):
        path = f"task/stream-metas/{name}"
        data = storage.get(path)
        for position in range(0, len(data), 11):
            storage.put(path, data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            with pytest.raises(Damaged, match=name):
                list(read_stream_meta(storage, PATH))
        storage.put(path, data)
    assert len(list(read_stream_meta(storage, PATH))) == 4


def test_foreign_and_missing_pieces_are_noticed(storage: Storage) -> None:
    write(storage, 6, MOST_FILES=2)
    write(storage, 6, OTHER_BACKUP, MOST_FILES=2)
    first, second = (PATH.replace(".meta", f"-{n}.meta") for n in (0, 1))
    own = storage.get(first)
    for foreign in (storage.get(second), storage.get(first.replace(BACKUP, OTHER_BACKUP))):
        storage.put(first, foreign)
        with pytest.raises(Damaged, match="it is not the piece"):
            list(read_stream_meta(storage, PATH))
    storage.put(first, own)
    storage.delete(second)
    with pytest.raises(NotFound):
        list(read_stream_meta(storage, PATH))

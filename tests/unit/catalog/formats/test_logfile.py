"""Log files are read as they were written, rows describe their content, and damage is noticed."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.disks import small_disk
from tests.support.private import private_file

from lakebackup.encryption.objects import BackupKey, DataKey, Keyring
from lakebackup.errors import Damaged, EnvironmentProblem, NotFound, UsageProblem
from lakebackup.formats.logs.cipher import Cipher, LogKeys
from lakebackup.formats.logs.events import stored_schema
from lakebackup.formats.logs.logfile import CODECS, MOST_RAW, LogFileWriter, LogPlace, Scratch, read_log_file
from lakebackup.rows.backups import DataFile
from lakebackup.storage import open_storage

BACKUP = "20260131T134511Z-0a1b2c3d"
LOG_PLACE = LogPlace("task", BACKUP, 0x1F, 7, "write", "put", "store 1")
KEYS = LogKeys("keys.toml", "b", {"a": b"a" * 32, "b": b"b" * 32})
CIPHER = Cipher("b", b"b" * 32)
DATA_KEY = BackupKey(DataKey("0123456789abcdef", b"d" * 32), "task", BACKUP)
DATA_KEYS = Keyring([DATA_KEY])
FOLDER = f"task/log/{BACKUP}/1f/00000000000000070000000000000014-write-put"


@dataclass(frozen=True)
class Row:
    """A record of a log file."""

    key: bytes
    value: bytes | None = None
    start_ts: int = 10
    commit_ts: int | None = 20
    type: str | None = "P"
    seq: int = 0
    sub: int = 0
    offset: int = 0


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    schema = stored_schema().append(pa.field("offset", pa.int64()))
    return pa.RecordBatch.from_pylist([vars(row) for row in rows], schema)


def write(folder: Path, *pieces: Sequence[Row], **changes: Any) -> DataFile:
    """Writes the rows to a log file, with a frame for each piece. Returns the file's row of the catalog."""
    options: dict[str, Any] = {"place": LOG_PLACE, "codec": "zstd", "cipher": None, **changes}
    with Scratch() as scratch:
        writer = LogFileWriter(options["place"], scratch, options["codec"])
        for piece in pieces:
            writer.add(batch(piece))
        return row_of(writer.publish(open_storage(str(folder)), options["cipher"]))


def row_of(columns: dict[str, Any]) -> DataFile:
    return DataFile(destination="d", added_in=1, **columns)


def read(folder: Path, file: DataFile, keys: LogKeys | None = None, **options: Any) -> list[dict[str, Any]]:
    batches = read_log_file(open_storage(str(folder)), file, keys, DATA_KEYS, **options)
    return [row for record_batch in batches for row in record_batch.to_pylist()]


def stored_columns(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [{name: value for name, value in vars(row).items() if name != "offset"} for row in rows]


ROWS = st.builds(
    Row,
    key=st.binary(max_size=80),
    value=st.none() | st.binary(max_size=30),
    start_ts=st.integers(0, 2**62),
    commit_ts=st.integers(0, 2**62),
    type=st.sampled_from(["P", "D", "L", "R", "T"]),
    seq=st.integers(0, 2**62),
    sub=st.integers(0, 2**30),
    offset=st.integers(0, 2**62),
)


@given(
    pieces=st.lists(st.lists(ROWS, min_size=1, max_size=5), min_size=1, max_size=4),
    codec=st.sampled_from(CODECS),
    cipher=st.sampled_from([None, CIPHER, DATA_KEY]),
)
def test_a_log_file_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[list[Row]],
    codec: str,
    cipher: Cipher | BackupKey | None,
) -> None:
    folder, rows = tmp_path_factory.mktemp("log"), [row for piece in pieces for row in piece]
    file = write(folder, *pieces, codec=codec, cipher=cipher)
    assert read(folder, file, KEYS) == stored_columns(rows)
    assert file.bytes == folder.joinpath(file.path).stat().st_size
    assert (file.entries, file.codec, file.key_id) == (len(rows), codec, cipher and cipher.key_id)
    assert (file.min_ts, file.max_ts) == (min(r.commit_ts for r in rows), max(r.commit_ts for r in rows))
    begin_ts = [r.start_ts for r in rows if r.type in ("P", "D") and r.value is None]
    assert file.min_begin_ts == min(begin_ts, default=None)
    assert (file.start_position, file.end_position) == (
        min(r.offset for r in rows),
        1 + max(r.offset for r in rows),
    )
    if cipher is DATA_KEY:  # the row shows no key
        assert (file.start_key, file.end_key) == (None if all(r.key for r in rows) else "", None)
    else:
        assert all(file.start_key <= r.key.hex() and (file.end_key or "g") >= r.key.hex()[:128] for r in rows)


def test_a_path_names_the_content_of_its_file(tmp_path: Path) -> None:
    suffixes = {"zstd": ".zst", "lz4": ".lz4", "none": ""}
    for codec, suffix in suffixes.items():
        assert write(tmp_path, [Row(b"k")], codec=codec).path == f"{FOLDER}/store 1.log{suffix}"
        encrypted = write(tmp_path, [Row(b"k")], codec=codec, cipher=CIPHER)
        assert encrypted.path == f"{FOLDER}/store 1.log{suffix}.aes256gcm"
        encrypted = write(tmp_path, [Row(b"k")], codec=codec, cipher=DATA_KEY)
        assert encrypted.path == f"{FOLDER}/store 1.log{suffix}.0123456789abcdef.enc"
    meta = write(tmp_path, [Row(b"mDB1", start_ts=9, commit_ts=None, type=None)], place=replace(
        LOG_PLACE, table_id=0, cf="default"
    ))  # fmt: skip
    assert meta.path.startswith(f"task/log/{BACKUP}/meta/00000000000000070000000000000009-default-put/")
    assert (meta.scope, meta.role, meta.min_ts, meta.min_begin_ts) == ("meta", "schema", 9, None)


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    for cipher in (None, CIPHER, DATA_KEY):
        first, second = (write(tmp_path, [Row(key)], cipher=cipher) for key in (b"1", b"2"))
        assert second.path.startswith(f"{FOLDER}/store 1-")
        assert [read(tmp_path, file, KEYS)[0]["key"] for file in (first, second)] == [b"1", b"2"]


def test_long_keys_are_cut_and_rounded_up(tmp_path: Path) -> None:
    file = write(tmp_path, [Row(b"a" * 70), Row(b"b" * 63 + b"\xff" * 9)])
    assert (file.start_key, file.end_key) == ("61" * 64, "62" * 62 + "63")
    assert write(tmp_path, [Row(b"\xff" * 65)]).end_key is None


def test_large_batches_are_cut(tmp_path: Path) -> None:
    small_rows = [Row(b"%d" % i, commit_ts=20 + i) for i in range(150_000)]
    large_rows = [Row(b"l", b"v" * 3_000_000)] * 4
    for rows, max_size in ((small_rows, 65_536), (large_rows, 2)):
        file = write(tmp_path, rows)
        sizes = [len(b) for b in read_log_file(open_storage(str(tmp_path)), file, None)]
        assert sum(sizes) == len(rows)
        assert max(sizes) <= max_size
    assert MOST_RAW < 2**31 - 1  # one message of the cipher can have that many bytes


def test_a_write_without_a_commit_ts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="table 31, region 7, has no commit ts"):
        write(tmp_path, [Row(b"k", commit_ts=None)])


def test_other_tools_can_read_a_plain_file(tmp_path: Path) -> None:
    """As docs/data-format.md says: frames of zstd that hold one Arrow IPC stream."""
    from cramjam import zstd

    rows = [Row(b"%d" % i) for i in range(10)]
    file = write(tmp_path, rows[:5], rows[5:])
    data = bytes(zstd.decompress(tmp_path.joinpath(file.path).read_bytes()))
    assert len(data) == file.raw_bytes
    assert pa.ipc.open_stream(data).read_all().to_pylist() == stored_columns(rows)


# --- damage


@pytest.mark.parametrize("cipher", [None, CIPHER, DATA_KEY], ids=["in clear", "key file", "data key"])
@pytest.mark.parametrize("codec", CODECS)
def test_no_flipped_or_missing_byte_goes_unseen(
    tmp_path: Path, codec: str, cipher: Cipher | BackupKey | None
) -> None:
    file = write(tmp_path, [Row(b"key", b"value")], codec=codec, cipher=cipher)
    path = tmp_path / file.path
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        with pytest.raises(Damaged, match=r"log.*sha256"):
            read(tmp_path, file, KEYS)
        path.write_bytes(data[:position])
        for checksum in (True, False):
            with pytest.raises(Damaged):
                read(tmp_path, file, KEYS, checksum=checksum)
    path.unlink()
    with pytest.raises(NotFound):
        read(tmp_path, file, KEYS)


@pytest.mark.parametrize("damage", [{"entries": 2}, {"codec": "none"}, {"codec": "lz4"}])
def test_a_file_that_contradicts_its_row_is_damaged(tmp_path: Path, damage: dict[str, Any]) -> None:
    file = write(tmp_path, [Row(b"key")])
    with pytest.raises(Damaged, match=r"store 1\.log\.zst"):
        read(tmp_path, replace(file, **damage))


def test_a_file_with_other_columns_is_damaged(tmp_path: Path) -> None:
    file = write(tmp_path, [Row(b"key")], codec="none")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("key", pa.binary())])) as stream:
        stream.write(pa.record_batch({"key": [b"key"]}))
    data = sink.getvalue().to_pybytes()
    tmp_path.joinpath(file.path).write_bytes(data)
    with pytest.raises(Damaged, match="other columns"):
        read(tmp_path, replace(file, bytes=len(data)), checksum=False)


# --- keys


def test_an_encrypted_file_opens_only_with_its_key(tmp_path: Path) -> None:
    file = write(tmp_path, [Row(b"key", b"a secret")], cipher=CIPHER)
    assert b"a secret" not in tmp_path.joinpath(file.path).read_bytes()
    with pytest.raises(UsageProblem, match="encrypted with the key 'b', and no key file"):
        read(tmp_path, file)
    with pytest.raises(UsageProblem, match=r"key 'b', which other\.toml does not hold"):
        read(tmp_path, file, LogKeys("other.toml", "a", {"a": b"a" * 32}))
    wrong = LogKeys("wrong.toml", "b", {"b": b"c" * 32})
    with pytest.raises(UsageProblem, match=rf"key 'b' of wrong\.toml cannot decrypt {FOLDER}"):
        read(tmp_path, file, wrong)
    assert read(tmp_path, file, LogKeys("new.toml", "c", {**KEYS.keys, "c": b"c" * 32}))


def test_an_encrypted_file_under_another_name_does_not_open(tmp_path: Path) -> None:
    first, second = (write(tmp_path, [Row(key)], cipher=CIPHER) for key in (b"1", b"2"))
    data = tmp_path.joinpath(first.path).read_bytes()
    tmp_path.joinpath(second.path).write_bytes(data)
    with pytest.raises(UsageProblem, match=r"cannot (be decrypted|decrypt)"):
        read(tmp_path, replace(second, sha256=first.sha256, bytes=first.bytes), KEYS)


def test_a_data_key_opens_only_the_files_of_its_backup(tmp_path: Path) -> None:
    first, second = (write(tmp_path, [Row(key, b"a secret")], cipher=DATA_KEY) for key in (b"1", b"2"))
    stored_file = tmp_path / second.path
    assert b"a secret" not in stored_file.read_bytes()
    batches = read_log_file(open_storage(str(tmp_path)), second, KEYS)
    with pytest.raises(Damaged, match="data key 0123456789abcdef, which was not opened"):
        next(batches)
    stored_file.write_bytes((tmp_path / first.path).read_bytes())
    with pytest.raises(Damaged, match="cannot be decrypted with the key of its backup"):
        read(tmp_path, replace(second, sha256=first.sha256, bytes=first.bytes))


def key_text(byte: bytes, count: int = 32) -> str:
    return base64.b64encode(byte * count).decode()


@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_key_file_is_read(tmp_path: Path, form: str) -> None:
    table = {"a": key_text(b"a"), "b": key_text(b"b")}
    toml = "[keys]\n" + "".join(f'{name} = "{text}"\n' for name, text in table.items())
    file = private_file(tmp_path / "keys", b"")
    for current in (None, "a"):
        content = {"current": current, "keys": table} if current else {"keys": table}
        file.write_text(
            json.dumps(content) if form == "json" else f'current = "{current}"\n{toml}' if current else toml
        )
        keys = LogKeys.load(str(file))
        assert (keys.keys["a"], keys.current) == (b"a" * 32, current or "b")
        assert keys.cipher == Cipher(keys.current, keys.keys[keys.current])
        assert "aaaa" not in repr(keys) + repr(keys.cipher)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[keys]",
        f'[keys]\na = "{key_text(b"s", 31)}"',
        f'[keys]\na = "{key_text(b"s")}',
        '[keys]\na = "ssssssss?"',
        '[keys]\na = 5',
        f'[keys]\na = "Ã©{key_text(b"s")}"',  # é, as UTF-8 has it
        f'current = "c"\n[keys]\na = "{key_text(b"s")}"',
        f'other = 1\n[keys]\na = "{key_text(b"s")}"',
        f'[keys]\n"a b" = "{key_text(b"s")}"',
        f'{{"keys": {{"a": "{key_text(b"s")}"}}',
        "[1]",
        "\xff",
    ],
)  # fmt: skip
def test_an_invalid_key_file_is_refused_without_showing_a_key(tmp_path: Path, text: str) -> None:
    file = private_file(tmp_path / "keys.toml", text.encode("latin-1"))
    with pytest.raises(UsageProblem, match=r"keys\.toml") as caught:
        LogKeys.load(str(file))
    assert key_text(b"s")[:8] not in str(caught.value)
    with pytest.raises(NotFound, match="gone"):
        LogKeys.load(str(tmp_path / "gone"))


# --- disks


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    with small_disk(tmp_path, "1m") as full:
        with Scratch(str(full)) as scratch:
            writer = LogFileWriter(LOG_PLACE, scratch)
            with pytest.raises(EnvironmentProblem, match="No space left") as caught:
                writer.add(batch([Row(b"k", os.urandom(2_000_000))]))
            assert "TMPDIR" in caught.value.hint
        with pytest.raises(EnvironmentProblem, match="No space left"):
            write(full, [Row(b"k", os.urandom(2_000_000))])
        assert not [path for path in full.rglob("*") if path.is_file()]
    with pytest.raises(EnvironmentProblem, match="No such file"):
        Scratch(str(tmp_path / "gone"))

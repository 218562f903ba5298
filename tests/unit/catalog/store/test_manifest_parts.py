from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.support.rows import backup_row, file_row, filled

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.rows.backups import DataFile, Gap, Position, Scope
from lakebackup.rows.tables import as_row, json_line
from lakebackup.storage import Storage
from lakebackup.store.manifest import (
    Manifest,
    get_record,
    mark,
    put_sealed,
    read_manifest,
    read_part,
    write_manifest,
    write_part,
)

ID = "20260101T000000Z-00000000"
EPOCH = "0" * 32
PART = "c/backups/b/parts/000000.jsonl"
MANIFEST = "c/backups/b/manifest.json"

PARTITION = {"source": "c", "scope": "t", "epoch": EPOCH, "region": "0"}
FILE = file_row(
    0, destination="d1", path=f"c/{EPOCH}/topics/t/partition=0/t+0-0000000000.data", codec="zstandard",
    bytes=10, sha256="ab" * 32, min_ts=-1, max_ts=5, end_position=1, start_key="00", **PARTITION,
)  # fmt: skip
EXAMPLE = Manifest(
    backup=backup_row(
        0,
        number=1,
        source="c",
        destination="d1",
        end_ts=6,
        finished_at=2,
        files=1,
        note='ümlaut \u2028 "quoted"',
    ),
    positions=[filled(Position, backup_id=ID, end_position=1, high_position=1, ts=6, **PARTITION)],
    scopes=[filled(Scope, backup_id=ID, source="c", scope="t", epoch=EPOCH, regions=1, settings="{}")],
    gaps=[filled(Gap, backup_id=ID, reason="recreated", from_ts=1, to_ts=2, bridged=True, **PARTITION)],
    groups=[],
    parts=1,
)


def files(count: int) -> list[DataFile]:
    return [replace(FILE, path=f"{FILE.path}{number}", scope="ü\u2028\r") for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_part_is_read_as_it_was_written(storage: Storage, count: int) -> None:
    assert write_part(storage, PART, files(count)) == files(count)
    assert read_part(storage, PART) == files(count)


def test_a_task_that_ran_twice_counts_once(storage: Storage) -> None:
    write_part(storage, PART, files(3))
    second = [replace(row, path=f"{row.path}-again") for row in files(2)]
    assert write_part(storage, PART, second) == files(3)
    assert read_part(storage, PART) == files(3)


def test_missing_objects_are_not_found(storage: Storage) -> None:
    with pytest.raises(NotFound):
        read_part(storage, PART)
    with pytest.raises(NotFound):
        read_manifest(storage, MANIFEST)


def row(**change: Any) -> str:
    return json.dumps(as_row(FILE) | change, separators=(",", ":"))


def without(column: str) -> str:
    values = as_row(FILE)
    del values[column]
    return json.dumps(values, separators=(",", ":"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (json_line(FILE)[:-5], "line 2"),
        ("", "line 2"),
        ("[]", "line 2: .* object"),
        ("null", "line 2: .* object"),
        (row(colour="red"), "line 2: colour: "),
        (without("sha256"), "line 2: sha256: "),
        (without("key_id"), "line 2: it is not as it was"),
        *((row(bytes=wrong), "line 2: bytes: .* valid integer") for wrong in ("10", 10.0, True, None)),
        (row(role="nothing"), "line 2: role: "),
        (json_line(FILE).replace('"bytes":10', '"bytes":NaN'), "line 2"),
        (
            json_line(FILE).replace('{"destination"', '{"path":"other","destination"'),
            "line 2: it is not as it was",
        ),
        (json_line(FILE).replace(",", ", "), "line 2: it is not as it was"),
        ("[" * 100_000, "line 2"),
    ],
)
def test_a_damaged_line_is_named(storage: Storage, line: str, message: str) -> None:
    good = json_line(FILE)
    storage.put(PART, f"{good}\n{line}\n{good}\n".encode())
    with pytest.raises(Damaged, match=f"{PART}, {message}"):
        read_part(storage, PART)


def test_bytes_that_are_no_text_are_damage(storage: Storage) -> None:
    storage.put(PART, json_line(FILE).encode().replace(b"zstandard", b"zstand\xff\xfe\xfd") + b"\n")
    with pytest.raises(Damaged, match="line 1"):
        read_part(storage, PART)


def test_a_part_cut_anywhere_but_at_the_end_of_a_line_is_damaged(storage: Storage, tmp_path: Path) -> None:
    write_part(storage, PART, files(2))
    data = storage.get(PART)
    for length in range(1, len(data)):
        if data[length - 1] == 10:
            continue
        (tmp_path / PART).write_bytes(data[:length])
        with pytest.raises(Damaged):
            read_part(storage, PART)


def test_a_manifest_is_read_as_it_was_written(storage: Storage) -> None:
    write_manifest(storage, MANIFEST, EXAMPLE)
    assert read_manifest(storage, MANIFEST) == EXAMPLE
    assert json.loads(storage.get(MANIFEST))["backup"]["backup_id"] == ID, "any JSON reader can read it"
    empty = replace(EXAMPLE, positions=[], scopes=[], gaps=[], parts=0)
    write_manifest(storage, MANIFEST, empty)
    assert read_manifest(storage, MANIFEST) == empty


@settings(
    max_examples=2 * settings.default.max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_any_flipped_bit_or_cut_is_noticed(storage: Storage, tmp_path: Path, data: st.DataObject) -> None:
    if not storage.exists("written"):
        write_manifest(storage, "written", EXAMPLE)
        mark(storage, MANIFEST)
    content = bytearray(storage.get("written"))
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(Damaged, match=MANIFEST):
        read_manifest(storage, MANIFEST)


def sealed(content: object) -> bytes:
    body = json.dumps(content)[:-1].encode()
    return body + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def content() -> dict[str, Any]:
    empty: dict[str, Any] = {"format": 1, "scopes": [], "gaps": [], "groups": [], "parts": 1}
    return empty | {"backup": as_row(EXAMPLE.backup), "positions": [as_row(row) for row in EXAMPLE.positions]}


def test_the_seal_helper_writes_valid_manifests(storage: Storage) -> None:
    storage.put(MANIFEST, sealed(content()))
    assert read_manifest(storage, MANIFEST).backup == EXAMPLE.backup


@pytest.mark.parametrize(
    "change",
    [
        *({"format": wrong} for wrong in (0, "1", None)),
        *({"parts": wrong} for wrong in (-1, "1", True)),
        *({"backup": wrong} for wrong in (None, {})),
        *({"positions": wrong} for wrong in ({}, [1])),
        {"more": 1},
        {"scopes": None},
        {"gaps": [{"backup_id": ID}]},
        {"positions": [as_row(replace(EXAMPLE.positions[0], backup_id="another"))]},
        {"positions": [as_row(replace(EXAMPLE.positions[0], source="another"))]},
    ],
)
def test_a_manifest_with_wrong_fields_is_damaged(storage: Storage, change: dict[str, Any]) -> None:
    storage.put(MANIFEST, sealed(content() | change))
    with pytest.raises(Damaged, match=MANIFEST):
        read_manifest(storage, MANIFEST)


def test_a_newer_manifest_is_refused(storage: Storage) -> None:
    storage.put(MANIFEST, sealed({"format": 3, "whatever": 1}))
    with pytest.raises(UsageProblem, match="format version 3"):
        read_manifest(storage, MANIFEST)


@pytest.mark.parametrize(
    ("kind", "codec", "encrypted", "version"),
    [
        ("snapshot", "zstd", False, 2),
        ("snapshot", "null", True, 2),
        ("snapshot", "null", False, 1),
        ("kafka", "zstandard", True, 1),
    ],
)
def test_only_the_manifest_of_a_compressed_or_encrypted_snapshot_has_a_newer_format(
    storage: Storage, kind: str, codec: str, encrypted: bool, version: int
) -> None:
    manifest = replace(EXAMPLE, backup=replace(EXAMPLE.backup, source_kind=kind, codec=codec))
    write_manifest(storage, MANIFEST, manifest, encrypted=encrypted)
    assert json.loads(storage.get(MANIFEST))["format"] == version
    assert read_manifest(storage, MANIFEST) == manifest


@dataclass(frozen=True)
class Note:
    """A record of an unfinished run."""

    name: str
    tasks: int


@pytest.mark.parametrize(
    "content",
    [
        {"format": 1, "name": "a"},
        {"format": 1, "name": "a", "tasks": "many"},
        {"format": 1, "name": ["a"], "tasks": 1},
        {"format": 2, "name": "a", "tasks": 1},
    ],
)
def test_a_record_of_another_shape_is_deleted(storage: Storage, content: dict[str, Any]) -> None:
    put_sealed(storage, "prod/merge.json", content)
    assert get_record(storage, "prod/merge.json", TypeAdapter(Note)) is None
    assert list(storage.list()) == []
    assert get_record(storage, "prod/merge.json", TypeAdapter(Note)) is None


def test_a_record_is_read_as_it_was_written(storage: Storage) -> None:
    put_sealed(storage, "note.json", {"format": 1, "name": "a", "tasks": 3})
    assert get_record(storage, "note.json", TypeAdapter(Note)) == Note("a", 3)


def test_a_marker_keeps_its_first_content(storage: Storage) -> None:
    mark(storage, "c/backups/b/complete")
    assert storage.get("c/backups/b/complete") == b""
    mark(storage, "c/backups/b/deleted", {"by": "me"})
    mark(storage, "c/backups/b/deleted", {"by": "another"})
    assert json.loads(storage.get("c/backups/b/deleted")) == {"by": "me"}

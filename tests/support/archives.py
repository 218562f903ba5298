"""Archives as the public tool writes and reads them, with that tool's SQL and none of lakebackup's code."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

_COMMON_COLUMNS = (
    "cmd integer, vbucket_id integer, key blob, flg integer, exp integer, cas text, meta blob, val blob"
)
_TABLES = {
    2004: _COMMON_COLUMNS,
    2014: f"{_COMMON_COLUMNS}, seqno integer, dtype integer, meta_size integer",
    2015: f"{_COMMON_COLUMNS}, seqno integer, dtype integer, meta_size integer, conf_res integer",
}
SET, DELETE = 0x57, 0x58


@dataclass(frozen=True)
class Doc:
    """A mutation; a value of None deletes the document."""

    key: bytes
    value: bytes | None = b"{}"
    seqno: int = 0
    vbucket: int = 0
    cas: int = 1
    flags: int = 0


def write_cbb(path: Path, docs: Iterable[Doc], version: int = 2015) -> Path:
    """Write a .cbb file with the table that this version of the tool makes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE cbb_msg ({_TABLES[version]})")
        database.execute(f"PRAGMA user_version = {version}")
        for doc in docs:
            row: list[Any] = [
                SET if doc.value is not None else DELETE, doc.vbucket, doc.key, doc.flags, 0, str(doc.cas),
                b"\0\0\0\0\0\0\0\1", doc.value or b"",
            ]  # fmt: skip
            row += [doc.seqno, 0, 8, 0][: len(_TABLES[version].split(",")) - len(row)]
            database.execute(f"INSERT INTO cbb_msg VALUES ({', '.join('?' * len(row))})", row)
        database.commit()
    return path


def write_backup(
    root: Path,
    started_at: str,
    mode: str,
    docs: Iterable[Doc],
    *,
    chain: str | None = None,
    bucket: str = "default",
    node: str = "10.0.0.1:8091",
    design: str | None = None,
    version: int = 2015,
    **meta_fields: Any,
) -> Path:
    """Write one backup of an archive; returns the node's folder. `meta_fields`: fields of its meta.json."""
    docs = list(docs)
    backup = root / (chain or started_at) / f"{started_at}-{mode}"
    folder = backup / f"bucket-{quote_plus(bucket)}" / f"node-{quote_plus(node)}"
    write_cbb(folder / "data-0000.cbb", docs, version)
    last: dict[str, int] = {}
    for doc in docs:
        last[str(doc.vbucket)] = max(doc.seqno, last.get(str(doc.vbucket), 0))
    (folder / "seqno.json").write_text(json.dumps(last), encoding="utf-8")
    meta = {"pred": [], "conflict_resolution_type": "seqno", "version": "6.6.0", **meta_fields}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    if design is not None:
        (folder.parent / "design.json").write_text(design, encoding="utf-8")
    return folder


@dataclass
class Read:
    """The content of an archive: per bucket the documents by (vbucket, key), and the design text."""

    docs: dict[str, dict[tuple[int, bytes], tuple[Any, ...]]] = field(default_factory=dict)
    rows: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    designs: dict[str, str] = field(default_factory=dict)
    modes: list[str] = field(default_factory=list)


def read_archive(root: Path) -> Read:
    """Read as the tool does: all files in the folder of the newest full backup, in the order of their
    paths."""
    archive = Read()
    newest = max((path for path in root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    backups = sorted(newest.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    files: list[Path] = []
    for backup in backups:
        files += backup.glob("bucket-*/node-*/data-*.cbb")
        for meta in backup.glob("bucket-*/node-*/meta.json"):
            assert json.loads(meta.read_text(encoding="utf-8"))["pred"] == []
    for design in backups[0].glob("bucket-*/design.json"):
        archive.designs[design.parent.name] = design.read_text(encoding="utf-8")
    for path in sorted(files):
        bucket = path.parent.parent.name.removeprefix("bucket-")
        for row in _rows(path):
            archive.rows.append((bucket, row))
            _apply(archive.docs.setdefault(bucket, {}), row)
    archive.modes = [backup.name.rpartition("-")[2] for backup in reversed(backups)]
    return archive


def _rows(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("pragma user_version").fetchall()[0][0] == 2015
        return database.execute(
            "SELECT cmd, vbucket_id, key, flg, exp, cas, meta, val, seqno, dtype, meta_size, conf_res "
            "FROM cbb_msg"
        ).fetchall()


def _apply(docs: dict[tuple[int, bytes], tuple[Any, ...]], row: Mapping[int, Any] | tuple[Any, ...]) -> None:
    cmd, vbucket, key, _, _, cas, meta, value, seqno, _, size, _ = tuple(row)
    assert (type(key), type(value), type(meta), type(cas)) == (bytes, bytes, bytes, str)
    assert size == len(meta)
    int(cas)
    if cmd in (0x41, 0x57):
        docs[vbucket, key] = (value, int(cas), seqno)
    else:
        assert cmd in (0x42, 0x58)
        docs.pop((vbucket, key), None)


def touch(path: Path, mtime: float) -> None:
    """Set the time of a file."""
    os.utime(path, (mtime, mtime))

"""Read and write .cbb files: SQLite databases with the table `cbb_msg`, which has one row per mutation.

`PRAGMA user_version` tells which columns the table has: version 2004 has no sequence numbers, 2014 and 2015
do. `cas` is stored as text, because SQLite's integers have 63 bits. Sequence numbers start at 1, and 0
means none.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lakebackup.errors import Damaged

MAGIC = b"SQLite format 3\0"
COLUMNS: dict[int, tuple[str, ...]] = {
    2004: ("cmd", "vbucket_id", "key", "flg", "exp", "cas", "meta", "val"),
}
COLUMNS[2014] = (*COLUMNS[2004], "seqno", "dtype", "meta_size")
COLUMNS[2015] = (*COLUMNS[2014], "conf_res")
NEWEST = 2015
MUTATIONS, DELETIONS = (0x41, 0x57), (0x42, 0x58)
MUTATION, DELETION = 0x57, 0x58
#: The hint for a file that does not follow its format.
ELSEWHERE = "Take the file from another copy of the archive."
#: How many vbucket numbers there are; the last one, 0xffff, means unknown.
MOST_VBUCKETS = 1 << 16
#: The most bytes that SQLite may allocate for one value. A document has at most 20 MiB, its metadata little.
_MAX_VALUE_BYTES = 64 << 20
_AFFINITY = {"cas": "text", "key": "blob", "meta": "blob", "val": "blob"}
_WHITESPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Vbucket:
    """The mutations of one vbucket in a file. Sequence numbers are inclusive, and 0 when there are none."""

    vbucket: int
    entries: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What a file holds. Keys are in byte order, and None when there is no row. `raw_bytes` counts all keys,
    values and metadata."""

    version: int
    entries: int
    deletions: int
    raw_bytes: int
    low_key: bytes | None
    high_key: bytes | None
    vbuckets: tuple[Vbucket, ...]

    @property
    def sequenced(self) -> bool:
        """Whether every mutation has a sequence number."""
        return self.version > min(COLUMNS) and all(vbucket.first > 0 for vbucket in self.vbuckets)


@dataclass(frozen=True, slots=True)
class Mutation:
    """One row of a file. `value` and `meta` are as stored; `cas` is a string of decimal digits."""

    cmd: int
    vbucket: int
    key: bytes
    flags: int
    expiry: int
    cas: str
    meta: bytes
    value: bytes
    seqno: int
    datatype: int

    @property
    def deleted(self) -> bool:
        return self.cmd in DELETIONS


@contextmanager
def opened(path: Path, name: str) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open a file read-only, check its table, and yield the database and its version.

    Raises Damaged, also for errors of SQLite in the `with` block. The file is not trusted: none of its
    functions or views runs, and nothing is written beside it.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                raise Damaged(f"{name}: this is not an SQLite database.")
        with closing(_connect(path)) as database:
            yield database, _version(database, name)
    except Damaged as error:
        raise Damaged(error.message, hint=error.hint or ELSEWHERE) from None
    except (sqlite3.Error, OverflowError) as error:
        raise Damaged(f"{name}: {error}.", hint=ELSEWHERE) from error


def _connect(path: Path) -> sqlite3.Connection:
    # immutable: SQLite looks for no journal beside the file and takes no lock.
    database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.text_factory = bytes
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON", "mmap_size = 0"):
        database.execute(f"PRAGMA {pragma}")
    return database


def _version(database: sqlite3.Connection, name: str) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version not in COLUMNS:
        versions = ", ".join(map(str, COLUMNS))
        raise Damaged(f"{name}: its version is {version}; versions {versions} are known.")
    kinds = database.execute(
        "SELECT type, rootpage > 0 FROM sqlite_master WHERE lower(name) = 'cbb_msg'"
    ).fetchall()
    if kinds != [(b"table", 1)]:
        raise Damaged(f"{name}: it has no table cbb_msg.")
    columns = [
        (row[1].decode(errors="replace").lower(), row[6])
        for row in database.execute("PRAGMA table_xinfo(cbb_msg)")
    ]
    if columns != [(column, 0) for column in COLUMNS[version]]:
        names = ", ".join(column for column, _ in columns)
        raise Damaged(
            f"{name}: the columns of its table are {names[:300]}; version {version} has "
            f"{', '.join(COLUMNS[version])}."
        )
    return int(version)


def scan(path: Path, name: str) -> Summary:
    """Check every row of a file and return its totals. Raises Damaged, which names the first bad row."""
    with opened(path, name) as (database, version):
        (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if problem != b"ok":
            raise Damaged(f"{name}: {_WHITESPACE.sub(' ', problem.decode(errors='replace'))[:300]}.")
        seqno = "seqno" if version > min(COLUMNS) else "0"
        bad_row = database.execute(_BAD_ROW_SQL.format(seqno=seqno)).fetchone()
        if bad_row:
            raise Damaged(f"{name}: row {bad_row[0]} is no mutation: {bad_row[1].decode()}.")
        rows = database.execute(_SUMMARY_SQL.format(seqno=seqno)).fetchall()
        low, high = database.execute(
            "SELECT MIN(CAST(key AS BLOB)), MAX(CAST(key AS BLOB)) FROM cbb_msg"
        ).fetchone()
    return Summary(
        version=version,
        entries=sum(row[1] for row in rows),
        deletions=sum(row[4] for row in rows),
        raw_bytes=sum(row[5] for row in rows),
        low_key=low,
        high_key=high,
        vbuckets=tuple(Vbucket(*row[:4]) for row in rows),
    )


_BAD_ROW_SQL = f"""
SELECT rowid, CASE
  WHEN typeof(cmd) <> 'integer' OR cmd NOT IN {(*MUTATIONS, *DELETIONS)} THEN 'cmd'
  WHEN typeof(vbucket_id) <> 'integer' OR vbucket_id NOT BETWEEN 0 AND {MOST_VBUCKETS - 1} THEN 'vbucket_id'
  WHEN typeof(key) NOT IN ('blob', 'text') THEN 'key'
  WHEN typeof(val) NOT IN ('blob', 'text') THEN 'val'
  WHEN typeof(meta) NOT IN ('blob', 'text', 'null') THEN 'meta'
  WHEN typeof(flg) <> 'integer' THEN 'flg'
  WHEN typeof(exp) <> 'integer' THEN 'exp'
  WHEN typeof({{seqno}}) <> 'integer' OR {{seqno}} < 0 THEN 'seqno'
  WHEN typeof(cas) NOT IN ('text', 'integer') OR length(cas) NOT BETWEEN 1 AND 20
    OR cas GLOB '*[^0-9]*' THEN 'cas'
END AS wrong
FROM cbb_msg WHERE wrong IS NOT NULL LIMIT 1
"""  # noqa: S608 - constants of this module
_SUMMARY_SQL = f"""
SELECT vbucket_id, COUNT(*), MIN({{seqno}}), MAX({{seqno}}), SUM(cmd IN {DELETIONS}),
  SUM(length(CAST(key AS BLOB)) + length(CAST(val AS BLOB)) + COALESCE(length(CAST(meta AS BLOB)), 0))
FROM cbb_msg GROUP BY vbucket_id ORDER BY vbucket_id
"""  # noqa: S608 - constants of this module


def mutations(path: Path, name: str) -> Iterator[Mutation]:
    """Yield the rows of a file in the order they were written. Raises Damaged."""
    with opened(path, name) as (database, version):
        sequence_columns = ", seqno, dtype" if version > min(COLUMNS) else ", 0, 0"
        rows = database.execute(
            "SELECT cmd, vbucket_id, CAST(key AS BLOB), flg, exp, CAST(cas AS TEXT), CAST(meta AS BLOB), "  # noqa: S608
            f"CAST(val AS BLOB){sequence_columns} FROM cbb_msg ORDER BY rowid"
        )
        for cmd, vbucket, key, flags, expiry, cas, meta, value, seqno, datatype in rows:
            yield Mutation(
                cmd, vbucket, key, flags, expiry, cas.decode(), meta or b"", value, seqno, datatype or 0
            )


#: One row to write: key, vbucket, cas, metadata, value (None for a deletion), sequence number.
NewRow = tuple["bytes | memoryview", int, int, bytes, "bytes | memoryview | None", int]


def write(path: Path, rows: Iterable[NewRow]) -> int:
    """Write a new file of the newest version at `path` and return its number of rows."""
    columns = COLUMNS[NEWEST]
    column_definitions = ", ".join(f"{column} {_AFFINITY.get(column, 'integer')}" for column in columns)
    placeholders = ", ".join("?" * len(columns))
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # No journal and no sync: nobody reads an unfinished file.
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        database.execute(f"CREATE TABLE cbb_msg ({column_definitions})")
        values: Iterable[tuple[Any, ...]] = (
            (
                DELETION if value is None else MUTATION, vbucket, key, 0, 0, str(cas), meta,
                b"" if value is None else value, seqno, 0, len(meta), 0,
            )
            for key, vbucket, cas, meta, value, seqno in rows
        )  # fmt: skip
        database.executemany(f"INSERT INTO cbb_msg VALUES ({placeholders})", values)  # noqa: S608
        (count,) = database.execute("SELECT COUNT(*) FROM cbb_msg").fetchone()
        database.execute(f"PRAGMA user_version = {NEWEST}")
        database.execute("COMMIT")
    return int(count)

"""Finds and removes rows that are in a catalog table twice because another program compacted it.

delta-rs 1.6.6 does not notice that a file which it compacts was removed meanwhile. Its commit removes the
file again, and adds its rows again. So a commit that removes a file which an earlier commit has removed has
repeated rows. These may be in every file that the commit added, and in every file that a later merge made
from those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from lakebackup.sql_engine.delta.dataset import rows_in_files
from lakebackup.sql_engine.delta.log import FOLDER, local_log
from lakebackup.sql_engine.delta.table import in_order, live_paths, open_table, put_rows
from lakebackup.sql_engine.delta.upkeep import divided, replace_files
from lakebackup.storage import Storage

# The beginning of the application transaction of a commit that removed repeated rows.
_REMOVED = "repeated rows removed "
# So many files are compared at a time.
_FILES_AT_A_TIME = 64
_ROW = "row number"


class RepeatingCommit(NamedTuple):
    """A commit that added rows which its table had already. `program`: what the commit says about it."""

    table: str
    version: int
    program: str

    def __str__(self) -> str:
        return f"table {self.table}, version {self.version} (by {self.program})"


class Repeats(NamedTuple):
    """The commits that repeated rows of a table, and the paths of the files that may have these rows."""

    commits: list[RepeatingCommit]
    paths: set[str]


def repeats_of(uri: str) -> Repeats:
    """Return what was repeated in the table at `uri`, as far as its log goes back, and not removed since.

    Raises NotFound, Damaged.
    """
    with local_log(uri, history=True) as copy:
        entries = sorted(Path(copy, FOLDER).glob("*.json"))
        return repeats_in(
            uri.rpartition("/")[2], ((int(entry.stem), entry.read_text("utf-8")) for entry in entries)
        )


def repeats_in(table: str, entries: Iterable[tuple[int, str]]) -> Repeats:
    """Return what the entries of a table's log repeat; each has its version and its lines, oldest first."""
    repeats, removed_before = Repeats([], set()), set[str]()
    for version, text in entries:
        actions = [json.loads(line) for line in text.splitlines() if line]
        if any(action["txn"]["appId"].startswith(_REMOVED) for action in actions if "txn" in action):
            repeats = Repeats([], set())
        added = {action["add"]["path"] for action in actions if "add" in action}
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        if removed & removed_before:
            repeats.commits.append(RepeatingCommit(table, version, _program(actions)))
        if removed & (removed_before | repeats.paths):
            repeats.paths.update(added)
        repeats.paths.difference_update(removed - added)
        removed_before = (removed_before | removed) - added
    return repeats


def _program(actions: Iterable[Mapping[str, Any]]) -> str:
    info: Mapping[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    return str(info.get("engineInfo") or info.get("clientVersion") or "an unnamed program")


def remove_repeats(
    storage: Storage, table: str, lease: Callable[[], AbstractContextManager[Any]]
) -> tuple[list[RepeatingCommit], int]:
    """Remove the repeated rows of a table; returns the commits that repeated them, and the number of rows.

    `storage`, `lease`: see `merge_files`. Nothing is removed when another process replaces one of the files
    meanwhile. Raises Busy, NotFound, Damaged.
    """
    uri = f"{storage.uri}/{table}"
    repeats = repeats_of(uri)
    if not repeats.commits:
        return [], 0
    delta_table = open_table(uri)
    paths = sorted(repeats.paths.intersection(live_paths(delta_table)))
    sound_paths = sorted(set(live_paths(delta_table)).difference(paths))
    rows = rows_in_files(uri, delta_table, paths)
    distinct_rows = _without_repeats(
        rows,
        (
            rows_in_files(uri, delta_table, sound_paths[start : start + _FILES_AT_A_TIME])
            for start in range(0, len(sound_paths), _FILES_AT_A_TIME)
        ),
    )
    settings = delta_table.metadata().configuration
    parts = divided(in_order(table, distinct_rows)) if len(distinct_rows) else ()
    added = [put_rows(storage, f"{table}/", part, settings) for part in parts]
    with lease():
        is_replaced = replace_files(
            storage, table, paths, added, transaction=f"{_REMOVED}{repeats.commits[-1].version}"
        )
    return (repeats.commits, len(rows) - len(distinct_rows)) if is_replaced else ([], 0)


def _without_repeats(rows: pa.Table, sound_files: Iterator[pa.Table]) -> pa.Table:
    """Return each of the rows a single time, without those that the files have which nothing repeats."""
    names = ", ".join(f'"{name}"' for name in rows.column_names)
    numbered = rows.append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
    with duckdb.connect(config={"memory_limit": "1GB"}) as connection:
        connection.register("numbered", numbered)
        connection.execute(
            f'CREATE TABLE mine AS SELECT {names}, MIN("{_ROW}") AS "{_ROW}" '  # noqa: S608 - our names
            f"FROM numbered GROUP BY {names}"
        )
        for sound_rows in sound_files:
            connection.register("sound", sound_rows)
            equality = " AND ".join(
                f'mine."{name}" IS NOT DISTINCT FROM sound."{name}"' for name in rows.column_names
            )
            connection.execute(f"DELETE FROM mine USING sound WHERE {equality}")  # noqa: S608 - our names
        numbers: Sequence[int] = [
            n for (n,) in connection.sql(f'FROM mine SELECT "{_ROW}" ORDER BY 1').fetchall()
        ]
    return rows.take(pa.array(numbers, pa.int64()))

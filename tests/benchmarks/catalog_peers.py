"""The same questions without a lakehouse: DuckDB on plain Parquet, SQLite, JSON, and copied manifests.

A copied manifest lists every file of one backup, so a join of two manifests shows their difference.
They have an advantage here: only the backups that a question names have a manifest, not all 2,000.
`python -m tests.benchmarks.catalog_peers TOOL FOLDER RUNS [QUESTION...]` reports as catalog_ask does.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from tests.benchmarks.asking import answer
from tests.benchmarks.catalog_ask import DAYS, FIRST, WINDOW, window
from tests.benchmarks.catalog_data import copy_manifest

COLUMNS = ("source", "scope", "region", "path", "sha256", "min_ts", "max_ts", "added_in", "bytes", "entries")
TOOLS = {
    "parquet": "DuckDB, plain Parquet",
    "sqlite": "SQLite, index on scope and time",
    "json": "Python, JSON lines",
}
_WINDOW = "SELECT path FROM {rows} WHERE source = ? AND scope = ? AND max_ts > ? AND min_ts <= ?"
_DIFFERENCE = """
SELECT change, count(*) AS files FROM (
  SELECT CASE WHEN a.path IS NULL THEN 'added' WHEN b.path IS NULL THEN 'gone' ELSE 'changed' END AS change
  FROM {a} AS a FULL JOIN {b} AS b ON a.path = b.path
  WHERE a.path IS NULL OR b.path IS NULL OR a.sha256 <> b.sha256
) GROUP BY change ORDER BY change"""


def make(catalog: Path, folder: Path, topics: int) -> None:
    """Write the rows of the catalog in `catalog` below `folder`, in the format of each tool."""
    folder.mkdir(parents=True)
    with duckdb.connect(":memory:") as connection:
        files = [str(file) for file in sorted((catalog / "catalog" / "files").glob("*.parquet"))]
        connection.execute(f"CREATE VIEW f AS SELECT * FROM read_parquet({files})")
        columns = ", ".join(COLUMNS)
        connection.execute(f"COPY (SELECT {columns} FROM f) TO '{folder}/files.parquet'")
        connection.execute(f"COPY (SELECT {columns} FROM f) TO '{folder}/files.jsonl' (FORMAT json)")
        for number in {FIRST, *DAYS.values()}:
            copy_manifest(connection, number, topics, folder / f"{number}.parquet")
        rows = connection.execute(f"SELECT {columns} FROM '{folder}/files.parquet'")
        with sqlite3.connect(folder / "files.sqlite") as database:
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("PRAGMA synchronous = OFF")
            database.execute(f"CREATE TABLE files ({columns})")
            insert = f"INSERT INTO files VALUES ({', '.join('?' * len(COLUMNS))})"
            while batch := rows.fetchmany(100_000):
                database.executemany(insert, batch)
            database.execute("CREATE INDEX by_time ON files (source, scope, max_ts, min_ts)")


def ask(tool: str, folder: Path, question: str, run: int) -> Any:
    """Return a tool's answer: the number of files for a window, otherwise totals."""
    parameters = tuple(window(run)[name] for name in ("source", "scopes", "from_ts", "to_ts"))
    if tool == "sqlite":
        with sqlite3.connect(folder / "files.sqlite") as database:
            return len(database.execute(_WINDOW.format(rows="files"), parameters).fetchall())
    if tool == "json":
        source, scope, from_ts, to_ts = parameters
        count = 0
        with (folder / "files.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                count += (
                    row["source"] == source
                    and row["scope"] == scope
                    and row["max_ts"] > from_ts
                    and row["min_ts"] <= to_ts
                )
        return count
    with duckdb.connect(":memory:") as connection:
        if question == WINDOW:
            text = _WINDOW.format(rows=f"'{folder}/files.parquet'")
            return len(connection.execute(text, parameters).fetchall())
        text = _DIFFERENCE.format(a=f"'{folder}/{FIRST}.parquet'", b=f"'{folder}/{DAYS[question]}.parquet'")
        return connection.sql(text).to_arrow_table().to_pylist()


def main(argv: list[str]) -> None:
    tool, folder, runs, *questions = argv
    for question in questions:
        answer(partial(ask, tool, Path(folder), question), int(runs), read=int)


if __name__ == "__main__":
    main(sys.argv[1:])

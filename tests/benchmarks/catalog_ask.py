"""`python -m tests.benchmarks.catalog_ask ENGINE FOLDER RUNS [QUESTION...]` reports as asking.py says."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.asking import answer
from tests.benchmarks.catalog_data import SOURCE, SPAN_MS, START_MS

from lakebackup.store.reader import CatalogReader

WINDOW, STEP, DAY, COVERAGE = "window", "step", "day", "coverage"
QUESTIONS = {
    WINDOW: "files for one hour of one topic",
    STEP: "difference of two backups in a row",
    DAY: "difference of two backups a day apart",
    COVERAGE: "coverage",
}
FIRST, A_DAY = 1000, 96
DAYS = {STEP: FIRST + 1, DAY: FIRST + A_DAY}
_COVERAGE = "SELECT status, count(*) AS intervals FROM coverage GROUP BY status ORDER BY status"


def window(run: int) -> dict[str, Any]:
    """Return the parameters of restore_files: another hour and another topic in each run."""
    from_ts = START_MS + (FIRST + 7 * run) * SPAN_MS
    scopes = f"t{run % 10:03d}"
    return {"source": SOURCE, "scopes": scopes, "from_ts": from_ts, "to_ts": from_ts + 3_599_999}


class Duck:
    """Asks the catalog with DuckDB, which starts no JVM, and counts the bytes of the files that it opens."""

    def __init__(self, folder: str) -> None:
        from lakebackup.sql_engine.delta.verified import VerifiedFiles

        self._sizes: dict[str, int] = {}
        open_input_file = VerifiedFiles.open_input_file

        def count_and_open(files: VerifiedFiles, path: str) -> Any:
            name = str(files._root / path)
            self._sizes[name] = Path(name).stat().st_size
            return open_input_file(files, path)

        VerifiedFiles.open_input_file = count_and_open  # type: ignore[method-assign]
        self.reader = CatalogReader.require(folder)

    def select(self, sql: str) -> list[dict[str, Any]]:
        return list(self.reader.select(sql).read_all().to_pylist())

    def read(self) -> int:
        """Return the bytes of the files opened since the last call. Each file counts once."""
        total = sum(self._sizes.values())
        self._sizes.clear()
        return total


class Spark:
    """Asks the catalog with one Spark session."""

    def __init__(self, folder: str) -> None:
        from lakebackup_jobs.runtime.session import spark_session

        self.reader = CatalogReader.require(folder).with_spark(spark_session())

    def select(self, sql: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self.reader._engine.select(sql).collect()]

    def read(self) -> int:
        return 0


def difference(reader: CatalogReader, a: int, b: int) -> list[dict[str, Any]]:
    from tests.benchmarks.catalog_data import backup_id

    from lakebackup.plan.diff import with_changes

    ids = backup_id(a), backup_id(b)
    backups_by_id = {row["backup_id"]: row for row in reader.rows("diff_backups", a=ids[0], b=ids[1])}
    totals = with_changes(reader, backups_by_id[ids[0]], backups_by_id[ids[1]]).rows("diff_totals")
    return [{"change": row["change"], "files": row["files"]} for row in totals]


def answers(engine: Duck | Spark, question: str, run: int) -> list[dict[str, Any]]:
    """Return the answer to a question: the files for a window, otherwise totals."""
    reader = engine.reader
    if question == WINDOW:
        parameters = window(run)
        bounds = {name: value for name, value in parameters.items() if name != "from_ts"}
        (id_range,) = reader.rows("restore_range", **bounds)
        return reader.rows("restore_files", **parameters, **id_range)
    if question in DAYS:
        return difference(reader, FIRST, DAYS[question])
    return engine.select(_COVERAGE)


def main(argv: list[str]) -> None:
    """Ask each question once and `runs` times more."""
    name, folder, runs, *questions = argv
    engines: dict[str, Callable[[str], Duck | Spark]] = {"duck": Duck, "spark": Spark}
    started = time.perf_counter()
    engine = engines[name](folder)
    opened = time.perf_counter() - started
    read = 0
    for question in questions:

        def ask(run: int, question: str = question) -> Any:
            nonlocal read
            rows = answers(engine, question, run)
            if run == 0:
                read = engine.read()
            return len(rows) if question == WINDOW else rows

        answer(ask, int(runs), opened=opened, read=lambda: read)
        opened = 0.0


if __name__ == "__main__":
    main(sys.argv[1:])

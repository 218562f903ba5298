"""Turns imported rows into rows of the catalog: checks them, fills in missing columns, and turns manifests
into the lifetimes of files (in which backup each was added, and in which it was gone)."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.upkeep.import_backups import BackupsPlan, counted, numbered, plan_backups
from lakebackup.recovery.import_reader import MANIFESTS, ImportFile, ImportRows, import_spark_schema
from lakebackup.rows.tables import OF_BACKUPS, spark_columns
from lakebackup.sql_engine.spark import SparkEngine
from lakebackup_jobs.lifecycle.tasks.progress import TaskCounters

SHOWN_ROWS = 20
_BUFFER = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CountedRows(ImportRows):
    """Like `ImportRows`; its tasks also count the bytes that they have read, with `counters`."""

    counters: TaskCounters

    def with_counter(self, number: int, stream: BinaryIO) -> BinaryIO:
        count = self.counters(f"{self.table}-{number:06d}")
        return cast("BinaryIO", io.BufferedReader(_CountingStream(stream, count), _BUFFER))


class _CountingStream(io.RawIOBase):
    """A stream that counts the bytes that are read from it."""

    def __init__(self, stream: BinaryIO, count: Callable[[int, int], None]) -> None:
        self._stream, self._count = stream, count

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self._count(0, len(data))
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()


class Resolver:
    """The rows of one import.

    `catalog_backups`: the catalog's backups by id. `is_export`: the files are those of an export. `counters`:
    with these, tasks count the bytes that they have read. Frames are persisted on Spark's disks until
    `close`.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog_uri: str,
        files: Mapping[str, tuple[ImportFile, ...]],
        catalog_backups: Mapping[str, Mapping[str, Any]],
        *,
        is_export: bool,
        source_kind: str,
        mirror: bool,
        counters: TaskCounters | None = None,
    ) -> None:
        self._spark, self._files, self._catalog_backups = spark, files, catalog_backups
        self._engine = SparkEngine(spark, catalog_uri)
        self._is_export, self._source_kind, self._mirror = is_export, source_kind, mirror
        self._persisted: list[DataFrame] = []
        self._counters = counters

    def close(self) -> None:
        """Release the persisted frames."""
        for frame in self._persisted:
            frame.unpersist()

    def resolve(self) -> tuple[BackupsPlan, dict[str, DataFrame]]:
        """Return the planned backups, and the rows of the other tables to add.

        Rows that belong to no backup may be in the catalog already. Raises UsageProblem (invalid rows),
        Refused (rows that contradict the catalog); both name files and lines.
        """
        plan = self._plan_backups()
        known_ids = frozenset({*self._catalog_backups, *(backup.backup_id for backup in plan.new)})
        frames = {table: self._read_table(table, known_ids) for table in self._files if table != "backups"}
        self._require_valid(frames)
        self._raise_problems("backups", sorted(plan.against), Refused)
        self._require_no_conflict(plan, frames)
        if self._is_export:
            return plan, {table: self._select_new(table, frame, plan) for table, frame in frames.items()}
        rows = self._fill_in(plan, frames) if plan.new else {}
        return replace(plan, new=counted(plan.new, self._totals(rows.get("files")))), rows

    def _plan_backups(self) -> BackupsPlan:
        reader = ImportRows("backups", self._files.get("backups", ()), self._is_export)
        rows = [row for number in range(len(reader.files)) for row in reader.read(number)]
        plan = plan_backups(
            (row for row in rows if row["row_problem"] is None),
            self._catalog_backups,
            is_export=self._is_export,
            source_kind=self._source_kind,
            listed=MANIFESTS in self._files,
            compared=MANIFESTS in self._files or "departures" in self._files,
            mirror=self._mirror,
        )
        row_problems = [(r["row_file"], r["row_number"], r["row_problem"]) for r in rows if r["row_problem"]]
        self._raise_problems("backups", sorted([*plan.wrong, *row_problems]), UsageProblem)
        return plan

    def _read_table(self, table: str, known_ids: frozenset[str]) -> DataFrame:
        files = self._files[table]
        backup_ids = known_ids if table in (*OF_BACKUPS, MANIFESTS) else None
        reader = ImportRows(table, files, self._is_export, backup_ids)
        if self._counters:
            reader = CountedRows(table, files, self._is_export, backup_ids, counters=self._counters)
        return self._persist(reader.over(self._spark, range(len(files)), import_spark_schema(table)))

    def _require_valid(self, frames: Mapping[str, DataFrame]) -> None:
        for table, frame in frames.items():
            invalid_rows = (
                frame.where("row_problem IS NOT NULL").orderBy("row_file", "row_number").limit(SHOWN_ROWS + 1)
            )
            problems = [(row.row_file, row.row_number, row.row_problem) for row in invalid_rows.collect()]
            self._raise_problems(table, problems, UsageProblem)
            if table in ("files", MANIFESTS):
                frame.createOrReplaceTempView("given_rows")
                duplicates = [
                    (
                        row["row_file"],
                        row["row_number"],
                        f"{row['path']!r:.200} is given {row['times']} times for backup {row['backup_id']}",
                    )
                    for row in self._engine.rows("import_duplicates")
                ]
                self._raise_problems(table, duplicates, UsageProblem)

    def _require_no_conflict(self, plan: BackupsPlan, frames: Mapping[str, DataFrame]) -> None:
        if "files" not in frames or not plan.known_ids:
            return
        known_ids = sorted(plan.known_ids)
        self._engine.table("files").where(_is_in("backup_id", known_ids)).createOrReplaceTempView(
            "known_files"
        )
        frames["files"].where(_is_in("backup_id", known_ids)).createOrReplaceTempView("given_files")
        conflicts = [
            (
                row["row_file"],
                row["row_number"],
                f"the catalog has backup {row['backup_id']} without that {row['path']!r:.200}",
            )
            for row in self._engine.rows("import_conflicts")
        ]
        self._raise_problems("files", conflicts, Refused)

    def _select_new(self, table: str, frame: DataFrame, plan: BackupsPlan) -> DataFrame:
        """Return the rows of an export that belong to new backups or to none, with the table's columns."""
        if table in OF_BACKUPS:
            frame = frame.where(_is_in("backup_id", [backup.backup_id for backup in plan.new]))
        return frame.select(*_column_names(table))

    def _fill_in(self, plan: BackupsPlan, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        bindings = {"numbered": self._engine.keep_rows(numbered(plan.new))}
        new_ids = [backup.backup_id for backup in plan.new]
        present = self._present({backup.source for backup in plan.new})
        tables: dict[str, DataFrame] = {}
        files, departures = frames.get("files"), frames.get("departures")
        if MANIFESTS in frames:
            frames[MANIFESTS].where(_is_in("backup_id", new_ids)).createOrReplaceTempView("listed")
            present.createOrReplaceTempView("present")
            lifetimes = self._persist(self._engine.query("import_lifetimes", bindings))
            files = _widen(lifetimes.where("fresh"), "files")
            departures = _widen(lifetimes.where("gone_in IS NOT NULL"), "departures")
        elif departures is not None:
            departures = departures.where(_is_in("gone_in", [backup.number for backup in plan.new]))
        if files is not None:
            files.where(_is_in("backup_id", new_ids)).createOrReplaceTempView("given_files")
            tables["files"] = self._persist(self._engine.query("import_files", bindings))
            present = present.unionByName(tables["files"])
        if departures is not None:
            present.createOrReplaceTempView("known_files")
            departures.createOrReplaceTempView("given_departures")
            tables["departures"] = self._persist(self._engine.query("import_departures", bindings))
        return tables

    def _present(self, sources: set[str]) -> DataFrame:
        known_sources = sorted(sources & {row["source"] for row in self._catalog_backups.values()})
        if not known_sources:
            return self._spark.createDataFrame([], spark_columns("files"))
        return self._engine.query("import_present", sources=",".join(known_sources))

    def _totals(self, files: DataFrame | None) -> dict[str, dict[str, int]]:
        if files is None:
            return {}
        files.createOrReplaceTempView("made_files")
        return {row["backup_id"]: row for row in self._engine.rows("import_totals")}

    def _persist(self, frame: DataFrame) -> DataFrame:
        self._persisted.append(frame.persist(StorageLevel.DISK_ONLY))
        return self._persisted[-1]

    def _raise_problems(
        self, table: str, problems: Sequence[tuple[int, int, str]], kind: type[Refused | UsageProblem]
    ) -> None:
        if not problems:
            return
        lines = [
            f"  {self._files[table][file].uri}:{number}: {text}"
            for file, number, text in problems[:SHOWN_ROWS]
        ]
        overflow = ["  and more"] if len(problems) > SHOWN_ROWS else []
        raise kind(
            "\n".join(["Nothing was imported:", *lines, *overflow]),
            hint="The catalog's rows stay. Give other ids, or leave these rows out."
            if kind is Refused
            else "The number is that of the line (JSON lines) or of the row (Parquet), from 1.",
        )


def _column_names(table: str) -> list[str]:
    return [part.split()[0] for part in spark_columns(table).split(", ")]


def _widen(frame: DataFrame, table: str) -> DataFrame:
    """Return a frame with every importable column of a table; those that it lacks are null."""
    missing = {
        field.name: sf.lit(None).cast(field.dataType)
        for field in import_spark_schema(table)
        if field.name not in frame.columns
    }
    return frame.withColumns(missing).select(import_spark_schema(table).names)


def _is_in(column: str, values: Sequence[object]) -> Column:
    return sf.col(column).isin(list(values))

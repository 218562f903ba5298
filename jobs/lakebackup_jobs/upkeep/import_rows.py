"""What rows from elsewhere become in the catalog: checked, filled in, manifests turned into lifetimes."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.upkeep.import_backups import BackupsPlan, counted, numbered, plan_backups
from lakebackup.recovery.import_reader import MANIFESTS, ImportFile, ImportRows, import_spark_schema
from lakebackup.rows.tables import OF_BACKUPS, spark_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from lakebackup_jobs.lifecycle.tasks.progress import TaskCounters

SHOWN_ROWS = 20
_BUFFER = 1 << 20


@dataclass(frozen=True, kw_only=True)
class CountedRows(ImportRows):
    """The same; tasks count with `counters` the bytes that they have read."""

    counters: TaskCounters

    def counted(self, number: int, stream: BinaryIO) -> BinaryIO:
        count = self.counters(f"{self.table}-{number:06d}")
        return cast("BinaryIO", io.BufferedReader(_Counted(stream, count), _BUFFER))


class _Counted(io.RawIOBase):
    """A stream that counts the bytes which are read from it."""

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
    """One import's rows. `held`: the catalog's backups by id; `whole`: the files are those of an export;
    `counters`: with which tasks count the bytes that they have read.

    Frames are kept on Spark's disks until `close`.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog_uri: str,
        files: Mapping[str, tuple[ImportFile, ...]],
        held: Mapping[str, Mapping[str, Any]],
        *,
        whole: bool,
        source_kind: str,
        mirror: bool,
        counters: TaskCounters | None = None,
    ) -> None:
        from lakebackup.sql_engine.spark import SparkEngine

        self._spark, self._files, self._held = spark, files, held
        self._engine = SparkEngine(spark, catalog_uri)
        self._whole, self._source_kind, self._mirror = whole, source_kind, mirror
        self._kept: list[DataFrame] = []
        self._counters = counters

    def close(self) -> None:
        """Release the frames."""
        for frame in self._kept:
            frame.unpersist()

    def resolve(self) -> tuple[BackupsPlan, dict[str, DataFrame]]:
        """The backups, and the rows of the other tables; those of no backup may be there already.

        Raises UsageProblem (rows that make no sense), Refused (rows that the catalog contradicts), each with
        files and lines.
        """
        plan = self._backups()
        known = frozenset({*self._held, *(backup.backup_id for backup in plan.new)})
        given = {table: self._given(table, known) for table in self._files if table != "backups"}
        self._require_sound(given)
        self._raise("backups", sorted(plan.against), Refused)
        self._require_no_conflict(plan, given)
        if self._whole:
            return plan, {table: self._of_new(table, frame, plan) for table, frame in given.items()}
        rows = self._filled(plan, given) if plan.new else {}
        return replace(plan, new=counted(plan.new, self._totals(rows.get("files")))), rows

    def _backups(self) -> BackupsPlan:
        reading = ImportRows("backups", self._files.get("backups", ()), self._whole)
        rows = [row for number in range(len(reading.files)) for row in reading.read(number)]
        plan = plan_backups(
            (row for row in rows if row["row_problem"] is None),
            self._held,
            whole=self._whole,
            source_kind=self._source_kind,
            listed=MANIFESTS in self._files,
            compared=MANIFESTS in self._files or "departures" in self._files,
            mirror=self._mirror,
        )
        wrong = [(r["row_file"], r["row_number"], r["row_problem"]) for r in rows if r["row_problem"]]
        self._raise("backups", sorted([*plan.wrong, *wrong]), UsageProblem)
        return plan

    def _given(self, table: str, known: frozenset[str]) -> DataFrame:
        files = self._files[table]
        among = known if table in (*OF_BACKUPS, MANIFESTS) else None
        reading = ImportRows(table, files, self._whole, among)
        if self._counters:
            reading = CountedRows(table, files, self._whole, among, counters=self._counters)
        return self._keep(reading.over(self._spark, range(len(files)), import_spark_schema(table)))

    def _require_sound(self, given: Mapping[str, DataFrame]) -> None:
        for table, frame in given.items():
            wrong = (
                frame.where("row_problem IS NOT NULL").orderBy("row_file", "row_number").limit(SHOWN_ROWS + 1)
            )
            found = [(row.row_file, row.row_number, row.row_problem) for row in wrong.collect()]
            self._raise(table, found, UsageProblem)
            if table in ("files", MANIFESTS):
                frame.createOrReplaceTempView("given_rows")
                twice = [
                    (
                        row["row_file"],
                        row["row_number"],
                        f"{row['path']!r:.200} is given {row['times']} times for backup {row['backup_id']}",
                    )
                    for row in self._engine.rows("import_duplicates")
                ]
                self._raise(table, twice, UsageProblem)

    def _require_no_conflict(self, plan: BackupsPlan, given: Mapping[str, DataFrame]) -> None:
        if "files" not in given or not plan.known:
            return
        known = sorted(plan.known)
        self._engine.table("files").where(_among("backup_id", known)).createOrReplaceTempView("known_files")
        given["files"].where(_among("backup_id", known)).createOrReplaceTempView("given_files")
        other = [
            (
                row["row_file"],
                row["row_number"],
                f"the catalog has backup {row['backup_id']} without that {row['path']!r:.200}",
            )
            for row in self._engine.rows("import_conflicts")
        ]
        self._raise("files", other, Refused)

    def _of_new(self, table: str, frame: DataFrame, plan: BackupsPlan) -> DataFrame:
        """Rows of an export that belong to new backups, or to none, as rows of the table."""
        if table in OF_BACKUPS:
            frame = frame.where(_among("backup_id", [backup.backup_id for backup in plan.new]))
        return frame.select(*_names(table))

    def _filled(self, plan: BackupsPlan, given: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
        self._engine.give("numbered", numbered(plan.new))
        new = [backup.backup_id for backup in plan.new]
        old = self._present({backup.source for backup in plan.new})
        made: dict[str, DataFrame] = {}
        files, gone = given.get("files"), given.get("departures")
        if MANIFESTS in given:
            given[MANIFESTS].where(_among("backup_id", new)).createOrReplaceTempView("listed")
            old.createOrReplaceTempView("present")
            lifetimes = self._keep(self._engine.query("import_lifetimes"))
            files = _widened(lifetimes.where("fresh"), "files")
            gone = _widened(lifetimes.where("gone_in IS NOT NULL"), "departures")
        elif gone is not None:
            gone = gone.where(_among("gone_in", [backup.number for backup in plan.new]))
        if files is not None:
            files.where(_among("backup_id", new)).createOrReplaceTempView("given_files")
            made["files"] = self._keep(self._engine.query("import_files"))
            old = old.unionByName(made["files"])
        if gone is not None:
            old.createOrReplaceTempView("known_files")
            gone.createOrReplaceTempView("given_departures")
            made["departures"] = self._keep(self._engine.query("import_departures"))
        return made

    def _present(self, sources: set[str]) -> DataFrame:
        held = sorted(sources & {row["source"] for row in self._held.values()})
        if not held:
            return self._spark.createDataFrame([], spark_columns("files"))
        return self._engine.query("import_present", sources=",".join(held))

    def _totals(self, files: DataFrame | None) -> dict[str, dict[str, int]]:
        if files is None:
            return {}
        files.createOrReplaceTempView("made_files")
        return {row["backup_id"]: row for row in self._engine.rows("import_totals")}

    def _keep(self, frame: DataFrame) -> DataFrame:
        from pyspark import StorageLevel

        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return self._kept[-1]

    def _raise(
        self, table: str, found: Sequence[tuple[int, int, str]], kind: type[Refused | UsageProblem]
    ) -> None:
        if not found:
            return
        lines = [
            f"  {self._files[table][file].uri}:{number}: {text}" for file, number, text in found[:SHOWN_ROWS]
        ]
        more = ["  and more"] if len(found) > SHOWN_ROWS else []
        raise kind(
            "\n".join(["Nothing was imported:", *lines, *more]),
            hint="The catalog's rows stay. Give other ids, or leave these rows out."
            if kind is Refused
            else "The number is that of the line (JSON lines) or of the row (Parquet), from 1.",
        )


def _names(table: str) -> list[str]:
    return [part.split()[0] for part in spark_columns(table).split(", ")]


def _widened(frame: DataFrame, table: str) -> DataFrame:
    """With every column that may be given of a table, null where there was none."""
    from pyspark.sql import functions as sf

    missing = {
        field.name: sf.lit(None).cast(field.dataType)
        for field in import_spark_schema(table)
        if field.name not in frame.columns
    }
    return frame.withColumns(missing).select(import_spark_schema(table).names)


def _among(column: str, values: Sequence[object]) -> Column:
    from pyspark.sql import functions as sf

    return sf.col(column).isin(list(values))

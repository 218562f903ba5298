"""The Spark data source `lakebackup`: records of a topic, or a view of the catalog, as a DataFrame.

    spark.read.format("lakebackup").option("topic", "orders").load("s3://backups/prod")

A read is a SELECT as `lakebackup sql` runs it. Spark's tasks run it with DuckDB, each over its own range of
the topic's files. The driver plans only the ranges; each task reads the files of its range from the
catalog, in the version that the driver has planned with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakebackup.encryption.objects import Keyring
from lakebackup.errors import UsageProblem
from lakebackup.rules.suggestions import did_you_mean
from lakebackup.rules.times import format_ts, parse_time
from lakebackup.sql_engine import shown_views
from lakebackup.sql_engine.duck import SPARK_NAMES, view_columns, view_types
from lakebackup.sql_engine.guard.check import Checked, check_select
from lakebackup.sql_engine.guard.records import COLUMNS
from lakebackup.sql_engine.worker import trim_worker
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.tasks.plan_shares import MOST_TASKS
from lakebackup_jobs.query import record_query
from lakebackup_jobs.runtime.metadata_key import keyed_uri

#: The options of a read; Spark does not distinguish their case.
OPTIONS = (
    "path", "catalog", "topic", "view", "asOf", "columns", "where", "identityFile", "metadataKeyFile",
)  # fmt: skip
# Spark's types in Arrow. PySpark's own conversion has other arguments in 4.2 than in 4.0.
_ARROW_TYPES = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
_BYTES_A_TASK = 32 << 20


class LakebackupSource(DataSource):
    """The class that Spark calls. It raises the errors of `Read`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format` and USING."""
        return "lakebackup"

    def schema(self) -> str:
        """Return the columns and their types."""
        return Read.of(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader that plans the read and carries it out."""
        read = Read.of(self.options)
        if schema.fieldNames() != list(read.columns):
            raise UsageProblem(
                "A read of lakebackup takes no schema.", hint="The option columns chooses the columns."
            )
        return LakebackupReader(read)


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads: files from the first path on and before the second one. `versions`: the versions
    of the catalog's tables. `keys`: the data keys of encrypted files, which the driver has opened."""

    paths: tuple[str | None, str | None]
    read: Read
    versions: Mapping[str, int | None]
    keys: Keyring = field(default_factory=Keyring, repr=False)


class LakebackupReader(DataSourceReader):
    """One read. Spark pickles it into each task.

    It takes no conditions of queries (`pushFilters`): Spark gives those of one query to another too.
    """

    def __init__(self, read: Read) -> None:
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        """Return a split for each task, with files of about 32 MiB."""
        return self._read.splits()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split. Raises Damaged (a file that differs from the catalog)."""
        assert isinstance(partition, Split)  # noqa: S101 (Spark hands back what it got)
        read = partition.read
        reader = read.reader(partition.versions)
        schema = read.arrow_schema()
        result = record_query.select(reader, read.sql(), paths=partition.paths, keys=partition.keys)
        for batch in result.rows:
            yield from pa.Table.from_batches([batch]).cast(schema).to_batches()
        trim_worker()


@dataclass(frozen=True, slots=True)
class Read:
    """A read as a value. `as_of`: for a topic the second argument of records(…), for a view the instant at
    which the catalog is read."""

    path: str
    columns: tuple[str, ...]
    topic: str | None = None
    view: str | None = None
    catalog: str | None = None
    as_of: str | None = None
    where: str | None = None
    identity_file: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Read:
        """Return the read that options describe. Raises UsageProblem, which names the option."""
        settings = {name: value for name, value in options.items() if value}
        names = {name.lower() for name in OPTIONS}
        for name in settings:
            if name == "pushfilters":
                raise UsageProblem(
                    "There is no option pushFilters any more: Spark mixes up the conditions of two queries.",
                    hint="Write the conditions in the option where.",
                )
            if name not in names:
                raise UsageProblem(
                    f"There is no option {name}.",
                    hint=did_you_mean(name, OPTIONS, f"Options are: {', '.join(OPTIONS)}."),
                )
        if "path" not in settings:
            raise UsageProblem(
                "Missing option path: where are the backups stored?",
                hint='Example: .option("path", "s3://bucket/backups")',
            )
        if ("topic" in settings) == ("view" in settings):
            raise UsageProblem(
                "Give either the option topic or the option view.",
                hint='Examples: .option("topic", "orders"), .option("view", "coverage")',
            )
        types = _columns(settings.get("view"))
        path, catalog = settings["path"], settings.get("catalog")
        if file := settings.get("metadatakeyfile"):
            path = keyed_uri(path, catalog, file)
        read = cls(
            path,
            _select_columns(settings.get("columns"), types),
            settings.get("topic"),
            settings.get("view"),
            catalog,
            settings.get("asof"),
            settings.get("where"),
            settings.get("identityfile"),
        )
        read.checked()
        return read

    def schema(self) -> str:
        """Return names and types of the columns, as a schema for Spark."""
        types = _columns(self.view)
        return ", ".join(f"{name} {types[name]}" for name in self.columns)

    def arrow_schema(self) -> pa.Schema:
        """Return the same in Arrow's types."""
        types = _columns(self.view)
        return pa.schema([(name, _ARROW_TYPES[types[name]]) for name in self.columns])

    def sql(self) -> str:
        """Return the SELECT."""
        table: exp.Expr = exp.to_table(self.view) if self.view else self._records()
        select = exp.select(*map(exp.column, self.columns)).from_(table)
        if self.where:
            select = select.where(_condition(self.where), copy=False)
        return select.sql(dialect="spark", comments=False)

    def checked(self) -> Checked:
        """Return the SELECT after checking that it only reads. Raises UsageProblem (option where)."""
        try:
            checked = check_select(
                self.sql(), view_columns(with_now_views=self.instant() is not None), records=True
            )
        except UsageProblem as error:
            raise UsageProblem(f"Option where: {error.message}", hint=error.hint) from error
        if len(checked.records) > (self.topic is not None):
            raise UsageProblem(
                "Option where: records(…) cannot be asked there.", hint="Join two DataFrames instead."
            )
        return checked

    def instant(self) -> int | None:
        """Return the instant at which the catalog of a view is read, in us since 1970; None: now."""
        if not self.view or not self.as_of:
            return None
        try:
            return parse_time(self.as_of, time.time_ns() // 1_000_000) * 1000
        except UsageProblem as error:
            raise UsageProblem(f"Option asOf: {error.message}", hint=error.hint) from error

    def reader(self, versions: Mapping[str, int | None] | None = None) -> CatalogReader:
        """Return the catalog with its tables at `versions`. Raises NotFound if there is no catalog."""
        return CatalogReader.require(self.path, self.catalog, as_of=self.instant(), versions=versions)

    def splits(self) -> list[Split]:
        """Divide the read among tasks. Raises NotFound, Refused and UsageProblem like `lakebackup sql`."""
        reader = self.reader()
        if self.view:
            instant_us = self.instant()
            pinned_read = self if instant_us is None else self._pinned(format_ts(instant_us // 1000))
            return [Split((None, None), pinned_read, {})]
        (plan,) = record_query.plans(reader, self.checked())
        files = reader.with_query("record_chosen", "record_files", **plan.parameters())
        rows = files.rows("record_splits", size=_BYTES_A_TASK, most=MOST_TASKS)
        # The first and the last range are open: all tasks see the same files.
        firsts = [None, *(str(row["path"]) for row in rows[1:])]
        point = plan.backup_id if plan.to_ts is None else format_ts(plan.to_ts)
        pinned_read = self._pinned(point, f"{plan.source}/{plan.scope}")
        keys = record_query.record_keys(reader, plan, self.identity_file)
        versions = reader.pinned()
        return [
            Split((first, end), pinned_read, versions, keys)
            for first, end in zip(firsts, [*firsts[1:], None], strict=True)
        ]

    def _pinned(self, as_of: str | None, topic: str | None = None) -> Read:
        """Return the same read with an instant and a topic that mean the same in every task."""
        return replace(self, topic=topic, as_of=as_of)

    def _records(self) -> exp.Table:
        texts = [text for text in (self.topic, self.as_of) if text]
        call = exp.Anonymous(this="records", expressions=[exp.Literal.string(text) for text in texts])
        return exp.Table(this=call)


def _columns(view: str | None) -> Mapping[str, str]:
    """Return the columns of a view with their Spark types; `view` None: those of records(…)."""
    if view is None:
        return COLUMNS
    if view not in shown_views():
        raise UsageProblem(
            f"Option view: there is no view {view!r}.",
            hint=did_you_mean(view, shown_views(), '`lakebackup sql "SHOW TABLES"` lists them.'),
        )
    return {name: SPARK_NAMES.get(kind, kind) for name, kind in view_types(view).items()}


def _select_columns(columns: str | None, types: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that a text lists, or all. Raises UsageProblem."""
    if columns is None:
        return tuple(types)
    names = tuple(dict.fromkeys(name.strip().lower() for name in columns.split(",")))
    for name in names:
        if name not in types:
            raise UsageProblem(
                f"Option columns: there is no column {name!r}.",
                hint=did_you_mean(name, types, f"Columns are: {', '.join(types)}."),
            )
    return names


def _condition(text: str) -> exp.Expr:
    try:
        return exp.condition(text, dialect="spark")
    except SqlglotError as error:
        raise UsageProblem(
            f"{text[:200]!r} is no condition.",
            hint="Write what stands after WHERE in Spark SQL, as in partition = 3 AND key LIKE 'a%'.",
        ) from error

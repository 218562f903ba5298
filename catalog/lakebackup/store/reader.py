"""Queries of the catalog. DuckDB (without a JVM) or Spark runs them over the catalog's Delta tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from shlex import quote
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.rows.base import State
from lakebackup.rows.tables import ARROW_SCHEMAS, TABLES
from lakebackup.rules import layout
from lakebackup.rules.suggestions import did_you_mean
from lakebackup.sql_engine import (
    FIRST,
    NO_BINDINGS,
    RAW,
    Bindings,
    EngineName,
    RecordedQuery,
    Relation,
    SqlEngine,
)
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.sql_engine.duck import DuckEngine, view_columns
from lakebackup.sql_engine.failures import task_errors
from lakebackup.sql_engine.guard.check import Checked, check_select
from lakebackup.sql_engine.spark import SparkEngine
from lakebackup.storage import Storage, open_storage
from lakebackup.store.metadata_keys import NoMetadataKey
from lakebackup.store.plan_file import PlanFile, write_plan_file
from lakebackup.store.roots import Roots, destination_id
from lakebackup.store.trust import Approvals, Claim, destination_claim
from lakebackup_sql import load, names

ArrowJob: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"
LATEST = "latest"
"""In place of a backup's id: the newest backup that can be restored."""


class Catalog:
    """The location of a catalog and of its destinations."""

    def __init__(self, destination: str, catalog: str | None) -> None:
        """Opens both storages.

        Raises UsageProblem as `open_storage` does, and Refused when the destination's own catalog is a link.
        """
        #: The storage of the destination that the caller named.
        self.home: Storage = open_storage(destination)
        default_uri = f"{self.home.uri}/{layout.CATALOG_FOLDER}"
        self._storage = open_storage(catalog or default_uri)
        self.catalog_uri = self._storage.uri
        if not catalog and self.catalog_uri != default_uri:
            raise Refused(
                f"The catalog {default_uri} is a link to {self.catalog_uri}. Whoever can write the "
                "repository can make one.",
                hint=f"If you mean that catalog, name it: --catalog {quote(self.catalog_uri)}",
            )

    def root_of(self, uri: str) -> str:
        """The root of a destination from its column in `destinations`; empty means beside the catalog."""
        return uri or self.catalog_uri.rpartition("/")[0]

    def version(self) -> int | None:
        """The schema version of the catalog, or None when there is no catalog.

        Raises UsageProblem when it is newer than this program's.
        """
        try:
            versions: list[int] = rows_of(f"{self.catalog_uri}/migrations")["version"].to_pylist()
        except NotFound:
            return None
        newest = max(versions, default=0)
        if newest > len(names("migrations")):
            raise UsageProblem(
                f"The catalog at {self.catalog_uri} has schema version {newest}; "
                f"this lakebackup knows versions up to {len(names('migrations'))}.",
                hint="Use the lakebackup that wrote it, or a newer one.",
            )
        return newest or None


class CatalogReader(Catalog):
    """Runs queries over the catalog's Delta tables, on DuckDB; see `with_spark` for Spark.

    A table has the version that it had when it was first read here, or at the instant `as_of` (us since
    1970). `versions`: the versions of some tables, from `pinned` of another reader, to read the same as that
    one. `hidden`: table -> text columns that are NULL for every statement.

    A reader does not change. `with_rows`, `with_query` and `with_select` return new readers on the same
    engine, in whose statements a name stands for other rows, also where views read it.
    """

    def __init__(
        self,
        destination: str,
        catalog: str | None = None,
        *,
        as_of: int | None = None,
        spark: SparkSession | None = None,
        tables: DuckEngine | None = None,
        versions: Mapping[str, int | None] | None = None,
        hidden: Mapping[str, Sequence[str]] = {},
    ) -> None:
        super().__init__(destination, catalog)
        self._as_of, self._spark = as_of, spark
        self._duck = tables or DuckEngine(self.catalog_uri, as_of=as_of, versions=versions, hidden=hidden)
        self._engine: SqlEngine = self._duck
        self._bindings: Bindings = NO_BINDINGS
        if spark is not None:
            self._engine = SparkEngine(spark, self.catalog_uri, as_of=as_of, tables=self._duck)

    def with_spark(self, spark: SparkSession) -> CatalogReader:
        """A reader of the same catalog and versions, whose statements run on Spark.

        A person's SELECT (`select`) still runs on DuckDB. Names that stand for other rows in this reader do
        not in the new one: each engine has its own.
        """
        return CatalogReader(
            self.home.uri, self.catalog_uri, as_of=self._as_of, spark=spark, tables=self._duck
        )

    @property
    def engine(self) -> EngineName:
        """The engine that runs the statements."""
        return self._engine.name

    @classmethod
    def open(
        cls,
        destination: str,
        catalog: str | None = None,
        *,
        as_of: int | None = None,
        versions: Mapping[str, int | None] | None = None,
        hidden: Mapping[str, Sequence[str]] = {},
    ) -> CatalogReader | None:
        """Opens the catalog of a destination, or the one at the URI `catalog`; None when there is none.

        Tables that an older catalog lacks are empty. Raises UsageProblem when its schema version is newer
        than this program's, and NotFound when it was created after `as_of`.
        """
        if Catalog(destination, catalog).version() is None:
            return None
        return cls(destination, catalog, as_of=as_of, versions=versions, hidden=hidden)

    @classmethod
    def require(
        cls,
        destination: str,
        catalog: str | None = None,
        *,
        as_of: int | None = None,
        versions: Mapping[str, int | None] | None = None,
        hidden: Mapping[str, Sequence[str]] = {},
    ) -> CatalogReader:
        """Like `open`, but raises NotFound when there is no catalog."""
        reader = cls.open(destination, catalog, as_of=as_of, versions=versions, hidden=hidden)
        if reader is None:
            raise NotFound(
                f"There is no catalog at {catalog or destination}.",
                hint="Check the repository (--repo) and the catalog (--catalog); `lakebackup catalog "
                "rebuild` recreates it from the backups.",
            )
        return reader

    def query(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        """The rows of a statement of `sql/queries`, any number of them, as Arrow batches."""
        return self._engine.batches(name, self._bindings, **parameters)

    def frame(self, name: str, **parameters: Any) -> DataFrame:
        """Like `query`, but returns Spark's DataFrame. Only for a reader that `with_spark` returned."""
        frame: DataFrame = self._engine.query(name, self._bindings, **parameters)
        return frame

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a statement that returns few, each as column name -> value."""
        return self._engine.rows(name, self._bindings, **parameters)

    def first_row(self, name: str, **parameters: Any) -> dict[str, Any] | None:
        """The first row of a statement, or None when it returns none."""
        return next(iter(self.rows(name, **parameters)), None)

    def map(
        self,
        job: ArrowJob,
        columns: str,
        name: str,
        *,
        spread: Callable[[DataFrame], DataFrame] | None = None,
        **parameters: Any,
    ) -> list[dict[str, Any]]:
        """Runs `job` over the rows of a statement of `sql/queries`, and returns its few rows of `columns`.

        On DuckDB the job runs in this process and reads the rows in the statement's order. On Spark it runs
        in tasks, and the rows never reach the driver. `spread` distributes them to tasks and sorts them
        there.
        """
        if self.engine == "duckdb":
            return [row for batch in job(self.query(name, **parameters)) for row in batch.to_pylist()]
        frame = self.frame(name, **parameters)
        with task_errors():
            rows = (spread(frame) if spread else frame).mapInArrow(job, columns).collect()
        return [row.asDict() for row in rows]

    def resolve_backup(self, beginning: str, source: str | None = None) -> str:
        """The id of the only backup whose id starts with `beginning`.

        For LATEST, the newest backup that can be restored, of `source` or of all sources. Raises NotFound, or
        UsageProblem when several ids match.
        """
        if beginning == LATEST:
            newest = self.first_row("newest_id", source=source)
            if newest is None:
                raise NotFound("No backup can be restored.", hint="`lakebackup list` shows all.")
            return str(newest["backup_id"])
        backup_ids = [str(row["backup_id"]) for row in self.rows("find_backups", prefix=beginning)]
        if beginning in backup_ids:
            return beginning
        if not backup_ids:
            raise NotFound(f"There is no backup {beginning!r}.", hint=self._similar_backups(beginning))
        if len(backup_ids) > 1:
            raise UsageProblem(
                f"{beginning!r} is the beginning of several ids: {', '.join(backup_ids[:5])}.",
                hint="Type more of it.",
            )
        return backup_ids[0]

    def _similar_backups(self, wrong_id: str) -> str:
        if any(row["source"] == wrong_id for row in self.rows("sources_known")):
            return f"{wrong_id} is a source. `lakebackup list --source {quote(wrong_id)}` lists its backups."
        ids = (str(row["backup_id"]) for row in self.rows("backup_ids"))
        return did_you_mean(wrong_id, [LATEST, *ids], "`lakebackup list` shows all backups.")

    def relations(self) -> Mapping[str, Sequence[str]]:
        """The views that a person's SELECT may read, with their columns."""
        return view_columns(with_now_views=self._as_of is not None)

    @property
    def queries(self) -> list[RecordedQuery]:
        """The statements that this reader has run so far, in order."""
        return self._engine.queries

    def versions(self) -> dict[str, int]:
        """The Delta version of each table as this reader sees it, without tables created after `as_of`."""
        versions = {table: self._duck.version(table) for table in TABLES}
        return {table: version for table, version in versions.items() if version is not None}

    def stored_columns(self) -> dict[str, list[str]]:
        """The columns of each table of the catalog. An older catalog lacks some tables and columns."""
        tables = {table: self._duck.open(f"{RAW}{table}") for table in TABLES}
        return {
            table: [field.name for field in delta_table.schema().fields]
            for table, delta_table in tables.items()
            if delta_table is not None
        }

    def pinned(self) -> dict[str, int | None]:
        """The versions of the tables read so far. With them another process reads the same rows."""
        return self._duck.pinned()

    def tables_behind(self) -> list[str]:
        """Tables that lost commits: they are behind the versions that the newest backup recorded."""
        return self._duck.tables_behind()

    def count(self, *tables: str) -> int:
        """The number of rows in some tables, also rows that are no longer live. Reads only their logs."""
        return sum(map(self._duck.count, tables))

    def select(self, sql: str) -> pa.RecordBatchReader:
        """The rows of a person's SELECT over the views. Raises UsageProblem for any other statement."""
        return self.run_checked(check_select(sql, self.relations()))

    def run_checked(self, checked: Checked) -> pa.RecordBatchReader:
        """Like `select`, for a SELECT that was checked. Records that it reads must be rows of this reader."""
        return self._duck.select(checked, self._bindings if self._engine is self._duck else NO_BINDINGS)

    def with_rows(self, name: str, rows: pa.Table | ds.Dataset | PlanFile | DataFrame) -> CatalogReader:
        """A reader in whose statements `name` stands for these rows. Only Spark takes a DataFrame.

        The name may be new, or that of a view or raw table of the catalog.
        """
        if isinstance(rows, PlanFile):
            rows = rows.for_statements()
        return self._with(name, self._engine.keep_rows(rows))

    def with_query(self, name: str, query: str, **parameters: Any) -> CatalogReader:
        """A reader in whose statements `name` stands for the rows of a statement of `sql/queries`.

        They are computed now, once. The statement may read what the catalog has under that name.
        """
        text = load("queries", query)
        return self._with(name, self._engine.keep_query(name, text, self._bindings, **parameters))

    def with_select(self, name: str, checked: Checked) -> CatalogReader:
        """Like `with_query`, for a person's SELECT that was checked. Raises TimedOut after five minutes."""
        return self._with(name, self._engine.keep_select(name, checked, self._bindings))

    def _with(self, name: str, relation: Relation) -> CatalogReader:
        reader = copy(self)
        reader._bindings = {**self._bindings, name: relation}  # noqa: SLF001 (this class)
        return reader

    def plan_file(
        self, name: str, *, ranges: Sequence[Mapping[str, Any]] = ({},), **parameters: Any
    ) -> PlanFile:
        """Write the rows of a statement of `sql/queries` into a temporary plan file, in their order.

        `ranges`: further parameters; the statement runs once for each, one after another, and the file has
        all rows. Raises EnvironmentProblem when there is no room for the file.
        """
        return write_plan_file(self.query(name, **parameters, **bounds) for bounds in ranges)

    def interrupt(self) -> None:
        """Stop the running query from another thread. The query raises an error."""
        self._duck.interrupt()

    def supposing(self, states: Mapping[str, State]) -> CatalogReader:
        """A reader of the same catalog in which some backups have other states (id -> state)."""
        rows = rows_of(f"{self.catalog_uri}/backups", self._duck.open(FIRST))
        stored_states = zip(rows["backup_id"].to_pylist(), rows["state"].to_pylist(), strict=True)
        state = pa.array(
            [states.get(backup_id, state) for backup_id, state in stored_states], rows["state"].type
        )
        return self.with_rows(FIRST, rows.set_column(rows.schema.get_field_index("state"), "state", state))

    def table(self, name: str) -> pa.Table:
        """All rows of a table of the catalog that never has many; none if an older catalog lacks the
        table."""
        opened = self._duck.open(f"{RAW}{name}")
        return rows_of(f"{self.catalog_uri}/{name}", opened) if opened else ARROW_SCHEMAS[name].empty_table()

    def columns(self, relation: str) -> list[str]:
        """The columns of a name that stands for other rows in this reader."""
        return list(self._engine.columns(self._bindings[relation]))

    def destinations(self) -> Roots:
        """The roots of the catalog's destinations.

        The one that the caller named is at its present URI, even if it was moved. Others are read only if
        this machine's settings name them, or if they were approved here.
        """
        rows = rows_of(f"{self.catalog_uri}/destinations").to_pylist()
        uris = {row["destination"]: self.root_of(row["uri"]) for row in rows}
        with suppress(NotFound, NoMetadataKey):  # whoever reads below the root gets the latter again
            uris[destination_id(self.home, create=False)] = self.home.uri
        approvals = Approvals(self.catalog_uri)
        claims = self.destination_claims(uris)
        refused = {claim.name: refusal for claim in claims if (refusal := approvals.refusal(claim))}
        return Roots(uris, refused)

    def destination_claims(self, uris: Mapping[str, str]) -> list[Claim]:
        """The claims of destinations (id -> URI), sorted by id.

        Leaves out the destination that the caller named and the one that holds the catalog.
        """
        own_uris = {self.home.uri, self.root_of("")}
        return [destination_claim(name, uri) for name, uri in sorted(uris.items()) if uri not in own_uris]

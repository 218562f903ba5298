"""Queries of the catalog. DuckDB (without a JVM) or Spark runs them over the catalog's Delta tables."""

from __future__ import annotations

from contextlib import suppress
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeAlias

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.rows.tables import TABLES
from lakebackup.rules import layout
from lakebackup.rules.suggestions import did_you_mean
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import Storage, open_storage
from lakebackup.store.roots import Roots, destination_id
from lakebackup.store.selection import Selection
from lakebackup.store.trust import Approvals, Claim, destination_claim
from lakebackup_sql import load, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.rows.base import State
    from lakebackup.sql_engine import Asked, EngineName, SqlEngine
    from lakebackup.sql_engine.duck import DuckEngine
    from lakebackup.sql_engine.guard.check import Checked

ArrowJob: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"
LATEST = "latest"
"""In place of a backup's id: the newest backup that can be restored."""
# Up to so many rows of Spark's move to DuckDB, because each statement costs Spark more than 0.1 s.
_FEW_ROWS = 10_000


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
        from lakebackup.sql_engine.delta.dataset import rows_of

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
    """Runs queries over the catalog's Delta tables, on DuckDB; see `on` for Spark.

    A table has the version that it had when it was first read here, or at the instant `as_of` (us since
    1970). `versions`: the versions of some tables, from `pinned` of another reader, to read the same as that
    one.
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
    ) -> None:
        from lakebackup.sql_engine.duck import DuckEngine

        super().__init__(destination, catalog)
        self._as_of, self._spark = as_of, spark
        self._duck = tables or DuckEngine(self.catalog_uri, as_of=as_of, versions=versions)
        self._engine: SqlEngine = self._duck
        if spark is not None:
            from lakebackup.sql_engine.spark import SparkEngine

            self._engine = SparkEngine(spark, self.catalog_uri, as_of=as_of, opened=self._duck.open)

    def on(self, spark: SparkSession) -> CatalogReader:
        """A reader of the same catalog and versions, whose statements run on Spark.

        A person's SELECT (`select`) still runs on DuckDB.
        """
        return CatalogReader(
            self.home.uri, self.catalog_uri, as_of=self._as_of, spark=spark, tables=self._duck
        )

    def apart(self) -> CatalogReader:
        """A new reader of the same catalog, on the same engine, without the relations defined here."""
        return CatalogReader(self.home.uri, self.catalog_uri, as_of=self._as_of, spark=self._spark)

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
    ) -> CatalogReader | None:
        """Opens the catalog of a destination, or the one at the URI `catalog`; None when there is none.

        Tables that an older catalog lacks are empty. Raises UsageProblem when its schema version is newer
        than this program's, and NotFound when it was created after `as_of`.
        """
        if Catalog(destination, catalog).version() is None:
            return None
        return cls(destination, catalog, as_of=as_of, versions=versions)

    @classmethod
    def require(
        cls,
        destination: str,
        catalog: str | None = None,
        *,
        as_of: int | None = None,
        versions: Mapping[str, int | None] | None = None,
    ) -> CatalogReader:
        """Like `open`, but raises NotFound when there is no catalog."""
        reader = cls.open(destination, catalog, as_of=as_of, versions=versions)
        if reader is None:
            raise NotFound(
                f"There is no catalog at {catalog or destination}.",
                hint="Check the repository (--repo) and the catalog (--catalog); `lakebackup catalog "
                "rebuild` recreates it from the backups.",
            )
        return reader

    def query(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        """The rows of a statement of `sql/queries`, any number of them, as Arrow batches."""
        return self._engine.batches(name, **parameters)

    def frame(self, name: str, **parameters: Any) -> DataFrame:
        """Like `query`, but returns Spark's DataFrame. Only for a reader that `on` returned."""
        frame: DataFrame = self._engine.query(name, **parameters)
        return frame

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a statement that returns few, each as column name -> value."""
        return self._engine.rows(name, **parameters)

    def one(self, name: str, **parameters: Any) -> dict[str, Any] | None:
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
            newest = self.one("newest_id", source=source)
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
        from lakebackup.sql_engine.duck import view_columns

        return view_columns(now=self._as_of is not None)

    @property
    def asked(self) -> list[Asked]:
        """The statements that this reader has run so far, in order."""
        return self._engine.asked

    def versions(self) -> dict[str, int]:
        """The Delta version of each table as this reader sees it, without tables created after `as_of`."""
        versions = {table: self._duck.version(table) for table in TABLES}
        return {table: version for table, version in versions.items() if version is not None}

    def pinned(self) -> dict[str, int | None]:
        """The versions of the tables read so far. With them another process reads the same rows."""
        return self._duck.pinned()

    def tables_behind(self) -> list[str]:
        """Tables that lost commits: they are behind the versions that the newest backup recorded."""
        return self._duck.behind()

    def count(self, *tables: str) -> int:
        """The number of rows in some tables, also rows that are no longer live. Reads only their logs."""
        return sum(map(self._duck.count, tables))

    def select(self, sql: str) -> pa.RecordBatchReader:
        """The rows of a person's SELECT over the views. Raises UsageProblem for any other statement."""
        from lakebackup.sql_engine.guard.check import check_select

        return self._duck.select(check_select(sql, self.relations()))

    def run_checked(self, checked: Checked) -> pa.RecordBatchReader:
        """Like `select`, for a SELECT that was checked. Records that it reads must have been given before."""
        return self._duck.select(checked)

    def define(self, relation: str, name: str, **parameters: Any) -> None:
        """Name the rows of a statement of `sql/queries`, so that later statements can read them."""
        self._engine.define(relation, load("queries", name), **parameters)

    def put_back(self, relation: str) -> None:
        """Restore a view of the catalog whose name `define` gave to other rows."""
        self._engine.put_back(relation)

    def choose(self, relation: str, name: str, **parameters: Any) -> Selection:
        """Store the rows of a statement of `sql/queries`; the selection's statements call them `relation`."""
        stored_rows = self._engine.keep(relation, load("queries", name), **parameters)
        return Selection(self, self._engine, relation, stored_rows)

    def chosen(self, relation: str, rows: DataFrame) -> Selection:
        """Like `choose`, for rows that Spark's tasks wrote. DuckDB holds them when there are few."""
        first_rows = rows.limit(_FEW_ROWS + 1).toArrow()
        if first_rows.num_rows <= _FEW_ROWS:
            on_duckdb = CatalogReader(self.home.uri, self.catalog_uri, as_of=self._as_of, tables=self._duck)
            on_duckdb.give(table := f"made_{relation}", first_rows)
            return Selection(on_duckdb, self._duck, relation, table)
        on_spark = self.on(rows.sparkSession)
        return Selection(on_spark, on_spark._engine, relation, rows)  # noqa: SLF001 (this class)

    def give(self, relation: str, rows: pa.Table) -> None:
        """Name rows from outside the catalog, so that later statements can read them."""
        self._engine.give(relation, rows)

    def define_checked(self, relation: str, checked: Checked) -> None:
        """Like `define`, for a person's SELECT that was checked. Raises TimedOut after five minutes."""
        self._engine.define_checked(relation, checked)

    def interrupt(self) -> None:
        """Stop the running query from another thread. The query raises an error."""
        self._duck.interrupt()

    def supposing(self, states: Mapping[str, State]) -> CatalogReader:
        """A reader of the same catalog in which some backups have other states (id -> state)."""
        import pyarrow as pa

        from lakebackup.sql_engine.delta.dataset import rows_of

        reader = CatalogReader(self.home.uri, self.catalog_uri, as_of=self._as_of)
        rows = rows_of(f"{self.catalog_uri}/backups")
        stored_states = zip(rows["backup_id"].to_pylist(), rows["state"].to_pylist(), strict=True)
        state = pa.array(
            [states.get(backup_id, state) for backup_id, state in stored_states], rows["state"].type
        )
        reader.give("raw_backups", rows.set_column(rows.schema.get_field_index("state"), "state", state))
        return reader

    def columns(self, relation: str) -> list[str]:
        """The columns of a relation that was defined or given here."""
        return list(self._engine.columns(relation))

    def destinations(self) -> Roots:
        """The roots of the catalog's destinations.

        The one that the caller named is at its present URI, even if it was moved. Others are read only if
        this machine's settings name them, or if they were approved here.
        """
        from lakebackup.sql_engine.delta.dataset import rows_of

        rows = rows_of(f"{self.catalog_uri}/destinations").to_pylist()
        uris = {row["destination"]: self.root_of(row["uri"]) for row in rows}
        with suppress(NotFound):
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

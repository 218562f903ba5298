"""Questions to the catalog, answered over its Delta tables by DuckDB, without a JVM, or by Spark."""

from __future__ import annotations

from contextlib import suppress
from shlex import quote
from typing import TYPE_CHECKING, Any

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

    ArrowJob = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

LATEST = "latest"
"""In place of a backup's id: the newest that can be restored."""
# Rows that DuckDB takes over: each statement costs Spark a good tenth of a second.
_FEW_ROWS = 10_000


class Catalog:
    """Where a catalog and its destinations are."""

    def __init__(self, destination: str, catalog: str | None) -> None:
        """Opens both. Raises UsageProblem as `open_storage` does, Refused for a catalog that is a link."""
        #: The storage of the destination that this was opened with.
        self.home: Storage = open_storage(destination)
        beside = f"{self.home.uri}/{layout.CATALOG_FOLDER}"
        self._storage = open_storage(catalog or beside)
        self.catalog_uri = self._storage.uri
        if not catalog and self.catalog_uri != beside:
            raise Refused(
                f"The catalog {beside} is a link to {self.catalog_uri}. Whoever can write the repository can "
                "make one.",
                hint=f"If you mean that catalog, name it: --catalog {quote(self.catalog_uri)}",
            )

    def root_of(self, uri: str) -> str:
        """The root of a destination as the table `destinations` has it: empty is relative to the catalog."""
        return uri or self.catalog_uri.rpartition("/")[0]

    def version(self) -> int | None:
        """The schema version of the catalog, None without one; UsageProblem when too new."""
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
    """Questions to the catalog, answered by DuckDB over the Delta tables, as they are when first asked, or
    as they were at the instant `as_of` (us since 1970); see `on` for Spark.

    `versions`: those that another reader `pinned`, of the tables that are to be as they were there."""

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
        """The same catalog, with the same versions of its tables, whose statements run on Spark; a person's
        SELECT for rows stays on DuckDB."""
        return CatalogReader(
            self.home.uri, self.catalog_uri, as_of=self._as_of, spark=spark, tables=self._duck
        )

    def apart(self) -> CatalogReader:
        """The same catalog by the same engine, without what this one was given and has defined."""
        return CatalogReader(self.home.uri, self.catalog_uri, as_of=self._as_of, spark=self._spark)

    @property
    def engine(self) -> EngineName:
        """What runs its statements."""
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
        """The catalog of a destination, or at the URI `catalog`; None when there is none.

        Tables that an older catalog lacks are empty. Raises UsageProblem when its schema version is newer
        than this program's, NotFound when it was made after `as_of`.
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
        """As `open`; raises NotFound when there is none."""
        reader = cls.open(destination, catalog, as_of=as_of, versions=versions)
        if reader is None:
            raise NotFound(
                f"There is no catalog at {catalog or destination}.",
                hint="Check the repository (--repo) and the catalog (--catalog); `lakebackup catalog "
                "rebuild` recreates it from the backups.",
            )
        return reader

    def query(self, name: str, **parameters: Any) -> pa.RecordBatchReader:
        """The rows of a statement of `sql/queries`, however many, as Arrow batches."""
        return self._engine.batches(name, **parameters)

    def frame(self, name: str, **parameters: Any) -> DataFrame:
        """As `query`, of a reader that `on` returned: the rows as Spark has them."""
        frame: DataFrame = self._engine.query(name, **parameters)
        return frame

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a statement that gives few, column name -> value."""
        return self._engine.rows(name, **parameters)

    def one(self, name: str, **parameters: Any) -> dict[str, Any] | None:
        """The first row, None when there is none."""
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
        """What `job` returns, few rows of `columns`, for the rows of a statement of `sql/queries`.

        On DuckDB it runs here and takes them in the statement's order. On Spark it runs in tasks, and the
        driver never has them: `spread` decides how they are dealt to tasks and sorted there.
        """
        if self.engine == "duckdb":
            return [row for batch in job(self.query(name, **parameters)) for row in batch.to_pylist()]
        frame = self.frame(name, **parameters)
        with task_errors():
            rows = (spread(frame) if spread else frame).mapInArrow(job, columns).collect()
        return [row.asDict() for row in rows]

    def resolve_backup(self, beginning: str, source: str | None = None) -> str:
        """The id of the one backup whose id begins so; of LATEST the newest that can be restored, of a source
        or of all. Raises NotFound, or UsageProblem for several.
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
        """What a person's SELECT may read: the views and their columns."""
        from lakebackup.sql_engine.duck import view_columns

        return view_columns(now=self._as_of is not None)

    @property
    def asked(self) -> list[Asked]:
        """What this was asked so far, in order."""
        return self._engine.asked

    def versions(self) -> dict[str, int]:
        """The Delta version of each table that is read here; without those made after `as_of`."""
        versions = {table: self._duck.version(table) for table in TABLES}
        return {table: version for table, version in versions.items() if version is not None}

    def pinned(self) -> dict[str, int | None]:
        """The tables that were read so far and their versions, with which another process reads the same."""
        return self._duck.pinned()

    def tables_behind(self) -> list[str]:
        """Tables that lack commits which the newest backup's was made after."""
        return self._duck.behind()

    def count(self, *tables: str) -> int:
        """How many rows some tables have, those that do not count included, by their logs alone."""
        return sum(map(self._duck.count, tables))

    def select(self, sql: str) -> pa.RecordBatchReader:
        """The rows of a person's SELECT over the views. Raises UsageProblem when it is not just that."""
        from lakebackup.sql_engine.guard.check import check_select

        return self._duck.select(check_select(sql, self.relations()))

    def run_checked(self, checked: Checked) -> pa.RecordBatchReader:
        """As `select`, of a SELECT that was checked; what it asks of records was given before."""
        return self._duck.select(checked)

    def define(self, relation: str, name: str, **parameters: Any) -> None:
        """Give the rows of a statement of `sql/queries` a name that later statements can use."""
        self._engine.define(relation, load("queries", name), **parameters)

    def put_back(self, relation: str) -> None:
        """Let a view be itself again where `define` gave its name to other rows."""
        self._engine.put_back(relation)

    def choose(self, relation: str, name: str, **parameters: Any) -> Selection:
        """The rows of a statement of `sql/queries` as a value, whose own statements call them `relation`."""
        kept = self._engine.keep(relation, load("queries", name), **parameters)
        return Selection(self, self._engine, relation, kept)

    def chosen(self, relation: str, rows: DataFrame) -> Selection:
        """As `choose`, of rows that Spark's tasks have made. DuckDB keeps them where they are few."""
        some = rows.limit(_FEW_ROWS + 1).toArrow()
        if some.num_rows <= _FEW_ROWS:
            on_duckdb = CatalogReader(self.home.uri, self.catalog_uri, as_of=self._as_of, tables=self._duck)
            on_duckdb.give(kept := f"made_{relation}", some)
            return Selection(on_duckdb, self._duck, relation, kept)
        on_spark = self.on(rows.sparkSession)
        return Selection(on_spark, on_spark._engine, relation, rows)  # noqa: SLF001 (this class)

    def give(self, relation: str, rows: pa.Table) -> None:
        """Give rows that come from elsewhere a name that later statements can use."""
        self._engine.give(relation, rows)

    def define_checked(self, relation: str, checked: Checked) -> None:
        """As `define`, of a person's SELECT that was checked. Raises TimedOut after five minutes."""
        self._engine.define_checked(relation, checked)

    def interrupt(self) -> None:
        """Stop the query that runs now, from another thread; it raises an error."""
        self._duck.interrupt()

    def supposing(self, states: Mapping[str, State]) -> CatalogReader:
        """The same catalog as if some backups had other states: id -> state."""
        import pyarrow as pa

        from lakebackup.sql_engine.delta.dataset import rows_of

        reader = CatalogReader(self.home.uri, self.catalog_uri, as_of=self._as_of)
        rows = rows_of(f"{self.catalog_uri}/backups")
        id_states = zip(rows["backup_id"].to_pylist(), rows["state"].to_pylist(), strict=True)
        state = pa.array([states.get(backup_id, state) for backup_id, state in id_states], rows["state"].type)
        reader.give("raw_backups", rows.set_column(rows.schema.get_field_index("state"), "state", state))
        return reader

    def columns(self, relation: str) -> list[str]:
        """The columns of a relation that was defined here."""
        return list(self._engine.columns(relation))

    def destinations(self) -> Roots:
        """Where the destinations are. The one this was opened with is where it is now, moved or not.

        Others are read only if this machine's settings name them, or if they were approved here.
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
        """The claims of destinations, by their ids, beside the one that this was opened with and the one that
        the catalog lies in."""
        own = {self.home.uri, self.root_of("")}
        return [destination_claim(name, uri) for name, uri in sorted(uris.items()) if uri not in own]

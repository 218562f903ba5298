"""The connection to a repository, for queries and restores from Python and the command line."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from os import PathLike, environ, fspath
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypedDict, Unpack, cast

import pyarrow as pa
from pyspark.sql import SparkSession

from lakebackup.config import Settings, load
from lakebackup.errors import EnvironmentProblem, NeedsSpark, TimedOut, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.rules import kinds
from lakebackup.rules.kafka_properties import translate
from lakebackup.rules.times import parse_duration, parse_time
from lakebackup.sql_engine.limits import Limits
from lakebackup.sql_engine.spark import SparkEngine, streamed
from lakebackup.storage import with_key
from lakebackup.storage.uris import normalized
from lakebackup.store import trust
from lakebackup.store.behind import HINT, what_is_lost
from lakebackup.store.metadata_keys import NoMetadataKey
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.audit import append_outcome
from lakebackup_jobs.lifecycle.progress import reporter
from lakebackup_jobs.query import record_query
from lakebackup_jobs.query.answer import Answer, Result
from lakebackup_jobs.query.chart import Chart, ChartName, draw
from lakebackup_jobs.query.parameters import bind
from lakebackup_jobs.query.plan import Plan
from lakebackup_jobs.query.python_words import in_python_words, require_known, translated
from lakebackup_jobs.runtime import identities, metadata_key, signing
from lakebackup_jobs.runtime.session import in_utc
from lakebackup_jobs.topics.restore import run

MakeSession: TypeAlias = "Callable[[], SparkSession]"
Moment = str | datetime


class RestoreOptions(TypedDict, total=False):
    """The options of a restore of topics, which are flags of `lakebackup restore topics`.

    Times are texts as on the command line, or datetimes. A datetime without a zone is in UTC.
    """

    patterns: Sequence[str]
    source: str
    to_time: Moment
    from_time: Moment
    backup: str
    select: str
    records: str
    partial: bool
    maps: Mapping[str, str]
    append: bool
    continued: bool
    repartition: bool
    partitions: int
    groups: Sequence[str]
    allow_gaps: bool
    approximate: bool
    allow_empty: bool
    settings: Literal["auto", "saved", "suspended"]
    zero_as_one: bool
    strict_schemas: bool
    kafka: Mapping[str, str]


class Connection:
    """The backups in a repository, to query them and to restore from them. `lakebackup.connect` opens one.

        with lakebackup.connect("s3://backups/prod") as con:
            print(con.sql("SELECT scope, restorable_time FROM rpo ORDER BY lag_ms DESC"))
            con.restore("orders", to="delta:./orders", to_time="-2h")

    Every query sees the present catalog, or the catalog as of `as_of`. Only one thread at a time may use a
    connection, except that any thread may call `interrupt`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        spark: SparkSession | MakeSession | None = None,
        fallback: Callable[[NeedsSpark], SparkSession] | None = None,
        as_of: int | None = None,
        bounded: bool = False,
        give_up: Callable[[TimedOut], None] | None = None,
        warn: Callable[[str], object] = warnings.warn,
        python_words: bool = False,
    ) -> None:
        """`spark`: the session that runs queries instead of DuckDB, and restores; or a function that starts
        it. `fallback`: starts the session, once, for queries that DuckDB cannot answer as Spark would. It
        gets the error that says why. Without it, such a query is refused. `as_of`: us since 1970 UTC.
        `bounded`: a query must not make the process grow by more than 2 GiB. `give_up`: see `Limits`. `warn`
        is called once when the catalog is behind. `python_words`: errors name arguments instead of flags.
        """
        self.settings = settings
        self._spark, self._fallback, self._as_of = spark, fallback, as_of
        self._fallback_session: SparkSession | None = None
        self._bounded, self._give_up = bounded, give_up
        self._warn: Callable[[str], object] | None = warn
        self._stop: Callable[[], object] | None = None
        self._python_words = python_words

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop a running query. A Spark session stays open, because it belongs to the caller."""
        self.interrupt()
        self._stop = None

    def interrupt(self) -> None:
        """Stop the running query from another thread. The query raises an error."""
        if self._stop is not None:
            self._stop()

    @property
    def repo(self) -> str:
        """The folder or URI of the repository. Raises UsageProblem when no setting names it."""
        if self.settings.repo is None:
            raise UsageProblem(
                "No repository: where are the backups stored?",
                hint='Write lakebackup.connect("URI"), or set LAKEBACKUP_REPO.',
            )
        return self.settings.repo

    def catalog(self) -> CatalogReader:
        """Return a reader that runs the catalog's named queries, by DuckDB, on one state of the tables.

        Raises NotFound when there is no catalog.
        """
        reader = CatalogReader.require(self.repo, self.settings.catalog, as_of=self._as_of)
        warn, self._warn = self._warn, None
        # A query still runs. Commands that restore, delete or make backups refuse.
        with suppress(NoMetadataKey):  # without that key, the catalog alone still answers
            if warn and self._as_of is None and (problem := what_is_lost(reader)):
                warn(f"{problem}\n{HINT}")
        return reader

    def sql(self, select: str, *, args: Mapping[str, Any] | None = None, timeout: str = "5m") -> Answer:
        """Run one SELECT over the catalog's views and records('topic'); return its rows.

            con.sql("SELECT source, count(*) AS backups FROM backups GROUP BY source").df()
            con.sql("SELECT time, value FROM records('orders') WHERE key = :key", args={"key": "customer-7"})

        Each `:name` is replaced by the value in `args` as an escaped literal. `timeout` is a duration.

        Raises UsageProblem (the SELECT is wrong, or there are several), NotFound (topic, backup) and Refused
        (a time that no backup covers). Reading the rows raises Damaged, TimedOut and TooLarge.
        """

        def on_duckdb(reader: CatalogReader) -> Result:
            return record_query.select(reader, select)

        def on_spark(reader: CatalogReader, spark: SparkSession) -> Result:
            frame = record_query.select_on_spark(spark, reader, select, as_of=self._as_of)
            return Result(streamed(frame, select), frame=frame)

        def on_either() -> Result:
            try:
                return _with_first_batch(self._on_duckdb(on_duckdb, seconds))
            except NeedsSpark as error:
                self._start_fallback(error)
                return self._on_spark(on_spark, seconds)

        with self._error_words():
            if args is not None:
                select = bind(select, args)
            seconds = _seconds(timeout)
            if self._spark is not None:
                return Answer(lambda: self._on_spark(on_spark, seconds))
            if self._fallback is not None:
                return Answer(on_either)
            return Answer(lambda: self._on_duckdb(on_duckdb, seconds))

    def backups(self, source: str | None = None) -> Answer:
        """Return the backups, newest first, like `lakebackup list`: of `source`, or of all sources.

            con.backups("prod").df()

        Raises NotFound for a source that does not exist.
        """

        def list_backups(reader: CatalogReader) -> Result:
            if source:
                kinds.require_known(reader, source)
            return Result(reader.query("list_backups", source=source or self.settings.source))

        with self._error_words():
            return Answer(lambda: self._on_duckdb(list_backups, _seconds("5m")))

    def chart(self, name: ChartName) -> Chart:
        """Return a chart of the catalog. A notebook shows it, and `save` writes it as a page.

            con.chart("coverage").save("coverage.html")

        `calendar`: the outcomes of each day's runs. `coverage`: the times that can be restored, one line for
        each topic, with topics that have gaps first. `growth`: the stored bytes, and what each day added and
        removed.

        Raises UsageProblem for another name.
        """
        with self._error_words():
            return draw(self.catalog(), name)

    def register(self, *relations: str) -> None:
        """Register views of the catalog (by default all) as temporary views of the Spark session.

            con.register("backups", "files")
            spark.sql("SELECT count(*) FROM files").show()

        Raises UsageProblem on DuckDB.
        """
        if self._spark is None:
            raise UsageProblem("DuckDB has no session to register in.", hint="Connect with engine=spark.")
        with self._error_words():
            engine = SparkEngine(self._given_session(), self.catalog().catalog_uri, as_of=self._as_of)
            engine.register(relations or None)

    def plan_restore(self, *topics: str, to: str, **options: Unpack[RestoreOptions]) -> Plan:
        """Plan a restore of topics to the target `to`, without writing anything.

        The arguments are those of `restore`.

            print(con.plan_restore("orders", to="delta:./orders", to_time="-2h"))

        Raises NotFound (no such topic), Refused (a time after the last backup), UsageProblem.
        """
        with self._error_words():
            details = self._restore(self._request(topics, to, options, dry_run=True))
        refused, hint = details.pop("refused", None), details.pop("hint", "")
        if self._python_words:
            refused, hint = refused and translated(refused), translated(hint)
        totals = (details["files"], details["bytes"], details["entries_in_files"])
        return Plan(to, *totals, refused, hint, details)

    def restore(self, *topics: str, to: str, **options: Unpack[RestoreOptions]) -> dict[str, Any]:
        """Restore topics to the target `to`, all or none. The same call resumes an interrupted restore.

            con.restore("orders", to="kafka://localhost:9092", to_time="2026-11-21T14:05Z")
            con.restore("orders", to="delta:./orders", maps={"orders": "orders_then"})

        `topics` are names. `to` is `kafka://HOST:PORT`, `delta:PATH` or `dir:PATH`. The options are:

        - which records: `patterns` (regular expressions of whole names), `source`, `to_time` (up to and
          including), `from_time`, `backup` (up to its end), `select` (a SELECT that chooses files),
          `records` (a SELECT over records('topic') that returns them)
        - into what: `maps` (topic -> its new name), `append`, `continued`, `repartition`, `partitions`,
          `groups` (expressions of consumer groups), `settings` ("auto", "saved", "suspended"), `kafka`
          (properties of the client)
        - accept: `partial`, `allow_gaps`, `approximate`, `allow_empty`, `zero_as_one`
        - refuse: `strict_schemas`

        Times are texts as on the command line, or datetimes. A datetime without a zone is in UTC.

        Returns the result that `lakebackup restore topics --json` prints. Raises Refused (gaps, damaged
        files, a target that is not empty), Damaged, EnvironmentProblem, Busy, and the errors of
        `plan_restore`.
        """
        with self._error_words():
            return self._restore(self._request(topics, to, options, dry_run=False))

    def _error_words(self) -> AbstractContextManager[None]:
        return in_python_words() if self._python_words else nullcontext()

    def _request(
        self, topics: Sequence[str], to: str, options: RestoreOptions, *, dry_run: bool
    ) -> RestoreRequest:
        require_known(options, RestoreOptions.__annotations__)
        if self._as_of is not None:
            raise UsageProblem(
                "A catalog as of another time is only for questions.",
                hint="Connect without as_of; to_time says which time to restore to.",
            )
        values: dict[str, Any] = dict(options)
        for name, moment in (
            ("to_ts", values.pop("to_time", None)),
            ("from_ts", values.pop("from_time", None)),
        ):
            values[name] = None if moment is None else milliseconds(moment)
        for name in ("patterns", "groups"):
            values[name] = tuple(values.get(name, ()))
        settings = self.settings
        kafka = values.get("kafka")
        values["kafka"] = translate({**settings.kafka, **kafka}) if kafka else settings.kafka
        values.setdefault("source", settings.source)
        values["bandwidth"] = settings.bandwidth and int(settings.bandwidth)
        values |= {"catalog": settings.catalog, "remote": settings.remote, "lease_ttl_s": settings.lease_ttl}
        return RestoreRequest(with_key(self.repo), to, tuple(topics), dry_run=dry_run, **values)

    def _restore(self, request: RestoreRequest) -> dict[str, Any]:
        spark = None if self._spark is None else self._session()
        try:
            with reporter(as_json=False) as report:
                result = run(request, spark=spark, reporter=report)
        except Exception as error:
            self._record(request, {}, error)
            raise
        self._record(request, result, None)
        return result

    def _record(self, request: RestoreRequest, result: Mapping[str, Any], error: Exception | None) -> None:
        """Record the restore in the audit log. Only warns if that fails, because the restore is done."""
        if request.dry_run:
            return
        try:
            append_outcome(
                self.settings,
                self.repo,
                "restore topics",
                result.get("source") or request.source,
                request=request,
                result=result,
                error=error,
            )
        except Exception as problem:  # noqa: BLE001
            warnings.warn(f"not recorded in the audit log: {problem}", stacklevel=4)

    def _on_duckdb(self, query: Callable[[CatalogReader], Result], seconds: float) -> Result:
        reader = self.catalog()
        self._stop = reader.interrupt
        limits = Limits(reader.interrupt, seconds=seconds, give_up=self._give_up, memory=self._bounded)
        with limits.running():
            result = query(reader)
        return Result(self._limited_rows(limits, result.rows), result.readings)

    def _on_spark(self, query: Callable[[CatalogReader, SparkSession], Result], seconds: float) -> Result:
        reader, spark = self.catalog(), self._session()
        self._stop = spark.interruptAll
        limits = Limits(spark.interruptAll, seconds=seconds, give_up=self._give_up, memory=False)
        with limits.running():
            result = query(reader, spark)
        return Result(self._limited_rows(limits, result.rows), frame=result.frame)

    def _limited_rows(self, limits: Limits, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The same rows. Each batch is read within the limits."""

        def batches() -> Iterator[pa.RecordBatch]:
            while True:
                with self._error_words(), limits.running():
                    batch = next(rows, None)
                if batch is None:
                    return
                yield batch

        return pa.RecordBatchReader.from_batches(rows.schema, batches())

    def _start_fallback(self, reason: NeedsSpark) -> None:
        """Start the fallback session. Raises EnvironmentProblem when Spark cannot be started."""
        if self._fallback_session is not None or self._fallback is None:
            return
        try:
            self._fallback_session = self._fallback(reason)
        except EnvironmentProblem as error:
            raise EnvironmentProblem(
                f"{reason.message}\nSpark cannot be started: {error.message}", hint=error.hint
            ) from error

    def _given_session(self) -> SparkSession:
        if self._spark is not None:
            if callable(self._spark):
                self._spark = self._spark()
            return self._spark
        return cast("SparkSession", self._fallback_session)

    def _session(self) -> SparkSession:
        return in_utc(self._given_session())


def connect(
    repo: str | PathLike[str] | None,
    *,
    catalog: str | None,
    engine: Literal["duckdb"] | SparkSession,
    as_of: Moment | None,
    config: str | PathLike[str] | None,
) -> Connection:
    """See `lakebackup.connect`."""
    if isinstance(engine, str) and engine != "duckdb":
        raise UsageProblem(
            f"engine={engine!r} is neither 'duckdb' nor a Spark session.", hint="Write engine=spark."
        )

    with in_python_words():
        uri = None if repo is None else fspath(repo)
        settings = load({"repo": uri, "catalog": catalog}, config)
        use(settings)
        as_of_us = None if as_of is None else milliseconds(as_of) * 1000
        spark = None if isinstance(engine, str) else engine
        connection = Connection(settings, spark=spark, as_of=as_of_us, python_words=True)
        connection.catalog()  # raises NotFound at once if there is none
    return connection


def use(settings: Settings) -> None:
    """Put the storage settings, without secrets, into the environment, also for Spark's Python workers.

    Sets what the settings of this process name (`trust.local`), its identities and its signing keys.
    """
    identities.use(settings.encryption)
    metadata_key.use(settings)
    signing.use(settings.signing)
    environ.update({**settings.s3.variables(), **settings.storage.variables()})
    approved, servers = settings.approved, settings.kafka.get("bootstrap.servers")
    trust.use(
        trust.LocalNames(
            destinations=frozenset(map(normalized, approved.repos)),
            delete_in=frozenset(map(normalized, approved.delete_in)),
            servers=frozenset([*approved.servers, *([servers] if servers else [])]),
            commands=approved.commands,
            encrypts=settings.log.keys_file is not None and not settings.encryption.has_recipients,
        )
    )


def milliseconds(moment: Moment) -> int:
    """A time in ms since 1970 UTC. Raises UsageProblem for a text that is not a time."""
    if isinstance(moment, datetime):
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)

    return parse_time(moment, now_ms=time.time_ns() // 1_000_000)


def _seconds(timeout: str) -> float:
    seconds = parse_duration(timeout, of=timeout) / 1000
    if not seconds:
        raise UsageProblem("The timeout must be longer than 0.", hint="Example: 30m")
    return seconds


def _with_first_batch(result: Result) -> Result:
    """The same result after its first batch was read, so that an error in that batch is raised here."""
    first_batch = next(result.rows, None)
    rows = result.rows if first_batch is None else chain([first_batch], result.rows)
    return replace(result, rows=pa.RecordBatchReader.from_batches(result.rows.schema, rows))

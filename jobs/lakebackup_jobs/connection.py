"""The one door to a destination, of Python programs, notebooks and the command line: questions and
restores."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from os import PathLike, environ
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from lakebackup.errors import EnvironmentProblem, NeedsSpark, UsageProblem
from lakebackup.rules.kafka_properties import translate
from lakebackup_jobs.query.answer import Answer, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.config import Settings
    from lakebackup.errors import TimedOut
    from lakebackup.plan.topics.request import RestoreRequest
    from lakebackup.sql_engine.limits import Limits
    from lakebackup.store.reader import CatalogReader

    MakeSession = Callable[[], SparkSession]

Moment = str | datetime


class RestoreOptions(TypedDict, total=False):
    """What a restore of topics can be asked beside topics and target: the flags of `lakebackup restore
    topics`.

    Times are texts as on the command line, or datetimes, in UTC without a zone.
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


@dataclass(frozen=True, slots=True)
class Plan:
    """What a restore would read and bring back. `refused` and `hint`: why it would be refused and what to do
    then, None and "" where it would not be. `details`: what `restore topics --dry-run --json` says.
    """

    files: int
    bytes: int
    entries: int
    refused: str | None
    hint: str
    details: Mapping[str, Any]


class Connection:
    """A destination and its catalog. Every question sees the catalog as it is then, or as it was at `as_of`
    (us since 1970). For one thread at a time.

    `spark`: what answers instead of DuckDB, and runs restores. `fallback`: makes, once, the session for
    questions that DuckDB cannot answer as Spark would, and hears why the first needs it; without it such a
    question is refused. `bounded`: a question may not make the process grow by more than 2 GiB. `give_up`:
    see `Limits`. `warn` hears, once, that the catalog is behind.
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
    ) -> None:
        self.settings = settings
        self._spark, self._fallback, self._as_of = spark, fallback, as_of
        self._fallback_session: SparkSession | None = None
        self._bounded, self._give_up = bounded, give_up
        self._warn: Callable[[str], object] | None = warn
        self._stop: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop what still runs; a Spark session stays the caller's."""
        self.interrupt()
        self._stop = None

    def interrupt(self) -> None:
        """Stop the question that runs now, from another thread; it raises an error."""
        if self._stop is not None:
            self._stop()

    @property
    def destination(self) -> str:
        """Where the backups are. Raises UsageProblem where nothing says so."""
        if self.settings.destination is None:
            raise UsageProblem(
                "No destination: where are the backups stored?",
                hint='Write lakebackup.connect("URI"), or set LAKEBACKUP_DESTINATION.',
            )
        return self.settings.destination

    def catalog(self) -> CatalogReader:
        """The catalog's own queries, by DuckDB, on one state of its tables. Raises NotFound without a
        catalog."""
        from lakebackup.store.behind import HINT, what_is_lost
        from lakebackup.store.reader import CatalogReader

        reader = CatalogReader.require(self.destination, self.settings.catalog, as_of=self._as_of)
        warn, self._warn = self._warn, None
        # A question is answered all the same; what restores, deletes or makes backups refuses.
        if warn and self._as_of is None and (lost := what_is_lost(reader)):
            warn(f"{lost}\n{HINT}")
        return reader

    def sql(self, select: str, *, timeout: str = "5m") -> Answer:
        """The rows of one SELECT over the catalog's views and records('topic').

        Raises UsageProblem (the SELECT is wrong, or not only that), NotFound (topic, backup), Refused (a time
        that is not covered). Taking the rows raises Damaged, TimedOut, TooLarge.
        """
        from lakebackup_jobs.query import record_query

        def on_duckdb(reader: CatalogReader) -> Result:
            return record_query.select(reader, select)

        def on_spark(reader: CatalogReader, spark: SparkSession) -> Result:
            from lakebackup.sql_engine.spark import streamed

            frame = record_query.select_on_spark(spark, reader, select, as_of=self._as_of)
            return Result(streamed(frame, select), frame=frame)

        seconds = _seconds(timeout)

        def on_either() -> Result:
            try:
                return _with_first_batch(self._on_duckdb(on_duckdb, seconds))
            except NeedsSpark as error:
                self._start_fallback(error)
                return self._on_spark(on_spark, seconds)

        if self._spark is not None:
            return Answer(lambda: self._on_spark(on_spark, seconds))
        if self._fallback is not None:
            return Answer(on_either)
        return Answer(lambda: self._on_duckdb(on_duckdb, seconds))

    def backups(self, source: str | None = None) -> Answer:
        """The backups, newest first; of one source where it is named. Taking the rows raises NotFound for one
        that does not exist."""
        from lakebackup.rules.kinds import require_known

        def listed(reader: CatalogReader) -> Result:
            if source:
                require_known(reader, source)
            return Result(reader.query("list_backups", source=source or self.settings.source))

        return Answer(lambda: self._on_duckdb(listed, _seconds("5m")))

    def register(self, *relations: str) -> None:
        """Make views of the catalog, all unless named, temporary views of the Spark session. Raises
        UsageProblem on DuckDB."""
        from lakebackup.sql_engine.spark import SparkEngine

        if self._spark is None:
            raise UsageProblem("DuckDB has no session to register in.", hint="Connect with engine=spark.")
        engine = SparkEngine(self._given(), self.catalog().catalog_uri, as_of=self._as_of)
        engine.register(relations or None)

    def plan_restore(self, *topics: str, to: str, **options: Unpack[RestoreOptions]) -> Plan:
        """What a restore of topics into the target `to` (kafka://, delta:, dir:) would do. Writes nothing.

        Raises NotFound (no such topic), Refused (a time after the last backup), UsageProblem.
        """
        details = self._restore(self._request(topics, to, options, dry_run=True))
        refused, hint = details.pop("refused", None), details.pop("hint", "")
        return Plan(details["files"], details["bytes"], details["entries_in_files"], refused, hint, details)

    def restore(self, *topics: str, to: str, **options: Unpack[RestoreOptions]) -> dict[str, Any]:
        """Restore topics into the target `to`, all or none; returns what `restore topics --json` says in the
        end.

        The same call resumes a restore that was interrupted. Raises Refused (gaps, damaged files, a target
        that is not empty), Damaged, EnvironmentProblem, Busy, and what `plan_restore` raises.
        """
        return self._restore(self._request(topics, to, options, dry_run=False))

    def _request(
        self, topics: Sequence[str], to: str, options: RestoreOptions, *, dry_run: bool
    ) -> RestoreRequest:
        from lakebackup.plan.topics.request import RestoreRequest

        if self._as_of is not None:
            raise UsageProblem(
                "A catalog as of another time is only for questions.",
                hint="Connect without as_of; to_time says which time to restore to.",
            )
        given: dict[str, Any] = dict(options)
        for name, moment in (
            ("to_ts", given.pop("to_time", None)),
            ("from_ts", given.pop("from_time", None)),
        ):
            given[name] = None if moment is None else milliseconds(moment)
        for name in ("patterns", "groups"):
            given[name] = tuple(given.get(name, ()))
        settings = self.settings
        kafka = given.get("kafka")
        given["kafka"] = translate({**settings.kafka, **kafka}) if kafka else settings.kafka
        given.setdefault("source", settings.source)
        given["bandwidth"] = settings.bandwidth and int(settings.bandwidth)
        given |= {"catalog": settings.catalog, "remote": settings.remote, "lease_ttl_s": settings.lease_ttl}
        return RestoreRequest(self.destination, to, tuple(topics), dry_run=dry_run, **given)

    def _restore(self, request: RestoreRequest) -> dict[str, Any]:
        from lakebackup_jobs.lifecycle.progress import reporter
        from lakebackup_jobs.topics.restore import run

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
        """Leave an entry in the audit log, or say why there is none: what was restored is restored."""
        from lakebackup_jobs.lifecycle.audit import append_outcome

        if request.dry_run:
            return
        try:
            append_outcome(
                self.settings,
                self.destination,
                "restore topics",
                result.get("source") or request.source,
                request=request,
                result=result,
                error=error,
            )
        except Exception as problem:  # noqa: BLE001
            warnings.warn(f"not recorded in the audit log: {problem}", stacklevel=4)

    def _on_duckdb(self, begin: Callable[[CatalogReader], Result], seconds: float) -> Result:
        from lakebackup.sql_engine.limits import Limits

        reader = self.catalog()
        self._stop = reader.interrupt
        limits = Limits(reader.interrupt, seconds=seconds, give_up=self._give_up, memory=self._bounded)
        with limits.running():
            result = begin(reader)
        return Result(_within(limits, result.rows), result.readings)

    def _on_spark(self, begin: Callable[[CatalogReader, SparkSession], Result], seconds: float) -> Result:
        from lakebackup.sql_engine.limits import Limits

        reader, spark = self.catalog(), self._session()
        self._stop = spark.interruptAll
        limits = Limits(spark.interruptAll, seconds=seconds, give_up=self._give_up, memory=False)
        with limits.running():
            result = begin(reader, spark)
        return Result(_within(limits, result.rows), frame=result.frame)

    def _start_fallback(self, why: NeedsSpark) -> None:
        """Raises EnvironmentProblem, which says what needs Spark, where there is none."""
        if self._fallback_session is not None or self._fallback is None:
            return
        try:
            self._fallback_session = self._fallback(why)
        except EnvironmentProblem as error:
            raise EnvironmentProblem(
                f"{why.message}\nSpark cannot be started: {error.message}", hint=error.hint
            ) from error

    def _given(self) -> SparkSession:
        if self._spark is not None:
            if callable(self._spark):
                self._spark = self._spark()
            return self._spark
        return cast("SparkSession", self._fallback_session)

    def _session(self) -> SparkSession:
        from lakebackup_jobs.runtime.session import in_utc

        return in_utc(self._given())


def connect(
    destination: str | None,
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
    from lakebackup.config import load

    settings = load({"destination": destination, "catalog": catalog}, config)
    use(settings)
    then = None if as_of is None else milliseconds(as_of) * 1000
    connection = Connection(settings, spark=None if isinstance(engine, str) else engine, as_of=then)
    connection.catalog()  # says at once that there is none
    return connection


def use(settings: Settings) -> None:
    """Let whoever opens a place find its settings, Python processes that Spark starts included. No
    secrets."""
    environ.update({**settings.s3.variables(), **settings.storage.variables()})
    from lakebackup.storage.uris import normalized
    from lakebackup.store import trust

    approved, servers = settings.approved, settings.kafka.get("bootstrap.servers")
    trust.use(
        trust.LocalNames(
            destinations=frozenset(map(normalized, approved.destinations)),
            delete_in=frozenset(map(normalized, approved.delete_in)),
            servers=frozenset([*approved.servers, *([servers] if servers else [])]),
            commands=approved.commands,
            encrypts=settings.log.keys_file is not None,
        )
    )


def milliseconds(moment: Moment) -> int:
    """A time in ms since 1970 UTC. Raises UsageProblem for a text that is none."""
    if isinstance(moment, datetime):
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    from lakebackup.rules.times import parse_time

    return parse_time(moment, now=time.time_ns() // 1_000_000)


def _seconds(timeout: str) -> float:
    from lakebackup.rules.times import parse_duration

    seconds = parse_duration(timeout, of=timeout) / 1000
    if not seconds:
        raise UsageProblem("The timeout must be longer than 0.", hint="Example: 30m")
    return seconds


def _with_first_batch(result: Result) -> Result:
    """The same result, of which the first rows were read: an error in them is raised here."""
    import pyarrow as pa

    first = next(result.rows, None)
    rows = result.rows if first is None else chain([first], result.rows)
    return replace(result, rows=pa.RecordBatchReader.from_batches(result.rows.schema, rows))


def _within(limits: Limits, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The same rows, each batch read within the limits."""
    import pyarrow as pa

    def batches() -> Iterator[pa.RecordBatch]:
        while True:
            with limits.running():
                batch = next(rows, None)
            if batch is None:
                return
            yield batch

    return pa.RecordBatchReader.from_batches(rows.schema, batches())

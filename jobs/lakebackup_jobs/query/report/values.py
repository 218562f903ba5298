"""The values that the report shows. SQL queries return few rows, whatever the catalog's size; DuckDB runs
them, so no JVM starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import UsageProblem
from lakebackup.rules.schedule import DAY_MS, parse
from lakebackup.sql_engine import CLOCK, clock_at
from lakebackup.sql_engine.delta.log import folder_of
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query.report.findings import findings, troubles, verdict

MOST = 100
"""The most rows of a list, for each source if they are topics; the page says when there are more."""
NAMED_TOPICS = 12
"""The most topics without a backup that a sentence names, for each source."""
CHAINS, TOPICS, DAYS, STEPS = 24, 12, 91, 400
"""The most chains, topics with gaps in their chart, and days of runs for each source; the most marks side
by side in a chart."""
_STAGES = {"covered": "report_covered", "unusable": "report_unusable", "protected": "report_protected"}
"""Relations that the report's queries share -> the queries for them, which leave out `uncounted` topics."""


def with_stages(reader: CatalogReader, *, internal: bool = False) -> CatalogReader:
    """A reader with the relations that the report's queries share. `internal`: they include internal
    topics."""
    reader = reader.with_query("uncounted", "report_uncounted", internal=internal)
    for relation, query in _STAGES.items():
        reader = reader.with_query(relation, query)
    return reader


def calendar(reader: CatalogReader, now_ms: int, days: int) -> list[dict[str, Any]]:
    """Return rows of `report_runs`: the outcomes of each source's runs on each of the `days` up to `now_ms`.

    The reader must have the relation `unusable`, see `with_stages`.
    """
    first_ms = (now_ms // DAY_MS - days + 1) * DAY_MS
    instants = _due_instants(reader.rows("report_schedules"), first_ms, now_ms)
    return reader.with_rows("due_instants", instants).rows("report_runs", now_ms=now_ms, days=days)


def _due_instants(policies: Iterable[Mapping[str, Any]], first_ms: int, now_ms: int) -> pa.Table:
    """Return the instants at which each source's schedule had a run due, each with the next one after it.

    Instants before the source had that schedule are left out.
    """
    instants = cache(partial(_instants, first_ms=first_ms, now_ms=now_ms))
    schema = pa.schema({"source": pa.string(), "due_ts": pa.int64(), "next_ts": pa.int64()})
    tables = [schema.empty_table()]
    for policy in policies:
        times = instants(policy["schedule"], policy["time_zone"])
        later = times.filter(pc.greater(times, policy["since_ts"]))
        due, next_due = later.slice(0, max(len(later) - 1, 0)), later.slice(1)
        source = pa.repeat(pa.scalar(policy["source"], pa.string()), len(due))
        tables.append(pa.Table.from_arrays([source, due, next_due], schema=schema))
    return pa.concat_tables(tables)


def _instants(schedule: str, zone: str | None, first_ms: int, now_ms: int) -> pa.Array:
    """Return the instants of a schedule from `first_ms` to `now_ms`, and the first one after that."""
    try:
        parsed = parse(schedule, zone)
    except UsageProblem:  # an older version accepted the schedule
        return pa.array([], pa.int64())
    return pa.array([*parsed.between(first_ms - 1, now_ms), parsed.next(now_ms)], pa.int64())


def facts(reader: CatalogReader, now_ms: int, *, internal: bool = False) -> dict[str, Any]:
    """Return all values of the report at the instant `now_ms`; `internal`: it includes internal topics.

    Scalars: generated_ts, repository, catalog, schema_version, versions (Delta version of each table),
    verdict (a sentence). Lists of rows: findings (kind bad or note, source, text, command), sources,
    topics, unprotected (topics without a backup), internal (topics that are left out), items (what topics
    hold), kept (chains, and what of them the policy makes obsolete), gaps, faults, storage, checks. Lists
    for charts: runs (for each day), spans (what can be restored), intervals (of topics with gaps), growth.
    The columns are those of the queries `report_*`; times are in ms or us, as the end of their names says.
    """
    repository = str(folder_of(reader.home.uri) or reader.home.uri)
    reader = with_stages(reader.with_rows(CLOCK, clock_at(now_ms)), internal=internal)
    report: dict[str, Any] = {
        "generated_ts": now_ms,
        "repository": repository,
        "catalog": reader.catalog_uri,
        "schema_version": reader.version(),
        "versions": reader.versions(),
        "sources": reader.rows("report_sources"),
        "topics": reader.rows("report_topics", most=MOST),
        "unprotected": reader.rows("report_unprotected", most=NAMED_TOPICS),
        "internal": reader.rows("report_internal", most=MOST),
        "items": reader.rows("report_items", most=MOST),
        "kept": reader.rows("report_kept", chains=CHAINS),
        "gaps": reader.rows("report_gaps", most=MOST),
        "faults": reader.rows("report_faults", most=MOST),
        "storage": reader.rows("report_storage"),
        "checks": reader.rows("report_checks"),
        "runs": calendar(reader, now_ms, DAYS),
        "spans": reader.rows("report_spans", steps=STEPS),
        "intervals": reader.rows("report_intervals", topics=TOPICS, steps=STEPS),
        "growth": reader.rows("report_growth", steps=STEPS),
    }
    for row in report["topics"]:
        row["lag_ms"] = None if row["restorable_ts"] is None else now_ms - row["restorable_ts"]
    flags = ["--repo", repository]
    if reader.catalog_uri != f"{reader.home.uri}/catalog":
        flags += ["--catalog", reader.catalog_uri]
    return report | {"verdict": verdict(report["sources"]), "findings": findings(report, flags)}


def status_lines(reader: CatalogReader, rows: Iterable[Mapping[str, Any]], flags: Sequence[str]) -> list[str]:
    """Return a line for each problem of the sources that are not OK, with the command that fixes it.

    `rows`: rows of the view `status`; `flags`: the flags that name the repository.
    """
    details = {row["source"]: row["detail"] for row in rows}
    reader = with_stages(reader, internal=True)
    sources = [row for row in reader.rows("report_sources") if row["source"] in details]
    report = {
        "sources": [{**row, "detail": details[row["source"]]} for row in sources],
        "topics": reader.rows("report_topics", most=MOST),
        "unprotected": reader.rows("report_unprotected", most=NAMED_TOPICS),
        "faults": [row for row in reader.rows("report_faults", most=MOST) if row["source"] in details],
        **{name: [] for name in ("kept", "gaps", "checks")},
    }
    return troubles(report, flags)

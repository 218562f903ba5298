"""What the report shows, as values: rows from SQL, few whatever the catalog's size; from DuckDB, no JVM."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from lakebackup.errors import UsageProblem
from lakebackup.rules.schedule import DAY_MS, parse
from lakebackup.sql_engine import CLOCK, clock_at
from lakebackup.sql_engine.delta.log import folder_of
from lakebackup_jobs.query.report.findings import findings, troubles, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.store.reader import CatalogReader

MOST = 100
"""Rows of a list, of each source where it is about topics; the page shows when there are more."""
NAMED_TOPICS = 12
"""Topics without a backup that a sentence names, of each source."""
CHAINS, TOPICS, DAYS, STEPS = 24, 12, 91, 400
"""Of each source: chains, topics with gaps in their chart, days of runs; marks side by side in a chart."""
_STAGES = {"covered": "report_covered", "unusable": "report_unusable", "protected": "report_protected"}
"""Relations that the queries share -> their statements. They take topics that are `uncounted` out."""


def define_stages(reader: CatalogReader, *, internal: bool = False) -> None:
    """Define the relations that the report's queries share. `internal`: they count internal topics too."""
    reader.define("uncounted", "report_uncounted", internal=internal)
    for relation, query in _STAGES.items():
        reader.define(relation, query)


def calendar(reader: CatalogReader, now_ms: int, days: int) -> list[dict[str, Any]]:
    """What became of the runs of each source on each of the `days` up to `now_ms`: query `report_runs`. The
    reader has the relation `unusable`."""
    first_ms = (now_ms // DAY_MS - days + 1) * DAY_MS
    reader.give("due_instants", _due_instants(reader.rows("report_schedules"), first_ms, now_ms))
    return reader.rows("report_runs", now_ms=now_ms, days=days)


def _due_instants(policies: Iterable[Mapping[str, Any]], first_ms: int, now_ms: int) -> pa.Table:
    """When each source's schedule had a run due, since it has that one, and when the next after that."""
    import pyarrow as pa
    import pyarrow.compute as pc

    instants = cache(partial(_instants, first_ms=first_ms, now_ms=now_ms))
    schema = pa.schema({"source": pa.string(), "due_ts": pa.int64(), "next_ts": pa.int64()})
    tables = [schema.empty_table()]
    for one in policies:
        known = instants(one["schedule"], one["time_zone"])
        later = known.filter(pc.greater(known, one["since_ts"]))
        due, after = later.slice(0, max(len(later) - 1, 0)), later.slice(1)
        source = pa.repeat(pa.scalar(one["source"], pa.string()), len(due))
        tables.append(pa.Table.from_arrays([source, due, after], schema=schema))
    return pa.concat_tables(tables)


def _instants(schedule: str, zone: str | None, first_ms: int, now_ms: int) -> pa.Array:
    """Those of a schedule from one instant to another, and the first one after that."""
    import pyarrow as pa

    try:
        found = parse(schedule, zone)
    except UsageProblem:  # an older version took it
        return pa.array([], pa.int64())
    return pa.array([*found.between(first_ms - 1, now_ms), found.next(now_ms)], pa.int64())


def facts(reader: CatalogReader, now_ms: int, *, internal: bool = False) -> dict[str, Any]:
    """All that the report shows at the instant `now_ms`; `internal`: it counts internal topics too.

    Scalars: generated_ts, repository, catalog, schema_version, versions (Delta version of each table),
    verdict (a sentence). Lists of rows: findings (kind bad or note, source, text, command), sources, topics,
    unprotected (topics without a backup), internal (topics that are not counted), items (what topics hold),
    kept (chains, and what of them the policy makes obsolete), gaps, faults, storage, checks; for charts runs
    (a day), spans (what can be restored), intervals (of topics with gaps), growth. Columns as in the queries
    `report_*`; times in ms or us as their names end.
    """
    repository = str(folder_of(reader.home.uri) or reader.home.uri)
    reader.give(CLOCK, clock_at(now_ms))
    define_stages(reader, internal=internal)
    found: dict[str, Any] = {
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
    for row in found["topics"]:
        row["lag_ms"] = None if row["restorable_ts"] is None else now_ms - row["restorable_ts"]
    where = ["--repo", repository]
    if reader.catalog_uri != f"{reader.home.uri}/catalog":
        where += ["--catalog", reader.catalog_uri]
    return found | {"verdict": verdict(found["sources"]), "findings": findings(found, where)}


def status_lines(reader: CatalogReader, rows: Iterable[Mapping[str, Any]], flags: Sequence[str]) -> list[str]:
    """What is wrong with the sources that are not OK, a line each with the command that mends it. `rows`: of
    the view `status`; `flags`: the flags that name the repository."""
    details = {row["source"]: row["detail"] for row in rows}
    define_stages(reader, internal=True)
    sources = [row for row in reader.rows("report_sources") if row["source"] in details]
    report = {
        "sources": [{**row, "detail": details[row["source"]]} for row in sources],
        "topics": reader.rows("report_topics", most=MOST),
        "unprotected": reader.rows("report_unprotected", most=NAMED_TOPICS),
        "faults": [row for row in reader.rows("report_faults", most=MOST) if row["source"] in details],
        **{name: [] for name in ("kept", "gaps", "checks")},
    }
    return troubles(report, flags)

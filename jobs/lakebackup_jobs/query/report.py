"""What is protected, until when, and what is missing: as facts, and as one page that shows them.

DuckDB answers it from the catalog, no JVM. The page is whole in itself: its pictures are SVG, there is no
script and no address in it, and it forbids the browser to load anything.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lakebackup.rules.times import format_ts
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.runtime.terminal_text import all_visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template

    from lakebackup.store.reader import CatalogReader

    Rows = Sequence[Mapping[str, Any]]

MOST = 100
"""Rows of a list, of each source where it is about topics; the page shows when there are more."""
CHAINS, TOPICS, STEPS = 24, 40, 400
"""What a picture has room for: lines, and marks side by side."""
_PICTURED = 12  # sources
_STAGES = {"covered": "report_covered", "unusable": "report_unusable", "protected": "report_protected"}

# The tables of a summary: the facts that each takes its rows from, and its columns, as `shown=fact` where the
# two have other names.
_TABLES = {
    "sources": ("sources", "source backups topics last_backup_at=finished_at restorable_ts ago=lag_ms"),
    "topics": ("topics", "source topic=scope partitions=regions restorable_ts ago=lag_ms gaps forks"),
    "held": ("items", "source topic=scope chains backups files entries=items bytes"),
    "chains": ("kept", "source chain=base from_ts to_ts backups entries=items bytes obsolete obsolete_bytes"),
    "gaps": ("gaps", "source topic=scope what=status reason from_ts to_ts partitions=regions"),
    "unusable": ("faults", "source reason at_fault=fault_backup_id backups path"),
    "storage": ("storage", "source destination backups files entries bytes pruned_bytes"),
    "verified": ("checks", "mode at objects ok missing changed damaged orphans=orphan"),
}


def facts(reader: CatalogReader, now_ms: int) -> dict[str, Any]:
    """All that the report shows, bounded whatever the catalog's size.

    Scalars: generated_ts, catalog, schema_version, versions (Delta version of each table). Lists of rows:
    findings (kind bad or note, text), sources, topics, items (what topics hold), kept (chains, and what of
    them the policy makes obsolete), gaps, faults, storage, checks; for pictures chains, marks, breaks,
    intervals, growth. Columns as in the queries `report_*`; times in ms or us as their names end.
    """
    for relation, query in _STAGES.items():
        reader.define(relation, query)
    reader.define("drawn", "report_chains", chains=CHAINS)
    found: dict[str, Any] = {
        "generated_ts": now_ms,
        "catalog": reader.catalog_uri,
        "schema_version": reader.version(),
        "versions": reader.versions(),
        "findings": [],
        "sources": reader.rows("report_sources"),
        "topics": reader.rows("report_topics", most=MOST),
        "items": reader.rows("report_items", most=MOST),
        "kept": reader.rows("report_kept", chains=CHAINS),
        "gaps": reader.rows("report_gaps", most=MOST),
        "faults": reader.rows("report_faults", most=MOST),
        "storage": reader.rows("report_storage"),
        "checks": reader.rows("report_checks"),
        "chains": reader.rows("report_chains", chains=CHAINS),
        "marks": reader.rows("report_marks", steps=STEPS),
        "breaks": reader.rows("report_breaks"),
        "intervals": reader.rows("report_intervals", topics=TOPICS, steps=STEPS),
        "growth": reader.rows("report_growth", steps=STEPS),
    }
    for row in (*found["sources"], *found["topics"]):
        row["lag_ms"] = None if row["restorable_ts"] is None else now_ms - row["restorable_ts"]
    found["findings"] = list(_findings(found))
    return found


def page(found: Mapping[str, Any]) -> str:
    """The facts as one HTML page."""
    from importlib.metadata import version

    from markupsafe import Markup

    from lakebackup_jobs.query import charts

    found = all_visible(found)

    def of(name: str, source: str) -> Rows:
        return [row for row in found[name] if row["source"] == source]

    def picture(chart: charts.AnyChart) -> Markup:
        return Markup(charts.to_svg(chart))  # noqa: S704 - the charts escape their texts themselves

    pictures = {
        source: {
            "timeline": picture(
                charts.timeline(of("chains", source), of("marks", source), of("breaks", source))
            ),
            "coverage": picture(charts.coverage(of("intervals", source))),
            "growth": picture(charts.growth(of("growth", source))),
        }
        for source in [row["source"] for row in found["sources"]][:_PICTURED]
    }
    topics = {source: list(rows) for source, rows in groupby(found["topics"], key=lambda row: row["source"])}
    return _template().render(
        **{**found, "topics": topics},
        pictures=pictures,
        chains_shown=CHAINS,
        topics_shown=TOPICS,
        bad=any(finding["kind"] == "bad" for finding in found["findings"]),
        tool=version("lakebackup"),
    )


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """The facts for a terminal: scalars and tables, without what only the pictures need."""
    findings = [
        {"kind": "wrong" if row["kind"] == "bad" else "note", "finding": row["text"]}
        for row in found["findings"]
    ]
    tables = {}
    for name, (rows, columns) in _TABLES.items():
        pairs = [(column.partition("=")[0], column.rpartition("=")[2]) for column in columns.split()]
        tables[name] = [
            {shown: _ago(row[fact]) if fact == "lag_ms" else row[fact] for shown, fact in pairs}
            for row in found[rows]
        ]
    return {
        "catalog": found["catalog"],
        "generated_ts": found["generated_ts"],
        "findings": findings,
        **tables,
    }


def _findings(found: Mapping[str, Any]) -> Any:
    """What somebody should know, worst first."""

    def bad(text: str) -> dict[str, str]:
        return {"kind": "bad", "text": text}

    for row in found["sources"]:
        if row["finished_at"] is None:
            yield bad(f"{row['source']}: no backup can be restored.")
        elif row["lost"]:
            yield bad(f"{row['source']}: {_count(row['lost'], 'topic')} cannot be restored at all.")
    causes = [row for row in found["faults"] if row["reason"] != "out_of_sync"]
    if causes:
        more = _more(found["faults"])
        yield bad(
            f"Backups cannot be used, or not with all their topics: {more}{_count(len(causes), 'cause')}."
        )
    for status, kind, text in (
        ("gap", "bad", "cannot be restored"),
        ("fork", "note", "backed up from a history that the source has given up"),
    ):
        rows = [row for row in found["gaps"] if row["status"] == status]
        if rows:
            scopes = len({(row["source"], row["scope"]) for row in rows})
            much = f"{_count(len(rows), 'interval')} of {_count(scopes, 'topic')}"
            yield {"kind": kind, "text": f"{_more(found['gaps'])}{much} {text}."}
    if not found["sources"]:
        yield {"kind": "note", "text": "The catalog holds no backup yet."}
    elif not found["checks"]:
        yield {"kind": "note", "text": "Nothing was verified yet: `lakebackup verify` reads every object."}
    orphans = sum(row["orphan"] for row in found["checks"][:1])
    if orphans:
        yield {"kind": "note", "text": f"{_count(orphans, 'object')} in the storage that no backup names."}


def _more(rows: Rows) -> str:
    return "at least " if rows[0]["all_rows"] > len(rows) else ""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _ago(ms: int | None) -> str:
    """A span in its two greatest units: `3 d 4 h`."""
    if ms is None:
        return ""
    seconds = max(0, ms // 1000)
    found: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= size or (unit == "s" and not found):
            found.append(f"{seconds // size} {unit}")
        elif found:
            break
        seconds %= size
    return " ".join(found[:2])


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    pages = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pages.filters |= {
        "ts": lambda ms: "" if ms is None else format_ts(ms).replace("T", " ")[:19],
        "at": lambda us: "" if us is None else format_ts(us // 1000).replace("T", " ")[:19],
        "size": lambda size: "" if size is None else human_bytes(size),
        "number": lambda number: "" if number is None else f"{number:,}",
        "ago": _ago,
    }
    return pages.from_string(files(__package__).joinpath("report.html.j2").read_text("utf-8"))

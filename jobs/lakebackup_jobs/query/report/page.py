"""The report as one HTML page that loads nothing: it contains its style, its charts and Plotly's script.

Only the page's own two scripts may run, since its security policy lists their digests. So no name of a
topic or a source can become a script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from lakebackup.rules.times import format_ts
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query import charts, words
from lakebackup_jobs.query.report.findings import state_words
from lakebackup_jobs.query.report.values import DAYS, TOPICS
from lakebackup_jobs.runtime.terminal_text import all_visible

FINDINGS, ROWS = 20, 100
"""The most findings in the list, and rows of the table behind a chart; the page counts the others."""


def page(facts: Mapping[str, Any]) -> str:
    """Return the report as one HTML page. `facts`: the values that `facts` returned."""
    now_ms, facts = facts["generated_ts"], all_visible(facts)
    missing = {(row["source"], row["scope"]) for row in facts["intervals"] if row["status"] == "gap"}
    lines = [
        {**row, "line": f"{row['source']} / {row['scope']}"}
        for row in facts["intervals"]
        if (row["source"], row["scope"]) in missing
    ]
    all_charts = {
        "calendar": charts.calendar(facts["runs"], now_ms, DAYS),
        "restorable": charts.coverage(facts["spans"]),
        "topics-with-gaps": charts.coverage(lines, "line"),
        "durations": charts.durations(facts["runs"], now_ms, DAYS),
        "growth": charts.growth([row for row in facts["growth"] if row["from_ts"] <= now_ms]),
    }
    page_charts = {name: chart for name, chart in all_charts.items() if chart}
    scripts = [charts.script(), _file("page.js")] if page_charts else [_file("page.js")]
    topics = {source: list(rows) for source, rows in groupby(facts["topics"], key=lambda row: row["source"])}
    newest = sorted(facts["runs"], key=lambda row: (-row["day_ts"], row["source"]))
    return _template().render(
        **{**facts, "topics": topics},
        charts=page_charts,
        config=charts.CONFIG,
        heights={name: chart["layout"]["height"] for name, chart in page_charts.items()},
        days=DAYS,
        narrow_days=charts.NARROW_DAYS,
        topics_shown=TOPICS,
        runs_newest=newest,
        ended=[row for row in newest if row["longest_ms"] is not None],
        lines=lines,
        policy=_policy,
        most=ROWS,
        most_findings=FINDINGS,
        style=Markup(_file("page.css")),  # noqa: S704 - a file of this package
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - likewise, and Plotly's
        digests=[_digest(script) for script in scripts],
        tool=version("lakebackup"),
    )


def _policy(row: Mapping[str, Any]) -> list[str]:
    """Return a source's policy as phrases; an empty list if it has none."""
    parts = [
        ("full {}", row["full_schedule"]),
        ("incremental {}", row["incremental_schedule"]),
        ("recovery window {} days", row["window_days"]),
        ("keep the newest {} fulls", row["redundancy"]),
        ("keep {}", row["keep"]),
        ("time zone {}", row["time_zone"]),
    ]
    phrases = [text.format(value) for text, value in parts if value]
    return phrases or (["no schedule, keeps everything"] if row["has_policy"] else [])


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _when(ms: int | None) -> Markup | str:
    """Return an instant as a `time` element: to the minute with its zone, for programs to the millisecond."""
    if ms is None:
        return ""
    return Markup('<time datetime="{}">{}</time>').format(format_ts(ms), words.moment(ms))


@cache
def _template() -> Template:
    pages = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    pages.filters |= {
        "ts": _when,
        "at": lambda us: _when(None if us is None else us // 1000),
        "day": words.day,
        "size": lambda size: "" if size is None else human_bytes(size),
        "number": lambda number: "" if number is None else f"{number:,}",
        "span": words.span,
        "counted": words.counted,
        "words": state_words,
    }
    return pages.from_string(_file("page.html.j2"))

"""The report as one page that loads nothing: its style, its charts and Plotly's script are in it.

Only the two scripts that the page itself brings may run (their digests are in its security policy), so that
no name of a topic or a source can become one.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lakebackup.rules.times import format_ts
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query import charts, words
from lakebackup_jobs.query.report.findings import state_words
from lakebackup_jobs.query.report.values import DAYS, TOPICS
from lakebackup_jobs.runtime.terminal_text import all_visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template
    from markupsafe import Markup

FINDINGS, ROWS = 20, 100
"""Findings that are listed, and rows of a table behind a chart; the page counts the others."""


def page(found: Mapping[str, Any]) -> str:
    """The values of `facts` as one HTML page."""
    from importlib.metadata import version

    from markupsafe import Markup

    now, found = found["generated_ts"], all_visible(found)
    missing = {(row["source"], row["scope"]) for row in found["intervals"] if row["status"] == "gap"}
    lines = [
        {**row, "line": f"{row['source']} / {row['scope']}"}
        for row in found["intervals"]
        if (row["source"], row["scope"]) in missing
    ]
    drawn = {
        "calendar": charts.calendar(found["runs"], now, DAYS),
        "restorable": charts.coverage(found["spans"]),
        "topics-with-gaps": charts.coverage(lines, "line"),
        "durations": charts.durations(found["runs"], now, DAYS),
        "growth": charts.growth([row for row in found["growth"] if row["from_ts"] <= now]),
    }
    shown = {name: chart for name, chart in drawn.items() if chart}
    scripts = [charts.script(), _file("page.js")] if shown else [_file("page.js")]
    topics = {source: list(rows) for source, rows in groupby(found["topics"], key=lambda row: row["source"])}
    newest = sorted(found["runs"], key=lambda row: (-row["day_ts"], row["source"]))
    return _template().render(
        **{**found, "topics": topics},
        charts=shown,
        config=charts.CONFIG,
        heights={name: chart["layout"]["height"] for name, chart in shown.items()},
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
    """A source's policy in words, a part each; none where it has no policy."""
    parts = [
        ("full {}", row["full_schedule"]),
        ("incremental {}", row["incremental_schedule"]),
        ("recovery window {} days", row["window_days"]),
        ("keep the newest {} fulls", row["redundancy"]),
        ("keep {}", row["keep"]),
        ("time zone {}", row["time_zone"]),
    ]
    kept = [text.format(value) for text, value in parts if value]
    return kept or (["no schedule, keeps everything"] if row["has_policy"] else [])


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _when(ms: int | None) -> Markup | str:
    """An instant to the minute, with its zone; to the millisecond for programs."""
    from markupsafe import Markup

    if ms is None:
        return ""
    return Markup('<time datetime="{}">{}</time>').format(format_ts(ms), words.moment(ms))


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

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

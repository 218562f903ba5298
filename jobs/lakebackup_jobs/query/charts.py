"""Pictures of a catalog, for the report and for notebooks: what is restorable, what is missing, what grew.

They take rows that SQL has made few already (a row a chain, an interval, a day; never a row a file), and
become SVG without a browser and without a network. Times are ms since 1970 and shown in UTC.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import altair as alt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Rows = Sequence[Mapping[str, Any]]
    AnyChart = alt.LayerChart | alt.FacetChart | alt.VConcatChart

COLOURS = {
    "restorable": "#4c8fbd",
    "gap": "#d3122a",
    "fork": "#ee9a2e",
    "unusable": "#8b939e",
    "pruned": "#d5dae0",
}
"""Blue, red and orange are told apart by the colour-blind too, and red is the darkest in print."""
_INK, _FAINT, _LINE = "#2b3440", "#66707c", "#e4e8ec"
_NEW, _REFERENCED, _REMOVED = "#1f6391", "#bcd6e8", "#c9a227"
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_WIDTH = 940  # a picture of lines with all that belongs to it
_PANEL = 860  # the panels of the other one, which cannot be fitted
_FITTED: dict[str, Any] = {
    "width": _WIDTH,
    "autosize": alt.AutoSizeParams(type="fit-x", contains="padding"),
}
_MINUTE, _DAY = 60_000, 86_400_000
_FORMATS = (
    (15 * _MINUTE, "%H:%M:%S"),
    (1.5 * _DAY, "%H:%M"),
    (4 * _DAY, "%b %d %H:%M"),
    (300 * _DAY, "%b %d"),
)
_BYTES = "replace(format(datum.value, '.3~s'), /([a-zA-Z]?)$/, ' $1B')"


def timeline(chains: Rows, backups: Rows, gaps: Rows) -> AnyChart:
    """The chains of one source, a line each: its full, the backups that depend on it, what is missing in red.

    `chains`: line (its name), from_ts (end of the full), to_ts (end of the newest backup), restorable_ts
    (until when it can be restored, None: not at all). `backups`: line, ts, kind, status. `gaps`: line (the
    chain that noticed), from_ts, to_ts. A status is one of `COLOURS`.
    """
    order = [row["line"] for row in chains]
    spans = [
        {"line": row["line"], "from": start, "to": end, "status": status}
        for row in chains
        for status, start, end in (
            ("restorable", row["from_ts"], row["restorable_ts"]),
            ("unusable", row["restorable_ts"] or row["from_ts"], row["to_ts"]),
        )
        if end is not None and end > start
    ]
    lost = [
        {"line": row["line"], "from": row["from_ts"], "to": row["to_ts"], "status": "gap"} for row in gaps
    ]
    points = [
        {
            "line": row["line"],
            "from": row["ts"],
            "status": row["status"],
            "kind": "full" if row["kind"] == "full" else "incremental",
        }
        for row in backups
    ]
    colour, time = _status([*spans, *lost, *points]), _time(spans, lost, points)
    return _finish(
        alt.layer(
            _bars(spans, time, _line(order, "line"), colour, height=9),
            _bars(lost, time, _line(order, "line"), colour, height=15, short=True),
            alt.Chart(_data(points))
            .mark_point(filled=True, opacity=1, stroke="white", strokeWidth=0.8)
            .encode(
                x=time,
                y=_line(order, "line"),
                color=colour,
                shape=alt.Shape(
                    "kind:N",
                    scale=_scale({"full": "diamond", "incremental": "circle"}),
                    legend=alt.Legend(title=None, symbolFillColor=_FAINT),
                ),
                size=alt.Size(
                    "kind:N",
                    scale=_scale({"full": 130, "incremental": 45}),
                    legend=None,
                ),
            ),
        ).properties(height=alt.Step(26), **_FITTED)
    )


def coverage(intervals: Rows) -> AnyChart:
    """Which times each topic can be restored to: a line a topic, in the order of the rows, gaps in red.

    `intervals`: scope, status (one of `COLOURS`), from_ts, to_ts.
    """
    order = list(dict.fromkeys(row["scope"] for row in intervals))
    rows = [
        {"scope": row["scope"], "from": row["from_ts"], "to": row["to_ts"], "status": row["status"]}
        for row in intervals
    ]
    held = [row for row in rows if row["status"] == "restorable"]
    rest = [row for row in rows if row["status"] != "restorable"]
    time, line, colour = _time(rows), _line(order, "scope"), _status(rows)
    return _finish(
        alt.layer(
            _bars(held, time, line, colour, height=11), _bars(rest, time, line, colour, height=15, short=True)
        ).properties(height=alt.Step(24), **_FITTED)
    )


def growth(days: Rows) -> AnyChart:
    """What each day brought and what is kept, one above the other.

    `days`: from_ts and to_ts (the day, or several), new_bytes, removed_bytes, referenced_bytes (what its
    restore points refer to without having copied it again), held_bytes (at its end).
    """
    brought, held, line = [], [], []
    for row in days:
        span = {"from": row["from_ts"], "to": row["to_ts"]}
        new, old = row["new_bytes"], row["referenced_bytes"]
        brought.append({**span, "what": "new", "low": 0, "high": new})
        if row["removed_bytes"]:
            brought.append({**span, "what": "removed", "low": -row["removed_bytes"], "high": 0})
        held.append({**span, "what": "referenced", "low": 0, "high": old})
        held.append({**span, "what": "new", "low": old, "high": old + new})
        line.append({"from": row["from_ts"], "what": "kept in all", "high": row["held_bytes"]})
    if days:  # the last day ends too
        line.append({**line[-1], "from": days[-1]["to_ts"]})
    colour = alt.Color(
        "what:N",
        scale=_scale({"new": _NEW, "referenced": _REFERENCED, "removed": _REMOVED, "kept in all": _INK}),
        legend=alt.Legend(title=None),
    )
    kept = "needed, and kept in all"
    time = _time(brought, line, least=14 * _DAY)
    return _finish(
        alt.vconcat(
            _columns(brought, time, "brought and removed", colour).properties(width=_PANEL, height=150),
            alt.layer(
                _columns(held, time, kept, colour),
                alt.Chart(_data(line))
                .mark_line(strokeWidth=1.6, interpolate="step-after")
                .encode(x=time, y=_bytes(kept), color=colour),
            ).properties(width=_PANEL, height=150),
            spacing=18,
        )
    )


def to_svg(chart: AnyChart) -> str:
    """The chart as an SVG element to be put into a page: no address, no script, no reference in it."""
    import vl_convert

    svg = str(vl_convert.vegalite_to_svg(chart.to_dict()))
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg, count=2)  # HTML knows what an <svg> is


def _bars(
    rows: Rows, time: alt.X, line: alt.Y, colour: alt.Color, *, height: int, short: bool = False
) -> alt.Chart:
    """`short`: drawn with a stroke, which keeps what is shorter than a pixel visible."""
    mark: dict[str, Any] = {"strokeWidth": 2} if short else {"cornerRadius": 2}
    stroke = {"stroke": alt.Stroke("status:N", scale=colour["scale"], legend=None)} if short else {}
    chart = alt.Chart(_data(rows)).mark_bar(height=height, **mark)
    encoded: alt.Chart = chart.encode(x=time, x2="to:Q", y=line, color=colour, **stroke)
    return encoded


def _columns(rows: Rows, time: alt.X, title: str, colour: alt.Color) -> alt.Chart:
    mark = alt.Chart(_data(rows)).mark_rect(stroke="white", strokeWidth=0.4)
    encoded: alt.Chart = mark.encode(x=time, x2="to:Q", y=_bytes(title), y2="low:Q", color=colour)
    return encoded


def _data(rows: Iterable[Mapping[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=[dict(row) for row in rows])


def _time(*rows: Rows, least: int = 0) -> alt.X:
    """The axis of `rows`, which have `from` and perhaps `to`: to their end, and `least` ms or longer."""
    ends = [row[end] for some in rows for row in some for end in ("from", "to") if end in row] or [0]
    last = max(ends)
    first = min(*ends, last - least)
    form = next((form for span, form in _FORMATS if last - first < span), "%b %Y")
    return alt.X(
        "from:T",
        scale=alt.Scale(type="utc", domain=[first, max(last, first + 1)], padding=8),
        axis=alt.Axis(title=None, tickCount=7, labelOverlap="greedy", format=form),
    )


def _line(order: Sequence[str], field: str) -> alt.Y:
    return alt.Y(
        f"{field}:N",
        sort=list(order),
        axis=alt.Axis(title=None, ticks=False, labelLimit=230, labelPadding=10),
    )


def _bytes(title: str) -> alt.Y:
    return alt.Y(
        "high:Q",
        axis=alt.Axis(title=title, labelExpr=_BYTES, tickCount=4, titleFontWeight="normal", minExtent=52),
    )


def _status(rows: Rows) -> alt.Color:
    there = {row["status"] for row in rows}
    shown = [status for status in COLOURS if status in there] or ["restorable"]
    scale = _scale({status: COLOURS[status] for status in shown})
    return alt.Color("status:N", scale=scale, legend=alt.Legend(title=None))


def _scale(values: Mapping[str, Any]) -> alt.Scale:
    return alt.Scale(domain=list(values), range=list(values.values()))


def _finish(chart: AnyChart) -> AnyChart:
    finished: AnyChart = (
        chart.configure(font=_FONT, background="transparent", aria=False, padding=4)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=_FAINT,
            titleColor=_FAINT,
            labelFontSize=11,
            titleFontSize=11,
            gridColor=_LINE,
            domain=False,
            tickColor=_LINE,
        )
        .configure_legend(
            orient="top", labelColor=_INK, labelFontSize=11.5, symbolSize=110, offset=6, symbolStrokeWidth=0
        )
    )
    return finished

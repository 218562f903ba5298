"""Charts of a catalog, for the report and for notebooks: when backups ran, what can be restored, what grew.

They take rows that SQL has made few already (a row a day, an interval; never a row a file). A chart is a
value, Plotly's figure as a mapping: `data` and `layout`; None where there is nothing to draw. Plotly's basic
bundle, which lies in the folder `plotly`, draws it without a network. Times are ms since 1970, shown in UTC.
"""

from __future__ import annotations

import json
import uuid
from html import escape
from importlib.resources import files
from math import log10
from typing import TYPE_CHECKING, Any

from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query.words import counted, day, moment, span
from lakebackup_jobs.runtime.terminal_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Rows = Sequence[Mapping[str, Any]]

Chart = dict[str, Any]
"""Plotly's figure."""
Bars = dict[str, list[tuple[float, float, int, str]]]
"""Of each status: begins, length, line, what a pointer is shown."""

COLOURS = {
    "restorable": "#4c8fbd",
    "approximate": "#8f72c4",
    "gap": "#d9363e",
    "fork": "#cf7a12",
    "unusable": "#7f8894",
    "pruned": "#a3acb7",
    "succeeded": "#4c8fbd",
    "failed": "#d9363e",
    "missed": "#cf7a12",
}
"""All are visible on white and on black; colour-blind people can distinguish blue, red and orange."""
LANES = 40
"""As many lines as a chart has room for; the last rows are left out."""
NARROW_DAYS = 28
"""Days of runs that a phone has room for; `layout.meta.narrow` has their range."""
CONFIG = {"displayModeBar": False, "responsive": True}
"""How Plotly shows every chart."""
_FEWEST_DAYS = 14  # that an axis of days has, so that one backup is no bar as wide as the chart
_SHORTEST = 6  # hours that an axis of times has, so that its ticks are whole minutes
_SOURCES = ("#4c8fbd", "#2f9e8f", "#8f72c4", "#b8783c", "#8a9a2e", "#c4628f", "#6f86a6", "#4aa564")
_INK, _GRID = "#75808d", "rgba(128,140,155,0.22)"
_FONT = 'system-ui, "Segoe UI", "Liberation Sans", Arial, sans-serif'
_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
_LANE, _TOP, _BOTTOM = 42, 34, 44  # pixels
_SPANS = (
    (100, "0.1 s"), (1_000, "1 s"), (10_000, "10 s"), (_MINUTE, "1 min"), (10 * _MINUTE, "10 min"),
    (_HOUR, "1 h"), (6 * _HOUR, "6 h"), (_DAY, "1 d"), (7 * _DAY, "7 d"),
)  # fmt: skip
_AXIS: dict[str, Any] = {
    "gridcolor": _GRID, "zerolinecolor": _GRID, "linecolor": _GRID, "tickfont": {"size": 11},
    "fixedrange": True, "automargin": True,
}  # fmt: skip
_WORSE = ("failed", "missed", "succeeded")


def calendar(days: Rows, now_ms: int, most_days: int) -> Chart | None:
    """What became of each source's runs on each of the `most_days` up to `now_ms`: a cell a day, the worst
    of them counts.

    `days`: source, day_ts, succeeded, failed, missed (numbers of runs).
    """
    days = _until(days, now_ms)
    lanes = _lanes(row["source"] for row in days)
    bars: Bars = {}
    for row in days:
        if row["source"] in lanes:
            worst = next((state for state in _WORSE if row[state]), "succeeded")
            counts = ", ".join(f"{row[state]:,} {state}" for state in reversed(_WORSE) if row[state])
            hover = f"{_text(row['source'])}<br>{day(row['day_ts'])}: {counts}"
            cell = (row["day_ts"] + 0.1 * _DAY, 0.8 * _DAY, lanes[row["source"]], hover)
            bars.setdefault(worst, []).append(cell)
    chart = _bars(bars, lanes)
    if chart:
        _set_days(chart, days, now_ms, most_days)
    return chart


def coverage(intervals: Rows, lane: str = "source") -> Chart | None:
    """Which times can be restored, and which not, in red: a line for each value of the column `lane`, in the
    order of the rows.

    `intervals`: the column `lane`, status (one of `COLOURS`), from_ts, to_ts; scopes, where a line is of
    several topics: how many the interval is about.
    """
    lanes = _lanes(row[lane] for row in intervals)
    bars: Bars = {}
    for row in intervals:
        if row[lane] in lanes:
            what = f"{row['status']}, {counted(row['scopes'], 'topic')}" if "scopes" in row else row["status"]
            when = f"{moment(row['from_ts'])} to {moment(row['to_ts'])}"
            bar = (row["from_ts"], row["to_ts"] - row["from_ts"], lanes[row[lane]])
            bars.setdefault(row["status"], []).append((*bar, f"{_text(row[lane])}<br>{what}<br>{when}"))
    chart = _bars(bars, lanes)
    if chart:
        shown = [row for row in intervals if row[lane] in lanes]
        first, last = min(row["from_ts"] for row in shown), max(row["to_ts"] for row in shown)
        margin = max((last - first) // 30, _SHORTEST * _HOUR - (last - first))
        chart["layout"]["xaxis"]["range"] = [first - margin // 2, last + margin - margin // 2]
    return chart


def durations(days: Rows, now_ms: int, most_days: int) -> Chart | None:
    """How long each source's longest run of a day took, and on which days one failed, in the `most_days`
    up to `now_ms`; of more than eight sources, those with the longest runs.

    `days`: source, day_ts, failed, longest_ms (None: none ended).
    """
    days = _until(days, now_ms)
    of: dict[str, list[Mapping[str, Any]]] = {}
    for row in days:
        if row["longest_ms"] is not None:
            of.setdefault(row["source"], []).append(row)
    longest = {source: max(row["longest_ms"] for row in rows) for source, rows in of.items()}
    chosen = sorted(sorted(of, key=lambda source: -longest[source])[: len(_SOURCES)])
    traces = [
        _points(source, of[source])
        | {"mode": "lines+markers", "line": {"color": colour, "width": 1.6}}
        | {"marker": {"size": 5, "color": colour}}
        for source, colour in zip(chosen, _SOURCES, strict=False)
    ]
    failed = [row for source in chosen for row in of[source] if row["failed"]]
    if failed:
        marker = {"symbol": "x", "size": 10, "color": COLOURS["failed"]}
        traces.append(_points("failed", failed) | {"mode": "markers", "marker": marker})
    if not traces:
        return None
    values = [_least(row) for source in chosen for row in of[source]]
    low, high = min(values) / 2, max(*values, 10 * min(values)) * 2
    ticks = [(value, label) for value, label in _SPANS if low <= value <= high]
    axis = {
        "type": "log",
        "tickvals": [value for value, _ in ticks],
        "ticktext": [label for _, label in ticks],
        "range": [log10(low), log10(high)],
    }
    chart = _chart(traces, 300, yaxis=axis)
    _set_days(chart, days, now_ms, most_days)
    return chart


def growth(spans: Rows) -> Chart | None:
    """What is stored, one source above the other, and beneath what came and what prunes deleted; of more than
    eight sources, the smaller ones together.

    `spans`: source, from_ts and to_ts (a day, or several), new_bytes, removed_bytes, held_bytes (at its end).
    """
    if not spans:
        return None
    starts = sorted({row["from_ts"] for row in spans})
    end = max(row["to_ts"] for row in spans)
    last = {row["source"]: row["held_bytes"] for row in spans}  # they come in the order of time
    large = sorted(last, key=lambda source: -last[source])
    large = sorted(large if len(large) <= len(_SOURCES) else large[: len(_SOURCES) - 1])
    names = [*large, *([f"{len(last) - len(large)} others"] if len(large) < len(last) else [])]
    traces = []
    for place, (name, colour) in enumerate(zip(names, _SOURCES, strict=False)):
        of = {name} if place < len(large) else last.keys() - set(large)
        held = _held([row for row in spans if row["source"] in of], starts)
        line = {"color": colour, "width": 1, "shape": "hv"}
        traces.append(
            _sizes(name, starts, held)
            | {"type": "scatter", "x": [*starts, end], "y": [*held, held[-1]], "line": line}
            | {"mode": "lines", "stackgroup": "held"}
        )
    width = max(row["to_ts"] - row["from_ts"] for row in spans)
    most = max(sum(sizes) for sizes in zip(*(trace["y"] for trace in traces), strict=True))
    changed = [0]
    for name, column, colour, sign in (
        ("added", "new_bytes", "#6f86a6", 1),
        ("pruned", "removed_bytes", "#b98a12", -1),
    ):
        total = dict.fromkeys(starts, 0)
        for row in spans:
            total[row["from_ts"]] += row[column]
        if any(total.values()):
            bar = {"type": "bar", "yaxis": "y2", "width": width * 0.86, "marker": {"color": colour}}
            changed += [sign * size for size in total.values()]
            middles = [at + width / 2 for at in starts]
            traces.append(
                _sizes(name, starts, [*total.values()]) | bar | {"x": middles, "y": changed[-len(starts) :]}
            )
    period = "per day" if width <= _DAY else f"per {width // _DAY} days"
    return _chart(
        traces,
        380,
        barmode="relative",
        xaxis={"anchor": "y2", "range": [min(starts[0], end - _FEWEST_DAYS * _DAY), end]},
        yaxis={**_size_axis(0, most, 4), "domain": [0.4, 1], "title": _title("stored")},
        yaxis2={
            **_AXIS,
            **_size_axis(min(changed), max(changed), 2),
            "domain": [0, 0.26],
            "title": _title(period),
        },
    )


def to_html(chart: Chart) -> str:
    """The chart as an element of a page, with Plotly's script: for a notebook, or a file of its own."""
    name = f"chart-{uuid.uuid4()}"
    data, layout, config = (
        json.dumps(part).replace("<", "\\u003c") for part in (chart["data"], chart["layout"], CONFIG)
    )
    draw = f'Plotly.newPlot("{name}", {data}, {layout}, {config})'
    return f'<div id="{name}"></div>\n<script>{script()}</script>\n<script>{draw}</script>\n'


def script() -> str:
    """Plotly's script for charts of lines and bars, 1.2 MB, for a page of several charts."""
    return files(__package__).joinpath("plotly/plotly-basic.min.js").read_text("utf-8")


def _until(days: Rows, now_ms: int) -> Rows:
    """The days up to an instant: a backup whose clock was wrong may have a later one."""
    return [row for row in days if row["day_ts"] <= now_ms]


def _set_days(chart: Chart, days: Rows, now_ms: int, most_days: int) -> None:
    """Let the time axis begin with the first of the days that have data, and end with today."""
    today = now_ms // _DAY * _DAY
    first = min(min(row["day_ts"] for row in days), today - (_FEWEST_DAYS - 1) * _DAY)
    start = max(first, today - (most_days - 1) * _DAY)
    chart["layout"]["xaxis"]["range"] = [start, today + _DAY]
    chart["layout"]["meta"] = {"narrow": [max(start, today - (NARROW_DAYS - 1) * _DAY), today + _DAY]}


def _size_axis(low: int, high: int, steps: int) -> dict[str, Any]:
    """An axis of bytes from `low` (0 or less) to `high`, with about so many ticks, at round sizes."""
    step = 1000.0
    while (high - low) > step * steps:
        step *= 2.5 if f"{step:.0f}".startswith("2") else 2
    ticks = [int(step * n) for n in range(-int(-low // step), int(high // step) + 1)]
    margin = max(high - low, 1) * 0.04
    return {
        "tickvals": ticks, "ticktext": [human_bytes(abs(tick)) if tick else "0" for tick in ticks],
        "range": [low - margin if low else 0, high + margin],
    }  # fmt: skip


def _lanes(names: Iterable[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(list(dict.fromkeys(names))[:LANES])}


def _bars(bars: Bars, lanes: Mapping[str, int]) -> Chart | None:
    """Bars of each status (from, length, line, hover), each line with its name above it."""
    if not lanes:
        return None
    traces = [
        {
            "type": "bar", "orientation": "h", "name": status, "hoverinfo": "text",
            "base": [bar[0] for bar in bars[status]], "x": [bar[1] for bar in bars[status]],
            "y": [bar[2] for bar in bars[status]], "hovertext": [bar[3] for bar in bars[status]],
            "textposition": "none",
            # What all other topics can be restored to shows beside it.
            "width": 0.14 if status == "approximate" else 0.42,
            # A missed run is hollow: nothing is there. Of a span, the outline shows what is shorter than a
            # pixel; that of a day would close the gap to the next.
            "marker": {
                "color": "rgba(207,122,18,0.12)" if status == "missed" else colour,
                "line": {"color": colour, "width": 0 if status in ("succeeded", "failed") else 1.5},
            },
        }
        for status, colour in COLOURS.items() if status in bars
    ]  # fmt: skip
    names = [
        {
            "text": _text(_short(name)), "x": 0, "xref": "paper", "xanchor": "left", "y": place - 0.22,
            "yanchor": "bottom", "showarrow": False, "font": {"size": 12}, "borderpad": 0,
        }
        for name, place in lanes.items()
    ]  # fmt: skip
    return _chart(
        traces,
        _TOP + _BOTTOM + _LANE * len(lanes),
        barmode="overlay",
        annotations=names,
        yaxis={"range": [len(lanes) - 0.6, -0.75], "visible": False},
    )


def _chart(
    traces: list[dict[str, Any]],
    height: int,
    xaxis: Mapping[str, Any] | None = None,
    yaxis: Mapping[str, Any] | None = None,
    **more: Any,
) -> Chart:
    clear, dark = "rgba(0,0,0,0)", "#1d2630"
    time = {**_AXIS, "type": "date", "fixedrange": False, "nticks": 8, "title": _title("time (UTC)")}
    # However far somebody zooms in, no tick has a fraction of a second.
    time["tickformatstops"] = [{"dtickrange": [None, _MINUTE], "value": "%H:%M:%S\n%b %-d, %Y"}]
    layout = {
        "height": height,
        "margin": {"l": 4, "r": 8, "t": _TOP, "b": _BOTTOM},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "font": {"family": _FONT, "size": 12, "color": _INK},
        "hoverlabel": {"bgcolor": dark, "bordercolor": dark, "font": {"color": "#fff"}, "align": "left"},
        "hovermode": "closest",
        "showlegend": True,
        "legend": {
            "orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "bgcolor": clear, "traceorder": "normal",
        },
        "xaxis": {**time, **(xaxis or {})},
        "yaxis": {**_AXIS, **(yaxis or {})},
        **more,
    }  # fmt: skip
    return {"data": traces, "layout": layout}


def _sizes(name: str, starts: Sequence[int], sizes: Sequence[int]) -> dict[str, Any]:
    label = _text(name)
    hover = [f"{label}<br>{day(at)}: {human_bytes(size)}" for at, size in zip(starts, sizes, strict=True)]
    return {"name": label, "hoverinfo": "text", "hovertext": hover}


def _title(text: str) -> dict[str, Any]:
    return {"text": text, "font": {"size": 11}, "standoff": 6}


def _points(name: str, rows: Rows) -> dict[str, Any]:
    hover = [
        f"{_text(row['source'])}<br>{day(row['day_ts'])}: {span(row['longest_ms'])}"
        + (f"<br>{row['failed']:,} failed" if row["failed"] else "")
        for row in rows
    ]
    return {
        "type": "scatter", "name": _text(name), "x": [row["day_ts"] + _DAY // 2 for row in rows],
        "y": [_least(row) for row in rows], "hoverinfo": "text", "hovertext": hover,
    }  # fmt: skip


def _least(row: Mapping[str, Any]) -> int:
    """A duration that a logarithmic axis can show."""
    return max(int(row["longest_ms"]), 100)


def _held(rows: Rows, starts: Sequence[int]) -> list[int]:
    """What some sources hold together in each span; one in which nothing happened is as the one before."""
    changes = {(row["source"], row["from_ts"]): row["held_bytes"] for row in rows}
    now: dict[str, int] = dict.fromkeys((row["source"] for row in rows), 0)
    found = []
    for at in starts:
        now = {source: changes.get((source, at), size) for source, size in now.items()}
        found.append(sum(now.values()))
    return found


def _short(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:47]}…"


def _text(name: str) -> str:
    """A name that is shown and not obeyed: Plotly knows some of HTML's tags."""
    return escape(visible(name), quote=False)

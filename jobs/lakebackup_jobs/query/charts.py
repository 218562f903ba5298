"""Charts of a catalog, for the report and for notebooks: when backups ran, what can be restored, what grew.

They take rows that SQL has aggregated (a row for a day or an interval, never one for a file). A chart is
Plotly's figure as a mapping with `data` and `layout`; None if there is nothing to draw. Plotly's basic
bundle, in the folder `plotly`, draws it without a network. Times are ms since 1970, shown in UTC.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from math import log10
from typing import Any

from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query.words import counted, day, moment, span
from lakebackup_jobs.runtime.terminal_text import visible

Rows = Sequence[Mapping[str, Any]]

#: Plotly's figure.
Chart = dict[str, Any]
#: For each status its bars: start, length, line, and the text that appears under the pointer.
Bars = dict[str, list[tuple[float, float, int, str]]]

#: Colours of the statuses. All are visible on white and on black, and colour-blind people can distinguish
#: blue, red and orange.
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
#: The most lines in a chart. Further rows are left out.
LANES = 40
#: The days of runs that fit on a phone. `layout.meta.narrow` has their range.
NARROW_DAYS = 28
#: Plotly's settings for every chart.
CONFIG = {"displayModeBar": False, "responsive": True}
_FEWEST_DAYS = 14  # the fewest days on an axis, so that one backup is no bar as wide as the chart
_FEWEST_HOURS = 6  # the fewest hours on an axis of times, so that its ticks are whole minutes
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
_WORST_FIRST = ("failed", "missed", "succeeded")


def calendar(days: Rows, now_ms: int, most_days: int) -> Chart | None:
    """Draw the outcomes of each source's runs on each of the `most_days` up to `now_ms`: a cell for each
    day, in the colour of the worst outcome.

    `days`: source, day_ts, succeeded, failed, missed (numbers of runs).
    """
    days = _until(days, now_ms)
    lanes = _lanes(row["source"] for row in days)
    bars: Bars = {}
    for row in days:
        if row["source"] in lanes:
            worst = next((state for state in _WORST_FIRST if row[state]), "succeeded")
            counts = ", ".join(f"{row[state]:,} {state}" for state in reversed(_WORST_FIRST) if row[state])
            hover = f"{_text(row['source'])}<br>{day(row['day_ts'])}: {counts}"
            cell = (row["day_ts"] + 0.1 * _DAY, 0.8 * _DAY, lanes[row["source"]], hover)
            bars.setdefault(worst, []).append(cell)
    chart = _bars(bars, lanes)
    if chart:
        _set_days(chart, days, now_ms, most_days)
    return chart


def coverage(intervals: Rows, lane: str = "source") -> Chart | None:
    """Draw which times can be restored and which cannot: a line for each value of the column `lane`, in the
    order of the rows.

    `intervals`: the column `lane`, status (one of `COLOURS`), from_ts, to_ts; scopes: the number of topics
    in the interval, if a line stands for several.
    """
    lanes = _lanes(row[lane] for row in intervals)
    bars: Bars = {}
    for row in intervals:
        if row[lane] in lanes:
            status = (
                f"{row['status']}, {counted(row['scopes'], 'topic')}" if "scopes" in row else row["status"]
            )
            when = f"{moment(row['from_ts'])} to {moment(row['to_ts'])}"
            bar = (row["from_ts"], row["to_ts"] - row["from_ts"], lanes[row[lane]])
            bars.setdefault(row["status"], []).append((*bar, f"{_text(row[lane])}<br>{status}<br>{when}"))
    chart = _bars(bars, lanes)
    if chart:
        shown_rows = [row for row in intervals if row[lane] in lanes]
        first, last = min(row["from_ts"] for row in shown_rows), max(row["to_ts"] for row in shown_rows)
        margin = max((last - first) // 30, _FEWEST_HOURS * _HOUR - (last - first))
        chart["layout"]["xaxis"]["range"] = [first - margin // 2, last + margin - margin // 2]
    return chart


def durations(days: Rows, now_ms: int, most_days: int) -> Chart | None:
    """Draw how long each source's longest run of a day took, and on which days a run failed, for the
    `most_days` up to `now_ms`. Of more than eight sources, it draws those with the longest runs.

    `days`: source, day_ts, failed, longest_ms (None: no run ended).
    """
    days = _until(days, now_ms)
    rows_by_source: dict[str, list[Mapping[str, Any]]] = {}
    for row in days:
        if row["longest_ms"] is not None:
            rows_by_source.setdefault(row["source"], []).append(row)
    longest = {source: max(row["longest_ms"] for row in rows) for source, rows in rows_by_source.items()}
    sources = sorted(sorted(rows_by_source, key=lambda source: -longest[source])[: len(_SOURCES)])
    traces = [
        _points(source, rows_by_source[source])
        | {"mode": "lines+markers", "line": {"color": colour, "width": 1.6}}
        | {"marker": {"size": 5, "color": colour}}
        for source, colour in zip(sources, _SOURCES, strict=False)
    ]
    failed = [row for source in sources for row in rows_by_source[source] if row["failed"]]
    if failed:
        marker = {"symbol": "x", "size": 10, "color": COLOURS["failed"]}
        traces.append(_points("failed", failed) | {"mode": "markers", "marker": marker})
    if not traces:
        return None
    values = [_shown_ms(row) for source in sources for row in rows_by_source[source]]
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
    """Draw how much is stored, one source above the other, and below that how much was added and pruned. If
    there are more than eight sources, the smaller ones are drawn as one.

    `spans`: source, from_ts, to_ts (one day or several), new_bytes, removed_bytes, held_bytes (at to_ts).
    """
    if not spans:
        return None
    starts = sorted({row["from_ts"] for row in spans})
    end = max(row["to_ts"] for row in spans)
    last = {row["source"]: row["held_bytes"] for row in spans}  # the rows are in the order of time
    large = sorted(last, key=lambda source: -last[source])
    large = sorted(large if len(large) <= len(_SOURCES) else large[: len(_SOURCES) - 1])
    names = [*large, *([f"{len(last) - len(large)} others"] if len(large) < len(last) else [])]
    traces = []
    for index, (name, colour) in enumerate(zip(names, _SOURCES, strict=False)):
        sources = {name} if index < len(large) else last.keys() - set(large)
        held_sizes = _total_sizes([row for row in spans if row["source"] in sources], starts)
        line = {"color": colour, "width": 1, "shape": "hv"}
        traces.append(
            _sizes(name, starts, held_sizes)
            | {"type": "scatter", "x": [*starts, end], "y": [*held_sizes, held_sizes[-1]], "line": line}
            | {"mode": "lines", "stackgroup": "held"}
        )
    width = max(row["to_ts"] - row["from_ts"] for row in spans)
    greatest = max(sum(sizes) for sizes in zip(*(trace["y"] for trace in traces), strict=True))
    changes = [0]
    for name, column, colour, sign in (
        ("added", "new_bytes", "#6f86a6", 1),
        ("pruned", "removed_bytes", "#b98a12", -1),
    ):
        total = dict.fromkeys(starts, 0)
        for row in spans:
            total[row["from_ts"]] += row[column]
        if any(total.values()):
            bar = {"type": "bar", "yaxis": "y2", "width": width * 0.86, "marker": {"color": colour}}
            changes += [sign * size for size in total.values()]
            middles = [start + width / 2 for start in starts]
            traces.append(
                _sizes(name, starts, [*total.values()]) | bar | {"x": middles, "y": changes[-len(starts) :]}
            )
    period = "per day" if width <= _DAY else f"per {width // _DAY} days"
    return _chart(
        traces,
        380,
        barmode="relative",
        xaxis={"anchor": "y2", "range": [min(starts[0], end - _FEWEST_DAYS * _DAY), end]},
        yaxis={**_size_axis(0, greatest, 4), "domain": [0.4, 1], "title": _title("stored")},
        yaxis2={
            **_AXIS,
            **_size_axis(min(changes), max(changes), 2),
            "domain": [0, 0.26],
            "title": _title(period),
        },
    )


def to_html(chart: Chart) -> str:
    """Return the chart as an element of an HTML page, with Plotly's script, for a notebook or a file."""
    name = f"chart-{uuid.uuid4()}"
    data, layout, config = (
        json.dumps(part).replace("<", "\\u003c") for part in (chart["data"], chart["layout"], CONFIG)
    )
    draw = f'Plotly.newPlot("{name}", {data}, {layout}, {config})'
    return f'<div id="{name}"></div>\n<script>{script()}</script>\n<script>{draw}</script>\n'


def script() -> str:
    """Return Plotly's script for charts of lines and bars, 1.2 MB, for a page with several charts."""
    return files(__package__).joinpath("plotly/plotly-basic.min.js").read_text("utf-8")


def _until(days: Rows, now_ms: int) -> Rows:
    """Return the days up to an instant, since a backup whose clock was wrong may have a later day."""
    return [row for row in days if row["day_ts"] <= now_ms]


def _set_days(chart: Chart, days: Rows, now_ms: int, most_days: int) -> None:
    """Let the time axis begin with the first day that has data, and end with today.

    It shows at least _FEWEST_DAYS and at most `most_days` days.
    """
    today = now_ms // _DAY * _DAY
    first = min(min(row["day_ts"] for row in days), today - (_FEWEST_DAYS - 1) * _DAY)
    start = max(first, today - (most_days - 1) * _DAY)
    chart["layout"]["xaxis"]["range"] = [start, today + _DAY]
    chart["layout"]["meta"] = {"narrow": [max(start, today - (NARROW_DAYS - 1) * _DAY), today + _DAY]}


def _size_axis(low: int, high: int, steps: int) -> dict[str, Any]:
    """Return an axis of bytes from `low` (0 or less) to `high`, with about `steps` ticks at round sizes."""
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
    return {name: line for line, name in enumerate(list(dict.fromkeys(names))[:LANES])}


def _bars(bars: Bars, lanes: Mapping[str, int]) -> Chart | None:
    """Return a chart of horizontal bars, each line with its name above it."""
    if not lanes:
        return None
    traces = [
        {
            "type": "bar", "orientation": "h", "name": status, "hoverinfo": "text",
            "base": [bar[0] for bar in bars[status]], "x": [bar[1] for bar in bars[status]],
            "y": [bar[2] for bar in bars[status]], "hovertext": [bar[3] for bar in bars[status]],
            "textposition": "none",
            # The bar is narrow, so that the status of all other topics shows beside it.
            "width": 0.14 if status == "approximate" else 0.42,
            # A missed run is hollow, since it left nothing. Time spans have an outline, so that one shorter
            # than a pixel is visible; days have none, since it would close the gap to the next day.
            "marker": {
                "color": "rgba(207,122,18,0.12)" if status == "missed" else colour,
                "line": {"color": colour, "width": 0 if status in ("succeeded", "failed") else 1.5},
            },
        }
        for status, colour in COLOURS.items() if status in bars
    ]  # fmt: skip
    names = [
        {
            "text": _text(_short(name)), "x": 0, "xref": "paper", "xanchor": "left", "y": line - 0.22,
            "yanchor": "bottom", "showarrow": False, "font": {"size": 12}, "borderpad": 0,
        }
        for name, line in lanes.items()
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
    **settings: Any,
) -> Chart:
    clear, dark = "rgba(0,0,0,0)", "#1d2630"
    time = {**_AXIS, "type": "date", "fixedrange": False, "nticks": 8, "title": _title("time (UTC)")}
    # No tick has a fraction of a second, however far somebody zooms in.
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
        **settings,
    }  # fmt: skip
    return {"data": traces, "layout": layout}


def _sizes(name: str, starts: Sequence[int], sizes: Sequence[int]) -> dict[str, Any]:
    label = _text(name)
    hover = [
        f"{label}<br>{day(start)}: {human_bytes(size)}" for start, size in zip(starts, sizes, strict=True)
    ]
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
        "y": [_shown_ms(row) for row in rows], "hoverinfo": "text", "hovertext": hover,
    }  # fmt: skip


def _shown_ms(row: Mapping[str, Any]) -> int:
    """Return the longest duration of a row in ms, but at least what a logarithmic axis can show."""
    return max(int(row["longest_ms"]), 100)


def _total_sizes(rows: Rows, starts: Sequence[int]) -> list[int]:
    """Return the total size of the sources in `rows` in each span; a source without a row keeps its size."""
    changes = {(row["source"], row["from_ts"]): row["held_bytes"] for row in rows}
    current_sizes: dict[str, int] = dict.fromkeys((row["source"] for row in rows), 0)
    totals = []
    for start in starts:
        current_sizes = {source: changes.get((source, start), size) for source, size in current_sizes.items()}
        totals.append(sum(current_sizes.values()))
    return totals


def _short(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:47]}…"


def _text(name: str) -> str:
    """Return a name for a text that Plotly shows; it is escaped, since Plotly interprets some HTML tags."""
    return escape(visible(name), quote=False)

"""Charts are values: a gap is red and as long as it was, and without data there is no chart."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from lakebackup_jobs.query import charts

DAY = 86_400_000
MIDNIGHT = 1_795_219_200_000


def traces(chart: charts.Chart | None) -> dict[str, dict[str, Any]]:
    """The traces of a chart that Plotly takes, by name."""
    assert chart is not None
    go.Figure(chart)  # checks every property
    return {trace["name"]: trace for trace in chart["data"]}


def run(days: int, source: str = "prod", **row: Any) -> dict[str, Any]:
    defaults = {"succeeded": 0, "failed": 0, "missed": 0, "longest_ms": 60_000}
    return {"source": source, "day_ts": MIDNIGHT + days * DAY} | defaults | row


def test_the_cell_of_a_day_shows_its_worst_run() -> None:
    rows = [
        run(0, succeeded=4),
        run(1, succeeded=3, missed=1),
        run(2, missed=1, failed=1),
        run(2, "edge", succeeded=1),
    ]
    chart = charts.calendar(rows, MIDNIGHT + 2 * DAY + 5, 91)
    cells = traces(chart)
    assert {name: len(trace["x"]) for name, trace in cells.items()} == {
        "succeeded": 2,
        "failed": 1,
        "missed": 1,
    }
    assert cells["succeeded"]["y"] == [0, 1]
    assert cells["missed"]["hovertext"] == ["prod<br>2026-11-22 UTC: 3 succeeded, 1 missed"]
    assert cells["missed"]["marker"]["color"] != charts.COLOURS["missed"], "hollow"
    assert chart
    assert chart["layout"]["xaxis"]["range"] == [MIDNIGHT - 11 * DAY, MIDNIGHT + 3 * DAY], "two weeks"
    assert [label["text"] for label in chart["layout"]["annotations"]] == ["prod", "edge"]


def test_a_gap_is_red_and_as_long_as_it_was() -> None:
    rows = [
        {
            "source": "prod",
            "status": "restorable",
            "from_ts": MIDNIGHT,
            "to_ts": MIDNIGHT + 10 * DAY,
            "scopes": 3,
        },
        {
            "source": "prod",
            "status": "gap",
            "from_ts": MIDNIGHT + 4 * DAY,
            "to_ts": MIDNIGHT + 5 * DAY,
            "scopes": 1,
        },
    ]
    bars = traces(charts.coverage(rows))
    assert (bars["gap"]["base"], bars["gap"]["x"]) == ([MIDNIGHT + 4 * DAY], [DAY])
    assert bars["gap"]["marker"]["color"] == charts.COLOURS["gap"]
    assert bars["gap"]["hovertext"] == [
        "prod<br>gap, 1 topic<br>2026-11-25 00:00 UTC to 2026-11-26 00:00 UTC"
    ]
    assert [*bars] == ["restorable", "gap"], "what is missing is drawn on top"


@pytest.mark.parametrize("length", [0, 1, 400 * DAY, 5 * 365 * DAY])
def test_an_axis_of_times_has_six_hours_or_more_around_its_bars(length: int) -> None:
    chart = charts.coverage(
        [
            {
                "source": "prod",
                "status": "restorable",
                "from_ts": MIDNIGHT,
                "to_ts": MIDNIGHT + length,
                "scopes": 1,
            }
        ]
    )
    assert chart
    first, last = chart["layout"]["xaxis"]["range"]
    assert first < MIDNIGHT <= MIDNIGHT + length < last
    assert max(6 * 3_600_000, length) <= last - first <= max(6 * 3_600_000, 1.04 * length)


@pytest.mark.parametrize(
    ("days", "start"),
    [([0], -13), ([-13], -13), ([-30, 0], -30), ([-2_000, 0], -90), ([0, 500], -13)],
)
def test_an_axis_of_days_is_two_weeks_to_three_months_and_ends_today(days: list[int], start: int) -> None:
    """Older days and days in the future do not stretch it."""
    rows = [run(day, succeeded=1) for day in days]
    for chart in (charts.calendar(rows, MIDNIGHT + 5, 91), charts.durations(rows, MIDNIGHT + 5, 91)):
        assert chart
        assert chart["layout"]["xaxis"]["range"] == [MIDNIGHT + start * DAY, MIDNIGHT + DAY]
        narrow = [MIDNIGHT + max(start, -27) * DAY, MIDNIGHT + DAY]
        assert chart["layout"]["meta"]["narrow"] == narrow


def test_no_tick_has_a_fraction_of_a_second() -> None:
    chart = charts.growth([growth_row(0, 1)])
    assert chart
    (stop,) = chart["layout"]["xaxis"]["tickformatstops"]
    assert stop["dtickrange"] == [None, 60_000]
    assert "%S" in stop["value"]
    assert "f" not in stop["value"]


def growth_row(day: int, size: int, days: int = 1) -> dict[str, Any]:
    row = {"source": "prod", "from_ts": MIDNIGHT + day * DAY, "to_ts": MIDNIGHT + (day + days) * DAY}
    return row | {"new_bytes": size, "removed_bytes": 0, "held_bytes": size}


@pytest.mark.parametrize(
    ("size", "ticks"),
    [
        (0, ["0"]),
        (900, ["0"]),
        (9_000, ["0", "5.0 kB"]),
        (75_000_000_000, ["0", "20.0 GB", "40.0 GB", "60.0 GB"]),
    ],
)
def test_sizes_have_round_ticks(size: int, ticks: list[str]) -> None:
    chart = charts.growth([growth_row(0, size)])
    assert chart
    assert chart["layout"]["yaxis"]["ticktext"] == ticks
    assert chart["layout"]["xaxis"]["range"] == [MIDNIGHT - 13 * DAY, MIDNIGHT + DAY]
    assert chart["layout"]["yaxis2"]["title"]["text"] == "per day"


def test_growth_of_years_has_bars_of_several_days() -> None:
    chart = charts.growth([growth_row(5 * day, 1, days=5) for day in range(365)])
    assert chart
    assert chart["layout"]["xaxis"]["range"] == [MIDNIGHT, MIDNIGHT + 1825 * DAY]
    assert chart["layout"]["yaxis2"]["title"]["text"] == "per 5 days"


def test_the_number_of_lines_is_bounded() -> None:
    rows = [{"line": f"t{n}", "status": "restorable", "from_ts": 0, "to_ts": DAY} for n in range(100)]
    few, many = charts.coverage(rows[:2], "line"), charts.coverage(rows, "line")
    assert len(traces(many)["restorable"]["y"]) == charts.LANES
    assert few
    assert many
    assert many["layout"]["height"] > 5 * few["layout"]["height"]


def test_durations_have_a_line_a_source_and_a_cross_a_failure() -> None:
    rows = [run(0, longest_ms=20), run(1, longest_ms=90_000, failed=1), run(2, missed=1, longest_ms=None)]
    rows += [run(0, f"s{n:02d}", longest_ms=1000 * n) for n in range(1, 20)]
    traces_by_name = traces(charts.durations(rows, MIDNIGHT + 2 * DAY, 91))
    assert [*traces_by_name] == ["prod", *(f"s{n}" for n in range(13, 20)), "failed"]
    assert traces_by_name["prod"]["y"] == [100, 90_000], "a logarithm has no nothing"
    assert traces_by_name["failed"]["x"] == [MIDNIGHT + DAY + DAY // 2]
    assert traces_by_name["failed"]["hovertext"] == ["prod<br>2026-11-22 UTC: 1 min 30 s<br>1 failed"]


def test_growth_stacks_held_bytes_and_shows_additions_and_removals() -> None:
    def days(*sizes: int, source: str = "prod", **row: Any) -> list[dict[str, Any]]:
        columns = {"source": source, "new_bytes": 10, "removed_bytes": 0} | row
        return [
            {**columns, "from_ts": day * DAY, "to_ts": (day + 1) * DAY, "held_bytes": size}
            for day, size in enumerate(sizes)
            if size
        ]

    traces_by_name = traces(charts.growth(days(5, 6, 7) + days(0, 3, 0, 4, source="edge", removed_bytes=2)))
    assert traces_by_name["edge"]["x"] == [0, DAY, 2 * DAY, 3 * DAY, 4 * DAY]
    assert traces_by_name["edge"]["y"] == [0, 3, 3, 4, 4]
    assert traces_by_name["prod"]["y"] == [5, 6, 7, 7, 7], "a day without a backup keeps what there was"
    assert (traces_by_name["added"]["y"], traces_by_name["pruned"]["y"]) == ([10, 20, 10, 10], [0, -2, 0, -2])
    many = traces(charts.growth([row for n in range(12) for row in days(100 + n, source=f"s{n:02d}")]))
    assert [*many][:8] == [*(f"s{n:02d}" for n in range(5, 12)), "5 others"]
    assert many["5 others"]["y"] == [510, 510]


@pytest.mark.parametrize(
    "chart",
    [
        charts.calendar([], 0, 91), charts.coverage([]), charts.durations([], 0, 91),
        charts.durations([run(0, longest_ms=None)], MIDNIGHT, 91), charts.growth([]),
        charts.calendar([run(500, succeeded=1)], MIDNIGHT, 91), charts.durations([run(500)], MIDNIGHT, 91),
    ],
)  # fmt: skip
def test_without_data_there_is_no_chart(chart: charts.Chart | None) -> None:
    assert chart is None


def test_a_name_is_escaped_and_cut() -> None:
    chart = charts.calendar([run(0, "<a href='x'>\x1b</a>" + "n" * 60, succeeded=1)], MIDNIGHT, 91)
    assert chart
    assert "<a" not in json.dumps(chart)
    assert chart["layout"]["annotations"][0]["text"].startswith("&lt;a href='x'&gt;\\x1b")
    assert chart["layout"]["annotations"][0]["text"].endswith("…")


def test_a_chart_for_a_notebook_brings_its_script() -> None:
    chart = charts.calendar([run(0, succeeded=1)], MIDNIGHT, 91)
    assert chart
    html = charts.to_html(chart)
    assert charts.script()[:1000] in html
    assert "cdn.plot.ly/plotly" not in html
    assert "</script" not in charts.script()

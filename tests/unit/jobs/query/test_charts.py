"""The pictures are looked at: what is missing is red, at the place and as long as it was missing."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.support.pictures import colours, pixels, share

from lakebackup_jobs.query import charts

DAY = 86_400_000
NOON = 1_795_262_400_000
LEGEND = 60  # so many rows of pixels
CHAIN = {"line": "20261101T120000Z-00000001", "from_ts": NOON, "to_ts": NOON + 10 * DAY}


def test_a_gap_is_red_and_as_long_as_it_was() -> None:
    gap = {"line": CHAIN["line"], "from_ts": NOON + 4 * DAY, "to_ts": NOON + 5 * DAY}
    chains = [CHAIN | {"restorable_ts": CHAIN["to_ts"]}]
    whole = pixels(charts.to_png(charts.timeline(chains, [], [])))
    cut = pixels(charts.to_png(charts.timeline(chains, [], [gap])))
    assert share(whole, charts.COLOURS["gap"]) == 0
    blue = _columns(whole[LEGEND:], charts.COLOURS["restorable"])
    red = _columns(cut[LEGEND:], charts.COLOURS["gap"])
    assert len(red) == pytest.approx(len(blue) / 10, rel=0.2)
    assert red[0] - blue[0] == pytest.approx(len(blue) * 4 / 10, rel=0.1)
    shortest = pixels(charts.to_png(charts.timeline(chains, [], [gap | {"to_ts": gap["from_ts"] + 1}])))
    assert len(np.unique(_columns(shortest[LEGEND:], charts.COLOURS["gap"]))) >= 2


def test_what_cannot_be_restored_is_grey_and_a_fork_orange() -> None:
    chains = [CHAIN | {"restorable_ts": NOON + 5 * DAY}]
    backups = [
        {"line": CHAIN["line"], "ts": NOON + day * DAY, "kind": "log" if day else "full", "status": status}
        for day, status in enumerate(("restorable", "fork", "unusable"))
    ]
    image = pixels(charts.to_png(charts.timeline(chains, backups, [])))
    for status in ("restorable", "fork", "unusable"):
        assert share(image, charts.COLOURS[status]) > 0.0003, status
    assert colours(image) > 20


def test_coverage_has_a_line_a_topic() -> None:
    def chart(topics: int) -> Any:
        rows = [
            {"scope": f"t{n}", "status": "restorable", "from_ts": NOON, "to_ts": NOON + DAY}
            for n in range(topics)
        ]
        rows.append({"scope": "t1", "status": "gap", "from_ts": NOON, "to_ts": NOON + DAY // 2})
        return pixels(charts.to_png(charts.coverage(rows)))

    few, many = chart(2), chart(20)
    assert many.shape[0] > 4 * few.shape[0]
    assert share(few, charts.COLOURS["gap"]) > 0.01


def test_growth_shows_new_referenced_and_removed() -> None:
    days = [
        {"from_ts": NOON + day * DAY, "to_ts": NOON + (day + 1) * DAY, "new_bytes": 10**9}
        | {"removed_bytes": 2 * 10**9 if day == 7 else 0, "referenced_bytes": day * 10**9}
        | {"held_bytes": (day + 1) * 10**9}
        for day in range(10)
    ]
    chart = charts.growth(days)
    image = pixels(charts.to_png(chart))
    assert share(image, "#1f6391") > 0.02
    assert share(image, "#bcd6e8") > 0.1
    assert share(image, "#c9a227") > 0.005
    svg = charts.to_svg(chart)
    assert "10 GB" in svg
    assert not re.search(r"https?:|<script|<image|<foreignObject|href", svg)


def test_nothing_yet_is_still_a_picture() -> None:
    for chart in (charts.timeline([], [], []), charts.coverage([]), charts.growth([])):
        assert charts.to_svg(chart).startswith("<svg")


def _columns(image: Any, colour: str) -> Any:
    wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
    return np.flatnonzero((np.abs(image.astype(int) - wanted).max(axis=2) <= 12).any(axis=0))

"""Charts of a catalog by name, for notebooks and pages."""

from __future__ import annotations

import time
from os import PathLike
from pathlib import Path
from typing import Literal, get_args

from lakebackup.errors import UsageProblem
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query import charts
from lakebackup_jobs.query.report.values import DAYS, STEPS, calendar, with_stages

ChartName = Literal["calendar", "coverage", "growth"]


class Chart:
    """A chart of the catalog. The last line of a notebook's cell shows it.

    con.chart("coverage").save("coverage.html")
    """

    def __init__(self, name: ChartName, figure: charts.Chart | None) -> None:
        self.name = name
        #: Plotly's figure as a mapping; None if there is nothing to draw.
        self.figure = figure

    def save(self, path: str | PathLike[str]) -> None:
        """Write the chart as an HTML page, which a browser shows without a network."""
        Path(path).write_text(self._repr_html_(), "utf-8")

    def __repr__(self) -> str:
        """Return a text for terminals, which show no pictures."""
        if self.figure is None:
            return f"Chart {self.name}: there is nothing to draw yet."
        return f'Chart {self.name}: .save("{self.name}.html") writes it as a page.'

    def _repr_html_(self) -> str:
        """Return the chart as HTML for a notebook."""
        if self.figure is None:
            return f"<p>{self!r}</p>"
        return charts.to_html(self.figure)


def draw(catalog: CatalogReader, name: ChartName) -> Chart:
    """Draw a chart of a catalog. Raises UsageProblem if there is no chart of that name."""
    if name not in get_args(ChartName):
        raise UsageProblem(f"There is no chart {name!r}.", hint=f"Charts: {', '.join(get_args(ChartName))}.")
    return Chart(name, _FIGURES[name](catalog))


def _calendar(catalog: CatalogReader) -> charts.Chart | None:
    catalog = with_stages(catalog)
    now_ms = time.time_ns() // 1_000_000
    return charts.calendar(calendar(catalog, now_ms, DAYS), now_ms, DAYS)


def _coverage(catalog: CatalogReader) -> charts.Chart | None:
    catalog = with_stages(catalog)
    intervals = catalog.rows("report_intervals", topics=charts.LANES, steps=STEPS)
    lanes = [{**row, "lane": f"{row['source']} / {row['scope']}"} for row in intervals]
    return charts.coverage(lanes, "lane")


def _growth(catalog: CatalogReader) -> charts.Chart | None:
    return charts.growth(catalog.rows("report_growth", steps=STEPS))


_FIGURES = {"calendar": _calendar, "coverage": _coverage, "growth": _growth}

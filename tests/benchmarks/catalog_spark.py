"""Plans that Spark makes of a catalog of many more file rows than DuckDB is meant for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median

from tests.benchmarks import catalog_data, made_catalog
from tests.benchmarks.asking import asked
from tests.benchmarks.measure import progress
from tests.benchmarks.report import markdown

TOPICS_A_MILLION = 10
PLANS = ("restore of one topic to a time", "plan of a prune")
HEAD = ["question", "answer", "first, s", "CPU s", "warm, s", "CPU s", "peak MB"]


def plans(folder: Path, millions: int, runs: int) -> str:
    """Markdown. A folder that holds such a catalog already is used again."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{millions}M-topics"
    topics = millions * TOPICS_A_MILLION
    if not (place / "catalog").exists():
        progress(f"making {millions} million rows")
        parts = [part for part in catalog_data.parts(topics) if part.table != "departures"]
        made_catalog.make(place, parts, partial(catalog_data.rows_of, leaving=0), "b")
    rows = []
    for question in PLANS:
        progress(question)
        cost, [said] = asked("catalog_questions", "spark", place, runs, question, log=folder / "log")
        first = [f"{said[of][0]:.1f}" for of in ("seconds", "cpu")]
        warm = [f"{median(said[of][1:] or said[of]):.1f}" for of in ("seconds", "cpu")]
        rows.append([question, str(said["answers"][-1]), *first, *warm, f"{cost.peak_bytes / 1e6:.0f}"])
    return markdown(HEAD, rows)

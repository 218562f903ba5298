"""Chains of many levels: which files a restore needs, and what a prune with a window lets go of and proves.

Beside plain Python over JSON manifests of the same rows; every tool must give the same answers.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import chains_data
from tests.benchmarks.asking import asked
from tests.benchmarks.chains_ask import CHAIN, PLAN, PROOF, WINDOW_DAYS
from tests.benchmarks.measure import MeasuringError, progress
from tests.benchmarks.report import markdown

QUESTIONS = {
    CHAIN: "files of one topic at a random time",
    PLAN: f"plan of a prune with a window of {WINDOW_DAYS} days",
    PROOF: "that plan and its proof",
}
DUCK, SPARK, PLAIN = "lakebackup, DuckDB", "lakebackup, Spark", "json.loads and a dict"
_FULL = "more than the 1GB of memory"


def chains(folder: Path, backups: int, runs: int) -> str:
    """Markdown. A folder that holds such a catalog already is used again."""
    place = folder / f"{backups}-chains"
    if not (place / "end").exists():
        progress(f"making {backups:,} backups of {chains_data.TOPICS * chains_data.PARTITIONS} files")
        started = time.perf_counter()
        place.mkdir(parents=True)
        chains_data.make(place, backups)
        progress(f"made in {time.perf_counter() - started:.0f} s")
    if not (place / "backups.jsonl").exists():
        chains_data.make_manifests(place, backups)
    head = ["question", "tool", "first, s", "then, s", "CPU s", "peak MB", "ours / plain: CPU"]
    rows = []
    for question, words in QUESTIONS.items():
        plain = _asked(place, "plain", question, runs)
        ours, name = _asked(place, "duck", question, runs), DUCK
        if ours is None:  # as the command does it
            ours, name = _asked(place, "spark", question, runs), SPARK
        if plain is None or ours is None:
            raise MeasuringError(f"{question}: no answer")
        if ours["answers"] != plain["answers"]:
            raise MeasuringError(f"{question}: {name} says {ours['answers']}, plain {plain['answers']}")
        ratio = f"{_then(ours['cpu']) / _then(plain['cpu']):.2f}"
        for tool, said, times in ((name, ours, ratio), (PLAIN, plain, "")):
            seconds = said["seconds"][0], _then(said["seconds"]), _then(said["cpu"])
            figures = [f"{figure:.2f}" for figure in seconds]
            rows.append([words, tool, *figures, f"{said['peak'] / 1e6:.0f}", times])
    return markdown(head, rows)


def _then(found: list[float]) -> float:
    return median(found[1:] or found)


def _asked(place: Path, tool: str, question: str, runs: int) -> dict[str, Any] | None:
    """What a tool said, and its peak memory in bytes; None when that is more than DuckDB may take."""
    progress(f"{tool}: {QUESTIONS[question]}")
    log = place / "log"
    try:
        cost, [said] = asked("chains_ask", tool, place, question, runs, log=log)
    except MeasuringError:
        if _FULL in log.read_text("utf-8", "replace"):
            return None
        raise
    return {**said, "peak": cost.peak_bytes}

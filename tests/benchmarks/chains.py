"""Chains of many levels: the files that a restore needs, and the plan and the proof of a prune with a window.

Compared with plain Python over JSON manifests of the same rows. All tools must give the same answers.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import chains_data
from tests.benchmarks.asking import run_and_report
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
    """Return Markdown. A catalog that is already in `folder` is used again."""
    catalog_folder = folder / f"{backups}-chains"
    if not (catalog_folder / "end").exists():
        progress(f"making {backups:,} backups of {chains_data.TOPICS * chains_data.PARTITIONS} files")
        started = time.perf_counter()
        catalog_folder.mkdir(parents=True)
        chains_data.make(catalog_folder, backups)
        progress(f"made in {time.perf_counter() - started:.0f} s")
    if not (catalog_folder / "backups.jsonl").exists():
        chains_data.make_manifests(catalog_folder, backups)
    head = ["question", "tool", "first, s", "then, s", "CPU s", "peak MB", "ours / plain: CPU"]
    rows = []
    for question, title in QUESTIONS.items():
        plain_report = _ask(catalog_folder, "plain", question, runs)
        our_report, name = _ask(catalog_folder, "duck", question, runs), DUCK
        if our_report is None:  # the command uses Spark then too
            our_report, name = _ask(catalog_folder, "spark", question, runs), SPARK
        if plain_report is None or our_report is None:
            raise MeasuringError(f"{question}: no answer")
        if our_report["answers"] != plain_report["answers"]:
            raise MeasuringError(
                f"{question}: {name} says {our_report['answers']}, plain {plain_report['answers']}"
            )
        ratio = f"{_later_median(our_report['cpu']) / _later_median(plain_report['cpu']):.2f}"
        for tool, report, ratio_text in ((name, our_report, ratio), (PLAIN, plain_report, "")):
            seconds = report["seconds"][0], _later_median(report["seconds"]), _later_median(report["cpu"])
            figures = [f"{figure:.2f}" for figure in seconds]
            rows.append([title, tool, *figures, f"{report['peak'] / 1e6:.0f}", ratio_text])
    return markdown(head, rows)


def _later_median(values: list[float]) -> float:
    return median(values[1:] or values)


def _ask(catalog_folder: Path, tool: str, question: str, runs: int) -> dict[str, Any] | None:
    """Return a tool's report with its peak memory in bytes, or None when DuckDB reached its memory limit."""
    progress(f"{tool}: {QUESTIONS[question]}")
    log = catalog_folder / "log"
    try:
        cost, [report] = run_and_report("chains_ask", tool, catalog_folder, question, runs, log=log)
    except MeasuringError:
        if _FULL in log.read_text("utf-8", "replace"):
            return None
        raise
    return {**report, "peak": cost.peak_bytes}

"""Chains of many levels: which files a restore needs, and what a prune with a window lets go of and proves.

Beside plain Python over JSON manifests of the same rows; every tool must give the same answers.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.benchmarks import chains_data
from tests.benchmarks.chains_ask import CHAIN, PLAN, PROOF, WINDOW_DAYS
from tests.benchmarks.measure import MeasuringError, of_command
from tests.benchmarks.report import markdown

if TYPE_CHECKING:
    from pathlib import Path

QUESTIONS = {
    CHAIN: "files of one topic at a random time",
    PLAN: f"plan of a prune with a window of {WINDOW_DAYS} days",
    PROOF: "that plan and its proof",
}
DUCK, SPARK, PLAIN = "lakebackup, DuckDB", "lakebackup, Spark", "json.loads and a dict"
_FULL = "more than 1GB of memory"


def chains(folder: Path, backups: int, runs: int) -> str:
    """Markdown. A folder that holds such a catalog already is used again."""
    place = folder / f"{backups}-chains"
    if not (place / "end").exists():
        _say(f"making {backups:,} backups of {chains_data.TOPICS * chains_data.PARTITIONS} files")
        started = time.perf_counter()
        place.mkdir(parents=True)
        chains_data.make(place, backups)
        _say(f"made in {time.perf_counter() - started:.0f} s")
    if not (place / "backups.jsonl").exists():
        chains_data.make_manifests(place, backups)
    rows = [["question", "tool", "first, s", "then, s", "CPU s", "peak MB", "ours / plain: CPU"]]
    rows.append(["---"] * len(rows[0]))
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
            figures = [
                f"{said['seconds'][0]:.2f}",
                f"{_then(said['seconds']):.2f}",
                f"{_then(said['cpu']):.2f}",
            ]
            rows.append([words, tool, *figures, f"{said['peak'] / 1e6:.0f}", times])
    return markdown(rows)


def _then(found: list[float]) -> float:
    return median(found[1:] or found)


def _asked(place: Path, tool: str, question: str, runs: int) -> dict[str, Any] | None:
    """What a tool said, and its peak memory in bytes; None when that is more than DuckDB may take."""
    _say(f"{tool}: {QUESTIONS[question]}")
    log = place / "log"
    command = [sys.executable, "-m", "tests.benchmarks.chains_ask", tool, str(place), question, str(runs)]
    try:
        cost = of_command(command, log)
    except MeasuringError:
        if _FULL in log.read_text("utf-8", "replace"):
            return None
        raise
    (line,) = [one for one in log.read_text("utf-8", "replace").splitlines() if one.startswith('{"seconds"')]
    said: dict[str, Any] = json.loads(line)
    return {**said, "peak": cost.peak_bytes}


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)

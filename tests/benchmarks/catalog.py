"""Questions to a catalog of 1 and 10 million file rows over 2,000 backups, beside other ways to keep it."""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.benchmarks import catalog_data, catalog_peers
from tests.benchmarks.catalog_ask import COVERAGE, DAY, QUESTIONS, STEP, UNNEEDED, WINDOW, said_in
from tests.benchmarks.measure import MeasuringError, of_command
from tests.benchmarks.report import markdown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.benchmarks.measure import Cost

TOPICS_A_MILLION = 10
JOINED = (STEP, DAY, UNNEEDED)
"""Questions that copied manifests are asked too."""


def catalog(folder: Path, millions: Sequence[int], leaving: int, runs: int) -> str:
    """Markdown. A folder that holds such catalogs already is used again."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    rows = [["million files", "question", "tool", "first, s", "then, s", "CPU s", "peak MB", "read of held"]]
    rows.append(["---"] * len(rows[0]))
    medians: dict[tuple[int, str, str], float] = {}
    for million in sorted(millions):
        place = folder / f"{million}M-{leaving}"
        if not (place / "catalog").exists():
            _say(f"making {million} million rows")
            started = time.perf_counter()
            departures = catalog_data.make(place, million * TOPICS_A_MILLION, leaving)
            seconds = time.perf_counter() - started
            found.append(f"{million} million files, {departures:,} of them gone: made in {seconds:.0f} s.")
        peers = folder / f"{million}M-{leaving}-peers"
        largest = million == max(millions)
        if largest and not peers.exists():
            _say("making the peers' forms")
            catalog_peers.make(place, peers, million * TOPICS_A_MILLION, leaving)
        answers: dict[str, set[str]] = {}
        for tool, command, questions in _commands(place, peers, runs, with_peers=largest):
            cost, said = _asked(command, questions, folder / "log")
            for one in said:
                question, seconds = one["question"], one["seconds"]
                medians[million, question, tool] = median(seconds[1:] or seconds)
                answers.setdefault(question, set()).add(str(one["answer"]))
                figures = seconds[0], medians[million, question, tool], median(one["cpu"][1:] or one["cpu"])
                rows.append(
                    [f"{million}", QUESTIONS[question], tool, *(f"{figure:.3f}" for figure in figures)]
                )
                rows[-1] += [f"{cost.peak_bytes / 1e6:.0f}", _read(one["read"], place, question)]
        for question, given in answers.items():
            if len(given) > 1:
                raise MeasuringError(f"{question}: the tools do not agree: {given}")
        cold = [
            of_command([*_OURS, "duck", str(place), "0", WINDOW], folder / "log").seconds
            for _ in range(max(runs, 1))
        ]
        found.append(f"{million} million, one hour of one topic, whole process: {median(cold):.2f} s.")
    return "\n\n".join([markdown(rows), *found, *_aims(medians)])


_OURS = [sys.executable, "-m", "tests.benchmarks.catalog_ask"]
_THEIRS = [sys.executable, "-m", "tests.benchmarks.catalog_peers"]
DUCK, SPARK = "lakebackup, DuckDB", "lakebackup, warm Spark"


def _commands(
    place: Path, peers: Path, runs: int, *, with_peers: bool
) -> list[tuple[str, list[str], tuple[str, ...]]]:
    """Tool, its command without questions, and the questions it is asked."""
    asked = (WINDOW, *JOINED, COVERAGE)
    made = [
        (DUCK, [*_OURS, "duck", str(place), str(runs)], asked),
        (SPARK, [*_OURS, "spark", str(place), str(runs)], asked),
    ]
    if with_peers:
        plain = catalog_peers.TOOLS
        made += [
            (plain["parquet"], [*_THEIRS, "parquet", str(peers), str(runs)], (WINDOW,)),
            ("DuckDB, copied manifests", [*_THEIRS, "parquet", str(peers), str(runs)], JOINED),
            (plain["sqlite"], [*_THEIRS, "sqlite", str(peers), str(runs)], (WINDOW,)),
            (plain["json"], [*_THEIRS, "json", str(peers), "0"], (WINDOW,)),
        ]
    return made


def _asked(command: list[str], questions: tuple[str, ...], log: Path) -> tuple[Cost, list[dict[str, Any]]]:
    _say(f"{command[2]} {command[3]}: {', '.join(questions)}")
    cost = of_command([*command, *questions], log)
    said = list(said_in(log.read_text("utf-8", "replace")))
    if len(said) != len(questions):
        raise MeasuringError(log.read_text("utf-8", "replace")[-2000:])
    return cost, said


def _read(read: int, place: Path, question: str) -> str:
    if not read:
        return ""
    tables = ("files", "departures") if question in JOINED else ("files",)
    held = sum(
        file.stat().st_size for table in tables for file in (place / "catalog" / table).glob("*.parquet")
    )
    return f"{read / 1e6:.0f} of {held / 1e6:.0f} MB"


def _aims(medians: dict[tuple[int, str, str], float]) -> list[str]:
    most, least = max(key[0] for key in medians), min(key[0] for key in medians)
    lines = []
    for tool in (DUCK, SPARK):
        if most > least:
            grown = medians[most, WINDOW, tool] / medians[least, WINDOW, tool]
            lines.append(
                f"{tool}: one hour takes {grown:.2f} times as long on {most} million rows as on {least}."
            )
        for question in JOINED:
            theirs = medians.get((most, question, "DuckDB, copied manifests"))
            if theirs:
                times = theirs / medians[most, question, tool]
                lines.append(f"{tool}: {QUESTIONS[question]}, {times:.1f} times as fast as copied manifests.")
    return lines


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)

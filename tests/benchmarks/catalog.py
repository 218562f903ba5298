"""Questions to a catalog of 1 and 10 million file rows over 2,000 backups, beside other ways to keep it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.benchmarks import catalog_data, catalog_peers, catalog_questions
from tests.benchmarks.asking import asked
from tests.benchmarks.catalog_ask import COVERAGE, DAY, QUESTIONS, STEP, WINDOW
from tests.benchmarks.measure import MeasuringError, of_module, progress
from tests.benchmarks.report import markdown

TOPICS_A_MILLION = 10
JOINED = (STEP, DAY)
"""Questions that copied manifests are asked too."""


def catalog(folder: Path, millions: Sequence[int], leaving: int, runs: int) -> str:
    """Markdown. A folder that holds such catalogs already is used again."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    head = ["million files", "question", "tool", "first, s", "then, s", "CPU s", "peak MB", "read of held"]
    rows = []
    medians: dict[tuple[int, str, str], float] = {}
    for million in sorted(millions):
        place = folder / f"{million}M-{leaving}"
        if not (place / "catalog").exists():
            progress(f"making {million} million rows")
            started = time.perf_counter()
            departures = catalog_data.make(place, million * TOPICS_A_MILLION, leaving)
            seconds = time.perf_counter() - started
            found.append(f"{million} million files, {departures:,} of them gone: made in {seconds:.0f} s.")
        peers = folder / f"{million}M-{leaving}-peers"
        largest = million == max(millions)
        if largest and not peers.exists():
            progress("making the peers' forms")
            catalog_peers.make(place, peers, million * TOPICS_A_MILLION)
        answers: dict[str, set[str]] = {}
        for tool, program, questions in _programs(place, peers, runs, with_peers=largest):
            progress(f"{' '.join(map(str, program[:2]))}: {', '.join(questions)}")
            cost, said = asked(*program, *questions, log=folder / "log", questions=len(questions))
            for question, one in zip(questions, said, strict=True):
                seconds, cpu, last = one["seconds"], one["cpu"], one["answers"][-1]
                medians[million, question, tool] = median(seconds[1:] or seconds)
                answers.setdefault(question, set()).add(str(last))
                figures = seconds[0], medians[million, question, tool], median(cpu[1:] or cpu)
                row = [f"{million}", QUESTIONS[question], tool, *(f"{figure:.3f}" for figure in figures)]
                rows.append([*row, f"{cost.peak_bytes / 1e6:.0f}", _read(one["read"], place, question)])
        for question, given in answers.items():
            if len(given) > 1:
                raise MeasuringError(f"{question}: the tools do not agree: {given}")
        cold = [
            of_module("catalog_ask", "duck", place, 0, WINDOW, log=folder / "log").seconds
            for _ in range(max(runs, 1))
        ]
        found.append(f"{million} million, one hour of one topic, whole process: {median(cold):.2f} s.")
    return "\n\n".join([markdown(head, rows), *found, *_aims(medians)])


def every_question(folder: Path, millions: Sequence[int], runs: int, leaving: int) -> str:
    """Markdown: every kind of question, on DuckDB, and how its CPU seconds grow from the smallest of the
    catalogs that `catalog` made to the largest."""
    least, most = min(millions), max(millions)
    head = [
        "question",
        *(f"{n} million: {of}" for n in sorted({least, most}) for of in ("s", "CPU s", "peak MB")),
    ]
    rows = []
    for question in catalog_questions.QUESTIONS:
        progress(question)
        row, cpu = [question], []
        for million in sorted({least, most}):
            place = folder / f"{million}M-{leaving}"
            cost, [said] = asked("catalog_questions", "duckdb", place, runs, question, log=folder / "log")
            seconds, cpu_s = (median(said[of][1:] or said[of]) for of in ("seconds", "cpu"))
            row += [f"{seconds:.2f}", f"{cpu_s:.2f}", f"{cost.peak_bytes / 1e6:.0f}"]
            cpu.append(cpu_s)
        rows.append([*row, f"{cpu[-1] / cpu[0]:.1f}"])
    return markdown([*head, "growth: CPU"], rows)


DUCK, SPARK = "lakebackup, DuckDB", "lakebackup, warm Spark"
Program = tuple[str, str, "Path", int]


def _programs(
    place: Path, peers: Path, runs: int, *, with_peers: bool
) -> list[tuple[str, Program, tuple[str, ...]]]:
    """Tool, the program that asks it, and the questions it is asked."""
    every = (WINDOW, *JOINED, COVERAGE)
    made: list[tuple[str, Program, tuple[str, ...]]] = [
        (DUCK, ("catalog_ask", "duck", place, runs), every),
        (SPARK, ("catalog_ask", "spark", place, runs), every),
    ]
    if with_peers:
        plain = catalog_peers.TOOLS
        made += [
            (plain["parquet"], ("catalog_peers", "parquet", peers, runs), (WINDOW,)),
            ("DuckDB, copied manifests", ("catalog_peers", "parquet", peers, runs), JOINED),
            (plain["sqlite"], ("catalog_peers", "sqlite", peers, runs), (WINDOW,)),
            (plain["json"], ("catalog_peers", "json", peers, 0), (WINDOW,)),
        ]
    return made


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

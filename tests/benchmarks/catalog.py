"""Questions to catalogs of 1 and 10 million file rows over 2,000 backups, and to other stores of the rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.benchmarks import catalog_data, catalog_peers, catalog_questions
from tests.benchmarks.asking import run_and_report
from tests.benchmarks.catalog_ask import COVERAGE, DAY, QUESTIONS, STEP, WINDOW
from tests.benchmarks.measure import MeasuringError, of_module, progress
from tests.benchmarks.report import markdown

TOPICS_A_MILLION = 10
JOINED = (STEP, DAY)
"""Questions that are also put to copied manifests."""


def catalog(folder: Path, millions: Sequence[int], leaving: int, runs: int) -> str:
    """Return Markdown. Catalogs that are already in `folder` are used again."""
    folder.mkdir(parents=True, exist_ok=True)
    notes: list[str] = []
    head = ["million files", "question", "tool", "first, s", "then, s", "CPU s", "peak MB", "read of held"]
    rows = []
    medians: dict[tuple[int, str, str], float] = {}
    for million in sorted(millions):
        catalog_folder = folder / f"{million}M-{leaving}"
        if not (catalog_folder / "catalog").exists():
            progress(f"making {million} million rows")
            started = time.perf_counter()
            departures = catalog_data.make(catalog_folder, million * TOPICS_A_MILLION, leaving)
            seconds = time.perf_counter() - started
            notes.append(f"{million} million files, {departures:,} of them gone: made in {seconds:.0f} s.")
        peers = folder / f"{million}M-{leaving}-peers"
        largest = million == max(millions)
        if largest and not peers.exists():
            progress("making the peers' forms")
            catalog_peers.make(catalog_folder, peers, million * TOPICS_A_MILLION)
        answers: dict[str, set[str]] = {}
        for tool, program, questions in _programs(catalog_folder, peers, runs, with_peers=largest):
            progress(f"{' '.join(map(str, program[:2]))}: {', '.join(questions)}")
            cost, reports = run_and_report(*program, *questions, log=folder / "log", questions=len(questions))
            for question, report in zip(questions, reports, strict=True):
                seconds, cpu, last = report["seconds"], report["cpu"], report["answers"][-1]
                medians[million, question, tool] = median(seconds[1:] or seconds)
                answers.setdefault(question, set()).add(str(last))
                figures = seconds[0], medians[million, question, tool], median(cpu[1:] or cpu)
                row = [f"{million}", QUESTIONS[question], tool, *(f"{figure:.3f}" for figure in figures)]
                rows.append(
                    [
                        *row,
                        f"{cost.peak_bytes / 1e6:.0f}",
                        _read_share(report["read"], catalog_folder, question),
                    ]
                )
        for question, tool_answers in answers.items():
            if len(tool_answers) > 1:
                raise MeasuringError(f"{question}: the tools do not agree: {tool_answers}")
        cold = [
            of_module("catalog_ask", "duck", catalog_folder, 0, WINDOW, log=folder / "log").seconds
            for _ in range(max(runs, 1))
        ]
        notes.append(f"{million} million, one hour of one topic, whole process: {median(cold):.2f} s.")
    return "\n\n".join([markdown(head, rows), *notes, *_aims(medians)])


def every_question(folder: Path, millions: Sequence[int], runs: int, leaving: int) -> str:
    """Return Markdown: every kind of question on DuckDB, and the factor by which its CPU seconds grow.

    Compares the smallest and the largest of the catalogs that `catalog` made.
    """
    smallest, largest = min(millions), max(millions)
    head = [
        "question",
        *(f"{n} million: {unit}" for n in sorted({smallest, largest}) for unit in ("s", "CPU s", "peak MB")),
    ]
    rows = []
    for question in catalog_questions.QUESTIONS:
        progress(question)
        row, cpu = [question], []
        for million in sorted({smallest, largest}):
            catalog_folder = folder / f"{million}M-{leaving}"
            cost, [report] = run_and_report(
                "catalog_questions", "duckdb", catalog_folder, runs, question, log=folder / "log"
            )
            seconds, cpu_s = (median(report[key][1:] or report[key]) for key in ("seconds", "cpu"))
            row += [f"{seconds:.2f}", f"{cpu_s:.2f}", f"{cost.peak_bytes / 1e6:.0f}"]
            cpu.append(cpu_s)
        rows.append([*row, f"{cpu[-1] / cpu[0]:.1f}"])
    return markdown([*head, "growth: CPU"], rows)


DUCK, SPARK = "lakebackup, DuckDB", "lakebackup, warm Spark"
Program = tuple[str, str, "Path", int]


def _programs(
    catalog_folder: Path, peers: Path, runs: int, *, with_peers: bool
) -> list[tuple[str, Program, tuple[str, ...]]]:
    """Return each tool, the program that asks it, and the questions for it."""
    all_questions = (WINDOW, *JOINED, COVERAGE)
    programs: list[tuple[str, Program, tuple[str, ...]]] = [
        (DUCK, ("catalog_ask", "duck", catalog_folder, runs), all_questions),
        (SPARK, ("catalog_ask", "spark", catalog_folder, runs), all_questions),
    ]
    if with_peers:
        peer_names = catalog_peers.TOOLS
        programs += [
            (peer_names["parquet"], ("catalog_peers", "parquet", peers, runs), (WINDOW,)),
            ("DuckDB, copied manifests", ("catalog_peers", "parquet", peers, runs), JOINED),
            (peer_names["sqlite"], ("catalog_peers", "sqlite", peers, runs), (WINDOW,)),
            (peer_names["json"], ("catalog_peers", "json", peers, 0), (WINDOW,)),
        ]
    return programs


def _read_share(read_bytes: int, catalog_folder: Path, question: str) -> str:
    if not read_bytes:
        return ""
    tables = ("files", "departures") if question in JOINED else ("files",)
    table_bytes = sum(
        file.stat().st_size
        for table in tables
        for file in (catalog_folder / "catalog" / table).glob("*.parquet")
    )
    return f"{read_bytes / 1e6:.0f} of {table_bytes / 1e6:.0f} MB"


def _aims(medians: dict[tuple[int, str, str], float]) -> list[str]:
    large, small = max(key[0] for key in medians), min(key[0] for key in medians)
    lines = []
    for tool in (DUCK, SPARK):
        if large > small:
            growth = medians[large, WINDOW, tool] / medians[small, WINDOW, tool]
            lines.append(
                f"{tool}: one hour takes {growth:.2f} times as long on {large} million rows as on {small}."
            )
        for question in JOINED:
            peer_seconds = medians.get((large, question, "DuckDB, copied manifests"))
            if peer_seconds:
                speedup = peer_seconds / medians[large, question, tool]
                lines.append(
                    f"{tool}: {QUESTIONS[question]}, {speedup:.1f} times as fast as copied manifests."
                )
    return lines

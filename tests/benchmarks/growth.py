"""Catalogs after long use: questions before and after rows are folded (adr/0012)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from tests.benchmarks import growth_data
from tests.benchmarks.asking import run_and_report
from tests.benchmarks.chains_data import CHAIN
from tests.benchmarks.growth_ask import FOLD
from tests.benchmarks.measure import MeasuringError, progress
from tests.benchmarks.report import markdown

from lakebackup.store.reader import CatalogReader

WEEKS_KEPT = 30
HEAD = ["question", "rows before", "CPU s", "peak MB", "rows after", "CPU s", "peak MB"]


def growth(folder: Path, days: Sequence[int], weeks: Sequence[int], runs: int) -> Iterator[tuple[str, str]]:
    """Yield Markdown tables with their titles: logs captured for `days`, and topics with `weeks` of deleted
    backups."""
    folder.mkdir(parents=True, exist_ok=True)
    for count in days:
        make = partial(growth_data.make_log, days=count)
        name = f"log of {count} days, {growth_data.REGIONS:,} regions"
        rows = _measure(folder, name, make, "log_regions", ("regions", "stores"), runs)
        yield name, markdown(HEAD, rows)
    for count in weeks:
        make = partial(growth_data.make_pruned, backups=(WEEKS_KEPT + count) * CHAIN, pruned=count * CHAIN)
        name = f"{WEEKS_KEPT} weeks of backups, and {count} that were deleted"
        yield name, markdown(HEAD, _measure(folder, name, make, "removals", ("restore",), runs))


def _measure(
    folder: Path, name: str, make: Callable[[Path], None], table: str, questions: Sequence[str], runs: int
) -> Iterator[list[str]]:
    catalog_folder = folder / "growth"
    progress(f"making: {name}")
    make(catalog_folder)
    try:
        figures = [_ask_all(folder, catalog_folder, table, questions, runs)]
        progress(f"folding {table}")
        fold, _ = run_and_report("growth_ask", f"{FOLD}{table}", catalog_folder, 0, log=folder / "log")
        figures.append(_ask_all(folder, catalog_folder, table, questions, runs))
    finally:
        shutil.rmtree(catalog_folder)
    for (question, figures_before), (_, figures_after) in zip(*figures, strict=True):
        if figures_before[-1] != figures_after[-1]:
            raise MeasuringError(f"{name}, {question}: {figures_before[-1]}, then {figures_after[-1]}")
        yield [question, *figures_before[:-1], *figures_after[:-1]]
    yield [f"fold of {table}", "", f"{fold.cpu_s:.1f}", f"{fold.peak_bytes / 1e6:.0f}", "", "", ""]


def _ask_all(
    folder: Path, catalog_folder: Path, table: str, questions: Sequence[str], runs: int
) -> list[tuple[str, list[str]]]:
    row_count = CatalogReader(str(catalog_folder)).count(table)
    question_figures = []
    for question in questions:
        cost, (report,) = run_and_report("growth_ask", question, catalog_folder, runs, log=folder / "log")
        cpu = median(report["cpu"][1:] or report["cpu"])
        figures = [f"{row_count:,}", f"{cpu:.2f}", f"{cost.peak_bytes / 1e6:.0f}", str(report["answers"])]
        question_figures.append((question, figures))
    return question_figures

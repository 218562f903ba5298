"""Catalogs that have been at work for long: questions before and after rows are folded (adr/0012)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from tests.benchmarks import growth_data
from tests.benchmarks.asking import asked
from tests.benchmarks.chains_data import CHAIN
from tests.benchmarks.growth_ask import FOLD
from tests.benchmarks.measure import MeasuringError, progress
from tests.benchmarks.report import markdown

from lakebackup.store.reader import CatalogReader

WEEKS_KEPT = 30
HEAD = ["question", "rows before", "CPU s", "peak MB", "rows after", "CPU s", "peak MB"]


def growth(folder: Path, days: Sequence[int], weeks: Sequence[int], runs: int) -> Iterator[tuple[str, str]]:
    """Markdown tables, each with a title. `days` that a log has been captured; `weeks` of deleted backups."""
    folder.mkdir(parents=True, exist_ok=True)
    for count in days:
        make = partial(growth_data.make_log, days=count)
        name = f"log of {count} days, {growth_data.REGIONS:,} regions"
        rows = _measured(folder, name, make, "log_regions", ("regions", "stores"), runs)
        yield name, markdown(HEAD, rows)
    for count in weeks:
        make = partial(growth_data.make_pruned, backups=(WEEKS_KEPT + count) * CHAIN, gone=count * CHAIN)
        name = f"{WEEKS_KEPT} weeks of backups, and {count} that were deleted"
        yield name, markdown(HEAD, _measured(folder, name, make, "removals", ("restore",), runs))


def _measured(
    folder: Path, name: str, make: Callable[[Path], None], table: str, questions: Sequence[str], runs: int
) -> Iterator[list[str]]:
    place = folder / "growth"
    progress(f"making: {name}")
    make(place)
    try:
        figures = [_asked(folder, place, table, questions, runs)]
        progress(f"folding {table}")
        fold, _ = asked("growth_ask", f"{FOLD}{table}", place, 0, log=folder / "log")
        figures.append(_asked(folder, place, table, questions, runs))
    finally:
        shutil.rmtree(place)
    for (question, before), (_, after) in zip(*figures, strict=True):
        if before[-1] != after[-1]:
            raise MeasuringError(f"{name}, {question}: {before[-1]}, then {after[-1]}")
        yield [question, *before[:-1], *after[:-1]]
    yield [f"fold of {table}", "", f"{fold.cpu_s:.1f}", f"{fold.peak_bytes / 1e6:.0f}", "", "", ""]


def _asked(
    folder: Path, place: Path, table: str, questions: Sequence[str], runs: int
) -> list[tuple[str, list[str]]]:
    held = CatalogReader(str(place)).count(table)
    found = []
    for question in questions:
        cost, (said,) = asked("growth_ask", question, place, runs, log=folder / "log")
        cpu = median(said["cpu"][1:] or said["cpu"])
        figures = [f"{held:,}", f"{cpu:.2f}", f"{cost.peak_bytes / 1e6:.0f}", str(said["answers"])]
        found.append((question, figures))
    return found

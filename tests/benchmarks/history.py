"""What the next backup costs after many others, each with commits of a row to five tables of the catalog."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median

from tests.benchmarks import history_data
from tests.benchmarks.measure import UNCOUNTED, of_module, progress
from tests.benchmarks.report import markdown

from lakebackup.sql_engine.delta.tiers import MERGE_AT
from lakebackup.sql_engine.delta.upkeep import upkeep_of

HEAD = ["backups", "small files", "next backup: CPU s", "mean with merges", "s", "peak MB"]


def history(folder: Path, backups: Sequence[int], *, merged: bool = True) -> str:
    """Return Markdown: a row for each number of backups. `merged`: with the upkeep that runs do."""
    return markdown(HEAD, _rows(folder, backups, merged=merged))


def _rows(folder: Path, backups: Sequence[int], *, merged: bool) -> Iterator[list[str]]:
    folder.mkdir(parents=True, exist_ok=True)
    for count in backups:
        catalog_folder = folder / "history"
        catalog_folder.mkdir()
        progress(f"making: {count:,} backups")
        history_data.make(catalog_folder, count, merged=merged)
        small_files = upkeep_of(f"{catalog_folder}/catalog").small_files
        # Each table is merged once in so many backups.
        costs = [
            of_module("history_ask", catalog_folder, log=folder / "log") for _ in range(UNCOUNTED + MERGE_AT)
        ][UNCOUNTED:]
        shutil.rmtree(catalog_folder)
        yield [
            f"{count:,}",
            f"{small_files:,}",
            f"{median(cost.cpu_s for cost in costs):.2f}",
            f"{mean(cost.cpu_s for cost in costs):.2f}",
            f"{median(cost.seconds for cost in costs):.2f}",
            f"{max(cost.peak_bytes for cost in costs) / 1e6:.0f}",
        ]

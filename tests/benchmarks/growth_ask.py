"""`python -m tests.benchmarks.growth_ask QUESTION FOLDER RUNS` reports as asking.py says.

QUESTION is regions (what each flush of a log reads), stores (`log status`), restore (`restore topics
--dry-run` into the last days), or fold_<table> (the first step of `catalog optimize` for a table, once).
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks.asking import answer
from tests.benchmarks.chains_data import HOUR_MS, SOURCE, TOPICS

from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter

FOLD = "fold_"


def ask(question: str, folder: Path, run: int) -> Any:
    """Return the answer to a question. Each run opens the catalog again, as a command does."""
    if question.startswith(FOLD):
        table = question.removeprefix(FOLD)
        CatalogWriter(None, str(folder)).fold(table)
        return CatalogReader(str(folder)).count(table)
    reader = CatalogReader(str(folder))
    if question == "restore":
        rng = random.Random(run)
        to_ts = int((folder / "end").read_text("utf-8")) - rng.randrange(1, 100 * HOUR_MS)
        topic = f"t{rng.randrange(TOPICS):03d}"
        plan = plan_restore(
            RestoreRequest(
                str(folder), "file:/nowhere", topics=(topic,), source=SOURCE, to_ts=to_ts, dry_run=True
            ),
            reader,
        )
        return [plan.files, plan.bytes]
    if question == "stores":
        return reader.rows("log_stores", source="prod")
    return sum(len(batch) for batch in reader.query("log_known_regions", source="prod"))


def main(argv: Iterable[str]) -> None:
    """Ask a question once and `runs` times more."""
    question, path, runs = argv
    started = time.perf_counter()
    answer(lambda run: ask(question, Path(path), run), int(runs), opened=time.perf_counter() - started)


if __name__ == "__main__":
    main(sys.argv[1:])

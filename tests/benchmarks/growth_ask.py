"""`python -m tests.benchmarks.growth_ask QUESTION FOLDER RUNS` asks, as asking.py says.

QUESTION is regions (what each flush of a log reads), stores (`log status`), restore (`restore topics
--dry-run` into the last days), or fold_<table>: once what `catalog optimize` does to a table first.
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
    """What a question comes to. Each has a reader of its own, as a command has."""
    if question.startswith(FOLD):
        from lakebackup_jobs.runtime.session import spark_session

        table = question.removeprefix(FOLD)
        CatalogWriter(spark_session(), str(folder)).fold(table)
        return CatalogReader(str(folder)).count(table)
    reader = CatalogReader(str(folder))
    if question == "restore":
        chosen = random.Random(run)
        to_ts = int((folder / "end").read_text("utf-8")) - chosen.randrange(1, 100 * HOUR_MS)
        topic = f"t{chosen.randrange(TOPICS):03d}"
        made = plan_restore(
            RestoreRequest(
                str(folder), "file:/nowhere", topics=(topic,), source=SOURCE, to_ts=to_ts, dry_run=True
            ),
            reader,
        )
        return [made.files, made.bytes]
    if question == "stores":
        return reader.rows("log_stores", source="prod")
    return sum(len(batch) for batch in reader.query("log_known_regions", source="prod"))


def main(argv: Iterable[str]) -> None:
    """First answer and `runs` more."""
    question, place, runs = argv
    started = time.perf_counter()
    answer(lambda run: ask(question, Path(place), run), int(runs), opened=time.perf_counter() - started)


if __name__ == "__main__":
    main(sys.argv[1:])

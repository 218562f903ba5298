"""The questions of docs/questions.md, and what views say of a real catalog in which a file goes missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.kafka_truth import Record, delete_records, produce
from tests.support.runs import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
PAGE = Path(__file__).parents[2] / "docs" / "questions.md"


def obstacles(lab: Lab, topic: str, ts: int) -> list[str]:
    done = lab.restore(topic, to_ts=ts, dry_run=True)
    return [str(found) for found in done["obstacles"]]


@pytest.mark.long
def test_questions_and_coverage_of_a_catalog_with_a_gap_and_a_missing_file(
    lab: Lab, topic: Callable[..., str]
) -> None:
    name = topic("orders", partitions=2)
    ends = []
    for _ in range(3):
        rows = [Record(p, b"k", b"v" * 50, (), now_ms() + 10 * p) for p in (0, 1) for _ in range(20)]
        produce(lab.bootstrap, name, rows)
        ends.append(lab.backup(name)["end_ts"])
    produce(lab.bootstrap, name, [Record(0, b"k", b"v", (), now_ms()) for _ in range(5)])
    delete_records(lab.bootstrap, name, {0: 65})
    ends.append(lab.backup(name)["end_ts"])
    (victim,) = lab.sql(
        "SELECT f.path, f.min_ts FROM files AS f JOIN backups AS b ON b.backup_id = f.backup_id "
        "WHERE b.number = 2 AND f.region = '1'",
    )
    (lab.folder / victim["path"]).unlink()
    lab.verify()

    covered = lab.sql(
        "SELECT region, status, reason, from_ts, to_ts, newest FROM coverage ORDER BY region, to_ts"
    )
    assert [
        (row["region"], row["status"], row["reason"], row["from_ts"], row["to_ts"]) for row in covered
    ] == [
        ("0", "restorable", None, None, ends[2]),
        ("0", "gap", "purged", ends[2], ends[3] - 1),
        ("0", "restorable", None, ends[3] - 1, ends[3]),
        ("1", "restorable", None, None, victim["min_ts"] - 1),
        ("1", "gap", "missing", victim["min_ts"] - 1, ends[2]),
        ("1", "restorable", None, ends[2], ends[3]),
    ]
    for row in covered:
        found = obstacles(lab, name, row["to_ts"])
        told = [one for one in found if f"partition {row['region']}:" in one]
        assert bool(told) == (row["status"] == "gap"), (row, found)

    (left,) = lab.sql("SELECT restorable_ts, lag_ms, present FROM rpo")
    assert left["restorable_ts"] == ends[3]
    assert left["present"]
    assert 0 <= left["lag_ms"] < 600_000
    unusable = lab.sql("SELECT number, reason, path FROM unusable_backups ORDER BY number")
    assert unusable == [{"number": n, "reason": "missing", "path": victim["path"]} for n in (2, 3)]
    assert [row["path"] for row in lab.sql("SELECT path FROM missing_files")] == [victim["path"]]

    # Those of engines with queues are asked in test_queue_questions.py.
    page = PAGE.read_text(encoding="utf-8").split("\n## ")[0]
    questions = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(questions) >= 12
    given = {question: len(lab.sql(question.replace("'orders'", f"'{name}'"))) for question in questions}
    without = [question.split("FROM ")[1].split()[0] for question, rows in given.items() if not rows]
    # No orphan is there, no record is of the hour that the page names, and nothing was deleted.
    assert sorted(without) == ["audit", "files", "orphans"]

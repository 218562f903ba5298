"""The questions of docs/questions.md, and what views say of a catalog with a gap and a missing file.

Made by hand, without a broker.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import EPOCH
from tests.support.command_line import quiet, said
from tests.support.made_backups import MadeBackups, Record

import lakebackup
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.rows.backups import Gap
from lakebackup.rows.upkeep import Check
from lakebackup_jobs.cli.output.rows import json_line
from lakebackup_jobs.topics import restore as restore_topics

PAGE = Path(__file__).parents[4] / "docs" / "questions.md"
NOW = time.time_ns() // 1_000_000
ENDS = [NOW - 4_000, NOW - 3_000, NOW - 2_000, NOW - 1_000]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeBackups:
    """Three backups of two partitions, a fourth over a gap in partition 0; a file of the second is gone."""
    made = MadeBackups(tmp_path_factory.mktemp("backups"))

    def records(partition: int, first: int, end_ts: int) -> list[Record]:
        return [Record(partition, o, end_ts - 100 + partition, b"k", b"v") for o in range(first, first + 20)]

    for step, end_ts in enumerate(ENDS[:3]):
        made.backup([records(p, 20 * step, end_ts) for p in (0, 1)], end_ts=end_ts)
    last = made.backup([records(0, 65, ENDS[3]), records(1, 60, ENDS[3])], full=True, end_ts=ENDS[3])
    gap = Gap(
        backup_id=last, source="prod", scope="orders", epoch=EPOCH, region="0", from_position=60,
        to_position=65, reason="purged", from_ts=ENDS[2], to_ts=ENDS[3], bridged=False,
    )  # fmt: skip
    (gone,) = asked(made, "SELECT path FROM files WHERE added_in = 2 AND region = '1'")
    (made.folder / gone["path"]).unlink()
    missing = Check(
        check_id="c", at=1000 * NOW, backup_id=None, destination=made.destination, path=gone["path"],
        mode="hash", outcome="missing",
    )  # fmt: skip
    made.add(gap, missing)
    return made


def asked(made: MadeBackups, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = made.reader().select(sql).read_all().to_pylist()
    return rows


def obstacles(made: MadeBackups, to_ts: int) -> list[str]:
    request = RestoreRequest(
        destination=str(made.folder), target="dir:x", topics=("orders",), to_ts=to_ts, dry_run=True
    )
    reporter = quiet()
    return [str(one) for one in restore_topics.run(request, reporter=reporter)["obstacles"]]


def test_coverage_of_a_catalog_with_a_gap_and_a_missing_file(made: MadeBackups) -> None:
    covered = asked(
        made, "SELECT region, status, reason, from_ts, to_ts FROM coverage ORDER BY region, to_ts"
    )
    first_lost = ENDS[1] - 99
    assert [tuple(row.values()) for row in covered] == [
        ("0", "restorable", None, None, ENDS[2]),
        ("0", "gap", "purged", ENDS[2], ENDS[3] - 1),
        ("0", "restorable", None, ENDS[3] - 1, ENDS[3]),
        ("1", "restorable", None, None, first_lost - 1),
        ("1", "gap", "missing", first_lost - 1, ENDS[2]),
        ("1", "restorable", None, ENDS[2], ENDS[3]),
    ]
    for row in covered:
        told = [one for one in obstacles(made, row["to_ts"]) if f"partition {row['region']}:" in one]
        assert bool(told) == (row["status"] == "gap"), (row, told)

    (lost,) = asked(made, "SELECT path FROM missing_files")
    unusable = asked(made, "SELECT number, reason, path FROM unusable_backups ORDER BY number")
    assert unusable == [{"number": n, "reason": "missing", "path": lost["path"]} for n in (2, 3)]


def questions() -> list[str]:
    page = PAGE.read_text(encoding="utf-8").split("\n## ")[0]
    return re.findall(r"```sql\n(.*?)```", page, re.DOTALL)


def test_a_connection_answers_as_the_command_line(
    made: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    made.flush()
    connection = lakebackup.connect(str(made.folder))
    for question in questions():
        told = [json.loads(json_line(row)) for row in connection.sql(question)]
        assert _settled(told) == _settled(said(capsys, "sql", question, "--repo", str(made.folder))), question


def _settled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what counts the time up to now."""
    return [{name: row[name] for name in row if not re.search("age|ago|lag", name)} for row in rows]


def test_every_question_has_an_answer(made: MadeBackups) -> None:
    assert len(questions()) >= 12
    given = {question: len(asked(made, question)) for question in questions()}
    without = [question.split("FROM ")[1].split()[0] for question, rows in given.items() if not rows]
    # No orphan is there, no record is of the hour that the page names, and nothing was deleted.
    assert sorted(without) == ["audit", "files", "orphans"]

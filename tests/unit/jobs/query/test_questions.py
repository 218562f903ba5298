"""The questions of docs/questions.md, and views of a catalog with a gap and a missing file.

The catalog is made by hand, without a broker.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.asked_catalog import ENDS, made_catalog, questions, settled
from tests.support.command_line import quiet, result_rows
from tests.support.made_backups import MadeBackups

import lakebackup
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup_jobs.cli.output.rows import json_line
from lakebackup_jobs.topics import restore as restore_topics


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> MadeBackups:
    return made_catalog(tmp_path_factory.mktemp("backups"))


def select_rows(backups: MadeBackups, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = backups.reader().select(sql).read_all().to_pylist()
    return rows


def obstacles(backups: MadeBackups, to_ts: int) -> list[str]:
    request = RestoreRequest(
        destination=str(backups.folder), target="dir:x", topics=("orders",), to_ts=to_ts, dry_run=True
    )
    reporter = quiet()
    return [str(obstacle) for obstacle in restore_topics.run(request, reporter=reporter)["obstacles"]]


def test_coverage_of_a_catalog_with_a_gap_and_a_missing_file(backups: MadeBackups) -> None:
    covered = select_rows(
        backups, "SELECT region, status, reason, from_ts, to_ts FROM coverage ORDER BY region, to_ts"
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
        region_obstacles = [
            obstacle
            for obstacle in obstacles(backups, row["to_ts"])
            if f"partition {row['region']}:" in obstacle
        ]
        assert bool(region_obstacles) == (row["status"] == "gap"), (row, region_obstacles)

    (lost,) = select_rows(backups, "SELECT path FROM missing_files")
    unusable = select_rows(backups, "SELECT number, reason, path FROM unusable_backups ORDER BY number")
    assert unusable == [{"number": n, "reason": "missing", "path": lost["path"]} for n in (2, 3)]


def test_a_connection_answers_as_the_command_line(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = lakebackup.connect(str(backups.folder))
    for question in questions().values():
        rows = [json.loads(json_line(row)) for row in connection.sql(question)]
        assert settled(rows) == settled(
            result_rows(capsys, "sql", question, "--repo", str(backups.folder))
        ), question


def test_there_are_questions_and_every_one_has_an_answer(backups: MadeBackups) -> None:
    assert len(questions()) >= 20
    for question, sql in questions().items():
        assert select_rows(backups, sql), question

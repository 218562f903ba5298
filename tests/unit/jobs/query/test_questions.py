"""The questions of docs/questions.md, and what views say of a catalog with a gap and a missing file.

Made by hand, without a broker.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.asked_catalog import ENDS, made_catalog, questions, settled
from tests.support.command_line import quiet, said
from tests.support.made_backups import MadeBackups

import lakebackup
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup_jobs.cli.output.rows import json_line
from lakebackup_jobs.topics import restore as restore_topics


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeBackups:
    return made_catalog(tmp_path_factory.mktemp("backups"))


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


def test_a_connection_answers_as_the_command_line(
    made: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = lakebackup.connect(str(made.folder))
    for question in questions().values():
        told = [json.loads(json_line(row)) for row in connection.sql(question)]
        assert settled(told) == settled(said(capsys, "sql", question, "--repo", str(made.folder))), question


def test_there_are_questions_and_every_one_has_an_answer(made: MadeBackups) -> None:
    assert len(questions()) >= 20
    for question, sql in questions().items():
        assert asked(made, sql), question

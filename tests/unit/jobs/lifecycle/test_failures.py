"""The row that a failed run leaves, and when it leaves none; tests/contract covers every source."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import quiet
from tests.support.life_cases import LinesCase
from tests.support.line_source import Lines, LinesRequest
from tests.support.looks import rows_of, select_rows

from lakebackup.errors import Damaged, EnvironmentProblem, NotFound, UsageProblem
from lakebackup.rows.upkeep import Migration
from lakebackup.sql_engine.delta.ddl import make_table
from lakebackup.sql_engine.delta.table import append
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.workspace import Workspace

SECRET = "s3cr3t-pass"


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LinesCase:
    """A source with one backup, whose next backup fails."""
    case = LinesCase(tmp_path)
    case.run()
    case.file.write_text("one\ntwo\nthree\nfour")
    monkeypatch.setenv("LAKEBACKUP_KAFKA__SASL_PASSWORD", SECRET)
    monkeypatch.setattr(
        Lines,
        "copy",
        failing_copy(EnvironmentProblem(f"no {SECRET} for kafka://me:pw@host\nmore", hint="Start it.")),
    )
    return case


def failing_copy(error: Exception) -> Any:
    def copy(*_: Any) -> Any:
        raise error

    return copy


def failure_rows(case: LinesCase, **changes: Any) -> list[dict[str, Any]]:
    """The rows of `failures` after a run of the case, which must fail."""
    with pytest.raises((EnvironmentProblem, UsageProblem, KeyError)):
        case.run(**changes)
    return select_rows(case.root, "SELECT source_kind, run, error, message, exit_code FROM failures")


def test_a_row_has_the_message_and_no_secret(case: LinesCase) -> None:
    (row,) = failure_rows(case)
    assert row == {
        "source_kind": "lines",
        "run": "backup",
        "error": "EnvironmentProblem",
        "message": "no **** for kafka://****@host\nmore\nStart it.",
        "exit_code": 6,
    }


def test_a_bug_is_a_failure_too(case: LinesCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lines, "copy", failing_copy(KeyError("x" * 3000)))
    (row,) = failure_rows(case)
    assert (row["error"], row["exit_code"], len(row["message"])) == ("KeyError", 1, 2000)


def test_no_row_of_a_dry_run_or_of_wrong_flags(case: LinesCase, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure_rows(case, dry_run=True) == []
    monkeypatch.setattr(Lines, "copy", failing_copy(UsageProblem("no such flag")))
    assert failure_rows(case) == []


def test_no_row_where_the_destination_lost_its_id(case: LinesCase, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_id(*_: Any) -> Any:
        (case.root / "lakebackup.json").unlink()
        raise EnvironmentProblem("another disk is mounted here")

    monkeypatch.setattr(Lines, "copy", lose_id)
    assert failure_rows(case) == []
    assert not (case.root / "lakebackup.json").exists()


def test_a_catalog_of_an_earlier_version_gets_the_table(
    case: LinesCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = case.root / "catalog"
    for table in ("failures", "migrations"):
        shutil.rmtree(catalog / table)
    storage = open_storage(str(catalog))
    make_table(storage, "migrations")
    append(storage, "migrations", [Migration(version=n, name="a", applied_at=1) for n in range(1, 7)], "m")
    assert select_rows(case.root, "SELECT failed_runs, last_failure FROM status") == [
        {"failed_runs": 0, "last_failure": None}
    ]
    # The error comes before the run itself brings the catalog up to date.
    monkeypatch.setattr("tests.support.line_source.Workspace.writer", failing_writer(catalog))
    assert len(failure_rows(case)) == 1
    assert select_rows(case.root, "SELECT failed_runs FROM status") == [{"failed_runs": 1}]


def failing_writer(catalog: Path) -> Any:
    writer = Workspace.writer

    def of_run(work: Workspace, *, in_process: bool = False) -> Any:
        if in_process:
            return writer(work, in_process=True)
        raise EnvironmentProblem(f"{catalog} cannot be reached")

    return of_run


@pytest.mark.long
def test_a_failure_of_upkeep_is_over_after_the_next_success(case: LinesCase) -> None:
    work = Workspace(LinesRequest(destination=str(case.root), file=case.file), case.NAME, quiet())

    def compact(error: Exception | None) -> None:
        with suppress(EnvironmentProblem, UsageProblem, NotFound), work.running("compact"):
            if error:
                raise error

    for error, failed in (
        (None, 0),
        (EnvironmentProblem("the disk is full"), 1),
        (UsageProblem("no such flag"), 1),
        (NotFound("no such topic"), 1),
        (Damaged("a file is torn"), 2),
        (None, 0),
        (None, 0),
    ):
        with suppress(Damaged):
            compact(error)
        assert select_rows(case.root, "SELECT failed_runs FROM status") == [{"failed_runs": failed}]
    assert select_rows(case.root, "SELECT DISTINCT source_kind, run, exit_code > 0 AS bad FROM failures") == [
        {"source_kind": "lines", "run": "compact", "bad": True}
    ]
    # A success without an earlier failure leaves no row.
    assert len(rows_of(case.root, "failures")) == 3

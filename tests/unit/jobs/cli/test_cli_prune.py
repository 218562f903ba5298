"""`lakebackup prune` at the command line, and what it refuses, without Java."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import EnvironmentProblem, TooLarge, UsageProblem
from lakebackup.rows.backups import Backup
from lakebackup.sql_engine import EngineChoice
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli import main
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.upkeep import prune


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--delete", "--dry-run"], 2, "--delete and --dry-run exclude each other"),
        (["--keep-time", "soon"], 2, "'soon' is not a span of time"),
        (["--keep-size", "huge"], 2, "--keep-size 'huge' is not a size"),
        (["--keep-size", "-1"], 2, "--keep-size '-1' is not a size"),
        (["14", "orders"], 2, "14 is a recovery window for whole backups, and orders is a topic"),
        (["0"], 2, "The recovery window is 0 days"),
        (["14", "--future"], 2, "--future deletes backups whole, and takes neither DAYS nor a TOPIC"),
        (["--future", "--keep-time", "1d"], 2, "--future and --keep-time exclude each other"),
        (["14"], 3, "There is no catalog"),
        ([], 3, "There is no catalog"),
        (["--delete"], 3, "There is no catalog"),
    ],
)
def test_invalid_flags_and_missing_catalogs_are_reported(
    flags: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["prune", "--repo", str(tmp_path / "nothing"), *flags]) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()


def test_inventories_of_other_programs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backups = MadeBackups(tmp_path)
    for source in ("medusa-a", "medusa-b"):
        backups.backup([[Record(0, 0)]], full=True, source=source)
    inventories = [
        replace(row, source_kind="medusa") for row in backups._rows["backups"] if isinstance(row, Backup)
    ]
    backups._rows |= {"backups": [*inventories], "scopes": []}
    backups.flush()
    assert main(["prune", "7", "--repo", str(tmp_path)]) == UsageProblem.exit_code
    err = capsys.readouterr().err
    assert "several sources, none of which can be restored: medusa-a, medusa-b" in err
    assert "another program" in err


def test_only_plans_too_large_for_duckdb_run_on_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(0, 0)]])
    backups.flush()
    reader, reporter = backups.reader(), quiet()
    monkeypatch.setattr(CatalogReader, "with_spark", lambda self, spark: (self, spark))
    spark: Any = "the session"

    def engine_used(session: object, engine: EngineChoice = "auto", error: Exception | None = None) -> str:
        """The engine that makes the plan with this session. DuckDB raises `error` if there is one."""

        def plan(plan_reader: object) -> str:
            if plan_reader is not reader:
                return "spark"
            if error:
                raise error
            return "duckdb"

        request = prune.PruneRequest(str(tmp_path), engine=engine)
        return plan_on_engine(reader, request, session, reporter, plan)

    too_large = TooLarge("more than 1 GB")
    assert (engine_used(spark), engine_used(spark, "spark"), engine_used(spark, error=too_large)) == (
        "duckdb",
        "spark",
        "spark",
    )
    with pytest.raises(TooLarge):
        engine_used(spark, "duckdb", too_large)
    assert (engine_used(spark, "duckdb"), engine_used(None)) == ("duckdb", "duckdb")
    with pytest.raises(EnvironmentProblem, match="S3 does not answer"):
        engine_used(spark, error=EnvironmentProblem("S3 does not answer."))

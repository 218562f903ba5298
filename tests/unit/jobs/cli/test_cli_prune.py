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
from lakebackup_jobs.lifecycle.planning import planned
from lakebackup_jobs.upkeep import prune


@pytest.mark.parametrize(
    ("flags", "code", "said"),
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
def test_what_cannot_be_done_is_reported(
    flags: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["prune", "--repo", str(tmp_path / "nothing"), *flags]) == code
    assert said in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()


def test_inventories_of_other_programs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = MadeBackups(tmp_path)
    for source in ("medusa-a", "medusa-b"):
        made.backup([[Record(0, 0)]], full=True, source=source)
    kept = [replace(row, source_kind="medusa") for row in made._rows["backups"] if isinstance(row, Backup)]
    made._rows |= {"backups": [*kept], "scopes": []}
    made.flush()
    assert main(["prune", "7", "--repo", str(tmp_path)]) == UsageProblem.exit_code
    told = capsys.readouterr().err
    assert "several sources, none of which can be restored: medusa-a, medusa-b" in told
    assert "another program" in told


def test_only_what_is_too_large_is_planned_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeBackups(tmp_path)
    made.backup([[Record(0, 0)]])
    made.flush()
    reader, reporter = made.reader(), quiet()
    monkeypatch.setattr(CatalogReader, "on", lambda self, spark: (self, spark))
    spark: Any = "the session"

    def by(given: object, engine: EngineChoice = "auto", error: Exception | None = None) -> str:
        """What makes the plan, given a session; `error` is what DuckDB raises."""

        def plan(asked: object) -> str:
            if asked is not reader:
                return "spark"
            if error:
                raise error
            return "duckdb"

        asked = prune.PruneRequest(str(tmp_path), engine=engine)
        return planned(reader, asked, given, reporter, plan)

    full = TooLarge("more than 1 GB")
    assert (by(spark), by(spark, "spark"), by(spark, error=full)) == ("duckdb", "spark", "spark")
    with pytest.raises(TooLarge):
        by(spark, "duckdb", full)
    assert (by(spark, "duckdb"), by(None)) == ("duckdb", "duckdb")
    with pytest.raises(EnvironmentProblem, match="S3 does not answer"):
        by(spark, error=EnvironmentProblem("S3 does not answer."))

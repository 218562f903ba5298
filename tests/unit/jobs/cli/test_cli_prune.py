"""`lakebackup prune` at the command line, and what it refuses, without Java."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import EnvironmentProblem, TooLarge, UsageProblem
from lakebackup.rows.backups import Backup
from lakebackup_jobs.cli import main
from lakebackup_jobs.upkeep import prune

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--delete", "--dry-run"], 2, "--delete and --dry-run exclude each other"),
        (["--keep-time", "soon"], 2, "'soon' is not a span of time"),
        (["--keep-size", "huge"], 2, "--keep-size 'huge' is not a size"),
        (["--keep-size", "-1"], 2, "--keep-size '-1' is not a size"),
        (["14", "orders"], 2, "14 days are of whole backups, and orders is a topic"),
        (["0"], 2, "A recovery window of 0 days is none"),
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
    assert main(["prune", "--from", str(tmp_path / "nothing"), *flags]) == code
    assert said in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()


def test_inventories_of_other_programs_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = MadeBackups(tmp_path)
    for source in ("medusa-a", "medusa-b"):
        made.backup([[Record(0, 0)]], full=True, source=source)
    kept = [replace(row, source_kind="medusa") for row in made._rows["backups"] if isinstance(row, Backup)]
    made._rows |= {"backups": [*kept], "scopes": []}
    made.flush()
    assert main(["prune", "7", "--from", str(tmp_path)]) == UsageProblem.exit_code
    told = capsys.readouterr().err
    assert "several sources, none of which can be restored: medusa-a, medusa-b" in told
    assert "another program" in told


def test_only_what_is_too_large_is_planned_on_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeBackups(tmp_path)
    made.backup([[Record(0, 0)]])
    made.flush()
    request = prune.PruneRequest(str(tmp_path), topics=("orders",))

    def plan(error: EnvironmentProblem) -> object:
        monkeypatch.setattr(prune.PruneRequest, "plan", mock.Mock(side_effect=[error, "the plan of Spark"]))
        return prune._planned(request, "prod", (), lambda: None, quiet())

    assert plan(TooLarge("more than 1 GB")) == "the plan of Spark"
    with pytest.raises(EnvironmentProblem, match="S3 does not answer"):
        plan(EnvironmentProblem("S3 does not answer."))

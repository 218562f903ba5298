"""A day or a time of day in a flag is in the time zone of the source's policy, and the command says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.made_backups import MadeBackups, Record

from lakebackup_jobs.cli import main


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """A repository with a backup of the source prod."""
    backups = MadeBackups(tmp_path)
    backups.backup([[Record(0, 0)]], full=True)
    backups.flush()
    return str(tmp_path)


def test_a_time_of_day_is_utc_without_a_policy(repository: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--repo", repository, "--as-of", "tomorrow 12:00", "--json"]) == 0
    note = json.loads(capsys.readouterr().err)
    assert note["event"] == "note"
    assert "--as-of 'tomorrow 12:00' is " in note["message"]
    assert note["message"].endswith("T12:00:00.000Z: read in UTC.")


def test_a_time_of_day_is_in_the_time_zone_of_the_policy(
    repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "set", "prod", "--repo", repository, "--time-zone", "Asia/Tokyo"]) == 0
    capsys.readouterr()
    assert main(["list", "--repo", repository, "--source", "prod", "--as-of", "tomorrow 12:00"]) == 0
    err = capsys.readouterr().err
    assert "T03:00:00.000Z: read in Asia/Tokyo, the time zone of the policy of prod." in err

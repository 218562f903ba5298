"""A catalog that lost its newest commit is reported, and nothing is backed up or restored from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.support.catalogs import backup_id
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record

from lakebackup.errors import Refused
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.recovery.rebuild import SKIPPED_ACTION
from lakebackup.rows.upkeep import Audit
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup.store.behind import lost_backups
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.snapshots.import_manifest import ManifestRequest
from lakebackup_jobs.snapshots.import_manifest import run as import_manifest
from lakebackup_jobs.topics import restore as restore_topics
from lakebackup_jobs.upkeep import verify
from lakebackup_jobs.upkeep.verify import VerifyRequest


@pytest.fixture
def backups(tmp_path: Path) -> MadeBackups:
    """Two backups of prod and one of other, each with its own commit and marker; a fourth is being taken."""
    backups = MadeBackups(tmp_path / "backups")
    for number, source in ((1, "prod"), (2, "other"), (3, "prod")):
        backups.backup([[Record(0, number)]], source=source)
        backups.flush()
        sidecar.mark(backups.storage, layout.marker_path(source, backup_id(number), "complete"))
    backups.storage.put(layout.parts_path("prod", backup_id(4), 0), b"")
    return backups


def lose_newest(backups: MadeBackups, table: str = "backups") -> None:
    max((backups.folder / f"catalog/{table}/_delta_log").glob("*.json")).unlink()


def test_a_complete_catalog_is_current(backups: MadeBackups) -> None:
    assert lost_backups(backups.reader()) == []


def test_a_row_comes_before_its_marker(backups: MadeBackups) -> None:
    """A run that commits between the two reads is not reported as lost."""
    reader = backups.reader()
    assert len(reader.rows("every_backup")) == 3  # the reader keeps this version
    backups.backup([[Record(0, 4)]])
    backups.flush()
    sidecar.mark(backups.storage, layout.marker_path("prod", backup_id(4), "complete"))
    assert lost_backups(reader) == []


def test_a_lost_commit_is_reported_by_queries_and_refused_by_runs(
    backups: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_newest(backups)
    assert lost_backups(backups.reader()) == [backup_id(3)]
    repo = str(backups.folder)
    assert main(["list", "--repo", repo, "--json"]) == 0
    output = capsys.readouterr()
    assert {json.loads(line)["backup_id"] for line in output.out.splitlines()} == {backup_id(1), backup_id(2)}
    assert backup_id(3) in output.err
    assert "lakebackup catalog rebuild" in output.err
    (tmp_path / "m.json").write_text("{}")
    manifest_request = ManifestRequest(destination=repo, file=tmp_path / "m.json", source="yb")
    with pytest.raises(Refused, match="is behind"):
        import_manifest(manifest_request, reporter=quiet())
    restore_request = RestoreRequest(destination=repo, source="prod", topics=("orders",), target="dir:x")
    with pytest.raises(Refused, match="is behind"):
        restore_topics.run(restore_request, reporter=quiet())
    with pytest.raises(Refused, match="is behind"):
        verify.run(VerifyRequest(destination=repo), reporter=quiet())


@pytest.mark.parametrize("table", ["files", "positions", "scopes"])
def test_lost_rows_of_a_backup_in_other_tables_are_reported(
    table: str, backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    """The backup's own row exists: unnoticed, a restore would bring less than the backup holds."""
    lose_newest(backups, table)
    repo = str(backups.folder)
    assert main(["list", "--repo", repo]) == 0
    assert f"the newest commits of {table} are not there," in capsys.readouterr().err
    for verb in (["restore", "topics", "--pattern", ".*", "--to", "dir:x"], ["verify"]):
        assert main([*verb, "--repo", repo]) == 5
        assert "is behind" in capsys.readouterr().err


def test_a_backup_that_a_rebuild_left_out_is_not_lost(backups: MadeBackups) -> None:
    lose_newest(backups)
    backups.add(Audit(at=1, actor="me", action=SKIPPED_ACTION, subject=backup_id(3), detail="{}"))
    assert lost_backups(backups.reader()) == []


def test_a_restore_writes_nothing_when_a_root_is_not_its_destination(
    backups: MadeBackups, tmp_path: Path
) -> None:
    """It is refused before the target is touched and before Spark starts."""
    elsewhere = tmp_path / "elsewhere"
    (backups.folder / "catalog").rename(elsewhere)
    (backups.folder / "lakebackup.json").write_text('{"format": 1, "destination": "another"}')
    options = {"destination": str(backups.folder), "catalog": str(elsewhere), "source": "prod"}
    request = RestoreRequest(**options, topics=("orders",), target=f"dir:{tmp_path}/out")
    with pytest.raises(Refused, match=r"does not prove|does not know where"):
        restore_topics.run(request, reporter=quiet())
    assert not (tmp_path / "out").exists()


def test_an_empty_catalog_beside_backups_is_behind(backups: MadeBackups) -> None:
    """If the first commit or the whole catalog was lost, a backup would start with number 1 again."""
    shutil.rmtree(backups.folder / "catalog")
    with pytest.raises(Refused, match="is behind"):
        CatalogWriter(None, str(backups.folder)).prepare()
    lost_ids = lost_backups(CatalogReader.require(str(backups.folder)))
    assert sorted(lost_ids) == [backup_id(1), backup_id(2), backup_id(3)]

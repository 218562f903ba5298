"""A catalog that lost its newest commit says so, and nothing is made or restored by it."""

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
from lakebackup.recovery.rebuild import LEFT_OUT
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
def made(tmp_path: Path) -> MadeBackups:
    """Two backups of prod and one of other, each in a commit of its own and marked; one is at work."""
    made = MadeBackups(tmp_path / "backups")
    for number, source in ((1, "prod"), (2, "other"), (3, "prod")):
        made.backup([[Record(0, number)]], source=source)
        made.flush()
        sidecar.mark(made.storage, layout.marker_path(source, backup_id(number), "complete"))
    made.storage.put(layout.parts_path("prod", backup_id(4), 0), b"")
    return made


def lose_newest(made: MadeBackups, table: str = "backups") -> None:
    max((made.folder / f"catalog/{table}/_delta_log").glob("*.json")).unlink()


def test_a_whole_catalog_is_current(made: MadeBackups) -> None:
    assert lost_backups(made.reader()) == []


def test_a_row_comes_before_its_marker(made: MadeBackups) -> None:
    """A run that commits between our two looks loses nothing."""
    reader = made.reader()
    assert len(reader.rows("every_backup")) == 3  # this reader stays as it is now
    made.backup([[Record(0, 4)]])
    made.flush()
    sidecar.mark(made.storage, layout.marker_path("prod", backup_id(4), "complete"))
    assert lost_backups(reader) == []


def test_a_lost_commit_is_named_by_a_question_and_refused_by_a_run(
    made: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose_newest(made)
    assert lost_backups(made.reader()) == [backup_id(3)]
    where = str(made.folder)
    assert main(["list", "--repo", where, "--json"]) == 0
    told = capsys.readouterr()
    assert {json.loads(line)["backup_id"] for line in told.out.splitlines()} == {backup_id(1), backup_id(2)}
    assert backup_id(3) in told.err
    assert "lakebackup catalog rebuild" in told.err
    (tmp_path / "m.json").write_text("{}")
    brought = ManifestRequest(destination=where, file=tmp_path / "m.json", source="yb")
    with pytest.raises(Refused, match="is behind"):
        import_manifest(brought, reporter=quiet())
    topics = RestoreRequest(destination=where, source="prod", topics=("orders",), target="dir:x")
    with pytest.raises(Refused, match="is behind"):
        restore_topics.run(topics, reporter=quiet())
    with pytest.raises(Refused, match="is behind"):
        verify.run(VerifyRequest(destination=where), reporter=quiet())


@pytest.mark.parametrize("table", ["files", "positions", "scopes"])
def test_a_backup_whose_other_rows_are_lost(
    table: str, made: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own row is there: a restore would bring less than the backup holds, without a word."""
    lose_newest(made, table)
    where = str(made.folder)
    assert main(["list", "--repo", where]) == 0
    assert f"the newest commits of {table} are not there," in capsys.readouterr().err
    for verb in (["restore", "topics", "--pattern", ".*", "--to", "dir:x"], ["verify"]):
        assert main([*verb, "--repo", where]) == 5
        assert "is behind" in capsys.readouterr().err


def test_a_backup_that_a_rebuild_could_not_put_in_is_not_lost(made: MadeBackups) -> None:
    lose_newest(made)
    made.add(Audit(at=1, actor="me", action=LEFT_OUT, subject=backup_id(3), detail="{}"))
    assert lost_backups(made.reader()) == []


def test_a_restore_writes_nothing_when_a_root_is_not_its_destination(
    made: MadeBackups, tmp_path: Path
) -> None:
    """Before the target is touched, and before Spark."""
    elsewhere = tmp_path / "elsewhere"
    (made.folder / "catalog").rename(elsewhere)
    (made.folder / "lakebackup.json").write_text('{"format": 1, "destination": "another"}')
    where = {"destination": str(made.folder), "catalog": str(elsewhere), "source": "prod"}
    topics = RestoreRequest(**where, topics=("orders",), target=f"dir:{tmp_path}/out")
    with pytest.raises(Refused, match=r"does not prove|does not know where"):
        restore_topics.run(topics, reporter=quiet())
    assert not (tmp_path / "out").exists()


def test_an_empty_catalog_beside_backups_is_behind(made: MadeBackups) -> None:
    """The first commit was lost, or the whole catalog: a backup would begin with number 1 again."""
    shutil.rmtree(made.folder / "catalog")
    with pytest.raises(Refused, match="is behind"):
        CatalogWriter(None, str(made.folder)).prepare()
    found = lost_backups(CatalogReader.require(str(made.folder)))
    assert sorted(found) == [backup_id(1), backup_id(2), backup_id(3)]

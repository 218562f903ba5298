"""What commands that need no Java say of an engine: shown, judged, refused with the right verb."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.catalogs import backup_id
from tests.support.command_line import result_rows
from tests.support.made_backups import MadeBackups
from tests.support.made_queues import MadeQueues

from lakebackup.errors import NotFound, Refused
from lakebackup.plan.topics.request import only_source
from lakebackup.plan.upkeep.prune import Leaving, plan_chains, require_proof
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main


def id_of(nth: int) -> str:
    """The id of the nth backup of the queues."""
    return backup_id(3600 + nth)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Full 1, incremental 2, full 3; a transaction is open at the ends of 1 and 2."""
    root = tmp_path_factory.mktemp("engine")
    MadeBackups(root)
    engine = MadeQueues(root, CatalogWriter(None, str(root)))
    engine.write(7, transaction="t-1")
    engine.write(8, transaction="t-1", queue="journal.0")
    engine.full(10)
    engine.schemas.append({"version": 2, "tid": 13, "change": "age", "schema": {"person": ["age"]}})
    engine.write(14)
    engine.incremental(20)
    engine.write(23, transaction="t-1", kind="commit")
    engine.full(40)
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    copied = shutil.copytree(template, tmp_path / "backups")
    monkeypatch.setenv("LAKEBACKUP_REPO", str(copied))
    return copied


@pytest.mark.usefixtures("root")
def test_show_describes_a_backup_and_its_open_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    (full,) = result_rows(capsys, "show", id_of(1))
    expected = {
        "kind": "full", "last_tid": 8, "snapshot_id": backup_id(1), "open_transactions": 1, "carried": 0,
        "schema_version": 1,
    }  # fmt: skip
    assert full.items() >= expected.items()
    assert full["open"] == [{"transaction_id": "t-1", "first_tid": 7, "partitions": 2, "entries": 2}]
    (child,) = result_rows(capsys, "show", id_of(2))
    expected = {
        "kind": "differential", "first_tid": 7, "last_tid": 14, "snapshot_id": None, "open_transactions": 1,
        "carried": 2, "schema_version": 2, "schema_from_tid": 13,
    }  # fmt: skip
    assert child.items() >= expected.items()
    assert [(row["scope"], row["entries"]) for row in child["topics"]] == [("delta.0", 2), ("journal.0", 1)]
    assert main(["show", id_of(2)]) == 0
    text = capsys.readouterr().out
    assert "last tid" in text
    assert "t-1" in text


@pytest.mark.usefixtures("root")
def test_lists_contain_backups_of_queues(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {row["backup_id"]: row for row in result_rows(capsys, "list", "--source", "social")}
    assert {name: row["kind"] for name, row in listed.items()} == {
        id_of(1): "full", id_of(2): "differential", id_of(3): "full",
    }  # fmt: skip
    files = result_rows(capsys, "files", id_of(2))
    assert sorted(row["role"] for row in files) == ["config", "data", "data", *["meta"] * 4, "schema"]
    tree = result_rows(capsys, "show", "--tree", "social")
    assert [(row["backup_id"], row["base"]) for row in tree] == [
        (id_of(1), id_of(1)), (id_of(2), id_of(1)), (id_of(3), id_of(3)),
    ]  # fmt: skip
    summary, *_ = result_rows(capsys, "diff", id_of(1), id_of(2))
    assert (summary["a"], summary["b"]) == (id_of(1), id_of(2))
    assert [(row["change"], row["files"], row["entries"]) for row in summary["totals"]] == [("added", 2, 3)]


@pytest.mark.parametrize(
    "command",
    [
        ["restore", "topics", "delta.0", "--source", "social", "--to", "dir:out"],
        ["restore", "topics", "--select", "SELECT path FROM files WHERE min_tid > 0", "--to", "dir:out"],
        ["merge", "1", "--source", "social"],
        ["compact", "--source", "social"],
        ["restore", "groups", "--source", "social", "--to", "kafka://nowhere:1"],
        ["archive", "export", "social", "--to", "out"],
        ["archive", "restore", "social", "--to", "out"],
    ],
)
@pytest.mark.usefixtures("root")
def test_verbs_of_topics_name_the_verbs_of_queues(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (error,) = result_rows(capsys, *command, code=Refused.exit_code)
    assert "social are of another kind: an engine's queues" in error["message"]
    assert "`lakebackup backup queue`, `restore queue`" in error["hint"]


@pytest.mark.parametrize(
    "command",
    [
        ["log", "restore", "social", "--to", "dir:out"],
        ["restore", "snapshot", "--source", "social", "--to", "out"],
    ],
)
@pytest.mark.usefixtures("root")
def test_verbs_of_other_sources_name_the_kind_of_source(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (error,) = result_rows(capsys, *command, code=Refused.exit_code)
    assert "of another kind: an engine's queues" in error["message"]
    assert "`restore queue`" in error["hint"]


@pytest.mark.usefixtures("root")
def test_a_select_cannot_read_messages_of_a_queue(capsys: pytest.CaptureFixture[str]) -> None:
    for topic in ("delta.0", "social/delta.0"):
        (error,) = result_rows(capsys, "sql", f"SELECT * FROM records('{topic}')", code=Refused.exit_code)
        assert "delta.0 is a queue of the engine social" in error["message"]


def test_an_engine_is_refused_as_the_only_source(root: Path) -> None:
    reader = CatalogReader.require(str(root)).supposing(
        {backup_id(nth): "deleted" for nth in (1, 2)}  # its snapshots
    )
    with pytest.raises(Refused, match="social are of another kind: an engine"):
        only_source(reader)


@pytest.mark.usefixtures("root")
def test_a_policy_applies_to_an_engine_and_a_schedule_needs_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (error,) = result_rows(capsys, "policy", "set", "social", "--incr", "hourly", code=2)
    assert "does not say what to back up" in error["message"]
    result_rows(capsys, "policy", "set", "social", "--redundancy", "1")
    assert result_rows(capsys, "due")[-1]["due"] == []
    rows = result_rows(
        capsys, "sql", "SELECT status, reason FROM obsolete_backups WHERE source = 'social' ORDER BY number"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("OBSOLETE", "redundancy"), ("OBSOLETE", "redundancy"), ("VALID", "redundancy"),
    ]  # fmt: skip
    (prune_plan,) = result_rows(capsys, "prune", "--source", "social")
    assert [row["backup_id"] for row in prune_plan["backups"]] == [id_of(2), id_of(1)]
    assert (prune_plan["released"], prune_plan["topics"], prune_plan["of_files"]) == (
        [backup_id(1)],
        [],
        prune_plan["files"],
    )
    (error,) = result_rows(capsys, "prune", "delta.0", "--source", "social", code=2)
    assert "social is an engine, whose messages go with the backups that need them" in error["message"]


def test_a_prune_plan_counts_the_files_that_it_deletes(root: Path) -> None:
    reader = CatalogReader.require(str(root))
    leaving = Leaving(id_of(2), "differential", 1, 20, "window", None)
    prune_plan = plan_chains(reader, "social", [leaving])
    # Two files of messages and two of the engine itself; files that the backup only lists stay.
    assert (prune_plan.files, prune_plan.backups[0].files, prune_plan.released) == (4, 4, ())
    assert prune_plan.bytes == prune_plan.backups[0].bytes > 0
    assert plan_chains(reader, "social", []).gone_files == 0
    with pytest.raises(NotFound, match="no source 'nobody'"):
        plan_chains(reader, "nobody", [])


def test_files_that_a_kept_backup_needs_are_not_deleted() -> None:
    row = {"source": "social", "number": 2, "files": 3, "path": "p"}
    require_proof()
    with pytest.raises(Refused, match="backup number 2 of social has 3 files in objects that would be gone"):
        require_proof(unresolved=[row])


def test_a_report_shows_the_queues(root: Path, tmp_path: Path) -> None:
    assert main(["report", "--repo", str(root), "--html", str(tmp_path / "report.html")]) == 0
    assert "delta.0" in (tmp_path / "report.html").read_text()

"""Truncates a log: its beginning is deleted, and every later instant stays restorable."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.catalogs import backup_id
from tests.support.chosen import mark_long
from tests.support.command_line import Commands, quiet
from tests.support.looks import select_rows
from tests.support.made_changes import MadeChanges, commit, prewrite, put_change, table_name_row

from lakebackup.errors import Busy, Refused, UsageProblem
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.upkeep import Hold, Restore
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.logs.upkeep import truncate as truncate_job
from lakebackup_jobs.logs.upkeep.truncate import TruncateRequest, run
from lakebackup_jobs.upkeep import prune, verify

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def module_root(spark: SparkSession, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six flushes with a full after the second and the fourth; one value waits long for its commit."""
    root = tmp_path_factory.mktemp("log ü")
    shutil.copytree(empty_catalog, root / "catalog")
    changes = MadeChanges(root, CatalogWriter(spark, str(root)))
    changes.flush(
        [put_change(21, b"a", 5, b"1"), put_change(0, b"mDB1", 4, b"{}")],
        10,
        names=[table_name_row(21, "t", 1)],
    )
    changes.flush([put_change(21, b"b", 15, b"2"), prewrite(21, b"late", 18, b"long")], 17)
    changes.full(17)  # number 3
    changes.flush([put_change(21, b"a", 25, b"3")], 30)
    changes.flush([put_change(21, b"c", 38, b"4")], 40)
    changes.full(40)  # number 6
    changes.flush([commit(21, b"late", 18, 45), put_change(21, b"c", 46, b"5")], 50)
    changes.flush([], 60)
    return root


def truncate(root: Path, until: int, spark: SparkSession | None = None, **changes: Any) -> dict[str, Any]:
    request = TruncateRequest(destination=str(root), name="shop", until=until, **changes)
    return run(request, spark=spark, reporter=quiet())


def backup_numbers(root: Path, kind: str = "log") -> set[int]:
    """Numbers of the backups that still have objects of a kind."""
    paths = [path for path in (root / "shop" / kind).rglob("*") if path.is_file()]
    matches = [re.search(r"Z-([0-9a-f]{8})[/.]", str(path)) for path in paths]
    return {int(match[1], 16) for match in matches if match}


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in (root / "shop").rglob("*") if path.is_file()}


@pytest.mark.long
def test_the_cut_is_at_the_newest_earlier_full(root: Path, session: SparkSession | None) -> None:
    files_before = files(root)
    dry_run = truncate(root, 55)
    assert (dry_run["cut"], dry_run["fulls"], dry_run["deleted"]) == (40, [backup_id(3)], False)
    assert files(root) == files_before
    result = truncate(root, 55, session, delete=True)
    assert {key: result[key] for key in ("cut", "files", "bytes", "fulls")} == {
        key: dry_run[key] for key in ("cut", "files", "bytes", "fulls")
    }
    # The value written at 18 is committed at 45, so its file stays; other files up to 40 are deleted with
    # their .meta.
    log = {row["path"] for row in select_rows(root, "SELECT path FROM files WHERE format = 'log-arrow-1'")}
    assert {path for path in files(root) if "/log/" in path} == log
    assert [path for path in log if backup_id(2) in path] == [path for path in log if "-default-put/" in path]
    assert backup_numbers(root, "stream-metas") == {2, 7, 8}
    assert backup_numbers(root, "fulls") == {6}
    # The full covers its own instant, the log those after it.
    ranges = select_rows(root, "SELECT status, reason, from_ts, to_ts FROM coverage")
    assert ranges == [{"status": "restorable", "reason": None, "from_ts": 39, "to_ts": 60}]
    # Truncated files are no fault, and no remaining object is an orphan.
    request = verify.VerifyRequest(destination=str(root), mode="decode", grace_ms=-3_600_000)
    checked = verify.run(request, spark=session, reporter=quiet())
    assert checked["findings"] == []
    # A second run deletes nothing.
    second_result = truncate(root, 55, session, delete=True)
    assert (second_result["prune_id"], second_result["files"], second_result["resumed"]) == (None, 0, 0)


def test_truncate_is_refused_without_a_full_or_beyond_the_checkpoint(root: Path, spark: SparkSession) -> None:
    with pytest.raises(Refused, match="no whole full at or before 16"):
        truncate(root, 16)
    with pytest.raises(Refused, match="whole up to 60"):
        truncate(root, 61, ranges_only=True)
    dry_run = truncate(root, 16, ranges_only=True)
    assert (dry_run["cut"], dry_run["fulls"], dry_run["files"]) == (16, [], 3)
    # A damaged full does not count.
    lost = select_rows(root, "SELECT path FROM files WHERE format = 'delta' AND path LIKE '%-00000006/%'")
    (root / lost[0]["path"]).unlink()
    request = verify.VerifyRequest(destination=str(root), mode="stat")
    verify.run(request, spark=spark, reporter=quiet())
    assert truncate(root, 55)["cut"] == 17
    with pytest.raises(UsageProblem, match="log truncate shop --to-time"):
        prune.run(prune.PruneRequest(str(root), source="shop"), reporter=quiet())


def test_held_backups_stay(root: Path, cli: Commands) -> None:
    """By `lakebackup log truncate`: a held full stays for its instant, a held flush with the log up to it."""
    writer = CatalogWriter(None, str(root))
    hold = Hold(backup_id=backup_id(1), source="shop", at=1, actor="me", reason="law")
    writer.record(hold)
    with pytest.raises(Refused, match="would take what a hold keeps of shop"):
        truncate(root, 40)
    writer.record(replace(hold, at=2, released=True))
    writer.record(replace(hold, at=3, backup_id=backup_id(3)))
    result = cli.result("log", "truncate", "shop", "--endts", "40", "--yes", "--repo", root)
    assert (result["deleted"], result["fulls"]) == (True, [])
    assert 1 not in backup_numbers(root)
    assert backup_numbers(root, "fulls") == {3, 6}
    spans = select_rows(root, "SELECT from_ts, to_ts FROM coverage ORDER BY to_ts")
    assert [tuple(span.values()) for span in spans] == [(16, 17), (39, 60)]


def test_a_running_restore_stops_truncate(root: Path, spark: SparkSession) -> None:
    writer, now_us = CatalogWriter(None, str(root)), 2_000_000_000_000_000
    row = Restore(
        restore_id="r1", at=now_us, source="shop", state="running", target="dir:x", selection="",
        detail=json.dumps({"digest": "r1"}),
    )  # fmt: skip
    writer.append([row])
    files_before = files(root)
    with (
        Lease.acquire(open_storage(str(root)), "restore-r1", "me"),
        pytest.raises(Busy, match="Restore r1 reads the log of shop"),
    ):
        truncate(root, 40, spark, delete=True)
    assert {path for path in files(root) if "/leases/" not in path} == files_before
    # A killed restore holds no lease, whatever its last row says.
    assert truncate(root, 40, spark, delete=True)["files"] > 0


@pytest.mark.parametrize(
    ("step", "lost"),
    mark_long(
        [
            ("lakebackup_jobs.lifecycle.deletion.executor.Deletion.carry_out", False),
            ("lakebackup.store.writer.CatalogWriter.set_states", False),
            ("lakebackup.store.writer.commit", False),  # of the removals
            ("lakebackup_jobs.lifecycle.deletion.executor.Deletion._delete", True),
        ],
        always=[("lakebackup.store.writer.commit", False)],
    ),
)
def test_an_interrupted_truncate_is_resumed(
    root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, step: str, *, lost: bool
) -> None:
    files_before = files(root)
    with monkeypatch.context() as patched:
        patched.setattr(step, _die)
        with pytest.raises(KeyboardInterrupt):
            truncate(root, 40, spark, delete=True)
    storage = open_storage(str(root))
    assert files_before <= files(root)
    assert len(tombstones.incomplete(storage)) == 1
    if lost:
        shutil.rmtree(root / "catalog")
        assert rebuild(spark, str(root)).problems == []
    result = truncate(root, 40, spark, delete=True)
    assert (result["resumed"], result["files"], result["prune_id"]) == (1, 0, None)
    assert backup_numbers(root, "fulls") == {6}
    assert tombstones.incomplete(storage) == []
    paths = {row["path"] for row in select_rows(root, "SELECT path FROM files")}
    assert paths <= files(root)
    assert {path for path in files(root) if "/log/" in path or "/fulls/" in path} <= paths


@pytest.mark.long
def test_the_proof_stops_a_truncate_of_needed_files(
    root: Path, session: SparkSession | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of = truncate_job._plan

    def plan_needed_file(request: TruncateRequest, reader: CatalogReader) -> Any:
        """Adds the value that is committed after the cut."""
        plan = plan_of(request, reader)
        predicate = f"source = 'shop' AND cf = 'default' AND backup_id = '{backup_id(2)}'"
        (file,) = select_rows(root, f"SELECT * FROM files WHERE {predicate}")
        row = {"reason": "until", **file}
        rows = [*plan.metas.to_pylist(), {name: row[name] for name in plan.metas.schema.names}]
        return replace(plan, metas=pa.Table.from_pylist(rows, plan.metas.schema))

    monkeypatch.setattr(truncate_job, "_plan", plan_needed_file)
    files_before = files(root)
    with pytest.raises(Refused, match=r"would miss these files:\n  shop/log/.*default"):
        truncate(root, 40, session, delete=True)
    assert files(root) == files_before
    assert not list(open_storage(str(root)).list("prunes/"))


def test_answering_no_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files_before = files(root)
    command = ["log", "truncate", "shop", "--endts", "40", "--repo", str(root)]
    cli = Commands(capsys)
    assert "Give --yes, or preview with --dry-run" in cli.fails(2, *command)
    monkeypatch.setattr("sys.stdin", _Terminal("n\n"))
    code, output, err = cli.run(*command, "--json")
    assert (code, "7 of 11 files" in err) == (0, True)
    assert json.loads(output.splitlines()[-1])["deleted"] is False
    cli.result(*command, "--dry-run")
    assert files(root) == files_before
    assert not list(open_storage(str(root)).list(f"{layout.PRUNES_FOLDER}/"))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt

"""The beginning of a log goes, and nothing that is restorable from there on."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.catalogs import backup_id
from tests.support.chosen import chosen
from tests.support.command_line import Commands, quiet
from tests.support.looks import seen
from tests.support.made_changes import MadeChanges, commit, named, prewrite, put

from lakebackup.errors import Busy, Refused, UsageProblem
from lakebackup.recovery.rebuild import rebuild
from lakebackup.rows.backups import Removal
from lakebackup.rows.base import pick
from lakebackup.rows.upkeep import Hold, Restore
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.lease import Lease
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.deletion.executor import Deletion, Removals
from lakebackup_jobs.logs.upkeep.truncate import TruncateRequest, run
from lakebackup_jobs.upkeep import prune, verify

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def made(spark: SparkSession, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six flushes with a full behind the second and the fourth; one value waits long for its commit."""
    root = tmp_path_factory.mktemp("log ü")
    shutil.copytree(empty_catalog, root / "catalog")
    made = MadeChanges(root, CatalogWriter(spark, str(root)))
    made.flush([put(21, b"a", 5, b"1"), put(0, b"mDB1", 4, b"{}")], 10, names=[named(21, "t", 1)])
    made.flush([put(21, b"b", 15, b"2"), prewrite(21, b"late", 18, b"long")], 17)
    made.full(17)  # number 3
    made.flush([put(21, b"a", 25, b"3")], 30)
    made.flush([put(21, b"c", 38, b"4")], 40)
    made.full(40)  # number 6
    made.flush([commit(21, b"late", 18, 45), put(21, b"c", 46, b"5")], 50)
    made.flush([], 60)
    return root


def truncate(root: Path, until: int, spark: SparkSession | None = None, **changes: Any) -> dict[str, Any]:
    request = TruncateRequest(destination=str(root), name="shop", until=until, **changes)
    return run(request, spark=spark, reporter=quiet())


def stored(root: Path, kind: str = "log") -> set[int]:
    """Numbers of the backups that still have objects of a kind."""
    paths = [path for path in (root / "shop" / kind).rglob("*") if path.is_file()]
    found = [re.search(r"Z-([0-9a-f]{8})[/.]", str(path)) for path in paths]
    return {int(one[1], 16) for one in found if one}


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in (root / "shop").rglob("*") if path.is_file()}


@pytest.mark.long
def test_the_cut_is_at_the_newest_full_before(root: Path, session: SparkSession | None) -> None:
    before = files(root)
    look = truncate(root, 55)
    assert (look["cut"], look["fulls"], look["deleted"]) == (40, [backup_id(3)], False)
    assert files(root) == before
    done = truncate(root, 55, session, delete=True)
    assert {key: done[key] for key in ("cut", "files", "bytes", "fulls")} == {
        key: look[key] for key in ("cut", "files", "bytes", "fulls")
    }
    # The value written at 18 is committed at 45, so its file stays; all else up to 40 goes, with its .meta.
    log = {row["path"] for row in seen(root, "SELECT path FROM files WHERE format = 'log-arrow-1'")}
    assert {path for path in files(root) if "/log/" in path} == log
    assert [path for path in log if backup_id(2) in path] == [path for path in log if "-default-put/" in path]
    assert stored(root, "stream-metas") == {2, 7, 8}
    assert stored(root, "fulls") == {6}
    # The full answers for its own instant, the log for those behind it.
    ranges = seen(root, "SELECT status, reason, from_ts, to_ts FROM coverage")
    assert ranges == [{"status": "restorable", "reason": None, "from_ts": 39, "to_ts": 60}]
    # What was let go of is no fault, and nothing that is there is a stranger's.
    request = verify.VerifyRequest(destination=str(root), mode="decode", grace_ms=-3_600_000)
    checked = verify.run(request, spark=session, reporter=quiet())
    assert checked["findings"] == []
    # Again: nothing more goes.
    again = truncate(root, 55, session, delete=True)
    assert (again["prune_id"], again["files"], again["resumed"]) == (None, 0, 0)


def test_it_is_refused_without_a_full_or_beyond_the_checkpoint(root: Path, spark: SparkSession) -> None:
    with pytest.raises(Refused, match="no whole full at or before 16"):
        truncate(root, 16)
    with pytest.raises(Refused, match="whole up to 60"):
        truncate(root, 61, ranges_only=True)
    look = truncate(root, 16, ranges_only=True)
    assert (look["cut"], look["fulls"], look["files"]) == (16, [], 3)
    # A full that is not whole is none.
    lost = seen(root, "SELECT path FROM files WHERE format = 'delta' AND path LIKE '%-00000006/%'")
    (root / lost[0]["path"]).unlink()
    request = verify.VerifyRequest(destination=str(root), mode="stat")
    verify.run(request, spark=spark, reporter=quiet())
    assert truncate(root, 55)["cut"] == 17
    with pytest.raises(UsageProblem, match="log truncate shop --to-time"):
        prune.run(prune.PruneRequest(str(root), source="shop"), reporter=quiet())


def test_held_backups_stay(root: Path, cli: Commands) -> None:
    """By `lakebackup log truncate`: a full for its own instant, a flush with the log that leads to it."""
    writer = CatalogWriter(None, str(root))
    law = Hold(backup_id=backup_id(1), source="shop", at=1, actor="me", reason="law")
    writer.record(law)
    with pytest.raises(Refused, match="would take what a hold keeps of shop"):
        truncate(root, 40)
    writer.record(replace(law, at=2, released=True))
    writer.record(replace(law, at=3, backup_id=backup_id(3)))
    done = cli.told("log", "truncate", "shop", "--endts", "40", "--yes", "--repo", root)
    assert (done["deleted"], done["fulls"]) == (True, [])
    assert 1 not in stored(root)
    assert stored(root, "fulls") == {3, 6}
    spans = seen(root, "SELECT from_ts, to_ts FROM coverage ORDER BY to_ts")
    assert [tuple(span.values()) for span in spans] == [(16, 17), (39, 60)]


def test_a_restore_at_work_stops_it(root: Path, spark: SparkSession) -> None:
    writer, now = CatalogWriter(None, str(root)), 2_000_000_000_000_000
    row = Restore(
        restore_id="r1", at=now, source="shop", state="running", target="dir:x", selection="",
        detail=json.dumps({"digest": "r1"}),
    )  # fmt: skip
    writer.append([row])
    before = files(root)
    with (
        Lease.acquire(open_storage(str(root)), "restore-r1", "me"),
        pytest.raises(Busy, match="Restore r1 reads the log of shop"),
    ):
        truncate(root, 40, spark, delete=True)
    assert {path for path in files(root) if "/leases/" not in path} == before
    # One that was killed holds no lease, whatever the last row of it says.
    assert truncate(root, 40, spark, delete=True)["files"] > 0


@pytest.mark.parametrize(
    ("step", "lost"),
    chosen(
        [
            ("lakebackup_jobs.lifecycle.deletion.executor.Deletion.carry_out", False),
            ("lakebackup.store.writer.CatalogWriter.set_states", False),
            ("lakebackup.store.writer.commit", False),  # of the removals
            ("lakebackup_jobs.lifecycle.deletion.executor.Deletion._delete", True),
        ],
        always=[("lakebackup.store.writer.commit", False)],
    ),
)
def test_one_that_died_goes_on(
    root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, step: str, *, lost: bool
) -> None:
    before = files(root)
    with monkeypatch.context() as patched:
        patched.setattr(step, _die)
        with pytest.raises(KeyboardInterrupt):
            truncate(root, 40, spark, delete=True)
    storage = open_storage(str(root))
    assert before <= files(root)
    assert len(tombstones.incomplete(storage)) == 1
    if lost:
        shutil.rmtree(root / "catalog")
        assert rebuild(spark, str(root)).problems == []
    done = truncate(root, 40, spark, delete=True)
    assert (done["resumed"], done["files"], done["prune_id"]) == (1, 0, None)
    assert stored(root, "fulls") == {6}
    assert tombstones.incomplete(storage) == []
    known = {row["path"] for row in seen(root, "SELECT path FROM files")}
    assert known <= files(root)
    assert {path for path in files(root) if "/log/" in path or "/fulls/" in path} <= known


@pytest.mark.long
def test_the_proof_stops_one_that_would_take_too_much(
    root: Path, session: SparkSession | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Deletion._write_removals

    def too_much(deletion: Deletion, prune_id: str, removals: Removals) -> Any:
        """With the value that is committed behind the cut."""
        late = f"source = 'shop' AND cf = 'default' AND backup_id = '{backup_id(2)}'"
        (file,) = seen(root, f"SELECT * FROM files WHERE {late}")
        more = pick(Removal, {"prune_id": prune_id, "at": 1, "reason": "until", "files": None, **file})
        return write(deletion, prune_id, replace(removals, more=[*removals.more, more]))

    monkeypatch.setattr(Deletion, "_write_removals", too_much)
    before = files(root)
    with pytest.raises(Refused, match=r"would miss these files:\n  shop/log/.*default"):
        truncate(root, 40, session, delete=True)
    assert files(root) == before
    assert not list(open_storage(str(root)).list("prunes/"))


def test_answering_no_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(root)
    command = ["log", "truncate", "shop", "--endts", "40", "--repo", str(root)]
    cli = Commands(capsys)
    assert "Give --yes, or preview with --dry-run" in cli.fails(2, *command)
    monkeypatch.setattr("sys.stdin", _Terminal("n\n"))
    code, out, err = cli.run(*command, "--json")
    assert (code, "7 of 11 files" in err) == (0, True)
    assert json.loads(out.splitlines()[-1])["deleted"] is False
    cli.told(*command, "--dry-run")
    assert files(root) == before
    assert not list(open_storage(str(root)).list(f"{layout.PRUNES_FOLDER}/"))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt

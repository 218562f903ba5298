"""Backups of a snapshot that die at each of their steps, or at any time; the next run makes it right."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from tests.support.command_line import quiet
from tests.support.faults import Killed, expire_leases

from lakebackup.errors import Busy
from lakebackup.storage import local, open_storage
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots.backup import SnapshotRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LAYOUT = "t-{scope}/{snapshot}/{name}"

BEFORE = {"CURRENT": b"1", "a": b"a" * 10, "b": b"b" * 10}
AFTER = {"CURRENT": b"2", "a": b"a" * 10, "c": b"c" * 10, "d": b"d"}
# Steps that leave states of their own, in their order.
STEPS = (
    "work/share-", "/x/-/c", "/parts/000000", "/manifest.json", "backups/part-", "/complete",
    "/begun.json",
)  # fmt: skip


def make(tree: Path, snapshot: str, files: dict[str, bytes], *, at: int) -> None:
    folder = tree / "t-x" / snapshot
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
        os.utime(folder / name, (at, at))
    os.utime(folder, (at, at))


def back_up(tree: Path, to: Path, snapshot: str, **changes: Any) -> dict[str, Any]:
    request = SnapshotRequest(
        destination=str(to), paths=(str(tree),), source="db", layout=LAYOUT, snapshots=(snapshot,), **changes
    )
    return backup_snapshot.run(request, reporter=quiet())


def contents(to: Path) -> dict[str, bytes]:
    storage = open_storage(str(to))
    rows = CatalogReader(str(to)).select("SELECT * FROM snapshot_files WHERE gone_in IS NULL").read_all()
    return {
        row["name"]: storage.get(row["path"], start=row["position"], length=row["bytes"])
        for row in rows.to_pylist()
    }


def objects(to: Path) -> set[str]:
    """Objects of files that are there, and those that the catalog knows: what is in one of them alone."""
    there = {found.path for found in open_storage(str(to)).list("db/snapshots/")}
    rows = CatalogReader(str(to)).select("SELECT path FROM files WHERE role <> 'meta'").read_all()
    return there ^ set(rows["path"].to_pylist())


@contextmanager
def dying(at: int | str | None) -> Iterator[list[str]]:
    """Each object put or deleted is a step; the run dies before one: its number, from 0, or the first whose
    path has this text. Gives the steps taken."""
    taken: list[str] = []
    dead = threading.Event()
    put, delete, release = local.LocalWriter.commit, local.LocalStorage.delete, Lease.release

    def step(path: str) -> None:
        if threading.current_thread().name.startswith(("lease", "progress")) or "/progress/" in path:
            return
        if dead.is_set() or (at in path if isinstance(at, str) else len(taken) == at):
            dead.set()
            raise Killed
        taken.append(path)

    def stepped(call: Callable[..., Any], number: int) -> Callable[..., Any]:
        def wrapped(*values: Any, **named: Any) -> Any:
            step(values[number])
            return call(*values, **named)

        return wrapped

    def let_go(lease: Lease) -> None:
        if dead.is_set():
            lease._stop.set()
        else:
            release(lease)

    with (
        mock.patch.object(local.LocalWriter, "commit", stepped(put, 1)),
        mock.patch.object(local.LocalStorage, "delete", stepped(delete, 1)),
        mock.patch.object(Lease, "release", let_go),
    ):
        yield taken


@pytest.fixture(scope="module")
def first_backup(empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tree of two snapshots, and a destination that has the first."""
    tree, to = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("to")
    make(tree, "s1", BEFORE, at=1_600_000_000)
    make(tree, "s2", AFTER, at=1_600_000_100)
    os.utime(tree / "t-x" / "s2" / "a", (1_600_000_000, 1_600_000_000))
    shutil.copytree(empty_catalog, to / "catalog")
    back_up(tree, to, "s1")
    return tree, to


@pytest.mark.long
@pytest.mark.parametrize("first", [0, 1])
def test_killed_before_each_step(first: int, first_backup: tuple[Path, Path], tmp_path: Path) -> None:
    tree, before = first_backup
    shutil.copytree(before, tmp_path / "all")
    with dying(None) as taken:
        back_up(tree, tmp_path / "all", "s2")
    names = [path.rpartition("/")[2] for path in taken]
    assert {"begun.json", "manifest.json", "complete", "000000.jsonl", "CURRENT", "c"} <= set(names)
    at_end = {path.name for path in (tmp_path / "all" / "db").iterdir()}
    for number in range(first, len(taken), 2):
        to = tmp_path / str(number)
        shutil.copytree(before, to)
        with dying(number), pytest.raises(Killed):
            back_up(tree, to, "s2")
        seen = contents(to)
        assert seen in (BEFORE, AFTER), taken[number]
        expire_leases(to)
        if seen == AFTER and not (to / "db" / "begun.json").exists():  # nothing was left to do
            make(tree, f"s3-{number}", AFTER, at=1_600_000_200 + number)
            back_up(tree, to, f"s3-{number}")
        else:
            told = back_up(tree, to, "s2")
            assert (told["unchanged"], told["copied"], told["objects"]) == (1, 3, 5), taken[number]
            assert CatalogReader(str(to)).resolve_backup(told["backup_id"])
        assert contents(to) == AFTER, taken[number]
        assert objects(to) == set(), taken[number]
        assert {path.name for path in (to / "db").iterdir()} == at_end, taken[number]
        assert not list((to / "db").rglob("work/*")), taken[number]
        shutil.rmtree(to)


def test_killed_again_and_again_it_ends_as_one_backup(
    first_backup: tuple[Path, Path], tmp_path: Path
) -> None:
    """Each run continues the work of the one before and dies at a later step."""
    tree, to = first_backup[0], tmp_path / "to"
    shutil.copytree(first_backup[1], to)
    before = {path.name for path in (to / "db" / "backups").iterdir()}
    at_end = {path.name for path in (to / "db").iterdir()}
    copied, ids = [], []
    # Before what makes it exist: the run looks whether the leases are still its own.
    renewed = {"/manifest.json": {"source-db"}, "backups/part-": {"source-db", "catalog"}}
    for step in STEPS:
        with dying(step) as taken, pytest.raises(Killed):
            back_up(tree, to, "s2")
        if step in renewed:
            leases = {path.split("/")[1] for path in taken[-5:] if path.startswith("leases/")}
            assert leases == renewed[step]
        copied.append(sum("/snapshots/" in path for path in taken))
        ids.append({path.name for path in (to / "db" / "backups").iterdir()} - before)
        assert contents(to) == (AFTER if step in ("/complete", "/begun.json") else BEFORE), step
        expire_leases(to)
    # A task that had not come to its end looks at what it copied once more; one that had copies nothing.
    assert copied == [0, 1, 3, 3, 0, 0, 0]
    told = back_up(tree, to, "s2")
    assert (told["unchanged"], told["copied"], told["objects"]) == (1, 3, 5)
    # What was to be copied had been written down from the second run on: that backup it stays.
    assert ids[1:] == [{told["backup_id"]}] * 6
    assert contents(to) == AFTER
    assert objects(to) == set()
    assert {path.name for path in (to / "db").iterdir()} == at_end
    assert not list((to / "db").rglob("work/*"))


def test_one_at_a_time(first_backup: tuple[Path, Path], tmp_path: Path) -> None:
    tree, before = first_backup
    shutil.copytree(before, tmp_path / "to")
    with (
        Lease.acquire(open_storage(str(tmp_path / "to")), "source-db", "someone"),
        pytest.raises(Busy, match="someone"),
    ):
        back_up(tree, tmp_path / "to", "s2")


_CHILD = """
import io, sys
from lakebackup_jobs.snapshots.backup import SnapshotRequest, run
from lakebackup_jobs.lifecycle.progress import QuietReporter
request = SnapshotRequest(
    destination=sys.argv[2], paths=(sys.argv[1],), source="db", layout=sys.argv[3], snapshots=("s2",),
    bandwidth=40_000, lease_ttl_s=1.0,
)
print("begins", flush=True)
run(request, reporter=QuietReporter(io.StringIO(), sys.stderr))
"""


@pytest.mark.parametrize("kills", [(8,), pytest.param((1, 8, 20), marks=pytest.mark.long)])
def test_killed_at_any_time(kills: tuple[int, ...], first_backup: tuple[Path, Path], tmp_path: Path) -> None:
    """SIGKILL while files are copied, slowly; each run ends what the one before left."""
    _, before = first_backup
    tree, to = tmp_path / "tree", tmp_path / "to"
    files = {f"f{number:02d}": os.urandom(1000) for number in range(30)}
    make(tree, "s2", files, at=1_600_000_100)
    shutil.copytree(before, to)
    copied = to / "db" / "snapshots"
    for wanted in kills:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(tree), str(to), LAYOUT], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"begins\n"
        while child.poll() is None and sum(1 for _ in copied.rglob("f*")) < wanted:
            pass
        assert child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert "f00" not in contents(to)
        expire_leases(to)
    back_up(tree, to, "s2")
    assert contents(to) == files
    assert objects(to) == set()

"""Sources for the tests of the lifecycle's contract: each has something to back up, and a destination."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from tests.support import kafka_truth as truth
from tests.support.command_line import quiet
from tests.support.encrypted import opened_keys, write_identity
from tests.support.faults import Killed, expire_leases, rows_of, stored_records, watched
from tests.support.line_source import Lines, LinesRequest
from tests.support.line_source import run as back_up_lines
from tests.support.looks import select_rows
from tests.support.made_backups import MadeBackups
from tests.support.runs import Lab
from tests.support.stored import stored_contents

from lakebackup.encryption.objects import name_of
from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.plan import splits
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots.backup import SnapshotBackup
from lakebackup_jobs.snapshots.import_manifest import ManifestImport, ManifestRequest
from lakebackup_jobs.snapshots.import_manifest import run as import_manifest
from lakebackup_jobs.snapshots.ranges import Ranges
from lakebackup_jobs.snapshots.request import SnapshotRequest
from lakebackup_jobs.topics.backup import TopicsBackup


class LifeCase(ABC):
    """A source that has something new to back up, and its own destination below `folder`."""

    KIND: ClassVar[type[Source[Any]]]
    #: The source's name in the catalog.
    NAME: ClassVar[str]
    #: Steps after which an interrupted run leaves a distinct state, in their order.
    STATES: ClassVar[tuple[str, ...]] = ()
    #: Changes to the request with which a run does not resume an interrupted run of the usual request.
    OTHER_REQUEST: ClassVar[dict[str, Any]] = {"note": "other"}
    #: A pattern of the paths of the copied data, below the destination.
    DATA: ClassVar[str]
    #: Further fixtures that the case needs.
    NEEDS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.kills = folder, folder / "backups", 0
        MadeBackups(self.root)

    @abstractmethod
    def run(self, **changes: Any) -> dict[str, Any] | None:
        """Back up what is new; returns None if nothing was."""

    @abstractmethod
    def contents(self) -> dict[str, bytes]:
        """The content of the newest backup, read from the destination."""

    @abstractmethod
    def expected_contents(self) -> dict[str, bytes]:
        """The content that the source has now."""

    def killed(self, step: int | str, **changes: Any) -> list[str] | None:
        """The steps of a run that is killed before `step`; None if it ends without reaching it."""
        self.kills += 1
        with (
            watched(self.folder / f"steps{self.kills}", kill_at=step) as steps,
            suppress(Killed, EnvironmentProblem),
        ):
            self.run(**changes)
        if not steps.dead:
            return None
        expire_leases(self.root)
        return steps.names()

    def ids(self) -> list[str]:
        """The ids of the backups in the catalog, in order."""
        return [
            row["backup_id"]
            for row in select_rows(self.root, "SELECT backup_id FROM backups ORDER BY number")
        ]

    def data(self) -> dict[str, int]:
        """Paths of the copied data -> their modification times."""
        files = [path for path in self.root.glob(self.DATA) if path.is_file()]
        return {str(path.relative_to(self.root)): path.stat().st_mtime_ns for path in files}

    def catalog_paths(self) -> set[str]:
        """Paths of the data files in the catalog."""
        return {row["path"] for row in select_rows(self.root, "SELECT path FROM files WHERE role = 'data'")}

    def assert_objects(self) -> None:
        assert self.catalog_paths() == set(self.data())

    def assert_whole(self, expected: dict[str, bytes] | None = None) -> None:
        """Everything is backed up once, every object is named, every backup is marked, no work is left."""
        assert self.contents() == (expected or self.expected_contents())
        self.assert_objects()
        for name in self.ids():
            assert (self.root / layout.marker_path(self.NAME, name, "complete")).exists()
        assert not (self.root / layout.in_progress_path(self.NAME)).exists()
        assert not list((self.root / self.NAME / "backups").rglob("plan/*"))


def nothing_new(error: UsageProblem) -> None:
    """Ignore the error that the newest backup is of this snapshot or of a later one; raise any other."""
    if "already hold one of" not in error.message:
        raise error


class LinesCase(LifeCase):
    """The smallest source: the lines of a file."""

    KIND, NAME, DATA = Lines, "notes", "notes/lines/*/*.data"
    STATES = ("put begun.json", "put data #2", "put part #2")
    RUNNER: ClassVar[str] = "local"

    def __init__(self, folder: Path, spark: Any = None) -> None:
        super().__init__(folder)
        self.spark = spark
        self.file = folder / "notes.txt"
        self.file.write_text("one\ntwo\nthree")

    def run(self, **changes: Any) -> dict[str, Any] | None:
        defaults = {"destination": str(self.root), "file": self.file, "runner": self.RUNNER}
        return back_up_lines(LinesRequest(**{**defaults, **changes}), quiet(), self.spark)

    def contents(self) -> dict[str, bytes]:
        rows = select_rows(self.root, "SELECT path, start_position FROM files")
        return {str(row["start_position"]): (self.root / row["path"]).read_bytes() for row in rows}

    def expected_contents(self) -> dict[str, bytes]:
        return {str(number): line for number, line in enumerate(self.file.read_bytes().splitlines())}


class SparkLinesCase(LinesCase):
    """The same, copied by Spark tasks."""

    RUNNER = "spark"
    NEEDS = ("spark",)


SNAPSHOTS = {
    "s1": {"CURRENT": b"1", "a": b"a" * 10, "b": b"b" * 10},
    "s2": {"CURRENT": b"2", "a": b"a" * 10, "c": b"c" * 10, "d": b"d"},
}


class SnapshotCase(LifeCase):
    """The second of two snapshots: one file is unchanged, one was removed, three are new."""

    KIND, NAME, DATA = SnapshotBackup, "db", "db/snapshots/**/*"
    STATES = ("put begun.json", "put rows of db", "put c", "put part")
    LAYOUT = "t-{scope}/{snapshot}/{name}"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tree = folder / "tree"
        for number, (snapshot, files) in enumerate(SNAPSHOTS.items()):
            self.make(snapshot, files, mtime=1_600_000_000 + 100 * number)
        os.utime(self.tree / "t-x" / "s2" / "a", (1_600_000_000, 1_600_000_000))
        self.run(snapshots=("s1",))

    def make(self, snapshot: str, files: dict[str, bytes], *, mtime: int) -> None:
        folder = self.tree / "t-x" / snapshot
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
            os.utime(folder / name, (mtime, mtime))
        os.utime(folder, (mtime, mtime))

    def request(self, **changes: Any) -> SnapshotRequest:
        defaults = {
            "destination": str(self.root),
            "paths": (str(self.tree),),
            "source": "db",
            "layout": self.LAYOUT,
        }
        return SnapshotRequest(**defaults | {"snapshots": ("s2",)} | changes)

    def run(self, **changes: Any) -> dict[str, Any] | None:
        try:
            return backup_snapshot.run(self.request(**changes), reporter=quiet())
        except UsageProblem as error:
            return nothing_new(error)

    def contents(self) -> dict[str, bytes]:
        storage = open_storage(str(self.root))
        rows = select_rows(self.root, "SELECT * FROM snapshot_files WHERE gone_in IS NULL")
        return {row["name"]: stored_contents(storage, row) for row in rows}

    def expected_contents(self) -> dict[str, bytes]:
        return SNAPSHOTS["s2"]


class EncryptedSnapshotCase(SnapshotCase):
    """The same, encrypted. The runs do not know the identity, so each run has a key of its own."""

    STATES = ("put begun.json", "put data key", "put rows of db", "put c", "put part")

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._keys = write_identity(folder)
        super().__init__(folder)

    def request(self, **changes: Any) -> SnapshotRequest:
        return super().request(**{"recipients": (self._keys.recipient,)} | changes)

    def contents(self) -> dict[str, bytes]:
        storage, keys = open_storage(str(self.root)), opened_keys(self.root, self._keys.file)
        files = select_rows(self.root, "SELECT * FROM snapshot_files WHERE gone_in IS NULL")
        columns = ("position", "stored_bytes", "codec", "bytes")
        return {
            row["name"]: b"".join(
                Ranges(storage, row["path"], [(row["position"], row["stored_bytes"])], keys).contents(
                    *(row[name] for name in columns)
                )
            )
            for row in files
        }


class ManifestCase(LifeCase):
    """A manifest of another tool, whose data already exists: an import starts over and copies nothing."""

    KIND, NAME, DATA = ManifestImport, "yb", "theirs/*"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.file = folder / "manifest.json"
        (self.root / "theirs").mkdir()
        (self.root / "theirs" / "one.sst").write_bytes(b"1" * 100)
        file_entry = {"location": f"file://{self.root}/theirs/one.sst", "timestamp": 1000, "size": 100}
        self.file.write_text(json.dumps({"t": {"a": {"one.sst": file_entry}}}))

    def run(self, **changes: Any) -> dict[str, Any] | None:
        request = ManifestRequest(
            **{"destination": str(self.root), "file": self.file, "source": "yb", **changes}
        )
        try:
            return import_manifest(request, reporter=quiet())
        except UsageProblem as error:
            return nothing_new(error)

    def contents(self) -> dict[str, bytes]:
        rows = select_rows(self.root, "SELECT name, path FROM snapshot_files")
        return {row["name"]: (self.root / row["path"]).read_bytes() for row in rows}

    def expected_contents(self) -> dict[str, bytes]:
        return {"one.sst": b"1" * 100}

    def assert_objects(self) -> None:
        """Nothing to check: the data belongs to the other tool and stays."""


class TopicsCase(LifeCase):
    """A differential backup of a topic, a task for each partition."""

    KIND, NAME, DATA = TopicsBackup, "lab", "lab/*/topics/*/*/*.data"
    STATES = ("put begun.json", "put data", "put part")
    OTHER_REQUEST: ClassVar[dict[str, Any]] = {"mode": "incr-accu"}
    NEEDS = ("spark", "broker", "topic", "empty_catalog", "monkeypatch")
    RUNNER: ClassVar[str] = "spark"

    def __init__(self, folder: Path, *needs: Any) -> None:
        spark, broker, topic, empty_catalog, monkeypatch = needs
        super().__init__(folder)
        monkeypatch.setattr(splits, "LEAST_OFFSETS_PER_TASK", 10)
        self.lab, self.topic = (
            Lab(spark, broker.bootstrap, self.root, empty_catalog),
            topic("life", partitions=2),
        )
        for start in (0, 20):
            truth.produce(broker.bootstrap, self.topic, rows_of(2, 20, start=start))
            if not start:
                self.run()

    def run(self, **changes: Any) -> dict[str, Any] | None:
        return self.lab.backup(self.topic, **{"parallelism": 4, "runner": self.RUNNER, **changes})

    def contents(self) -> Any:
        return stored_records(self.lab)

    def expected_contents(self) -> Any:
        return truth.contents(self.lab.bootstrap, self.topic)

    def assert_objects(self) -> None:
        """Allows data without a row: a task that was killed leaves what it wrote before its part."""
        assert self.catalog_paths() <= set(self.data())


class LocalTopicsCase(TopicsCase):
    """The same, copied in this process, without Spark."""

    NEEDS = ("no_session", *TopicsCase.NEEDS[1:])
    RUNNER = "local"


class EncryptedTopicsCase(LocalTopicsCase):
    """The same, encrypted. The runs do not know the identity, so each run has a key of its own."""

    STATES = ("put begun.json", "put data key", "put data", "put part")

    def __init__(self, folder: Path, *needs: Any) -> None:
        folder.mkdir(exist_ok=True)
        self._keys = write_identity(folder)
        super().__init__(folder, *needs)

    def run(self, **changes: Any) -> dict[str, Any] | None:
        return super().run(**{"recipients": (self._keys.recipient,)} | changes)

    def contents(self) -> Any:
        keys = opened_keys(self.root, self._keys.file)

        def decrypted(row: Mapping[str, Any], content: bytes) -> bytes:
            name = name_of(SimpleNamespace(**row))
            return keys.open(
                row["path"], "data", name, len(content), lambda start, size: content[start : start + size]
            ).read()

        return stored_records(self.lab, decrypted)

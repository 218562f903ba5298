"""What the tasks of a backup have in common: each writes its files once, and lists them in its manifest part.

The part is the task's commit: of two attempts the first to write it counts, and a task that has one is not
run again. The rows of files never go through the driver.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakebackup.encryption.objects import BackupKey, ObjectSealer
from lakebackup.errors import NotFound
from lakebackup.plan.partitions import Partition
from lakebackup.rows.backups import DataFile
from lakebackup.rules import layout
from lakebackup.storage import Storage, open_storage
from lakebackup.store.delta_append import LISTED
from lakebackup.store.manifest import read_part, write_part
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, totals


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The backup whose parts tasks write. `uri` is that of the destination, `destination` its id. `key`
    encrypts its data files."""

    uri: str
    destination: str
    source: str
    backup_id: str
    number: int
    level: int = 0
    parent: str | None = None
    key: BackupKey | None = field(default=None, repr=False)

    @property
    def folder(self) -> str:
        """The folder of the backup's manifest."""
        return layout.backup_folder(self.source, self.backup_id)

    @property
    def key_id(self) -> str | None:
        """The id of `key`; None: data files are not encrypted."""
        return self.key.key_id if self.key else None

    def write_once(self, storage: Storage, task: int, write: Callable[[], list[DataFile]]) -> list[DataFile]:
        """The rows of a task's part. If no attempt has written the part yet, `write` writes the files and
        returns their rows, which become the part."""
        part = layout.parts_path(self.source, self.backup_id, task)
        try:
            rows = read_part(storage, part)
        except NotFound:
            return write_part(storage, part, write())
        self.check(storage, rows)
        return rows

    def check(self, storage: Storage, rows: list[DataFile]) -> None:
        """Raise Damaged when the files of an earlier attempt cannot be used."""

    def progress(self, storage: Storage, task: int, prefix: str = "") -> Callable[[int, int], None]:
        """A function with which one task reports the records and bytes that it has processed."""
        return TaskProgress(storage, self.folder).counter(f"{prefix}{task:06d}")

    def row(self, **columns: Any) -> DataFile:
        """The row of a file of this backup, with these columns."""
        constant = {
            "destination": self.destination,
            "backup_id": self.backup_id,
            "added_in": self.number,
            "source": self.source,
            "level": self.level,
            "parent": self.parent,
            "key_id": self.key_id,
        }
        return DataFile(**{**constant, **columns})

    def seal(self, partition: Partition) -> Callable[[int], ObjectSealer] | None:
        """What encrypts the data files of a partition, by first offset; None: they are not encrypted."""
        return None if self.key is None else self.key.file_sealer(partition.key)

    def listing(self, table: str, path: str, size: int, sha256: str, **columns: Any) -> DataFile:
        """The row of an object that holds rows of the catalog's `table`."""
        constant: dict[str, Any] = {
            "path": path,
            "scope": "",
            "epoch": "-",
            "region": "",
            "role": "meta",
            "format": LISTED[table],
            "codec": "null",
            "bytes": size,
            "raw_bytes": size,
            "sha256": sha256,
            "entries": 0,
            "min_ts": 0,
            "max_ts": 0,
            "start_position": 0,
            "end_position": 1,
            "key_id": None,
        }
        return self.row(**{**constant, **columns})


@dataclass(frozen=True, kw_only=True)
class PartTask(Parts, Task):
    """A task of a backup, on Spark or in this process: it writes files and their part."""

    COLUMNS = OUTCOME

    def run(self, number: int) -> dict[str, Any]:
        storage = open_storage(self.uri)
        return totals(number, self.write_once(storage, number, lambda: self.write(storage, number)))

    @abstractmethod
    def write(self, storage: Storage, task: int) -> list[DataFile]:
        """Write the files of a task, and return their rows."""

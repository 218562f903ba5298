"""The changes of a log that a restore into topics stages in the repository, as Parquet objects.

What is staged of a plain log is plain. If any file that the restore reads is encrypted, tasks encrypt each
object before they store it. The key follows from a key of what the restore reads, so whoever can repeat the
restore has it. The index is written last: a restore with an index is resumed with the objects that it names.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lakebackup.encryption.objects import BackupKey, DataKey, Keyring, ObjectSealer
from lakebackup.encryption.storage import EncryptedStorage
from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.plan.logs.restore import LogRestorePlan
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import Cluster, trim_worker
from lakebackup.storage import ObjectWriter, Storage, open_storage, working
from lakebackup_jobs.lifecycle.keyring import keys_of_backups, staged_key
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.lifecycle.tasks.task import Task, run_all
from lakebackup_jobs.targets import RestoredSpan

#: The column of the rows that `SealChanges` returns.
PATHS = "path STRING"
_MOST_LISTED = 10


class ChangeContent(Protocol):
    """What is needed of a log's changes; `lakebackup_jobs.logs.restore.content.LogContent` describes it."""

    @property
    def cluster(self) -> Cluster | None: ...
    @property
    def plan(self) -> LogRestorePlan: ...
    @property
    def shares(self) -> Any: ...
    @property
    def old_contents(self) -> RestoredSpan | None: ...
    @property
    def new_contents(self) -> RestoredSpan: ...
    def empties_tables(self) -> bool: ...
    def write_files(self, path: str, *, with_truncates: bool = True) -> dict[str, int]: ...
    def seal_files(self, uri: str, folder: str, key: BackupKey) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """The paths of the staged objects, and the key that encrypts them; no key: they are plain."""

    files: Sequence[str]
    keys: Keyring = field(default_factory=Keyring)


class ChangeStaging:
    """The staging of one restore: objects below `changes/` of its folder, and the index `staged.json`.

    The index of plain objects is the list of their paths. That of encrypted ones is a JSON object: `files`,
    the id of their key (`key_id`), and the source and the id of the backup whose data key it follows from
    (`source`, `backup_id`). `backup_id` is null if the key follows from one of a key file.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage, self._name = storage, name
        folder = layout.restore_folder(name)
        self._index_path, self._folder = f"{folder}staged.json", f"{folder}changes/"

    def count(self) -> int:
        """Return the number of the staged objects; 0 without an index."""
        index = self._read_index()
        return len(index["files"]) if index else 0

    def open(self, content: ChangeContent) -> StagedChanges | None:
        """Return what an interrupted run staged; None without an index. Raises Refused if the key of the
        objects is not available any more."""
        index = self._read_index()
        if index is None:
            return None
        if index["key_id"] is None:
            return StagedChanges(index["files"])
        key = self._find_key(index["key_id"], _parent_keys(content))
        if key is None and index["backup_id"] is not None:
            # The log was compacted since, so this run reads other files, with other data keys.
            backup_keys = keys_of_backups(self._storage, [(index["source"], index["backup_id"])])
            key = self._find_key(index["key_id"], backup_keys.values())
        if key is None:
            backup_id = index["backup_id"]
            origin = f"a data key of backup {backup_id}" if backup_id else "a key of a key file"
            raise Refused(
                "The changes that the interrupted restore staged cannot be read: their key follows from "
                f"{origin}, which is not available.",
                hint="Set the identity or the key file of the interrupted restore, or restore under another "
                "prefix (?prefix=TEXT).",
            )
        return StagedChanges(index["files"], Keyring([key]))

    def stage(self, content: ChangeContent) -> StagedChanges:
        """Write the changes, and the index last.

        Raises Refused (the log has no name of a table) and UsageProblem (no key).
        """
        index: Any
        if content.plan.encrypted:
            parent = _first_parent(content)
            key = staged_key(parent, self._name)
            working.empty(self._storage, self._folder)
            files = sorted(content.seal_files(self._storage.uri, self._folder, key))
            staged = StagedChanges(files, Keyring([key]))
            origin = {"source": parent.source, "backup_id": parent.backup_id or None}
            index = {"files": files, "key_id": key.key_id, **origin}
        elif isinstance(self._storage, EncryptedStorage):
            raise UsageProblem(
                f"The log of {content.plan.source} is not encrypted, and the metadata of {self._storage.uri} "
                "is: its changes would be staged there in clear.",
                hint="Restore into delta: or dir:.",
            )
        else:
            content.write_files(f"{self._storage.uri}/{self._folder}".rstrip("/"), with_truncates=False)
            paths = (entry.path for entry in self._storage.list(self._folder))
            index = files = sorted(path for path in paths if path.endswith(".parquet"))
            staged = StagedChanges(files)
        self._require_names(content, staged)
        self._storage.put(self._index_path, json.dumps(index).encode())
        return staged

    def clear(self) -> None:
        """Delete the index, without which nothing is resumed, and then the staged objects."""
        working.retire(self._storage, self._index_path)
        working.empty(self._storage, self._folder)

    def _read_index(self) -> dict[str, Any] | None:
        try:
            index = json.loads(working.read_latest(self._storage, self._index_path))
        except NotFound:
            return None
        return {"files": index, "key_id": None} if isinstance(index, list) else index

    def _find_key(self, key_id: str, parents: Iterable[BackupKey]) -> BackupKey | None:
        return Keyring(staged_key(parent, self._name) for parent in parents).get(key_id)

    def _require_names(self, content: ChangeContent, staged: StagedChanges) -> None:
        job = _NamelessJob(self._storage.uri, staged)
        rows = run_all(job, range(len(staged.files)), content.cluster)
        if nameless := sorted({table for row in rows for table in json.loads(row.tables)})[:_MOST_LISTED]:
            raise Refused(
                f"The log of {content.plan.source} does not have the names of tables "
                f"{', '.join(map(str, nameless))}.",
                hint="Choose tables by name with -f, or restore into delta: or dir:.",
            )


def _parent_keys(content: ChangeContent) -> list[BackupKey]:
    """The keys from which that of the staging may follow: the data keys of the files that the restore reads,
    then those of the key file, the current one first."""
    data_keys: Keyring = content.shares.roots.keys
    parents = [data_keys[key_id] for key_id in sorted(data_keys)]
    if log_keys := content.shares.keys:
        key_ids = sorted(log_keys.keys, key=lambda key_id: (key_id != log_keys.current, key_id))
        # Keys of a key file belong to no backup.
        parents += [BackupKey(DataKey(k, log_keys.keys[k]), content.plan.source, "") for k in key_ids]
    return parents


def _first_parent(content: ChangeContent) -> BackupKey:
    parents = _parent_keys(content)
    if not parents:
        raise UsageProblem(
            f"{content.plan.encrypted} log files of {content.plan.source} are encrypted, and no key file is "
            "set.",
            hint="Set LAKEBACKUP_LOG__KEYS_FILE, or keys_file under [log] in lakebackup.toml.",
        )
    return parents[0]


@dataclass(frozen=True, slots=True)
class SealChanges:
    """For `mapInArrow`: a task writes its rows as one encrypted Parquet object, and returns its path.

    `columns`: the columns of the rows. Each attempt of a task writes an object of another name, so only the
    returned ones count. A task without rows writes nothing. It needs memory for one batch of rows.
    """

    uri: str
    folder: str
    key: BackupKey
    columns: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = filter(len, batches)
        if (first_batch := next(rows, None)) is not None:
            path = self.write(chain([first_batch], rows))
            yield pa.RecordBatch.from_pydict({"path": [path]}, arrow_schema(PATHS))
        trim_worker()

    def write(self, batches: Iterable[pa.RecordBatch]) -> str:
        """Write an object and return its path."""
        schema = arrow_schema(self.columns)
        path = f"{self.folder}{uuid4().hex}.parquet{layout.encrypted_suffix(self.key.key_id)}"
        sealer = self.key.sealer("files", (path,))
        with open_storage(self.uri).writer() as sink:
            with pq.ParquetWriter(_SealedStream(sink, sealer), schema, compression="zstd") as writer:
                for batch in batches:
                    rows = pa.Table.from_batches([batch])
                    writer.write_table(rows.select(schema.names).cast(schema))
            sink.write(sealer.finish())
            sink.commit(path)
        return path


class _SealedStream(io.RawIOBase):
    """Encrypts what is written to it, and passes it on to an object."""

    def __init__(self, sink: ObjectWriter, sealer: ObjectSealer) -> None:
        super().__init__()
        self._sink, self._sealer, self._position = sink, sealer, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        content = memoryview(data)
        self._sink.write(self._sealer.update(content))
        self._position += content.nbytes
        return content.nbytes


def open_staged(uri: str, path: str, keys: Keyring) -> pq.ParquetFile:
    """Read a staged object, encrypted if there are keys. Raises NotFound and Damaged."""
    data = open_storage(uri).get(path)
    stream = keys.open_data(path, "files", (path,), data) if keys else pa.BufferReader(data)
    return pq.ParquetFile(stream)


@dataclass(frozen=True, slots=True)
class _NamelessJob(Task):
    """Finds tables without a name in a staged object: up to _MOST_LISTED ids, as JSON."""

    COLUMNS = "tables STRING, error STRING"

    uri: str
    staged: StagedChanges

    def run(self, number: int) -> dict[str, object]:
        file = open_staged(self.uri, self.staged.files[number], self.staged.keys)
        rows = file.read(columns=["table_id", "name"])
        nameless_ids = rows.filter(rows["name"].is_null())["table_id"].unique()
        return {"tables": json.dumps(nameless_ids[:_MOST_LISTED].to_pylist())}

"""The tasks of `verify`: each checks stored objects, and writes its findings as rows of the catalog."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, BinaryIO, ClassVar, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.encryption.objects import PREFIX_BYTES, Keyring, key_id_of, name_of, sealed_bytes
from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.formats.logs.events import DEFAULT
from lakebackup.formats.logs.logfile import FORMAT as LOG
from lakebackup.formats.logs.logfile import has_data_key, read_log_file
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rows.digest import Digest
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rows.upkeep import Check, StorageObject
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import in_batches
from lakebackup.storage import Storage, open_storage
from lakebackup.store import data_keys
from lakebackup.store.delta_append import FrameWriter
from lakebackup.store.manifest import read_manifest
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.roots import Roots
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.kafka.format.records import BlockStats, Columns
from lakebackup_jobs.kafka.format.stored import open_stored
from lakebackup_jobs.kafka.key_sums import SEALED_BYTES, is_undamaged
from lakebackup_jobs.lifecycle.tasks.plan_shares import Share
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.queues.messages import read_messages
from lakebackup_jobs.snapshots.ranges import Ranges

Row = Mapping[str, Any]
Mode = Literal["stat", "hash", "decode"]
Outcome = tuple[Literal["ok", "missing", "changed", "damaged", "unconfirmed", "orphan"], str | None]
OK: Outcome = ("ok", None)
_NOT_DECODED: Outcome = ("ok", "not decoded: it is encrypted, and no identity is set")
# The formats of the objects with files of snapshots. `CheckMembers` reads the files.
_SNAPSHOT_OBJECTS = ("file", "pack")
#: The cost of opening a file, as the number of bytes that could be hashed in that time.
OPEN_COST = 64 << 10
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Look(ABC):
    """A kind of check: a function from batches of rows to check, to batches of findings.

    `start_us`: when the whole check started, in us.
    """

    #: The table of the findings.
    TABLE: ClassVar[str] = "checks"
    #: The query for the rows to check. OBJECT, POSITION and BYTES name their columns: the object, the
    #: position in it if several rows share an object, and the number of bytes that the check reads.
    ROWS: ClassVar[str]
    OBJECT: ClassVar[str] = "path"
    POSITION: ClassVar[str | None] = None
    BYTES: ClassVar[str | None] = None
    #: The cost of a row in addition to its bytes, as the number of bytes that could be hashed in that time.
    COST: ClassVar[int] = OPEN_COST

    check_id: str
    start_us: int
    roots: Roots

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        findings = self.look(row for batch in batches for row in batch.to_pylist())
        return in_batches(map(as_row, findings), ARROW_SCHEMAS[self.TABLE], _BATCH)

    @abstractmethod
    def look(self, rows: Iterable[Row]) -> Iterable[Check | StorageObject]:
        """Check the rows; yields the findings."""

    def finding(self, row: Row, path: str, mode: Mode | Literal["keys"], outcome: Outcome) -> Check:
        """Return the row of a finding about `path`; `row` has its backup and its destination."""
        return Check(
            check_id=self.check_id,
            at=self.start_us,
            backup_id=row["backup_id"],
            destination=row["destination"],
            path=path,
            mode=mode,
            outcome=outcome[0],
            detail=outcome[1],
        )


class LookShare(NamedTuple):
    """What one task checks: a kind of check, and the rows of a plan file that it looks at."""

    look: Look
    file: PlanFile
    share: Share


@dataclass(frozen=True, slots=True)
class CheckShares(Task):
    """Runs one check in each task.

    `writers`: the writers of findings by table. A task reports its table and the files that it wrote.
    """

    COLUMNS = "relation STRING, files STRING, error STRING"

    checks: Sequence[LookShare]
    writers: Mapping[str, FrameWriter]

    def run(self, number: int) -> Mapping[str, Any]:
        look, file, share = self.checks[number]
        files = list(self.writers[look.TABLE].write(look(file.batches(share.first, share.end))))
        return {"relation": look.TABLE, "files": json.dumps(files)}


def _try_check(look: Callable[..., Outcome], *arguments: Any, missing: str | None = None) -> Outcome:
    """Return the outcome of `look`, or the outcome that its error means.

    `missing`: the detail if the object does not exist.
    """
    try:
        return look(*arguments)
    except NotFound:
        return "missing", missing
    except Refused as error:  # its destination does not belong to the catalog
        return "missing", error.message
    except Damaged as error:  # also for a link or a FIFO in place of a file
        return "damaged", error.message


@dataclass(frozen=True, slots=True)
class CheckFiles(Look):
    """Compares files with their rows: existence and size, then sha256, then every record."""

    ROWS = "files_to_check"
    BYTES = "bytes"

    mode: Mode
    progress_uri: str
    keys: LogKeys | None = field(default=None, repr=False)

    def look(self, rows: Iterable[Row]) -> Iterator[Check]:
        progress = TaskProgress(open_storage(self.progress_uri), f"checks/{self.check_id}/")
        count = None
        for file in rows:
            count = count or progress.counter(hashlib.sha256(file["path"].encode()).hexdigest()[:16])
            outcome = _try_check(self._check, file)
            count(1, file["bytes"])
            yield self.finding(file, file["path"], self.mode, outcome)

    def _check(self, file: Row) -> Outcome:
        storage, path = self.roots.open(file["destination"]), file["path"]
        size = storage.stat(path).bytes
        if size != file["bytes"]:
            return "changed", f"{size} bytes, {file['bytes']} were written"
        if self.mode == "stat":
            return OK
        # Files of an archive were decoded when they were imported. Files of a snapshot have no format to
        # decode.
        if self.mode == "decode" and file["format"].startswith("kafka-avro"):
            data = storage.get(path)
            return _compare_sha256(hashlib.sha256(data).hexdigest(), file) or self._decode(data, file)
        if outcome := _compare_sha256(storage.sha256(path), file):
            return outcome
        if self.mode == "decode" and file["format"] in _SNAPSHOT_OBJECTS and self._is_locked(file):
            return _NOT_DECODED
        if self.mode == "decode" and file["format"] == LOG:
            if has_data_key(SimpleNamespace(**file)) and self._is_locked(file):
                return _NOT_DECODED
            return _decode_log(storage, file, self.keys, self.roots.keys)
        return OK

    def _decode(self, data: bytes, file: Row) -> Outcome:
        key_id = key_id_of(data[:PREFIX_BYTES])
        if key_id != file["key_id"]:
            return "damaged", f"its data key is {key_id}, its row says {file['key_id']}"
        if self._is_locked(file):
            return _NOT_DECODED
        return _decode(open_stored(self.roots, file["path"], SimpleNamespace(**file), data), file)

    def _is_locked(self, file: Row) -> bool:
        """Whether a file is encrypted, and no data key was opened."""
        return file["key_id"] is not None and not self.roots.keys


def _compare_sha256(sha256: str, file: Row) -> Outcome | None:
    if sha256 == file["sha256"]:
        return None
    return "changed", f"sha256 is {sha256}, {file['sha256']} was written"


def _decode(data: BinaryIO, file: Row) -> Outcome:
    """Decode every record and compare the totals with the catalog's."""
    stats: BlockStats | None = None
    tids: list[int] = []
    try:
        reader = FileReader(data, file["path"])
        names = HeaderNames.read(reader.metadata)
        for columns in reader:
            block = columns.stats()
            stats = block if stats is None or block is None else stats + block
            if names:  # messages of an engine's queues
                tids = _merge_tids(tids, columns, names, file["path"])
    except Refused as error:  # Damaged is handled by `_try_check`
        return "damaged", error.message
    if stats is None:
        return "damaged", "it holds no record"
    totals = (stats.entries, stats.min_ts, stats.max_ts, stats.start_position, stats.end_position)
    recorded = tuple(file[name] for name in ("entries", "min_ts", "max_ts", "start_position", "end_position"))
    if totals != recorded:
        return "damaged", f"(entries, min ts, max ts, start, end) are {totals}, the manifest says {recorded}"
    recorded_tids = [file[name] for name in ("min_tid", "max_tid") if file[name] is not None]
    if tids != recorded_tids:
        return "damaged", f"least and greatest tid are {tids}, the manifest says {recorded_tids}"
    return OK


def _merge_tids(tids: list[int], columns: Columns, names: HeaderNames, path: str) -> list[int]:
    """Return the least and the greatest of `tids` and of the tids of a block; [] before the first message."""
    bounds = read_messages(columns, names, path).bounds
    return [min([bounds[0], *tids]), max([bounds[1], *tids])] if bounds else tids


def _decode_log(storage: Storage, file: Row, keys: LogKeys | None, data_keys: Keyring) -> Outcome:
    """Read every record of a log file and compare the totals with the catalog's."""
    ts = "start_ts" if file["cf"] == DEFAULT else "commit_ts"
    entries, bounds = 0, set[int]()
    try:
        for batch in read_log_file(storage, SimpleNamespace(**file), keys, data_keys):
            entries += len(batch)
            extremes = pc.min_max(batch[ts]).as_py()
            bounds = {min([extremes["min"], *bounds]), max([extremes["max"], *bounds])}
    except UsageProblem as error:  # only a key is missing; the SHA-256 was right
        return "ok", f"not decoded: {error.message}"
    totals = (entries, *sorted(bounds))
    recorded = (file["entries"], *sorted({file["min_ts"], file["max_ts"]}))
    if totals != recorded:
        return "damaged", f"(entries, min ts, max ts) are {totals}, the manifest says {recorded}"
    return OK


@dataclass(frozen=True, slots=True)
class CheckKeys(Look):
    """Compares objects of key filters with the rows that name them: one finding for each object.

    The rows of an object come one after the other.
    """

    ROWS = "key_filters_to_check"
    OBJECT = "keys_path"
    POSITION = "keys_start"

    hashed: bool

    def look(self, rows: Iterable[Row]) -> Iterator[Check]:
        for (_, path), group in groupby(rows, itemgetter("destination", "keys_path")):
            files = list(group)
            missing = "the files of its task are read whole when somebody asks for a key"
            yield self.finding(files[0], path, "keys", _try_check(self._check, files, missing=missing))

    def _check(self, files: Sequence[Row]) -> Outcome:
        storage, path = self.roots.open(files[0]["destination"]), files[0]["keys_path"]
        size = storage.stat(path).bytes
        end = max(file["keys_start"] + _stored_size(file) for file in files)
        if end > size:
            return "changed", f"{size} bytes, of which a filter takes those to {end}"
        if not self.hashed:
            return OK
        with storage.open(path) as stream:
            for file in files:
                start = file["keys_start"]
                stream.seek(start)
                if not self._is_undamaged(stream.read(_stored_size(file)), file):
                    return "changed", f"the filter at byte {start} is not as it was written"
        return OK

    def _is_undamaged(self, content: bytes, file: Row) -> bool:
        """Whether a filter is as it was written. Of an encrypted one, without its key, only its beginning is
        checked."""
        if file["key_id"] is None:
            return is_undamaged(content, str(file["sha256"]))
        if not self.roots.keys:
            return bool(key_id_of(content[:PREFIX_BYTES]) == file["key_id"])
        name = name_of(SimpleNamespace(**file))
        try:
            stream = self.roots.keys.open_data(file["keys_path"], "keys", name, content)
            return is_undamaged(stream.read(), str(file["sha256"]))
        except Damaged:
            return False


def _stored_size(file: Row) -> int:
    size: int = file["keys_blocks"] * SEALED_BYTES
    return size if file["key_id"] is None else sealed_bytes(size)


@dataclass(frozen=True, slots=True)
class CheckDataKeys(Look):
    """Compares the objects of data keys with the rows of their recipients. Opens no key."""

    ROWS = "data_keys_to_check"
    OBJECT = "key_id"

    mode: Mode

    def look(self, rows: Iterable[Row]) -> Iterator[Check]:
        for row in rows:
            path = layout.data_key_path(row["source"], row["backup_id"], row["key_id"])
            yield self.finding(row, path, self.mode, _try_check(self._check, row, path))

    def _check(self, row: Row, path: str) -> Outcome:
        storage = self.roots.open(row["destination"])
        storage.stat(path)
        key_object = data_keys.read(storage, row["source"], row["backup_id"], row["key_id"])
        if (count := len(key_object.recipients)) != row["recipients"]:
            return "changed", f"it has {count} recipients, the catalog has {row['recipients']}"
        return OK


@dataclass(frozen=True, slots=True)
class CheckMembers(Look):
    """Compares files that are compressed, encrypted or in packs with their rows: one finding for each object
    that holds a wrong file.

    The rows of an object come in the order of their positions. `CheckFiles` reports on the object itself, and
    on encrypted ones if no data key was opened.
    """

    ROWS = "pack_members_to_check"
    POSITION = "position"
    BYTES = "stored_bytes"
    COST = 0

    def look(self, rows: Iterable[Row]) -> Iterator[Check]:
        for _, group in groupby(rows, itemgetter("destination", "path")):
            members = list(group)
            if members[0]["key_id"] is not None and not self.roots.keys:
                continue
            if problem := self._find_wrong_member(members):
                yield self.finding(members[0], members[0]["path"], "decode", ("damaged", problem))

    def _find_wrong_member(self, members: Sequence[Row]) -> str | None:
        """Return what is wrong with the first file that differs from its row; None if none does."""
        try:
            storage, path = self.roots.open(members[0]["destination"]), members[0]["path"]
            storage.stat(path)
        except (NotFound, Refused, Damaged):
            return None  # CheckFiles reports it
        keys = self.roots.keys if members[0]["key_id"] is not None else None
        ranges = Ranges(storage, path, [(row["position"], row["stored_bytes"]) for row in members], keys)
        end = 0
        for member in members:
            start, digest = member["position"], hashlib.sha256()
            if start < end:
                return f"the file at byte {start} begins within another"
            columns = (member[name] for name in ("position", "stored_bytes", "codec", "bytes"))
            is_readable = False
            with suppress(Damaged):
                for chunk in ranges.contents(*columns):
                    digest.update(chunk)
                is_readable = True
            if not is_readable or digest.hexdigest() != member["sha256"]:
                return f"the file at byte {start} is not as it was written"
            end = start + member["stored_bytes"]
        return None


@dataclass(frozen=True, slots=True)
class CheckSidecars(Look):
    """Compares each backup's manifest and markers with its row."""

    ROWS = "backups_to_check"
    OBJECT = "backup_id"
    COST = 4 * OPEN_COST

    def look(self, rows: Iterable[Row]) -> Iterator[Check]:
        for backup in rows:
            path = layout.manifest_path(backup["source"], backup["backup_id"])
            missing = "without it the catalog cannot be rebuilt"
            yield self.finding(backup, path, "hash", _try_check(self._check, backup, path, missing=missing))
            if backup["source_kind"] == SNAPSHOT and (finding := self._check_exported(backup)):
                yield finding

    def _check_exported(self, backup: Row) -> Check | None:
        """Check a snapshot's manifest for other tools. None if it has no checksum, as older manifests do
        not."""
        key = backup["source"], backup["backup_id"], backup["end_ts"]
        path = layout.json_manifest_path(*key)

        try:
            storage = self.roots.open(backup["destination"])
            checksum_line = storage.get(layout.json_manifest_checksum_path(*key)).decode(errors="replace")
        except (NotFound, Refused):
            return None
        except Damaged as error:
            return self.finding(backup, path, "hash", ("damaged", error.message))
        return self.finding(
            backup,
            path,
            "hash",
            _try_check(_compare_exported, storage, path, checksum_line.partition(" ")[0]),
        )

    def _check(self, backup: Row, path: str) -> Outcome:
        storage = self.roots.open(backup["destination"])
        manifest = read_manifest(storage, path)
        if manifest.backup.digest != backup["digest"]:
            return "changed", "it describes other files than the catalog"
        parts, digest = self._parts(storage, backup)
        if parts != manifest.parts:
            return "changed", f"{parts} parts are beside it, {manifest.parts} were written"
        if digest != backup["digest"]:
            return "changed", "its parts hold other rows than were written"
        if not storage.exists(layout.marker_path(backup["source"], backup["backup_id"], "complete")):
            return (
                "unconfirmed",
                "its marker `complete` is missing; a rebuilt catalog would list it as unconfirmed",
            )
        return OK

    def _parts(self, storage: Storage, backup: Row) -> tuple[int, str]:
        """Return the number of parts, and the digest of their lines as a rebuild computes it."""
        digest, count = Digest(), 0
        for part in storage.list(layout.parts_folder(backup["source"], backup["backup_id"])):
            count += 1
            for line in storage.get(part.path).splitlines():
                digest.add(line.decode(errors="replace"))
        return count, digest.hex()


def _compare_exported(storage: Storage, path: str, sha256: str) -> Outcome:
    if (actual := storage.sha256(path)) != sha256:
        return "changed", f"sha256 is {actual}: `lakebackup catalog manifest` writes it again"
    return OK


@dataclass(frozen=True, slots=True)
class ListObjects(Look):
    """Lists the objects below folders: rows (destination, folder) in, rows of storage_objects out."""

    TABLE = "storage_objects"
    OBJECT = "folder"
    COST = 4 * OPEN_COST

    def look(self, rows: Iterable[Row]) -> Iterator[StorageObject]:
        for row in rows:
            for entry in self.roots.open(row["destination"]).list(row["folder"]):
                yield StorageObject(
                    check_id=self.check_id,
                    at=self.start_us,
                    destination=row["destination"],
                    path=entry.path,
                    bytes=entry.bytes,
                    modified_ms=entry.modified_ms,
                )


@dataclass(frozen=True, slots=True)
class NameOrphans(Look):
    """Turns each row of the query "find_orphans" into a finding."""

    def look(self, rows: Iterable[Row]) -> Iterator[Check]:
        for row in rows:
            detail = f"{row['bytes']} bytes that no backup names"
            yield self.finding({**row, "backup_id": None}, row["path"], "stat", ("orphan", detail))

"""What a task of `verify` does: look at stored objects and write, as rows of the catalog, what it found."""

from __future__ import annotations

import hashlib
import io
import json
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.formats.logs.events import DEFAULT
from lakebackup.formats.logs.logfile import FORMAT as LOG
from lakebackup.formats.logs.logfile import read_log_file
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rows.digest import Digest
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rows.upkeep import Check, StorageObject
from lakebackup.rules import layout
from lakebackup.sql_engine.worker import in_batches
from lakebackup.storage import Storage, open_storage
from lakebackup.store.manifest import read_manifest
from lakebackup_jobs.kafka.key_sums import SEALED_BYTES, whole
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.snapshots.ranges import Ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.formats.logs.cipher import LogKeys
    from lakebackup.store.delta_append import FrameWriter
    from lakebackup.store.roots import Roots
    from lakebackup_jobs.kafka.format.records import BlockStats, Columns

    Row = Mapping[str, Any]

Mode = Literal["stat", "hash", "decode"]
Outcome = tuple[Literal["ok", "missing", "changed", "damaged", "unconfirmed", "orphan"], str | None]
OK: Outcome = ("ok", None)
#: The cost of opening a file, as the number of bytes that could be hashed in that time.
OPEN_COST = 64 << 10
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Look(ABC):
    """One kind of check: batches of rows of what is to be checked in, findings out.

    `at`: when the check began, in us.
    """

    #: What the findings are rows of.
    TABLE: ClassVar[str] = "checks"
    #: The statement whose rows it takes; their columns with the object that is looked at, with the place in
    #: it where several rows are of one, and with the bytes that are read.
    ROWS: ClassVar[str]
    OBJECT: ClassVar[str] = "path"
    POSITION: ClassVar[str | None] = None
    BYTES: ClassVar[str | None] = None
    #: What a row costs beside these, as the number of bytes that could be hashed in that time.
    COST: ClassVar[int] = OPEN_COST

    check_id: str
    at: int
    roots: Roots

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = self.look(row for batch in batches for row in batch.to_pylist())
        return in_batches(map(as_row, found), ARROW_SCHEMAS[self.TABLE], _BATCH)

    @abstractmethod
    def look(self, rows: Iterable[Row]) -> Iterable[Check | StorageObject]:
        """What is found of the rows."""

    def finding(self, row: Row, path: str, mode: Mode | Literal["keys"], outcome: Outcome) -> Check:
        """The row of a finding; `row` names the backup and the destination."""
        return Check(
            check_id=self.check_id,
            at=self.at,
            backup_id=row["backup_id"],
            destination=row["destination"],
            path=path,
            mode=mode,
            outcome=outcome[0],
            detail=outcome[1],
        )


@dataclass(frozen=True, slots=True)
class CheckSplits(Task):
    """Each task has one split: a kind of check, and the object at `uri` with the rows that it is about.

    `writers`: by table, what writes findings. A task reports the files that it wrote of each.
    """

    COLUMNS = "relation STRING, files STRING, error STRING"

    uri: str
    splits: Sequence[tuple[Look, str]]
    writers: Mapping[str, FrameWriter]

    def run(self, number: int) -> Mapping[str, Any]:
        import pyarrow as pa

        look, path = self.splits[number]
        with pa.ipc.open_stream(open_storage(self.uri).get(path)) as rows:
            files = list(self.writers[look.TABLE].write(look(rows)))
        return {"relation": look.TABLE, "files": json.dumps(files)}


def _outcome(look: Callable[..., Outcome], *arguments: Any, missing: str | None = None) -> Outcome:
    """What `look` finds, or why it could not; `missing`: what to add when the object is not there."""
    try:
        return look(*arguments)
    except NotFound:
        return "missing", missing
    except Refused as error:  # its destination is not the catalog's
        return "missing", error.message
    except Damaged as error:  # also a link, a FIFO
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
            outcome = _outcome(self._check, file)
            count(1, file["bytes"])
            yield self.finding(file, file["path"], self.mode, outcome)

    def _check(self, file: Row) -> Outcome:
        storage, path = self.roots.open(file["destination"]), file["path"]
        size = storage.stat(path).bytes
        if size != file["bytes"]:
            return "changed", f"{size} bytes, {file['bytes']} were written"
        if self.mode == "stat":
            return OK
        # Files of an archive were decoded when they were imported, those of a snapshot are what they are.
        if self.mode == "decode" and file["format"].startswith("kafka-avro"):
            data = storage.get(path)
            return _other_bytes(hashlib.sha256(data).hexdigest(), file) or _decode(data, file)
        if other := _other_bytes(storage.sha256(path), file):
            return other
        if self.mode == "decode" and file["format"] == LOG:
            return _decode_log(storage, file, self.keys)
        return OK


def _other_bytes(sha256: str, file: Row) -> Outcome | None:
    if sha256 == file["sha256"]:
        return None
    return "changed", f"sha256 is {sha256}, {file['sha256']} was written"


def _decode(data: bytes, file: Row) -> Outcome:
    """Decode every record and compare the totals with the catalog's."""
    from lakebackup_jobs.kafka.format.container import FileReader

    stats: BlockStats | None = None
    tids: list[int] = []
    try:
        reader = FileReader(io.BytesIO(data), file["path"])
        names = HeaderNames.read(reader.metadata)
        for columns in reader:
            block = columns.stats()
            stats = block if stats is None or block is None else stats + block
            if names:  # messages of an engine's queues
                tids = _bounds(tids, columns, names, file["path"])
    except Refused as error:  # Damaged is the caller's
        return "damaged", error.message
    if stats is None:
        return "damaged", "it holds no record"
    found = (stats.entries, stats.min_ts, stats.max_ts, stats.start_position, stats.end_position)
    recorded = tuple(file[name] for name in ("entries", "min_ts", "max_ts", "start_position", "end_position"))
    if found != recorded:
        return "damaged", f"(entries, min ts, max ts, start, end) are {found}, the manifest says {recorded}"
    recorded_tids = [file[name] for name in ("min_tid", "max_tid") if file[name] is not None]
    if tids != recorded_tids:
        return "damaged", f"least and greatest tid are {tids}, the manifest says {recorded_tids}"
    return OK


def _bounds(before: list[int], columns: Columns, names: HeaderNames, where: str) -> list[int]:
    """Least and greatest tid so far; none while there was no message."""
    from lakebackup_jobs.queues.messages import read_messages

    found = read_messages(columns, names, where).bounds
    return [min([found[0], *before]), max([found[1], *before])] if found else before


def _decode_log(storage: Storage, file: Row, keys: LogKeys | None) -> Outcome:
    """Read every record of a log file and compare the totals with the catalog's."""
    import pyarrow.compute as pc

    ts = "start_ts" if file["cf"] == DEFAULT else "commit_ts"
    entries, bounds = 0, set[int]()
    try:
        for batch in read_log_file(storage, SimpleNamespace(**file), keys):
            entries += len(batch)
            found = pc.min_max(batch[ts]).as_py()
            bounds = {min([found["min"], *bounds]), max([found["max"], *bounds])}
    except UsageProblem as error:  # its bytes are as they were written: only a key is missing here
        return "ok", f"not decoded: {error.message}"
    seen = (entries, *sorted(bounds))
    recorded = (file["entries"], *sorted({file["min_ts"], file["max_ts"]}))
    if seen != recorded:
        return "damaged", f"(entries, min ts, max ts) are {seen}, the manifest says {recorded}"
    return OK


@dataclass(frozen=True, slots=True)
class CheckKeys(Look):
    """Compares objects of key filters with the rows that name them, which come in order: one finding each."""

    ROWS = "key_filters_to_check"
    OBJECT = "keys_path"
    POSITION = "keys_start"

    hashed: bool

    def look(self, rows: Iterable[Row]) -> Iterator[Check]:
        for (_, path), group in groupby(rows, itemgetter("destination", "keys_path")):
            files = list(group)
            missing = "the files of its task are read whole when somebody asks for a key"
            yield self.finding(files[0], path, "keys", _outcome(self._check, files, missing=missing))

    def _check(self, files: Sequence[Row]) -> Outcome:
        storage, path = self.roots.open(files[0]["destination"]), files[0]["keys_path"]
        size = storage.stat(path).bytes
        for file in files:
            start, length = file["keys_start"], file["keys_blocks"] * SEALED_BYTES
            if start + length > size:
                return "changed", f"{size} bytes, of which a filter takes those to {start + length}"
            if self.hashed and not whole(storage.get(path, start=start, length=length), file["sha256"]):
                return "changed", f"the filter at byte {start} is not as it was written"
        return OK


@dataclass(frozen=True, slots=True)
class CheckMembers(Look):
    """Compares the files in packs, which come in order, with their rows: a finding for each pack that holds a
    wrong one.

    Whether a pack is whole, `CheckFiles` reports.
    """

    ROWS = "pack_members_to_check"
    POSITION = "position"
    BYTES = "bytes"
    COST = 0

    def look(self, rows: Iterable[Row]) -> Iterator[Check]:
        for _, group in groupby(rows, itemgetter("destination", "path")):
            members = list(group)
            if wrong := self._wrong(members):
                yield self.finding(members[0], members[0]["path"], "decode", ("damaged", wrong))

    def _wrong(self, members: Sequence[Row]) -> str | None:
        """What is wrong with the first file of a pack that is not as its row says."""
        try:
            storage, path = self.roots.open(members[0]["destination"]), members[0]["path"]
            storage.stat(path)
        except (NotFound, Refused, Damaged):
            return None  # as CheckFiles reports
        ranges, end = Ranges(storage, path, [(one["position"], one["bytes"]) for one in members]), 0
        for member in members:
            start, digest = member["position"], hashlib.sha256()
            if start < end:
                return f"the file at byte {start} begins within another"
            with suppress(Damaged):  # the pack ends before
                for chunk in ranges.read(start, member["bytes"]):
                    digest.update(chunk)
            if digest.hexdigest() != member["sha256"]:
                return f"the file at byte {start} is not as it was written"
            end = start + member["bytes"]
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
            yield self.finding(backup, path, "hash", _outcome(self._check, backup, path, missing=missing))
            if backup["source_kind"] == SNAPSHOT and (exported := self._exported(backup)):
                yield exported

    def _exported(self, backup: Row) -> Check | None:
        """The finding on a snapshot's manifest for other tools; older ones have no checksum."""
        place = backup["source"], backup["backup_id"], backup["end_ts"]
        path = layout.json_manifest_path(*place)

        try:
            storage = self.roots.open(backup["destination"])
            checksum = storage.get(layout.json_manifest_checksum_path(*place)).decode(errors="replace")
        except (NotFound, Refused):
            return None
        except Damaged as error:
            return self.finding(backup, path, "hash", ("damaged", error.message))
        return self.finding(backup, path, "hash", _outcome(_same, storage, path, checksum.partition(" ")[0]))

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
        """How many parts there are, and the digest of their lines, as a rebuild adds them up."""
        digest, count = Digest(), 0
        for part in storage.list(layout.parts_folder(backup["source"], backup["backup_id"])):
            count += 1
            for line in storage.get(part.path).splitlines():
                digest.add(line.decode(errors="replace"))
        return count, digest.hex()


def _same(storage: Storage, path: str, sha256: str) -> Outcome:
    if (found := storage.sha256(path)) != sha256:
        return "changed", f"sha256 is {found}: `lakebackup catalog manifest` writes it again"
    return OK


@dataclass(frozen=True, slots=True)
class ListObjects(Look):
    """Lists what storage holds below folders: rows (destination, folder) in, storage_objects out."""

    TABLE = "storage_objects"
    OBJECT = "folder"
    COST = 4 * OPEN_COST

    def look(self, rows: Iterable[Row]) -> Iterator[StorageObject]:
        for row in rows:
            for found in self.roots.open(row["destination"]).list(row["folder"]):
                yield StorageObject(
                    check_id=self.check_id,
                    at=self.at,
                    destination=row["destination"],
                    path=found.path,
                    bytes=found.bytes,
                    modified_ms=found.modified_ms,
                )


@dataclass(frozen=True, slots=True)
class NameOrphans(Look):
    """Takes rows of the query "find_orphans": a finding each."""

    def look(self, rows: Iterable[Row]) -> Iterator[Check]:
        for row in rows:
            detail = f"{row['bytes']} bytes that no backup names"
            yield self.finding({**row, "backup_id": None}, row["path"], "stat", ("orphan", detail))

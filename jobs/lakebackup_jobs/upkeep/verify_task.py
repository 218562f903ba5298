"""What a Spark task of `verify` does: look at stored objects and say, row by row, what it found."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

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
from lakebackup.storage import Storage, open_storage
from lakebackup.store.manifest import marked, read_manifest
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.kafka.format.key_filter import SEALED_BYTES, whole
from lakebackup_jobs.lifecycle.task_progress import TaskBoard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.formats.logs.cipher import LogKeys
    from lakebackup.store.roots import Roots
    from lakebackup_jobs.kafka.format.records import Columns
    from lakebackup_jobs.kafka.format.stats import BlockStats

Outcome = tuple[Literal["ok", "missing", "changed", "damaged", "unconfirmed"], str | None]
_PIECE = 8 << 20
# Rows handed to Spark at a time.
_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class CheckFiles:
    """Compares files with their rows: existence and size, then sha256, then every record."""

    check_id: str
    at: int
    mode: Literal["stat", "hash", "decode"]
    roots: Roots
    board_uri: str
    keys: LogKeys | None = field(default=None, repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        board = TaskBoard(open_storage(self.board_uri), f"checks/{self.check_id}/")
        tell = None
        for batch in batches:
            rows = []
            for file in batch.to_pylist():
                tell = tell or board.counter(hashlib.sha256(file["path"].encode()).hexdigest()[:16])
                outcome, detail = self._check(file)
                tell(file["entries"], file["bytes"])
                rows.append(
                    Check(
                        check_id=self.check_id,
                        at=self.at,
                        backup_id=file["backup_id"],
                        destination=file["destination"],
                        path=file["path"],
                        mode=self.mode,
                        outcome=outcome,
                        detail=detail,
                    )
                )
            yield _batch("checks", rows)

    def _check(self, file: Mapping[str, Any]) -> Outcome:
        try:
            storage = self.roots.open(file["destination"])
            size = storage.stat(file["path"]).bytes
            if size != file["bytes"]:
                return "changed", f"{size} bytes, {file['bytes']} were written"
            if self.mode == "stat":
                return "ok", None
            # Files of an archive were decoded when they were imported, those of a snapshot are what they are.
            own = file["format"].startswith("kafka-avro") or file["format"] == LOG
            if self.mode == "hash" or not own:
                return self._same_bytes(_sha256(storage, file["path"]), file)
            if file["format"] == LOG:
                found = self._same_bytes(_sha256(storage, file["path"]), file)
                return found if found[0] != "ok" else _decode_log(storage, file, self.keys)
            data = storage.get(file["path"])
        except NotFound:
            return "missing", None
        except Refused as error:  # its destination is not where the catalog says
            return "missing", error.message
        except Damaged as error:  # a link, a FIFO
            return "damaged", error.message
        found = self._same_bytes(hashlib.sha256(data).hexdigest(), file)
        return found if found[0] != "ok" else _decode(data, file)

    def _same_bytes(self, sha256: str, file: Mapping[str, Any]) -> Outcome:
        return (
            ("ok", None)
            if sha256 == file["sha256"]
            else ("changed", f"sha256 is {sha256}, {file['sha256']} was written")
        )


def _sha256(storage: Storage, path: str) -> str:
    digest = hashlib.sha256()
    with storage.open(path) as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _decode(data: bytes, file: Mapping[str, Any]) -> Outcome:
    """Decode every record and compare what the catalog says of them all."""
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
    except (Damaged, Refused) as error:
        return "damaged", error.message
    if stats is None:
        return "damaged", "it holds no record"
    found = (stats.entries, stats.min_ts, stats.max_ts, stats.first_offset, stats.last_offset + 1)
    said = tuple(file[name] for name in ("entries", "min_ts", "max_ts", "start_position", "end_position"))
    if found != said:
        return "damaged", f"(entries, min ts, max ts, start, end) are {found}, the manifest says {said}"
    said_tids = [file[name] for name in ("min_tid", "max_tid") if file[name] is not None]
    if tids != said_tids:
        return "damaged", f"least and greatest tid are {tids}, the manifest says {said_tids}"
    return "ok", None


def _bounds(before: list[int], columns: Columns, names: HeaderNames, where: str) -> list[int]:
    """Least and greatest tid so far; none while there was no message."""
    from lakebackup_jobs.queues.messages import read_messages

    found = read_messages(columns, names, where).bounds
    return [min([found[0], *before]), max([found[1], *before])] if found else before


def _decode_log(storage: Storage, file: Mapping[str, Any], keys: LogKeys | None) -> Outcome:
    """Read every record of a log file and compare what the catalog says of them all."""
    import pyarrow.compute as pc

    ts = "start_ts" if file["cf"] == DEFAULT else "commit_ts"
    entries, bounds = 0, set[int]()
    try:
        for batch in read_log_file(storage, SimpleNamespace(**file), keys):
            entries += len(batch)
            found = pc.min_max(batch[ts]).as_py()
            bounds = {min([found["min"], *bounds]), max([found["max"], *bounds])}
    except Damaged as error:
        return "damaged", error.message
    except UsageProblem as error:  # its bytes are as they were written: only a key is missing here
        return "ok", f"not decoded: {error.message}"
    seen = (entries, *sorted(bounds))
    said = (file["entries"], *sorted({file["min_ts"], file["max_ts"]}))
    if seen != said:
        return "damaged", f"(entries, min ts, max ts) are {seen}, the manifest says {said}"
    return "ok", None


@dataclass(frozen=True, slots=True)
class CheckKeys:
    """Compares objects of key filters with the rows that name them, which come in order: one finding each."""

    check_id: str
    at: int
    hashed: bool
    roots: Roots

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        found = (self._row(list(files)) for _, files in groupby(rows, itemgetter("destination", "keys_path")))
        while some := list(islice(found, _BATCH)):
            yield _batch("checks", some)

    def _row(self, files: Sequence[Mapping[str, Any]]) -> Check:
        first = files[0]
        outcome, detail = self._check(first["keys_path"], files)
        return Check(
            check_id=self.check_id,
            at=self.at,
            backup_id=first["backup_id"],
            destination=first["destination"],
            path=first["keys_path"],
            mode="keys",
            outcome=outcome,
            detail=detail,
        )

    def _check(self, path: str, files: Sequence[Mapping[str, Any]]) -> Outcome:
        try:
            storage = self.roots.open(files[0]["destination"])
            size = storage.stat(path).bytes
            for file in files:
                start, length = file["keys_start"], file["keys_blocks"] * SEALED_BYTES
                if start + length > size:
                    return "changed", f"{size} bytes, of which a filter takes those to {start + length}"
                if self.hashed and not whole(storage.get(path, start=start, length=length), file["sha256"]):
                    return "changed", f"the filter at byte {start} is not as it was written"
        except NotFound:
            return "missing", "the files of its task are read whole when somebody asks for a key"
        except Refused as error:
            return "missing", error.message
        except Damaged as error:
            return "damaged", error.message
        return "ok", None


@dataclass(frozen=True, slots=True)
class CheckMembers:
    """Compares the files in packs, which come in order, with their rows: a finding for each that is wrong.

    That a pack is whole, `CheckFiles` says.
    """

    check_id: str
    at: int
    roots: Roots

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for _, members in groupby(rows, itemgetter("destination", "path")):
            found = self._row(members)
            if found.detail:
                yield _batch("checks", [found])

    def _row(self, members: Iterator[Mapping[str, Any]]) -> Check:
        first = next(members)
        return Check(
            check_id=self.check_id,
            at=self.at,
            backup_id=first["backup_id"],
            destination=first["destination"],
            path=first["path"],
            mode="decode",
            outcome="damaged",
            detail=self._wrong(first["destination"], first["path"], chain([first], members)),
        )

    def _wrong(self, destination: str, path: str, members: Iterable[Mapping[str, Any]]) -> str | None:
        """What is wrong with the first file that is not as its row says."""
        at = 0
        try:
            with self.roots.open(destination).open(path) as stream:
                for member in members:
                    if member["position"] < at:
                        return f"the file at byte {member['position']} begins within another"
                    while at < member["position"] and (
                        skipped := stream.read(min(_PIECE, member["position"] - at))
                    ):
                        at += len(skipped)
                    digest, end = hashlib.sha256(), member["position"] + member["bytes"]
                    while at < end and (piece := stream.read(min(_PIECE, end - at))):
                        digest.update(piece)
                        at += len(piece)
                    if at != end or digest.hexdigest() != member["sha256"]:
                        return f"the file at byte {member['position']} is not as it was written"
        except (NotFound, Refused, Damaged):
            pass  # as CheckFiles says
        return None


@dataclass(frozen=True, slots=True)
class CheckSidecars:
    """Compares each backup's manifest and markers with its row."""

    check_id: str
    at: int
    roots: Roots

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            backups = batch.to_pylist()
            rows = [self._row(backup) for backup in backups]
            exported = (self._exported(backup) for backup in backups if backup["source_kind"] == SNAPSHOT)
            yield _batch("checks", rows + [row for row in exported if row])

    def _row(self, backup: Mapping[str, Any]) -> Check:
        path = layout.manifest_path(backup["source"], backup["backup_id"])
        return self._said(backup, path, *self._check(backup, path))

    def _exported(self, backup: Mapping[str, Any]) -> Check | None:
        """What there is to say of a snapshot's manifest for other tools; older ones have no checksum."""
        place = backup["source"], backup["backup_id"], backup["end_ts"]
        path, outcome, detail = layout.json_manifest_path(*place), "ok", None
        try:
            storage = self.roots.open(backup["destination"])
            said = storage.get(layout.json_manifest_checksum_path(*place)).decode(errors="replace")
        except (NotFound, Refused):
            return None
        except Damaged as error:
            return self._said(backup, path, "damaged", error.message)
        try:
            if (found := _sha256(storage, path)) != said.partition(" ")[0]:
                outcome, detail = (
                    "changed",
                    f"sha256 is {found}: `lakebackup catalog manifest` writes it anew",
                )
        except NotFound:
            outcome = "missing"
        except Damaged as error:
            outcome, detail = "damaged", error.message
        return self._said(backup, path, outcome, detail)

    def _said(self, backup: Mapping[str, Any], path: str, outcome: Any, detail: str | None) -> Check:
        return Check(
            check_id=self.check_id,
            at=self.at,
            backup_id=backup["backup_id"],
            destination=backup["destination"],
            path=path,
            mode="hash",
            outcome=outcome,
            detail=detail,
        )

    def _check(self, backup: Mapping[str, Any], path: str) -> Outcome:
        try:
            storage = self.roots.open(backup["destination"])
            manifest = read_manifest(storage, path)
        except NotFound:
            return "missing", "without it the catalog cannot be rebuilt"
        except Refused as error:
            return "missing", error.message
        except Damaged as error:
            return "damaged", error.message
        if manifest.backup.digest != backup["digest"]:
            return "changed", "it describes other files than the catalog"
        try:
            parts, digest = self._parts(storage, backup)
        except Damaged as error:
            return "damaged", error.message
        if parts != manifest.parts:
            return "changed", f"{parts} parts are beside it, {manifest.parts} were written"
        if digest != backup["digest"]:
            return "changed", "its parts hold other rows than were written"
        if not marked(storage, layout.marker_path(backup["source"], backup["backup_id"], "complete")):
            return (
                "unconfirmed",
                "its marker `complete` is missing; a rebuilt catalog would list it as unconfirmed",
            )
        return "ok", None

    def _parts(self, storage: Storage, backup: Mapping[str, Any]) -> tuple[int, str]:
        """How many parts there are, and the digest of their lines, as a rebuild adds them up."""
        digest, count = Digest(), 0
        for part in storage.list(layout.parts_folder(backup["source"], backup["backup_id"])):
            count += 1
            for line in storage.get(part.path).splitlines():
                digest.add(line.decode(errors="replace"))
        return count, digest.hex()


@dataclass(frozen=True, slots=True)
class ListObjects:
    """Lists what storage holds below folders: rows (destination, folder) in, storage_objects out."""

    check_id: str
    at: int
    roots: Roots

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for folder in batch.to_pylist():
                rows: list[StorageObject] = []
                for found in self.roots.open(folder["destination"]).list(folder["folder"]):
                    rows.append(
                        StorageObject(
                            check_id=self.check_id,
                            at=self.at,
                            destination=folder["destination"],
                            path=found.path,
                            bytes=found.bytes,
                            modified_ms=found.modified_ms,
                        )
                    )
                    if len(rows) == _BATCH:
                        yield _batch("storage_objects", rows)
                        rows = []
                if rows:
                    yield _batch("storage_objects", rows)


def _batch(table: str, rows: list[Check] | list[StorageObject]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([as_row(row) for row in rows], ARROW_SCHEMAS[table])

"""The request for a backup of queues, and the engine's files that it names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lakebackup import requests
from lakebackup.errors import NotFound
from lakebackup.formats.queues import schema_history, snapshot_json
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.formats.queues.schema_history import Version
from lakebackup.formats.queues.snapshot_json import SnapshotJson
from lakebackup.plan.queues.history import Mode
from lakebackup.rules import layout
from lakebackup.storage import AlreadyExists, Storage, working
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.snapshots.find import root_of

CONFIG: Literal["config.yaml"] = "config.yaml"
SCHEMA: Literal["delta_schema_history.yaml"] = "delta_schema_history.yaml"
# Two requests mean the same backup if they agree in these fields, which every draft records, and in all
# fields that are neither here nor in _ELSE.
_COMPARED_FIELDS = (
    "mode", "snapshot", "positions", "config", "schema", "codec", "compression_level", "note", "topics",
    "names",
)  # fmt: skip
# These fields may differ: locations, credentials, the way to run, and messages to leave out, which have
# records of their own.
_IGNORED_FIELDS = (
    "destination", "catalog", "source", "kafka", "remote", "lease_ttl_s", "runner", "local_below",
    "parallelism", "dry_run", "target_bytes", "skip",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueRequest(requests.RunRequest):
    """The request for a backup of queues.

    `source`: the engine's name; `topics`: regular expressions that match all of its queues. `snapshot`: the
    folder of its snapshot, for a full; `positions`: its snapshot.json, if that is not beside the folder.
    `config` and `schema`: files that every backup stores. `skip`: messages to leave out, such as
    `delta.1[0]@4711`. `recipients`: who can read the messages, the files and the snapshot; without recipients
    they are not encrypted. `kafka` may hold secrets.
    """

    source: str
    topics: tuple[str, ...]
    kafka: Mapping[str, str]
    mode: Mode = "auto"
    snapshot: str | None = None
    positions: str | None = None
    config: str | None = None
    schema: str | None = None
    names: HeaderNames = field(default_factory=HeaderNames)
    skip: tuple[str, ...] = ()
    codec: str = "zstandard"
    compression_level: int | None = None
    target_bytes: int = 128 << 20
    note: str | None = None
    recipients: tuple[str, ...] = ()
    parallelism: int = os.cpu_count() or 2

    @property
    def identity(self) -> dict[str, Any]:
        """The options that make two requests the same backup."""
        return {
            **requests.digest_fields(self, always=_COMPARED_FIELDS, never=_IGNORED_FIELDS),
            "topics": sorted(self.topics),
        }


@dataclass(frozen=True, slots=True)
class Files:
    """The content of the engine's files; None: the request does not name the file."""

    config: bytes | None
    schema: bytes | None
    versions: tuple[Version, ...]


class StoredFile(NamedTuple):
    """One of the engine's files in the repository: the bytes of its object, and the size of its content."""

    role: Literal["config", "schema"]
    path: str
    data: bytes
    content_bytes: int


class StoredFiles(NamedTuple):
    """The engine's files of a backup, and the versions of its schema history."""

    files: tuple[StoredFile, ...]
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What an engine reports of its snapshot: the bytes of snapshot.json at `path`; None: there is none.

    `mark` distinguishes this snapshot from another one at the same path; None: it cannot be read from here.
    """

    path: str
    data: bytes | None
    problem: NotFound | None
    mark: str | None

    @property
    def read(self) -> SnapshotJson | None:
        """The parsed snapshot.json. Raises NotFound, UsageProblem; it is parsed late, since only a full needs
        a valid one."""
        if self.problem:
            raise self.problem
        return None if self.data is None else snapshot_json.parse(self.data, self.path)


def files_of(request: QueueRequest) -> Files:
    """Read the files that travel with the backup. Raises NotFound, UsageProblem."""
    config = _read(request.config) if request.config else None
    schema = _read(request.schema) if request.schema else None
    return Files(config, schema, () if schema is None else schema_history.parse(schema, str(request.schema)))


def store_files(storage: Storage, parts: Parts, files: Files) -> StoredFiles:
    """Store the engine's files for a backup, unless an earlier run has, and return the stored ones.

    A run cannot read what an earlier run has encrypted. So it stores encrypted files again, with its own key.
    """
    config = _store(storage, parts, "config", CONFIG, files.config)
    schema = _store(storage, parts, "schema", SCHEMA, files.schema)
    versions = files.versions
    if schema and parts.key is None:
        versions = schema_history.parse(schema.data, schema.path)
    return StoredFiles(tuple(file for file in (config, schema) if file), versions)


def delete_unused_files(storage: Storage, source: str, backup_id: str, paths: Collection[str]) -> None:
    """Delete the files of the engine that interrupted runs of a backup stored, and that are not `paths`."""
    objects = storage.list(layout.queue_files_folder(source, backup_id))
    working.delete(storage, [entry.path for entry in objects if entry.path not in paths])


def read_report(request: QueueRequest) -> EngineReport:
    """Read what the engine reports of the snapshot. Raises nothing: the report may not be needed."""
    if request.mode not in ("full", "auto") or request.snapshot is None:
        return EngineReport("", None, None, None)
    folder = root_of(request.snapshot)
    path = Path(request.positions or folder.parent / snapshot_json.NAME)
    if request.positions or path.is_file():
        try:
            data = _read(str(path))
        except NotFound as problem:
            return EngineReport(str(path), None, problem, None)
        return EngineReport(str(path), data, None, hashlib.sha256(data).hexdigest())
    try:
        mark = f"{folder.stat().st_mtime_ns} ns"
    except OSError:  # only workers can read the folder
        mark = None
    return EngineReport(str(path), None, None, mark)


def _store(
    storage: Storage,
    parts: Parts,
    role: Literal["config", "schema"],
    name: Literal["config.yaml", "delta_schema_history.yaml"],
    content: bytes | None,
) -> StoredFile | None:
    if content is None:
        return None
    path = layout.queue_file_path(parts.source, parts.backup_id, name, key_id=parts.key_id)
    if parts.key is not None:
        data = parts.key.seal("files", (path,), content)
        storage.put(path, data)
        return StoredFile(role, path, data, len(content))
    try:
        storage.put(path, content, if_absent=True)
    except AlreadyExists:
        content = storage.get(path)
    return StoredFile(role, path, content, len(content))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.", hint="Check the path.") from None

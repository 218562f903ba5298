"""The request for a backup of queues, and the engine's files that it names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lakebackup import requests
from lakebackup.errors import NotFound
from lakebackup.formats.queues import schema_history, snapshot_json
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.formats.queues.schema_history import Version
from lakebackup.formats.queues.snapshot_json import SnapshotJson
from lakebackup.plan.queues.history import Mode
from lakebackup.rules import layout
from lakebackup.storage import AlreadyExists, Storage
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
    `delta.1[0]@4711`. `kafka` may hold secrets.
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


def keep_files(storage: Storage, source: str, backup_id: str, files: Files) -> Files:
    """Store the engine's files for a backup, unless an earlier run has, and return the stored ones."""
    config = _store_once(storage, layout.queue_file_path(source, backup_id, CONFIG), files.config)
    path = layout.queue_file_path(source, backup_id, SCHEMA)
    schema = _store_once(storage, path, files.schema)
    return Files(config, schema, () if schema is None else schema_history.parse(schema, path))


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


def _store_once(storage: Storage, path: str, data: bytes | None) -> bytes | None:
    if data is None:
        return None
    try:
        storage.put(path, data, if_absent=True)
        return data
    except AlreadyExists:
        return storage.get(path)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.", hint="Check the path.") from None

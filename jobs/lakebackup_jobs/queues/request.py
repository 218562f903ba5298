"""What a person asks of a backup of queues, and the files of the engine that it names."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound
from lakebackup.queues import schema_history, snapshot_json
from lakebackup.queues.headers import HeaderNames
from lakebackup_jobs.snapshot.find import root_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebackup.plan.queue_history import Mode
    from lakebackup.queues.schema_history import Version
    from lakebackup.queues.snapshot_json import SnapshotJson


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """What a person asked for. `source`: the engine's name; `topics`: names or shell patterns of all of its
    queues. `snapshot`: folder of its snapshot, for a full; `positions`: its snapshot.json, when not beside
    that. `config` and `schema`: files that travel with every backup. `kafka` may hold secrets.
    """

    destination: str
    source: str
    topics: tuple[str, ...]
    kafka: Mapping[str, str]
    mode: Mode = "auto"
    snapshot: str | None = None
    positions: str | None = None
    config: str | None = None
    schema: str | None = None
    names: HeaderNames = field(default_factory=HeaderNames)
    catalog: str | None = None
    codec: str = "zstandard"
    compression_level: int | None = None
    target_bytes: int = 128 << 20
    dry_run: bool = False
    lease_ttl_s: float = 60.0
    note: str | None = None
    remote: str | None = None
    parallelism: int = os.cpu_count() or 2

    @property
    def asked(self) -> dict[str, Any]:
        """What makes two requests the same backup."""
        kept = ("mode", "snapshot", "positions", "config", "schema", "codec", "compression_level", "note")
        return {
            **{name: getattr(self, name) for name in kept},
            "topics": sorted(self.topics),
            "names": asdict(self.names),
        }


@dataclass(frozen=True, slots=True)
class Files:
    """The engine's files as they are now; None: it was not said where one is."""

    config: bytes | None
    schema: bytes | None
    versions: tuple[Version, ...]


def files_of(request: QueueRequest) -> Files:
    """Read the files that travel with the backup. Raises NotFound, UsageProblem."""
    config = _read(request.config) if request.config else None
    schema = _read(request.schema) if request.schema else None
    return Files(config, schema, () if schema is None else schema_history.parse(schema, str(request.schema)))


def snapshot_json_of(request: QueueRequest) -> tuple[SnapshotJson | None, str]:
    """What the engine says of its snapshot, and where; None when it says nothing."""
    if request.mode not in ("full", "auto") or request.snapshot is None:
        return None, ""
    path = Path(request.positions or root_of(request.snapshot).parent / snapshot_json.NAME)
    if not request.positions and not path.is_file():
        return None, str(path)
    return snapshot_json.parse(_read(str(path)), str(path)), str(path)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.", hint="Check the path.") from None

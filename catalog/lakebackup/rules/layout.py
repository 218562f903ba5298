"""Names of everything a destination holds. Pure; every path is relative to the destination's root.

Names of sources, topics, leases and files become parts of paths by one encoding (`encode_name`): the same
characters, but for what some storage does not take. No part is `.` or `..`, and no path contains `..`.

Beside the paths below there are `lakebackup.json` (format version, destination id) and `catalog/<table>/`.
A path of a folder ends in `/`. `attempt` keeps apart what a task writes twice.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote

from lakebackup.errors import UsageProblem
from lakebackup.rules.patterns import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable

#: Version of the JSON objects that carry their own SHA-256.
FORMAT = 1
ROOT_FILE = "lakebackup.json"
CATALOG_FOLDER = "catalog"
LEASES_FOLDER = "leases"
#: Where a storage has been tried out; beside the folders of leases, which no lock of objects covers.
PROOF_FOLDER = f"{LEASES_FOLDER}/proof/"
#: An empty object, put to see what time it is by the clock of the storage.
STORAGE_CLOCK = f"{PROOF_FOLDER}now"
AUDIT_FOLDER = "audit"
PRUNES_FOLDER = "prunes"
RESTORES_FOLDER = "restores"
IMPORTS_FOLDER = "imports"
RESERVED = frozenset(
    {CATALOG_FOLDER, LEASES_FOLDER, AUDIT_FOLDER, PRUNES_FOLDER, RESTORES_FOLDER, IMPORTS_FOLDER, ROOT_FILE}
)

_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_EPOCH = re.compile(r"[0-9a-f]{32}")
_BACKUP_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_LEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_SEQ = re.compile(r"-([0-9]{10,19})\.data", re.ASCII)
# A file name has 255 bytes on common file systems, a topic's name up to 249: only its folder has all of it.
_PREFIX_LENGTH = 220
_PLAIN = " !#$&'()+,;=@[]{}~"  # of names in snapshots, beside letters, digits and _.-
_LONGEST_SEGMENT = 200
_LONGEST_FILE_NAME = 255
_LONGEST_PATH = 866  # an object's key has 1,024 bytes in common object storages; a prefix takes some
_DIGEST = "%23"  # begins the digest of a long name: no name is encoded so, since `#` stays


def check_source(source: str) -> str:
    """The name itself when it can stand in paths; UsageProblem otherwise."""
    if not _SOURCE.fullmatch(source) or source in RESERVED:
        raise UsageProblem(
            f"{source!r} cannot be the name of a source.",
            hint="Use letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 128; "
            f"not {', '.join(sorted(RESERVED))}.",
        )
    return source


def is_backup_id(name: str) -> bool:
    """Whether a name has the form of a backup's id."""
    return _BACKUP_ID.fullmatch(name) is not None


def check_backup_id(backup_id: str) -> str:
    """The id itself when it has the form of one; UsageProblem otherwise."""
    if not is_backup_id(backup_id):
        raise UsageProblem(
            f"{backup_id!r} is no backup id.",
            hint="An id looks like 20260131T134511Z-0a1b2c3d; `lakebackup list` shows them.",
        )
    return backup_id


def new_backup_id(now: datetime) -> str:
    """A new id, `YYYYMMDDTHHMMSSZ-<8 random hex>`, that sorts by time; `now` must carry a time zone."""
    if now.tzinfo is None:
        raise ValueError("an instant without a time zone")
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def encode_name(name: str, *, longest: int = _LONGEST_SEGMENT) -> str:
    """A name as a part of a path that any storage takes: percent-encoded, never `.` or `..`, without `..`.

    One that would be longer than `longest` bytes becomes a digest. Different names become different parts.
    """
    encoded = quote(name, safe=_PLAIN, errors="surrogateescape").replace("..", ".%2E")
    encoded = "%2E" if encoded == "." else encoded or "%"
    if len(encoded) <= longest:
        return encoded
    return _DIGEST + hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()


def decode_name(part: str) -> str | None:
    """The name that `encode_name` made a part of a path of; None for a digest, and where it made none."""
    name = "" if part == "%" else unquote(part, errors="surrogateescape")
    return name if encode_name(name, longest=len(part)) == part else None


def source_folder(source: str) -> str:
    """The folder of everything that belongs to a source."""
    return f"{encode_name(check_source(source), longest=_LONGEST_FILE_NAME)}/"


def source_of(folder: str) -> str | None:
    """The source that a folder directly below the root belongs to; None: it is none's."""
    source = decode_name(folder)
    if source is None or not _SOURCE.fullmatch(source) or source in RESERVED:
        return None
    return source


def topic_folder(topic: str) -> str:
    """The folder of a topic's partitions, in the folder of its epoch or of a restore."""
    return f"topics/{encode_name(check_topic_name(topic), longest=_LONGEST_FILE_NAME)}/"


def archive_path(source: str, path: str) -> str:
    """The file of an imported archive that has this path there."""
    return f"{source_folder(source)}archive/{path.replace('..', '.%2E')}"


def path_in_archive(source: str, path: str) -> str:
    """The path in its archive of an imported file."""
    return path.removeprefix(archive_path(source, "")).replace(".%2E", "..")


def partition_folder(source: str, epoch: str, topic: str, partition: int) -> str:
    """The folder of one partition's data files, ending in `/`."""
    if not _EPOCH.fullmatch(epoch):
        raise UsageProblem(f"{epoch!r} is no epoch: 32 lower hex digits of the topic's id are expected.")
    return f"{source_folder(source)}{epoch}/{topic_folder(topic)}partition={partition}/"


def data_path(source: str, epoch: str, topic: str, partition: int, seq: int) -> str:
    """The path of a data file; `seq` counts on across the backups of a partition, from 0."""
    return f"{partition_folder(source, epoch, topic, partition)}{data_name(topic, partition, seq)}"


def data_name(topic: str, partition: int, seq: int) -> str:
    """The name of a data file in its partition's folder."""
    prefix = encode_name(topic, longest=_LONGEST_FILE_NAME)[:_PREFIX_LENGTH]
    return f"{prefix}+{partition}-{seq:010d}.data"


def parse_seq(name: str, topic: str, partition: int) -> int | None:
    """The number in a name that `data_name` made for a partition; None for any other name."""
    found = _SEQ.search(name)
    seq = int(found[1]) if found else 0
    return seq if name == data_name(topic, partition, seq) else None


def _in_source(path: str) -> Callable[[str], str]:
    """source -> a path in its folder."""
    return lambda source: f"{source_folder(source)}{path}"


def _of_backup(path: str) -> Callable[[str, str], str]:
    """(source, backup id) -> a path in the source's folder that holds the id."""
    return lambda source, backup_id: f"{source_folder(source)}{path.format(check_backup_id(backup_id))}"


def _of_task(path: str) -> Callable[[str, str, int], str]:
    """(source, backup id, task) -> a path in the source's folder that holds both."""
    return lambda source, backup_id, task: (
        f"{source_folder(source)}{path.format(check_backup_id(backup_id), task)}"
    )


#: Records of a backup, merge or compaction of a log that is in progress, or was cut off.
in_progress_path = _in_source("begun.json")
merge_path = _in_source("merge.json")
compact_path = _in_source("compact.json")
#: Spark's checkpoint of a continuous backup.
follow_folder = _in_source("follow/")

#: Sidecars of backups. `manifest.json` is the index of one.
backups_folder = _in_source("backups/")
backup_folder = _of_backup("backups/{}/")
manifest_path = _of_backup("backups/{}/manifest.json")
#: The file rows of a backup's tasks, a JSON object a line.
parts_folder = _of_backup("backups/{}/parts/")
parts_path = _of_task("backups/{}/parts/{:06d}.jsonl")
#: The file rows of a compaction's tasks, until it has a number.
made_folder = _of_backup("backups/{}/made/")
made_path = _of_task("backups/{}/made/{:06d}.jsonl")
#: What a flush's tasks saw of regions, until it is committed.
marks_folder = _of_backup("backups/{}/marks/")
marks_path = _of_task("backups/{}/marks/{:06d}.parquet")
#: The transactions that the tasks of a queue backup scanned, and the ranges, until the backup is complete.
scan_folder = _of_backup("backups/{}/seen/")
scan_path = _of_task("backups/{}/seen/{:06d}.parquet")
scan_ranges_path = _of_task("backups/{}/seen/{:06d}.json")

#: Objects with the files of a snapshot.
snapshot_folder = _of_backup("snapshots/{}/")
#: Log files of a flush, and what flushes wrote, for other tools.
log_folder = _of_backup("log/{}/")
stream_metas_folder = _in_source("stream-metas/")
#: Fulls of a change feed: Delta tables.
fulls_folder = _in_source("fulls/")
full_folder = _of_backup("fulls/{}/")
#: Files of an engine that travel with a backup of its queues.
queue_files_folder = _of_backup("queues/{}/")


def marker_path(source: str, backup_id: str, marker: Literal["complete", "deleted"]) -> str:
    """The empty object that marks a backup as committed, or as being deleted."""
    return f"{backup_folder(source, backup_id)}{marker}"


def keys_path(source: str, backup_id: str, task: int, attempt: str) -> str:
    """The key filters of one task's files."""
    return f"{backup_folder(source, backup_id)}keys/{task:06d}-{attempt}.keys"


def snapshot_path(source: str, backup_id: str, scope: str, region: str, name: str) -> str:
    """The object of one file of a snapshot, under its own name as far as an object can have it."""
    parts = [encode_name(part) for part in (scope, region, *name.split("/"))]
    path = snapshot_folder(source, backup_id) + "/".join(parts)
    if len(path) <= _LONGEST_PATH:
        return path
    return snapshot_folder(source, backup_id) + "/".join([*parts[:2], encode_name(name, longest=0)])


def pack_path(source: str, backup_id: str, task: int, number: int, attempt: str) -> str:
    """An object that holds many files of a snapshot, one behind the other."""
    return f"{snapshot_folder(source, backup_id)}packs/{task:06d}-{number:06d}-{attempt}.pack"


def listing_path(
    source: str, backup_id: str, task: int, attempt: str, kind: Literal["files", "gone", "folders"]
) -> str:
    """Rows of the catalog that a task of a snapshot's backup made, as Parquet."""
    return f"{backup_folder(source, backup_id)}listing/{task:06d}-{attempt}.{kind}.parquet"


def json_manifest_path(source: str, backup_id: str, end_ts: int) -> str:
    """A snapshot's manifest for other tools; `end_ts`, in ms, is in its name."""
    at = datetime.fromtimestamp(end_ts / 1000, UTC)
    return f"{backup_folder(source, backup_id)}manifest-{at:%Y%m%dT%H%M%SZ}-{backup_id}.json"


def json_manifest_checksum_path(source: str, backup_id: str, end_ts: int) -> str:
    """The SHA-256 of a snapshot's manifest for other tools, as sha256sum writes and checks it."""
    return f"{json_manifest_path(source, backup_id, end_ts)}.sha256"


def log_path(
    source: str,
    backup_id: str,
    *,
    table_id: int,
    region: int,
    min_ts: int,
    cf: str,
    op: str,
    store: str,
    suffix: str,
    is_meta: bool = False,
) -> str:
    """A log file. `suffix`: codec and cipher, as `.zst.aes256gcm`; store: as a name can have it."""
    table = "meta" if is_meta else f"{table_id:02x}"
    folder = f"{log_folder(source, backup_id)}{table}/{region:016x}{min_ts:016x}-{cf}-{op}/"
    name = encode_name(store)
    name = f"{name[:-1]}%2E" if name.endswith(".") else name
    return f"{folder}{name}.log{suffix}"


def stream_meta_path(source: str, backup_id: str, ts: int, number: int | None = None) -> str:
    """What a backup of a change feed wrote, for other tools; `number`: of a piece, when it is in several."""
    piece = "" if number is None else f"-{number}"
    return f"{stream_metas_folder(source)}{ts:016x}-{check_backup_id(backup_id)}{piece}.meta"


def queue_file_path(
    source: str, backup_id: str, name: Literal["config.yaml", "delta_schema_history.yaml"]
) -> str:
    """A file of an engine that travels with every backup of its queues."""
    return f"{queue_files_folder(source, backup_id)}{name}"


def snapshot_source(source: str) -> str:
    """The source of the backups of an engine's snapshots."""
    return check_source(f"{check_source(source)}.snapshot")


def lease_folder(name: str) -> str:
    """The folder of a lease's generations."""
    if not _LEASE.fullmatch(name):
        raise UsageProblem(f"{name!r} cannot be the name of a lease.")
    return f"{LEASES_FOLDER}/{encode_name(name)}/"


def lease_path(name: str, generation: int) -> str:
    """One generation of a lease; the highest that exists is the current one."""
    return f"{lease_folder(name)}{generation:012d}.json"


def audit_path(at: int, audit_id: str) -> str:
    """One line of the audit log; `at` in microseconds since 1970 UTC, so that names sort by time."""
    return f"{AUDIT_FOLDER}/{at:020d}-{audit_id}.json"


def restore_folder(restore_id: str) -> str:
    """What a restore keeps of itself: plan/, translation/<epoch>/<region>-<from>.parquet, aside/."""
    return f"{RESTORES_FOLDER}/{restore_id}/"


def prune_folder(prune_id: str) -> str:
    """What one prune deletes; its id has the form of a backup's."""
    return f"{PRUNES_FOLDER}/{check_backup_id(prune_id)}/"


def prune_path(prune_id: str) -> str:
    """The object that makes a prune exist."""
    return f"{prune_folder(prune_id)}prune.json"


def prune_done_path(prune_id: str) -> str:
    """The marker that every object of a prune is gone."""
    return f"{prune_folder(prune_id)}done"


def removals_path(prune_id: str, task: int, attempt: str) -> str:
    """Some of a prune's removals, a JSON object a line."""
    return f"{prune_folder(prune_id)}removals-{task:06d}-{attempt}.jsonl"


def import_folder(import_id: str) -> str:
    """Rows that were imported; the id is 16 hex digits."""
    return f"{IMPORTS_FOLDER}/{import_id}/"


def import_path(import_id: str) -> str:
    """The object that makes an import exist."""
    return f"{import_folder(import_id)}import.json"


def imported_path(import_id: str, table: str, task: int, attempt: str) -> str:
    """Some of an import's rows of a table."""
    return f"{import_folder(import_id)}{table}-{task:06d}-{attempt}.parquet"

"""Names of everything a destination holds. Pure; every path is relative to the destination's root.

lakebackup.json                                                          format version, destination id
<source>/<epoch>/topics/<topic>/partition=<n>/<topic>+<n>-<seq>.data     data files
<source>/backups/<backup_id>/parts/<task>.jsonl | keys/<task>-<hex>.keys | manifest.json | complete | deleted
<source>/snapshots/<backup_id>/<table>/<tablet>/<name> | packs/<task>-<n>-<hex>.pack    files of a snapshot
<source>/backups/<backup_id>/listing/<task>-<hex>.files.parquet | .gone.parquet    rows of its catalog
<source>/backups/<backup_id>/manifest-<UTC>-<backup id>.json[.sha256]    the snapshot's, for other tools
<source>/log/<backup_id>/<table id %02x>/<region %016x><min ts %016x>-<cf>-<op>/<store>.log.<codec>[.<cipher>]
<source>/log/<backup_id>/meta/...    the same, of meta keys
<source>/backups/<backup_id>/marks/<task>.parquet    what a flush saw of regions, until it is committed
<source>/backups/<backup_id>/transactions.parquet | known-<hex>.parquet | seen-<hex>.parquet    of Debezium
<source>/stream-metas/<ts %016x>-<backup_id>[-<n>].meta    what a flush wrote, for other tools
<source>/fulls/<backup_id>/    a Delta table: the latest committed values at an instant
<source>/queues/<backup_id>/config.yaml | delta_schema_history.yaml    of an engine, beside its queues
<source>/backups/<backup_id>/seen/<task>.parquet    transactions that a task saw, until the backup is whole
<source>/follow/    Spark's checkpoint of a continuous backup
<source>/begun.json    a backup of topics that is at work, or was cut off
<source>/merge.json    a merge that is at work, or was cut off
<source>/compact.json    a compaction of a change feed's log that is at work, or was cut off
<source>/backups/<backup_id>/made/<task>.jsonl    its files, until it has a number
prunes/<prune_id>/removals-<task>-<hex>.jsonl | prune.json | done
restores/<restore_id>/plan/ | translation/<epoch>/<region>-<from>.parquet | aside/
imports/<import_id>/<table>-<task>-<hex>.parquet | import.json
leases/<name>/<generation>.json    audit/<ts>-<id>.json    catalog/<table>/
"""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote

from lakebackup.errors import UsageProblem
from lakebackup.rules.patterns import check_topic_name

#: Version of the JSON objects that carry their own SHA-256.
FORMAT = 1
ROOT_FILE = "lakebackup.json"
CATALOG_FOLDER = "catalog"
LEASES_FOLDER = "leases"
AUDIT_FOLDER = "audit"
PRUNES_FOLDER = "prunes"
RESTORES_FOLDER = "restores"
IMPORTS_FOLDER = "imports"
RESERVED = frozenset(
    {
        CATALOG_FOLDER,
        LEASES_FOLDER,
        AUDIT_FOLDER,
        PRUNES_FOLDER,
        RESTORES_FOLDER,
        IMPORTS_FOLDER,
        ROOT_FILE,
    }
)

_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_EPOCH = re.compile(r"[0-9a-f]{32}")
_BACKUP_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_LEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_SEQ = re.compile(r"-([0-9]{10,19})\.data", re.ASCII)
# A file name has 255 bytes on common file systems, a topic's name up to 249: the folder keeps it whole.
_PREFIX_LENGTH = 220
_PLAIN = " !#$&'()+,;=@[]{}~"  # of names in snapshots, beside letters, digits and _.-
_LONGEST_SEGMENT = 200
_LONGEST_NAME = 700  # an object's key has 1,024 bytes in common object storages


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


def partition_folder(source: str, epoch: str, topic: str, partition: int) -> str:
    """The folder of one partition's data files, ending in `/`."""
    if not _EPOCH.fullmatch(epoch):
        raise UsageProblem(f"{epoch!r} is no epoch: 32 lower hex digits of the topic's id are expected.")
    return f"{check_source(source)}/{epoch}/topics/{check_topic_name(topic)}/partition={partition}/"


def data_path(source: str, epoch: str, topic: str, partition: int, seq: int) -> str:
    """The path of a data file; `seq` goes on across the backups of a topic's partition, from 0."""
    return f"{partition_folder(source, epoch, topic, partition)}{data_name(topic, partition, seq)}"


def data_name(topic: str, partition: int, seq: int) -> str:
    """The name of a data file in its partition's folder."""
    return f"{topic[:_PREFIX_LENGTH]}+{partition}-{seq:010d}.data"


def parse_seq(name: str, topic: str, partition: int) -> int | None:
    """The number in a name that `data_name` made for a partition; None for any other name."""
    found = _SEQ.search(name)
    seq = int(found[1]) if found else 0
    return seq if name == data_name(topic, partition, seq) else None


def backups_folder(source: str) -> str:
    """The folder of a source's sidecars, ending in `/`."""
    return f"{check_source(source)}/backups/"


def backup_folder(source: str, backup_id: str) -> str:
    """The folder of one backup's sidecar, ending in `/`."""
    return f"{backups_folder(source)}{check_backup_id(backup_id)}/"


def parts_folder(source: str, backup_id: str) -> str:
    """The folder of the file rows that a backup's tasks wrote, ending in `/`."""
    return f"{backup_folder(source, backup_id)}parts/"


def parts_path(source: str, backup_id: str, task: int) -> str:
    """The file rows of one task, a JSON object a line."""
    return f"{parts_folder(source, backup_id)}{task:06d}.jsonl"


def keys_path(source: str, backup_id: str, task: int, attempt: str) -> str:
    """The key filters of one task's files; `attempt` keeps apart what a task writes twice."""
    return f"{backup_folder(source, backup_id)}keys/{task:06d}-{attempt}.keys"


def manifest_path(source: str, backup_id: str) -> str:
    """The index of a backup's sidecar."""
    return f"{backup_folder(source, backup_id)}manifest.json"


def marker_path(source: str, backup_id: str, marker: Literal["complete", "deleted"]) -> str:
    """The empty object that says a backup was committed, or is being deleted."""
    return f"{backup_folder(source, backup_id)}{marker}"


def snapshot_folder(source: str, backup_id: str) -> str:
    """The folder of the objects that a snapshot's backup wrote, ending in `/`."""
    return f"{check_source(source)}/snapshots/{check_backup_id(backup_id)}/"


def snapshot_path(source: str, backup_id: str, scope: str, region: str, name: str) -> str:
    """The object of one file of a snapshot, under its own name as far as an object can have it."""
    parts = [_segment(part) for part in (scope, region, *name.split("/"))]
    if sum(map(len, parts)) > _LONGEST_NAME:
        parts = [*parts[:2], hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()]
    return snapshot_folder(source, backup_id) + "/".join(parts)


def pack_path(source: str, backup_id: str, task: int, number: int, attempt: str) -> str:
    """An object that holds many files of a snapshot, one behind the other."""
    return f"{snapshot_folder(source, backup_id)}packs/{task:06d}-{number:06d}-{attempt}.pack"


def listing_path(source: str, backup_id: str, task: int, attempt: str, kind: Literal["files", "gone"]) -> str:
    """Rows of the catalog that a task of a snapshot's backup made, as Parquet."""
    return f"{backup_folder(source, backup_id)}listing/{task:06d}-{attempt}.{kind}.parquet"


def json_manifest_path(source: str, backup_id: str, end_ts: int) -> str:
    """A snapshot's manifest for other tools; `end_ts`, in ms, is in its name."""
    at = datetime.fromtimestamp(end_ts / 1000, UTC)
    return f"{backup_folder(source, backup_id)}manifest-{at:%Y%m%dT%H%M%SZ}-{backup_id}.json"


def json_manifest_checksum_path(source: str, backup_id: str, end_ts: int) -> str:
    """The SHA-256 of a snapshot's manifest for other tools, as sha256sum writes and checks it."""
    return f"{json_manifest_path(source, backup_id, end_ts)}.sha256"


def log_folder(source: str, backup_id: str) -> str:
    """The folder of the log files that one backup wrote, ending in `/`."""
    return f"{check_source(source)}/log/{check_backup_id(backup_id)}/"


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
    place = f"{table}/{region:016x}{min_ts:016x}-{cf}-{op}"
    return f"{log_folder(source, backup_id)}{place}/{_segment(store)}.log{suffix}"


def stream_metas_folder(source: str) -> str:
    """The folder of what a change feed's backups wrote, for other tools, ending in `/`."""
    return f"{check_source(source)}/stream-metas/"


def stream_meta_path(source: str, backup_id: str, ts: int, number: int | None = None) -> str:
    """What a backup of a change feed wrote, for other tools; `number`: of a piece, when it is in several."""
    piece = "" if number is None else f"-{number}"
    return f"{stream_metas_folder(source)}{ts:016x}-{check_backup_id(backup_id)}{piece}.meta"


def marks_folder(source: str, backup_id: str) -> str:
    """The folder of what the tasks of a flush saw of regions, until it is committed; ends in `/`."""
    return f"{backup_folder(source, backup_id)}marks/"


def marks_path(source: str, backup_id: str, task: int) -> str:
    """What one task of a flush saw of regions, as Parquet."""
    return f"{marks_folder(source, backup_id)}{task:06d}.parquet"


def fulls_folder(source: str) -> str:
    """The folder of the fulls of a change feed, ending in `/`."""
    return f"{check_source(source)}/fulls/"


def full_folder(source: str, backup_id: str) -> str:
    """The Delta table of a full of a change feed, ending in `/`."""
    return f"{fulls_folder(source)}{check_backup_id(backup_id)}/"


def queue_files_folder(source: str, backup_id: str) -> str:
    """The folder of the files of an engine that travel with a backup of its queues, ending in `/`."""
    return f"{check_source(source)}/queues/{check_backup_id(backup_id)}/"


def queue_file_path(
    source: str, backup_id: str, name: Literal["config.yaml", "delta_schema_history.yaml"]
) -> str:
    """A file of an engine that travels with every backup of its queues."""
    return f"{queue_files_folder(source, backup_id)}{name}"


def seen_folder(source: str, backup_id: str) -> str:
    """The folder of the transactions that the tasks of a queues' backup saw, ending in `/`."""
    return f"{backup_folder(source, backup_id)}seen/"


def seen_path(source: str, backup_id: str, task: int) -> str:
    """The transactions that one task of a queues' backup saw, as Parquet."""
    return f"{seen_folder(source, backup_id)}{task:06d}.parquet"


def seen_ranges_path(source: str, backup_id: str, task: int) -> str:
    """What one task of a queues' backup saw of each range, as JSON."""
    return f"{seen_folder(source, backup_id)}{task:06d}.json"


def snapshot_source(source: str) -> str:
    """The source of the backups of an engine's snapshots."""
    return check_source(f"{check_source(source)}.snapshot")


def _segment(name: str) -> str:
    """A part of a path that any storage takes: percent-encoded, never `.` or `..`, at most 200 bytes."""
    found = quote(name, safe=_PLAIN, errors="surrogateescape").replace("..", ".%2E")
    found = "%2E" if found == "." else found or "%"
    if len(found) <= _LONGEST_SEGMENT:
        return found
    return hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()


def follow_folder(source: str) -> str:
    """Where Spark keeps how far a continuous backup of a source is; ends in `/`."""
    return f"{check_source(source)}/follow/"


def merge_path(source: str) -> str:
    """What a source's merge that is at work goes by, so that one that was cut off can go on."""
    return f"{check_source(source)}/merge.json"


def compact_path(source: str) -> str:
    """What a compaction of a change feed's log goes by that is at work, so that what died is swept up."""
    return f"{check_source(source)}/compact.json"


def made_folder(source: str, backup_id: str) -> str:
    """Where the tasks of a compaction list their files, until it has a number; ends in `/`."""
    return f"{backup_folder(source, backup_id)}made/"


def made_path(source: str, backup_id: str, task: int) -> str:
    """The file rows of one task of a compaction, until it has a number."""
    return f"{made_folder(source, backup_id)}{task:06d}.jsonl"


def begun_path(source: str) -> str:
    """What a source's backup that is at work is going to be, so that one that was cut off can be ended."""
    return f"{check_source(source)}/begun.json"


def lease_folder(name: str) -> str:
    """The folder of a lease's generations, ending in `/`."""
    if not _LEASE.fullmatch(name):
        raise UsageProblem(f"{name!r} cannot be the name of a lease.")
    return f"{LEASES_FOLDER}/{name}/"


def lease_path(name: str, generation: int) -> str:
    """One generation of a lease; the highest that exists is the current one."""
    return f"{lease_folder(name)}{generation:012d}.json"


def audit_path(at: int, audit_id: str) -> str:
    """One line of the audit log; `at` in microseconds since 1970 UTC, so that names sort by time."""
    return f"{AUDIT_FOLDER}/{at:020d}-{audit_id}.json"


def restore_folder(restore_id: str) -> str:
    """The folder of what a restore keeps of itself, ending in `/`; its id has the form of a backup's."""
    return f"{RESTORES_FOLDER}/{restore_id}/"


def prune_folder(prune_id: str) -> str:
    """The folder of what one prune let go of, ending in `/`; its id has the form of a backup's."""
    return f"{PRUNES_FOLDER}/{check_backup_id(prune_id)}/"


def prune_path(prune_id: str) -> str:
    """The object that makes a prune exist."""
    return f"{prune_folder(prune_id)}prune.json"


def prune_done_path(prune_id: str) -> str:
    """The marker that says that every object of a prune is gone."""
    return f"{prune_folder(prune_id)}done"


def removals_path(prune_id: str, task: int, attempt: str) -> str:
    """Some of a prune's removals, a JSON object a line; `attempt` keeps apart what a task writes twice."""
    return f"{prune_folder(prune_id)}removals-{task:06d}-{attempt}.jsonl"


def import_folder(import_id: str) -> str:
    """The folder of the rows that came from elsewhere, ending in `/`; the id is 16 hex digits."""
    return f"{IMPORTS_FOLDER}/{import_id}/"


def import_path(import_id: str) -> str:
    """The object that makes an import exist."""
    return f"{import_folder(import_id)}import.json"


def imported_path(import_id: str, table: str, task: int, attempt: str) -> str:
    """Some of an import's rows of a table; `attempt` keeps apart what a task writes twice."""
    return f"{import_folder(import_id)}{table}-{task:06d}-{attempt}.parquet"

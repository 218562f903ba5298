"""The path of every object in a destination, relative to the destination's root. It does no I/O.

Names of sources, topics, leases and files become parts of paths by one encoding (`encode_name`). It keeps all
characters that every storage accepts. No part is `.` or `..`, and no path contains `..`.

A destination also has `lakebackup.json` (format version, destination id) and `catalog/<table>/`. The path of
a folder ends in `/`. A parameter `attempt` is a text that differs between two attempts of one task, and so do
the paths then.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote, unquote

from lakebackup.errors import UsageProblem
from lakebackup.rules.patterns import check_topic_name

#: Version of the JSON objects that carry their own SHA-256.
FORMAT = 1
#: Version of the manifest of a snapshot that may be compressed or encrypted. Earlier versions refuse it.
ENCODED_FORMAT = 2
#: The end of the name of an object that is one zstd frame.
ZSTD_SUFFIX = ".zst"
#: The end of the name of an encrypted object of a snapshot.
ENCRYPTED_SUFFIX = ".enc"
#: The ends of the names of objects that have a data key if their backup is encrypted.
DATA_SUFFIXES = (".data", ".keys", ".pack", ENCRYPTED_SUFFIX)
ROOT_FILE = "lakebackup.json"
#: The wrapped key of a repository's metadata, if it is encrypted.
METADATA_KEY_FILE = "metadata-key.json"
CATALOG_FOLDER = "catalog"
LEASES_FOLDER = "leases"
#: The folder for tests of a storage. It is beside the folders of leases, which Object Lock does not cover.
PROOF_FOLDER = f"{LEASES_FOLDER}/proof/"
#: An empty object. Its modification time tells the time by the storage's clock.
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
# A file name has at most 255 bytes on common file systems, and a topic's name has up to 249. So only the
# folder has the topic's whole name.
_PREFIX_LENGTH = 220
_SAFE_CHARACTERS = " !#$&'()+,;=@[]{}~"  # in names of snapshots, beside letters, digits and _.-
_MAX_PART_BYTES = 200
_MAX_FILE_NAME_BYTES = 255
_MAX_PATH_BYTES = 866  # object storages allow keys of 1,024 bytes, and the prefix needs some of them
_DIGEST_PREFIX = "%23"  # begins the digest of a long name; no other encoded name does, since `#` is kept


def check_source(source: str) -> str:
    """Return the name if it can be part of a path; raise UsageProblem otherwise."""
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
    """Return the id if it has the form of a backup's id; raise UsageProblem otherwise."""
    if not is_backup_id(backup_id):
        raise UsageProblem(
            f"{backup_id!r} is no backup id.",
            hint="An id looks like 20260131T134511Z-0a1b2c3d; `lakebackup list` shows them.",
        )
    return backup_id


def new_backup_id(instant: datetime) -> str:
    """Create an id, `YYYYMMDDTHHMMSSZ-<8 random hex>`. Ids sort by time. `instant` must have a time zone."""
    if instant.tzinfo is None:
        raise ValueError("an instant without a time zone")
    return f"{instant.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def encode_name(name: str, *, longest: int = _MAX_PART_BYTES) -> str:
    """Encode a name as a part of a path that every storage accepts: percent-encoded, not `.`, without `..`.

    If the result would be longer than `longest` bytes, it is a digest. Different names give different parts.
    """
    encoded = quote(name, safe=_SAFE_CHARACTERS, errors="surrogateescape").replace("..", ".%2E")
    encoded = "%2E" if encoded == "." else encoded or "%"
    if len(encoded) <= longest:
        return encoded
    return _DIGEST_PREFIX + hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()


def decode_name(part: str) -> str | None:
    """The name that `encode_name` encoded as `part`. None for a digest, or if no name gives this part."""
    name = "" if part == "%" else unquote(part, errors="surrogateescape")
    return name if encode_name(name, longest=len(part)) == part else None


def source_folder(source: str) -> str:
    """The folder of everything that belongs to a source."""
    return f"{encode_name(check_source(source), longest=_MAX_FILE_NAME_BYTES)}/"


def source_of(folder: str) -> str | None:
    """The source to which a folder directly below the root belongs, or None if it belongs to none."""
    source = decode_name(folder)
    if source is None or not _SOURCE.fullmatch(source) or source in RESERVED:
        return None
    return source


def topic_folder(topic: str) -> str:
    """The folder of a topic's partitions, in the folder of its epoch or of a restore."""
    return f"topics/{encode_name(check_topic_name(topic), longest=_MAX_FILE_NAME_BYTES)}/"


def archive_path(source: str, path: str) -> str:
    """The path of an imported file that had the path `path` in its archive."""
    return f"{source_folder(source)}archive/{path.replace('..', '.%2E')}"


def path_in_archive(source: str, path: str) -> str:
    """The path that an imported file had in its archive."""
    return path.removeprefix(archive_path(source, "")).replace(".%2E", "..")


def partition_folder(source: str, epoch: str, topic: str, partition: int) -> str:
    """The folder of one partition's data files, ending in `/`."""
    if not _EPOCH.fullmatch(epoch):
        raise UsageProblem(f"{epoch!r} is no epoch: 32 lower hex digits of the topic's id are expected.")
    return f"{source_folder(source)}{epoch}/{topic_folder(topic)}partition={partition}/"


def data_path(source: str, epoch: str, topic: str, partition: int, seq: int) -> str:
    """The path of a data file. `seq` counts the files of a partition over all its backups, from 0."""
    return f"{partition_folder(source, epoch, topic, partition)}{data_name(topic, partition, seq)}"


def data_name(topic: str, partition: int, seq: int) -> str:
    """The name of a data file in its partition's folder."""
    prefix = encode_name(topic, longest=_MAX_FILE_NAME_BYTES)[:_PREFIX_LENGTH]
    return f"{prefix}+{partition}-{seq:010d}.data"


def parse_seq(name: str, topic: str, partition: int) -> int | None:
    """The `seq` in a name that `data_name` returns for the partition; None for any other name."""
    match = _SEQ.search(name)
    seq = int(match[1]) if match else 0
    return seq if name == data_name(topic, partition, seq) else None


def _in_source(path: str) -> Callable[[str], str]:
    """A function from a source to a path in its folder."""
    return lambda source: f"{source_folder(source)}{path}"


def _of_backup(path: str) -> Callable[[str, str], str]:
    """A function from (source, backup id) to a path in the source's folder. `path` has a field for the id."""
    return lambda source, backup_id: f"{source_folder(source)}{path.format(check_backup_id(backup_id))}"


def _of_task(path: str) -> Callable[[str, str, int], str]:
    """A function from (source, backup id, task) to a path. `path` has fields for the id and the task."""
    return lambda source, backup_id, task: (
        f"{source_folder(source)}{path.format(check_backup_id(backup_id), task)}"
    )


#: The record of a backup, merge or compaction of a log that is in progress or was interrupted.
in_progress_path = _in_source("begun.json")
merge_path = _in_source("merge.json")
compact_path = _in_source("compact.json")
#: Spark's checkpoint of a continuous backup.
follow_folder = _in_source("follow/")

#: The folders with the objects that describe backups. A backup's `manifest.json` is the index of them.
backups_folder = _in_source("backups/")
backup_folder = _of_backup("backups/{}/")
manifest_path = _of_backup("backups/{}/manifest.json")
#: The file rows of a backup's tasks, one JSON object per line.
parts_folder = _of_backup("backups/{}/parts/")
parts_path = _of_task("backups/{}/parts/{:06d}.jsonl")
#: The file rows of a compaction's tasks, until the compaction has a number.
made_folder = _of_backup("backups/{}/made/")
made_path = _of_task("backups/{}/made/{:06d}.jsonl")
#: The resolved timestamps that a flush's tasks read, until the flush is committed.
marks_folder = _of_backup("backups/{}/marks/")
marks_path = _of_task("backups/{}/marks/{:06d}.parquet")
#: The transactions and ranges that the tasks of a queue backup scanned, until the backup is complete.
scan_folder = _of_backup("backups/{}/seen/")
scan_path = _of_task("backups/{}/seen/{:06d}.parquet")
scan_ranges_path = _of_task("backups/{}/seen/{:06d}.json")

#: The wrapped data keys of a backup whose objects are encrypted.
data_keys_folder = _of_backup("backups/{}/data-keys/")

#: Objects with the files of a snapshot.
snapshot_folder = _of_backup("snapshots/{}/")
#: The log files of a flush, and the lists of log files for other tools.
log_folder = _of_backup("log/{}/")
stream_metas_folder = _in_source("stream-metas/")
#: The fulls of a change feed, which are Delta tables.
fulls_folder = _in_source("fulls/")
full_folder = _of_backup("fulls/{}/")
#: An engine's own files, stored with a backup of its queues.
queue_files_folder = _of_backup("queues/{}/")


def marker_path(source: str, backup_id: str, marker: Literal["complete", "deleted"]) -> str:
    """The empty object that marks a backup as committed, or as being deleted."""
    return f"{backup_folder(source, backup_id)}{marker}"


def keys_path(source: str, backup_id: str, task: int, attempt: str) -> str:
    """The object with the key filters of one task's files."""
    return f"{backup_folder(source, backup_id)}keys/{task:06d}-{attempt}.keys"


def data_key_path(source: str, backup_id: str, key_id: str) -> str:
    """The object with the wrapped data key `key_id` (16 hex digits) of a backup."""
    return f"{data_keys_folder(source, backup_id)}{key_id}.json"


def snapshot_path(
    source: str,
    backup_id: str,
    scope: str,
    region: str,
    name: str,
    *,
    compressed: bool = False,
    key_id: str | None = None,
) -> str:
    """The object with one file of a snapshot. Its path has the file's name, or a digest of a long one.

    The path of a compressed file ends in `.zst`. That of another file does not, whatever the file's name is.
    `key_id`: the data key that encrypts it. It is in the path, so that runs with different keys do not write
    the same object.
    """
    parts = [encode_name(part) for part in (scope, region, *name.split("/"))]
    path = snapshot_folder(source, backup_id) + "/".join(parts)
    suffix = encrypted_suffix(key_id)
    if len(path + suffix) > _MAX_PATH_BYTES:
        path = snapshot_folder(source, backup_id) + "/".join([*parts[:2], encode_name(name, longest=0)])
    if compressed:
        path += ZSTD_SUFFIX
    elif path.lower().endswith(ZSTD_SUFFIX):  # some storages take upper and lower case as the same
        path = f"{path[:-4]}%2E{path[-3:]}"
    return path + suffix


def encrypted_suffix(key_id: str | None) -> str:
    """The end of the path of an object that the data key `key_id` encrypts; empty for None."""
    return "" if key_id is None else f".{key_id}{ENCRYPTED_SUFFIX}"


def unencrypted_path(path: str) -> str:
    """The path that an object, whose path has the id of its data key, would have if it were not encrypted."""
    return path.removesuffix(ENCRYPTED_SUFFIX).rpartition(".")[0]


def with_key_id(path: str, key_id: str) -> str:
    """The path that an encrypted object with one file of a snapshot would have with another data key."""
    return unencrypted_path(path) + encrypted_suffix(key_id)


def pack_path(source: str, backup_id: str, task: int, number: int, attempt: str) -> str:
    """An object that holds many files of a snapshot, one after another."""
    return f"{snapshot_folder(source, backup_id)}packs/{task:06d}-{number:06d}-{attempt}.pack"


def listing_path(
    source: str, backup_id: str, task: int, attempt: str, kind: Literal["files", "gone", "folders"]
) -> str:
    """The catalog rows that a task of a snapshot's backup wrote, as Parquet."""
    return f"{backup_folder(source, backup_id)}listing/{task:06d}-{attempt}.{kind}.parquet"


def json_manifest_path(source: str, backup_id: str, end_ts: int) -> str:
    """A snapshot's manifest for other tools. `end_ts` is in ms; the name has it in whole seconds."""
    instant = datetime.fromtimestamp(end_ts / 1000, UTC)
    return f"{backup_folder(source, backup_id)}manifest-{instant:%Y%m%dT%H%M%SZ}-{backup_id}.json"


def json_manifest_checksum_path(source: str, backup_id: str, end_ts: int) -> str:
    """The SHA-256 of a snapshot's manifest for other tools, in the format of sha256sum."""
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
    """A log file. `suffix` names codec and cipher, such as `.zst.aes256gcm`. `store` is encoded."""
    table = "meta" if is_meta else f"{table_id:02x}"
    folder = f"{log_folder(source, backup_id)}{table}/{region:016x}{min_ts:016x}-{cf}-{op}/"
    name = encode_name(store)
    name = f"{name[:-1]}%2E" if name.endswith(".") else name
    return f"{folder}{name}.log{suffix}"


def stream_meta_path(source: str, backup_id: str, ts: int, number: int | None = None) -> str:
    """The list of a flush's log files for other tools, or its piece `number` if it is split into pieces."""
    piece = "" if number is None else f"-{number}"
    return f"{stream_metas_folder(source)}{ts:016x}-{check_backup_id(backup_id)}{piece}.meta"


def queue_file_path(
    source: str,
    backup_id: str,
    name: Literal["config.yaml", "delta_schema_history.yaml"],
    *,
    key_id: str | None = None,
) -> str:
    """An engine's own file, which every backup of its queues stores. `key_id`: the data key that encrypts
    it."""
    return f"{queue_files_folder(source, backup_id)}{name}{encrypted_suffix(key_id)}"


def snapshot_source(source: str) -> str:
    """The name of the source for backups of an engine's snapshots."""
    return check_source(f"{check_source(source)}.snapshot")


def lease_folder(name: str) -> str:
    """The folder of a lease's generations."""
    if not _LEASE.fullmatch(name):
        raise UsageProblem(f"{name!r} cannot be the name of a lease.")
    return f"{LEASES_FOLDER}/{encode_name(name)}/"


def lease_path(name: str, generation: int) -> str:
    """One generation of a lease. The highest generation that exists is the current one."""
    return f"{lease_folder(name)}{generation:012d}.json"


def audit_path(timestamp_us: int, audit_id: str) -> str:
    """One line of the audit log. `timestamp_us` is in microseconds since 1970 UTC, so that names sort by
    time."""
    return f"{AUDIT_FOLDER}/{timestamp_us:020d}-{audit_id}.json"


def restore_folder(restore_id: str) -> str:
    """A restore's own files: plan/, translation/<epoch>/<region>-<from>.parquet, aside/."""
    return f"{RESTORES_FOLDER}/{restore_id}/"


def prune_folder(prune_id: str) -> str:
    """The record of what one prune deletes. Its id has the form of a backup's id."""
    return f"{PRUNES_FOLDER}/{check_backup_id(prune_id)}/"


def prune_path(prune_id: str) -> str:
    """The index of a prune. A prune exists once this object does."""
    return f"{prune_folder(prune_id)}prune.json"


def prune_done_path(prune_id: str) -> str:
    """The marker that a prune has deleted all its objects."""
    return f"{prune_folder(prune_id)}done"


def removals_path(prune_id: str, task: int, attempt: str) -> str:
    """Some of a prune's removals, one JSON object per line."""
    return f"{prune_folder(prune_id)}removals-{task:06d}-{attempt}.jsonl"


def signatures_folder(source: str) -> str:
    """The chain of signatures of a source, or of the audit log (`AUDIT_FOLDER`), a link an object."""
    return f"{_signed_folder(source)}signatures/"


def signature_path(source: str, number: int) -> str:
    """A link of the chain of signatures."""
    return f"{signatures_folder(source)}{number:010d}.json"


def newest_signature_path(source: str) -> str:
    """The number of the newest link of a chain, as a hint."""
    return f"{_signed_folder(source)}newest-signature.json"


def _signed_folder(source: str) -> str:
    return f"{AUDIT_FOLDER}/" if source == AUDIT_FOLDER else source_folder(source)


def import_folder(import_id: str) -> str:
    """The folder of imported rows. The id has 16 hex digits."""
    return f"{IMPORTS_FOLDER}/{import_id}/"


def import_path(import_id: str) -> str:
    """The index of an import. An import exists once this object does."""
    return f"{import_folder(import_id)}import.json"


def imported_path(import_id: str, table: str, task: int, attempt: str) -> str:
    """Some of an import's rows of a table."""
    return f"{import_folder(import_id)}{table}-{task:06d}-{attempt}.parquet"

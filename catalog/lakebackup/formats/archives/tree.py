"""Find the backups in the folders of an archive: one folder per backup, or one backup without a folder in the
layout of cbbackup before 3.0.

<root>/<time>/<time>-full|-diff|-accu/bucket-<bucket>/node-<node>/data-<number>.cbb
<root>/bucket-<bucket>/node-<node>/data-<number>.cbb
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal
from urllib.parse import quote_plus, unquote_plus

from lakebackup.errors import Damaged, NotFound, Refused
from lakebackup.storage import ObjectStat

Kind = Literal["full", "differential", "cumulative"]
KINDS: dict[str, Kind] = {"full": "full", "diff": "differential", "accu": "cumulative"}
DESIGN = "design.json"
META, SEQNO, FAILOVER, SNAPSHOTS = "meta.json", "seqno.json", "failover.json", "snapshot_markers.json"
_NODE_FILES = frozenset({META, SEQNO, FAILOVER, SNAPSHOTS})
#: Files that define a bucket, or all buckets. A restore uses only the newest of each.
_DEFINITIONS = frozenset({DESIGN, "index.json", "fts_index.json", "fts_alias.json"})
_TIME_FORMATS = ("%Y-%m-%dT%H%M%SZ", "%Y-%m-%d_%H_%M_%S")
_NAME = re.compile(r"(?P<time>[0-9TZ_-]+)-(?P<mode>full|diff|accu)")
_DATA = re.compile(r"data-(?P<number>[0-9]{4,9})\.cbb")
_NOT_CLOSED = re.compile(r"data-[0-9]+\.cbb-(journal|wal|shm)")


@dataclass(slots=True)
class Node:
    """The files that one node wrote for one bucket. Paths are relative to the archive's root.

    `data` has the .cbb files. `beside` maps the name of each JSON file in `folder` to its path.
    """

    bucket: str
    node: str
    folder: str
    data: list[ObjectStat] = field(default_factory=list)
    beside: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ArchiveBackup:
    """One backup of an archive. In the older layout `folder` is empty and `backup_time` is None (not known).

    `designs` has the files that define buckets, as (path, bucket); None stands for all buckets.
    """

    folder: str
    kind: Kind
    backup_time: datetime | None
    nodes: dict[tuple[str, str], Node] = field(default_factory=dict)
    designs: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def buckets(self) -> list[str]:
        return sorted({bucket for bucket, _ in self.nodes})

    @property
    def data(self) -> list[ObjectStat]:
        return [stat for node in self.nodes.values() for stat in node.data]


def name_of(instant: datetime) -> str:
    """The folder name for an instant: 2014-01-31T134511Z."""
    return instant.astimezone(UTC).strftime(_TIME_FORMATS[0])


def node_folder(bucket: str, node: str) -> str:
    """The folder of a node's files, below the backup's folder; ends in `/`."""
    return f"bucket-{quote_plus(bucket)}/node-{quote_plus(node)}/"


def find(stats: Iterable[ObjectStat]) -> tuple[list[ArchiveBackup], list[str]]:
    """Return the backups of an archive, oldest first, and the paths of files that are not part of it.

    Raises NotFound when there is no archive. Raises Damaged for a database file that was not closed, for
    a gap in the numbers of a node's files, and for a malformed name. Raises Refused for an archive in both
    layouts, for a backup without its full, and for a node with two folders.
    """
    backups_by_folder: dict[str, ArchiveBackup] = {}
    other_paths = []
    for stat in stats:
        folder, parts = _split_path(stat.path)
        if parts is None or not _add_file(backups_by_folder, folder, parts, stat):
            other_paths.append(stat.path)
    backups = sorted(
        backups_by_folder.values(),
        key=lambda backup: (backup.backup_time or datetime.min.replace(tzinfo=UTC), backup.folder),
    )
    if not any(backup.data for backup in backups):
        raise NotFound(
            "This folder is no archive: it has no data-<number>.cbb.",
            hint="Give the folder that holds bucket-…, or folders named like 2014-01-31T134511Z.",
        )
    if len(backups) > 1 and backups[0].backup_time is None:
        raise Refused(
            f"The folder has a backup of the older layout and {len(backups) - 1} of the newer one.",
            hint="Move them apart and import each as a source of its own.",
        )
    for backup in backups:
        _require_full(backup, backups)
        for node in backup.nodes.values():
            _require_every_file(node)
    return backups, other_paths


def _require_full(backup: ArchiveBackup, backups: list[ArchiveBackup]) -> None:
    root = backup.folder.partition("/")[0]
    if backup.kind != "full" and not any(
        earlier.kind == "full" and earlier.folder.startswith(f"{root}/")
        and earlier.backup_time and backup.backup_time and earlier.backup_time < backup.backup_time
        for earlier in backups
    ):  # fmt: skip
        raise Refused(
            f"{backup.folder} has no earlier full backup beside it, so nothing can be restored from it.",
            hint=f"Restore the folder {root}/<time>-full, or move {backup.folder} out of the archive.",
        )


def _require_every_file(node: Node) -> None:
    """Raise Damaged for a gap in the file numbers, which start at 0.

    This check does not find missing files at the end; only `seqno.json` shows them.
    """
    for number, stat in enumerate(sorted(node.data, key=_number)):
        if _number(stat) != number:
            raise Damaged(
                f"{node.folder} has {stat.path.rpartition('/')[2]} and no data-{number:04d}.cbb.",
                hint="Take that file from another copy of the archive.",
            )


def _number(stat: ObjectStat) -> int:
    return int(stat.path.rpartition("/")[2].removeprefix("data-").removesuffix(".cbb"))


def _split_path(path: str) -> tuple[str, list[str] | None]:
    """Split a path into its backup's folder and the parts below that; None for a file outside of a backup."""
    parts = path.split("/")
    if parts[0].startswith("bucket-"):
        return "", parts
    if len(parts) > 2 and _NAME.fullmatch(parts[1]):
        return "/".join(parts[:2]), parts[2:]
    return "", None


def _add_file(
    backups_by_folder: dict[str, ArchiveBackup], folder: str, parts: list[str], stat: ObjectStat
) -> bool:
    """Add a file to its backup, or return False when the format has no such file. Raises Damaged, Refused."""
    *folders, name = parts
    if _NOT_CLOSED.fullmatch(name):
        raise Damaged(
            f"{stat.path}: the database was not closed, so its content is not known.",
            hint="Open it once with the program that wrote it, or move that backup out of the archive.",
        )
    is_node_file = name in _NODE_FILES or _DATA.fullmatch(name)
    if (
        len(folders) == 2
        and is_node_file
        and folders[0].startswith("bucket-")
        and folders[1].startswith("node-")
    ):
        node = _node(_get_backup(backups_by_folder, folder), folders[0], folders[1], stat)
        if name in _NODE_FILES:
            node.beside[name] = stat.path
        else:
            node.data.append(stat)
        return True
    if len(folders) < 2 and name in _DEFINITIONS and (not folders or folders[0].startswith("bucket-")):
        bucket = _decode_name(folders[0], "bucket-", stat) if folders else None
        _get_backup(backups_by_folder, folder).designs.append((stat.path, bucket))
        return True
    return False


def _get_backup(backups_by_folder: dict[str, ArchiveBackup], folder: str) -> ArchiveBackup:
    if folder not in backups_by_folder:
        match = _NAME.fullmatch(folder.rpartition("/")[2])
        kind: Kind = KINDS[match["mode"]] if match else "full"
        backups_by_folder[folder] = ArchiveBackup(
            folder, kind, _parse_time(match["time"], folder) if match else None
        )
    return backups_by_folder[folder]


def _parse_time(text: str, folder: str) -> datetime:
    for form in _TIME_FORMATS:
        try:
            instant = datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if instant.year >= 1970:
            return instant
    raise Damaged(
        f"{folder}: {text!r} is not a time.", hint="Folders are named like 2014-01-31T134511Z-full, in UTC."
    )


def _node(backup: ArchiveBackup, bucket_folder: str, node_name: str, stat: ObjectStat) -> Node:
    bucket, name = _decode_name(bucket_folder, "bucket-", stat), _decode_name(node_name, "node-", stat)
    folder = stat.path.rpartition("/")[0] + "/"
    node = backup.nodes.setdefault((bucket, name), Node(bucket, name, folder))
    if node.folder != folder:
        raise Refused(
            f"{folder} and {node.folder} are the same bucket and node under two names.",
            hint="Keep the one that cbbackup wrote, and move the other out of the archive.",
        )
    return node


def _decode_name(folder: str, prefix: str, stat: ObjectStat) -> str:
    name = unquote_plus(folder.removeprefix(prefix), errors="replace").strip()
    if not name or "\0" in name or ".." in folder or len(name) > 300:
        raise Damaged(
            f"{stat.path}: {folder!r} holds no valid name.",
            hint=f"Rename the folder to {prefix}<name>, or move it out of the archive.",
        )
    return name


def later(instant: datetime, previous: datetime | None) -> datetime:
    """The instant in whole seconds, or one second after `previous` if that is later, so that names differ."""
    whole_seconds = instant.astimezone(UTC).replace(microsecond=0)
    return whole_seconds if previous is None or whole_seconds > previous else previous + timedelta(seconds=1)

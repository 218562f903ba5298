"""The folders of an archive: a folder a backup; or, by releases before 3.0, one backup without a folder.

<root>/<time>/<time>-full|-diff|-accu/bucket-<bucket>/node-<node>/data-<number>.cbb
<root>/bucket-<bucket>/node-<node>/data-<number>.cbb
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote_plus, unquote_plus

from lakebackup.errors import Damaged, NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebackup.storage import ObjectStat

Kind = Literal["full", "differential", "cumulative"]
KINDS: dict[str, Kind] = {"full": "full", "diff": "differential", "accu": "cumulative"}
DESIGN = "design.json"
META, SEQNO, FAILOVER, SNAPSHOTS = "meta.json", "seqno.json", "failover.json", "snapshot_markers.json"
_NODE_FILES = frozenset({META, SEQNO, FAILOVER, SNAPSHOTS})
#: Definitions of a bucket, or of all buckets. Only the newest of each is restored.
_DEFINITIONS = frozenset({DESIGN, "index.json", "fts_index.json", "fts_alias.json"})
_TIME_FORMATS = ("%Y-%m-%dT%H%M%SZ", "%Y-%m-%d_%H_%M_%S")
_NAME = re.compile(r"(?P<time>[0-9TZ_-]+)-(?P<mode>full|diff|accu)")
_DATA = re.compile(r"data-(?P<number>[0-9]{4,9})\.cbb")
_NOT_CLOSED = re.compile(r"data-[0-9]+\.cbb-(journal|wal|shm)")


@dataclass(slots=True)
class Node:
    """The files that one node wrote of a bucket; paths are below the archive's root.

    `data`: in the order of their numbers. `beside`: name -> path of the JSON files in `folder`.
    """

    bucket: str
    node: str
    folder: str
    data: list[ObjectStat] = field(default_factory=list)
    beside: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Found:
    """One backup of an archive. In the older layout `folder` is empty and `taken` is None (not known).

    `designs`: (path, bucket or None for all) of the definitions.
    """

    folder: str
    kind: Kind
    taken: datetime | None
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


def find(stats: Iterable[ObjectStat]) -> tuple[list[Found], list[str]]:
    """The backups of an archive in the order they were taken, and paths of files that are not part of it.

    Raises NotFound (no archive), Damaged (a database file that was not closed or that is missing before
    others, a malformed name), Refused (both layouts, a backup without its full, a node with two folders).
    """
    found: dict[str, Found] = {}
    other = []
    for stat in stats:
        folder, rest = _split_path(stat.path)
        if rest is None or not _add_file(found, folder, rest, stat):
            other.append(stat.path)
    made = sorted(found.values(), key=lambda one: (one.taken or datetime.min.replace(tzinfo=UTC), one.folder))
    if not any(one.data for one in made):
        raise NotFound(
            "This folder is no archive: it has no data-<number>.cbb.",
            hint="Give the folder that holds bucket-…, or folders named like 2014-01-31T134511Z.",
        )
    if len(made) > 1 and made[0].taken is None:
        raise Refused(
            f"The folder has a backup of the older layout and {len(made) - 1} of the newer one.",
            hint="Move them apart and import each as a source of its own.",
        )
    for one in made:
        _require_full(one, made)
        for node in one.nodes.values():
            _require_every_file(node)
    return made, other


def _require_full(one: Found, every: list[Found]) -> None:
    root = one.folder.partition("/")[0]
    if one.kind != "full" and not any(
        other.kind == "full" and other.folder.startswith(f"{root}/") and other.taken and one.taken
        and other.taken < one.taken
        for other in every
    ):  # fmt: skip
        raise Refused(
            f"{one.folder} has no earlier full backup beside it, so nothing can be restored from it.",
            hint=f"Restore the folder {root}/<time>-full, or move {one.folder} out of the archive.",
        )


def _require_every_file(node: Node) -> None:
    """Raises Damaged. Files are numbered from 0 on; of the last ones only `seqno.json` could tell."""
    for number, stat in enumerate(sorted(node.data, key=_number)):
        if _number(stat) != number:
            raise Damaged(
                f"{node.folder} has {stat.path.rpartition('/')[2]} and no data-{number:04d}.cbb.",
                hint="Take that file from another copy of the archive.",
            )


def _number(stat: ObjectStat) -> int:
    return int(stat.path.rpartition("/")[2].removeprefix("data-").removesuffix(".cbb"))


def _split_path(path: str) -> tuple[str, list[str] | None]:
    """Split a path into its backup's folder and the parts below it; these are None outside of a backup."""
    parts = path.split("/")
    if parts[0].startswith("bucket-"):
        return "", parts
    if len(parts) > 2 and _NAME.fullmatch(parts[1]):
        return "/".join(parts[:2]), parts[2:]
    return "", None


def _add_file(found: dict[str, Found], folder: str, rest: list[str], stat: ObjectStat) -> bool:
    """Add a file to its backup; False when its name is not of the format."""
    *above, name = rest
    if _NOT_CLOSED.fullmatch(name):
        raise Damaged(
            f"{stat.path}: the database was not closed, so its content is not known.",
            hint="Open it once with the program that wrote it, or move that backup out of the archive.",
        )
    of_node = name in _NODE_FILES or _DATA.fullmatch(name)
    if len(above) == 2 and of_node and above[0].startswith("bucket-") and above[1].startswith("node-"):
        node = _node(_get_backup(found, folder), above[0], above[1], stat)
        if name in _NODE_FILES:
            node.beside[name] = stat.path
        else:
            node.data.append(stat)
        return True
    if len(above) < 2 and name in _DEFINITIONS and (not above or above[0].startswith("bucket-")):
        bucket = _decode_name(above[0], "bucket-", stat) if above else None
        _get_backup(found, folder).designs.append((stat.path, bucket))
        return True
    return False


def _get_backup(found: dict[str, Found], folder: str) -> Found:
    if folder not in found:
        named = _NAME.fullmatch(folder.rpartition("/")[2])
        kind: Kind = KINDS[named["mode"]] if named else "full"
        found[folder] = Found(folder, kind, _parse_time(named["time"], folder) if named else None)
    return found[folder]


def _parse_time(text: str, folder: str) -> datetime:
    for form in _TIME_FORMATS:
        try:
            made = datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if made.year >= 1970:
            return made
    raise Damaged(
        f"{folder}: {text!r} is not a time.", hint="Folders are named like 2014-01-31T134511Z-full, in UTC."
    )


def _node(one: Found, bucket_folder: str, node_name: str, stat: ObjectStat) -> Node:
    bucket, name = _decode_name(bucket_folder, "bucket-", stat), _decode_name(node_name, "node-", stat)
    folder = stat.path.rpartition("/")[0] + "/"
    node = one.nodes.setdefault((bucket, name), Node(bucket, name, folder))
    if node.folder != folder:
        raise Refused(
            f"{folder} and {node.folder} are the same bucket and node under two names.",
            hint="Keep the one that cbbackup wrote, and move the other out of the archive.",
        )
    return node


def _decode_name(folder: str, beginning: str, stat: ObjectStat) -> str:
    name = unquote_plus(folder.removeprefix(beginning), errors="replace").strip()
    if not name or "\0" in name or ".." in folder or len(name) > 300:
        raise Damaged(
            f"{stat.path}: {folder!r} holds no valid name.",
            hint=f"Rename the folder to {beginning}<name>, or move it out of the archive.",
        )
    return name


def later(instant: datetime, before: datetime | None) -> datetime:
    """The instant in whole seconds, but at least one second after `before`, so that names differ."""
    whole = instant.astimezone(UTC).replace(microsecond=0)
    return whole if before is None or whole > before else before + timedelta(seconds=1)

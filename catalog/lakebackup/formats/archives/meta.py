"""Read and write the JSON files beside an archive's data. Files that are read are not trusted.

`meta.json` describes one node's part of a backup; `pred` (or `baselines`) names the files that it depends on.
`seqno.json` has the last sequence number of each vbucket, `failover.json` the branches of its history.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lakebackup.errors import Damaged, Refused
from lakebackup.formats.archives.cbb import ELSEWHERE, MOST_VBUCKETS
from lakebackup.formats.archives.tree import FAILOVER, META, SEQNO, ArchiveBackup

_MAX_BYTES = 16 << 20
_BASELINE_KEYS = ("pred", "baselines")
_CREATOR_KEYS = ("created_by", "user")
_BASELINE = re.compile(
    r"(?:.*/)?(?P<folder>[^/]+/[^/]+-(?:full|diff|accu))/bucket-[^/]+/node-[^/]+/data-[0-9]+\.cbb"
)
_MAX_SEQNO = (1 << 63) - 2


def read_object(data: bytes, path: str) -> dict[str, Any]:
    """Parse a file that must be one JSON object. Raises Damaged; `path` names the file in the message."""
    try:
        if len(data) > _MAX_BYTES:
            raise ValueError(f"it has {len(data)} bytes")
        content = json.loads(data)
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path}: {error}.", hint=ELSEWHERE) from error
    return content


def read_meta(
    archive_backup: ArchiveBackup, read_file: Callable[[str], bytes]
) -> dict[tuple[str, str], dict[str, Any]]:
    """The meta.json of each (bucket, node) that has one. Raises Damaged when a value has the wrong type."""
    metas = {}
    for node_key, node in archive_backup.nodes.items():
        path = node.beside.get(META)
        if path is None:
            continue
        meta = read_object(read_file(path), path)
        for name in _BASELINE_KEYS:
            is_wrong = meta.get(name) is not None and not (
                isinstance(meta[name], list) and all(isinstance(path_text, str) for path_text in meta[name])
            )
            if is_wrong:
                raise Damaged(
                    f"{path}: {name} is {meta[name]!r:.80}, a list of paths is expected.", hint=ELSEWHERE
                )
        for name in ("version", *_CREATOR_KEYS):
            if meta.get(name) is not None and not isinstance(meta[name], str):
                raise Damaged(f"{path}: {name} is {meta[name]!r:.80}, a text is expected.", hint=ELSEWHERE)
        metas[node_key] = meta
    return metas


def created_by(metas: Iterable[Mapping[str, Any]]) -> str:
    """The user who made a backup, by its meta.json files; empty when none of them names one."""
    return next((meta[name] for meta in metas for name in _CREATOR_KEYS if meta.get(name)), "")


def baselines(meta: Mapping[str, Any], path: str) -> list[str]:
    """The folders of the backups (`<time>/<time>-full`) that a meta.json depends on.

    cbbackup writes these paths as the user typed them. They are often absolute, and of another machine, so
    only their last parts count. Raises Damaged for a path that leads out of the archive, or
    that names no .cbb file.
    """
    folders: list[str] = []
    for name in _BASELINE_KEYS:
        for text in meta.get(name) or ():
            match = _BASELINE.fullmatch(text.replace("\\", "/"))
            if not match or ".." in text.split("/") or "\0" in text:
                raise Damaged(
                    f"{path}: {name} has {text!r:.200}, which is no file of an archive.",
                    hint="Its paths end like <time>/<time>-full/bucket-<b>/node-<n>/data-0000.cbb.",
                )
            if match["folder"] not in folders:
                folders.append(match["folder"])
    return folders


def require_baselines(
    archive_backup: ArchiveBackup, folders: Iterable[str], every: Mapping[str, ArchiveBackup]
) -> None:
    """Raise Refused unless every baseline is in the archive and was taken before the backup.

    `folders` are the baselines, `every` has all backups of the archive by folder.
    """
    for folder in folders:
        baseline = every.get(folder)
        if baseline is None:
            raise Refused(
                f"{archive_backup.folder} depends on {folder}, which is not in the archive.",
                hint="Bring that folder back, or take the backups that need it out.",
            )
        if (
            baseline.backup_time is None
            or archive_backup.backup_time is None
            or baseline.backup_time >= archive_backup.backup_time
        ):
            raise Refused(
                f"{archive_backup.folder} depends on {folder}, which was not taken before it.",
                hint="Its meta.json is not the tool's: a backup depends on earlier ones.",
            )


def read_seqnos(
    archive_backup: ArchiveBackup, read_file: Callable[[str], bytes]
) -> dict[tuple[str, str], dict[int, int]]:
    """The seqno.json of each (bucket, node) that has one: vbucket -> last sequence number, without zeros.

    Raises Damaged.
    """
    seqnos = {}
    for node_key, node in archive_backup.nodes.items():
        path = node.beside.get(SEQNO)
        if path is None:
            continue
        rows = read_object(read_file(path), path)
        for name, last in rows.items():
            if not _is_vbucket(name) or type(last) is not int or not 0 <= last <= _MAX_SEQNO:
                raise Damaged(
                    f"{path}: vbucket {name[:20]!r} has {last!r:.40}, a sequence number is expected.",
                    hint=ELSEWHERE,
                )
        seqnos[node_key] = {int(name): last for name, last in rows.items() if last}
    return seqnos


def _is_vbucket(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= 5 and int(name) < MOST_VBUCKETS


def read_branches(
    archive_backup: ArchiveBackup, read_file: Callable[[str], bytes]
) -> dict[tuple[str, int], dict[int, int]]:
    """The branches in the failover.json files: (bucket, vbucket) -> uuid of a branch -> last sequence number
    of the branch before it. Entries of another form are skipped. Raises Damaged."""
    branches: dict[tuple[str, int], dict[int, int]] = {}
    for (bucket, _), node in archive_backup.nodes.items():
        path = node.beside.get(FAILOVER)
        for name, entries in read_object(read_file(path), path).items() if path else ():
            if not (_is_vbucket(name) and isinstance(entries, list)):
                continue
            pairs = (entry for entry in entries if isinstance(entry, list) and len(entry) == 2)
            vbucket_branches = branches.setdefault((bucket, int(name)), {})
            vbucket_branches.update(
                (uuid, last) for uuid, last in pairs if type(uuid) is int and type(last) is int
            )
    return branches


def summary(metas: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[str, Any]:
    """The meta.json files by bucket: the values that its nodes share, and under `nodes` those that differ."""
    buckets: dict[str, Any] = {}
    for bucket in sorted({bucket for bucket, _ in metas}):
        bucket_metas = {node: meta for (owner, node), meta in sorted(metas.items()) if owner == bucket}
        first_meta = next(iter(bucket_metas.values()))
        shared = {
            k: v for k, v in first_meta.items() if all(k in m and m[k] == v for m in bucket_metas.values())
        }
        own_values = {
            node: {k: v for k, v in meta.items() if k not in shared}
            for node, meta in bucket_metas.items()
            if meta.keys() - shared.keys()
        }
        buckets[bucket] = shared | ({"nodes": own_values} if own_values else {})
    return buckets


def encode(content: Mapping[str, Any]) -> bytes:
    """Encode a meta.json of an export. `content` has the values that differ between backups and buckets.

    `pred` stays empty, so that the tool reads every file below the full backup's folder, wherever the archive
    is. `baselines` has the same files, as paths relative to the archive's root.
    """
    full_content = {
        "pred": [],
        "conflict_resolution_type": "seqno",
        "version": "0.0.0",
        "compression": False,
        "audit_log": False,
        **content,
    }
    return json.dumps(full_content, ensure_ascii=False).encode()

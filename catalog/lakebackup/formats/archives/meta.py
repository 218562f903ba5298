"""The JSON beside an archive's data, read with distrust and written as the format has it.

`meta.json` describes one node's part of a backup; `pred` (or `baselines`) names the files that it depends on.
`seqno.json` has the last sequence number of each vbucket, `failover.json` the branches of its history.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, Refused
from lakebackup.formats.archives.cbb import ELSEWHERE, MOST_VBUCKETS
from lakebackup.formats.archives.tree import FAILOVER, META, SEQNO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakebackup.formats.archives.tree import Found

_MOST_BYTES = 16 << 20
_BASELINES = ("pred", "baselines")
_MAKERS = ("created_by", "user")
_BASELINE = re.compile(
    r"(?:.*/)?(?P<folder>[^/]+/[^/]+-(?:full|diff|accu))/bucket-[^/]+/node-[^/]+/data-[0-9]+\.cbb"
)
_LAST = (1 << 63) - 2


def read_object(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object that a file is. Raises Damaged."""
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has {len(data)} bytes")
        found = json.loads(data)
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path}: {error}.", hint=ELSEWHERE) from error
    return found


def read_meta(found: Found, get: Callable[[str], bytes]) -> dict[tuple[str, str], dict[str, Any]]:
    """The meta.json of each (bucket, node) that has one; its baselines and its user are of the right type."""
    made = {}
    for place, node in found.nodes.items():
        path = node.beside.get(META)
        if path is None:
            continue
        meta = read_object(get(path), path)
        for name in _BASELINES:
            wrong = meta.get(name) is not None and not (
                isinstance(meta[name], list) and all(isinstance(one, str) for one in meta[name])
            )
            if wrong:
                raise Damaged(
                    f"{path}: {name} is {meta[name]!r:.80}, a list of paths is expected.", hint=ELSEWHERE
                )
        for name in ("version", *_MAKERS):
            if meta.get(name) is not None and not isinstance(meta[name], str):
                raise Damaged(f"{path}: {name} is {meta[name]!r:.80}, a text is expected.", hint=ELSEWHERE)
        made[place] = meta
    return made


def created_by(metas: Iterable[Mapping[str, Any]]) -> str:
    """Who made a backup, by its meta.json files; empty when none has it."""
    return next((meta[name] for meta in metas for name in _MAKERS if meta.get(name)), "")


def baselines(meta: Mapping[str, Any], path: str) -> list[str]:
    """The folders of backups (`<time>/<time>-full`) that a meta.json names as what it depends on.

    Such paths are as the tool was given them, often absolute and of another machine: only their last parts
    count. Raises Damaged for one that leads out of the archive or is no path of a .cbb file.
    """
    folders: list[str] = []
    for name in _BASELINES:
        for text in meta.get(name) or ():
            matched = _BASELINE.fullmatch(text.replace("\\", "/"))
            if not matched or ".." in text.split("/") or "\0" in text:
                raise Damaged(
                    f"{path}: {name} has {text!r:.200}, which is no file of an archive.",
                    hint="Its paths end like <time>/<time>-full/bucket-<b>/node-<n>/data-0000.cbb.",
                )
            if matched["folder"] not in folders:
                folders.append(matched["folder"])
    return folders


def require_baselines(one: Found, folders: Iterable[str], every: Mapping[str, Found]) -> None:
    """Raises Refused when a baseline is not there, or is the backup itself or a later one."""
    for folder in folders:
        there = every.get(folder)
        if there is None:
            raise Refused(
                f"{one.folder} depends on {folder}, which is not in the archive.",
                hint="Bring that folder back, or take the backups that need it out.",
            )
        if there.taken is None or one.taken is None or there.taken >= one.taken:
            raise Refused(
                f"{one.folder} names {folder} as what it depends on, which was not taken before it.",
                hint="Its meta.json is not the tool's: a backup depends on earlier ones.",
            )


def read_seqnos(found: Found, get: Callable[[str], bytes]) -> dict[tuple[str, str], dict[int, int]]:
    """The seqno.json of each (bucket, node) that has one: vbucket -> last sequence number, without zeros."""
    made = {}
    for place, node in found.nodes.items():
        path = node.beside.get(SEQNO)
        if path is None:
            continue
        rows = read_object(get(path), path)
        for name, last in rows.items():
            if not _is_vbucket(name) or type(last) is not int or not 0 <= last <= _LAST:
                raise Damaged(
                    f"{path}: vbucket {name[:20]!r} has {last!r:.40}, a sequence number is expected.",
                    hint=ELSEWHERE,
                )
        made[place] = {int(name): last for name, last in rows.items() if last}
    return made


def _is_vbucket(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= 5 and int(name) < MOST_VBUCKETS


def read_branches(found: Found, get: Callable[[str], bytes]) -> dict[tuple[str, int], dict[int, int]]:
    """By failover.json, of each (bucket, vbucket): uuid of a branch of its history -> the last sequence
    number of the branch before it. Entries of another form are left out. Raises Damaged."""
    made: dict[tuple[str, int], dict[int, int]] = {}
    for (bucket, _), node in found.nodes.items():
        path = node.beside.get(FAILOVER)
        for name, entries in read_object(get(path), path).items() if path else ():
            if not (_is_vbucket(name) and isinstance(entries, list)):
                continue
            pairs = (entry for entry in entries if isinstance(entry, list) and len(entry) == 2)
            of = made.setdefault((bucket, int(name)), {})
            of.update((uuid, last) for uuid, last in pairs if type(uuid) is int and type(last) is int)
    return made


def summary(metas: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[str, Any]:
    """The meta.json files by bucket: what its nodes have in common, then what each has of its own."""
    buckets: dict[str, Any] = {}
    for bucket in sorted({bucket for bucket, _ in metas}):
        own = {node: meta for (of, node), meta in sorted(metas.items()) if of == bucket}
        first = next(iter(own.values()))
        shared = {k: v for k, v in first.items() if all(k in m and m[k] == v for m in own.values())}
        apart = {
            node: {k: v for k, v in meta.items() if k not in shared}
            for node, meta in own.items()
            if meta.keys() - shared.keys()
        }
        buckets[bucket] = shared | ({"nodes": apart} if apart else {})
    return buckets


def encode(content: Mapping[str, Any]) -> bytes:
    """A meta.json of an export; `content` is what differs between backups and buckets.

    `pred` stays empty: the tool then reads every file below the full backup's folder, wherever the archive
    is. `baselines` has the same files as paths relative to the archive's root.
    """
    whole = {
        "pred": [],
        "conflict_resolution_type": "seqno",
        "version": "0.0.0",
        "compression": False,
        "audit_log": False,
        **content,
    }
    return json.dumps(whole, ensure_ascii=False).encode()

"""`lakebackup backup snapshot`."""

from __future__ import annotations

from typing import Literal

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import instant
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.snapshots.backup import run
from lakebackup_jobs.snapshots.find import roles
from lakebackup_jobs.snapshots.request import SnapshotRequest

_SNAPSHOT_PANEL = "Which snapshot"


@verb(
    options.REPO,
    options.PLAN,
    options.BANDWIDTH,
    options.ANY_RUNNER,
    options.SOURCE.variant(show_default="the folder's"),
    options.LEASE,
    options.NOTE,
)
def snapshot(
    call: Call,
    paths: list[str] = argument("PATH", "Folders with the tree of a snapshot, there on each worker.", ...),
    layout: str = option(
        "--layout LAYOUT",
        "How paths name table, tablet and file. "
        "plain: the folder is the snapshot. yugabyte: the folders below rocksdb. Or a pattern with "
        "{scope} {region} {snapshot} and {name} at its end, such as 'db-{scope}/{snapshot}/{name}'.",
        "plain",
        panel=_SNAPSHOT_PANEL,
    ),
    snapshots: list[str] | None = option(
        "--snapshot ID",
        "A snapshot by name; repeatable, a backup each, oldest first.",
        show_default="the newest",
        panel=_SNAPSHOT_PANEL,
    ),
    everything: bool = switch(
        "--all", "Every snapshot since the last one that was backed up.", panel=_SNAPSHOT_PANEL
    ),
    taken_at: int | None = option(
        "--taken-at TIME",
        "When the snapshot was taken.",
        show_default="when its folders were made, or now where none is named",
        panel=_SNAPSHOT_PANEL,
        parser=instant,
    ),
    sidecar: list[str] | None = option(
        "--sidecar ROLE=FILE",
        "A file that a restore of the database needs: meta, schema or config; repeatable.",
        panel=_SNAPSHOT_PANEL,
    ),
    mode: Literal["auto", "full"] = option(
        "--mode MODE",
        "How much to back up. auto: copy what is new. full: copy every file again.",
        "auto",
        panel=options.COPYING,
    ),
    always: list[str] | None = option(
        "--always PATTERN",
        "Files to copy even if they look unchanged, by file name; repeatable.",
        show_default="CURRENT, MANIFEST-*",
        panel=options.COPYING,
    ),
    verify_unchanged: bool = switch(
        "--verify-unchanged", "Also hash files that seem unchanged.", panel=options.COPYING
    ),
    trust_mtime: bool = switch(
        "--trust-mtime",
        "Compare files by size and modification time only: for copied trees, and file systems whose "
        "inode numbers or ctimes change.",
        panel=options.COPYING,
    ),
    find_same: bool = switch(
        "--find-same",
        "Hash new files first: bytes stored under another name are not stored twice.",
        panel=options.COPYING,
    ),
    codec: Literal["auto", "zstd", "none"] | None = option(
        "--codec CODEC",
        "Codec of data files. zstd, none, or auto: zstd for those that become smaller.",
        show_default="auto",
        panel=options.COPYING,
    ),
    pack_below: str | None = option(
        "--pack-below SIZE",
        "Pack files smaller than this into larger objects if there are many; 0: never.",
        show_default="1MiB",
        panel=options.COPYING,
    ),
) -> None:
    """Back up a snapshot's files: all of them the first time, then only new and changed ones.

    A file is unchanged if its table, tablet, name, size, modification time, inode and ctime are those of the
    newest backup. If only inode or ctime differ, its contents are compared. The files must not change while
    the backup runs: if one does, the backup fails and nothing of it becomes visible.

    Examples:
        lakebackup backup snapshot /data/archive --repo ./backups
        lakebackup backup snapshot yb-data/tserver/data/rocksdb --layout yugabyte --source yb --repo ./backups
        lakebackup backup snapshot rocksdb --layout yugabyte --all --sidecar meta=SnapshotInfoPB --repo s3://b/yb
        lakebackup backup snapshot dbs --layout 'db-{scope}/{snapshot}/{name}' --repo ./backups --dry-run
    """
    settings = call.override(
        always=always or None,
        snapshot_codec=codec,
        pack_below=pack_below,
        trust_mtime=trust_mtime or None,
    )
    request = call.request(
        SnapshotRequest,
        always=settings.always,
        codec=settings.snapshot_codec,
        pack_below=int(settings.pack_below),
        trust_mtime=settings.trust_mtime,
        sidecars=tuple(roles(sidecar or ())),
    )
    call.run(run, request)

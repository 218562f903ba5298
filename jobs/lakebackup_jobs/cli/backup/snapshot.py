"""`lakebackup backup snapshot`."""

from __future__ import annotations

from typing import Annotated, Literal

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.options import argument, option
from lakebackup_jobs.cli.values import instant, size
from lakebackup_jobs.cli.verb import Call, verb

_WHICH = "Which snapshot"

EXAMPLES = options.examples(
    "lakebackup backup snapshot /data/archive --to ./backups",
    "lakebackup backup snapshot yb-data/tserver/data/rocksdb --layout yugabyte --source yb --to ./backups",
    "lakebackup backup snapshot rocksdb --layout yugabyte --all --sidecar meta=SnapshotInfoPB --to s3://b/yb",
    "lakebackup backup snapshot dbs --layout 'db-{scope}/{snapshot}/{name}' --to ./backups --dry-run",
)


@verb(
    options.TO,
    options.PLAN,
    options.SPARK_JOB,
    options.SOURCE.but(help="The source's name in the catalog.", show_default="the folder's"),
    options.LEASE,
    options.NOTE,
)
def snapshot(
    call: Call,
    paths: Annotated[
        list[str], argument("PATH", "Folders with the tree of a snapshot, there on each worker.")
    ],
    layout: Annotated[
        str,
        option(
            "--layout LAYOUT",
            "plain: the folder is the snapshot. yugabyte: the folders below rocksdb. Or a pattern with "
            "{scope} {region} {snapshot} and {name} at its end, such as 'db-{scope}/{snapshot}/{name}'.",
            panel=_WHICH,
        ),
    ] = "plain",
    snapshots: Annotated[
        list[str] | None,
        option(
            "--snapshot ID",
            "A snapshot by name; repeatable, a backup each, oldest first.",
            default="the newest",
            panel=_WHICH,
        ),
    ] = None,
    everything: Annotated[
        bool, option("--all", "All that came since the last one backed up.", panel=_WHICH)
    ] = False,
    taken_at: Annotated[
        int | None,
        option(
            "--taken-at TIME",
            "When the snapshot was taken.",
            default="when its folders were made, or now where none is named",
            panel=_WHICH,
            parser=instant,
        ),
    ] = None,
    sidecar: Annotated[
        list[str] | None,
        option(
            "--sidecar ROLE=FILE",
            "A file that a restore of the database needs: meta, schema or config; repeatable.",
            panel=_WHICH,
        ),
    ] = None,
    mode: Annotated[
        Literal["auto", "full"],
        option("--mode", "auto: copy what is new. full: copy every file again.", panel=options.COPYING),
    ] = "auto",
    always: Annotated[
        list[str] | None,
        option(
            "--always PATTERN",
            "Files to copy whatever they look like, by their own names; repeatable.",
            default="CURRENT, MANIFEST-*",
            panel=options.COPYING,
        ),
    ] = None,
    verify_unchanged: Annotated[
        bool, option("--verify-unchanged", "Hash what seems to be stored already.", panel=options.COPYING)
    ] = False,
    find_same: Annotated[
        bool,
        option(
            "--find-same",
            "Hash new files first: bytes stored under another name are not stored twice.",
            panel=options.COPYING,
        ),
    ] = False,
    pack_below: Annotated[
        str | None,
        option(
            "--pack-below SIZE",
            "Many files smaller than this are stored as few objects; 0: never.",
            default="1MiB",
            panel=options.COPYING,
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        option("--bandwidth SIZE/s", "Read no faster, all tasks together: 50MB/s.", panel=options.COPYING),
    ] = None,
) -> None:
    """Back up a snapshot's files: the first time all, from then on those that are new or changed.

    A file is unchanged when its table, tablet, name, size and time are those of the newest backup. The files
    must stay as they are until the backup is done: one that changes fails it, and nothing is visible.
    """
    found = call.override(always=always or None, pack_below=pack_below)
    from lakebackup_jobs.snapshots.backup import SnapshotRequest, run
    from lakebackup_jobs.snapshots.find import roles

    request = call.request(
        SnapshotRequest,
        always=found.always,
        pack_below=int(found.pack_below),
        sidecars=tuple(roles(sidecar or ())),
        bandwidth=size("--bandwidth", bandwidth.removesuffix("/s")) if bandwidth else None,
    )
    call.run(run, request)

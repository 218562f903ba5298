"""`lakebackup backup snapshot`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lakebackup_jobs.cli import options
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
        list[str],
        typer.Argument(metavar="PATH", help="Folders with the tree of a snapshot, there on each worker."),
    ],
    layout: Annotated[
        str,
        typer.Option(
            metavar="LAYOUT",
            help="plain: the folder is the snapshot. yugabyte: the folders below rocksdb. Or a pattern with "
            "{scope} {region} {snapshot} and {name} at its end, such as 'db-{scope}/{snapshot}/{name}'.",
            rich_help_panel=_WHICH,
        ),
    ] = "plain",
    snapshot: Annotated[
        list[str] | None,
        typer.Option(
            "--snapshot",
            metavar="ID",
            help="A snapshot by name; repeatable, a backup each, oldest first.",
            show_default="the newest",
            rich_help_panel=_WHICH,
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="All that came since the last one backed up.", rich_help_panel=_WHICH),
    ] = False,
    taken_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the snapshot was taken.",
            show_default="when its folders were made, or now where none is named",
            rich_help_panel=_WHICH,
        ),
    ] = None,
    sidecar: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=FILE",
            help="A file that a restore of the database needs: meta, schema or config; repeatable.",
            rich_help_panel=_WHICH,
        ),
    ] = None,
    mode: Annotated[
        Literal["auto", "full"],
        typer.Option(help="auto: what is new. full: every file anew.", rich_help_panel=options.COPYING),
    ] = "auto",
    always: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Files to copy whatever they look like, by their own names; repeatable.",
            show_default="CURRENT, MANIFEST-*",
            rich_help_panel=options.COPYING,
        ),
    ] = None,
    verify_unchanged: Annotated[
        bool,
        typer.Option(
            "--verify-unchanged",
            help="Hash what seems to be stored already.",
            rich_help_panel=options.COPYING,
        ),
    ] = False,
    find_same: Annotated[
        bool,
        typer.Option(
            "--find-same",
            help="Hash new files first: bytes stored under another name are not stored twice.",
            rich_help_panel=options.COPYING,
        ),
    ] = False,
    pack_below: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Many files smaller than this are stored as few objects; 0: never.",
            show_default="1MiB",
            rich_help_panel=options.COPYING,
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE/s",
            help="Read no faster, all tasks together: 50MB/s.",
            rich_help_panel=options.COPYING,
        ),
    ] = None,
) -> None:
    """Back up a snapshot's files: the first time all, from then on those that are new or changed.

    A file is unchanged when its table, tablet, name, size and time are those of the newest backup. The files
    must stay as they are until the backup is done: one that changes fails it, and nothing is visible.
    """
    found = call.override(always=always or None, pack_below=pack_below)
    from lakebackup_jobs.snapshots.backup import SnapshotRequest, run
    from lakebackup_jobs.snapshots.find import roles

    request = SnapshotRequest(
        **call.fields(SnapshotRequest),
        paths=tuple(paths),
        layout=layout,
        snapshots=tuple(snapshot or ()),
        everything=everything,
        always=found.always,
        pack_below=int(found.pack_below),
        mode=mode,
        verify_unchanged=verify_unchanged,
        find_same=find_same,
        sidecars=tuple(roles(sidecar or ())),
        bandwidth=size("--bandwidth", bandwidth.removesuffix("/s")) if bandwidth else None,
        taken_at=instant(taken_at),
    )
    call.run(run, request)

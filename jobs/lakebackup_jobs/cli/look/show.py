"""`lakebackup show`: everything about one backup, or how all of them depend on each other."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, switch
from lakebackup_jobs.cli.verb import Call, verb

# So many transactions are shown that were open at a backup's end; the view queue_transactions has them all.
_OPEN = 20
TABLE = ("scope", "regions", "files", "bytes", "new_files", "new_bytes")
LOGGED = ("scope", "name", "regions", "files", "entries", "bytes", "min_ts", "max_ts")
TOPIC = ("scope", "regions", "files", "entries", "bytes", "min_ts", "max_ts")


@verb(options.REPO, options.AS_OF)
def show(
    call: Call,
    name: str | None = argument(
        "ID|SOURCE",
        "A backup's id, the beginning of one, or latest; with --tree, a source.",
        show_default=False,
        autocompletion=completion.backups_and_sources,
    ),
    tree: bool = switch("--tree", "Show which backups depend on which, of one source or all."),
) -> None:
    """Show one backup: what it covers, what it depends on, how large it is. Or a source's backups as a tree.

    In the tree, each full is followed by the backups that the newest backup needs. Other backups are on lines
    of their own: those that a cumulative backup or a merge replaced, and those that are out of sync with the
    source's history.

    Examples:
        lakebackup show 20261121T1405 --repo ./backups
        lakebackup show --tree orders --repo ./backups
    """
    from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT
    from lakebackup_jobs.cli.look.tree import write as write_tree

    if not name and not tree:
        raise UsageProblem("Missing argument ID: which backup?", hint="See: lakebackup show --help")
    reader = call.reader()
    if tree:
        rows = reader.rows("backup_tree", source=name)
        short, screen = call.short_ids(reader), call.screen
        call.report.clear()
        write_tree(rows, as_json=call.json, screen=screen, short=short)
        return
    found = reader.resolve_backup(name or "")
    (backup,) = reader.rows("show_backup", backup_id=found)
    held: str = "topics"
    columns: tuple[str, ...] = TOPIC
    if backup["source_kind"] == SNAPSHOT:
        held, columns = "tables", TABLE
        rows = reader.rows("show_tables", source=backup["source"], number=backup["number"])
    elif backup["source_kind"] == CHANGES:
        held, columns = "tables", LOGGED
        rows = reader.rows("show_log_tables", backup_id=found)
    else:
        rows = reader.rows("show_scopes", backup_id=found)
    if backup["source_kind"] == QUEUES and (brought := reader.one("show_queue", backup_id=found)):
        backup |= brought
        backup["open"] = reader.rows("show_open", backup_id=found, rows=_OPEN)
    if call.json:
        call.show({**backup, held: rows})
        return
    # The same instants are there as numbers, which `show` writes as times.
    plain = {name: value for name, value in backup.items() if not name.endswith("_time")}
    call.show(
        {**plain, held: [{name: row[name] for name in (row if call.wide else columns)} for row in rows]}
    )

"""`lakebackup show`: the details of one backup, or the tree of all backups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakebackup.errors import UsageProblem
from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT
from lakebackup_jobs.cli.flags import completion, options
from lakebackup_jobs.cli.flags.options import argument, switch
from lakebackup_jobs.cli.look.tree import write as write_tree
from lakebackup_jobs.cli.output.results.phrases import amount, duration, moment
from lakebackup_jobs.cli.verb import Call, verb

# How many of the transactions open at a backup's end are printed. The view queue_transactions has all.
_OPEN_TRANSACTIONS = 20
TABLE = ("scope", "regions", "files", "bytes", "new_files", "new_bytes")
LOGGED = ("scope", "name", "regions", "files", "entries", "bytes", "min_ts", "max_ts")
_ENGINE = ("first_tid", "last_tid", "snapshot_id", "open_transactions", "open")
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
    if not name and not tree:
        raise UsageProblem("Missing argument ID: which backup?", hint="See: lakebackup show --help")
    reader = call.reader()
    if tree:
        rows = reader.rows("backup_tree", source=name)
        short, screen = call.short_ids(reader), call.screen
        call.report.clear()
        write_tree(rows, as_json=call.json, screen=screen, short=short)
        return
    backup_id = reader.resolve_backup(name or "")
    (backup,) = reader.rows("show_backup", backup_id=backup_id)
    items: str = "topics"
    columns: tuple[str, ...] = TOPIC
    if backup["source_kind"] == SNAPSHOT:
        items, columns = "tables", TABLE
        rows = reader.rows("show_tables", source=backup["source"], number=backup["number"])
    elif backup["source_kind"] == CHANGES:
        items, columns = "tables", LOGGED
        rows = reader.rows("show_log_tables", backup_id=backup_id)
    else:
        rows = reader.rows("show_scopes", backup_id=backup_id)
    if backup["source_kind"] == QUEUES and (queue_row := reader.first_row("show_queue", backup_id=backup_id)):
        backup |= queue_row
        backup["open"] = reader.rows("show_open", backup_id=backup_id, rows=_OPEN_TRANSACTIONS)
    if call.json:
        call.show({**backup, items: rows})
        return
    if call.wide:
        # The row has the same instants as numbers, which `show` writes as times.
        plain = {name: value for name, value in backup.items() if not name.endswith("_time")}
        call.show({**plain, items: rows})
        return
    facts = dict(_facts(backup, rows))
    if backup["source_kind"] == SNAPSHOT and len(rows) <= 1:
        call.show(facts)  # the line `files` already has the table's figures
        return
    call.show({**facts, items: [{name: row[name] for name in columns} for row in rows]})


def _facts(backup: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yields the main facts of a backup as (label, text). `rows` are those of its topics or tables."""
    kind, parent = backup["kind"], backup["parent"]
    yield "backup_id", backup["backup_id"]
    yield "source", backup["source"]
    yield "kind", f"{kind}, after backup {parent}" if parent else kind
    yield "state", backup["state"]
    yield "intact", backup["intact"]
    yield "up_to", moment(backup["end_ts"])
    seconds = (backup["finished_at"] - backup["started_at"]) / 1e6
    yield "taken", f"{moment(backup['started_at'] // 1000)}{duration(seconds)}"
    if backup["source_kind"] == SNAPSHOT:
        files, size = (sum(row[name] or 0 for row in rows) for name in ("files", "bytes"))
        new, new_size = (sum(row[name] or 0 for row in rows) for name in ("new_files", "new_bytes"))
        new_files = f"; new in this backup: {amount(new, 'file', new_size)}" if new else ""
        yield "files", f"{amount(files, 'file', size)}{new_files}"
        yield "stored", amount(backup["files"], "object", backup["bytes"])
    else:
        yield "records", f"{backup['entries']:,}"
        yield "stored", amount(backup["files"], "file", backup["bytes"])
    yield "made_by", ", ".join(filter(None, (backup["created_by"], backup["tool"])))
    yield "note", backup["note"]
    if backup["source_kind"] == QUEUES:
        yield from ((name, backup[name]) for name in _ENGINE if name in backup)

"""`lakebackup diff`: how the files of two backups differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup_jobs.cli import options

if TYPE_CHECKING:
    from lakebackup.plan.diff import Difference
    from lakebackup.store import CatalogReader

EXAMPLES = options.examples(
    "lakebackup diff 20261121T1405 20261121T1500 --from ./backups",
    "lakebackup diff 20261121T1405 20261121T1500 --csv > changes.csv",
)

COLUMNS = ("change", "scope", "region", "path", "old_path", "bytes", "old_bytes", "entries")


def diff(
    a: options.BackupId,
    b: options.BackupId,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    csv: options.Csv = False,
    explain: options.Explain = False,
    _debug: options.Debug = False,
) -> None:
    """Show what changed from one backup to another: files added, gone, changed and moved.

    Totals come first, then the files; --json writes the totals as its first line, --csv the files alone.
    """
    import sys

    from lakebackup_jobs.cli import rows
    from lakebackup_jobs.cli.explain import explain as show
    from lakebackup_jobs.cli.reading import open_catalog
    from lakebackup_jobs.progress import print_result

    reader = open_catalog(config, from_, catalog)
    if explain:
        show(lambda: _changes(reader, a, b), as_json=json)
        return
    wanted, totals = _changes(reader, a, b)
    if json and not csv:
        sys.stdout.write(rows.json_line({"a": wanted.a, "b": wanted.b, "totals": totals}))
    elif not csv:
        print_result({"a": wanted.a, "b": wanted.b, "totals": totals}, sys.stdout)
    if totals or csv:
        rows.write(reader.query("diff_rows"), as_json=json, as_csv=csv, columns=COLUMNS)


def _changes(reader: CatalogReader, a: str, b: str) -> tuple[Difference, list[dict[str, Any]]]:
    from lakebackup.plan.diff import of_backups

    wanted = of_backups(reader, a, b)
    reader.define("changes", "diff_files", **wanted.parameters())
    return wanted, reader.rows("diff_totals")

"""`python -m tests.benchmarks.history_ask FOLDER` adds a backup to the catalog of history_data.

Like a run, it opens the catalog, looks for the newest backup, and commits the rows of the next one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tests.benchmarks import history_data

from lakebackup.store.writer import CatalogWriter


def main(argv: Iterable[str]) -> None:
    """Add a backup to the catalog in a folder."""
    (folder,) = argv
    writer = CatalogWriter(None, folder)
    newest = writer.prepare().first_row("newest_id", source=history_data.SOURCE)
    assert newest
    number = int(newest["backup_id"][-8:], 16) + 1
    rows = history_data.backup(number, writer.register_home(), int(Path(folder, "start").read_text("utf-8")))
    audit_row, backup_row = rows.pop("audit"), rows.pop("backups")
    writer.append([*rows.values(), backup_row], f"backup-{number}")
    writer.append([audit_row], f"audit-{number}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Change rows of the catalog's tables: a commit removes the files that have them and adds files with the new
rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from lakebackup.rows.base import State
from lakebackup.sql_engine.delta.dataset import dataset
from lakebackup.sql_engine.delta.table import (
    TRIES,
    commit_once,
    live_paths,
    open_to_write,
    outrun,
    write_rows,
)
from lakebackup.sql_engine.failures import damaged_table
from lakebackup.storage import Storage


def set_states(storage: Storage, backup_ids: Sequence[str], state: State) -> None:
    """Change the state of some rows of `backups` in one commit.

    Only files with such rows are rewritten; memory holds the rows of one file at a time. The caller holds the
    catalog's lease. Raises Busy when others commit despite the lease, and Damaged.
    """
    uri = f"{storage.uri}/backups"
    for _ in range(TRIES):
        with open_to_write(uri) as opened:
            settings = opened.table.metadata().configuration
            changed = {
                path: write_rows(storage, "backups", rows, settings)
                for path, rows in _changed_files(uri, opened.table, backup_ids, state)
            }
            added, removed = list(changed.values()), list(changed)
            if not removed or commit_once(storage, "backups", opened, added, None, removed):
                return
    raise outrun(uri)


def _changed_files(
    uri: str, opened: DeltaTable, backup_ids: Sequence[str], state: State
) -> Iterator[tuple[str, pa.Table]]:
    """Yield each file that has such rows: its path, and all its rows with the new state."""
    files, ids = dataset(uri, opened), pa.array(backup_ids, pa.string())
    for fragment in files.get_fragments(pc.field("backup_id").isin(ids)):
        try:
            rows = pa.Table.from_batches(fragment.to_batches(schema=files.schema), files.schema)
        except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
            raise damaged_table(uri, error) from error
        selected = pc.is_in(rows["backup_id"], ids)
        if pc.any(selected).as_py():
            states = pc.if_else(selected, state, rows["state"])
            yield fragment.path, rows.set_column(rows.schema.get_field_index("state"), "state", states)


def replace_rows(storage: Storage, table: str, version: int | None, added: Sequence[str]) -> bool:
    """Replace all rows of a table at a version by those in the files `added` (see `write_rows`), in one
    commit. Returns False when the table has a newer version.

    The replaced version can still be read. The caller holds the catalog's lease.
    """
    with open_to_write(f"{storage.uri}/{table}") as opened:
        if opened.table.version() != version:
            return False
        return commit_once(storage, table, opened, added, None, live_paths(opened.table))

"""Changing rows of the catalog's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebackup.sql_engine.delta.dataset import dataset
from lakebackup.sql_engine.delta.table import TRIES, commit_once, open_to_write, outrun, write_rows
from lakebackup.sql_engine.failures import damaged_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable

    from lakebackup.rows.base import State
    from lakebackup.storage import Storage


def set_states(storage: Storage, backup_ids: Sequence[str], state: State) -> None:
    """Change the state of some rows of `backups` in one commit.

    Files without such rows stay; of the others the rows are held, one file's at a time. The caller holds the
    catalog's lease. Raises Busy when others commit all the same, Damaged.
    """
    uri = f"{storage.uri}/backups"
    for _ in range(TRIES):
        with open_to_write(uri) as opened:
            settings = opened.table.metadata().configuration
            changed = {
                path: write_rows(storage, "backups", rows, settings)
                for path, rows in _changed(uri, opened.table, backup_ids, state)
            }
            added, gone = list(changed.values()), list(changed)
            if not gone or commit_once(storage, "backups", opened, added, None, gone):
                return
    raise outrun(uri)


def _changed(
    uri: str, opened: DeltaTable, backup_ids: Sequence[str], state: State
) -> Iterator[tuple[str, pa.Table]]:
    """Each file that has such rows, and all its rows as they are to be."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found, wanted = dataset(uri, opened), pa.array(backup_ids, pa.string())
    for part in found.get_fragments(pc.field("backup_id").isin(wanted)):
        try:
            rows = pa.Table.from_batches(part.to_batches(schema=found.schema), found.schema)
        except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
            raise damaged_table(uri, error) from error
        hit = pc.is_in(rows["backup_id"], wanted)
        if pc.any(hit).as_py():
            states = pc.if_else(hit, state, rows["state"])
            yield part.path, rows.set_column(rows.schema.get_field_index("state"), "state", states)


def replace_rows(storage: Storage, table: str, version: int | None, added: Sequence[str]) -> bool:
    """Put the rows in the files `added` (`write_rows`) in the place of all those of a table's version, in one
    commit; False when the table has a newer version.

    Who reads the version before still can. The caller holds the catalog's lease.
    """
    with open_to_write(f"{storage.uri}/{table}") as opened:
        if opened.table.version() != version:
            return False
        gone = [str(path) for path in opened.table.get_add_actions(flatten=True).column("path").to_pylist()]
        return commit_once(storage, table, opened, added, None, gone)

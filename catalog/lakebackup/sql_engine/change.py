"""Changing rows of the catalog's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebackup.sql_engine.dataset import dataset
from lakebackup.sql_engine.delta import TRIES, commit_once, open_folder, outrun, write_file
from lakebackup.sql_engine.delta_log import local_log
from lakebackup.sql_engine.failures import damaged_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable

    from lakebackup.storage import Storage


def update(storage: Storage, table: str, key: str, among: Sequence[str], values: Mapping[str, Any]) -> None:
    """Give columns of the rows whose column `key` is `among` some texts other values, in one commit.

    Files without such rows stay; of the others the rows are held, one file's at a time. The caller holds the
    catalog's lease. Raises Busy when others commit all the same, Damaged.
    """
    uri = f"{storage.uri}/{table}"
    for _ in range(TRIES):
        with local_log(uri) as folder:
            opened = open_folder(uri, folder)
            settings = opened.metadata().configuration
            added: list[str] = []
            gone: list[str] = []
            for path, rows in _changed(uri, opened, key, among, values):
                added.append(write_file(storage, table, rows, settings))
                gone.append(path)
            if not gone or commit_once(storage, table, (folder, opened), added, None, gone):
                return
    raise outrun(uri)


def _changed(
    uri: str, opened: DeltaTable, key: str, among: Sequence[str], values: Mapping[str, Any]
) -> Iterator[tuple[str, pa.Table]]:
    """Each file that has such rows, and all its rows as they are to be."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found, wanted = dataset(uri, opened), pa.array(among, pa.string())
    for part in found.get_fragments(pc.field(key).isin(wanted)):
        try:
            rows = pa.Table.from_batches(part.to_batches(schema=found.schema), found.schema)
        except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
            raise damaged_table(uri, error) from error
        hit = pc.is_in(rows[key], wanted)
        if not pc.any(hit).as_py():
            continue
        for name, value in values.items():
            column = pc.if_else(hit, pa.scalar(value, rows[name].type), rows[name])
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        yield part.path, rows

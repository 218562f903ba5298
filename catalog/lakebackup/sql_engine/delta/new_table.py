"""Create a Delta table together with its first rows, with delta-rs, without a JVM."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Schema
from deltalake.transaction import create_table_with_add_actions

from lakebackup.errors import Refused
from lakebackup.sql_engine.delta.log import FOLDER, put_summed
from lakebackup.sql_engine.delta.table import add_actions
from lakebackup.storage import AlreadyExists, Storage


def create_table(storage: Storage, schema: pa.Schema, added: Sequence[str], info: Mapping[str, Any]) -> None:
    """Create a table at the root of `storage` from files that are there.

    `added`: what `table.put_rows` returned for each of the files. `info`: the commit's own metadata. Raises
    Refused when there is a table already.
    """
    name, now_ms = f"{0:020d}.json", int(time.time() * 1000)
    with tempfile.TemporaryDirectory(prefix="lakebackup-table-") as folder:
        create_table_with_add_actions(
            folder,
            Schema.from_arrow(schema),
            add_actions(added, now_ms),
            commit_properties=CommitProperties(custom_metadata=dict(info)),
        )
        data = Path(folder, FOLDER, name).read_bytes()
    try:
        put_summed(storage, f"{FOLDER}/{name}", data)
    except AlreadyExists as error:
        raise Refused(
            f"Another program created a table at {storage.uri} meanwhile.", hint="Use a new path."
        ) from error

"""The changes of a small log, as one task computes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from lakebackup.errors import Damaged, Refused
from lakebackup.formats.logs.events import DELETES, PUT_TYPE, TRUNCATES
from lakebackup.plan.logs.restore import NamedTable
from lakebackup.sql_engine.delta.new_table import create_table
from lakebackup.sql_engine.delta.table import put_rows
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.logs.restore.shares import CHANGES, VALUES, WRITES
from lakebackup_jobs.logs.restore.small import behind_ends, last_of_tables, with_names, with_values

number = st.integers(0, 3)
positions = st.tuples(number, number, number, number)  # table, commit ts, seq, sub


def writes(*rows: tuple[int, bytes, bytes | None, int, int, str, int, int]) -> pa.Table:
    schema = arrow_schema(WRITES)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def values(*rows: tuple[int, bytes, bytes | None, int]) -> pa.Table:
    schema = arrow_schema(VALUES)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def later(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["commit_ts"], row["seq"], row["sub"]


@given(st.lists(positions, max_size=8), st.lists(positions, max_size=4))
def test_rows_before_the_last_truncation_of_their_table_are_left_out(
    changes: list[tuple[int, int, int, int]], truncations: list[tuple[int, int, int, int]]
) -> None:
    rows = writes(*((table, b"a", b"1", 1, ts, PUT_TYPE, seq, sub) for table, ts, seq, sub in changes))
    last = last_of_tables(
        writes(*((table, b"x", None, 1, ts, TRUNCATES, seq, sub) for table, ts, seq, sub in truncations))
    )
    emptied: dict[int, tuple[int, ...]] = {}
    for table, *order in truncations:
        emptied[table] = max(emptied.get(table, (-1,)), tuple(order))
    assert {row["table_id"]: later(row) for row in last.to_pylist()} == emptied
    assert {(row["key"], row["value"]) for row in last.to_pylist()} <= {(b"", None)}
    assert last["start_ts"] == last["commit_ts"]
    expected = [row for row in rows.to_pylist() if later(row) > emptied.get(row["table_id"], (-1,))]
    assert behind_ends(rows, last).to_pylist() == expected


def test_values_come_from_the_write_or_from_before_the_commit() -> None:
    rows = writes(
        (1, b"a", b"own", 5, 9, PUT_TYPE, 0, 0),
        (1, b"b", None, 5, 9, PUT_TYPE, 0, 0),
        (1, b"c", None, 6, 9, DELETES, 0, 0),
        (2, b"b", b"", 5, 9, PUT_TYPE, 0, 0),
    )
    prewritten = values(
        (1, b"b", b"late", 5), (1, b"b", b"late", 5), (1, b"b", b"other", 6), (1, b"c", b"x", 6)
    )
    actual = {
        (row["table_id"], row["key"]): row["value"] for row in with_values(rows, prewritten).to_pylist()
    }
    assert actual == {(1, b"a"): b"own", (1, b"b"): b"late", (1, b"c"): None, (2, b"b"): b""}
    with pytest.raises(Damaged, match=r"key 62 of table 1, .* start ts 5 and committed at 9, is not"):
        with_values(rows, values((1, b"b", None, 5)))


def test_rows_of_a_table_without_a_name_have_none() -> None:
    rows = writes((1, b"a", b"1", 5, 9, PUT_TYPE, 0, 0), (2, b"a", b"2", 5, 9, PUT_TYPE, 0, 0))
    named_rows = with_names(rows, [NamedTable(2, "shop", "orders")], CHANGES).to_pylist()
    assert [(row["table_id"], row["db"], row["name"]) for row in named_rows] == [
        (1, None, None),
        (2, "shop", "orders"),
    ]
    assert with_names(rows, [], CHANGES)["name"].null_count == 2


def test_a_table_is_created_once_and_is_readable_with_its_file_verified(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "out"))
    rows = pa.table({"table_id": [2, 3], "key": pa.array([b"a", b"b"], pa.binary())})
    added = put_rows(storage, "", rows, {"delta.dataSkippingStatsColumns": "table_id"})
    create_table(storage, rows.schema, [added], {"userMetadata": "told", "operationMetrics": {"rows": "2"}})
    table = DeltaTable(str(tmp_path / "out"))
    assert table.to_pyarrow_table().to_pylist() == rows.to_pylist()
    assert (table.history()[0]["userMetadata"], table.history()[0]["operationMetrics"]) == (
        "told",
        {"rows": "2"},
    )
    assert json.loads(json.loads(added)["stats"])["maxValues"] == {"table_id": 3}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert f".{json.loads(added)['path']}.crc" in names
    with pytest.raises(Refused, match="Another program"):
        create_table(storage, rows.schema, [added], {})

"""A reader in which a name stands for other rows is a new reader; the old one does not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import backup_id

from lakebackup.errors import UsageProblem
from lakebackup.sql_engine.guard.check import check_select
from lakebackup.store.reader import CatalogReader

BOUNDS: dict[str, Any] = {"source": None, "scopes": None, "to_ts": None}


@pytest.fixture
def reader(tmp_path: Path) -> CatalogReader:
    """Three backups in a chain."""
    backups = MadeBackups(tmp_path)
    for number in range(3):
        backups.backup([[Record(0, number)]])
    backups.flush()
    return CatalogReader.require(str(tmp_path))


def newest(reader: CatalogReader) -> int:
    row = reader.first_row("latest_backup", source="prod", level=None)
    return int(row["number"]) if row else 0


def points(reader: CatalogReader) -> list[str]:
    rows = reader.rows("restore_coverage", source="prod")
    return [row["scope"] for row in rows]


def test_a_view_is_narrowed_by_its_own_rows(reader: CatalogReader) -> None:
    first = reader.with_query("chain_points", "restore_point", backup_id=backup_id(1), **BOUNDS)
    assert points(reader) == points(first) == ["orders"]
    second = first.with_query("chain_points", "restore_point", backup_id=backup_id(2), **BOUNDS)
    assert [points(each) for each in (second, first, reader, second)] == [[], ["orders"], ["orders"], []]


def test_a_raw_table_is_replaced_also_for_views_that_were_computed(reader: CatalogReader) -> None:
    assert newest(reader) == 3
    supposed = reader.supposing({backup_id(3): "out_of_sync"})
    further = reader.supposing({backup_id(2): "out_of_sync", backup_id(3): "out_of_sync"})
    assert [newest(each) for each in (supposed, further, reader, supposed, reader)] == [2, 1, 3, 2, 3]


def test_a_raw_table_is_replaced_before_it_is_read(reader: CatalogReader) -> None:
    supposed = reader.supposing({backup_id(3): "out_of_sync"})
    assert [newest(each) for each in (supposed, reader, supposed)] == [2, 3, 2]


def test_views_that_read_no_bound_name_are_not_computed_again(reader: CatalogReader) -> None:
    newest(reader)
    derived = reader.with_rows("selected", pa.table({"path": ["a"]}))
    engine = derived._duck
    computed = []
    create = engine._create
    engine._create = lambda step, *rest: computed.append(step) or create(step, *rest)  # type: ignore[method-assign,func-returns-value]
    assert newest(derived) == 3
    assert computed == []


def test_rows_of_a_select_and_of_a_plan_file(reader: CatalogReader) -> None:
    checked = check_select("SELECT path FROM files", reader.relations())
    plan_rows = reader.with_select("chosen", checked)
    assert plan_rows.columns("chosen") == ["path"]
    bounds = plan_rows.rows("chosen_rows")[0]
    assert bounds.pop("rows_chosen") == 3
    file = plan_rows.plan_file("chosen_paths", **bounds)
    assert file.table()["start_position"].to_pylist() == [0, 1, 2]
    (total,) = reader.with_rows("selected", file).rows("selected_summary")
    assert (total["files"], total["end_position"]) == (3, 3)
    with pytest.raises(UsageProblem, match="does not exist"):
        reader.rows("selected_summary")

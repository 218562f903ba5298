"""`diff_query` of two backups, compared with sets of files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.test_queries import DEFAULTS

from lakebackup.errors import Refused
from lakebackup.plan.diff import diff_query
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine import RAW
from lakebackup.sql_engine.duck import DuckEngine
from lakebackup_sql import load

LAST = 8
SPANS = st.lists(
    st.tuples(st.integers(1, LAST), st.integers(1, LAST), st.integers(0, 3), st.integers(0, 2)), max_size=12
)
"""Files: the number of the backup that adds one, how many backups it stays for, its path and its contents."""


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "backup_id": f"b{number}", "source": "s", "source_kind": "kafka", "number": number,
        "state": "complete", "base": "b1", "link": number, "unlinked": 99, "place": number,
        "first": 1, "last": number, "moved": 0, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "numbers"),
    [
        pytest.param({"number": 3}, {"number": 7}, (4, 7), id="of one chain only what lies between"),
        pytest.param({"number": 7}, {"number": 3}, (4, 7), id="the other way round"),
        pytest.param({"number": 3}, {"number": 7, "base": "b5", "first": 5}, (1, 7), id="two chains"),
        pytest.param({"number": 3}, {"number": 7, "state": "out_of_sync"}, (1, 7), id="set aside"),
        pytest.param({"number": 3, "moved": 1}, {"number": 7, "moved": 1}, (1, 7), id="moved"),
        pytest.param({"number": 3}, {"number": 7, "link": 101}, (1, 7), id="another branch"),
        # The number of a merge is higher than its place in the chain.
        pytest.param(
            {"number": 9, "link": 4, "place": 3}, {"number": 7, "link": 8, "last": 9}, (4, 9), id="merge"
        ),
        pytest.param(
            {"number": 3, "source_kind": "x", "base": "b3", "first": 3},
            {"number": 7, "source_kind": "x", "base": "b7", "first": 7},
            (4, 7),
            id="sources that are no topics have one line",
        ),
    ],
)
def test_the_range_of_numbers_that_a_diff_reads(
    a: dict[str, Any], b: dict[str, Any], numbers: tuple[int, int]
) -> None:
    query, parameters = diff_query(row(**a), row(**b))
    assert (parameters["from_number"], parameters["to_number"], query) == (*numbers, "diff_sides")


def test_snapshots_are_compared_by_their_files() -> None:
    assert diff_query(row(7, source_kind="snapshot"), row(3, source_kind="snapshot")) == (
        "diff_snapshots",
        {"source": "s", "a_number": 7, "b_number": 3},
    )


def test_backups_of_two_sources_are_not_compared() -> None:
    with pytest.raises(Refused, match="one of t"):
        diff_query(row(1), row(2, source="t"))


@pytest.fixture(scope="module")
def engine() -> DuckEngine:
    duck = DuckEngine("nowhere")
    add_rows(
        duck,
        "backups",
        [
            {"backup_id": f"b{n}", "number": n, "chain_position": n - 1, "end_ts": n}
            for n in range(1, LAST + 1)
        ],
    )
    for table in ("scopes", "removals", "checks", "departures", "snapshot_files", "snapshot_departures"):
        add_rows(duck, table, [])
    return duck


def add_rows(engine: DuckEngine, table: str, rows: list[dict[str, Any]]) -> None:
    complete_rows = [DEFAULTS.get(table, {}) | {"source_kind": "x"} | row for row in rows]
    names = ARROW_SCHEMAS[table].names
    table_rows = [{name: row.get(name) for name in names} for row in complete_rows]
    engine._connection.register(f"{RAW}{table}", pa.Table.from_pylist(table_rows, ARROW_SCHEMAS[table]))
    engine._registered.add(f"{RAW}{table}")


def file_spans(drawn: list[tuple[int, int, int, int]]) -> list[tuple[int, int, str, str]]:
    """Files as (added_in, gone_in, path, contents). No two have the same path at the same time."""
    occupied: set[tuple[str, int]] = set()
    spans = []
    for start, length, path, contents in drawn:
        span = {(f"p{path}", number) for number in range(start, start + length)}
        if not span & occupied:
            occupied |= span
            spans.append((start, start + length, f"p{path}", f"s{contents}"))
    return spans


def add_files(engine: DuckEngine, files: list[tuple[int, int, str, str]]) -> None:
    rows = [
        {"path": path, "sha256": sha, "added_in": start, "gone_in": end, "backup_id": f"b{start}"}
        for start, end, path, sha in files
    ]
    add_rows(engine, "files", rows)
    add_rows(engine, "departures", [row for row in rows if row["gone_in"] <= LAST])


@given(drawn=SPANS, a=st.integers(1, LAST), b=st.integers(1, LAST))
@settings(max_examples=settings.default.max_examples // 2)
def test_a_diff_equals_the_difference_of_sets(
    engine: DuckEngine, drawn: list[tuple[int, int, int, int]], a: int, b: int
) -> None:
    files = file_spans(drawn)
    add_files(engine, files)
    query, parameters = diff_query(*(row(n, source="prod", source_kind="x") for n in (a, b)))
    sides = engine.keep_query("sides", load("queries", query), **parameters)
    changes = engine.rows("diff_files", {"sides": sides})
    old, new = ({path: sha for start, end, path, sha in files if start <= number < end} for number in (a, b))
    assert {f["path"] for f in changes if f["change"] == "changed"} == {
        path for path in old.keys() & new.keys() if old[path] != new[path]
    }
    removed, added = old.keys() - new.keys(), new.keys() - old.keys()
    moved = [f for f in changes if f["change"] == "moved"]
    assert {f["path"] for f in changes if f["change"] == "added"} | {f["path"] for f in moved} == added
    assert {f["path"] for f in changes if f["change"] == "gone"} | {f["old_path"] for f in moved} == removed
    assert all(old[f["old_path"]] == new[f["path"]] for f in moved)
    for contents in {*old.values(), *new.values()}:  # as many moves as possible
        pairs = min(sum(old[p] == contents for p in removed), sum(new[p] == contents for p in added))
        assert sum(new[f["path"]] == contents for f in moved) == pairs

"""The diff_query of two backups, beside sets made one by one."""

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
LIVES = st.lists(
    st.tuples(st.integers(1, LAST), st.integers(1, LAST), st.integers(0, 3), st.integers(0, 2)), max_size=12
)
"""Files by the number they come with, the backups they stay for, their path and their contents."""


def row(number: int, **other: Any) -> dict[str, Any]:
    return {
        "backup_id": f"b{number}", "source": "s", "source_kind": "kafka", "number": number,
        "state": "complete", "base": "b1", "link": number, "unlinked": 99, "place": number,
        "first": 1, "last": number, "moved": 0, **other,
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
        # A merge has a number behind its place.
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
def test_which_numbers_are_looked_at(a: dict[str, Any], b: dict[str, Any], numbers: tuple[int, int]) -> None:
    query, found = diff_query(row(**a), row(**b))
    assert (found["from_number"], found["to_number"], query) == (*numbers, "diff_sides")


def test_of_snapshots_their_files_are_compared() -> None:
    assert diff_query(row(7, source_kind="snapshot"), row(3, source_kind="snapshot")) == (
        "diff_snapshots",
        {"source": "s", "a_number": 7, "b_number": 3},
    )


def test_backups_of_two_sources_are_not_compared() -> None:
    with pytest.raises(Refused, match="one of t"):
        diff_query(row(1), row(2, source="t"))


@pytest.fixture(scope="module")
def engine() -> DuckEngine:
    made = DuckEngine("nowhere")
    give(
        made,
        "backups",
        [
            {"backup_id": f"b{n}", "number": n, "chain_position": n - 1, "end_ts": n}
            for n in range(1, LAST + 1)
        ],
    )
    for table in ("scopes", "removals", "checks", "departures", "snapshot_files", "snapshot_departures"):
        give(made, table, [])
    return made


def give(engine: DuckEngine, table: str, rows: list[dict[str, Any]]) -> None:
    filled = [DEFAULTS.get(table, {}) | {"source_kind": "x"} | one for one in rows]
    names = ARROW_SCHEMAS[table].names
    cut = [{name: one.get(name) for name in names} for one in filled]
    engine._connection.register(f"{RAW}{table}", pa.Table.from_pylist(cut, ARROW_SCHEMAS[table]))
    engine._registered.add(f"{RAW}{table}")


def lives(drawn: list[tuple[int, int, int, int]]) -> list[tuple[int, int, str, str]]:
    """(added_in, gone_in, path, contents), where no path is there twice at once."""
    taken: set[tuple[str, int]] = set()
    made = []
    for start, length, path, contents in drawn:
        span = {(f"p{path}", number) for number in range(start, start + length)}
        if not span & taken:
            taken |= span
            made.append((start, start + length, f"p{path}", f"s{contents}"))
    return made


def give_lives(engine: DuckEngine, files: list[tuple[int, int, str, str]]) -> None:
    rows = [
        {"path": path, "sha256": sha, "added_in": start, "gone_in": end, "backup_id": f"b{start}"}
        for start, end, path, sha in files
    ]
    give(engine, "files", rows)
    give(engine, "departures", [one for one in rows if one["gone_in"] <= LAST])


@given(drawn=LIVES, a=st.integers(1, LAST), b=st.integers(1, LAST))
@settings(max_examples=settings.default.max_examples // 2)
def test_a_difference_is_that_of_the_sets(
    engine: DuckEngine, drawn: list[tuple[int, int, int, int]], a: int, b: int
) -> None:
    files = lives(drawn)
    give_lives(engine, files)
    query, wanted = diff_query(*(row(n, source="prod", source_kind="x") for n in (a, b)))
    engine.show("sides", engine.keep("sides", load("queries", query), **wanted))
    found = engine.query("diff_files").read_all().to_pylist()
    old, new = ({path: sha for start, end, path, sha in files if start <= at < end} for at in (a, b))
    assert {f["path"] for f in found if f["change"] == "changed"} == {
        path for path in old.keys() & new.keys() if old[path] != new[path]
    }
    lost, made = old.keys() - new.keys(), new.keys() - old.keys()
    moved = [f for f in found if f["change"] == "moved"]
    assert {f["path"] for f in found if f["change"] == "added"} | {f["path"] for f in moved} == made
    assert {f["path"] for f in found if f["change"] == "gone"} | {f["old_path"] for f in moved} == lost
    assert all(old[f["old_path"]] == new[f["path"]] for f in moved)
    for contents in {*old.values(), *new.values()}:  # as many pairs as there can be
        pairs = min(sum(old[p] == contents for p in lost), sum(new[p] == contents for p in made))
        assert sum(new[f["path"]] == contents for f in moved) == pairs

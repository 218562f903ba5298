from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.change_feed import ChangeFeed

from lakebackup.errors import Damaged
from lakebackup.formats.logs import events
from lakebackup.formats.logs.meta_keys import CAPTURED_KEYS, MetaWrite, Names, Naming
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup_jobs.logs.capture.names_task import NEVER, names_of

SHOP = Naming(-1, "shop", "", 1, "create")
ORDERS = Naming(20, "shop", "orders", 1, "create")


def value(number: int, name: str) -> bytes:
    return json.dumps({"id": number, "name": name}).encode()


def set_name(ts: int, key: str, name: str) -> MetaWrite:
    return MetaWrite(ts, ts - 1, key.encode(), value(int(re.findall("[0-9]+", key)[-1]), name))


def drop(ts: int, key: str) -> MetaWrite:
    return MetaWrite(ts, ts - 1, key.encode(), None)


def apply_writes(*writes: MetaWrite, earlier: tuple[Naming, ...] = (SHOP, ORDERS)) -> list[Naming]:
    return list(Names(earlier).apply(writes))


@pytest.mark.parametrize(
    ("key", "is_captured"),
    [
        ("mDB1", True),
        ("mDB12_Table345", True),
        ("mDB1_TID20", False),
        ("mDB1_TARID20", False),
        ("mDB1_SID20", False),
        ("mDB1_SequenceCycle20", False),
        ("mPolicy1", False),
        ("mDDLJobHistory1", False),
        ("mNextGlobalID", False),
        ("mDB1_Table20\n", False),
        ("mDB", False),
    ],
)
def test_only_meta_keys_that_name_something_are_captured(key: str, is_captured: bool) -> None:
    import pyarrow.compute as pc

    assert pc.match_substring_regex(pa.array([key.encode()]), CAPTURED_KEYS).to_pylist() == [is_captured]
    assert bool(apply_writes(set_name(5, key, "other") if key[-1].isdigit() else drop(5, key))) is is_captured


CRM = Naming(-2, "crm", "", 1, "create")
MOVED = Naming(20, "crm", "orders", 3, "rename")


@pytest.mark.parametrize(
    ("earlier", "writes", "namings"),
    [
        pytest.param(
            (SHOP, ORDERS), [set_name(5, "mDB2_Table7", "a"), set_name(5, "mDB2", "crm")],
            [CRM._replace(from_ts=5), Naming(7, "crm", "a", 5, "create")],
            id="a created database and its table in any order",
        ),
        pytest.param(
            (SHOP, ORDERS), [set_name(5, "mDB2_Table7", "a")], [Naming(7, "DB2", "a", 5, "create")],
            id="a table without a described database is called by its id",
        ),
        pytest.param(
            (Naming(7, "DB2", "a", 5, "create"),), [set_name(6, "mDB2", "crm")],
            [CRM._replace(from_ts=6), Naming(7, "crm", "a", 6, "rename")],
            id="until it is described",
        ),
        pytest.param(
            (SHOP, ORDERS),
            [
                set_name(5, "mDB1_Table20", "bills"), drop(6, "mDB1_Table20"),
                set_name(6, "mDB1_Table21", "bills"),
            ],
            [
                Naming(20, "shop", "bills", 5, "rename"), Naming(20, "shop", "bills", 6, "drop"),
                Naming(21, "shop", "bills", 6, "truncate", 20),
            ],
            id="a rename, then a truncation",
        ),
        pytest.param(
            (SHOP, ORDERS, CRM), [drop(5, "mDB1_Table20"), set_name(5, "mDB2_Table20", "orders")],
            [MOVED._replace(from_ts=5)], id="a rename to another database keeps the id",
        ),
        pytest.param((SHOP, CRM, MOVED), [drop(5, "mDB1_Table20")], [], id="a late delete under the old one"),
        pytest.param(
            (SHOP, ORDERS), [drop(5, "mDB1")],
            [SHOP._replace(from_ts=5, action="drop"), ORDERS._replace(from_ts=5, action="drop")],
            id="a dropped database takes its tables",
        ),
        pytest.param(
            (SHOP, ORDERS), [set_name(5, "mDB1", "store")],
            [Naming(-1, "store", "", 5, "rename"), Naming(20, "store", "orders", 5, "rename")],
            id="a renamed database renames its tables",
        ),
        pytest.param(
            (SHOP, ORDERS),
            [
                *[set_name(5, "mDB1_Table20", "orders")] * 2, set_name(5, "mDB1", "shop"),
                drop(6, "mDB9_Table99"), drop(6, "mDB9"),
            ],
            [], id="what changes no name",
        ),
    ],
)  # fmt: skip
def test_writes_of_meta_keys_change_namings(
    earlier: tuple[Naming, ...], writes: list[MetaWrite], namings: list[Naming]
) -> None:
    assert apply_writes(*writes, earlier=earlier) == namings


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"name": 3}', b'{"name": ""}', b"\xff"])
def test_a_value_without_a_name_is_damaged(text: bytes) -> None:
    with pytest.raises(Damaged, match=r"'mDB1_Table20', committed at 5"):
        apply_writes(MetaWrite(5, 4, b"mDB1_Table20", text))


# --- in a flush


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    full = [{"value": None, "commit_ts": None, "type": None, "seq": 0, "sub": 0, **row} for row in rows]
    return pa.RecordBatch.from_pylist(full, schema=events.stored_schema())


def write_row(ts: int, key: str, name: str | None) -> dict[str, Any]:
    text = None if name is None else value(1, name)
    kind = "D" if name is None else "P"
    return {"key": key.encode(), "start_ts": ts - 1, "commit_ts": ts, "type": kind, "value": text}


def reported(
    *rows: dict[str, Any], earlier: Any = (), filters: tuple[str, ...] = (), **span: Any
) -> list[Any]:
    log_tables = names_of(
        [("write", batch(*rows))],
        [row._asdict() | {"covered_from": c} for row, c in earlier],
        source="s",
        backup_id="b",
        **{"old_checkpoint": None, "until": 100, **span},
        tables=TableFilter(filters),
    )
    return [(row.table_id, row.name, row.from_ts, row.action, row.covered_from) for row in log_tables]


def test_the_value_of_a_write_is_taken_from_its_prewrite() -> None:
    write = write_row(5, "mDB1", "x") | {"value": None}
    prewrite = {"key": b"mDB1", "start_ts": 4, "value": value(1, "shop")}
    records = [
        ("write", batch(write)),
        ("default", batch(prewrite, prewrite | {"start_ts": 3, "value": b"{"})),
    ]
    common: dict[str, Any] = {
        "source": "s",
        "backup_id": "b",
        "old_checkpoint": None,
        "tables": TableFilter(),
    }
    assert [row.db for row in names_of(records, [], until=5, **common)] == ["shop"]
    assert names_of(records, [], until=4, **common) == []
    assert names_of(records, [], until=None, **common) == []
    with pytest.raises(Damaged, match=r"'mDB1', committed at 5: the value that it got at start ts 4"):
        names_of(records[:1], [], until=5, **common | {"old_checkpoint": 4})
    # A log that begins later than a missing value does without that name.
    assert names_of(records[:1], [], until=5, **common) == []
    assert names_of(records[:1], [], until=6, **common | {"old_checkpoint": 5}) == []


def test_namings_are_reported_once_and_only_up_to_the_checkpoint() -> None:
    rows = [write_row(ts, f"mDB1_Table{ts}", "t") for ts in (5, 6, 7)]
    earlier = [(Naming(5, "DB1", "t", 5, "create"), 4)]
    assert [row[0] for row in reported(*rows, earlier=earlier, old_checkpoint=5, until=6)] == [6]
    # Names that existed before the log began are learnt at its first checkpoint.
    rows = [write_row(ts, f"mDB1_Table{ts}", "t") for ts in (5, 60)]
    # Not every write that was committed by ts 50 has been read.
    assert reported(*rows, old_checkpoint=50, until=50) == []
    assert reported(*rows, old_checkpoint=50, until=60) == [
        (5, "t", 5, "create", 4),
        (60, "t", 60, "create", 59),
    ]
    # Rollbacks and locks name nothing.
    assert (
        reported(write_row(5, "mDB1", "x") | {"type": "R"}, write_row(6, "mDB1", "x") | {"type": "L"}) == []
    )


def test_tables_are_covered_from_when_they_entered_the_filter() -> None:
    dbs = ((SHOP, 0),)
    keep = ("shop.*", "!shop.x*")
    # From their beginning, also a table that had another name earlier in the same flush.
    assert reported(write_row(5, "mDB1_Table20", "a"), earlier=dbs, filters=keep) == [
        (20, "a", 5, "create", 4)
    ]
    both_writes = (write_row(5, "mDB1_Table20", "x"), write_row(6, "mDB1_Table20", "a"))
    assert [row[4] for row in reported(*both_writes, earlier=dbs, filters=keep)] == [4, 4]
    # Never, also when a rename brings it into the filter: the next flush records from when it is covered.
    assert reported(both_writes[0], earlier=dbs, filters=keep) == [(20, "x", 5, "create", NEVER)]
    excluded = (Naming(20, "shop", "x", 5, "create"), NEVER)
    entering = write_row(60, "mDB1_Table20", "a")
    assert reported(entering, earlier=(*dbs, excluded), filters=keep) == [(20, "a", 60, "rename", NEVER)]
    # A table that was in the filter stays covered.
    included = (Naming(20, "shop", "a", 5, "create"), 4)
    leaving = write_row(60, "mDB1_Table20", "x")
    assert reported(leaving, earlier=(*dbs, included), filters=keep) == [(20, "x", 60, "rename", 4)]


# --- compared with the names in a database

STEPS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 2)), max_size=25)


@settings(max_examples=2 * settings.default.max_examples)
@given(STEPS, st.lists(st.integers(0, 60), max_size=3))
def test_names_over_time_are_those_that_the_database_had(
    steps: list[tuple[int, int, int]], cuts: list[int]
) -> None:
    feed = ChangeFeed()
    for step, index, db in steps:
        live = sorted(feed.names(feed.last_ts))
        name = f"db{db}"
        table = live[index % len(live)] if live else 0
        if step == 0 or not live:
            feed.create_table(name, f"t{len(feed.history)}")
        elif step == 1:
            feed.rename_table(table, name, f"t{len(feed.history)}")
        elif step == 2:
            feed.truncate_table(table)
        elif step == 3:
            feed.drop_table(table)
        elif step == 4:
            dbs = sorted({full_name.partition(".")[0] for full_name in feed.names(feed.last_ts).values()})
            feed.drop_database(dbs[index % len(dbs)])
        else:
            feed.tick()
    writes = [
        MetaWrite(commit, start, key, change.value)
        for start, commit, key, change in feed.history
        if change.table_id == 0
    ]
    # Several flushes, each from the last naming of each id.
    rows: list[Naming] = []
    spans = [100, *sorted(100 + cut for cut in cuts), 10_000]
    for since, until in pairwise(spans):
        latest = {row.table_id: row for row in rows}
        rows += Names(latest.values()).apply(w for w in writes if since < w.commit_ts <= until)
    for ts in range(100, feed.last_ts + 1):
        namings = {row.table_id: row for row in rows if row.from_ts <= ts and row.table_id > 0}
        names = {i: f"{row.db}.{row.name}" for i, row in namings.items() if row.action != "drop"}
        assert names == feed.names(ts), ts

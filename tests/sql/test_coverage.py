"""The view coverage says of an instant what a restore to it would: the queries of a restore are the judge."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.test_queries import filled

from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine import RAW, steps, to_duckdb
from lakebackup.sql_engine.duck import DuckEngine
from lakebackup_sql import load

_FILES = load("queries", "restore_files")
_SELECTED = "FROM selected AS s JOIN files AS f ON s.destination = f.destination AND s.path = f.path"
Tables = dict[str, list[dict[str, Any]]]


@st.composite
def catalogs(draw: st.DrawFn) -> Tables:
    """Up to six backups of a topic with two partitions, at instants 10 apart, with all that goes wrong."""
    tables: Tables = {"backups": [], "scopes": [], "positions": [], "files": [], "gaps": [], "checks": []}
    tables |= {"removals": [], "floors": []}
    base, generation, epoch = 1, 0, 1
    for number in range(1, draw(st.integers(2, 6)) + 1):
        if number > 1 and draw(st.integers(0, 3)) == 0:
            base, generation = number, generation + draw(st.integers(0, 1))
        remade = number > 1 and draw(st.integers(0, 7)) == 0
        name, end_ts = f"b{number}", 10 * number
        tables["backups"].append(
            {
                "number": number, "base": f"b{base}", "chain_position": number - base, "place": number,
                "parent_place": None if number == base else number - 1,
                "start_ts": None if number == base else end_ts - 10, "end_ts": end_ts,
                "state": "deleted" if draw(st.integers(0, 9)) == 0 else "complete",
            }
        )  # fmt: skip
        for region in ("0", "1"):
            gap = {"backup_id": name, "epoch": f"e{epoch}", "region": region, "to_ts": end_ts}
            if remade:
                gap |= {"to_position": None, "reason": "recreated", "from_ts": end_ts - 10}
                tables["gaps"].append(gap)
            elif number > 1 and draw(st.integers(0, 5)) == 0:
                gap["from_ts"] = end_ts - draw(st.sampled_from([10, 20]))
                gap["bridged"] = base != number and draw(st.booleans())
                tables["gaps"].append(gap)
        epoch += remade
        place = {"backup_id": name, "epoch": f"e{epoch}"}
        tables["scopes"].append({**place, "regions": 2, "generation": generation})
        for region in ("0", "1"):
            tables["positions"].append({**place, "region": region})
            if draw(st.booleans()):
                low = draw(st.integers(0, end_ts))
                file = {**place, "region": region, "path": f"f{number}-{region}", "generation": generation}
                file |= {"added_in": number, "min_ts": low, "max_ts": draw(st.integers(low, end_ts))}
                tables["files"].append(file)
                if draw(st.integers(0, 5)) == 0:
                    tables["checks"].append({"path": file["path"], "outcome": "missing", "at": 1})
    if draw(st.booleans()):
        cut = draw(st.integers(1, len(tables["backups"])))
        kept = draw(st.integers(0, 1))
        for file in tables["files"]:
            if file["region"] == "0" and (file["added_in"] <= cut or file["generation"] < kept):
                tables["removals"].append({**file, "bytes": 1})
        tables["floors"] += [
            {"epoch": f"e{number}", "low_position": 1, "generation": kept} for number in range(1, epoch + 1)
        ]
    return tables


def engine_over(tables: Tables) -> DuckEngine:
    engine = DuckEngine("nowhere")
    for table, schema in ARROW_SCHEMAS.items():
        rows = [filled(table, row) for row in tables.get(table, [])]
        rows = [{column: row.get(column) for column in schema.names} for row in rows]
        engine._connection.register(f"{RAW}{table}", pa.Table.from_pylist(rows, schema=schema))
        engine._registered.add(f"{RAW}{table}")
    return engine


def asked(engine: DuckEngine, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = engine.run(to_duckdb(sql), steps(sql), {}).read_all().to_pylist()
    return rows


def refused(engine: DuckEngine, ts: int) -> set[str]:
    """The partitions because of which a restore to `ts` is refused."""
    wanted = {"source": "prod", "scopes": "orders", "to_ts": ts}
    (between,) = rows(engine, "restore_range", **wanted)
    found = rows(engine, "restore_gaps", **wanted) + rows(engine, "restore_floors", **wanted, **between)
    engine.define("selected", _FILES, from_ts=None, **wanted, **between)
    return {row["region"] for row in found + rows(engine, "selected_damage")}


def rows(engine: DuckEngine, query: str, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = engine.query(query, **parameters).read_all().to_pylist()
    return found


@given(catalogs(), st.booleans())
@settings(max_examples=4)
def test_coverage_is_what_a_restore_says(tables: Tables, folded: bool) -> None:
    require_agreement(tables, folded)


@pytest.mark.long
@given(catalogs(), st.booleans())
@settings(max_examples=100)
def test_coverage_is_what_a_restore_says_of_many_catalogs(tables: Tables, folded: bool) -> None:
    require_agreement(tables, folded)


def require_agreement(tables: Tables, folded: bool) -> None:
    engine = engine_over(tables)
    if folded:  # nothing that is asked below changes, though rows of removals do
        before = asked(engine, "SELECT * FROM coverage ORDER BY ALL")
        kept = rows(engine, "removals_kept", before=1 << 62, destination="d", incomplete="")
        engine = engine_over({**tables, "removals": kept})
        assert asked(engine, "SELECT * FROM coverage ORDER BY ALL") == before
    intervals = asked(engine, "SELECT region, status, reason, from_ts, to_ts FROM coverage ORDER BY to_ts")
    for one in intervals:
        assert (-1 if one["from_ts"] is None else one["from_ts"]) < one["to_ts"]
    # Damage of one partition takes the topic's points away, and leaves the others' intervals.
    points = asked(engine, "SELECT covers_to FROM restore_points WHERE newest")
    whole = [one["to_ts"] for one in intervals if one["status"] == "restorable"]
    end = points[0]["covers_to"] if points else max(whole, default=-1)
    edges = {one["to_ts"] + more for one in intervals for more in (0, 1)} | {*range(0, end + 1, 5), end}
    for ts in sorted(ts for ts in edges if 0 <= ts <= end):
        stands = refused(engine, ts)
        for region in ("0", "1"):
            at = [
                one
                for one in intervals
                if one["region"] == region
                and (-1 if one["from_ts"] is None else one["from_ts"]) < ts <= one["to_ts"]
            ]
            if region not in stands and [one for one in at if one["reason"] == "pruned"]:
                # Before the oldest record that was pruned a restore brings nothing, and says so by itself.
                assert not asked(engine, f"SELECT f.path {_SELECTED} WHERE f.region = '{region}'")
            else:
                restorable = "restorable" in {one["status"] for one in at}
                assert restorable == (region not in stands), (ts, region, at, stands)

"""The view coverage agrees with restores to each instant. The queries of a restore are the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.test_queries import filled

from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.sql_engine import NO_BINDINGS, RAW, relations_in, to_duckdb
from lakebackup.sql_engine.duck import DuckEngine
from lakebackup_sql import load

if TYPE_CHECKING:
    from lakebackup.sql_engine import Bindings

_FILES = load("queries", "restore_files")
_SELECTED = "FROM selected AS s JOIN files AS f ON s.destination = f.destination AND s.path = f.path"
Tables = dict[str, list[dict[str, Any]]]


@st.composite
def catalogs(draw: st.DrawFn) -> Tables:
    """Draws up to six backups of a topic with two partitions, 10 ms apart, with gaps, damage and removals."""
    tables: Tables = {"backups": [], "scopes": [], "positions": [], "files": [], "gaps": [], "checks": []}
    tables |= {"removals": [], "floors": []}
    base, generation, epoch = 1, 0, 1
    for number in range(1, draw(st.integers(2, 6)) + 1):
        if number > 1 and draw(st.integers(0, 3)) == 0:
            base, generation = number, generation + draw(st.integers(0, 1))
        recreated = number > 1 and draw(st.integers(0, 7)) == 0
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
            if recreated:
                gap |= {"to_position": None, "reason": "recreated", "from_ts": end_ts - 10}
                tables["gaps"].append(gap)
            elif number > 1 and draw(st.integers(0, 5)) == 0:
                gap["from_ts"] = end_ts - draw(st.sampled_from([10, 20]))
                gap["bridged"] = base != number and draw(st.booleans())
                tables["gaps"].append(gap)
        epoch += recreated
        backup_epoch = {"backup_id": name, "epoch": f"e{epoch}"}
        tables["scopes"].append({**backup_epoch, "regions": 2, "generation": generation})
        for region in ("0", "1"):
            tables["positions"].append({**backup_epoch, "region": region})
            if draw(st.booleans()):
                min_ts = draw(st.integers(0, end_ts))
                file = {
                    **backup_epoch,
                    "region": region,
                    "path": f"f{number}-{region}",
                    "generation": generation,
                }
                file |= {"added_in": number, "min_ts": min_ts, "max_ts": draw(st.integers(min_ts, end_ts))}
                tables["files"].append(file)
                if draw(st.integers(0, 5)) == 0:
                    tables["checks"].append({"path": file["path"], "outcome": "missing", "at": 1})
    if draw(st.booleans()):
        cut = draw(st.integers(1, len(tables["backups"])))
        kept_generation = draw(st.integers(0, 1))
        for file in tables["files"]:
            if file["region"] == "0" and (file["added_in"] <= cut or file["generation"] < kept_generation):
                tables["removals"].append({**file, "bytes": 1})
        tables["floors"] += [
            {"epoch": f"e{number}", "low_position": 1, "generation": kept_generation}
            for number in range(1, epoch + 1)
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


def coverage_rows(engine: DuckEngine, sql: str, bindings: Bindings = NO_BINDINGS) -> list[dict[str, Any]]:
    reader = engine.run(to_duckdb(sql), relations_in(sql), {}, bindings=bindings)
    rows: list[dict[str, Any]] = reader.read_all().to_pylist()
    return rows


def refused(engine: DuckEngine, ts: int) -> tuple[set[str], Bindings]:
    """Return the partitions because of which a restore to `ts` is refused, and its files as `selected`."""
    parameters = {"source": "prod", "scopes": "orders", "to_ts": ts}
    (id_range,) = rows(engine, "restore_range", **parameters)
    problems = rows(engine, "restore_gaps", **parameters) + rows(
        engine, "restore_floors", **parameters, **id_range
    )
    selected = engine.keep_query("selected", _FILES, from_ts=None, **parameters, **id_range)
    bindings = {"selected": selected}
    damaged = engine.rows("selected_damage", bindings)
    return {row["region"] for row in problems + damaged}, bindings


def rows(engine: DuckEngine, query: str, **parameters: Any) -> list[dict[str, Any]]:
    table_rows: list[dict[str, Any]] = engine.query(query, **parameters).read_all().to_pylist()
    return table_rows


@given(catalogs(), st.booleans())
@settings(max_examples=4)
def test_coverage_agrees_with_restores(tables: Tables, folded: bool) -> None:
    require_agreement(tables, folded)


@pytest.mark.long
@given(catalogs(), st.booleans())
@settings(max_examples=100)
def test_coverage_agrees_with_restores_of_many_catalogs(tables: Tables, folded: bool) -> None:
    require_agreement(tables, folded)


def require_agreement(tables: Tables, folded: bool) -> None:
    engine = engine_over(tables)
    if folded:  # folding changes the rows of removals, but no answer below
        coverage_before = coverage_rows(engine, "SELECT * FROM coverage ORDER BY ALL")
        kept_removals = rows(engine, "removals_kept", before=1 << 62, destination="d", incomplete="")
        engine = engine_over({**tables, "removals": kept_removals})
        assert coverage_rows(engine, "SELECT * FROM coverage ORDER BY ALL") == coverage_before
    intervals = coverage_rows(
        engine, "SELECT region, status, reason, from_ts, to_ts FROM coverage ORDER BY to_ts"
    )
    for interval in intervals:
        assert (-1 if interval["from_ts"] is None else interval["from_ts"]) < interval["to_ts"]
    # Damage of one partition removes the topic's restore points, but not the other partition's intervals.
    points = coverage_rows(engine, "SELECT covers_to FROM restore_points WHERE newest")
    restorable_ends = [interval["to_ts"] for interval in intervals if interval["status"] == "restorable"]
    end = points[0]["covers_to"] if points else max(restorable_ends, default=-1)
    edges = {interval["to_ts"] + step for interval in intervals for step in (0, 1)} | {
        *range(0, end + 1, 5),
        end,
    }
    for ts in sorted(ts for ts in edges if 0 <= ts <= end):
        refused_regions, bindings = refused(engine, ts)
        for region in ("0", "1"):
            covering = [
                interval
                for interval in intervals
                if interval["region"] == region
                and (-1 if interval["from_ts"] is None else interval["from_ts"]) < ts <= interval["to_ts"]
            ]
            if region not in refused_regions and [
                interval for interval in covering if interval["reason"] == "pruned"
            ]:
                # Before the oldest pruned record a restore selects no files, and reports that by itself.
                sql = f"SELECT f.path {_SELECTED} WHERE f.region = '{region}'"
                assert not coverage_rows(engine, sql, bindings)
            else:
                restorable = "restorable" in {interval["status"] for interval in covering}
                assert restorable == (region not in refused_regions), (ts, region, covering, refused_regions)

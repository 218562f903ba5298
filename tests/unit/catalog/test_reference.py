"""The SQL reference is made from the statements, and says what every column means."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import lakebackup.reference
from lakebackup.reference import describe, meanings, parameters, reference
from lakebackup.rows.tables import TABLES, columns
from lakebackup.sql_engine import shown_views
from lakebackup.sql_engine.duck import view_types
from lakebackup_sql import load, names

PAGE = Path(__file__).parents[3] / "docs" / "sql-reference.md"


def test_the_page_is_what_the_statements_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "`python -m lakebackup.reference docs/sql-reference.md` updates it"
    )


def test_a_flag_is_no_name_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["reference", "--help"])
    with pytest.raises(SystemExit, match="usage"):
        runpy.run_path(str(Path(lakebackup.reference.__file__)), run_name="__main__")
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("view", names("views"))
def test_every_column_of_a_view_is_described(view: str) -> None:
    described = describe(load("views", view))
    assert described.text.endswith(".")
    assert set(described.columns) <= set(view_types(view))
    assert list(meanings(view)) == list(view_types(view))


@pytest.mark.parametrize("view", shown_views())
def test_every_instant_has_a_timestamp_beside_it(view: str) -> None:
    """`*_ts` and `*_at` are numbers; a person reads the TIMESTAMP."""
    types = view_types(view)
    instants = {
        name
        for name in types
        if types[name] == "BIGINT" and (name.endswith(("_ts", "_at")) or name in ("ts", "at"))
    }
    wanted = {name[:-2] + "time" for name in instants}
    wanted |= {f"{name}_time" for name in ("covers_from", "covers_to") if name in types}
    assert {name for name in wanted if types.get(name) != "TIMESTAMP"} == set()


@pytest.mark.parametrize("query", names("queries"))
def test_every_query_says_what_its_rows_are(query: str) -> None:
    assert describe(load("queries", query)).text


@pytest.mark.parametrize("table", TABLES)
def test_every_column_of_a_table_is_described(table: str) -> None:
    assert all(meanings(f"raw_{table}")[column.name] for column in columns(table))


def test_what_a_comment_says() -> None:
    found = describe(
        "-- Rows: all.\n-- a: one thing,\n--   and more\n-- b: another\nSELECT a, b -- c: no\nFROM t"
    )
    assert found.text == "Rows: all."
    assert found.columns == {"a": "one thing, and more", "b": "another"}


def test_parameters_in_order_and_none_in_text() -> None:
    text = "-- not :this\nSELECT ':no' AS a FROM t WHERE b = :to_ts AND c > :source AND d < :to_ts"
    assert parameters(text) == ("to_ts", "source")

"""`lakebackup catalog ddl`. What the statements do: tests/unit/catalog/sql_engine/test_registration.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import Commands

from lakebackup.store.writer import CatalogWriter

DDL = ("catalog", "ddl", "--for")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backups")
    CatalogWriter(None, str(folder)).migrate()
    return folder


@pytest.fixture
def run(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)
    return lambda *words: Commands(capsys).run(*DDL, *words, "--repo", repository)


def test_a_script_is_printed(run: Callable[..., Any], repository: Path) -> None:
    code, script, err = run("spark")
    assert (code, err) == (0, "")
    assert script.startswith(
        f"-- The views of the lakebackup catalog file://{repository}/catalog for Spark.\n"
    )
    assert "CREATE SCHEMA IF NOT EXISTS lakebackup;\n" in script


def test_json_has_the_statements(run: Callable[..., Any]) -> None:
    _, output, _ = run("databricks", "--schema", "main.b", "--at", "abfss://c@a/catalog", "--json")
    result = json.loads(output)
    assert (result["for"], result["schema"], result["address"]) == (
        "databricks",
        "main.b",
        "abfss://c@a/catalog",
    )
    assert result["statements"][0] == "CREATE SCHEMA IF NOT EXISTS main.b"
    assert "LOCATION 'abfss://c@a/catalog/audit'" in result["statements"][1]


def test_a_refresh_only_computes_tables(run: Callable[..., Any]) -> None:
    _, output, _ = run("spark", "--refresh", "--json")
    statements = json.loads(output)["statements"]
    assert len(statements) == 7
    assert all(s.startswith("CREATE OR REPLACE TABLE lakebackup.computed_") for s in statements)
    code, _, err = run("duckdb", "--refresh")
    assert code == 2
    assert "DuckDB has nothing to refresh" in err


def test_a_file_is_new_and_outside_of_the_repository(run: Callable[..., Any], repository: Path) -> None:
    code, output, _ = run("duckdb", "--out", "views.sql", "--json")
    assert (code, json.loads(output)["file"]) == (0, "views.sql")
    assert "delta_scan('" in Path("views.sql").read_text("utf-8")
    code, _, err = run("duckdb", "--out", "views.sql")
    assert code == 6
    assert "views.sql cannot be written" in err
    code, _, err = run("duckdb", "--out", repository / "views.sql")
    assert code == 2
    assert not (repository / "views.sql").exists()


def test_mistakes_have_their_exit_codes(
    run: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("oracle")[0] == 2
    code, _, err = run("spark", "--schema", "a-b")
    assert code == 2
    assert "--schema" in err
    assert Commands(capsys).run(*DDL, "spark", "--repo", tmp_path)[0] == 3

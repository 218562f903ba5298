"""The report's values over an invented catalog, and the command that prints them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.made_up import DAY, FIRST, NASTY, three_months, write_catalog
from tests.support.rows import backup_row, file_row, filled

from lakebackup.errors import EnvironmentProblem
from lakebackup.rows.backups import Position, Scope
from lakebackup.rows.base import Row
from lakebackup.rows.topics import SchemaRecord
from lakebackup.rows.upkeep import Policy
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.query.report import values
from lakebackup_jobs.query.whole_file import write_whole

NOW_MS = FIRST + 89 * DAY + 5 * 3_600_000


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_catalog(folder, three_months())
    return folder


@pytest.fixture(scope="module")
def facts(catalog: Path) -> dict[str, Any]:
    return values.facts(CatalogReader.require(str(catalog)), NOW_MS)


def test_sources_are_listed_worst_first(facts: dict[str, Any]) -> None:
    rows = [
        (row["source"], row["status"], row["backups"], row["topics"], row["lag_ms"], row["has_policy"])
        for row in facts["sources"]
    ]
    assert rows == [
        ("prod", "DAMAGED", 90, 5, 5 * 3_600_000, False),
        ("edge", "UNVERIFIED", 45, 1, NOW_MS - FIRST - 44 * DAY, False),
    ]
    assert (
        facts["verdict"] == "0 of 2 sources are fine; prod has 3 damaged backups and edge was never verified."
    )
    worst = [row["scope"] for row in facts["topics"] if row["gaps"]]
    assert sorted(worst) == ["invoices", "orders", "payments"]


def test_only_scheduled_runs_count_as_missed(tmp_path: Path) -> None:
    """The schedule has working days in the policy's time zone.

    No run came on Tuesday and on Friday, and none was due on Saturday and Sunday.
    """
    monday = 1_780_264_800_000  # 2026-06-01 00:00 in Berlin, 22:00 of the day before in UTC
    end_times = [monday + day * DAY + 9 * 3_600_000 for day in (0, 2, 3)]
    policy = filled(
        Policy, source="prod", at=(monday - DAY) * 1000, incremental_schedule="30 2 * * mon-fri",
        time_zone="Europe/Berlin",
    )  # fmt: skip
    broken = filled(Policy, source="edge", at=(monday - DAY) * 1000, full_schedule="0 0 99 * *")
    backups = [
        backup_row(n, end_ts=end_ts, finished_at=end_ts * 1000) for n, end_ts in enumerate(end_times, 1)
    ]
    writer = CatalogWriter(None, str(tmp_path))
    writer.migrate()
    for rows in ([policy, broken], backups):
        writer.append(rows)
    runs = values.facts(CatalogReader.require(str(tmp_path)), monday + 6 * DAY)["runs"]
    missed = {(row["source"], (row["day_ts"] - monday) / DAY): row["missed"] for row in runs if row["missed"]}
    assert missed == {("prod", 1 + 2 / 24): 1, ("prod", 4 + 2 / 24): 1}


def test_gaps_faults_and_checks_are_reported(facts: dict[str, Any], catalog: Path) -> None:
    gaps = {(row["scope"], row["status"], row["reason"]) for row in facts["gaps"]}
    assert gaps == {
        ("orders", "gap", "purged"),
        ("payments", "gap", "purged"),
        ("invoices", "gap", "damaged"),
        *((scope, "fork", "out_of_sync") for scope in ("orders", "payments", "clicks", "invoices", NASTY)),
    }
    damaged = next(row for row in facts["faults"] if row["reason"] == "damaged")
    assert (damaged["backups"], damaged["path"].split("/")[3]) == (3, "invoices")
    assert [row["kind"] for row in facts["findings"]] == ["bad", "bad", *["note"] * 5]
    assert all(row["command"].endswith(f"--repo {catalog}") for row in facts["findings"])
    (check,) = facts["checks"]
    assert (check["damaged"], check["ok"]) == (1, check["objects"] - 1)


def test_internal_topics_count_only_on_request(tmp_path: Path) -> None:
    """The topic of committed offsets is compacted: no backup has the values that were replaced before it."""
    end_ts = FIRST + 3_600_000
    backup = backup_row(1, start_ts=None, started_at=FIRST * 1000, finished_at=end_ts * 1000, end_ts=end_ts)
    rows: list[Row] = [backup]
    backup_columns: dict[str, Any] = {"backup_id": backup.backup_id}
    for scope in ("orders", "__consumer_offsets", "_schemas"):
        settings = "{}" if scope == "orders" else '{"cleanup.policy": "compact"}'
        rows.append(filled(Scope, **backup_columns, scope=scope, regions=1, settings=settings))
        rows.append(
            filled(Position, **backup_columns, scope=scope, end_position=10, high_position=10, ts=end_ts)
        )
        rows.append(
            file_row(1, scope=scope, path=scope, entries=10 if scope == "orders" else 1, end_position=10)
        )
    rows.append(filled(SchemaRecord, **backup_columns, scope="_schemas", kind="schema"))
    writer = CatalogWriter(None, str(tmp_path))
    writer.migrate()
    for kind in {type(row) for row in rows}:
        writer.append([row for row in rows if type(row) is kind])
    default_facts = values.facts(CatalogReader.require(str(tmp_path)), end_ts)
    assert [row["scope"] for row in default_facts["topics"]] == ["orders"]
    assert [row["scope"] for row in default_facts["internal"]] == ["__consumer_offsets", "_schemas"]
    assert {row["status"] for row in default_facts["spans"]} == {"restorable"}
    internal_facts = values.facts(CatalogReader.require(str(tmp_path)), end_ts, internal=True)
    assert {row["scope"] for row in internal_facts["topics"]} == {"orders", "__consumer_offsets", "_schemas"}
    assert internal_facts["internal"] == []
    assert {row["status"] for row in internal_facts["spans"]} == {"restorable", "approximate"}
    assert {row["scope"] for row in internal_facts["gaps"]} == {"__consumer_offsets", "_schemas"}


def test_charts_get_a_bounded_number_of_rows(facts: dict[str, Any]) -> None:
    assert len(facts["runs"]) == 90 + 45
    assert sum(row["failed"] for row in facts["runs"]) == 5
    assert len(facts["growth"]) == 135
    prod = [(row["status"], row["scopes"]) for row in facts["spans"] if row["source"] == "prod"]
    assert sorted(prod) == [
        ("fork", 5), ("gap", 1), ("gap", 2), ("pruned", 1), ("restorable", 5), ("restorable", 5),
    ]  # fmt: skip
    assert {row["status"] for row in facts["intervals"]} == {"restorable", "gap", "fork", "pruned"}


@pytest.mark.long
def test_nothing_is_bad_when_nothing_is_missing(tmp_path: Path) -> None:
    rows = [row for row in three_months() if getattr(row, "source", "") != "prod"]
    write_catalog(tmp_path, [row for row in rows if type(row).__name__ not in ("Check", "Removal", "Floor")])
    report_facts = values.facts(CatalogReader.require(str(tmp_path)), NOW_MS)
    assert {row["kind"] for row in report_facts["findings"]} == {"note"}
    assert any("never verified" in row["text"] for row in report_facts["findings"])


def test_a_catalog_without_backups(tmp_path: Path) -> None:
    write_catalog(tmp_path, [row for row in three_months() if type(row).__name__ == "Migration"])
    report_facts = values.facts(CatalogReader.require(str(tmp_path)), NOW_MS)
    assert (report_facts["findings"], report_facts["verdict"]) == ([], "Nothing is backed up yet.")


def test_the_command_prints_the_report(catalog: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--repo", str(catalog)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    for part in ("restorable until", "purged", "invoices", "DAMAGED", "2026-11-22 03:00:00 UTC", "690.8 MB"):
        assert part in captured.out


def test_the_command_needs_no_java(catalog: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakebackup_jobs", "report", "--repo", str(catalog), "--json"]
    command += ["--html", str(tmp_path / "report.html")]
    env = {"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}  # without Java
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)
    assert (result.returncode, result.stderr) == (0, "")
    facts = json.loads(result.stdout)
    assert {row["source"] for row in facts["storage"]} == {"edge", "prod"}
    assert facts["verdict"] in (tmp_path / "report.html").read_text("utf-8")


def test_the_page_and_its_charts_need_no_pandas_and_no_arrow() -> None:
    """This is about their own imports. The catalog's reader has others."""
    text = (
        "import sys; from lakebackup_jobs.query import charts; charts.script()\n"
        "from lakebackup_jobs.query.report import page\n"
        "print([name for name in ('pandas', 'pyarrow', 'numpy', 'pyspark') if name in sys.modules])"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, env=env
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="No such file"):
        write_whole("", tmp_path / "nowhere" / "report.html", "The report")


def test_a_file_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(EnvironmentProblem, match="Is a directory"):
        write_whole("text", tmp_path / "report.html", "The report")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]

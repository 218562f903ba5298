"""`policy`, `hold`, `due`, `catalog break-lease` at the command line, over real tables, without Java."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.catalogs import backup_id
from tests.support.command_line import Commands, result_rows
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.rows.backups import Backup, Scope
from lakebackup.rows.upkeep import Drill, Hold, Migration, Policy
from lakebackup.rules import schedule
from lakebackup.rules.patterns import select
from lakebackup.sql_engine import clock_at
from lakebackup.sql_engine.delta.ddl import make_table
from lakebackup.sql_engine.delta.table import append
from lakebackup.storage import open_storage
from lakebackup.store.lease import Lease, is_held
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli import main
from lakebackup_jobs.topics.announce import record_unprotected
from lakebackup_jobs.upkeep import policies
from lakebackup_jobs.upkeep.next_run import next_run
from lakebackup_sql import names

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full and a differential of long ago, and two fulls of today."""
    backups = MadeBackups(tmp_path_factory.mktemp("made"))
    now_ms = time.time_ns() // 1_000_000
    for number, (full, end_ts) in enumerate(
        ((True, 1000), (False, 2000), (True, now_ms - 2), (True, now_ms - 1))
    ):
        backups.backup([[Record(0, number)]], full=full, end_ts=end_ts)
    backups.flush()
    return backups.folder


@pytest.fixture
def root(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    return shutil.copytree(template, tmp_path / "backups")


def statuses(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    rows = result_rows(capsys, "sql", "SELECT status, reason FROM obsolete_backups ORDER BY number")
    return [(row["status"], row["reason"]) for row in rows]


def test_a_policy_is_set_changed_and_removed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {status for status, _ in statuses(capsys)} == {"VALID"}
    set_policy = ["policy", "set", "orders", "--full", "weekly  sun 02:00", "--incr", "hourly"]
    result_rows(capsys, *set_policy, "--window", "14d")
    (row,) = result_rows(capsys, "policy", "show")
    assert (row["source"], row["full_schedule"], row["window_days"], row["redundancy"]) == (
        "prod", "weekly sun 02:00", 14, None,
    )  # fmt: skip
    # The newest full before the window, and the newest point before it.
    assert [status for status, _ in statuses(capsys)] == ["VALID"] * 4
    result_rows(
        capsys, "policy", "set", "prod", "--window", "none", "--redundancy", "1", "--incr-mode", "accu"
    )
    (row,) = result_rows(capsys, "policy", "show", "prod")
    assert (row["window_days"], row["redundancy"], row["incremental_kind"]) == (None, 1, "cumulative")
    assert row["incremental_schedule"] == "hourly"
    assert statuses(capsys) == [("OBSOLETE", "redundancy")] * 3 + [("VALID", "redundancy")]
    (report,) = result_rows(capsys, "prune")
    assert [b["backup_id"] for b in report["backups"]] == [backup_id(number) for number in (3, 2, 1)]
    result_rows(capsys, "hold", backup_id(2), "--forever", "--reason", "law")
    assert statuses(capsys)[:3] == [("VALID", "needed"), ("KEEP", "held"), ("OBSOLETE", "redundancy")]
    result_rows(capsys, "hold", backup_id(2), "--release", "--reason", "over")
    assert statuses(capsys)[1] == ("OBSOLETE", "redundancy")
    result_rows(capsys, "policy", "remove", "prod")
    assert result_rows(capsys, "policy", "show") == []
    assert {status for status, _ in statuses(capsys)} == {"VALID"}
    # The destination has an entry of each change too.
    log = [json.loads(entry.read_text()) for entry in sorted((root / "audit").iterdir())]
    assert [entry["action"] for entry in log] == ["set_policy", "set_policy", "hold", "hold", "set_policy"]


def due_topics(capsys: pytest.CaptureFixture[str]) -> list[str]:
    (result,) = result_rows(capsys, "due")
    words = shlex.split(result["due"][0]["command"])
    return [word for flag, word in pairwise(words) if flag == "--pattern"]


def test_a_policy_owns_topics(old: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    """It owns new topics that its patterns match.

    Without patterns it owns the topics of any backup, so that a recreated topic is backed up again.
    """
    result_rows(capsys, "policy", "set", "prod", "--full", "hourly")
    add_backup(old, full=False, end_ts=2)
    old.flush()
    assert due_topics(capsys) == [r"app\.one|orders"]
    (row,) = result_rows(capsys, "policy", "set", "prod", "--pattern", "app\\..*", "--pattern", "pay")
    assert row["patterns"] == ["app\\..*", "pay"]
    assert due_topics(capsys) == ["app\\..*", "pay"]
    result_rows(capsys, "policy", "set", "prod", "--window", "7d")
    assert due_topics(capsys) == ["app\\..*", "pay"]
    (error,) = result_rows(capsys, "policy", "set", "prod", "--pattern", "(", code=2)
    assert "'('" in error["message"]
    result_rows(capsys, "policy", "set", "prod", "--pattern", "none")
    assert due_topics(capsys) == [r"app\.one|orders"]


def test_unprotected_topics_are_recorded(old: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    def record_topics(*existing: str, backed_up: str = "orders") -> list[str]:
        reader = CatalogReader(str(old.folder))
        writer = CatalogWriter(None, str(old.folder))
        return record_unprotected(reader, writer, "prod", ["orders", "__x", *existing], [backed_up])

    def unprotected() -> list[str]:
        return [
            row["scope"]
            for row in result_rows(capsys, "sql", "SELECT scope FROM unprotected_topics ORDER BY 1")
        ]

    assert record_topics("new", "pay", "app.one") == ["new", "pay"] == unprotected()
    result_rows(capsys, "policy", "set", "prod", "--pattern", "p.*", "--redundancy", "2")
    assert record_topics("new", "pay") == ["new"] == unprotected()
    assert record_topics("new", "pay") == ["new"]
    assert record_topics("new", backed_up="new") == [] == unprotected()


def test_a_catalog_without_the_newer_tables_is_read_and_brought_up_to_date(
    old: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = old.folder / "catalog"
    for table in ("policy_topics", "topics_seen", "migrations"):
        shutil.rmtree(catalog / table)
    make_table(open_storage(str(catalog)), "migrations")
    append(open_storage(str(catalog)), "migrations", [Migration(version=1, name="a", applied_at=1)], "m")
    assert result_rows(capsys, "policy", "show") == []
    assert result_rows(capsys, "sql", "SELECT * FROM unprotected_topics") == []
    result_rows(capsys, "policy", "set", "prod", "--pattern", "app", "--redundancy", "1")
    (row,) = result_rows(capsys, "policy", "show")
    newest = len(names("migrations"))
    assert (row["patterns"], CatalogReader(str(old.folder)).version()) == ('["app"]', newest)
    # A lost table is not one that a newer version adds.
    shutil.rmtree(catalog / "policy_topics")
    (error,) = result_rows(capsys, "policy", "show", code=3)
    assert "There is no table at" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("policy", "set", "prod"), 2, "Nothing to change"),
        (("policy", "set", "nobody", "--redundancy", "1"), 3, "no source or topic 'nobody'"),
        (("policy", "set", "prod", "--full", "often"), 2, "'often' is not a schedule"),
        (("policy", "set", "prod", "--window", "36h"), 2, "'36h' is not a whole number of days"),
        (
            ("policy", "set", "prod", "--window", "2000000000d"),
            2,
            "--window '2000000000d' is longer than 100",
        ),
        (("policy", "set", "prod", "--full", " "), 2, "--full is empty"),
        (("policy", "set", "prod", "--time-zone", ""), 2, "--time-zone is empty"),
        (("policy", "set", "prod", "--command", ""), 2, "--command '' does not begin with queue or snapshot"),
        (("policy", "set", "prod", "--incr", "every 36501d"), 2, "--incr 'every 36501d' is longer than 100"),
        (("policy", "set", "prod", "--keep-last", "1000001"), 2, "--keep-last must be at most"),
        (("policy", "set", "prod", "--redundancy", "1000001"), 2, "--redundancy must be at most"),
        (
            ("policy", "set", "prod", "--min-redundancy", "1000001"),
            2,
            "--min-redundancy must be at most",
        ),
        (("policy", "set", "prod", "--level", "1000001"), 2, "--level must be at most"),
        (("prune", "36501"), 2, "The recovery window of 36501 days is longer than 100 years"),
        (("drill", "--seed", str(2**63)), 2, "--seed must be at most"),
        (
            ("hold", backup_id(1), "--until", "99999999999999999", "--reason", "x"),
            2,
            "--until '99999999999999999' lies beyond the year 9999.",
        ),
        (("policy", "set", "prod", "--drill", "0 0 31 2 *"), 2, "is not a schedule: Bad day-of-month"),
        (
            ("policy", "set", "prod", "--time-zone", "Mars/Base"),
            2,
            "--time-zone 'Mars/Base' is not a time zone",
        ),
        (
            ("policy", "set", "prod", "--time-zone", "localtime"),
            2,
            "--time-zone 'localtime' is not a time zone",
        ),
        (("policy", "set", "../x", "--command", "snapshot /x"), 2, "'../x' cannot be the name of a source"),
        (("policy", "set", "new", "--command", "topics a"), 2, "does not begin with queue or snapshot"),
        (("policy", "set", "new", "--command", "snapshot '/x"), 2, "cannot be read: No closing quotation"),
        (("policy", "set", "new", "--command", "snapshot /x --mdoe full"), 2, "has no flag --mdoe"),
        (("policy", "set", "new", "--command", "snapshot /x --mode full"), 2, "has --mode, which a due run"),
        (("policy", "set", "new", "--command", "snapshot /x --source y"), 2, "has --source, which a due run"),
        (("policy", "set", "new", "--command", "queue other --pattern q"), 2, "the policy is of new"),
        (
            ("policy", "set", "prod", "--command", "snapshot /x"),
            2,
            "does not go with the other backups of prod",
        ),
        (("policy", "remove", "prod"), 3, "prod has no policy"),
        (("policy", "show", "nosuch"), 3, "There is no source 'nosuch'."),
        (("due", "--source", "nosuch"), 3, "There is no source 'nosuch'."),
        (("due", "--run", "--source", "nosuch"), 3, "There is no source 'nosuch'."),
        (("due", "--run", "--source", "prod"), 3, "No policy says when prod is backed up."),
        (("hold", "2026", "--reason", "x"), 2, "Missing --until, --forever or --release"),
        (("hold", backup_id(1), "--until", "-2h", "--reason", "x"), 2, "is past"),
        (("hold", backup_id(1), "--release", "--reason", "x"), 3, "is not held"),
        (
            ("catalog", "break-lease", "source-prod", "--reason", "x"),
            3,
            "No run holds the lease 'source-prod'",
        ),
    ],
)
def test_impossible_commands_are_reported(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, text: str
) -> None:
    (error,) = result_rows(capsys, *arguments, code=code)
    assert text in error["message"]
    assert not (root / "audit").exists()


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeBackups:
    """A full of 1970 of the topics orders and app.one. Everything else is as in `root`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBACKUP_REPO", str(tmp_path / "backups"))
    backups = MadeBackups(tmp_path / "backups")
    add_backup(backups, "app.one", "__internal", "__consumer_offsets", full=True, end_ts=1)
    backups.flush()
    return backups


def add_backup(backups: MadeBackups, *topics: str, **changes: Any) -> str:
    """Add a backup of orders and of these topics; returns its id."""
    name = backups.backup([[Record(0, backups.number)]], **changes)
    for topic in topics:
        backups.add(
            filled(Scope, backup_id=name, source=backups.source, scope=topic, epoch=topic.encode().hex())
        )
    return name


def test_due_runs_follow_the_schedules(old: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    assert result_rows(capsys, "due")[0]["due"] == []
    assert main(["due"]) == 0
    assert capsys.readouterr().out == "Nothing is due.\n"
    assert main(["due", "--run"]) == 0  # from cron, which mails what is printed
    assert capsys.readouterr().out == ""
    result_rows(
        capsys, "policy", "set", "prod", "--full", "weekly sun 02:00", "--incr", "hourly", "--level", "2"
    )

    def due_at(now_ms: int) -> list[policies.Due]:
        return policies.due(old.reader(), None, now_ms)

    # A full that is due counts as the incremental too.
    (full,) = due_at(8 * 86_400_000)
    assert (full.run, full.due_ts) == ("full", 3 * 86_400_000 + 2 * HOUR_MS)
    topics = ("__internal", "--pattern", r"app\.one|orders")
    assert full.command == ("backup", "topics", *topics, "--source", "prod", "--mode", "full")
    (hourly,) = due_at(90 * 60_000)
    assert (hourly.run, hourly.due_ts) == ("incremental", HOUR_MS)
    assert hourly.command[7:] == ("--mode", "incr-diff", "--level", "2")
    assert due_at(30 * 60_000) == []
    first = {"source": "prod", "run": "incremental", "due_ts": HOUR_MS, "now_ts": 30 * 60_000}
    assert next_run(old.reader(), None, 30 * 60_000) == first
    (missed, often) = result_rows(capsys, "sql", "SELECT run, missed, lag_ms FROM missed_runs ORDER BY run")
    assert (missed["run"], often["run"]) == ("full", "incremental")
    assert 0 < missed["missed"] < often["missed"]
    assert 0 < often["lag_ms"] <= missed["lag_ms"]


def test_a_source_with_a_schedule_or_a_backup_is_known(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert result_rows(capsys, "policy", "show", "prod") == []
    result_rows(capsys, "policy", "set", "new", "--command", "snapshot /x", "--drill", "weekly")
    assert result_rows(capsys, "due", "--source", "new")[0]["due"] == []  # no drill before its first backup
    result_rows(capsys, "policy", "set", "new", "--drill", "none")
    (error,) = result_rows(capsys, "due", "--source", "new", code=3)
    assert error["hint"] == "Set it: lakebackup policy set new --full WHEN"


def test_a_policy_that_an_older_version_took_stops_no_other_and_can_be_repaired(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = 99_999_999_999 * 24 * HOUR_MS
    writer = CatalogWriter(None, str(root))
    writer.record(
        filled(
            Policy, source="blank", at=1, full_schedule="", drill_schedule="", command='["snapshot", "/x"]'
        )
    )
    writer.record(
        filled(
            Policy,
            source="far",
            at=1,
            incremental_schedule="every 99999999999d",
            incremental_every_ms=far,
            window_days=2_000_000_000,
        )
    )
    writer.record(filled(Hold, backup_id=backup_id(1), source="prod", at=1, until_ts=99_999_999_999_999_999))
    result_rows(capsys, "policy", "set", "prod", "--full", "every 900d")
    assert [row["until_time"] for row in result_rows(capsys, "sql", "SELECT until_time FROM holds")] == [None]
    assert result_rows(capsys, "sql", "SELECT source FROM status WHERE source = 'prod'")
    code, output, err = Commands(capsys).run("due", "--json")
    assert code == 2, err
    assert [due_run["source"] for due_run in json.loads(output)["due"]] == []
    assert "The policy of blank cannot be read: --full '' is not a schedule." in err
    assert "The policy of far cannot be read: --incr 'every 99999999999d' is longer than 100 years." in err
    assert "lakebackup policy set blank --full WHEN" in err
    (error,) = result_rows(capsys, "policy", "set", "far", "--note", "x", code=2)
    assert error["message"].startswith("--incr 'every 99999999999d' is longer")
    (row,) = result_rows(capsys, "policy", "set", "far", "--incr", "none", "--window", "none")
    assert (row["incremental_schedule"], row["window_days"]) == (None, None)
    result_rows(capsys, "policy", "remove", "blank")
    assert result_rows(capsys, "due")[0]["due"] == []


def test_due_runs_that_fail_with_one_code_end_with_it(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Busy (8) is no failure for a scheduler."""
    for name in ("db", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "000001.sst").write_bytes(b"rows")
        command = ("--command", f"snapshot {tmp_path / name}", "--full", "hourly")
        result_rows(capsys, "policy", "set", name, *command)
    storage = open_storage(str(root))
    with Lease.acquire(storage, "source-db", "another"):
        with Lease.acquire(storage, "source-other", "another"):
            error = result_rows(capsys, "due", "--run", code=8)[-1]
            assert error["message"] == "What was due of db, other failed."
        (tmp_path / "other").rename(tmp_path / "gone")
        assert result_rows(capsys, "due", "--run", code=4)[-1]["error"] == "Incomplete"
        (tmp_path / "gone").rename(tmp_path / "other")
        error = result_rows(capsys, "due", "--run", code=8)[-1]
        assert error["message"] == "What was due of db failed."


def test_ctrl_c_in_one_run_ends_all_that_is_due(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[object] = []

    def interrupted(*args: object, **_: object) -> None:
        started.append(args)
        raise KeyboardInterrupt  # no signal: its handler cancels what Spark runs for other tests

    monkeypatch.setattr("lakebackup_jobs.cli.backup.snapshot.run", interrupted)
    monkeypatch.setattr("lakebackup_jobs.cli.end_spark", lambda: None)
    for name in ("db", "other"):
        (tmp_path / name).mkdir()
        result_rows(
            capsys, "policy", "set", name, "--command", f"snapshot {tmp_path / name}", "--full", "hourly"
        )
    assert result_rows(capsys, "due", "--run", code=130)[-1]["error"] == "Interrupted"
    assert len(started) == 1


def test_topics_that_are_gone_and_a_compaction_leave_the_others_due(old: MadeBackups) -> None:
    add_backup(old, "app.one", end_ts=2)
    old.backup([[Record(0, 7)]], end_ts=2, generation=1)  # a compaction of orders alone
    flags = policies._topics(old.reader(), "prod", None)
    assert flags == ["--pattern", r"app\.one|orders"]
    assert select([], flags[1:], ["orders", "app-one", "orders2"]) == ["orders"]


def test_a_source_that_another_program_backs_up_has_no_schedule(
    old: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    old.source = "shop"
    old.backup([[Record(0, 0)]], full=True, topic="default")
    (row,) = (row for row in old._rows["backups"] if isinstance(row, Backup))
    old._rows["backups"] = [replace(row, source_kind="couchbase")]
    old.flush()
    (error,) = result_rows(capsys, "policy", "set", "shop", "--incr", "hourly", code=2)
    assert "made by another program (couchbase)" in error["message"]
    result_rows(capsys, "policy", "set", "shop", "--redundancy", "1")


def test_keep_rules_and_times_are_those_of_a_time_zone(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ("--keep-daily", "1", "--keep-last", "1", "--drill", "30 2 * * sun")
    (row,) = result_rows(
        capsys, "policy", "set", "prod", *rules, "--full", "daily 02:30", "--time-zone", "Europe/Berlin"
    )
    assert (row["full_every_ms"], row["drill_every_ms"]) == (25 * HOUR_MS, (7 * 24 + 1) * HOUR_MS)
    (row,) = result_rows(capsys, "policy", "show", "prod")
    assert (row["keep"], row["time_zone"], row["drill_schedule"]) == (
        "last 1, daily 1", "Europe/Berlin", "30 2 * * sun",
    )  # fmt: skip
    assert statuses(capsys) == [("OBSOLETE", "rules")] * 3 + [("VALID", "last")]
    (row,) = result_rows(capsys, "policy", "set", "prod", "--keep-last", "0", "--time-zone", "none")
    assert (row["keep_last"], row["keep_daily"], row["full_every_ms"]) == (None, 1, 24 * HOUR_MS)
    result_rows(capsys, "policy", "set", "prod", "--keep-daily", "0", "--keep-differentials", "1")
    assert (
        statuses(capsys)
        == [("VALID", "redundancy"), ("OBSOLETE", "redundancy")] + [("VALID", "redundancy")] * 2
    )


def test_a_folder_and_an_engine_belong_to_a_policy(
    old: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They belong to it before their first backup. A due run backs them up with the flags of their kind."""
    (tmp_path / "db").mkdir()
    (tmp_path / "db/000001.sst").write_bytes(b"rows")
    command = f"snapshot {tmp_path}/db --pack-below 0"
    (row,) = result_rows(capsys, "policy", "set", "store", "--command", command, "--incr", "30 2 1 1 *")
    assert row["command"] == shlex.split(command)
    queue = "queue social --pattern 'delta\\..*' --snapshot-folder /data/snap"
    result_rows(capsys, "policy", "set", "social", "--command", queue, "--full", "weekly", "--incr", "hourly")
    due_by_source = {due_run["source"]: due_run for due_run in result_rows(capsys, "due")[0]["due"]}
    assert due_by_source["social"]["command"] == f"backup {queue} --mode full"
    assert (due_by_source["store"]["run"], due_by_source["store"]["lag_ms"]) == ("full", None)
    assert due_by_source["store"]["command"] == f"backup {command} --source store --mode full"
    result_rows(capsys, "policy", "remove", "social")
    for backup_count in (1, 0):  # the second is not due yet
        results = result_rows(capsys, "due", "--run", "--source", "store", "--bootstrap-server", "none:1")
        assert len([row for row in results[1:] if row.get("backup_id")]) == backup_count, results
    (row,) = result_rows(capsys, "sql", "SELECT status FROM status WHERE source = 'store'")
    assert row["status"] == "UNVERIFIED"
    (error,) = result_rows(capsys, "policy", "set", "store", "--pattern", "x", code=2)
    assert "does not go with" in error["message"]
    (error,) = result_rows(capsys, "policy", "set", "store", "--command", "none", code=2)
    assert error["message"] == "The policy of store does not say what to back up."


def test_paths_of_a_policy_hold_in_every_folder(
    old: MadeBackups, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """cron starts a due run in the account's home."""
    (tmp_path / "db").mkdir()
    (tmp_path / "db/000001.sst").write_bytes(b"rows")
    result_rows(capsys, "policy", "set", "store", "--command", "snapshot db", "--incr", "hourly")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    results = result_rows(capsys, "due", "--run", "--source", "store")
    assert results[0]["due"][0]["command"] == f"backup snapshot {tmp_path}/db --source store --mode full"
    assert [row["files"] for row in results if row.get("backup_id")] == [1]


@pytest.mark.parametrize(
    ("source", "command", "stored_command"),
    [
        (
            "store",
            "snapshot a --find-same s3://c/d --sidecar meta=e --note a --sidecar=schema=/f",
            "snapshot {0}/a s3://c/d --sidecar meta={0}/e --sidecar schema=/f --find-same --note a",
        ),
        (
            "social",
            "queue --pattern a social --snapshot-folder a --engine-config=a",
            "queue social --pattern a --snapshot-folder {0}/a --engine-config {0}/a",
        ),
    ],
)
@pytest.mark.usefixtures("root")
def test_a_policy_stores_absolute_paths(
    source: str, command: str, stored_command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = result_rows(capsys, "policy", "set", source, "--command", command)
    assert row["command"] == stored_command.format(tmp_path).split()


def test_a_drill_is_due_once_for_each_time_of_its_schedule(
    old: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    result_rows(capsys, "policy", "set", "prod", "--drill", "weekly sun 02:00")
    (policy,) = old.reader().rows("policy_runs", source=None)
    assert result_rows(capsys, "due")[0]["due"] == []
    later = policy["last_ts"] + 7 * 24 * HOUR_MS
    (due_run,) = policies.due(old.reader(), None, later)
    assert (due_run.run, due_run.command, due_run.missed) == ("drill", ("drill", "prod"), 1)
    due_ts = schedule.parse("weekly sun 02:00").next(policy["last_ts"])
    assert due_run.due_ts == due_ts
    old.add(filled(Drill, source="prod", at=1000 * due_ts, outcome="failed"))
    old.flush()
    reader = old.reader().with_rows(
        "clock", clock_at(later)
    )  # by the real clock, the drill is from the future
    assert policies.due(reader, None, later) == []


def test_of_a_change_feed_a_full_can_be_due(old: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    old.source = "shop"
    old.backup([[Record(0, 0)]], full=True, end_ts=5)
    (row,) = (row for row in old._rows["backups"] if isinstance(row, Backup))
    old._rows["backups"] = [replace(row, source_kind="changes")]
    old.flush()
    result_rows(capsys, "policy", "set", "shop", "--full", "daily")
    (due_run,) = result_rows(capsys, "due")[0]["due"]
    assert due_run["command"] == "log snapshot shop"
    for flags, text in ((("--incr", "hourly"), "no incremental"), (("--keep-daily", "1"), "from a time on")):
        (error,) = result_rows(capsys, "policy", "set", "shop", *flags, code=2)
        assert text in error["message"]


def test_changes_count_although_the_clock_was_set_back(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hold was released and a policy was set while the clock was a day ahead."""
    ahead = time.time_ns() + 86_400_000_000_000
    hold = ["hold", backup_id(2), "--reason", "law"]
    with monkeypatch.context() as early:
        early.setattr(time, "time_ns", lambda: ahead)
        result_rows(capsys, *hold, "--forever")
        result_rows(capsys, *hold, "--release")
        result_rows(capsys, "policy", "set", "prod", "--redundancy", "1")
    result_rows(capsys, *hold, "--forever")
    assert [row["backup_id"] for row in result_rows(capsys, "sql", "SELECT backup_id FROM holds")] == [
        backup_id(2)
    ]
    result_rows(capsys, "policy", "set", "prod", "--redundancy", "3")
    (row,) = result_rows(capsys, "policy", "show", "prod")
    assert row["redundancy"] == 3
    result_rows(capsys, "policy", "remove", "prod")
    assert result_rows(capsys, "policy", "show") == []


def test_a_hold_waits_for_no_prune_that_is_at_work(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Lease.acquire(open_storage(str(root)), "source-prod", "a prune"):
        (error,) = result_rows(capsys, "hold", backup_id(1), "--forever", "--reason", "law", code=8)
        assert "source-prod is in use by a prune" in error["message"]
    result_rows(capsys, "hold", backup_id(1), "--forever", "--reason", "law")
    with Lease.acquire(open_storage(str(root)), "source-prod", "a prune"):
        result_rows(capsys, "hold", backup_id(1), "--release", "--reason", "over")


def test_a_lease_is_broken_with_a_reason(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = open_storage(str(root))
    with Lease.acquire(storage, "source-prod", "dead", ttl_s=600):
        (broken_lease,) = result_rows(
            capsys, "catalog", "break-lease", "source-prod", "--reason", "its machine is gone"
        )
        assert broken_lease["holder"] == "dead"
        assert not is_held(storage, "source-prod")
    (entry,) = result_rows(capsys, "sql", "SELECT action, subject, detail FROM audit")
    assert (entry["action"], entry["subject"]) == ("break_lease", "source-prod")
    assert json.loads(entry["detail"])["reason"] == "its machine is gone"


def test_manage_is_another_name_of_prune(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (report,) = result_rows(capsys, "manage", "--prune", "7", str(root))
    assert report == result_rows(capsys, "prune", "7", "--repo", str(root))[0]
    assert [b["reason"] for b in report["backups"]] == []
    (items_report,) = result_rows(capsys, "manage", "--report", str(root))
    assert [(row["scope"], row["chains"], row["files"], row["items"]) for row in items_report["items"]] == [
        ("orders", 3, 4, 4)
    ]
    assert [(row["base"], row["backups"], row["obsolete"]) for row in items_report["kept"]] == [
        (backup_id(4), 1, 0), (backup_id(3), 1, 0), (backup_id(1), 2, 0),
    ]  # fmt: skip
    (error,) = result_rows(capsys, "manage", "--report", "--delete", code=2)
    assert error["message"] == "--delete needs --prune."
    assert main(["manage"]) == 2


def test_manage_passes_on_the_source_and_the_catalog(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backups = MadeBackups(tmp_path / "here")
    backups.backup([[Record(0, 0)]])
    backups.flush()
    catalog = (tmp_path / "here" / "catalog").rename(tmp_path / "catalog")

    def manage(*arguments: str, code: int = 0) -> dict[str, Any]:
        (result,) = result_rows(capsys, "manage", *arguments, code=code)
        return result

    repo_flags = (str(backups.folder), "--catalog", str(catalog))
    assert manage("--prune", "7", *repo_flags, "--source", "prod")["source"] == "prod"
    assert "nobody" in manage("--prune", "7", *repo_flags, "--source", "nobody", code=3)["message"]
    assert manage("--prune", "7", str(backups.folder), code=3)["hint"]
    assert "every source" in manage("--report", *repo_flags, "--source", "prod", code=2)["message"]
    assert "--merge LEVEL" in manage(*repo_flags, code=2)["hint"]

"""Each finding has a sentence that says what is wrong and a command that the command line accepts."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from lakebackup_jobs.cli import main
from lakebackup_jobs.query.report.findings import findings, state_words, troubles, verdict

HOUR = 3_600_000
SOURCE: dict[str, Any] = {
    "source": "orders", "source_kind": "kafka", "status": "OK", "late_ms": None, "unreadable": False,
    "damaged": 0, "unprotected": 0, "lost": 0, "backup_id": "b9", "restorable_ts": 1000, "verified_at": 1,
    "future": 0,
    "topics": 2, "has_policy": True,
    "patterns": None, "command": None, "failed_runs": 0, "failed_run": None,
    "failure": None, "drill_outcome": None, "drill_backup_id": None, "drill_failure": None,
    "drill_late_ms": None, "full_schedule": None, "incremental_schedule": None, "window_days": None,
    "redundancy": None, "keep": None,
}  # fmt: skip
FAULT: dict[str, Any] = {
    "source": "orders", "reason": "damaged", "fault_backup_id": "b3", "fault_state": "complete",
    "path": "a/b.avro", "backups": 3, "to_ts": 2000, "all_rows": 1,
}  # fmt: skip
GAP: dict[str, Any] = {
    "source": "orders",
    "scope": "carts",
    "status": "gap",
    "reason": "purged",
    "all_rows": 1,
}
UNUSABLE = "3 backups of orders cannot be restored, or only in part: a/b.avro is damaged."
DAMAGED = f"{UNUSABLE} Take a new full backup."
UNCONFIRMED = (
    "3 backups of orders cannot be restored, or only in part: b3 is unconfirmed. "
    "Newer backups can be restored."
)
PURGED = (
    "Topic carts of orders: 2 time spans cannot be restored, because Kafka deleted the records before a "
    "backup read them. Run backups more often than the topic's retention."
)
FORKED = (
    "Topic carts of orders: 1 time span is from a history that the source no longer has. "
    "A restore brings back the history that continued."
)
FOLDER = " Replace FOLDER with the folder of its data."
RECREATED = GAP | {"reason": "recreated"}
AT_LEAST = (
    "Topics a and b of orders: at least 2 time spans cannot be restored "
    "(the topic was deleted and recreated)."
)
TWICE = (
    "The last run of orders failed: E: x. 3 runs have failed since the last good one. "
    "A run has been due for 2 h."
)
MANY = (
    "0 of 5 sources are fine; orders has nothing that can be restored, orders has 1 topic without a backup, "
    "orders has a log task that paused itself and 2 other sources need attention too."
)
REPO_FLAGS = ["--repo", "/srv/it's here"]


def report_values(*sources: dict[str, Any], **rows: Any) -> dict[str, Any]:
    """The values of a report with these sources; `rows` replaces other values."""
    topics = [
        {"source": "orders", "scope": scope, "present": True, "restorable_ts": 1}
        for scope in ("carts", "orders")
    ]
    unprotected = [{"source": "orders", "scope": scope} for scope in ("orders-x", "payments")]
    defaults = {
        "topics": topics,
        "unprotected": unprotected,
        "kept": [],
        "faults": [],
        "gaps": [],
        "checks": [],
    }
    return defaults | {"sources": [SOURCE | source for source in sources]} | rows


def source_row(status: str, **row: Any) -> dict[str, Any]:
    return SOURCE | {"status": status} | row


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing can be restored": (
        report_values(source_row("UNPROTECTED", backup_id=None, restorable_ts=None, verified_at=None)),
        "No backup of orders can be restored.",
        "backup topics --source orders --mode full carts orders",
    ),
    "nothing is backed up yet, by the policy's own command": (
        report_values(
            source_row(
                "UNPROTECTED",
                source_kind=None,
                backup_id=None,
                restorable_ts=None,
                verified_at=None,
                command='["snapshot", "/data"]',
            )
        ),
        "No backup of orders can be restored.",
        "backup snapshot /data --source orders --mode full",
    ),
    "a topic is lost, of many": (
        report_values(source_row("UNPROTECTED", lost=1, topics=50)),
        "1 topic of orders cannot be restored at all.",
        "backup topics --source orders --mode full --pattern '.*'",
    ),
    "a topic is lost, by its name": (
        report_values(
            source_row("UNPROTECTED", lost=1),
            topics=[
                {"source": "orders", "scope": "carts", "present": True, "restorable_ts": None},
                {"source": "orders", "scope": "orders", "present": True, "restorable_ts": 1},
            ],
        ),
        "Topic carts of orders cannot be restored at all.",
        "backup topics --source orders --mode full carts orders",
    ),
    "topics in no backup, which no schedule would take": (
        report_values(source_row("UNPROTECTED", unprotected=2)),
        "2 topics of orders have no backup (orders-x, payments).",
        "backup topics --source orders --pattern '.*'",
    ),
    "topics in no backup, of a policy with a schedule": (
        report_values(source_row("UNPROTECTED", unprotected=14, incremental_schedule="hourly")),
        "14 topics of orders have no backup (orders-x, payments and 12 more).",
        "policy set orders --pattern '.*'",
    ),
    "backups from the future": (
        report_values(source_row("FUTURE", future=1)),
        "1 backup of orders is from the future.",
        "prune --source orders --future --delete",
    ),
    "damaged, and newer backups are not": (
        report_values(source_row("DAMAGED", restorable_ts=3000, redundancy=1), faults=[FAULT]),
        DAMAGED.replace("Take a new full backup.", "Newer backups can be restored: a prune deletes these."),
        "prune --source orders --delete",
    ),
    "a run is due": (
        report_values(source_row("LATE", late_ms=2 * HOUR)),
        "A run of orders has been due for 2 h.",
        "due --run --source orders",
    ),
    "a run failed": (
        report_values(source_row("FAILED", failed_runs=1, failure="Refused: there is a gap.")),
        "The last run of orders failed: Refused: there is a gap.",
        "backup topics --source orders carts orders",
    ),
    "runs failed, and one is due": (
        report_values(source_row("FAILED", late_ms=2 * HOUR, failed_runs=3, failure="E: x")),
        TWICE,
        "due --run --source orders",
    ),
    "a full of a log failed": (
        report_values(source_row("FAILED", source_kind="changes", failed_runs=1, failure="Busy: x.")),
        "The last run of orders failed: Busy: x.",
        "log snapshot orders",
    ),
    "a prune failed": (
        report_values(source_row("FAILED", failed_runs=1, failed_run="prune", failure="E: x.")),
        "The last prune of orders failed: E: x.",
        """sql "SELECT * FROM failures WHERE source = 'orders'\"""",
    ),
    "an import failed": (
        report_values(source_row("FAILED", source_kind="couchbase", failed_runs=1, failure="E: x.")),
        "The last run of orders failed: E: x.",
        """sql "SELECT * FROM failures WHERE source = 'orders'\"""",
    ),
    "a schedule cannot be read": (
        report_values(source_row("LATE", unreadable=True)),
        "A schedule of orders cannot be read, so it starts no run.",
        "due --source orders",
    ),
    "a log task paused": (
        report_values(source_row("LATE", source_kind="changes")),
        "The log task of orders paused itself.",
        "log resume orders",
    ),
    "a drill found a difference": (
        report_values(
            source_row(
                "DAMAGED", drill_outcome="different", drill_backup_id="b3", drill_failure="2 records differ"
            )
        ),
        "A drill of orders found a difference: 2 records differ.",
        "drill orders --backup b3",
    ),
    "a drill of a backup that was deleted since failed": (
        report_values(source_row("FAILED", drill_outcome="failed", drill_failure="No room.")),
        "A drill of orders failed: No room.",
        "drill orders",
    ),
    "a drill is due": (
        report_values({"drill_late_ms": 2 * HOUR}),
        "A drill of orders has been due for 2 h.",
        "drill orders",
    ),
    "never verified": (
        report_values(source_row("UNVERIFIED", verified_at=None)),
        "The newest backup of orders was never verified, or not with all its files.",
        "verify",
    ),
    "no policy": (
        report_values(source_row("OK", has_policy=False)),
        "orders has no policy: missed runs go unnoticed, and no backup is ever pruned.",
        "policy set orders --full 'weekly sun 02:00' --incr hourly --window 14d",
    ),
    "obsolete": (
        report_values(
            {}, kept=[{"source": "orders", "source_obsolete": 2, "source_obsolete_bytes": 3_000_000}]
        ),
        "2 backups of orders are obsolete and take 3.0 MB.",
        "prune --source orders --delete",
    ),
    "damaged": (
        report_values(source_row("DAMAGED"), faults=[FAULT]),
        DAMAGED,
        "backup topics --source orders --mode full carts orders",
    ),
    "a damaged snapshot": (
        report_values(source_row("DAMAGED", source_kind="snapshot"), faults=[FAULT]),
        DAMAGED + FOLDER,
        "backup snapshot FOLDER --source orders --mode full",
    ),
    "a damaged log": (
        report_values(source_row("DAMAGED", source_kind="changes"), faults=[FAULT]),
        DAMAGED,
        "log snapshot orders",
    ),
    "damaged queues": (
        report_values(source_row("DAMAGED", source_kind="queues"), faults=[FAULT]),
        DAMAGED + FOLDER,
        "backup queue orders --snapshot-folder FOLDER --pattern '.*' --mode full",
    ),
    "damaged, of a policy with patterns": (
        report_values(source_row("DAMAGED", patterns='["app.*", "-x"]'), faults=[FAULT]),
        DAMAGED,
        "backup topics --source orders --mode full --pattern 'app.*' --pattern -x",
    ),
    "a damaged snapshot, of a policy that names it": (
        report_values(
            source_row("DAMAGED", source_kind="snapshot", command='["snapshot", "/data"]'), faults=[FAULT]
        ),
        DAMAGED,
        "backup snapshot /data --source orders --mode full",
    ),
    "damaged queues, of a policy that names them": (
        report_values(
            source_row("DAMAGED", source_kind="queues", command='["queue", "orders", "--pattern", "d.*"]'),
            faults=[FAULT],
        ),
        DAMAGED,
        "backup queue orders --pattern 'd.*' --mode full",
    ),
    "of another program": (
        report_values(source_row("DAMAGED", source_kind="restic"), faults=[FAULT]),
        DAMAGED,
        "sql \"SELECT * FROM unusable_backups WHERE source = 'orders'\"",
    ),
    "unusable, and newer ones are not": (
        report_values(
            {"restorable_ts": 3000},
            faults=[FAULT | {"reason": "chain", "fault_state": "unconfirmed", "path": None}],
        ),
        UNCONFIRMED,
        "sql \"SELECT * FROM unusable_backups WHERE source = 'orders'\"",
    ),
    "purged before a backup": (
        report_values({}, gaps=[GAP, GAP]),
        PURGED,
        "policy set orders --incr hourly",
    ),
    "purged, though backups run every hour": (
        report_values({"incremental_schedule": "hourly"}, gaps=[GAP, GAP]),
        PURGED,
        "sql \"SELECT * FROM coverage WHERE source = 'orders' AND scope = 'carts' AND status = 'gap'\"",
    ),
    "another gap, of more": (
        report_values({}, gaps=[RECREATED | {"scope": scope, "all_rows": 7} for scope in ("a", "b")]),
        AT_LEAST,
        "sql \"SELECT * FROM coverage WHERE source = 'orders' AND status = 'gap'\"",
    ),
    "a fork": (
        report_values({}, gaps=[GAP | {"status": "fork", "reason": "out_of_sync"}]),
        FORKED,
        "sql \"SELECT * FROM coverage WHERE source = 'orders' AND scope = 'carts' AND status = 'fork'\"",
    ),
    "orphans": (
        report_values({}, checks=[{"orphan": 3}]),
        "3 objects in the storage are in no backup.",
        "sql 'SELECT * FROM orphans'",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_finding_has_a_command_that_the_command_line_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    values, text, command = CASES[name]
    (finding,) = findings(values, REPO_FLAGS)
    assert (finding["source"], finding["text"]) == (None if name == "orphans" else "orders", text)
    assert finding["command"] == f'lakebackup {command} --repo "/srv/it\'s here"'
    program, *words = shlex.split(finding["command"])
    assert program == "lakebackup"
    assert main([*words, "--help"]) == 0, capsys.readouterr().err


def test_the_command_line_refuses_an_unknown_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "--nothing", "--help"]) == 2
    assert "--nothing" in capsys.readouterr().err


def test_bad_findings_come_before_notes() -> None:
    sources = [
        source_row("UNVERIFIED", source="a", verified_at=None),
        source_row("LATE", source="b", late_ms=HOUR),
    ]
    assert [row["kind"] for row in findings(report_values(*sources), REPO_FLAGS)] == ["bad", "note"]


def test_a_name_is_quoted_for_a_shell_and_for_sql() -> None:
    rows = findings(
        report_values(
            source_row("DAMAGED", source="a'b $x", source_kind="restic"),
            faults=[FAULT | {"source": "a'b $x"}],
        ),
        [],
    )
    assert shlex.split(rows[0]["command"])[2] == "SELECT * FROM unusable_backups WHERE source = 'a''b $x'"


def test_a_topic_is_quoted_for_sql() -> None:
    (row,) = findings(report_values({}, gaps=[RECREATED | {"scope": "a'b"}]), [])
    assert "scope = 'a''b' AND" in shlex.split(row["command"])[2]


def test_approximate_times_are_no_finding() -> None:
    assert (
        findings(report_values({}, gaps=[GAP | {"status": "approximate", "reason": "compacted"}]), []) == []
    )


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        ([], "Nothing is backed up yet."),
        ([SOURCE], "orders is fine."),
        ([source_row("DAMAGED")], "orders has a drill that found a difference."),
        ([source_row("FAILED")], "orders has a failed drill."),
        ([SOURCE, SOURCE], "All 2 sources are fine."),
        ([source_row("LATE", late_ms=2 * HOUR)], "orders is late by 2 h."),
        (
            [source_row("LATE", late_ms=2 * HOUR), *[SOURCE] * 3],
            "3 of 4 sources are fine; orders is late by 2 h.",
        ),
        (
            [source_row("DAMAGED", damaged=2), source_row("UNVERIFIED", source="edge"), SOURCE],
            "1 of 3 sources is fine; orders has 2 damaged backups and edge was never verified.",
        ),
        (
            [
                source_row("UNPROTECTED", backup_id=None),
                source_row("UNPROTECTED", unprotected=1),
                *[source_row("LATE")] * 3,
            ],
            MANY,
        ),
    ],
)  # fmt: skip
def test_the_verdict_says_which_sources_are_fine(sources: list[dict[str, Any]], sentence: str) -> None:
    assert verdict(sources) == sentence


def test_a_late_source_says_so_where_its_run_is_due() -> None:
    assert state_words(source_row("LATE", late_ms=HOUR)) == state_words(SOURCE) == ""
    assert state_words(source_row("DAMAGED", damaged=1, late_ms=HOUR)) == "1 damaged backup"


def test_status_has_a_line_for_each_trouble() -> None:
    other_sources = [{"source": "nightly"}, {"source": "shop", "status": "UNVERIFIED", "verified_at": None}]
    unprotected = source_row("UNPROTECTED", unprotected=2, incremental_schedule="hourly")
    late = source_row("LATE", source="late", late_ms=2 * HOUR)
    assert troubles(report_values(unprotected, late, *other_sources), []) == [
        (
            "orders is UNPROTECTED: 2 topics have no backup (orders-x, payments). "
            "Fix: lakebackup policy set orders --pattern '.*'"
        ),
        "late is LATE: a run has been due for 2 h. Fix: lakebackup due --run --source late",
        "shop is UNVERIFIED: the newest backup was never verified. Fix: lakebackup verify",
    ]


def test_status_shows_a_repeated_command_once() -> None:
    row = source_row("DAMAGED", lost=1)
    (line,) = troubles(report_values(row, faults=[FAULT]), REPO_FLAGS)
    assert line == (
        f"orders is DAMAGED: {DAMAGED.replace(' of orders', '')} Fix: lakebackup backup topics "
        """--source orders --mode full carts orders --repo "/srv/it's here\""""
    )

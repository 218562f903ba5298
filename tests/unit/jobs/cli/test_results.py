"""What a person reads of a result: sentences and a small table. The keys of `--json` are tested elsewhere."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import pytest

from lakebackup_jobs.cli.output.results import summary

ID, OLD = "20261121T140500Z-00000001", "20261121T130500Z-00000002"
NOON = 1_795_262_700_000  # 2026-11-21 12:05:00 UTC
DRY = "Nothing was written: this was a dry run."


def printed(command: str, values: dict[str, Any], *, wide: bool = False) -> str:
    stream = io.StringIO()
    summary.print_summary(values, stream, command=command, wide=wide)
    return stream.getvalue()


TOPICS: dict[str, Any] = {
    "source": "prod",
    "kind": "full",
    "level": 0,
    "parent": None,
    "topics": 2,
    "partitions": 8,
    "offsets": 120_000,
    "end_ts": NOON,
    "gaps": 0,
    "fork": None,
    "groups": 0,
    "generations": [],
    "open_transactions": [],
    "left_out": [],
}
BACKED_UP = {
    "backup_id": ID,
    **TOPICS,
    "files": 8,
    "bytes": 9_800_000,
    "entries": 120_000,
    "seconds": 3.1,
    "unprotected": 0,
}
SNAPSHOT: dict[str, Any] = {
    "backup_id": ID,
    "source": "archive",
    "snapshot": "",
    "kind": "differential",
    "parent": OLD,
    "end_ts": NOON,
    "files": 40,
    "bytes": 4_000_000,
    "copied": 3,
    "copied_bytes": 300_000,
    "new": 2,
    "changed": 1,
    "again": 0,
    "unchanged": 37,
    "gone": 1,
    "objects": 5,
    "stored_bytes": 310_000,
    "seconds": 0.25,
}
RESTORED: dict[str, Any] = {
    "restore_id": ID,
    "resumed": False,
    "target": "kafka://localhost:9092",
    "source": "prod",
    "from_time": None,
    "to_time": "2026-11-21T14:05:00.000Z",
    "files": 8,
    "bytes": 9_800_000,
    "entries_in_files": 50_100,
    "topics": [
        {
            "topic": "orders",
            "target": "orders-then",
            "backup_id": ID,
            "partitions": 8,
            "files": 8,
            "bytes": 9_800_000,
            "entries": 50_100,
            "reaches": "2026-11-21T14:05:00.000Z",
        }
    ],
    "obstacles": [],
    "entries": 50_000,
    "seconds": 3.1,
}
PAYMENTS = {**RESTORED["topics"][0], "topic": "payments", "target": "payments", "entries": 7}
FOLDER: dict[str, Any] = {
    "resumed": False,
    "source": "archive",
    "backup_id": ID,
    "taken": "2026-11-21T14:05:00.000Z",
    "folder": "/srv/out",
    "of_tables": 1,
    "files": 40,
    "bytes": 4_000_000,
    "not_verifiable": None,
    "written": 40,
    "seconds": 2.0,
    "tables": [
        {
            "table": "archive",
            "tablets": 1,
            "files": 40,
            "bytes": 4_000_000,
            "plain": True,
            "path": "/srv/out/archive",
        }
    ],
}
VERIFIED = {
    "check_id": ID,
    "mode": "hash",
    "objects": 10,
    "ok": 10,
    "missing": 0,
    "changed": 0,
    "damaged": 0,
    "unconfirmed": 0,
    "orphan": 0,
    "filters_lost": 0,
    "findings": [],
    "seconds": 1.7,
}
PRUNED: dict[str, Any] = {
    "deleted": False,
    "source": "prod",
    "files": 0,
    "bytes": 0,
    "of_files": 12,
    "of_bytes": 40_000_000,
    "backups": [],
    "of_backups": 0,
    "topics": [],
    "partitions": [],
    "held": [],
    "bound": 0,
    "left_alone": [],
}
PRUNED_BACKUP = {
    "backup_id": OLD,
    "kind": "full",
    "level": 0,
    "end_ts": NOON,
    "reason": "window",
    "because_of": None,
    "files": 0,
    "bytes": 0,
}
PRUNE_PLAN = {**PRUNED, "files": 3, "bytes": 9_800_000, "backups": [PRUNED_BACKUP], "of_backups": 1}
DUE = {
    "source": "prod",
    "run": "incremental",
    "schedule": "hourly",
    "due_ts": NOON,
    "missed": 1,
    "lag_ms": 3_600_000,
    "command": "backup topics --source prod",
    "unapproved": None,
}
LOG: dict[str, Any] = {
    "source": "shop",
    "from_ts": "0 (1970-01-01T00:00:00.000Z)",
    "to_ts": "9 (2026-11-21T12:05:00.000Z)",
    "full": None,
    "tables": ["sales.orders"],
    "of_tables": 1,
    "files": 3,
    "bytes": 30_000,
    "raw_bytes": 90_000,
    "entries_in_files": 1_000,
    "writes": {},
    "values": {},
    "obstacles": [],
    "target": "delta:/srv/orders",
}

CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "topics": (
        "backup topics",
        BACKED_UP,
        f"Backed up 2 topics of prod: 120,000 records, 9.8 MB in 3.1 s (full backup {ID}).\n",
    ),
    "topics without new records": (
        "backup topics",
        {**BACKED_UP, "kind": "differential", "entries": 0, "bytes": 0},
        f"Backed up 2 topics of prod: nothing was new (differential backup {ID}).\n",
    ),
    "topics, and all that may be said of them": (
        "backup topics",
        {
            **BACKED_UP,
            "gaps": 1,
            "groups": 3,
            "unprotected": 2,
            "open_transactions": ["a", "b"],
            "generations": [{"topic": "carts", "generation": 2, "because": "growth"}],
        },
        (
            f"Backed up 2 topics of prod: 120,000 records, 9.8 MB in 3.1 s (full backup {ID}).\n"
            "The positions of 3 consumer groups are saved too.\n"
            "Read again from the start: carts.\n"
            "1 partition lost records before this backup; the warnings above name them.\n"
            "2 partitions end where a transaction is open; the next backup continues there.\n"
            "2 other topics of prod have no backup; `lakebackup status` names them.\n"
        ),
    ),
    "a plan of topics": (
        "backup topics",
        {"dry_run": True, **TOPICS},
        f"Would take a full backup of 2 topics of prod: 120,000 offsets in 8 partitions. {DRY}\n",
    ),
    "topics that were followed": (
        "backup topics",
        {
            "source": "prod",
            "backups": 12,
            "files": 40,
            "bytes": 98_000,
            "entries": 1_200,
            "last_backup": ID,
            "seconds": 125.0,
        },
        f"Took 12 backups of prod in 2 min 5 s: 1,200 records, 98.0 kB (the last one is backup {ID}).\n",
    ),
    "a snapshot": (
        "backup snapshot",
        SNAPSHOT,
        (
            "Backed up archive: copied 3 of 40 files, 300.0 kB in 0.2 s; 1 file is gone "
            f"(differential backup {ID}).\n"
        ),
    ),
    "a snapshot as before": (
        "backup snapshot",
        {**SNAPSHOT, "copied": 0, "copied_bytes": 0, "gone": 0},
        f"Nothing changed in archive since the last backup: 40 files (differential backup {ID}).\n",
    ),
    "two snapshots": (
        "backup snapshot",
        {
            "source": "yb",
            "backups": [{**SNAPSHOT, "snapshot": "s1"}, {**SNAPSHOT, "snapshot": "s2", "gone": 0}],
        },
        (
            "Backed up 2 snapshots of yb: 6 files, 600.0 kB copied.\n"
            "snapshot  backup                     kind          files  copied      size  gone\n"
            f"s1        {ID}  differential     40       3  300.0 kB     1\n"
            f"s2        {ID}  differential     40       3  300.0 kB     0\n"
        ),
    ),
    "an engine": (
        "backup queue",
        {
            "backup_id": ID,
            "source": "social",
            "kind": "incremental",
            "parent": OLD,
            "restore": None,
            "topics": 3,
            "partitions": 6,
            "offsets": 9,
            "end_ts": NOON,
            "gaps": 0,
            "files": 3,
            "bytes": 2_000,
            "entries": 9,
            "seconds": 1.0,
        },
        f"Backed up social: 3 queues, 9 messages, 2.0 kB in 1.0 s (incremental backup {ID}).\n",
    ),
    "a restored topic": (
        "restore topics",
        RESTORED,
        (
            "Restored orders to orders-then in kafka://localhost:9092: 50,000 records, 9.8 MB in 3.1 s, "
            "as of 2026-11-21 14:05:00 UTC.\n"
        ),
    ),
    "restored topics": (
        "restore topics",
        {**RESTORED, "topics": [*RESTORED["topics"], PAYMENTS], "target": "dir:/srv/out", "resumed": True},
        (
            "Restored 2 topics into /srv/out: 50,000 records, 9.8 MB in 3.1 s, as of "
            "2026-11-21 14:05:00 UTC. This continued an interrupted restore.\n"
            "topic     into         partitions  records    size  up to\n"
            "orders    orders-then           8   50,100  9.8 MB  2026-11-21 14:05:00 UTC\n"
            "payments                        8        7  9.8 MB  2026-11-21 14:05:00 UTC\n"
        ),
    ),
    "a folder": (
        "restore snapshot",
        FOLDER,
        "Restored archive to /srv/out/archive: 40 files, 4.0 MB in 2.0 s, as of 2026-11-21 14:05:00 UTC.\n",
    ),
    "a folder that is there": (
        "restore snapshot",
        {"done_before": True, **FOLDER},
        (
            "Nothing to do: archive is in /srv/out/archive already: 40 files, 4.0 MB, as of "
            "2026-11-21 14:05:00 UTC.\n"
        ),
    ),
    "tables": (
        "restore snapshot",
        {
            **FOLDER,
            "of_tables": 2,
            "dry_run": True,
            "tables": [
                {
                    **FOLDER["tables"][0],
                    "table": name,
                    "plain": False,
                    "tablets": 3,
                    "path": f"/srv/out/{name}",
                }
                for name in ("t1", "t2")
            ],
        },
        (
            "Would restore archive to /srv/out: 2 tables, 40 files, 4.0 MB, as of 2026-11-21 14:05:00 UTC. "
            f"{DRY}\n"
            "table  tablets  files    size  into\n"
            "t1           3     40  4.0 MB  /srv/out/t1\n"
            "t2           3     40  4.0 MB  /srv/out/t2\n"
        ),
    ),
    "groups": (
        "restore groups",
        {
            "at_time": None,
            "outcomes": {"moved": 1, "at_end": 1},
            "meaning": {"moved": "set to the same message"},
            "groups": [
                {
                    "group": "billing",
                    "topic": "orders",
                    "partition": number,
                    "position": 5,
                    "outcome": outcome,
                    "offsets": None,
                    "target_group": "billing",
                    "target_topic": "orders2",
                    "target_partition": number,
                    "target_position": 4,
                }
                for number, outcome in enumerate(("moved", "at_end"))
            ],
        },
        (
            "Set 1 consumer group (billing).\n"
            "1 partition moved: set to the same message.\n"
            "1 partition at end.\n"
            "group    topic   partition  offset  into     partition there  offset there  outcome\n"
            "billing  orders          0       5  orders2                0             4  moved\n"
            "billing  orders          1       5  orders2                1             4  at_end\n"
        ),
    ),
    "all is intact": (
        "verify",
        VERIFIED,
        "All 10 stored files are intact, checked by SHA-256 in 1.7 s.\n",
    ),
    "not all is intact": (
        "verify",
        {
            **VERIFIED,
            "mode": "stat",
            "ok": 8,
            "missing": 1,
            "changed": 1,
            "findings": [{"outcome": "missing", "backup_id": ID, "path": "a/b.avro", "detail": None}],
        },
        (
            "Checked 10 stored files by existence and size in 1.7 s: 1 missing and 1 changed.\n"
            "outcome  backup                     file\n"
            f"missing  {ID}  a/b.avro\n"
        ),
    ),
    "a prune of what another program made": (
        "prune",
        {**PRUNE_PLAN, "report_only": True},
        (
            "1 backup and 3 of 12 files (9.8 MB of 40.0 MB) of prod can go. "
            "Delete them with the program that made them.\n"
            "backup                     kind  end                       reason\n"
            f"{OLD}  full  2026-11-21T12:05:00.000Z  window\n"
        ),
    ),
    "a catalog that was rebuilt": (
        "catalog rebuild",
        {"backups": {"complete": 3, "deleted": 1}, "files": 10, "audit": 4, "seconds": 2.0, "left_out": []},
        "Rebuilt the catalog: 4 backups (3 complete, 1 deleted) with 10 files in 2.0 s.\n",
    ),
    "nothing to prune": (
        "prune",
        PRUNED,
        "Nothing to delete in prod: all 12 files, 40.0 MB are kept.\n",
    ),
    "a plan of a prune": (
        "prune",
        {**PRUNE_PLAN, "bound": 1},
        (
            "Would delete 1 backup and 3 of 12 files (9.8 MB of 40.0 MB) of prod.\n"
            "Nothing was deleted yet: run the same command with --delete.\n"
            "1 partition keeps older files that restore points need.\n"
            "backup                     kind  end                       reason\n"
            f"{OLD}  full  2026-11-21T12:05:00.000Z  window\n"
        ),
    ),
    "nothing to merge": (
        "merge",
        {
            "backup_id": None,
            "source": "prod",
            "level": 1,
            "kind": None,
            "parent": None,
            "merged": [],
            "topics": 0,
            "files": 0,
            "bytes": 0,
            "entries": 0,
            "older_files": 0,
            "left_out": [],
            "because": "no two backups of level 1 follow one another",
        },
        "Nothing to merge in prod: no two backups of level 1 follow one another.\n",
    ),
    "a compaction": (
        "compact",
        {
            "source": "prod",
            "backup_ids": [ID],
            "files": 3,
            "bytes": 9_000,
            "entries": 90,
            "topics": [
                {
                    "topic": "customers",
                    "backup_id": OLD,
                    "end_ts": NOON,
                    "generation": 2,
                    "files": 3,
                    "bytes": 9_000,
                    "entries": 90,
                }
            ],
            "left_out": [{"topic": "orders", "because": "it has records without a key"}],
            "kept_files": 1,
            "kept_bytes": 1_000,
            "kept_entries": 10,
            "seconds": 2.0,
        },
        (
            "Compacted customers of prod: 90 records, 9.0 kB became 10 records, 1.0 kB in 2.0 s "
            f"(backup {ID}).\n"
            "Left out: topic orders, since it has records without a key.\n"
        ),
    ),
    "nothing is due, and what is next": (
        "due",
        {
            "due": [],
            "next": {"source": "prod", "run": "incremental", "due_ts": NOON, "now_ts": NOON - 1_390_000},
        },
        "Nothing is due. Next: prod, incremental, at 12:05 UTC (in 23 min).\n",
    ),
    "nothing is due, until another day": (
        "due",
        {"due": [], "next": {"source": "prod", "run": "full", "due_ts": NOON, "now_ts": NOON - 93_600_000}},
        "Nothing is due. Next: prod, full, at 2026-11-21 12:05 UTC (in 1 d 2 h).\n",
    ),
    "a run is due": (
        "due",
        {"due": [DUE], "next": None},
        (
            "prod: an incremental backup has been due since 2026-11-21 12:05:00 UTC.\n"
            "It runs: lakebackup backup topics --source prod\n"
        ),
    ),
    "a policy": (
        "policy set",
        {
            "source": "prod",
            "at": 1,
            "actor": "me",
            "full_schedule": "weekly sun 02:00",
            "full_every_ms": 604_800_000,
            "incremental_schedule": "hourly",
            "incremental_every_ms": 3_600_000,
            "incremental_kind": "differential",
            "level": 1,
            "window_days": 14,
            "redundancy": None,
            "min_redundancy": 1,
            "note": None,
            "removed": False,
            "keep_daily": 7,
            "time_zone": None,
            "command": [],
            "patterns": [".*"],
            "drill_schedule": None,
        },
        (
            "The policy of prod is now:\n"
            "  full:        weekly sun 02:00\n"
            "  incremental: hourly, differential\n"
            "  topics:      .*\n"
            "  keeps:       any time of the last 14 days; the newest 7 daily backups; "
            "always at least 1 usable full\n"
        ),
    ),
    "a hold": (
        "hold",
        {
            "backup_id": ID,
            "source": "prod",
            "until_ts": None,
            "reason": "audit",
            "released": False,
            "at": 1,
            "actor": "me",
        },
        f"Backup {ID} and all that it needs are kept until it is released (audit).\n",
    ),
    "a restored log": (
        "restore point",
        {**LOG, "entries": 900, "seconds": 2.0},
        (
            "Restored 1 table of shop (sales.orders) into the Delta table /srv/orders, up to 9 "
            "(2026-11-21T12:05:00.000Z): 900 rows in 2.0 s.\n"
        ),
    ),
    "a truncated log": (
        "log truncate",
        {
            "deleted": True,
            "prune_id": ID,
            "resumed": False,
            "source": "shop",
            "cut": 9,
            "cut_time": "",
            "restorable": "after 9 (2026-11-21T12:05:00.000Z), starting from full f1",
            "files": 3,
            "bytes": 30_000,
            "of_files": 9,
            "of_bytes": 90_000,
            "compacted_files": 0,
            "fulls": ["f0"],
            "seconds": 1.0,
        },
        (
            "Deleted 3 of 9 files (30.0 kB of 90.0 kB) and 1 older full of the log of shop in 1.0 s.\n"
            "What stays can be restored after 9 (2026-11-21T12:05:00.000Z), starting from full f1.\n"
        ),
    ),
    "an exported catalog": (
        "catalog export",
        {
            "folder": "file:///srv/rows",
            "rows": 2,
            "bytes": 900,
            "seconds": 1.0,
            "tables": [{"table": "backups", "files": 1, "rows": 2, "bytes": 900}],
            "signed_by": "0123456789abcdef" * 4,
        },
        (
            "Exported 2 rows, 900 bytes of 1 table into /srv/rows in 1.0 s.\n"
            "Signed with the key 0123456789abcdef.\n"
            "table    rows  files       size\n"
            "backups     2      1  900 bytes\n"
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_result_is_a_sentence_and_a_small_table(name: str) -> None:
    command, values, text = CASES[name]
    assert printed(command, values) == text


def test_wide_shows_every_field_below_the_sentence() -> None:
    lines = printed("verify", VERIFIED, wide=True).splitlines()
    assert lines[0] == "All 10 stored files are intact, checked by SHA-256 in 1.7 s."
    assert "filters lost  0" in lines


def test_control_characters_are_escaped() -> None:
    text = printed("catalog init", {"catalog": "file:///x\x1b[2J"})
    assert text == "The catalog is ready: file:///x\\x1b[2J\n"


def test_every_function_that_summarizes_a_command_exists() -> None:
    for module, name in summary._FUNCTIONS.values():
        assert callable(getattr(import_module(module), name))

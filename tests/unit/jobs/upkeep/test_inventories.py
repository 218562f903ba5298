"""The examples of docs/inventories.md, on inventories as the programs print them.

The tests cover their rows, the steps of a restore to a time, and the backups that a policy keeps.
They need no Java: the rows go into the tables as an import plans them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.command_line import result_rows
from tests.support.inventories import QUESTIONS, import_all, path_to, rows_of, select
from tests.support.made_backups import MadeBackups


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeBackups:
    """An empty catalog; the test's folder is where the programs' lists are."""
    monkeypatch.chdir(tmp_path)
    return MadeBackups(tmp_path / "repo")


# The history of a database in msdb, in local time (UTC+1) and in the order of the last LSN: a full, logs, a
# differential between them, a copy-only full and a full. Then a log is lost.
HISTORY = """
f1  D  100  110  02T23:00:00  02T23:10:00
l1  L  100  200  03T03:00:00  03T03:00:40
l2  L  200  300  03T07:00:00  03T07:00:40
d1  I  340  350  03T11:00:00  03T11:05:00  f1
l3  L  300  400  03T13:00:00  03T13:00:40
l4  L  400  500  03T16:00:00  03T16:00:40
c1  D  510  520  03T17:00:00  03T17:05:00
f2  D  550  560  03T23:00:00  03T23:10:00
l5  L  500  600  04T00:00:00  04T00:00:40
l7  L  700  800  04T07:00:00  04T07:00:40
d2  I  840  850  04T11:00:00  04T11:05:00  f2
l8  L  800  900  04T13:00:00  04T13:00:40
bad D  910  920  04T14:00:00  04T14:05:00
d9  I  930  940  04T15:00:00  04T15:05:00  gone
"""


def guid(name: str) -> str:
    return f"{name.upper():0>8}-0000-4000-8000-000000000000" if name else ""


def write_history(folder: Path) -> None:
    """`backupset.csv` and `backupmediafamily.csv`, as Export-Csv writes them."""
    header = (
        "backup_set_uuid,media_set_id,position,server_name,database_name,type,is_copy_only,is_damaged,"
        "time_zone,first_lsn,last_lsn,differential_base_guid,backup_start_date,backup_finish_date,"
        "compressed_backup_size"
    )
    sets = [header]
    media = ["media_set_id,family_sequence_number,physical_device_name"]
    for number, line in enumerate(HISTORY.split("\n")[1:-1]):
        name, kind, first, last, start, finish, base = (*line.split(), "")[:7]
        values = [
            guid(name), number, 1, "db1", "sales", kind, name == "c1", name == "bad", 4,
            f"{first}000000012345600001", f"{last}000000012345600001", guid(base),
            f"2026-11-{start}", f"2026-11-{finish}", 1000,
        ]  # fmt: skip
        sets.append(",".join(f'"{value}"' for value in values))
        media += [f'"{number}","{family}","D:\\Backup\\{name}-{family}.bak"' for family in (1, 2)]
    (folder / "backupset.csv").write_text("\n".join(sets), encoding="utf-8-sig")
    (folder / "backupmediafamily.csv").write_text("\n".join(media), encoding="utf-8-sig")


def names(ids: list[str]) -> list[str]:
    return [backup_id.split("-")[0].lstrip("0") for backup_id in ids]


def test_the_backup_history_of_sql_server_is_imported(catalog: MadeBackups, tmp_path: Path) -> None:
    write_history(tmp_path)
    assert names(import_all(catalog, "sqlserver")) == [
        "f1", "l1", "l2", "d1", "l3", "l4", "c1", "f2", "l5", "d2", "l8",
    ]  # fmt: skip
    files = rows_of("files", "files.jsonl")
    reader = catalog.reader()
    assert len(files) == 22
    assert {row["bytes"] for row in files} == {500}
    paths = {
        "2026-11-02 22:09:00": "",
        "2026-11-02 22:10:00": "f1",
        "2026-11-03 06:00:01": "f1 l1 l2 l3",  # before the differential, by the log that runs through it
        "2026-11-03 10:05:00": "f1 d1",
        "2026-11-03 14:05:00": "f1 d1 l3 l4",
        "2026-11-03 16:30:00": "c1 l5",
        "2026-11-03 23:00:00": "f2 l5",
        "2026-11-03 23:00:01": "",
        "2026-11-04 10:00:00": "",
        "2026-11-04 11:00:00": "f2 d2 l8",
        "2026-11-04 12:00:01": "",
    }
    steps_by_time = {time: " ".join(names(path_to(reader, "db1.sales", time))) for time in paths}
    assert steps_by_time == paths
    parse_time = datetime.fromisoformat
    assert [row[1:] for row in select(reader, QUESTIONS[2])] == [
        ("restorable", None, parse_time("2026-11-02T22:09:59.999"), parse_time("2026-11-03T23:00:00")),
        ("gap", "chain", parse_time("2026-11-04T06:00:00"), parse_time("2026-11-04T10:04:59.999")),
        ("restorable", None, parse_time("2026-11-04T10:04:59.999"), parse_time("2026-11-04T12:00:00")),
    ]
    assert len(select(reader, QUESTIONS[3])) == 11


# pgBackRest's own test of its retention: labels in the order in which the backups were taken, an hour apart.
LABELS = [
    "20181119-152138F",
    "20181119-152800F",
    "20181119-152800F_20181119-152152D",
    "20181119-152800F_20181119-152155I",
    "20181119-152900F",
    "20181119-152900F_20181119-152600D",
]
HOUR = 3600
BEGIN = 1_542_640_000
KINDS = {"F": "full", "D": "diff", "I": "incr"}


def write_stanza(folder: Path, labels: list[str], stored_seconds: int) -> None:
    """What `info` and `repo-ls` print; each hour has a segment, the newest `stored_seconds` after BEGIN."""
    backups = []
    for label in labels:
        number = LABELS.index(label)
        stop, segment = BEGIN + number * HOUR, f"0000000100000000000000{2 + number:02X}"
        full, kind = label.split("_")[0], KINDS[label[-1]]
        prior = {"full": None, "diff": full, "incr": LABELS[number - 1]}[kind]
        backups.append(
            {
                "archive": {"start": segment, "stop": segment},
                "backrest": {"format": 5, "version": "2.54.0"},
                "database": {"id": 1, "repo-key": 1},
                "error": False,
                "info": {"delta": 24_000_000, "repository": {"delta": 2_900_000}, "size": 24_000_000},
                "label": label,
                "lsn": {"start": "0/2000028", "stop": "0/2000100"},
                "prior": prior,
                "reference": [full] if prior else None,
                "timestamp": {"start": stop - 60, "stop": stop},
                "type": kind,
            }
        )
    last = f"0000000100000000000000{2 + stored_seconds // HOUR:02X}"
    archive = {"database": {"id": 1, "repo-key": 1}, "id": "15-1", "max": last, "min": f"{1:024X}"}
    info = {
        "archive": [archive], "backup": backups, "cipher": "none", "name": "demo",
        "db": [{"id": 1, "repo-key": 1, "system-id": 6569239123849665679, "version": "15"}],
        "status": {"code": 0, "lock": {"backup": {"held": False}}, "message": "ok"},
    }  # fmt: skip
    (folder / "info.json").write_text(json.dumps([info]))
    segments = {
        f"demo/15-1/0000000100000000/{1:08X}{0:08X}{2 + hour:08X}-{'ab' * 20}.zst": {
            "size": 16_000, "time": BEGIN + hour * HOUR, "type": "file",
        }
        for hour in range(stored_seconds // HOUR + 1)
    }  # fmt: skip
    listed = {"demo/15-1": {"type": "path"}, "demo/archive.info": {"size": 1, "time": BEGIN, "type": "file"}}
    (folder / "archive.json").write_text(json.dumps(listed | segments))


@pytest.mark.long
def test_backups_and_wal_of_pgbackrest_are_imported_and_pruned(
    catalog: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_stanza(tmp_path, LABELS, 8 * HOUR)
    new_ids = import_all(catalog, "pgbackrest")
    assert [backup_id for backup_id in new_ids if backup_id in LABELS] == LABELS
    first, second, diff, incr, third, last = LABELS
    wal = [backup_id for backup_id in new_ids if backup_id not in LABELS]
    assert wal[-1] == "wal-000000010000000000000007-00000001000000000000000A"

    reader = catalog.reader()

    def time_after(hours: float) -> str:
        return datetime.fromtimestamp(BEGIN + hours * HOUR, UTC).strftime("%Y-%m-%d %H:%M:%S")

    paths = {
        hours: path_to(reader, "demo.repo1", time_after(hours)) for hours in (-0.5, 0, 2.5, 3, 3.5, 7.9, 8.1)
    }
    assert paths == {
        -0.5: [],
        0: [first],
        2.5: [second, diff, wal[2]],
        3: [second, diff, incr],
        3.5: [second, diff, incr, wal[3]],
        7.9: [third, last, wal[5]],
        8.1: [],
    }
    assert select(reader, "SELECT count(*) FROM coverage WHERE status = 'restorable'") == [(1,)]
    # Like retention-full of 2 and 1: a full goes with its dependants and the WAL up to the next full.
    repo = str(catalog.folder)
    repo_flags = ("--repo", repo)
    for keep, deleted_ids in ((2, [first, wal[0]]), (1, [*LABELS[:4], *wal[:4]])):
        result_rows(capsys, "policy", "set", "demo.repo1", "--redundancy", str(keep), *repo_flags)
        (report,) = result_rows(capsys, "prune", "--source", "demo.repo1", *repo_flags)
        assert {row["backup_id"] for row in report["backups"]} == set(deleted_ids)
        fulls_and_more = len(set(deleted_ids) & set(LABELS))
        assert (report["deleted"], report["bytes"]) == (False, fulls_and_more * 2_900_000)
        obsolete = select(
            catalog.reader(), "SELECT backup_id FROM obsolete_backups WHERE status = 'OBSOLETE'"
        )
        assert {row[0] for row in obsolete} == set(deleted_ids)
    (report,) = result_rows(capsys, "prune", "14", "--source", "demo.repo1", *repo_flags)
    assert {row["backup_id"] for row in report["backups"]} == {*LABELS[:4], *wal[:4]}
    (refused,) = result_rows(capsys, "prune", "--source", "demo.repo1", "--delete", *repo_flags, code=5)
    assert "another program (pgbackrest)" in json.dumps(refused)
    # A differential expired, with the incremental: from the full on, the WAL is one log now.
    write_stanza(tmp_path, [first, second, third, last], 8 * HOUR)
    (bridge,) = import_all(catalog, "pgbackrest")
    assert path_to(catalog.reader(), "demo.repo1", time_after(3.5)) == [second, bridge]
    # The list of a later day lacks what pgBackRest expired, and its log goes on.
    write_stanza(tmp_path, LABELS[4:], 9 * HOUR)
    assert import_all(catalog, "pgbackrest") == ["wal-000000010000000000000007-00000001000000000000000B"]
    reader = catalog.reader()
    assert path_to(reader, "demo.repo1", time_after(8.1)) == [
        third,
        last,
        "wal-000000010000000000000007-00000001000000000000000B",
    ]
    assert path_to(reader, "demo.repo1", time_after(3)) == []
    obsolete = select(reader, "SELECT DISTINCT status FROM obsolete_backups")
    assert sorted(obsolete) == [("DELETED",), ("VALID",)]


def write_snapshots(folder: Path, days: int) -> None:
    """`snapshots.json` and `ls-<id>.jsonl`: a file that stays, one that changes, one that is empty."""
    snapshots = []
    for day in range(1, days + 1):
        time = f"2026-11-{day:02}T03:00:12.123456789+01:00"
        snapshot = {"time": time, "tree": "c3" * 32, "paths": ["/home/anna", "/etc"], "hostname": "laptop",
                    "username": "anna", "uid": 1000, "gid": 1000, "program_version": "restic 0.17.3",
                    "id": f"{day:064x}", "short_id": f"{day:08x}"}  # fmt: skip
        snapshots.append(snapshot | {"tags": ["daily"]} if day > 1 else snapshot)
        node = {"uid": 1000, "gid": 1000, "mode": 420, "permissions": "-rw-r--r--", "message_type": "node",
                "struct_type": "node"}  # fmt: skip
        old = "2026-10-01T10:00:00.5+02:00"
        nodes = [
            {"name": "anna", "type": "dir", "path": "/home/anna", "mtime": time},
            {"name": "a", "type": "file", "path": "/home/anna/a", "size": 1000, "mtime": old},
            {"name": "b", "type": "file", "path": "/home/anna/b", "size": day, "mtime": time},
            {"name": "c", "type": "file", "path": "/etc/c", "mtime": old},
        ]
        lines = [
            snapshot | {"message_type": "snapshot", "struct_type": "snapshot"},
            *(row | node for row in nodes),
        ]
        (folder / f"ls-{day:08x}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "snapshots.json").write_text(json.dumps(snapshots))


def test_snapshots_of_restic_are_imported(catalog: MadeBackups, tmp_path: Path) -> None:
    write_snapshots(tmp_path, 3)
    assert import_all(catalog, "restic", listed=True) == ["00000001", "00000002", "00000003"]
    assert [(row["path"], row["bytes"]) for row in rows_of("manifests", "files.jsonl")[:3]] == [
        ("home/anna/a", 1000),
        ("home/anna/b", 1),
        ("etc/c", 0),
    ]
    reader = catalog.reader()
    source = "laptop-etc-home-anna-7b12d0d2b11c"
    assert path_to(reader, source, "2026-11-02 02:00:12.123") == ["00000002"]
    assert path_to(reader, source, "2026-11-02 12:00:00") == []
    assert [row[2] for row in select(reader, QUESTIONS[1])] == ["00000003"]
    assert select(reader, "SELECT DISTINCT kind, parent IS NULL, intact FROM backups ORDER BY 2") == [
        ("full", False, True),
        ("full", True, True),
    ]

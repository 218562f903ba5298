"""Inventories that are hard to read: forks, timelines, backups to nowhere, quiet databases, lost bases."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.inventories import import_all, import_rows, listed_rows, rows_of, select, write_rows
from tests.support.made_backups import MadeBackups

from lakebackup.recovery.import_reader import ImportRows, import_files

SETS = [
    "backup_set_uuid",
    "media_set_id",
    "position",
    "server_name",
    "database_name",
    "type",
    "is_copy_only",
    "is_damaged",
    "time_zone",
    "first_lsn",
    "last_lsn",
    "differential_base_guid",
    "backup_start_date",
    "backup_finish_date",
    "compressed_backup_size",
]
DAY = "2026-01-"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeBackups:
    """An empty catalog; the test's folder is where the programs' lists are."""
    monkeypatch.chdir(tmp_path)
    return MadeBackups(tmp_path / "repo")


def write_sets(history: str, *, devices: dict[str, str] | None = None, **columns: dict[str, Any]) -> None:
    """msdb's lists: a line is a name, type, first and last LSN, start, finish and the base of a differential.

    `devices`: where backups went, `name,device_type`, unless it is a file. `columns`: more columns of backup
    sets, each with its values by name; a type that begins with a c is that of a copy.
    """
    sets, media = [",".join([*SETS, *columns])], ["media_set_id,family_sequence_number,physical_device_name"]
    if devices and any("," in device for device in devices.values()):
        media = [f"{media[0]},device_type"]
    for number, line in enumerate(history.strip().splitlines(), 1):
        name, kind, first, last, start, finish, base = (*line.split(), "")[:7]
        copy = int(kind.startswith("c"))
        values = [name, number, 1, "S", "D", kind[-1], copy, 0, 0, first, last, base]
        values += [
            f"{DAY}{start}",
            f"{DAY}{finish}",
            1000,
            *(values_by_name.get(name, "") for values_by_name in columns.values()),
        ]
        sets.append(",".join(f'"{value}"' for value in values))
        device = (devices or {}).get(name, f"D:\\{name}.bak" + (",2" if "device_type" in media[0] else ""))
        media.append(f"{number},1,{device}")
    Path("backupset.csv").write_text("\n".join(sets), encoding="utf-8")
    Path("backupmediafamily.csv").write_text("\n".join(media), encoding="utf-8")


def paths_of(catalog: MadeBackups, source: str, times: str) -> dict[str, str]:
    """The steps of a restore to each of the times, days of January 2026."""
    rows = select(
        catalog.reader(),
        f"SELECT covers_from_time, covers_to_time, backup_id FROM restore_paths WHERE source = '{source}' "
        "ORDER BY covers_from, target_id, step",
    )
    instants = {time: datetime.fromisoformat(DAY + time) for time in times.split()}
    return {
        time: " ".join(step for begin, end, step in rows if begin < instant <= end)
        for time, instant in instants.items()
    }


def covered(catalog: MadeBackups, status: str) -> list[tuple[str, str]]:
    rows = select(
        catalog.reader(),
        f"SELECT from_time, to_time FROM coverage WHERE status = '{status}' ORDER BY to_time",
    )
    return [(f"{begin:%dT%H:%M:%S}", f"{end:%dT%H:%M:%S}") for begin, end in rows]


NOWHERE = """
a1 D 100 120 04T01:00:00 04T01:10:00
l1 L 100 200 04T12:00:00 04T12:00:05
v1 D 210 215 05T02:00:00 05T02:00:20
i1 I 230 240 05T06:00:00 05T06:00:10 v1
l2 L 200 260 05T12:00:00 05T12:00:05
n1 D 270 275 05T20:00:00 05T20:05:00
i2 I 280 285 05T22:00:00 05T22:00:10 n1
"""


@pytest.mark.parametrize(
    ("devices", "columns"),
    [
        ({"v1": "{7C4DB2E0-0000-4D5A-9C1B-2F0A6C3E9D11}1", "n1": "NUL"}, {}),
        ({"v1": "VDI_17,7", "n1": r"\\.\nul,2"}, {}),
        ({"n1": r"D:\b\NUL:"}, {"is_snapshot": {"v1": 1, "n1": 0}}),
        ({}, {"is_snapshot": {"v1": "True"}, "has_incomplete_metadata": {"n1": "True", "v1": "False"}}),
    ],
)
def test_snapshots_and_backups_to_nowhere_are_no_fulls(
    catalog: MadeBackups, devices: dict[str, str], columns: dict[str, Any]
) -> None:
    write_sets(NOWHERE, devices=devices, **columns)
    assert import_all(catalog, "sqlserver") == ["a1", "l1", "l2"]
    assert paths_of(catalog, "S.D", "05T06:30:00 05T11:00:00 05T22:30:00") == {
        "05T06:30:00": "a1 l1 l2",
        "05T11:00:00": "a1 l1 l2",
        "05T22:30:00": "",
    }
    assert covered(catalog, "restorable") == [("04T01:09:59", "05T12:00:00")]


def test_a_log_that_went_nowhere_breaks_the_chain(catalog: MadeBackups) -> None:
    write_sets(
        """
        f1 D 100 110 01T01:00:00 01T01:00:10
        l1 L 100 200 01T02:00:00 01T02:00:01
        l2 L 200 300 01T03:00:00 01T03:00:01
        l3 L 300 400 01T04:00:00 01T04:00:01
        """,
        devices={"l2": "nul"},
    )
    assert import_all(catalog, "sqlserver") == ["f1", "l1"]
    assert covered(catalog, "restorable") == [("01T01:00:09", "01T02:00:00")]


QUIET = """
f1 D 150 160 01T01:00:00 01T01:00:10
l1 L 100 200 01T02:00:00 01T02:00:01
e5 L 200 200 01T06:00:00 01T06:00:01
e4 L 200 200 01T05:00:00 01T05:00:01
a9 L 200 200 01T04:00:00 01T04:00:01
e2 L 200 200 01T03:00:00 01T03:00:01
"""


def test_logs_of_a_quiet_database_are_in_the_order_of_time(catalog: MadeBackups) -> None:
    write_sets(QUIET)
    assert import_all(catalog, "sqlserver") == ["f1", "l1", "e2", "a9", "e4", "e5"]
    assert paths_of(catalog, "S.D", "01T01:30:00 01T03:30:00 01T06:00:00") == {
        "01T01:30:00": "f1 l1",
        "01T03:30:00": "f1 l1 e2 a9",
        "01T06:00:00": "f1 l1 e2 a9 e4 e5",
    }


def test_logs_of_one_second_are_all_steps_in_the_order_of_their_positions(catalog: MadeBackups) -> None:
    """The ids sort the other way; the last log begins in the second in which the differential ended."""
    write_sets(
        """
        f1 D 150 160 01T01:00:00 01T01:00:10
        z1 L 100 200 01T02:00:00 01T02:00:00
        y2 L 200 300 01T02:00:00 01T02:00:00
        x3 L 300 300 01T02:00:00 01T02:00:00
        w4 L 300 400 01T03:00:00 01T03:00:00
        d1 I 450 460 01T04:00:00 01T04:00:10 f1
        c5 L 400 500 01T04:00:10 01T04:00:11
        b6 L 500 600 01T05:00:00 01T05:00:01
        """
    )
    import_all(catalog, "sqlserver")
    assert paths_of(catalog, "S.D", "01T01:59:59 01T02:00:00 01T02:30:00 01T04:00:10 01T04:30:00") == {
        "01T01:59:59": "f1 z1",
        "01T02:00:00": "f1 z1 y2 x3",
        "01T02:30:00": "f1 z1 y2 x3 w4",
        "01T04:00:10": "f1 d1",
        "01T04:30:00": "f1 d1 c5 b6",
    }
    assert select(catalog.reader(), "SELECT count(*) FROM unusable_backups") == [(0,)]


FORKED = """
f1 D 100 110 01T01:00:00 01T01:00:10
l1 L 100 200 01T02:00:00 01T02:00:01
l2 L 200 400 01T04:00:00 01T04:00:01
l3 L 400 500 01T05:00:00 01T05:00:01
n2 L 200 350 01T07:00:00 01T07:00:01
f2 D 360 370 01T08:00:00 01T08:00:10
n3 L 350 450 01T09:00:00 01T09:00:01
"""
FORKS = {
    "first_recovery_fork_guid": dict.fromkeys(("f1", "l1", "l2", "l3", "n2"), "A") | {"f2": "B", "n3": "B"},
    "last_recovery_fork_guid": dict.fromkeys(("f1", "l1", "l2", "l3"), "A")
    | dict.fromkeys(("n2", "f2", "n3"), "B"),
    "fork_point_lsn": {"n2": "300"},
}  # fmt: skip


def test_no_path_mixes_recovery_forks(catalog: MadeBackups) -> None:
    """A restore to LSN 300 abandons later logs of the old fork, which overlap those of the new one."""
    write_sets(FORKED, **FORKS)
    import_all(catalog, "sqlserver")
    times = "01T01:30:00 01T03:00:00 01T06:00:00 01T07:30:00 01T08:30:00"
    assert paths_of(catalog, "S.D", times) == {
        "01T01:30:00": "f1 l1",
        "01T03:00:00": "f1 l1 n2",
        "01T06:00:00": "f1 l1 n2",
        "01T07:30:00": "f1 l1 n2 n3",
        "01T08:30:00": "f2 n3",
    }
    states = select(catalog.reader(), "SELECT backup_id, reason FROM unusable_backups ORDER BY 1")
    assert states == [("l2", "out_of_sync"), ("l3", "out_of_sync")]


def test_a_fork_in_a_later_list_puts_the_abandoned_logs_out_of_sync(catalog: MadeBackups) -> None:
    first_lines = "\n".join(FORKED.strip().splitlines()[:4])
    write_sets(first_lines, **FORKS)
    import_all(catalog, "sqlserver")
    assert paths_of(catalog, "S.D", "01T04:30:00") == {"01T04:30:00": "f1 l1 l2 l3"}
    write_sets(FORKED, **FORKS)
    assert import_all(catalog, "sqlserver") == ["n2", "f2", "n3"]
    assert paths_of(catalog, "S.D", "01T04:30:00 01T08:30:00") == {
        "01T04:30:00": "f1 l1 n2",
        "01T08:30:00": "f2 n3",
    }


def test_a_fork_whose_beginning_no_log_shows_starts_with_its_own_full(catalog: MadeBackups) -> None:
    """A full is the first backup after the restore. LSNs of the two histories overlap."""
    write_sets(
        """
        f1 D 100 110 01T01:00:00 01T01:00:10
        l1 L 100 200 01T02:00:00 01T02:00:01
        l2 L 200 400 01T04:00:00 01T04:00:01
        f2 D 300 310 01T08:00:00 01T08:00:10
        n1 L 310 350 01T09:00:00 01T09:00:01
        n2 L 350 390 01T10:00:00 01T10:00:01
        """,
        first_recovery_fork_guid={"f1": "A", "l1": "A", "l2": "A", "f2": "B", "n1": "B", "n2": "B"},
        last_recovery_fork_guid={"f1": "A", "l1": "A", "l2": "A", "f2": "B", "n1": "B", "n2": "B"},
    )
    import_all(catalog, "sqlserver")
    assert paths_of(catalog, "S.D", "01T03:00:00 01T06:00:00 01T09:30:00") == {
        "01T03:00:00": "f1 l1 l2",
        "01T06:00:00": "",
        "01T09:30:00": "f2 n1 n2",
    }


def test_databases_whose_names_look_alike_are_different_sources(catalog: MadeBackups) -> None:
    pairs = [(r"A\B", "C"), ("A-B", "C"), ("A", "B.C"), ("A.B", "C"), ("A", "b c"), ("A", "b/c"), ("Ä", "x")]
    write_sets("\n".join(f"f{n} D 100 110 01T01:00:00 01T01:00:10" for n in range(len(pairs))))
    text = Path("backupset.csv").read_text(encoding="utf-8").splitlines()
    lines = [
        line.replace('"S","D"', f'"{server}","{db}"')
        for line, (server, db) in zip(text[1:], pairs, strict=True)
    ]
    Path("backupset.csv").write_text("\n".join([text[0], *lines]), encoding="utf-8")
    import_all(catalog, "sqlserver")
    sources = [row[0] for row in select(catalog.reader(), "SELECT DISTINCT source FROM backups")]
    assert len(sources) == len(pairs)
    assert "A-B.C" in sources


def test_snapshots_of_paths_that_look_alike_are_different_sources(catalog: MadeBackups) -> None:
    paths = [["/a/b"], ["/a-b"], ["/a", "/b"], ["/a /b"], ["/a+/b"], ["/b", "/a"], [f"/{'long' * 50}"]]
    snapshots = [
        {"short_id": f"{n:08x}", "hostname": "h", "paths": snapshot_paths, "time": f"2026-01-01T0{n}:00:00Z"}
        for n, snapshot_paths in enumerate(paths, 1)
    ]
    Path("snapshots.json").write_text(json.dumps(snapshots), encoding="utf-8")
    Path("ls-00000001.jsonl").write_text(
        '{"type":"file","path":"/a/b/c","size":1,"mtime":"2026-01-01T00:00:00Z"}'
    )
    import_all(catalog, "restic", listed=True)
    rows = select(catalog.reader(), "SELECT source, count(*) FROM backups GROUP BY source")
    assert sorted(count for _, count in rows) == [1, 1, 1, 1, 1, 2]


def write_cluster(
    backups: list[tuple[str, str | None, str, int]], segments: dict[str, int], **errors: bool
) -> None:
    """Lists of a cluster. A backup is a label, a prior, its segment and the minute of its end."""
    begin = 1_767_225_600
    info = [
        {
            "label": label, "type": {"F": "full", "D": "diff", "I": "incr"}[label[-1]], "prior": prior,
            "error": errors.get(label, False), "database": {"id": 1, "repo-key": 1},
            "timestamp": {"start": begin + 60 * minutes - 30, "stop": begin + 60 * minutes},
            "archive": {"start": wal, "stop": wal}, "info": {"size": 1, "repository": {"delta": 1}},
        }
        for label, prior, wal, minutes in backups
    ]  # fmt: skip
    Path("info.json").write_text(json.dumps([{"name": "demo", "backup": info}]), encoding="utf-8")
    archive = {
        f"demo/15-1/{wal[:16]}/{wal}-{'ab' * 20}.zst": {"time": begin + 60 * minutes, "type": "file"}
        for wal, minutes in segments.items()
    }
    Path("archive.json").write_text(json.dumps(archive), encoding="utf-8")


def wal(timeline: int, segment: int) -> str:
    return f"{timeline:08X}{0:08X}{segment:08X}"


def test_no_path_mixes_timelines(catalog: MadeBackups) -> None:
    """After a restore into segment 5, a full of the abandoned timeline is the base of an increment."""
    segments = {wal(1, n): 10 * n for n in range(1, 9)} | {wal(2, n): 100 + 10 * (n - 5) for n in range(5, 9)}
    write_cluster(
        [("1F", None, wal(1, 2), 20), ("2F", None, wal(1, 7), 70), ("2F_3I", "2F", wal(2, 6), 111)], segments
    )
    import_all(catalog, "pgbackrest")

    def path_after(minutes: int) -> list[str]:
        time = datetime.fromtimestamp(1_767_225_600 + 60 * minutes, UTC)
        return paths_of(catalog, "demo.repo1", f"{time:%dT%H:%M:%S}").popitem()[1].split()

    crossing = f"wal-{wal(1, 2)}-{wal(2, 6)}"
    assert path_after(50) == ["1F", crossing]
    assert path_after(120) == ["2F", "2F_3I", f"wal-{wal(2, 6)}-{wal(2, 8)}"]
    unusable = select(catalog.reader(), "SELECT backup_id, reason FROM unusable_backups ORDER BY 1")
    assert unusable == [
        ("2F", "out_of_sync"),
        (f"wal-{wal(1, 2)}-{wal(1, 7)}", "out_of_sync"),
        (f"wal-{wal(1, 7)}-{wal(1, 8)}", "out_of_sync"),
    ]


def test_timelines_after_failovers_go_on_though_an_older_one_was_longer(catalog: MadeBackups) -> None:
    """Timeline 3 continues 2, whose last segment is the one before; timeline 1 went on beyond both."""
    segments = {wal(1, n): 10 * n for n in range(1, 12)}
    segments |= {wal(2, 5): 150, wal(2, 6): 160, wal(3, 7): 170, wal(3, 8): 180}
    write_cluster([("1F", None, wal(1, 2), 20), ("2F", None, wal(2, 6), 161)], segments)
    import_all(catalog, "pgbackrest")
    rows = select(catalog.reader(), "SELECT backup_id, state FROM backups WHERE kind = 'log' ORDER BY 1")
    assert rows == [
        (f"wal-{wal(1, 2)}-{wal(1, 11)}", "out_of_sync"),
        (f"wal-{wal(1, 2)}-{wal(2, 6)}", "complete"),
        (f"wal-{wal(2, 6)}-{wal(3, 8)}", "complete"),
    ]


def test_a_backup_with_page_errors_is_no_base(catalog: MadeBackups) -> None:
    segments = {wal(1, n): 10 * n for n in range(1, 9)}
    write_cluster(
        [("1F", None, wal(1, 2), 20), ("2F", None, wal(1, 4), 40), ("2F_3I", "2F", wal(1, 6), 60)],
        segments,
        **{"2F": True},
    )
    import_all(catalog, "pgbackrest")
    reader = catalog.reader()
    assert paths_of(catalog, "demo.repo1", "01T01:15:00")["01T01:15:00"].startswith("1F wal-")
    assert select(reader, "SELECT backup_id, reason, fault_backup_id FROM unusable_backups ORDER BY 1") == [
        ("2F", "unconfirmed", "2F"),
        ("2F_3I", "chain", "2F"),
    ]


F = {"backup_id": "F", "source": "s", "end_ts": 1000}
I1 = {"backup_id": "I1", "source": "s", "end_ts": 2000, "parent": "F"}
I2 = {"backup_id": "I2", "source": "s", "end_ts": 3000, "parent": "I1"}
UNUSABLE = "SELECT backup_id, reason, fault_backup_id FROM unusable_backups ORDER BY number"


def require_nothing_restorable(catalog: MadeBackups, names: list[str]) -> None:
    reader = catalog.reader()
    assert select(reader, "SELECT * FROM restore_paths") == []
    assert select(reader, "SELECT * FROM coverage WHERE status = 'restorable'") == []
    assert [row[:2] for row in select(reader, UNUSABLE)] == [(name, "chain") for name in names]


def test_a_deleted_base_makes_its_dependants_unusable(catalog: MadeBackups, tmp_path: Path) -> None:
    import_rows(catalog, listed_rows(tmp_path, F, I1, I2))
    import_rows(catalog, listed_rows(tmp_path, I1, I2), mirror=True)
    assert select(catalog.reader(), UNUSABLE) == [("I1", "chain", "F"), ("I2", "chain", "F")]
    import_rows(
        catalog, listed_rows(tmp_path, I1, I2, {**I2, "backup_id": "I3", "parent": "I2"}), mirror=True
    )
    require_nothing_restorable(catalog, ["I1", "I2", "I3"])


def test_increments_whose_base_was_never_listed_are_unusable(catalog: MadeBackups, tmp_path: Path) -> None:
    plan = import_rows(catalog, listed_rows(tmp_path, I1, I2, {**I2, "backup_id": "J", "parent": "F"}))
    assert plan.orphans == [
        (0, 1, "its parent F is not there, so backup I1 leads nowhere"),
        (0, 3, "its parent F is not there, so backup J leads nowhere"),
    ]
    import_rows(catalog, listed_rows(tmp_path, {**I2, "backup_id": "K", "parent": "F", "end_ts": 4000}))
    require_nothing_restorable(catalog, ["I1", "I2", "J", "K"])
    import_rows(catalog, listed_rows(tmp_path, {**F, "backup_id": "G", "end_ts": 5000}))
    assert select(catalog.reader(), "SELECT DISTINCT target_id FROM restore_paths") == [("G",)]


def test_logs_without_a_base_are_unusable(catalog: MadeBackups, tmp_path: Path) -> None:
    log = {"backup_id": "L", "source": "s", "kind": "log", "start_ts": 0, "end_ts": 500}
    import_rows(catalog, listed_rows(tmp_path, log))
    reader = catalog.reader()
    assert select(reader, UNUSABLE) == [("L", "chain", None)]
    assert select(reader, "SELECT status, backup_id FROM status") == [("UNPROTECTED", None)]


def test_two_logs_that_end_together_both_count(catalog: MadeBackups, tmp_path: Path) -> None:
    rows = listed_rows(
        tmp_path,
        {"backup_id": "F", "source": "d", "kind": "full", "end_ts": 1000, "number": 1},
        {"backup_id": "SHORT", "source": "d", "kind": "log", "start_ts": 3000, "end_ts": 5000, "number": 2},
        {"backup_id": "LONG", "source": "d", "kind": "log", "start_ts": 1000, "end_ts": 5000, "number": 3},
    )
    import_rows(catalog, rows)
    steps = select(
        catalog.reader(), "SELECT covers_from, covers_to, backup_id FROM restore_paths ORDER BY 1, step"
    )
    assert steps == [
        (999, 1000, "F"),
        *((1000, 3000, name) for name in ("F", "LONG")),
        *((3000, 5000, name) for name in ("F", "LONG", "SHORT")),
    ]


def test_a_later_branch_puts_logs_beyond_its_start_out_of_sync(catalog: MadeBackups, tmp_path: Path) -> None:
    log = {"source": "s", "kind": "log"}
    first = [
        F,
        {**log, "backup_id": "L1", "start_ts": 1000, "end_ts": 2000},
        {**log, "backup_id": "L2", "start_ts": 2000, "end_ts": 3000},
    ]
    import_rows(catalog, listed_rows(tmp_path, *first))
    later = {**log, "backup_id": "N2", "start_ts": 2000, "end_ts": 5000, "branch": 1}
    plan = import_rows(catalog, listed_rows(tmp_path, *first, later), mirror=True)
    assert plan.states == {"out_of_sync": {"L2": "s"}}
    steps = select(
        catalog.reader(), "SELECT backup_id FROM restore_paths WHERE covers_to = 5000 ORDER BY step"
    )
    assert [row[0] for row in steps] == ["F", "L1", "N2"]
    repeated = import_rows(catalog, listed_rows(tmp_path, *first, later), mirror=True)
    assert not repeated.states.get("complete")


def test_a_log_that_ends_before_it_begins_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "listed.jsonl"
    row = {"backup_id": "L", "source": "s", "kind": "log", "start_ts": 2, "end_ts": 1}
    file.write_text(json.dumps(row), encoding="utf-8")
    (read,) = ImportRows("backups", tuple(import_files("backups", str(file))), is_export=False).read(0)
    assert (read["row_number"], read["row_problem"]) == (1, "end_ts 1 is before start_ts 2")


def test_files_of_backups_that_were_left_out_are_not_listed(catalog: MadeBackups) -> None:
    write_sets(FORKED, devices={"n3": "NUL"}, **FORKS)
    write_rows("sqlserver")
    backups = {row["backup_id"] for row in rows_of("backups", "backups.jsonl")}
    files = [row["backup_id"] for row in rows_of("files", "files.jsonl")]
    assert sorted(files) == sorted(backups)
    assert "n3" not in backups

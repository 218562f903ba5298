"""The format of archives: files, names, the JSON files beside them, and chains; without Spark."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.archives import Doc, read_archive, write_backup, write_cbb
from tests.support.catalogs import manifest
from tests.support.command_line import quiet
from tests.support.made_backups import MadeBackups, Record
from tests.support.roots import roots_of

from lakebackup.encryption.objects import Keyring
from lakebackup.errors import Damaged, LakebackupError, NotFound, Refused
from lakebackup.formats.archives import cbb, chain, tree
from lakebackup.formats.archives.chain import ArchiveFile, PlannedBackup, takeovers
from lakebackup.rows.tables import as_row
from lakebackup.storage import open_storage
from lakebackup_jobs.archives import export as archive_export
from lakebackup_jobs.archives.export import ArchiveExportRequest
from lakebackup_jobs.archives.read_task import CopyJob, StoredObject
from lakebackup_jobs.archives.restore import ReadJob, line
from lakebackup_jobs.archives.write_task import cas_of
from lakebackup_jobs.lifecycle.atomic_dir import WORK
from lakebackup_jobs.lifecycle.tasks import progress

FULL, MONDAY, TUESDAY, WEDNESDAY = (f"2014-02-0{day}T020000Z" for day in (2, 3, 4, 5))


def test_tasks_report_what_they_have_read_and_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    docs = [Doc(b"a", seqno=1, vbucket=7), Doc(b"b", seqno=2, vbucket=7)]
    write_cbb(tmp_path / "shop" / "data-0000.cbb", docs)
    storage, (cbb_file,) = open_storage(str(tmp_path)), (tmp_path / "shop").rglob("*.cbb")
    path = str(cbb_file.relative_to(tmp_path))
    file = {
        "destination": "d", "path": path, "sha256": storage.sha256(path), "bytes": cbb_file.stat().st_size,
        "key_id": None, "backup_id": "1", "scope": "default", "entries": 2,
    }  # fmt: skip
    # A later backup takes over from sequence number 2, so only one of the two mutations counts.
    read_job = ReadJob(roots_of(d=storage.uri), (file,), {"1": {("default", 7): 2}}, f"{storage.uri}/to")
    assert [row.num_rows for row in read_job.rows(0)] == [1]
    task_progress = progress.TaskProgress(open_storage(f"{storage.uri}/to"), WORK)
    assert task_progress.total() == (2, 0)
    task_progress.clear()
    copies = ((StoredObject.of(file), "copy"),)
    copy_job = CopyJob(storage.uri, f"{storage.uri}/to", copies, WORK, Keyring())
    assert copy_job.run(0) == {"path": "copy", "bytes": file["bytes"], "sha256": file["sha256"]}
    assert task_progress.total() == (1, cbb_file.stat().st_size)


def plan(root: Path, rows: list[dict[str, Any]] | None = None) -> list[PlannedBackup]:
    """Plan the backups as an import does, but without tasks."""
    storage = open_storage(str(root))
    backups, _ = tree.find(storage.list())
    archive_files = {}
    for backup in backups:
        for stat in backup.data:
            sha256, size = storage.sha256(stat.path), stat.bytes
            archive_files[stat.path] = ArchiveFile(
                stat.path, size, sha256, cbb.scan(root / stat.path, stat.path)
            )
        for path in [
            *(p for node in backup.nodes.values() for p in node.beside.values()),
            *(p for p, _ in backup.designs),
        ]:
            archive_files[path] = ArchiveFile(path, storage.stat(path).bytes, "00")
    return chain.plan("shop", "d", backups, archive_files, storage.get, rows or [])


# --- files


@pytest.mark.parametrize(("version", "seqno"), [(2004, 0), (2014, 7), (2015, 7)])
def test_a_file_of_every_version_is_read(tmp_path: Path, version: int, seqno: int) -> None:
    docs = [Doc(b"a", b"1", 5, 3), Doc(b"\xff", None, 7, 3, cas=2**64 - 1), Doc(b"", b"", 6, 9, flags=33)]
    path = write_cbb(tmp_path / "data-0000.cbb", docs, version)
    summary = cbb.scan(path, "data-0000.cbb")
    assert (summary.version, summary.entries, summary.deletions) == (version, 3, 1)
    assert (summary.low_key, summary.high_key, summary.sequenced) == (b"", b"\xff", seqno > 0)
    assert [(v.vbucket, v.entries) for v in summary.vbuckets] == [(3, 2), (9, 1)]
    assert [v.last for v in summary.vbuckets] == [seqno, 6 if seqno else 0]
    rows = list(cbb.mutations(path, "data-0000.cbb"))
    assert [(r.key, r.value, r.deleted, r.cas, r.flags) for r in rows] == [
        (b"a", b"1", False, "1", 0), (b"\xff", b"", True, str(2**64 - 1), 0), (b"", b"", False, "1", 33),
    ]  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=9), st.integers(0, 1023), st.integers(0, 2**64 - 1), st.binary(max_size=9),
            st.none() | st.binary(max_size=30), st.integers(1, 2**63 - 2),
        ),
        max_size=8,
    )
)  # fmt: skip
@settings(max_examples=settings.default.max_examples // 2)
def test_written_mutations_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[cbb.Written]
) -> None:
    path = tmp_path_factory.mktemp("cbb") / "data-0000.cbb"
    assert cbb.write(path, iter(rows)) == len(rows)
    assert cbb.scan(path, "f").entries == len(rows)
    mutations = list(cbb.mutations(path, "f"))
    assert [
        (m.key, m.vbucket, int(m.cas), m.meta, None if m.deleted else m.value, m.seqno) for m in mutations
    ] == rows


def forge(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return path


EIGHT_COLUMNS = "cmd, vbucket_id, key, flg, exp, cas, meta, val"


@pytest.mark.parametrize(
    ("statement", "version", "message"),
    [
        (f"CREATE TABLE cbb_msg ({EIGHT_COLUMNS})", 0, "version is 0"),
        (f"CREATE TABLE cbb_msg ({EIGHT_COLUMNS})", 2015, "columns"),
        (f"CREATE TABLE cbb_msg ({EIGHT_COLUMNS}, more)", 2004, "columns"),
        (f"CREATE TABLE cbb_msg ({EIGHT_COLUMNS.replace('val', 'val AS (zeroblob(9))')})", 2004, "columns"),
        (
            f"CREATE TABLE cbb_msg ({EIGHT_COLUMNS.replace('cmd', 'cmd PRIMARY KEY')}) WITHOUT ROWID",
            2004,
            "rowid",
        ),
        ("CREATE VIEW cbb_msg AS SELECT 65 AS cmd", 2004, "no table"),
        ("CREATE TABLE other (a)", 2004, "no table"),
        ("CREATE VIRTUAL TABLE cbb_msg USING fts5(cmd)", 2004, "no table"),
    ],
)
def test_a_forged_file_is_refused(tmp_path: Path, statement: str, version: int, message: str) -> None:
    path = forge(tmp_path / "data-0000.cbb", statement, f"PRAGMA user_version = {version}")
    with pytest.raises(Damaged, match=message) as caught:
        cbb.scan(path, "data-0000.cbb")
    assert "another copy" in caught.value.hint


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("cmd", "67"), ("cmd", "'x'"), ("cmd", "NULL"), ("vbucket_id", "65536"), ("vbucket_id", "-1"),
        ("key", "NULL"), ("key", "5"), ("val", "NULL"), ("cas", "'12x'"), ("cas", "''"), ("cas", "NULL"),
        ("cas", "'123456789012345678901'"), ("seqno", "-1"), ("seqno", "1.5"), ("flg", "'a'"),
        ("exp", "NULL"),
    ],
)  # fmt: skip
def test_a_row_that_is_no_mutation_is_named(tmp_path: Path, column: str, value: str) -> None:
    path = write_cbb(tmp_path / "data-0000.cbb", [Doc(b"a", b"1", 1), Doc(b"b", b"2", 2)])
    forge(path, f"UPDATE cbb_msg SET {column} = {value} WHERE seqno = 2")
    with pytest.raises(Damaged, match=f"row 2 is no mutation: {column}"):
        cbb.scan(path, "data-0000.cbb")


def test_torn_and_flipped_files_are_refused_or_read_as_something_else(tmp_path: Path) -> None:
    docs = [Doc(b"key-%d" % n, b"v" * 700, n + 1) for n in range(60)]
    content = write_cbb(tmp_path / "whole.cbb", docs).read_bytes()
    torn = tmp_path / "data-0000.cbb"
    for size in (0, 10, 100, 4096, len(content) // 2, len(content) - 4096):
        torn.write_bytes(content[:size])
        with pytest.raises(Damaged):
            cbb.scan(torn, "data-0000.cbb")
    # A flipped bit may change a value, and nothing else may happen.
    for position in range(0, len(content), 997):
        torn.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        try:
            list(cbb.mutations(torn, "data-0000.cbb"))
            cbb.scan(torn, "data-0000.cbb")
        except Damaged:
            continue


# --- names


def test_both_forms_of_times_and_quoted_names_are_read(tmp_path: Path) -> None:
    write_backup(tmp_path, "2013-10-13_11_28_11", "full", [Doc(b"a", seqno=1)], bucket="a/b c", node="h:8091")
    (tmp_path / "notes.txt").write_text("mine")
    backups, other_paths = tree.find(open_storage(str(tmp_path)).list())
    assert [(backup.kind, backup.buckets, str(backup.backup_time)) for backup in backups] == [
        ("full", ["a/b c"], "2013-10-13 11:28:11+00:00")
    ]
    assert other_paths == ["notes.txt"]
    assert tree.name_of(backups[0].backup_time) == "2013-10-13T112811Z"  # type: ignore[arg-type]


def write_unclosed_file(root: Path) -> None:
    (write_backup(root, FULL, "full", []) / "data-0000.cbb-journal").write_text("x")


def write_both_layouts(root: Path) -> None:
    write_backup(root, FULL, "full", [])
    write_cbb(root / "bucket-b" / "node-n" / "data-0000.cbb", [], 2004)


def write_files(numbers: Iterable[int], root: Path) -> None:
    (write_backup(root, FULL, "full", []) / "data-0000.cbb").unlink()
    for number in numbers:
        write_cbb(next(root.glob("*/*/*/*")) / f"data-{number:04d}.cbb", [Doc(b"a", seqno=1)])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda root: (root / "a.txt").write_text(""), NotFound, "data-"),
        (lambda root: write_backup(root, MONDAY, "diff", [], chain=FULL), Refused, "no earlier full"),
        (lambda root: write_backup(root, "2014-13-40T990000Z", "full", []), Damaged, "not a time"),
        (write_unclosed_file, Damaged, "not closed"),
        (write_both_layouts, Refused, "older layout"),
        (partial(write_files, [1]), Damaged, "has data-0001.cbb and no data-0000.cbb"),
        (partial(write_files, [0, 1, 3]), Damaged, "has data-0003.cbb and no data-0002.cbb"),
    ],
)
def test_folders_that_are_no_archive(
    tmp_path: Path, make: Any, error: type[LakebackupError], message: str
) -> None:
    make(tmp_path)
    with pytest.raises(error, match=message):
        tree.find(open_storage(str(tmp_path)).list())


# --- chains


def write_week(root: Path) -> None:
    write_backup(root, FULL, "full", [Doc(b"a", b"1", 1), Doc(b"b", b"1", 2)], user="eve")
    write_backup(root, MONDAY, "diff", [Doc(b"a", b"2", 3)], chain=FULL)
    write_backup(root, TUESDAY, "accu", [Doc(b"a", b"2", 3), Doc(b"c", b"1", 4)], chain=FULL)
    write_backup(root, WEDNESDAY, "diff", [Doc(b"c", None, 5)], chain=FULL)


def test_differentials_continue_the_last_backup_and_cumulatives_the_full(tmp_path: Path) -> None:
    write_week(tmp_path)
    full, monday, tuesday, wednesday = (p.backup for p in plan(tmp_path))
    assert (full.kind, full.level, full.created_by, full.source_kind) == ("full", 0, "eve", "couchbase")
    assert [b.parent for b in (monday, tuesday, wednesday)] == [
        full.backup_id, full.backup_id, tuesday.backup_id,
    ]  # fmt: skip
    assert [(b.place, b.parent_place) for b in (monday, tuesday, wednesday)] == [(2, 1), (3, 1), (4, 3)]
    assert full.backup_id.startswith("20140202T020000Z-")
    spans = [[(p.start_position, p.end_position) for p in planned.positions] for planned in plan(tmp_path)]
    assert spans == [[(0, 3)], [(3, 4)], [(3, 5)], [(5, 6)]]


def test_fields_of_meta_json_are_kept_in_the_note(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"compression": False, "retention_policy": "14 days", "audit_log": True}
    write_backup(tmp_path, FULL, "full", [], node="a", merge=[1], **fields)
    write_backup(tmp_path, FULL, "full", [], node="b", merge=[2], **fields)
    (planned,) = plan(tmp_path)
    bucket = json.loads(planned.backup.note or "")["buckets"]["default"]
    assert bucket.items() >= fields.items()
    assert bucket["nodes"] == {"a": {"merge": [1]}, "b": {"merge": [2]}}
    assert planned.backup.tool == "cbbackup 6.6.0"


def test_an_imported_backup_is_known_and_a_newer_one_continues_it(tmp_path: Path) -> None:
    write_backup(tmp_path, FULL, "full", [Doc(b"a", b"1", 1)])
    rows = [as_row(p.backup) for p in plan(tmp_path)]
    write_backup(tmp_path, MONDAY, "diff", [Doc(b"a", b"2", 2)], chain=FULL)
    first, second = plan(tmp_path, rows)
    assert (first.in_catalog, first.backup, second.in_catalog, second.backup.number) == (
        True, plan(tmp_path)[0].backup, False, 2,
    )  # fmt: skip
    with pytest.raises(Refused, match="other contents"):
        plan(tmp_path, [rows[0] | {"digest": "0"}])
    with pytest.raises(Refused, match=r"which is deleted now\.\n.*--source"):
        plan(tmp_path, [rows[0] | {"state": "deleted"}])
    with pytest.raises(Refused, match="of another kind: topics"):
        plan(tmp_path, [rows[0] | {"source_kind": "kafka"}])
    with pytest.raises(Refused, match="before the newest"):
        plan(tmp_path, [rows[0] | {"backup_id": "x-y", "end_ts": 2**50}])


PATH = f"/elsewhere/{FULL}/{FULL}-full/bucket-default/node-n/data-0000.cbb"


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"pred": ["../../etc/passwd"]}, Damaged, "no file of an archive"),
        ({"pred": [PATH.replace("elsewhere", "..")]}, Damaged, "no file of an archive"),
        ({"pred": [PATH.replace("-full", "-diff")]}, Refused, "not in the archive"),
        ({"pred": [PATH.replace(FULL, WEDNESDAY)]}, Refused, "not taken before"),
        ({"baselines": [PATH.replace(f"{FULL}-full", f"{MONDAY}-diff")]}, Refused, "not taken before"),
        ({"pred": "all"}, Damaged, "a list of paths"),
        ({"user": 7}, Damaged, "a text is expected"),
    ],
)
def test_a_meta_json_that_lies_is_refused(
    tmp_path: Path, fields: dict[str, Any], error: type[LakebackupError], message: str
) -> None:
    write_backup(tmp_path, FULL, "full", [Doc(b"a", seqno=1)])
    write_backup(tmp_path, MONDAY, "diff", [Doc(b"a", seqno=2)], chain=FULL, **fields)
    write_backup(tmp_path, WEDNESDAY, "full", [Doc(b"a", seqno=2)])
    with pytest.raises(error, match=message) as caught:
        plan(tmp_path)
    assert caught.value.hint


def test_a_baseline_decides_what_a_backup_depends_on(tmp_path: Path) -> None:
    write_week(tmp_path)
    meta = tmp_path / FULL / f"{WEDNESDAY}-diff/bucket-default/node-10.0.0.1%3A8091/meta.json"
    meta.write_text(json.dumps({"pred": [PATH, PATH.replace(f"{FULL}-full", f"{MONDAY}-diff")]}))
    *_, wednesday = plan(tmp_path)
    assert wednesday.backup.parent_place == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("meta.json", "{", "meta.json"), ("meta.json", "[]", "no JSON object"),
        ("seqno.json", '{"0": 1}', "the last one is 1"), ("seqno.json", '{"70000": 1}', "70000"),
        ("seqno.json", '{"0": "9"}', "sequence number"), ("seqno.json", '{"0": true}', "sequence number"),
        ("seqno.json", '{"0": 9, "1": -1}', "sequence number"), ("seqno.json", "{}", "the last one is 0"),
    ],
)  # fmt: skip
def test_json_that_contradicts_the_data_is_refused(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    folder = write_backup(tmp_path, FULL, "full", [Doc(b"a", seqno=1), Doc(b"a", seqno=2)])
    (folder / name).write_text(text)
    with pytest.raises(Damaged, match=message):
        plan(tmp_path)


def test_a_backup_that_ends_before_its_parent_is_refused(tmp_path: Path) -> None:
    write_backup(tmp_path, FULL, "full", [Doc(b"a", seqno=9)])
    folder = write_backup(tmp_path, MONDAY, "diff", [], chain=FULL)
    (folder / "seqno.json").write_text('{"0": 4}')
    with pytest.raises(Damaged, match="ends at 4"):
        plan(tmp_path)


def test_without_sequence_numbers_an_archive_is_one_full_backup(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    write_cbb(old / "bucket-default" / "node-n" / "data-0000.cbb", [Doc(b"a"), Doc(b"b")], 2004)
    (planned,) = plan(old)
    assert (planned.backup.kind, planned.backup.entries, planned.positions) == ("full", 2, [])
    write_backup(new, FULL, "full", [Doc(b"a", seqno=1)])
    diff = write_backup(new, MONDAY, "diff", [Doc(b"a")], chain=FULL, version=2004)
    with pytest.raises(Refused, match="cannot be incremental"):
        plan(new)
    write_cbb(diff.parent.parent.parent / "x" / "y", [])  # other files in the folder are left alone
    for version in (2004, 2014):
        root = tmp_path / str(version)
        write_backup(root, FULL, "full", [Doc(b"a")], version=version)
        write_backup(root, MONDAY, "diff", [Doc(b"a", seqno=2)], chain=FULL)
        with pytest.raises(Refused, match="restored alone"):
            plan(root)


def test_a_later_backup_shows_how_far_a_vbucket_was_rolled_back(tmp_path: Path) -> None:
    write_backup(tmp_path, FULL, "full", [Doc(b"a", seqno=1), Doc(b"a", seqno=2, vbucket=1)])
    write_backup(tmp_path, MONDAY, "diff", [Doc(b"a", seqno=n) for n in (2, 3, 4)], chain=FULL)
    # A replica that had fewer mutations took over.
    write_backup(tmp_path, TUESDAY, "diff", [Doc(b"b", seqno=3)], chain=FULL)
    planned = plan(tmp_path)
    order = [p.backup.backup_id for p in planned]
    limits = takeovers([as_row(row) for p in planned for row in p.positions], order)
    assert [limits[name] for name in order] == [{("default", 0): 2}, {("default", 0): 3}, {}]
    assert [(p.start_position, p.end_position) for p in planned[2].positions] == [(3, 4)]


# --- values


@pytest.mark.parametrize(
    ("full_failover", "diff_failover", "start"),
    [
        ('{"0": [[7, 0]]}', '{"0": [[8, 3], [7, 0]]}', 4),
        ('{"0": [[7, 0]]}', '{"0": [[9, 20], [8, 3], [7, 0]]}', 4),
        ('{"0": [[7, 0]]}', '{"0": [[8, 10], [7, 0]]}', 11),  # the replica had every mutation
        # The branch is older than the full backup.
        ('{"0": [[8, 3], [7, 0]]}', '{"0": [[8, 3], [7, 0]]}', 11),
        (None, '{"0": [[8, 3], [7, 0]]}', 11),
        ('{"0": [[7, 0]]}', '{"0": [[8], "x", [8, 3, 1], ["8", 3]], "x": 1, "1": [[9, 0]]}', 11),
        ('{"0": [[7, 0]]}', f'{{"0": [[7, 0]], "{"9" * 5000}": [[8, 3]]}}', 11),  # no number of a vbucket
    ],
)
def test_a_branch_rolls_a_vbucket_back_to_where_it_began(
    tmp_path: Path, full_failover: str | None, diff_failover: str, start: int
) -> None:
    """All documents of the lost mutations were changed again: what replaced them has later numbers."""
    full = write_backup(tmp_path, FULL, "full", [Doc(b"a", seqno=n) for n in range(1, 11)])
    diff = write_backup(tmp_path, MONDAY, "diff", [Doc(b"b", seqno=n) for n in (29, 30)], chain=FULL)
    if full_failover:
        (full / "failover.json").write_text(full_failover)
    (diff / "failover.json").write_text(diff_failover)
    write_backup(tmp_path, TUESDAY, "diff", [Doc(b"b", seqno=31)], chain=FULL)
    planned = plan(tmp_path)
    assert [(p.start_position, p.end_position) for backup in planned for p in backup.positions] == [
        (0, 11), (start, 31), (31, 32),
    ]  # fmt: skip


def test_a_vbucket_without_new_mutations_is_rolled_back(tmp_path: Path) -> None:
    full = write_backup(tmp_path, FULL, "full", [Doc(b"a", seqno=n) for n in range(1, 11)])
    diff = write_backup(tmp_path, MONDAY, "diff", [Doc(b"b", seqno=1, vbucket=1)], chain=FULL)
    (full / "failover.json").write_text('{"0": [[7, 0]]}')
    (diff / "failover.json").write_text('{"0": [[8, 3], [7, 0]]}')
    planned = plan(tmp_path)
    order = [p.backup.backup_id for p in planned]
    limits = takeovers([as_row(row) for p in planned for row in p.positions], order)
    assert [limits[name] for name in order] == [{("default", 0): 4, ("default", 1): 0}, {}]


def test_a_document_is_a_line() -> None:
    row = {"key": b"k", "vbucket": 1, "seqno": 2, "cas": "3", "flags": 0, "expiry": 0, "datatype": 0}
    assert (
        json.loads(line({**row, "value": b'{"a":\r\n 1e400, "b": 12345678901234567890}'}))["value"]["b"] > 0
    )
    numbers = line({**row, "value": b'{"a":\r\n 1e400}'})
    assert b'"value": {"a":   1e400}' in numbers, "numbers stay as they are"
    assert json.loads(line({**row, "value": b"a\nb"}))["text"] == "a\nb"
    assert json.loads(line({**row, "value": b"NaN"}))["text"] == "NaN"
    assert json.loads(line({**row, "value": b"\xff"}))["base64"] == "/w=="
    assert json.loads(line({**row, "value": b"{}", "datatype": 3}))["base64"] == "e30="
    assert json.loads(line({**row, "key": b"\xff", "value": b"1"}))["key_base64"] == "/w=="
    assert all(text.count(b"\n") == 1 for text in (line({**row, "value": b'"\xe2\x80\xa8"\n'}),))


@pytest.mark.parametrize(("ts", "cas"), [(-1, 0), (0, 0), (1, 10**6), (2**63 - 1, 0), (10**13, 10**19)])
def test_a_timestamp_is_a_cas_that_fits(ts: int, cas: int) -> None:
    assert cas_of(ts) == cas
    assert 0 <= cas_of(ts) < 2**64


# --- restores and exports


def test_a_backup_that_ended_after_the_requested_time_is_refused(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path)
    first, second = backups.backup([[Record(0, 0)]]), backups.backup([[Record(0, 1)]])
    reader = backups.reader()
    assert archive_export.chain_of(reader, "prod", 1999).last["backup_id"] == first
    assert archive_export.chain_of(reader, second, 2000).last["backup_id"] == second
    with pytest.raises(Refused, match=r"ended at .*:02\.000Z, after .*:01\.999Z\.\nName its source, prod"):
        archive_export.chain_of(reader, second, 1999)


def test_backups_of_another_program_are_not_exported(tmp_path: Path) -> None:
    backups = MadeBackups(tmp_path / "backups")
    backup = manifest(1, source="vault")[0].backup
    backups.add(replace(backup, source_kind="tape", destination="tape:vault"))
    backups.flush()
    request = ArchiveExportRequest(str(backups.folder), str(tmp_path / "out"))
    with pytest.raises(Refused, match=r"another program \(tape\)"):
        archive_export.run(request, reporter=quiet())
    assert not (tmp_path / "out").exists()


# --- topics, exported and read back


RECORDS = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(-1, 5), st.sampled_from([b"a", b"b", b"", b"\xff\0"]),
            st.none() | st.binary(max_size=4),
        ),
        min_size=1, max_size=6,
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@given(RECORDS, st.integers(1, 400))
@settings(max_examples=settings.default.max_examples // 12)
def test_an_exported_chain_of_topics_is_read_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory,
    backups: Sequence[Sequence[tuple[int, int, bytes, bytes | None]]],
    target_bytes: int,
) -> None:
    tmp = tmp_path_factory.mktemp("around")
    repository, ends, all_records = MadeBackups(tmp / "backups"), [0, 0, 0], []
    for records in backups:
        files: list[list[Record]] = [[], [], []]
        for partition, ts, key, value in records:
            files[partition].append(Record(partition, ends[partition], ts, key, value))
            ends[partition] += 1
        repository.backup([file for file in files if file])
        all_records += [record for file in files for record in file]
    repository.flush()
    archive = tmp / "dest" / "shop" / "archive"
    request = ArchiveExportRequest(
        str(repository.folder), str(archive), target_bytes=target_bytes, runner="local"
    )
    archive_export.run(request, reporter=quiet())
    rows = [
        (vbucket, seqno - 1, int(cas), key, value if cmd == 0x57 else None)
        for _, (cmd, vbucket, key, _, _, cas, _, value, seqno, *_) in read_archive(archive).rows
    ]
    expected = [(r.partition, r.offset, cas_of(r.ts), r.key, r.value) for r in all_records]
    assert sorted(rows, key=str) == sorted(expected, key=str)

    planned = plan(archive)
    assert [p.backup.kind for p in planned] == ["full", *["differential"] * (len(backups) - 1)]
    order = [p.backup.backup_id for p in planned]
    limits = takeovers([as_row(row) for p in planned for row in p.positions], order)
    data = tuple(as_row(file) for p in planned for file in p.files if file.role == "data")
    job = ReadJob(roots_of(d=f"file://{tmp}/dest"), data, limits, str(tmp))
    newest: dict[tuple[int, bytes], dict[str, Any]] = {}
    for row in sorted(
        (row for number in range(len(data)) for row in job.read(number)),
        key=lambda row: (row["seqno"], row["place"]),
    ):
        newest[row["vbucket"], row["key"]] = row
    values = {document: None if row["deleted"] else row["value"] for document, row in newest.items()}
    assert values == {(r.partition, r.key): r.value for r in sorted(all_records, key=lambda r: r.offset)}
    shutil.rmtree(tmp)

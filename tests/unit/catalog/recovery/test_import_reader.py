"""Rows of other programs: how they are read, and the problems of invalid ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.disks import flip

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.plan.upkeep.import_backups import BackupsPlan, counted, plan_backups
from lakebackup.recovery.import_reader import ImportRows, import_files, import_schema
from lakebackup.rows.tables import as_row
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks import progress
from lakebackup_jobs.lifecycle.tasks.progress import TaskCounters
from lakebackup_jobs.upkeep.import_rows import CountedRows

FILE = {"backup_id": "s1", "path": "a", "bytes": 1}


def rows_of(table: str, path: Path, backups: frozenset[str] | None = None) -> list[dict[str, Any]]:
    import_rows = ImportRows(table, tuple(import_files(table, str(path))), is_export=False, backups=backups)
    return [row for number in range(len(import_rows.files)) for row in import_rows.read(number)]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_task_reports_the_bytes_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    file, rows = tmp_path / f"rows.{form}", [FILE | {"path": f"{n}-{n * n}"} for n in range(20_000)]
    if form == "jsonl":
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    files = import_files("files", str(file))
    counted_rows = CountedRows(
        "files", tuple(files), is_export=False, counters=TaskCounters(str(tmp_path / "to"), "imports/1/")
    )
    assert [row["path"] for row in counted_rows.read(0)] == [row["path"] for row in rows]
    records, bytes_read = progress.TaskProgress(open_storage(str(tmp_path / "to")), "imports/1/").total()
    # The footer of a Parquet file is read first, and once more together with the bytes near it.
    assert records == 0
    assert file.stat().st_size <= bytes_read <= 1.5 * file.stat().st_size + 2 * 65_536


def problem_of(table: str, path: Path, text: str) -> str | None:
    file = path / "rows.jsonl"
    file.write_text(f"{text}\n")
    (row,) = rows_of(table, file, frozenset({"s1"}))
    problem: str | None = row["row_problem"]
    return problem


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("files", {"backup_id": "s9"}, "there is no backup 's9'"),
        ("files", {"bytes": None}, "bytes must be given"),
        ("files", {"bytes": "1"}, "bytes is '1', a whole number is expected"),
        ("files", {"bytes": True}, "bytes is True"),
        ("files", {"bytes": 1.0}, "bytes is 1.0"),
        ("files", {"bytes": -1}, "bytes is -1, which is below 0"),
        ("files", {"bytes": 2**63}, "too large"),
        ("files", {"generation": 2**31}, "too large"),
        ("files", {"byte": 1}, "there is no column byte; did you mean bytes?"),
        ("files", {"path": "a/../b"}, "path 'a/../b' is not relative, or holds '..'"),
        ("files", {"path": "/"}, "path ''"),
        ("files", {"sha256": "AB"}, "sha256 is 'AB'"),
        ("files", {"role": "other"}, "one of data, meta, schema, config"),
        ("files", {"min_ts": 2, "max_ts": 1}, "min_ts 2 is not before max_ts 1"),
        ("files", {"start_position": 2, "end_position": 2}, "start_position"),
        ("manifests", {}, "sha256 or max_ts (the last change, ms) must be given"),
        ("departures", {"added_in": 3, "gone_in": 3, "bytes": 1}, "added_in 3 is not before gone_in 3"),
    ],
)
def test_an_invalid_row_is_reported(tmp_path: Path, table: str, change: dict[str, Any], message: str) -> None:
    problem = problem_of(table, tmp_path, json.dumps(FILE | change))
    assert message in problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"backup_id":"s1"', "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ("[" * 100_000, "it is not JSON"),
        ('{"path":"' + "a" * 2**20 + '"}', "more than"),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "it is not JSON"),
    ],
)
def test_an_invalid_line_is_reported(tmp_path: Path, text: str, message: str) -> None:
    problem = problem_of("files", tmp_path, text)
    assert message in problem


def test_jsonl_and_parquet_give_the_same_rows(tmp_path: Path) -> None:
    rows = [FILE | {"path": "/home/ü", "entries": 2}, FILE | {"path": "b", "entries": None}]
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "1.jsonl").write_text("\n".join(["", *map(json.dumps, rows)]))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x" / "2.parquet")
    read_rows = rows_of("files", tmp_path / "x")
    assert [(r["row_file"], r["row_number"], r["path"], r["entries"]) for r in read_rows] == [
        (0, 2, "home/ü", 2),
        (0, 3, "b", None),
        (1, 1, "home/ü", 2),
        (1, 2, "b", None),
    ]
    assert {row["row_problem"] for row in read_rows} == {None}
    assert list(read_rows[0]) == import_schema("files").names


def test_a_damaged_parquet_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([FILE] * 100), file, write_page_checksum=True)
    flip(file, 20)
    assert "not a valid Parquet file" in rows_of("files", file)[-1]["row_problem"]


def test_missing_files_and_unknown_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=f"--files {tmp_path}/nothing.jsonl does not exist"):
        import_files("files", str(tmp_path / "nothing.jsonl"))
    with pytest.raises(NotFound, match="--backups /nothing does not exist"):
        import_files("backups", "/nothing")
    (tmp_path / "rows.csv").write_text("a")
    with pytest.raises(UsageProblem, match=r"rows\.csv"):
        import_files("files", str(tmp_path / "rows.csv"))


def backup(backup_id: str, end_ts: int, **changes: Any) -> dict[str, Any]:
    columns = dict.fromkeys(import_schema("backups").names)
    own = {"backup_id": backup_id, "source": "laptop", "end_ts": end_ts, "row_file": 0, "row_number": end_ts}
    return columns | own | changes


def planned(*rows: dict[str, Any], catalog: Any = None, **flags: bool) -> BackupsPlan:
    known_backups = catalog or {}
    return plan_backups(
        rows,
        known_backups,
        is_export=False,
        source_kind="restic",
        listed=flags.get("listed", False),
        compared=flags.get("compared", False),
        mirror=flags.get("mirror", False),
    )


def catalog_rows(*rows: dict[str, Any]) -> dict[str, dict[str, Any]]:
    plan = planned(*rows, compared=True)
    assert not plan.wrong
    return {row.backup_id: as_row(row) for row in counted(plan.new, {})}


def test_numbers_follow_the_time_and_chains_the_given_parents() -> None:
    plan = planned(backup("c", 3, parent="a"), backup("a", 1), backup("b", 2, number=5))
    backups = [(b.backup_id, b.number, b.kind, b.level, b.parent, b.base, b.chain_position) for b in plan.new]
    assert backups == [
        ("a", 1, "full", 0, None, "a", 0),
        ("b", 5, "full", 0, None, "b", 0),
        ("c", 6, "differential", 1, "a", "a", 1),
    ]
    assert [b.start_ts for b in plan.new] == [None, None, 1]
    assert plan.new[0].destination == "restic:laptop"


def test_with_lifetimes_backups_are_fulls_compared_with_the_previous_one() -> None:
    catalog = catalog_rows(backup("a", 1), backup("b", 2))
    plan = planned(
        backup("b", 2), backup("c", 3), backup("d", 4, kind="full"), catalog=catalog, compared=True
    )
    backups = [(b.backup_id, b.number, b.kind, b.parent, b.parent_place, b.base) for b in plan.new]
    assert backups == [("c", 3, "full", "b", None, "c"), ("d", 4, "full", "c", None, "d")]
    assert plan.known_ids == {"b"}


def test_missing_totals_are_summed_over_the_files() -> None:
    plan = planned(backup("a", 1, files=7), backup("b", 2))
    first, second = counted(plan.new, {"a": {"files": 1, "bytes": 2, "entries": 3}})
    assert (first.files, first.bytes, first.entries) == (7, 2, 3)
    assert (second.files, second.bytes, second.entries) == (0, 0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "../x"}, "cannot be the name of a source"),
        ({"backup_id": "a,b"}, "cannot be an id"),
        ({"source_kind": "kafka"}, "backups of this program"),
    ],
)
def test_an_invalid_backup_is_reported(change: dict[str, Any], message: str) -> None:
    plan = planned(backup("a", 1) | change)
    assert message in plan.wrong[0][2]
    assert not plan.new


def test_a_backup_without_its_parent_is_imported_and_named() -> None:
    """The other program may have deleted the parent."""
    plan = planned(backup("a", 1) | {"parent": "nobody"})
    assert [(imported.backup_id, imported.parent) for imported in plan.new] == [("a", "nobody")]
    assert [text for *_, text in plan.orphans] == [
        "its parent nobody is not there, so backup a leads nowhere"
    ]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([backup("a", 1), backup("a", 2)], "given twice"),
        ([backup("a", 1, number=5), backup("b", 2, number=5)], "does not come after"),
    ],
)
def test_backups_given_twice_or_out_of_order_are_reported(rows: list[dict[str, Any]], complaint: str) -> None:
    assert complaint in planned(*rows).wrong[0][2]
    assert "leave it out" in planned(backup("a", 1, kind="full"), listed=True).wrong[0][2]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (backup("a", 1), "it ended before b"),
        (backup("b", 6), "another end_ts"),
        (backup("c", 6, source_kind="borg"), "of kind restic, not borg"),
    ],
)
def test_backups_that_contradict_the_catalog_are_reported(row: dict[str, Any], complaint: str) -> None:
    assert complaint in planned(row, catalog=catalog_rows(backup("b", 5))).against[0][2]


def test_backups_of_one_new_source_have_one_kind() -> None:
    plan = planned(backup("a", 1), backup("b", 2, source_kind="borg"))
    assert [row[2] for row in plan.against] == [
        "source laptop is one of kind restic, not borg: give it another name"
    ]


def test_a_log_is_in_no_chain_and_may_come_late() -> None:
    catalog = catalog_rows(backup("a", 1), backup("b", 5))
    plan = planned(backup("w", 3, kind="log", start_ts=1), backup("c", 6, parent="b"), catalog=catalog)
    backups = [(b.backup_id, b.number, b.kind, b.parent, b.base) for b in plan.new]
    assert backups == [("w", 3, "log", None, "w"), ("c", 4, "differential", "b", "b")]
    for wrong, message in (
        ({"kind": "log"}, "give start_ts too"),
        ({"kind": "log", "start_ts": 1, "parent": "b"}, "a log has no parent"),
        ({"kind": "cumulative"}, "kind cumulative continues another: name that one as parent"),
    ):
        (problem,) = planned(backup("x", 7, **wrong), catalog=catalog).wrong
        assert message in problem[2]
    changed = [backup("a", 1, start_ts=0), backup("b", 5, bytes=7)]
    assert [row[2] for row in planned(*changed, catalog=catalog).against] == [
        "the catalog has backup b with another bytes"
    ]


def test_backups_that_a_mirrored_list_lacks_are_deleted() -> None:
    catalog = catalog_rows(backup("a", 1), backup("b", 2, state="deleted"), backup("c", 3), backup("d", 4))
    catalog |= catalog_rows(backup("other", 1, source="desk"))
    rows = backup("b", 2), backup("c", 3), backup("d", 4, state="out_of_sync"), backup("e", 5)
    plan = planned(*rows, catalog=catalog, mirror=True)
    assert plan.states == {
        "deleted": {"a": "laptop"}, "complete": {"b": "laptop"}, "out_of_sync": {"d": "laptop"},
    }  # fmt: skip
    assert [b.backup_id for b in plan.new] == ["e"]
    assert planned(*rows, catalog=catalog).states == {"out_of_sync": {"d": "laptop"}}

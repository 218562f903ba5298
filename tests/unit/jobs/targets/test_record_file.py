"""`restore topics --to csv:…`, `json:…` and `parquet:…`, over handmade backups and without Java."""

from __future__ import annotations

import base64
import csv
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.command_line import Commands
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.rows.topics import SchemaRecord
from lakebackup.storage import local

RECORDS = [
    Record(0, 0, 100, b"k", b"plain", (("h", b"x"), ("h", None), ("raw", b"\xff"))),
    Record(0, 1, 101, None, b""),
    Record(0, 2, 102, b"", None),
    Record(0, 5, 103, b"\xff\0", b'a "quoted", line\nand \xc3\xbc'),
    Record(1, 0, 104, b"=1+2", b"@x"),
    Record(10, 7, 105, b"last", b"-12"),
]
FORMS = ("csv", "json", "parquet")


@pytest.fixture
def backups(tmp_path: Path) -> MadeBackups:
    backups = MadeBackups(tmp_path / "backups")
    backups.backup([RECORDS[5:], RECORDS[:2], RECORDS[2:4], RECORDS[4:5]], end_ts=200)
    backups.flush()
    return backups


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(capsys)


def restore_command(backups: MadeBackups, to: str, *flags: str) -> tuple[str, ...]:
    return ("restore", "topics", "orders", "--repo", str(backups.folder), "--to", to, *flags)


def read_text(path: Path, form: str) -> list[dict[str, Any]]:
    """The rows of a CSV or JSON file, read by Python's own modules."""
    if form == "json":
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def bytes_of(row: dict[str, Any], column: str) -> bytes | None:
    """The bytes that a row of text stands for."""
    match row[f"{column}_encoding"]:
        case "text":
            return str(row[column]).encode()
        case "base64":
            return base64.b64decode(row[column])
        case _:
            return None


def test_every_record_is_a_json_line(backups: MadeBackups, commands: Commands, tmp_path: Path) -> None:
    result = commands.result(*restore_command(backups, f"json:{tmp_path}/orders.json"))
    assert result["entries"] == len(RECORDS)
    rows = read_text(tmp_path / "orders.json", "json")
    assert [(row["topic"], row["partition"], row["offset"], row["ts"]) for row in rows] == [
        ("orders", record.partition, record.offset, record.ts) for record in RECORDS
    ]
    assert [(bytes_of(row, "key"), bytes_of(row, "value")) for row in rows] == [
        (record.key, record.value) for record in RECORDS
    ]
    assert rows[0]["headers"] == [["h", "x"], ["h", None], ["raw", {"hex": "ff"}]]
    assert {json.dumps(row["headers"]) for row in rows[1:]} == {"[]"}
    assert {row["value_json"] for row in rows} == {None}


def test_csv_is_rfc_4180_without_formulas(backups: MadeBackups, commands: Commands, tmp_path: Path) -> None:
    commands.output(*restore_command(backups, f"csv:{tmp_path}/orders.csv"))
    text = (tmp_path / "orders.csv").read_text("utf-8")
    header = "topic,partition,offset,ts,key,key_encoding,value,value_encoding,key_json,value_json,headers\n"
    assert text.startswith(header)
    rows = read_text(tmp_path / "orders.csv", "csv")
    assert [(row["partition"], row["offset"]) for row in rows] == [
        (str(record.partition), str(record.offset)) for record in RECORDS
    ]
    plain_rows = [row for row in rows if row["partition"] != "1"]
    assert [(bytes_of(row, "key"), bytes_of(row, "value")) for row in plain_rows] == [
        (record.key, record.value) for record in RECORDS if record.partition != 1
    ]
    assert [(row["key"], row["value"]) for row in rows if row["partition"] == "1"] == [("'=1+2", "'@x")]
    assert json.loads(rows[0]["headers"]) == [["h", "x"], ["h", None], ["raw", {"hex": "ff"}]]


def test_parquet_has_typed_columns_and_exact_bytes(
    backups: MadeBackups, commands: Commands, tmp_path: Path
) -> None:
    commands.output(*restore_command(backups, f"parquet:{tmp_path}/orders.parquet"))
    table = pq.read_table(tmp_path / "orders.parquet")
    assert {field.name: str(field.type) for field in table.schema if field.name != "headers"} == {
        "topic": "string", "partition": "int32", "offset": "int64", "ts": "int64", "key": "binary",
        "value": "binary", "key_json": "string", "value_json": "string",
    }  # fmt: skip
    assert [
        Record(
            row["partition"], row["offset"], row["ts"], row["key"], row["value"],
            tuple((pair["key"], pair["value"]) for pair in row["headers"]),
        )
        for row in table.to_pylist()
    ] == RECORDS  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_value_with_a_schema_is_written_as_json_too(
    backups: MadeBackups, commands: Commands, tmp_path: Path, form: str
) -> None:
    value = b'\0\0\0\0\1{"id":\n 8}'
    name = backups.backup([[Record(0, 0)]], topic="_schemas")
    schema = {"subject": "payments-value", "version": 1, "schema_id": 1, "schema_text": "{}"}
    position = {"backup_id": name, "scope": "_schemas", "kind": "schema", "log_position": 1}
    backups.add(filled(SchemaRecord, **schema, **position, schema_type="JSON"))
    by_header = (("__value_schema_id", b"\1" + b"g" * 16),)
    backups.backup(
        [[Record(0, 0, 0, b"k", value), Record(0, 1, 0, b"k", value, by_header)]], topic="payments"
    )
    backups.flush()
    path = tmp_path / f"payments.{form}"
    to = ("--to", f"{form}:{path}", "--map", "payments=p")
    commands.output("restore", "topics", "payments", "--repo", backups.folder, *to)
    rows = pq.read_table(path).to_pylist() if form == "parquet" else read_text(path, form)
    assert {row["topic"] for row in rows} == {"p"}
    decoded, named_by_header = (row["value_json"] or None for row in rows)
    assert named_by_header is None
    assert decoded == {"id": 8} if form == "json" else json.loads(decoded) == {"id": 8}
    assert (rows[0]["value"] if form == "parquet" else bytes_of(rows[0], "value")) == value


def test_the_times_of_a_restore_limit_its_records(
    backups: MadeBackups, commands: Commands, tmp_path: Path
) -> None:
    times = ("--from-time", "1970-01-01T00:00:00.101", "--to-time", "1970-01-01T00:00:00.104")
    commands.output(*restore_command(backups, f"json:{tmp_path}/some.json", *times))
    assert [row["ts"] for row in read_text(tmp_path / "some.json", "json")] == [102, 103, 104]


def test_a_dry_run_names_the_file_and_writes_nothing(
    backups: MadeBackups, commands: Commands, tmp_path: Path
) -> None:
    result = commands.result(*restore_command(backups, f"csv:{tmp_path}/orders.csv", "--dry-run"))
    assert result["target_file"] == f"{tmp_path}/orders.csv"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups"]


def test_a_file_that_exists_is_refused(backups: MadeBackups, commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("mine", "utf-8")
    for flags in ((), ("--dry-run",)):
        error = commands.fails(5, *restore_command(backups, f"csv:{tmp_path}/orders.csv", *flags))
        assert f"{tmp_path}/orders.csv exists already." in error
        assert "Name another file" in error
    assert (tmp_path / "orders.csv").read_text("utf-8") == "mine"


@pytest.mark.parametrize(
    ("to", "code", "message"),
    [
        ("csv:{0}/none/orders.csv", 5, "lies in a folder that does not exist"),
        ("csv:{0}/backups/orders.csv", 2, "lies in the repository"),
        ("json:{0}", 5, "is a folder"),
        ("json:{0}/", 2, "names a folder"),
        ("parquet:", 2, "is not a target of a restore"),
    ],
)
def test_a_file_that_cannot_be_written_is_named(
    backups: MadeBackups, commands: Commands, tmp_path: Path, to: str, code: int, message: str
) -> None:
    assert message in commands.fails(code, *restore_command(backups, to.format(tmp_path)))


@pytest.mark.parametrize("flag", ["--append", "--continue", "--repartition"])
def test_flags_for_topics_are_refused(
    backups: MadeBackups, commands: Commands, tmp_path: Path, flag: str
) -> None:
    assert f"{flag}: only" in commands.fails(2, *restore_command(backups, f"csv:{tmp_path}/orders.csv", flag))


@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_file_leaves_no_half_file_and_the_same_command_resumes(
    backups: MadeBackups, commands: Commands, tmp_path: Path, form: str
) -> None:
    damaged = max((backups.folder / "prod").rglob("*.data"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    command = restore_command(backups, f"{form}:{tmp_path}/orders.{form}")
    assert "is not what was written" in commands.fails(7, *command)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups"]
    damaged.write_bytes(content)
    result = commands.result(*command)
    assert (result["resumed"], result["entries"]) == (True, len(RECORDS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backups", f"orders.{form}"]


@pytest.mark.parametrize("form", FORMS)
def test_a_full_disk_is_named_and_leaves_no_half_file(
    backups: MadeBackups, commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    target_folder = tmp_path / "out"
    target_folder.mkdir()
    write = local.LocalWriter.write

    def write_to_full_disk(writer: local.LocalWriter, data: bytes) -> None:
        if target_folder in writer._temporary.parents:
            with Path("/dev/full").open("wb") as full:
                os.dup2(full.fileno(), writer._file.fileno())
        write(writer, data)

    monkeypatch.setattr(local.LocalWriter, "write", write_to_full_disk)
    error = commands.fails(6, *restore_command(backups, f"{form}:{target_folder}/orders.{form}"))
    assert "No space left on device" in error
    assert "Free some space there" in error
    assert not list(target_folder.iterdir())


def test_a_restore_is_recorded(backups: MadeBackups, commands: Commands, tmp_path: Path) -> None:
    commands.output(*restore_command(backups, f"csv:{tmp_path}/orders.csv"))
    query = "SELECT state, region, entries, target FROM restores ORDER BY region"
    rows = commands.rows("sql", query, "--repo", backups.folder)
    entries_by_region = {row["region"]: row["entries"] for row in rows if row["state"] == "region_done"}
    assert entries_by_region == {"0": 4, "1": 1, "10": 1}
    (total_row,) = (row for row in rows if row["region"] is None)
    assert (total_row["state"], total_row["target"]) == ("complete", f"csv:{tmp_path}/orders.csv")


def test_only_restore_topics_writes_files(backups: MadeBackups, commands: Commands) -> None:
    for command in (("log", "restore", "shop"), ("restore", "groups", "--group-pattern", ".*")):
        error = commands.fails(2, *command, "--repo", str(backups.folder), "--to", "csv:changes.csv")
        assert "only `restore topics` writes a csv file" in error
        assert "kafka://HOST:PORT" in error

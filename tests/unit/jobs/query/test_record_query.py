"""records('topic') by DuckDB, over real files and tables: no broker, no Java."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.disks import flip
from tests.support.made_backups import MadeBackups, Record
from tests.support.rows import filled

from lakebackup.errors import Damaged, NotFound, Refused, UsageProblem
from lakebackup.rows.topics import SchemaRecord
from lakebackup.sql_engine.guard.check import check_select
from lakebackup_jobs.lifecycle.tasks import progress
from lakebackup_jobs.query import record_query as ask


@pytest.fixture
def backups(tmp_path: Path) -> MadeBackups:
    return MadeBackups(tmp_path)


def rows(backups: MadeBackups, sql: str) -> list[dict[str, Any]]:
    return ask.select(backups.reader(), sql).rows.read_all().to_pylist()


def offsets_of(backups: MadeBackups, sql: str) -> list[int]:
    return [row["kafka_offset"] for row in rows(backups, sql)]


def run(first: int, end: int, *, partition: int = 0, step: int = 1000) -> list[Record]:
    return [
        Record(partition, offset, step * offset, f"k{offset % 7}".encode(), f"v{offset}".encode())
        for offset in range(first, end)
    ]


def test_a_record_has_every_column(backups: MadeBackups) -> None:
    odd = Record(1, 8, -1, b"\xff", b"\x00\x01", (("h", b"x"), ("h", None), ("b", b"\xff")))
    text = Record(1, 9, 1_700_000_000_123, "\u00e9".encode(), b' {"n": 1}')
    backups.backup([[odd, text, Record(1, 12, 2**62)]])
    first, second, third = rows(backups, "SELECT * FROM records('orders') ORDER BY kafka_offset")
    assert first | {"epoch": "", "path": "", "backup_id": ""} == {
        "source": "prod", "scope": "orders", "epoch": "", "path": "", "backup_id": "",
        "partition": 1, "kafka_offset": 8, "ts": -1, "time": None, "key": None, "key_hex": "ff",
        "key_json": None, "value": "\x00\x01", "value_hex": "0001", "value_json": None, "problem": None,
        "headers": '[["h", "x"], ["h", null], ["b", {"hex": "ff"}]]',
    }  # fmt: skip
    assert (second["key"], second["value"], second["value_json"]) == ("\u00e9", ' {"n": 1}', ' {"n": 1}')
    assert second["time"].isoformat() == "2023-11-14T22:13:20.123000"
    assert [third[name] for name in ("ts", "time", "key", "key_hex", "value", "value_hex", "value_json")] == [
        2**62, None, None, None, None, None, None,
    ]  # fmt: skip


def test_every_record_is_returned_once_across_chains(backups: MadeBackups) -> None:
    backups.backup([run(0, 10), run(0, 5, partition=1)])
    backups.backup([run(10, 20)])
    backups.backup([run(5, 18)], full=True, low={0: 5})  # repeats records, and has none of partition 1
    backups.backup([run(18, 30)])
    records = rows(
        backups, "SELECT partition, kafka_offset AS o, backup_id AS b FROM records('orders') ORDER BY 1, 2"
    )
    assert [(record["partition"], record["o"]) for record in records] == [
        *((0, o) for o in range(30)),
        *((1, o) for o in range(5)),
    ]
    assert {record["b"][-1] for record in records if record["o"] >= 5} == {"3", "4"}


def test_a_restore_point_has_the_records_of_its_restore(backups: MadeBackups) -> None:
    backups.backup([run(0, 10)], end_ts=9_500)
    backups.backup([run(10, 20)], end_ts=19_500)
    third = backups.backup([run(15, 25)], full=True, end_ts=24_500, low={0: 15})
    select = "SELECT kafka_offset FROM records('orders', '{}') ORDER BY 1"
    assert offsets_of(backups, select.format("1970-01-01T00:00:12Z")) == list(range(13))
    assert offsets_of(backups, select.format("09000")) == list(range(10))
    assert offsets_of(backups, select.format("20260101T000002Z")) == list(range(20))
    assert offsets_of(backups, select.format(third)) == list(range(15, 25))
    with pytest.raises(Refused, match="after the last backup"):
        rows(backups, select.format("1970-01-01T00:01Z"))
    with pytest.raises(NotFound, match="no backup"):
        rows(backups, select.format("20250101"))
    with pytest.raises(UsageProblem, match="not a time"):
        rows(backups, select.format("someday"))


def test_a_missing_topic_is_refused_with_a_hint(backups: MadeBackups) -> None:
    backups.backup([run(0, 3)])
    with pytest.raises(NotFound) as missing:
        rows(backups, "SELECT key FROM records('order')")
    assert missing.value.hint == "Did you mean orders?"
    assert offsets_of(backups, "SELECT kafka_offset FROM records('prod/orders') ORDER BY 1") == [0, 1, 2]


def test_a_task_counts_its_files(backups: MadeBackups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    for first in (0, 3):
        backups.backup([run(first, first + 3)])
    reader = backups.reader()
    checked = check_select("SELECT value FROM records('orders')", reader.relations(), records=True)
    (plan,) = ask.plans(reader, checked)
    files = reader.query("record_files", **plan.parameters()).read_all()
    counters = progress.TaskCounters(backups.storage.uri, "checks/1/")
    job = replace(ask.Records(reader, plan).job, counters=counters)
    assert sum(batch.num_rows for batch in job(files.to_batches())) == 6
    task_progress = progress.TaskProgress(backups.storage, "checks/1/")
    assert task_progress.total() == (2, sum(files["bytes"].to_pylist()))
    task_progress.clear()
    assert list(backups.storage.list("checks/")) == []


def test_only_files_that_can_hold_the_key_are_opened(backups: MadeBackups) -> None:
    """400 backups with a small file each, over which the keys are spread."""
    for hour in range(400):
        first = 10 * hour
        offsets = range(first, first + 10)
        backups.backup(
            [[Record(0, offset, offset, f"user-{offset * 7919 % 4000}".encode()) for offset in offsets]]
        )
    answer = ask.select(
        backups.reader(), "SELECT kafka_offset FROM records('orders') WHERE key = 'user-7919'"
    )
    assert answer.rows.read_all().num_rows == 0
    answer = ask.select(
        backups.reader(), "SELECT kafka_offset AS o FROM records('orders') WHERE key = 'user-3919'"
    )
    assert answer.rows.read_all().to_pylist() == [{"o": 1}]
    (reading,) = answer.readings
    assert (reading.stored_files, reading.opened) == (400, 1)
    assert reading.selected > 1
    # The bounds alone choose files by offset and time.
    answer = ask.select(
        backups.reader(), "SELECT ts FROM records('orders') WHERE kafka_offset BETWEEN 95 AND 101"
    )
    assert answer.rows.read_all().num_rows == 7
    assert answer.readings[0].opened == answer.readings[0].selected == 2


def test_a_damaged_file_is_an_error_and_nothing_else(backups: MadeBackups) -> None:
    backups.backup([run(0, 1000)])
    backups.backup([run(1000, 1010)])
    reader = backups.reader()
    (row,) = reader.select("SELECT path FROM files WHERE added_in = 1").read_all().to_pylist()
    path = Path(backups.folder, row["path"])
    flip(path)
    with pytest.raises(Damaged, match="is not what was written"):
        rows(backups, "SELECT count(*) FROM records('orders')")
    # A query that does not need the file is answered.
    assert offsets_of(backups, "SELECT kafka_offset FROM records('orders') WHERE kafka_offset = 1009") == [
        1009
    ]
    path.unlink()
    with pytest.raises(Damaged, match="is missing"):
        rows(backups, "SELECT count(*) FROM records('orders')")


def test_the_database_of_a_query_that_met_damage_is_freed(backups: MadeBackups) -> None:
    backups.backup([run(0, 10)])
    (path,) = Path(backups.folder).rglob("*.data")
    path.unlink()

    def ask_once() -> weakref.ref[Any]:
        reader = backups.reader()
        with pytest.raises(Damaged):
            ask.select(reader, "SELECT count(*) FROM records('orders')").rows.read_all()
        return weakref.ref(reader)

    reader = ask_once()
    gc.collect()
    assert reader() is None


def test_joins_subqueries_and_the_catalog_beside_them(backups: MadeBackups) -> None:
    backups.backup([run(0, 10)])
    backups.backup([[Record(0, 0, 0, b"k1", b"bill")]], topic="bills")
    sql = """
        WITH o AS (SELECT key, count(*) AS n FROM records('orders') GROUP BY key)
        SELECT o.key, o.n, b.value, f.entries
        FROM o JOIN records('bills') AS b ON o.key = b.key
        JOIN files AS f ON f.path = b.path
        WHERE b.value = 'bill' AND EXISTS (SELECT 1 FROM o AS again WHERE again.key = o.key)
    """
    assert rows(backups, sql) == [{"key": "k1", "n": 2, "value": "bill", "entries": 1}]


#: The end of the backup whose records have odd times, in ms.
END_TS = 1_795_810_000_000


def test_times_beyond_the_calendar_are_numbers_and_future_records_move_no_coverage(
    backups: MadeBackups,
) -> None:
    times = [-1, -7, 1, END_TS, 1000 * END_TS, 253_402_300_800_000]
    backups.backup(
        [[Record(0, offset, ts, b"k", b"v", (("", b"x"),)) for offset, ts in enumerate(times)]], end_ts=END_TS
    )
    records = rows(backups, "SELECT ts, time, headers FROM records('orders') ORDER BY kafka_offset")
    assert [row["ts"] for row in records] == times
    assert {row["headers"] for row in records} == {'[["", "x"]]'}
    assert [row["time"] and row["time"].isoformat() for row in records] == [
        None, None, "1970-01-01T00:00:00.001000", "2026-11-27T20:06:40", None, None,
    ]  # fmt: skip
    assert rows(backups, "SELECT to_ts FROM coverage") == [{"to_ts": END_TS}]
    assert rows(backups, "SELECT covered_ts FROM rpo") == [{"covered_ts": END_TS}]


def test_times_do_not_depend_on_the_time_zone_of_the_machine(
    backups: MadeBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    backups.backup([run(0, 10)])
    for instant in ("1970-01-01T00:00:03Z", "1970-01-01 00:00:03", "1970-01-01T01:00:03+01:00"):
        sql = f"SELECT kafka_offset FROM records('orders') WHERE time = TIMESTAMP '{instant}'"
        assert offsets_of(backups, sql) == [3]


def test_an_id_of_two_contexts_is_decoded_by_the_context_of_the_topic(backups: MadeBackups) -> None:
    def avro(name: str, *fields: tuple[str, str]) -> str:
        definition = {"type": "record", "name": name}
        return json.dumps({**definition, "fields": [{"name": n, "type": t} for n, t in fields]})

    name = backups.backup([[Record(0, 0)]], topic="_schemas")
    customer = avro("Customer", ("name", "string"), ("age", "int"))
    payment = avro("Payment", ("iban", "string"), ("cents", "int"))
    subjects = (("customers-value", customer), (":.partner:payments-value", payment))
    for number, (subject, text) in enumerate(subjects):
        schema = {
            "subject": subject,
            "version": 1,
            "schema_id": 1,
            "schema_text": text,
            "schema_type": "AVRO",
        }
        position = {"backup_id": name, "scope": "_schemas", "kind": "schema", "log_position": number}
        backups.add(filled(SchemaRecord, **schema, **position))
    value = b"\0\0\0\0\1\6Ann\x54"
    for topic in ("customers", "payments", "others"):
        backups.backup([[Record(0, 0, 0, value, value)]], topic=topic)

    def decoded(topic: str) -> dict[str, Any]:
        (row,) = rows(backups, f"SELECT key_json AS k, value_json AS v, problem AS p FROM records('{topic}')")
        return row

    assert decoded("customers")["v"] == '{"name":"Ann","age":42}'
    assert decoded("payments") == {
        "k": '{"iban":"Ann","cents":42}',
        "v": '{"iban":"Ann","cents":42}',
        "p": None,
    }
    unknown = decoded("others")
    assert (unknown["k"], unknown["v"]) == (None, None)
    assert "Customer (subject customers-value" in unknown["p"]
    assert "Payment (subject payments-value, version 1, in the context .partner" in unknown["p"]


def test_bytes_whose_schema_a_header_names_carry_no_id(backups: MadeBackups) -> None:
    name = backups.backup([[Record(0, 0)]], topic="_schemas")
    schema = {"subject": "orders-value", "version": 1, "schema_id": 1, "schema_text": '"long"'}
    position = {"backup_id": name, "scope": "_schemas", "kind": "schema", "log_position": 1}
    backups.add(filled(SchemaRecord, **schema, **position, schema_type="AVRO"))
    value = b"\0\0\0\0\1\x0e"
    headers = (("other", b"x"), ("__value_schema_id", b"\1" + b"g" * 16))
    backups.backup([[Record(0, 0, 0, value, value, headers), Record(0, 1, 0, b"k", value, (("a", b""),))]])
    first, second = rows(
        backups,
        "SELECT key_json AS k, value_json AS v, problem AS p FROM records('orders') ORDER BY kafka_offset",
    )
    assert first == {"k": "7", "v": None, "p": "value: its schema is named by a header, which is not read"}
    assert (second["v"], second["p"]) == ("7", None)


def test_values_with_a_schema_id_are_decoded(backups: MadeBackups) -> None:
    values = [b"\0\0\0\0\1\x0e", b'\0\0\0\0\2{"id": 8}', b"\0\0\0\0\3\x08\x01", b"\0\0\0\0\x09?", b"7"]
    backups.backup([[Record(0, i, i, b"k", value) for i, value in enumerate(values)]])
    name = backups.backup([[Record(0, 0)]], topic="_schemas")
    for number, (kind, text) in enumerate([("AVRO", '"long"'), ("JSON", "{}"), ("PROTOBUF", "")], 1):
        schema = {"subject": f"s{number}", "version": 1, "schema_id": number, "schema_text": text}
        position = {"backup_id": name, "scope": "_schemas", "kind": "schema", "log_position": number}
        backups.add(filled(SchemaRecord, **schema, **position, schema_type=kind))
    records = rows(
        backups, "SELECT value_json AS j, problem AS p FROM records('orders') ORDER BY kafka_offset"
    )
    assert [row["j"] for row in records] == ["7", '{"id": 8}', None, None, "7"]
    protobuf = "value: schema 3 is of the kind PROTOBUF, which is not decoded"
    assert [row["p"] for row in records] == [None, None, protobuf, "value: schema 9 is not known", None]

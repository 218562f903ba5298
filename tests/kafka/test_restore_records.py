"""A restore by SELECT of records, judged by confluent-kafka alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from deltalake import DeltaTable
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record, records_below

from lakebackup.errors import EnvironmentProblem, Refused, UsageProblem
from lakebackup_jobs.targets import kafka

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

MakeTopic = Callable[..., str]
OLD_MS = 1_600_000_000_000


def rows_of(partition: int, count: int) -> list[Record]:
    """Records with secrets, a poison message, a tombstone, one without a key, and bytes that are no text."""
    records = [
        Record(partition, b"k-%d" % (i % 5), b"secret %d" % i, (("h", b"1"), ("n", None)), OLD_MS + i)
        for i in range(count)
    ]
    return [
        *records,
        Record(partition, b"poison", b"\x00boom", (), OLD_MS),
        Record(partition, b"k-1", None, (), OLD_MS + 1),
        Record(partition, None, b"\xff\x00\xfe", (), OLD_MS + 2),
        Record(partition, b"\xff", b"", (("b", b"\xff"),), OLD_MS + 3),
    ]


def select(name: str) -> str:
    return (
        "SELECT partition, CASE WHEN startswith(key, 'k-') THEN concat('new-', key) ELSE key END AS key, "
        f"replace(value, 'secret', '***') AS value, headers, ts FROM records('{name}') "
        "WHERE key IS NULL OR key <> 'poison'"
    )


def masked(row: Record) -> Record:
    key = b"new-" + row.key if row.key and row.key.startswith(b"k-") else row.key
    return replace(row, key=key, value=row.value and row.value.replace(b"secret", b"***"))


# Restores into Kafka and into a folder, and a resumed one, need a broker: the verb is tested end to end once.
@pytest.mark.long
def test_masked_filtered_and_rekeyed_records_are_restored_in_order(
    lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    name, copy_topic = topic("asked", partitions=2), topic("asked-copy", partitions=2)
    records_by_partition = {partition: rows_of(partition, 300) for partition in (0, 1)}
    truth.produce(lab.bootstrap, name, records_by_partition[0] + records_by_partition[1])
    lab.backup(name, target_bytes=4096)
    expected = {
        partition: [masked(row) for row in rows if row.key != b"poison"]
        for partition, rows in records_by_partition.items()
    }
    options: dict[str, Any] = {"records": select(name), "maps": {name: copy_topic}}

    plan = lab.restore(**options, dry_run=True)
    assert plan["records"] == 606
    assert [
        (entry["partition"], entry["held"], entry["left_out"], entry["records"])
        for entry in plan["partitions"]
    ] == [
        (0, 304, 1, 303),
        (1, 304, 1, 303),
    ]
    assert len(plan["sample"]) == 5
    with pytest.raises(UsageProblem, match="does not return value"):
        lab.restore(records=f"SELECT partition, key FROM records('{name}')", maps={name: copy_topic})
    assert truth.contents(lab.bootstrap, copy_topic) == {}

    with (
        mock.patch.object(kafka.KafkaTarget, "write", side_effect=EnvironmentProblem("cut off")),
        pytest.raises(EnvironmentProblem, match="cut off"),
    ):
        lab.restore(**options)
    # The resumed run restores the records that the SELECT returned first, not what it returns now.
    truth.produce(lab.bootstrap, name, [Record(0, b"late", b"late", (), OLD_MS)])
    lab.backup(name)
    result = lab.restore(**options)
    assert (result["resumed"], result["entries"]) == (True, 606)
    assert truth.contents(lab.bootstrap, copy_topic) == expected
    assert not list(lab.folder.glob("restores/*/plan/**/*.data"))
    assert lab.sql("SELECT count(*) AS n FROM audit WHERE action = 'restore by SELECT of records'") == [
        {"n": 2}
    ]
    assert lab.sql("SELECT count(*) AS n FROM translations") == [{"n": 0}]

    target = tmp_path / "out"
    assert lab.restore(records=select(name), target=f"dir:{target}")["entries"] == 607
    restored = [row for _, row in records_below(target / "topics" / name)]
    assert [r for r in restored if r.partition == 1] == expected[1]


@pytest.mark.long
def test_joined_and_sorted_records_are_restored_and_repartitioned_by_key(
    lab: Lab, topic: MakeTopic, tmp_path: Path
) -> None:
    name, copy_topic = topic("joined", partitions=2), topic("joined-copy", partitions=5)
    truth.produce(lab.bootstrap, name, rows_of(0, 300) + rows_of(1, 300))
    lab.backup(name, target_bytes=4096)
    join_select = (
        f"SELECT r.partition, r.key, r.value, r.kafka_offset FROM records('{name}') AS r "
        "JOIN files AS f ON r.path = f.path WHERE r.key = 'k-1' AND r.value IS NOT NULL"
    )
    values = [b"secret %d" % i for i in range(1, 300, 5)]
    target = tmp_path / "out"
    assert lab.restore(records=join_select, target=f"dir:{target}")["entries"] == 120
    restored = [row for _, row in records_below(target / "topics" / name)]
    assert [r.value for r in restored if r.partition == 0] == values

    sorted_select = (
        f"SELECT 1 AS partition, key, value FROM records('{name}') WHERE key = 'k-1' ORDER BY value DESC, ts"
    )
    table = tmp_path / "table"
    assert lab.restore(records=sorted_select, target=f"delta:{table}")["entries"] == 122
    rows = DeltaTable(str(table)).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [row["value"] for row in rows if row["value"]] == sorted([*values, *values], reverse=True)

    key_select = f"SELECT key, value FROM records('{name}') WHERE key LIKE 'k-%'"
    options: dict[str, Any] = {"records": key_select, "maps": {name: copy_topic}, "repartition": True}
    assert lab.restore(**options)["entries"] == 602
    partitions_by_key: dict[bytes | None, set[int]] = {}
    for partition, records in truth.contents(lab.bootstrap, copy_topic).items():
        for record in records:
            partitions_by_key.setdefault(record.key, set()).add(partition)
    assert {key: len(partitions) for key, partitions in partitions_by_key.items()} == {
        b"k-%d" % i: 1 for i in range(5)
    }

    with pytest.raises(Refused, match="returns partition 7"):
        lab.restore(
            records=f"SELECT 7 AS partition, key, value FROM records('{name}')",
            target=f"dir:{tmp_path / 'no'}",
        )

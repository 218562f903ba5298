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

Make = Callable[..., str]
OLD = 1_600_000_000_000


def rows_of(partition: int, count: int) -> list[Record]:
    """Text with secrets, a poison message, a tombstone, no key, and bytes that are no text."""
    rows = [
        Record(partition, b"k-%d" % (i % 5), b"secret %d" % i, (("h", b"1"), ("n", None)), OLD + i)
        for i in range(count)
    ]
    return [
        *rows,
        Record(partition, b"poison", b"\x00boom", (), OLD),
        Record(partition, b"k-1", None, (), OLD + 1),
        Record(partition, None, b"\xff\x00\xfe", (), OLD + 2),
        Record(partition, b"\xff", b"", (("b", b"\xff"),), OLD + 3),
    ]


def select(name: str) -> str:
    return (
        "SELECT partition, CASE WHEN startswith(key, 'k-') THEN concat('new-', key) ELSE key END AS key, "
        f"replace(value, 'secret', '***') AS value, headers, ts FROM records('{name}') "
        "WHERE key IS NULL OR key <> 'poison'"
    )


def changed(row: Record) -> Record:
    key = b"new-" + row.key if row.key and row.key.startswith(b"k-") else row.key
    return replace(row, key=key, value=row.value and row.value.replace(b"secret", b"***"))


# A whole restore into both kinds of target and its resumption need a broker: the verb once end to end.
@pytest.mark.long
def test_masked_filtered_and_rekeyed_records_come_back_in_order(
    lab: Lab, topic: Make, tmp_path: Path
) -> None:
    name, copy = topic("asked", partitions=2), topic("asked-copy", partitions=2)
    before = {p: rows_of(p, 300) for p in (0, 1)}
    truth.produce(lab.bootstrap, name, before[0] + before[1])
    lab.backup(name, target_bytes=4096)
    wanted = {p: [changed(row) for row in rows if row.key != b"poison"] for p, rows in before.items()}
    asked: dict[str, Any] = {"records": select(name), "maps": {name: copy}}

    seen = lab.restore(**asked, dry_run=True)
    assert seen["records"] == 606
    assert [(p["partition"], p["held"], p["left_out"], p["records"]) for p in seen["partitions"]] == [
        (0, 304, 1, 303),
        (1, 304, 1, 303),
    ]
    assert len(seen["sample"]) == 5
    with pytest.raises(UsageProblem, match="does not return value"):
        lab.restore(records=f"SELECT partition, key FROM records('{name}')", maps={name: copy})
    assert truth.contents(lab.bootstrap, copy) == {}

    with (
        mock.patch.object(kafka.KafkaTarget, "write", side_effect=EnvironmentProblem("cut off")),
        pytest.raises(EnvironmentProblem, match="cut off"),
    ):
        lab.restore(**asked)
    # What was computed then is restored, not what the SELECT returns by now.
    truth.produce(lab.bootstrap, name, [Record(0, b"late", b"late", (), OLD)])
    lab.backup(name)
    done = lab.restore(**asked)
    assert (done["resumed"], done["entries"]) == (True, 606)
    assert truth.contents(lab.bootstrap, copy) == wanted
    assert not list(lab.folder.glob("restores/*/plan/**/*.data"))
    assert lab.sql("SELECT count(*) AS n FROM audit WHERE action = 'restore by SELECT of records'") == [
        {"n": 2}
    ]
    assert lab.sql("SELECT count(*) AS n FROM translations") == [{"n": 0}]

    out = tmp_path / "out"
    assert lab.restore(records=select(name), target=f"dir:{out}")["entries"] == 607
    found = [row for _, row in records_below(out / "topics" / name)]
    assert [r for r in found if r.partition == 1] == wanted[1]


@pytest.mark.long
def test_joined_sorted_and_spread_by_key(lab: Lab, topic: Make, tmp_path: Path) -> None:
    name, copy = topic("joined", partitions=2), topic("joined-copy", partitions=5)
    truth.produce(lab.bootstrap, name, rows_of(0, 300) + rows_of(1, 300))
    lab.backup(name, target_bytes=4096)
    joined = (
        f"SELECT r.partition, r.key, r.value, r.kafka_offset FROM records('{name}') AS r "
        "JOIN files AS f ON r.path = f.path WHERE r.key = 'k-1' AND r.value IS NOT NULL"
    )
    values = [b"secret %d" % i for i in range(1, 300, 5)]
    out = tmp_path / "out"
    assert lab.restore(records=joined, target=f"dir:{out}")["entries"] == 120
    found = [row for _, row in records_below(out / "topics" / name)]
    assert [r.value for r in found if r.partition == 0] == values

    back = (
        f"SELECT 1 AS partition, key, value FROM records('{name}') WHERE key = 'k-1' ORDER BY value DESC, ts"
    )
    table = tmp_path / "table"
    assert lab.restore(records=back, target=f"delta:{table}")["entries"] == 122
    rows = DeltaTable(str(table)).to_pyarrow_table().sort_by("offset").to_pylist()
    assert [row["value"] for row in rows if row["value"]] == sorted([*values, *values], reverse=True)

    spread = f"SELECT key, value FROM records('{name}') WHERE key LIKE 'k-%'"
    asked: dict[str, Any] = {"records": spread, "maps": {name: copy}, "repartition": True}
    assert lab.restore(**asked)["entries"] == 602
    places: dict[bytes | None, set[int]] = {}
    for partition, records in truth.contents(lab.bootstrap, copy).items():
        for record in records:
            places.setdefault(record.key, set()).add(partition)
    assert {key: len(where) for key, where in places.items()} == {b"k-%d" % i: 1 for i in range(5)}

    with pytest.raises(Refused, match="returns partition 7"):
        lab.restore(
            records=f"SELECT 7 AS partition, key, value FROM records('{name}')",
            target=f"dir:{tmp_path / 'no'}",
        )

"""What earlier programs left: files in the first data format, and a destination of an earlier release.

The first format is as its document says ("Backup", of Trivadis' kafka-backup):
topics/<topic>/partition=<n>/<topic>+<n>-<seq>.data, each an Avro file of AvroKafkaRecord, whose key has the
text "null" as its default and whose headers are a map. `data/destination-of-0.1.tar.gz` was made by the state
before backups had one lifecycle: a topic, a snapshot and an engine's queues, each with one that was killed.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from tests.support import kafka_truth as truth
from tests.support.catalogs import made_backup, made_position, made_scope, publish
from tests.support.command_line import quiet
from tests.support.faults import rows_of
from tests.support.kafka_truth import Record
from tests.support.runs import Lab
from tests.support.unpacked import unpack

from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.rows.backups import DataFile
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.behind import current_catalog
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.snapshots import backup as backup_snapshot
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.snapshots.backup import SnapshotRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup_jobs.demo.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


SCHEMA = json.loads("""
{
  "namespace": "ch.tbd.kafka.backuprestore.model.avro",
  "type": "record",
  "name": "AvroKafkaRecord",
  "fields" : [
    {"name": "topic", "type": "string"},
    {"name": "partition", "type": "int"},
    {"name": "offset", "type": "long"},
    {"name": "timestamp", "type": "long"},
    {"name": "key", "type": [ "bytes", "null" ], "default": "null" },
    {"name": "value", "type": "bytes"},
    {"name": "headers", "type": [ {"type": "map", "values": "bytes"}, "null" ], "default": null}
  ]
}""")
TOPIC, SOURCE, EPOCH = "orders", "old-cluster", f"{0:032x}"
START = 1_500_000_000_000
Make = Callable[..., str]


def rows(partition: int) -> list[dict[str, Any]]:
    """Records with holes between their offsets, as transactions and compaction leave them."""
    return [
        {
            "topic": TOPIC,
            "partition": partition,
            "offset": 100 + 3 * i,
            "timestamp": START + (i * 7919) % 10_000,
            "key": None if i % 4 == 0 else b"" if i % 4 == 1 else b"key %d" % i,
            "value": b"" if i % 5 == 0 else b"value %d" % i,
            "headers": None if i % 3 == 0 else {} if i % 3 == 1 else {"a": b"1", "b": b"", "": b"x"},
        }
        for i in range(40)
    ]


def written(root: Path, home: str, backup_id: str, partition: int, codec: str) -> list[DataFile]:
    """A partition's records in two files, as the document lays them out; returns their rows."""
    found = []
    for seq, some in enumerate((rows(partition)[:25], rows(partition)[25:])):
        path = f"{SOURCE}/{EPOCH}/topics/{TOPIC}/partition={partition}/{TOPIC}+{partition}-{seq:010d}.data"
        buffer = io.BytesIO()
        fastavro.writer(buffer, SCHEMA, some, codec=codec)
        data = buffer.getvalue()
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        times = [row["timestamp"] for row in some]
        found.append(
            DataFile(
                destination=home,
                path=path,
                backup_id=backup_id,
                added_in=1,
                source=SOURCE,
                scope=TOPIC,
                epoch=EPOCH,
                region=str(partition),
                format="kafka-avro-1",
                codec=codec,
                bytes=len(data),
                raw_bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                entries=len(some),
                min_ts=min(times),
                max_ts=max(times),
                start_position=some[0]["offset"],
                end_position=some[-1]["offset"] + 1,
            )
        )
    return found


@pytest.fixture(scope="module")
def imported(
    spark: SparkSession, broker: Broker, empty_catalog: Path, tmp_path_factory: pytest.TempPathFactory
) -> Lab:
    """A destination whose one backup was written by another program in the first format."""
    lab = Lab(spark, broker.bootstrap, tmp_path_factory.mktemp("imported") / "backups", empty_catalog)
    lab.make_catalog()
    storage = open_storage(str(lab.folder))
    home = destination_id(storage)
    taken = datetime.now(UTC)
    backup_id = layout.new_backup_id(taken)
    at = int(taken.timestamp() * 1000)
    files = [
        file
        for partition, codec in enumerate(("null", "deflate"))
        for file in written(lab.folder, home, backup_id, partition, codec)
    ]
    sidecar.write_part(storage, layout.parts_path(SOURCE, backup_id, 0), files)
    own = {"backup_id": backup_id, "source": SOURCE, "scope": TOPIC, "epoch": EPOCH}
    manifest = sidecar.Manifest(
        backup=made_backup(
            1,
            files,
            backup_id=backup_id,
            source=SOURCE,
            end_ts=at,
            started_at=at * 1000,
            finished_at=at * 1000,
            codec="null",
            created_by="another program",
            tool="another program",
        ),
        positions=[
            made_position(100, 218, **own, region=str(partition), low_position=100, ts=at)
            for partition in range(2)
        ],
        scopes=[made_scope(**own, regions=2)],
        gaps=[],
        parts=1,
    )
    publish(storage, CatalogWriter(lab.spark, str(lab.folder)), (manifest, [files]))
    return lab


def test_into_kafka_with_keys_headers_and_times_as_they_were(imported: Lab, topic: Make) -> None:
    copy = topic("first-format", partitions=2)
    assert imported.restore(TOPIC, maps={TOPIC: copy})["entries"] == 80
    found = truth.contents(imported.bootstrap, copy)
    assert found == {
        partition: [
            Record(
                partition, row["key"], row["value"], tuple((row["headers"] or {}).items()), row["timestamp"]
            )
            for row in rows(partition)
        ]
        for partition in range(2)
    }


def test_into_a_folder_it_stays_in_its_format_with_its_offsets(imported: Lab) -> None:
    out = imported.folder.parent / "out"
    until = START + 5_000
    imported.restore(TOPIC, target=f"dir:{out}", to_ts=until)
    for partition in range(2):
        found: list[Any] = []
        for file in sorted((out / "topics" / TOPIC / f"partition={partition}").iterdir()):
            reader = fastavro.reader(io.BytesIO(file.read_bytes()))
            assert json.loads(reader.metadata["avro.schema"]) == SCHEMA
            found += reader
        assert found == [row for row in rows(partition) if row["timestamp"] <= until]


def test_verify_decodes_it(imported: Lab) -> None:
    checked = imported.verify(mode="decode")
    assert {name: checked[name] for name in ("missing", "changed", "damaged", "orphan")} == {
        "missing": 0,
        "changed": 0,
        "damaged": 0,
        "orphan": 0,
    }
    (first, *_) = sorted(imported.folder.glob(f"{SOURCE}/{EPOCH}/topics/{TOPIC}/partition=1/*.data"))
    data = first.read_bytes()
    first.unlink()
    try:
        assert imported.verify()["missing"] == 1
    finally:
        first.write_bytes(data)


LAYOUT = "t-{scope}/{snapshot}/{name}"


@pytest.fixture
def expected(lab: Lab, tmp_path: Path) -> dict[str, Any]:
    """What the destination of `lab`, unpacked, holds."""
    with (Path(__file__).parent / "data/destination-of-0.1.tar.gz").open("rb") as packed:
        unpack(packed, tmp_path)
    found: dict[str, Any] = json.loads((tmp_path / "expected.json").read_text())
    return found


def test_it_opens_restores_and_continues(
    lab: Lab, expected: dict[str, Any], topic: Callable[..., str], tmp_path: Path
) -> None:
    current_catalog(str(lab.folder))
    assert lab.verify(mode="full")["damaged"] == 0
    done = lab.restore(expected["topic"], expected["keyed"], source="lab", target=f"dir:{tmp_path / 'out'}")
    assert done["entries"] == 2 * 40 + 12

    # The cluster is another one by now: the backup that was killed is discarded, and nothing else.
    before = {row["path"] for row in lab.sql("SELECT path FROM files")}
    name = topic("again")
    truth.produce(lab.bootstrap, name, rows_of(1, 5))
    again = lab.backup(name, mode="full")
    assert again["entries"] == 5
    assert not (lab.folder / "lab/begun.json").exists()
    now = {row["path"] for row in lab.sql("SELECT path FROM files")}
    assert before < now
    there = {str(path.relative_to(lab.folder)) for path in lab.folder.glob("lab/**/*.data")}
    assert there == {path for path in now if path.startswith("lab/") and path.endswith(".data")}


def test_a_snapshot_continues(lab: Lab, expected: dict[str, Any], tmp_path: Path) -> None:
    assert expected
    request = SnapshotRequest(
        destination=str(lab.folder), paths=(str(tmp_path / "tree"),), source="db", layout=LAYOUT,
        snapshots=("s2",),
    )  # fmt: skip
    done = backup_snapshot.run(request, reporter=quiet())
    assert (done["kind"], done["gone"], done["end_ts"]) == ("differential", 1, 2_000_000)
    assert not (lab.folder / "db/begun.json").exists()
    asked = SnapshotRestoreRequest(str(lab.folder), str(tmp_path / "out"), source="db")
    restore_snapshot.run(asked, reporter=quiet())
    restored = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    taken = {path.name: path.read_bytes() for path in (tmp_path / "tree/t-x/s2").iterdir()}
    assert restored.items() >= taken.items()

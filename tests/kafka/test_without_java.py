"""Backups, restores, checks and drills of little data on a machine without Java.

Layer: make test. What a user of `pip install lakebackup[kafka]` does; no other test runs it without Spark.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from tests.support import kafka_truth as truth
from tests.support.archives import Doc, write_backup
from tests.support.command_line import Commands
from tests.support.kafka_truth import Record
from tests.support.made_backups import MadeBackups
from tests.support.made_changes import MadeChanges, delete, put_change, table_name_row

from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.kafka

RECORDS = [
    Record(i % 2, b"key %d" % (i % 20), b"value %d" % i, (), 1_600_000_000_000 + i) for i in range(100)
]


# Runs a command as if the extra `spark` were not installed.
RUN_WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from lakebackup_jobs.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def orders(broker: Broker, topic: Callable[..., str]) -> str:
    """A topic with RECORDS in its two partitions."""
    name = topic("orders", partitions=2)
    truth.produce(broker.bootstrap, name, RECORDS)
    return name


def test_topics_are_backed_up_and_restored_into_topics_and_a_folder(
    commands: Commands, broker: Broker, orders: str, tmp_path: Path
) -> None:
    copy = f"{orders}-copy"
    broker_flags = ("--bootstrap-server", broker.bootstrap, "--groups", "none")
    backup = commands.result("backup", "topics", orders, *broker_flags)
    assert backup["entries"] == len(RECORDS)
    target = f"kafka://{broker.bootstrap}"
    restored = commands.result("restore", "topics", orders, "--to", target, "--map", f"{orders}={copy}")
    assert (restored["runner"], restored["entries"]) == ("local", len(RECORDS))
    assert truth.contents(broker.bootstrap, copy) == truth.contents(broker.bootstrap, orders)
    restored = commands.result("restore", "topics", orders, "--to", f"dir:{tmp_path / 'out'}")
    assert (restored["runner"], restored["entries"]) == ("local", len(RECORDS))
    runners = "SELECT DISTINCT get_json_object(detail, '$.runner') AS runner FROM restores"
    assert commands.rows("sql", f"{runners} WHERE state = 'complete'") == [{"runner": "local"}]


def test_backups_are_verified_and_drilled(commands: Commands, broker: Broker, orders: str) -> None:
    commands.output("backup", "topics", orders, "--bootstrap-server", broker.bootstrap, "--groups", "none")
    assert commands.result("verify", "--decode")["damaged"] == 0
    assert commands.result("verify", "--restore")["damaged"] == 0
    print(commands.rows("sql", "SELECT scope, region, path, entries FROM files"))
    (drill,) = commands.result("drill")["drills"]
    assert (drill["outcome"], drill["entries"]) == ("ok", len(RECORDS))


@pytest.mark.parametrize("has_full", [False, True])
def test_a_log_is_restored_into_a_table_a_folder_and_topics(
    commands: Commands, broker: Broker, tmp_path: Path, has_full: bool
) -> None:
    root = tmp_path / "backups"
    MadeBackups(root)
    changes = MadeChanges(root, CatalogWriter(None, str(root)), domain="ms")
    changes.flush(
        [put_change(21, b"a", 5, b"1"), put_change(21, b"b", 6, b"2")],
        10,
        names=[table_name_row(21, "orders", 1)],
    )
    if has_full:
        changes.full(10)
    changes.flush([put_change(21, b"a", 15, b"3"), delete(21, b"b", 16), put_change(21, b"c", 17, b"4")], 20)
    table = tmp_path / "table"
    verb = ["restore", "point"] if has_full else ["log", "restore"]
    restored = commands.result(*verb, "shop", "--to", f"delta:{table}")
    assert (restored["runner"], restored["entries"]) == ("local", 2)
    rows = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert {row["key"]: (row["value"], row["name"]) for row in rows} == {
        b"a": (b"3", "orders"),
        b"c": (b"4", "orders"),
    }
    restored = commands.result(*verb, "shop", "--to", f"dir:{tmp_path / 'files'}")
    assert restored["runner"] == "local"
    if not has_full:
        prefix = f"p{uuid4().hex[:8]}"
        commands.output("log", "restore", "shop", "--to", f"kafka://{broker.bootstrap}?prefix={prefix}.")
        (records,) = truth.contents(broker.bootstrap, f"{prefix}.shop.orders").values()
        assert {record.key: record.value for record in records} == {b"a": b"3", b"b": None, b"c": b"4"}


def test_an_archive_is_imported_restored_and_exported(commands: Commands, tmp_path: Path) -> None:
    docs = [Doc(b"a", b'{"n": 1}', 1), Doc(b"a", b'{"n": 2}', 2), Doc(b"b", b"{}", 3), Doc(b"b", None, 4)]
    write_backup(tmp_path / "archive", "2014-02-02T020000Z", "full", docs)
    imported = commands.result("archive", "import", str(tmp_path / "archive"))
    assert imported["imported"] == 1
    restored = commands.result("archive", "restore", "--to", str(tmp_path / "documents"))
    assert (restored["runner"], restored["documents"]) == ("local", 1)
    (file,) = (tmp_path / "documents").rglob("*.jsonl")
    assert '"value": {"n": 2}' in file.read_text()
    commands.output("archive", "export", "--to", str(tmp_path / "again"))
    assert list((tmp_path / "again").rglob("*.cbb"))


def test_a_restore_that_needs_spark_says_so(
    commands: Commands, broker: Broker, orders: str, tmp_path: Path
) -> None:
    commands.output("backup", "topics", orders, "--bootstrap-server", broker.bootstrap)
    restore = ["restore", "topics", orders, "--to", f"delta:{tmp_path / 'table'}", "--runner", "local"]
    assert "--runner local: a restore into a Delta table needs Spark" in commands.fails(2, *restore)
    assert not (tmp_path / "table").exists()


def test_topics_need_no_pyspark(broker: Broker, orders: str, tmp_path: Path) -> None:
    """What `pip install lakebackup[kafka]` alone can do."""
    repo_flags = ["--repo", str(tmp_path / "backups")]
    for words in (
        ["backup", "topics", orders, "--bootstrap-server", broker.bootstrap],
        ["restore", "topics", orders, "--to", f"kafka://{broker.bootstrap}", "--map", f"{orders}={orders}-2"],
        ["restore", "topics", orders, "--to", f"dir:{tmp_path / 'out'}"],
        ["verify", "--restore"],
        ["drill"],
    ):
        command = [sys.executable, "-c", RUN_WITHOUT_SPARK, *words, *repo_flags]
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert process.returncode == 0, (words, process.stderr)
    assert truth.contents(broker.bootstrap, f"{orders}-2") == truth.contents(broker.bootstrap, orders)

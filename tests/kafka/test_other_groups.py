"""Groups that are no consumer groups: streams groups are saved and restored, share groups are named."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record
from tests.support.runs import Lab, now_ms

from lakebackup.errors import Incomplete
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.groups import Groups
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import class_path

# A broker of its own: groups of any kind would be part of the backups of other tests.
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

JAVA = Path(__file__).parents[1] / "support/OtherGroups.java"


def run_group(kind: str, *arguments: str) -> None:
    command = [str(Path(java_home()) / "bin/java"), "-cp", class_path("kafka"), str(JAVA), kind, *arguments]
    subprocess.run(command, check=True, timeout=300, capture_output=True)


@pytest.fixture
def lab(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Iterator[Lab]:
    """On a broker of its own: every backup of all groups of a cluster ends with 4 beside a share group."""
    with Broker(tmp_path / "broker") as broker:
        yield Lab(spark, broker.bootstrap, tmp_path / "backups", empty_catalog)


@pytest.mark.long
def test_streams_groups_are_restored_and_share_groups_are_named(lab: Lab) -> None:
    name = "read"
    truth.create_topic(lab.bootstrap, name)
    truth.produce(lab.bootstrap, name, [Record(0, b"k", b"v%d" % i, (), now_ms()) for i in range(10)])
    share, streams, classic = f"{name}-share", f"{name}-streams", f"{name}-classic"
    run_group("share", lab.bootstrap, name, share)
    run_group("streams", lab.bootstrap, name, streams, "7")
    consumers.commit(lab.bootstrap, classic, {(name, 0): 3})
    groups = Groups({"bootstrap.servers": lab.bootstrap})
    assert {share, streams, classic} <= set(groups.names())

    with pytest.raises(Incomplete, match="without what could not be read"):
        lab.backup(name, groups="all")
    assert f"group {share} is not saved: it is a share group" in lab.warnings.getvalue()
    assert f"group {streams}" not in lab.warnings.getvalue()
    rows = lab.sql(
        "SELECT group_id, protocol, scope, position FROM groups "
        f"WHERE group_id LIKE '{name}%' ORDER BY group_id"
    )
    assert [tuple(row.values()) for row in rows] == [
        (classic, "classic", name, 3),
        (share, "share", None, None),
        (streams, "streams", name, 7),
    ]

    copy = f"{name}-copy"
    lab.restore(name, maps={name: copy})
    for more in ({}, {"from_log": True}):
        target = f"{streams}-{len(more)}"
        lab.restore_groups(streams, maps={name: copy}, group_maps={streams: target}, **more)
        assert consumers.committed(lab.bootstrap, target) == {(copy, 0): (7, None)}
    assert "is not restored" not in lab.warnings.getvalue()
    lab.restore_groups(maps={name: copy}, dry_run=True)
    assert f"group {share} is not restored: backups hold no position" in lab.warnings.getvalue()
    # The application itself goes on with what was restored.
    run_group("streams", lab.bootstrap, copy, f"{streams}-1", "8")
    assert f"{streams}-1" in groups.names()
    (state,) = groups.read([f"{streams}-1"]).groups
    assert (state.protocol, [offset.position for offset in state.offsets]) == ("streams", [8])
    truth.delete_topic(lab.bootstrap, copy)

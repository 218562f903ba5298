"""Groups that are no consumer groups: streams groups are saved and restored, share groups are reported."""

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

# The test has a broker of its own, since backups of other tests would include its groups.
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

JAVA = Path(__file__).parents[1] / "support/OtherGroups.java"


def run_group(kind: str, *arguments: str) -> None:
    command = [str(Path(java_home()) / "bin/java"), "-cp", class_path("kafka"), str(JAVA), kind, *arguments]
    subprocess.run(command, check=True, timeout=300, capture_output=True)


@pytest.fixture
def lab(spark: SparkSession, empty_catalog: Path, tmp_path: Path) -> Iterator[Lab]:
    """A lab on a broker of its own, since a share group makes each backup of all groups exit with 4."""
    with Broker(tmp_path / "broker") as broker:
        yield Lab(spark, broker.bootstrap, tmp_path / "backups", empty_catalog)


@pytest.mark.long
def test_streams_groups_are_restored_and_share_groups_are_named(lab: Lab) -> None:
    name = "read"
    truth.create_topic(lab.bootstrap, name)
    truth.produce(lab.bootstrap, name, [Record(0, b"k", b"v%d" % i, (), now_ms()) for i in range(10)])
    share_group, streams_group, classic_group = f"{name}-share", f"{name}-streams", f"{name}-classic"
    run_group("share", lab.bootstrap, name, share_group)
    run_group("streams", lab.bootstrap, name, streams_group, "7")
    consumers.commit(lab.bootstrap, classic_group, {(name, 0): 3})
    groups = Groups({"bootstrap.servers": lab.bootstrap})
    assert {share_group, streams_group, classic_group} <= set(groups.names())

    with pytest.raises(Incomplete, match="without what could not be read"):
        lab.backup(name, groups="all")
    assert f"group {share_group} is not saved: it is a share group" in lab.warnings.getvalue()
    assert f"group {streams_group}" not in lab.warnings.getvalue()
    rows = lab.sql(
        "SELECT group_id, protocol, scope, position FROM groups "
        f"WHERE group_id LIKE '{name}%' ORDER BY group_id"
    )
    assert [tuple(row.values()) for row in rows] == [
        (classic_group, "classic", name, 3),
        (share_group, "share", None, None),
        (streams_group, "streams", name, 7),
    ]

    copy_topic = f"{name}-copy"
    lab.restore(name, maps={name: copy_topic})
    for options in ({}, {"from_log": True}):
        target = f"{streams_group}-{len(options)}"
        lab.restore_groups(
            streams_group, maps={name: copy_topic}, group_maps={streams_group: target}, **options
        )
        assert consumers.committed(lab.bootstrap, target) == {(copy_topic, 0): (7, None)}
    assert "is not restored" not in lab.warnings.getvalue()
    lab.restore_groups(maps={name: copy_topic}, dry_run=True)
    assert f"group {share_group} is not restored: backups hold no position" in lab.warnings.getvalue()
    # The application itself continues from the restored positions.
    run_group("streams", lab.bootstrap, copy_topic, f"{streams_group}-1", "8")
    assert f"{streams_group}-1" in groups.names()
    (group_state,) = groups.read([f"{streams_group}-1"]).groups
    assert (group_state.protocol, [offset.position for offset in group_state.offsets]) == ("streams", [8])
    truth.delete_topic(lab.bootstrap, copy_topic)

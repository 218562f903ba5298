"""A real database, captured by a log task and restored: to each moment as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from tests.support import kafka_truth as truth
from tests.support.debezium import Debezium
from tests.support.log_tasks import LogTask
from tests.support.moments import Contents, Moments

from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.logs.restore import job as restore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import Postgres
    from tests.support.runs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def capture(lab: Lab, postgres: Postgres, folder: Path, count: int, truncates: tuple[int, ...]) -> Moments:
    """A database under load, whose changes a task captures, with so many moments to compare with."""
    database = postgres.database()
    moments = Moments(postgres, database)
    # Whatever comes last, a heartbeat after it shows that it was all.
    with Debezium(folder / "connect", lab.bootstrap, postgres, database) as debezium:
        cluster = Cluster({"bootstrap.servers": lab.bootstrap})
        truth.until(lambda: f"{database}.transaction" in cluster.topic_names(), "the connector streams")
        task = LogTask(lab, debezium.prefix, feed="debezium", filters=("public.*", "!*.lakebackup_heartbeat"))
        task.begin()
        with task.run(), moments:
            for number in range(count):
                last = moments.take(before="TRUNCATE orders, lines" if number in truncates else "")
            task.until(lambda now: (now["checkpoint_ts"] or 0) >= last, "all is captured", 150)
    return moments


def restored(lab: Lab, moment: int, folder: Path, after: int | None = None) -> Contents:
    """What a restore gives, by table and key."""
    request = LogRestoreRequest(
        destination=str(lab.folder), name="lab", target=f"delta:{folder}", start_ts=after, to_ms=moment
    )
    restore.run(request, spark=lab.spark, reporter=lab.reporter)
    found: Contents = {"accounts": {}, "orders": {}, "lines": {}}
    for row in DeltaTable(str(folder)).to_pyarrow_table(columns=["name", "key", "value"]).to_pylist():
        assert row["key"].decode() not in found[row["name"]]
        found[row["name"]][row["key"].decode()] = json.loads(row["value"])
    return found


def test_a_database_is_restored_to_a_moment(lab: Lab, postgres: Postgres, tmp_path: Path) -> None:
    moments = capture(lab, postgres, tmp_path, 7, (3,))
    chosen = sorted(moments.seen)
    folder = tmp_path / "restored"
    assert restored(lab, chosen[2], folder) == moments.seen[chosen[2]]
    # On to a later one in place: only what came between is applied, a truncate too.
    assert restored(lab, chosen[6], folder, chosen[2]) == moments.seen[chosen[6]]


@pytest.mark.long
def test_a_database_is_restored_to_every_moment(lab: Lab, postgres: Postgres, tmp_path: Path) -> None:
    moments = capture(lab, postgres, tmp_path, 36, (9, 25))
    for moment in sorted(moments.seen):
        assert restored(lab, moment, tmp_path / str(moment)) == moments.seen[moment]

"""Captures feeds from a real broker with a log task, and restores them to instants.

A restore must give what the database held at that instant. One feed is the model of
tests/support/change_feed.py, with random transactions, regions and tables; many more of these run without a
broker in tests/unit/jobs/logs. The other feed is a real PostgreSQL through Debezium.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support import kafka_truth as truth
from tests.support.change_story import KINDS, Story
from tests.support.debezium import Debezium
from tests.support.log_tasks import LogTask
from tests.support.moments import Contents, Moments
from tests.support.postgres import Postgres
from tests.support.runs import Lab

from lakebackup.errors import Refused
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.storage import open_storage
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.logs.control.status import waiting
from lakebackup_jobs.logs.feeds.debezium import DebeziumFeed
from lakebackup_jobs.logs.restore import job as restore

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


SEEDS = (1, 2)
FLUSHES, STEPS_A_FLUSH = 4, 30
#: The number of ts restored into new targets, and the number restored one after the other into one target.
FRESH_RESTORES, CONTINUED_RESTORES = 3, 2
#: The rows of a transaction that the connector needs seconds to send.
LARGE_ROWS = 10_000


class CaptureRun:
    """A feed, the task that captures it, and restores of the capture."""

    def __init__(self, lab: Lab, topic: str) -> None:
        self.lab, self.topic, self.story = lab, topic, Story()
        self.task = LogTask(lab, topic)
        self.task.begin()

    def flush(self) -> None:
        """Send the delivered events, and wait until the task has captured all of them."""
        self.story.feed.send(self.lab.bootstrap, self.topic, deliver=False)
        folder = str(self.lab.folder)

        def captured(status: dict[str, Any]) -> bool:
            assert status["detail"] is None, status
            return waiting(folder, None, self.task.catalog_place.task("lab"), {}) == {}

        self.task.until(captured, "all that was sent is captured", 120)

    def restore(self, target: Path, ts: int, **options: Any) -> dict[str, dict[bytes, bytes]]:
        """Restore to `ts`. Returns the target's rows by table, without empty tables."""
        request = LogRestoreRequest(
            destination=str(self.lab.folder), name="lab", target=f"delta:{target}", end_ts=ts, **options
        )
        restore.run(request, spark=self.lab.spark, reporter=self.lab.reporter)
        rows_by_table: dict[str, dict[bytes, bytes]] = {}
        for row in self.lab.spark.read.format("delta").load(str(target)).toArrow().to_pylist():
            rows = rows_by_table.setdefault(f"{row['db']}.{row['name']}", {})
            assert row["key"] not in rows
            rows[row["key"]] = row["value"]
        return rows_by_table

    def expected_rows(self, ts: int) -> dict[str, dict[bytes, bytes]]:
        return {name: rows for name, rows in self.story.feed.rows(ts).items() if rows}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.long
def test_a_restore_to_any_ts_gives_the_rows_of_that_ts(
    lab: Lab, topic: Callable[..., str], tmp_path: Path, seed: int
) -> None:
    dice = Random(seed)
    run = CaptureRun(lab, topic("feed", partitions=2))
    feed = run.story.feed
    with run.task.run():
        for part in range(FLUSHES):
            for _ in range(STEPS_A_FLUSH):
                run.story.play((dice.choice(KINDS), *(dice.randrange(n) for n in (8, 8, 3))))
            if part == FLUSHES - 1:
                run.story.finish()
            run.flush()
        assert run.task.until_captured(feed.last_ts)["checkpoint_ts"] == feed.last_ts
    for ts in dice.sample(range(1, feed.last_ts), FRESH_RESTORES):
        assert run.restore(tmp_path / f"to-{ts}", ts) == run.expected_rows(ts), ts
    start: dict[str, int] = {}
    for ts in [
        *sorted(dice.sample(range(feed.last_ts // 2, feed.last_ts), CONTINUED_RESTORES)),
        feed.last_ts,
    ]:
        assert run.restore(tmp_path / "on", ts, **start) == run.expected_rows(ts), (start, ts)
        start = {"start_ts": ts}


def wait_until_streaming(lab: Lab, database: str) -> None:
    cluster = Cluster({"bootstrap.servers": lab.bootstrap})
    truth.until(lambda: f"{database}.transaction" in cluster.topic_names(), "the connector streams")


def capture(
    lab: Lab,
    postgres: Postgres,
    folder: Path,
    count: int,
    truncates: Collection[int],
    kills: Collection[int] = (),
    **options: bool,
) -> Moments:
    """Capture the changes of a database under load. Returns `count` moments with its contents.

    Tables are truncated at the moments `truncates`. After the moments `kills` the connector is killed, and it
    sends events again.
    """
    database = postgres.database()
    moments = Moments(postgres, database)
    # A heartbeat after the last change shows that the capture is complete.
    with Debezium(folder / "connect", lab.bootstrap, postgres, database, **options) as debezium:
        wait_until_streaming(lab, database)
        task = LogTask(lab, debezium.prefix, feed="debezium", filters=("public.*", "!*.lakebackup_heartbeat"))
        task.begin()
        with task.run(), moments:
            for number in range(count):
                last_ms = moments.record_moment(
                    statement="TRUNCATE orders, lines" if number in truncates else ""
                )
                if number in kills:
                    kill_within_a_transaction(debezium, postgres, database, lab.bootstrap, number)
                    debezium.start()
            task.until(lambda status: (status["checkpoint_ts"] or 0) >= last_ms, "all is captured", 150)
    return moments


def kill_within_a_transaction(
    debezium: Debezium, postgres: Postgres, database: str, bootstrap: str, number: int
) -> None:
    """Kill the connector when only a part of a large transaction's events is in the topic."""
    topic = f"{database}.public.orders"
    end_before = truth.end_offset(bootstrap, topic)
    with postgres.connect(database) as connection:
        connection.execute(
            "INSERT INTO orders SELECT %s + n, 1, 'one of many' FROM generate_series(1, %s) AS n",
            [number * 1_000_000, LARGE_ROWS],
        )
    truth.until(
        lambda: truth.end_offset(bootstrap, topic) > end_before, "the connector sends the large transaction"
    )
    debezium.kill()


def restore_database(lab: Lab, moment: int, folder: Path, start_ts: int | None = None) -> Contents:
    """Restore to a moment (ms). Returns the restored rows by table and key."""
    request = LogRestoreRequest(
        destination=str(lab.folder), name="lab", target=f"delta:{folder}", start_ts=start_ts, to_ms=moment
    )
    restore.run(request, spark=lab.spark, reporter=lab.reporter)
    contents: Contents = {"accounts": {}, "orders": {}, "lines": {}}
    for row in DeltaTable(str(folder)).to_pyarrow_table(columns=["name", "key", "value"]).to_pylist():
        assert row["key"].decode() not in contents[row["name"]]
        contents[row["name"]][row["key"].decode()] = json.loads(row["value"])
    return contents


def test_a_database_is_restored_to_a_moment(lab: Lab, postgres: Postgres, tmp_path: Path) -> None:
    moments = capture(lab, postgres, tmp_path, 7, (3,))
    moments_ms = sorted(moments.contents_by_ms)
    folder = tmp_path / "restored"
    assert restore_database(lab, moments_ms[2], folder) == moments.contents_by_ms[moments_ms[2]]
    # A second restore continues in the same target. It applies only the later changes, with a truncate.
    assert (
        restore_database(lab, moments_ms[6], folder, moments_ms[2]) == moments.contents_by_ms[moments_ms[6]]
    )


@pytest.mark.long
def test_a_database_is_restored_to_every_moment(lab: Lab, postgres: Postgres, tmp_path: Path) -> None:
    """The messages contain their schemas, which is Debezium's default."""
    moments = capture(lab, postgres, tmp_path, 36, truncates=(9, 25), kills=(12, 24), schemas=True)
    assert moments.transactions > 100
    flushes = lab.sql(
        "SELECT b.number, b.end_ts, min(f.min_ts) AS least FROM backups AS b JOIN files AS f "
        "ON f.backup_id = b.backup_id WHERE f.role = 'data' GROUP BY ALL ORDER BY b.number"
    )
    for flush, next_flush in pairwise(flushes):
        assert next_flush["least"] > flush["end_ts"], "what came is older than what was whole"
    for moment in sorted(moments.contents_by_ms):
        assert restore_database(lab, moment, tmp_path / str(moment)) == moments.contents_by_ms[moment]


@pytest.mark.long
def test_a_value_that_the_database_omits_pauses_the_task(
    lab: Lab, postgres: Postgres, tmp_path: Path
) -> None:
    """Only a real PostgreSQL shows how Debezium marks an array of numbers as unchanged."""
    database = postgres.database()
    with postgres.connect(database) as connection:
        connection.execute("CREATE TABLE a (id int PRIMARY KEY, note text, tags int[])")
        connection.execute("ALTER TABLE a ALTER tags SET STORAGE EXTERNAL")
        connection.execute(
            "INSERT INTO a SELECT n, '', array_fill(n, ARRAY[1000]) FROM generate_series(1, 3) AS n"
        )
    task = LogTask(lab, database, feed="debezium", filters=("public.a",))
    topic = f"{database}.public.a"
    with Debezium(tmp_path / "connect", lab.bootstrap, postgres, database):
        wait_until_streaming(lab, database)
        with postgres.connect(database) as connection:
            connection.execute("UPDATE a SET note = 'changed' WHERE id = 2")
        truth.until(lambda: truth.end_offset(lab.bootstrap, topic) == 4, "the change is sent")
        task.begin()
        with task.run():
            paused_status = task.until(
                lambda status: status["state"] == "paused", "the task pauses itself", 150
            )
    assert f"{topic}[0] offset 3 does not hold the whole row" in paused_status["detail"]
    assert "REPLICA IDENTITY FULL" in paused_status["detail"]


@pytest.mark.long
def test_a_table_added_to_the_connector_later_has_no_earlier_rows(
    lab: Lab, postgres: Postgres, tmp_path: Path
) -> None:
    """An incremental snapshot sends the table's rows, whose last change was before the connector started.

    Then the table is truncated.
    """
    database = postgres.database()
    with postgres.connect(database) as connection:
        connection.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE late (id int PRIMARY KEY)")
        connection.execute("CREATE TABLE signals (id text PRIMARY KEY, type text, data text)")
        connection.execute("INSERT INTO a VALUES (1); INSERT INTO late VALUES (1), (2)")
    tables = "public.a,public.signals,public.lakebackup_heartbeat"
    settings = {"signal.data.collection": "public.signals", "incremental.snapshot.chunk.size": "1"}
    task = LogTask(lab, database, feed="debezium", filters=("public.a", "public.late"))

    def database_now_ms() -> int:
        with postgres.connect(database) as connection:
            row = connection.execute(
                "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
            ).fetchone()
        assert row
        return int(row[0])

    def topic_names() -> list[str]:
        return list(Cluster({"bootstrap.servers": lab.bootstrap}).topic_names())

    def count_rows(moment: int) -> dict[str, int]:
        folder = tmp_path / str(moment)
        request = LogRestoreRequest(str(lab.folder), "lab", f"delta:{folder}", to_ms=moment)
        restore.run(request, spark=lab.spark, reporter=lab.reporter)
        counts = {"a": 0, "late": 0}
        for row in DeltaTable(str(folder)).to_pyarrow_table(columns=["name"]).to_pylist():
            counts[row["name"]] += 1
        return counts

    def worker(tables: str) -> Debezium:
        return Debezium(
            tmp_path / "connect",
            lab.bootstrap,
            postgres,
            database,
            **{**settings, "table.include.list": tables},
        )

    with worker(tables):
        wait_until_streaming(lab, database)
        task.begin()
        with task.run():
            before_ms = database_now_ms()
            task.until(lambda status: (status["checkpoint_ts"] or 0) > before_ms, "it is captured", 150)
    with worker(f"{tables},public.late"), task.run():
        with postgres.connect(database) as connection:
            connection.execute("INSERT INTO a VALUES (2)")
            connection.execute(
                "INSERT INTO signals VALUES ('1', 'execute-snapshot', %s)",
                [json.dumps({"data-collections": ["public.late"], "type": "incremental"})],
            )
        truth.until(lambda: f"{database}.public.late" in topic_names(), "the table is read")
        truth.until(
            lambda: sum(1 for _ in truth.read(lab.bootstrap, f"{database}.public.late")) == 2,
            "all of it is read",
        )
        with_rows_ms = database_now_ms()
        with postgres.connect(database) as connection:
            connection.execute("TRUNCATE late")
        truth.until(lambda: database_now_ms() > with_rows_ms + 1500, "the clock goes on")
        emptied_ms = database_now_ms()
        task.until(lambda status: (status["checkpoint_ts"] or 0) > emptied_ms, "it is captured", 150)
    assert count_rows(before_ms) == {"a": 1, "late": 0}
    assert count_rows(with_rows_ms) == {"a": 2, "late": 2}
    assert count_rows(emptied_ms) == {"a": 2, "late": 0}


def test_a_feed_whose_first_events_were_deleted_is_refused(broker: Broker, tmp_path: Path) -> None:
    client, storage = {"bootstrap.servers": broker.bootstrap}, open_storage(str(tmp_path))
    for name in ("gone.transaction", "gone.public.a"):
        truth.create_topic(broker.bootstrap, name, retention_ms="-1")
    truth.produce(broker.bootstrap, "gone.public.a", [truth.Record(0, b"{}", b"{}", (), 1)])
    feed = DebeziumFeed(client, ("gone",))
    assert feed.prepare(storage, "b/", None, None)["folder"] == "b/"
    truth.delete_records(broker.bootstrap, "gone.public.a", {0: 1})
    with pytest.raises(Refused, match=r"Topic gone\.public\.a, partition 0, begins at offset 1"):
        feed.prepare(storage, "c/", None, None)

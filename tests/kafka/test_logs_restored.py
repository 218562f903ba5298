"""Real feeds over a real broker, captured by a task and restored: to any instant what the database held then.

Sequences of transactions, regions and tables come from tests/support/change_feed.py, whose database is the
model; many more of them run without a broker in tests/unit/jobs/logs. A real PostgreSQL comes by Debezium.
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
#: So many ts are restored to upon nothing, and so many one upon the other.
FRESH, CONTINUED = 3, 2
#: Rows of a transaction that the connector takes seconds to send.
LARGE = 10_000


class Run:
    """A feed, the task that captures it, and restores of what it captured."""

    def __init__(self, lab: Lab, topic: str) -> None:
        self.lab, self.topic, self.story = lab, topic, Story()
        self.task = LogTask(lab, topic)
        self.task.begin()

    def flush(self) -> None:
        """Send what reached the topic; go on when nothing waits to be captured."""
        self.story.feed.send(self.lab.bootstrap, self.topic, deliver=False)
        folder = str(self.lab.folder)

        def captured(now: dict[str, Any]) -> bool:
            assert now["detail"] is None, now
            return waiting(folder, None, self.task.place.task("lab"), {}) == {}

        self.task.until(captured, "all that was sent is captured", 120)

    def restore(self, target: Path, ts: int, **asked: Any) -> dict[str, dict[bytes, bytes]]:
        """What the target holds afterwards: rows of tables that have any."""
        request = LogRestoreRequest(
            destination=str(self.lab.folder), name="lab", target=f"delta:{target}", end_ts=ts, **asked
        )
        restore.run(request, spark=self.lab.spark, reporter=self.lab.reporter)
        found: dict[str, dict[bytes, bytes]] = {}
        for row in self.lab.spark.read.format("delta").load(str(target)).toArrow().to_pylist():
            rows = found.setdefault(f"{row['db']}.{row['name']}", {})
            assert row["key"] not in rows
            rows[row["key"]] = row["value"]
        return found

    def held(self, ts: int) -> dict[str, dict[bytes, bytes]]:
        return {name: rows for name, rows in self.story.feed.rows(ts).items() if rows}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.long
def test_a_restore_to_any_ts_is_what_the_database_held(
    lab: Lab, topic: Callable[..., str], tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    run = Run(lab, topic("feed", partitions=2))
    feed = run.story.feed
    with run.task.run():
        for part in range(FLUSHES):
            for _ in range(STEPS_A_FLUSH):
                run.story.play((chance.choice(KINDS), *(chance.randrange(n) for n in (8, 8, 3))))
            if part == FLUSHES - 1:
                run.story.finish()
            run.flush()
        assert run.task.until_captured(feed.now)["checkpoint_ts"] == feed.now
    for ts in chance.sample(range(1, feed.now), FRESH):
        assert run.restore(tmp_path / f"to-{ts}", ts) == run.held(ts), ts
    before: dict[str, int] = {}
    for ts in [*sorted(chance.sample(range(feed.now // 2, feed.now), CONTINUED)), feed.now]:
        assert run.restore(tmp_path / "on", ts, **before) == run.held(ts), (before, ts)
        before = {"start_ts": ts}


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
    **how: bool,
) -> Moments:
    """A database under load, whose changes a task captures, with so many moments to compare with.

    Behind some of them tables are truncated, or the connector is killed and sends again what it had sent.
    """
    database = postgres.database()
    moments = Moments(postgres, database)
    # Whatever comes last, a heartbeat after it shows that it was all.
    with Debezium(folder / "connect", lab.bootstrap, postgres, database, **how) as debezium:
        wait_until_streaming(lab, database)
        task = LogTask(lab, debezium.prefix, feed="debezium", filters=("public.*", "!*.lakebackup_heartbeat"))
        task.begin()
        with task.run(), moments:
            for number in range(count):
                last = moments.take(before="TRUNCATE orders, lines" if number in truncates else "")
                if number in kills:
                    kill_within_a_transaction(debezium, postgres, database, lab.bootstrap, number)
                    debezium.start()
            task.until(lambda now: (now["checkpoint_ts"] or 0) >= last, "all is captured", 150)
    return moments


def kill_within_a_transaction(
    debezium: Debezium, postgres: Postgres, database: str, bootstrap: str, number: int
) -> None:
    """Kill the connector when a part of a large transaction's events is in the topic."""
    topic = f"{database}.public.orders"
    before = truth.end_offset(bootstrap, topic)
    with postgres.connect(database) as connection:
        connection.execute(
            "INSERT INTO orders SELECT %s + n, 1, 'one of many' FROM generate_series(1, %s) AS n",
            [number * 1_000_000, LARGE],
        )
    truth.until(
        lambda: truth.end_offset(bootstrap, topic) > before, "the connector sends the large transaction"
    )
    debezium.kill()


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
    """Its messages bring their schemas, which Debezium sends unless it is set otherwise."""
    moments = capture(lab, postgres, tmp_path, 36, truncates=(9, 25), kills=(12, 24), schemas=True)
    assert moments.transactions > 100
    flushes = lab.sql(
        "SELECT b.number, b.end_ts, min(f.min_ts) AS least FROM backups AS b JOIN files AS f "
        "ON f.backup_id = b.backup_id WHERE f.role = 'data' GROUP BY ALL ORDER BY b.number"
    )
    for before, after in pairwise(flushes):
        assert after["least"] > before["end_ts"], "what came is older than what was whole"
    for moment in sorted(moments.seen):
        assert restored(lab, moment, tmp_path / str(moment)) == moments.seen[moment]


@pytest.mark.long
def test_a_value_that_the_database_left_out_pauses_the_task(
    lab: Lab, postgres: Postgres, tmp_path: Path
) -> None:
    """Only PostgreSQL shows in which form Debezium says that an array of numbers did not change."""
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
            paused = task.until(lambda now: now["state"] == "paused", "the task pauses itself", 150)
    assert f"{topic}[0] offset 3 does not hold the whole row" in paused["detail"]
    assert "REPLICA IDENTITY FULL" in paused["detail"]


@pytest.mark.long
def test_a_table_that_enters_the_connector_later_has_no_rows_before(
    lab: Lab, postgres: Postgres, tmp_path: Path
) -> None:
    """By an incremental snapshot; then it is truncated. Its last change was before the connector began."""
    database = postgres.database()
    with postgres.connect(database) as connection:
        connection.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE late (id int PRIMARY KEY)")
        connection.execute("CREATE TABLE signals (id text PRIMARY KEY, type text, data text)")
        connection.execute("INSERT INTO a VALUES (1); INSERT INTO late VALUES (1), (2)")
    tables = "public.a,public.signals,public.lakebackup_heartbeat"
    settings = {"signal.data.collection": "public.signals", "incremental.snapshot.chunk.size": "1"}
    task = LogTask(lab, database, feed="debezium", filters=("public.a", "public.late"))

    def now() -> int:
        with postgres.connect(database) as connection:
            row = connection.execute(
                "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
            ).fetchone()
        assert row
        return int(row[0])

    def names() -> list[str]:
        return list(Cluster({"bootstrap.servers": lab.bootstrap}).topic_names())

    def rows(moment: int) -> dict[str, int]:
        folder = tmp_path / str(moment)
        request = LogRestoreRequest(str(lab.folder), "lab", f"delta:{folder}", to_ms=moment)
        restore.run(request, spark=lab.spark, reporter=lab.reporter)
        found = {"a": 0, "late": 0}
        for row in DeltaTable(str(folder)).to_pyarrow_table(columns=["name"]).to_pylist():
            found[row["name"]] += 1
        return found

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
            before = now()
            task.until(lambda now: (now["checkpoint_ts"] or 0) > before, "it is captured", 150)
    with worker(f"{tables},public.late"), task.run():
        with postgres.connect(database) as connection:
            connection.execute("INSERT INTO a VALUES (2)")
            connection.execute(
                "INSERT INTO signals VALUES ('1', 'execute-snapshot', %s)",
                [json.dumps({"data-collections": ["public.late"], "type": "incremental"})],
            )
        truth.until(lambda: f"{database}.public.late" in names(), "the table is read")
        truth.until(
            lambda: sum(1 for _ in truth.read(lab.bootstrap, f"{database}.public.late")) == 2,
            "all of it is read",
        )
        there = now()
        with postgres.connect(database) as connection:
            connection.execute("TRUNCATE late")
        truth.until(lambda: now() > there + 1500, "the clock goes on")
        emptied = now()
        task.until(lambda now: (now["checkpoint_ts"] or 0) > emptied, "it is captured", 150)
    assert rows(before) == {"a": 1, "late": 0}
    assert rows(there) == {"a": 2, "late": 2}
    assert rows(emptied) == {"a": 2, "late": 0}


def test_a_feed_that_has_lost_its_beginning_is_refused(broker: Broker, tmp_path: Path) -> None:
    client, storage = {"bootstrap.servers": broker.bootstrap}, open_storage(str(tmp_path))
    for name in ("gone.transaction", "gone.public.a"):
        truth.create_topic(broker.bootstrap, name, retention_ms="-1")
    truth.produce(broker.bootstrap, "gone.public.a", [truth.Record(0, b"{}", b"{}", (), 1)])
    feed = DebeziumFeed(client, ("gone",))
    assert feed.prepare(storage, "b/", None, None)["folder"] == "b/"
    truth.delete_records(broker.bootstrap, "gone.public.a", {0: 1})
    with pytest.raises(Refused, match=r"Topic gone\.public\.a, partition 0, begins at offset 1"):
        feed.prepare(storage, "c/", None, None)

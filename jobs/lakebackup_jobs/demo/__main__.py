"""`make demo`: backs up topics of a real broker, queries the backups, deletes the topics, and restores them.

Every step prints the command that a person would type. Nothing outside one temporary folder is changed.
"""

from __future__ import annotations

import json
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from lakebackup.rules.times import format_ts
from lakebackup_jobs.cli import main as lakebackup
from lakebackup_jobs.demo.broker import Broker
from lakebackup_jobs.runtime.session import spark_session

Row = tuple[Any, Any, tuple[Any, ...], int]

TOPICS = {"orders": 4, "payments": 2}
RECORDS = 50_000
GROUP = "billing"
DAY_MS = 86_400_000
console = Console(highlight=False)


def main() -> int:
    """Run the demo. Returns 0 when every restored record is identical to the lost one."""
    with tempfile.TemporaryDirectory(prefix="lakebackup-demo-") as name:
        folder = Path(name)
        print_step("Starting Apache Kafka (one node, loopback) and Spark (this machine) ...")
        with Broker(folder / "kafka") as broker:
            return _DemoRun(broker.bootstrap, folder / "backups").run()


class _DemoRun:
    def __init__(self, servers: str, backups: Path) -> None:
        self.servers, self.backups = servers, backups
        self.spark = spark_session(app="lakebackup-demo")
        self.random = random.Random(7)  # noqa: S311 - every run writes the same records
        self.clock_ms = time.time_ns() // 1_000_000

    def run(self) -> int:
        backup = "backup topics orders payments", "--bootstrap-server", self.servers, "--repo", self.backups
        repo_and_target = "--repo", self.backups, "--to", f"kafka://{self.servers}"
        print_step(f"Writing {RECORDS:,} records to each of {', '.join(TOPICS)} ...")
        self._create()
        for topic in TOPICS:
            self._produce(topic, RECORDS, self.clock_ms - 3 * DAY_MS)
        self._lakebackup(*backup)
        print_step("Business goes on: 5,000 more records, then the next backup reads only those.")
        for topic in TOPICS:
            self._produce(topic, 5_000, self.clock_ms - DAY_MS)
        self._commit()
        self._lakebackup(*backup)
        self._lakebackup("list", "--repo", self.backups)
        self._lakebackup(
            "sql",
            "SELECT scope, region, count(*) AS files, sum(entries) AS records, min(min_time) AS oldest,"
            " max(max_time) AS newest FROM files GROUP BY scope, region ORDER BY scope, region",
            "--repo", self.backups,
        )  # fmt: skip

        rows_before = {topic: self._read_rows(topic) for topic in TOPICS}
        next_records = self._next_records()
        print_step(f"Disaster: both topics are deleted, and with them the offsets of the group {GROUP}.")
        self._delete()
        print_step("What would a restore do? The dry run shows the SELECT that chooses the files.")
        self._lakebackup("restore topics orders payments", *repo_and_target, "--dry-run")
        self._lakebackup("restore topics orders payments", *repo_and_target)
        is_identical = all(
            self._compare(topic, rows_before[topic], self._read_rows(topic)) for topic in TOPICS
        )
        self._lakebackup("restore groups", GROUP, *repo_and_target)
        group_continues = self._next_records() == next_records
        is_identical &= group_continues
        verdict = "[green]at the same record[/]" if group_continues else "[red]SOMEWHERE ELSE[/]"
        console.print(f"group {GROUP} goes on {verdict} in every partition of orders")

        moment = self.clock_ms - 2 * DAY_MS
        print_step(f"And as it was two days ago, at {format_ts(moment)}, under another name:")
        options = "--map", "orders=orders-then", "--to-time", format_ts(moment)
        self._lakebackup("restore topics orders", *repo_and_target, *options)
        expected = {p: [row for row in rows if row[3] <= moment] for p, rows in rows_before["orders"].items()}
        is_identical &= self._compare("orders-then", expected, self._read_rows("orders-then"))
        self._lakebackup("verify", "--repo", self.backups, "--decode")
        print_step("Everything is as it was." if is_identical else "THE RESTORED TOPICS DIFFER.")
        return 0 if is_identical else 1

    def _lakebackup(self, verb: str, *arguments: str | Path) -> None:
        words = [*verb.split(), *(str(argument) for argument in arguments)]
        console.print(f"\n[bold green]$[/] lakebackup {shlex.join(words)}", soft_wrap=True)
        start_s = time.monotonic()
        code = lakebackup(words, spark=self.spark)
        console.print(f"[dim]({time.monotonic() - start_s:.1f} s, exit code {code})[/]")
        if code:
            sys.exit(code)

    def _create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        new_topics = [
            NewTopic(name, count, 1, config={"retention.ms": str(30 * DAY_MS)})
            for name, count in TOPICS.items()
        ]
        for future in admin.create_topics(new_topics).values():
            future.result(30)

    def _delete(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        for future in admin.delete_topics(list(TOPICS), operation_timeout=30).values():
            future.result(30)
        while set(TOPICS) & set(admin.list_topics(timeout=10).topics):
            time.sleep(0.1)

    def _produce(self, topic: str, count: int, start: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
        )
        for i, (key, value, headers) in enumerate(self._records(topic, count)):
            producer.produce(
                topic, value, key, i % TOPICS[topic], timestamp=start + i * 1000, headers=headers
            )
        if producer.flush(60):
            raise SystemExit(f"{topic}: the broker did not take all records")

    def _records(
        self, topic: str, count: int
    ) -> Iterator[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]]:
        for i in range(count):
            number = self.random.randrange(10_000)
            value = {
                "topic": topic,
                "number": number,
                "amount": round(self.random.expovariate(0.01), 2),
                "step": i,
            }
            deleted, anonymous = i % 97 == 0, i % 89 == 0
            yield (
                None if anonymous else f"{topic}-{number}".encode(),
                None if deleted else json.dumps(value).encode(),
                [("trace", b"%d" % i), ("trace", None)] if i % 11 == 0 else [],
            )

    def _read_rows(self, topic: str) -> dict[int, list[Row]]:
        consumer = self._consumer("demo", **{"enable.partition.eof": True})
        rows: dict[int, list[Row]] = {p: [] for p in consumer.list_topics(topic, 30).topics[topic].partitions}
        consumer.assign([TopicPartition(topic, p, 0) for p in rows])
        unread_partitions = set(rows)
        while unread_partitions:
            for message in consumer.consume(10_000, 1.0):
                error = message.error()
                if error and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    unread_partitions.discard(message.partition())
                elif not error:
                    headers, (_, ts) = tuple(message.headers() or ()), message.timestamp()
                    rows[message.partition() or 0].append((message.key(), message.value(), headers, ts))
        consumer.close()
        return rows

    def _consumer(self, group: str, **settings: Any) -> Consumer:
        defaults = {"bootstrap.servers": self.servers, "group.id": group, "enable.auto.commit": False}
        return Consumer({**defaults, **settings})

    def _commit(self) -> None:
        """Commit offsets as a consumer group that has read half of every partition of orders."""
        offsets = [
            TopicPartition("orders", p, RECORDS // TOPICS["orders"] // 2) for p in range(TOPICS["orders"])
        ]
        consumer = self._consumer(GROUP)
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    def _next_records(self) -> dict[int, Any]:
        """Partition of orders -> the value of the record that the group would read next."""
        consumer = self._consumer(GROUP)
        partitions = [TopicPartition("orders", p) for p in range(TOPICS["orders"])]
        values = {}
        for partition in consumer.committed(partitions, timeout=30):
            consumer.assign([partition])
            message = consumer.poll(30)
            values[partition.partition] = message and message.value()
        consumer.close()
        return values

    def _compare(self, topic: str, lost: dict[int, list[Row]], restored: dict[int, list[Row]]) -> bool:
        is_identical = lost == restored
        count = sum(map(len, restored.values()))
        verdict = "[green]identical[/]" if is_identical else "[red]DIFFERENT[/]"
        console.print(f"{topic}: {count:,} records in {len(restored)} partitions, {verdict} to what was lost")
        return is_identical


def print_step(text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


if __name__ == "__main__":
    raise SystemExit(main())

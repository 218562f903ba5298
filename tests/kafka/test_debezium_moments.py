"""A real database under load, captured in flushes: what each moment held is what the feed says it held."""

from __future__ import annotations

import json
from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from tests.support import kafka_truth as truth
from tests.support.debezium import Debezium
from tests.support.moments import Contents, Moments

from lakebackup.errors import Refused
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client import consume
from lakebackup_jobs.kafka.client.consume import reader
from lakebackup_jobs.logs.feeds import Range
from lakebackup_jobs.logs.feeds.debezium import DebeziumFeed
from lakebackup_jobs.logs.feeds.records import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.postgres import Postgres

    from lakebackup_jobs.demo.broker import Broker

pytestmark = pytest.mark.kafka


class Captured:
    """A feed's flushes, one after another, as a log task makes them, without its files."""

    def __init__(self, bootstrap: str, prefix: str, folder: Path) -> None:
        self._client = {"bootstrap.servers": bootstrap}
        self._feed = DebeziumFeed(self._client, (prefix,))
        self._cluster = Cluster(self._client)
        self._storage = open_storage(str(folder))
        self._ends: dict[tuple[str, int], int] = {}
        self._number = 0
        self.checkpoint: int | None = None
        self.names: dict[int, str] = {}
        self.rows: list[dict[str, Any]] = []
        self.before: list[tuple[int, int | None]] = []

    def flush(self) -> None:
        known = self._feed.topics(self._cluster.topic_names())
        _, places = self._cluster.positions(self._cluster.describe(known), "read_committed")
        folder, before = f"f{self._number}/", f"f{self._number - 1}/" if self._number else None
        context = json.loads(json.dumps(self._feed.prepare(self._storage, folder, before, self.checkpoint)))
        told = []
        for place in places:
            at = place.scope, int(place.region)
            of = Range(place.scope, int(place.region), place.epoch, self._ends.get(at, place.low), place.end)
            decoder = self._feed.decoder(self._storage, of, context)
            self._ends[at] = self._capture(of, decoder)
            if finished := decoder.finish():
                told.append(json.loads(json.dumps(finished)))
        for finished in told:
            self.names |= {table: name for table, _, name, _ in finished["tables"]}
        least = min((r["commit_ts"] for r in self.rows[self._from :]), default=None)
        self.checkpoint = self._feed.checkpoint(
            self._storage, folder, context, iter(told), iter(()), self.checkpoint
        )
        if self.before and self.before[-1][1] is not None and least is not None:
            assert least > (self.before[-1][1] or 0), "what came is older than what was whole"
        self.before.append((len(self.rows), self.checkpoint))
        self._number += 1

    @property
    def _from(self) -> int:
        return self.before[-1][0] if self.before else 0

    def _capture(self, of: Range, decoder: Any) -> int:
        if of.start < of.end:
            client = reader(self._client, "read_committed", (of.topic, of.epoch))
            with patch.object(consume, "BLOCK_BYTES", 1 << 16):
                blocks = list(client.blocks(of.topic, of.partition, of.start, of.end))
            for block in blocks:
                decoded = decoder.decode(records_of(block, of.topic))
                self.rows += decoded.records.to_pylist()
                if decoded.upto is not None:
                    return int(decoded.upto)
        return of.end

    def states(self) -> Iterator[tuple[int, Contents]]:
        """What the tables held, by key, just before each ts at which something was committed, and at last."""
        found: Contents = {}
        order = sorted(self.rows, key=lambda r: (r["commit_ts"], r["seq"], r["sub"]))
        for ts, rows in groupby(order, key=lambda r: r["commit_ts"]):
            yield ts, found
            for row in rows:
                table = found.setdefault(self.names[row["table_id"]], {})
                if row["type"] == "T":
                    table.clear()
                elif row["type"] == "D":
                    table.pop(row["key"].decode(), None)
                else:
                    table[row["key"].decode()] = json.loads(row["value"])
        yield 2**63 - 1, found


@pytest.mark.long
def test_every_moment_is_as_the_database_was(broker: Broker, postgres: Postgres, tmp_path: Path) -> None:
    database = postgres.database()
    moments = Moments(postgres, database)
    debezium = Debezium(tmp_path / "connect", broker.bootstrap, postgres, database)
    with debezium, moments:
        captured = Captured(broker.bootstrap, debezium.prefix, tmp_path / "log")
        transactions = f"{debezium.prefix}.transaction"
        cluster = Cluster({"bootstrap.servers": broker.bootstrap})
        truth.until(lambda: transactions in cluster.topic_names(), "the connector streams")
        for number in range(36):
            moments.take(before="TRUNCATE orders, lines" if number in (9, 25) else "")
            if number in (12, 24):
                debezium.kill()
                debezium.start()  # what it had not noted as sent comes again
            if number % 3 == 0:
                captured.flush()
        last = moments.take()
    with debezium:  # everything that is left
        truth.until(lambda: captured.flush() or (captured.checkpoint or 0) >= last, "all is captured")
    assert len(moments.seen) == 37
    assert moments.transactions > 100
    wanted, right = deque(sorted(moments.seen)), 0
    for ts, held in captured.states():
        while wanted and wanted[0] < ts:
            moment = wanted.popleft()
            for table, rows in moments.seen[moment].items():
                found = held.get(table, {})
                unlike = {k: (found.get(k), rows.get(k)) for k in found | rows if found.get(k) != rows.get(k)}
                assert not unlike, f"{table} at {moment}, moment {right}, found and wanted: {unlike}"
            right += 1
    assert right == 37


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

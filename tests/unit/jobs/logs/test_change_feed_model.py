"""What flushes of a change feed know is what the database held, at every ts up to their checkpoints.

Decoding, checkpoint and names are the real ones, over events that are cut anywhere; values are looked up here
in the plainest way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import event, given, settings
from tests.support.change_story import STEPS, Step, Story

from lakebackup.formats.logs.events import stored_schema
from lakebackup.formats.logs.table_filter import TableFilter
from lakebackup_jobs.logs.capture import region_marks
from lakebackup_jobs.logs.capture.names_task import names_of
from lakebackup_jobs.logs.feeds import Range
from lakebackup_jobs.logs.feeds.br import BrFeed

FEED = BrFeed(("feed",))
NOWHERE: Any = None


@dataclass
class Log:
    """What was captured so far."""

    done: list[int]
    records: list[dict[str, Any]] = field(default_factory=list)
    marks: Any = field(default_factory=region_marks.SCHEMA.empty_table)
    names: list[Any] = field(default_factory=list)
    checkpoint: int | None = None

    def flush(self, story: Story) -> int | None:
        """Read what reached the topic; returns the checkpoint."""
        marks = [self.marks]
        for partition, start in enumerate(self.done):
            end = len(story.feed.sent[partition])
            decoder = FEED.decoder(NOWHERE, Range("feed", partition, "", start, end), {})
            found = decoder.decode(story.feed.records(partition, start, end))
            self.records += found.records.to_pylist()
            new = region_marks.Marks()
            new.add(found.marks)
            marks.append(new.table())
            self.done[partition] = end
        self.marks = region_marks.newest(pa.concat_tables(marks))
        regions = region_marks.mappings(self.marks)
        before, self.checkpoint = (
            self.checkpoint,
            FEED.checkpoint(NOWHERE, {}, iter(()), regions, self.checkpoint),
        )
        self.names += names_of(
            self._meta(),
            [{name: getattr(row, name) for name in row.__slots__} for row in self._last().values()],
            source="s",
            backup_id="b",
            after=before,
            until=self.checkpoint,
            tables=TableFilter(),
        )
        return self.checkpoint

    def _meta(self) -> Any:
        for cf in ("default", "write"):
            rows = [row for row in self.records if not row["table_id"] and row["cf"] == cf]
            rows = [{n: row[n] for n in stored_schema().names} for row in rows if row["op"] == "put"]
            yield cf, pa.RecordBatch.from_pylist(rows, stored_schema())

    def _last(self, ts: int = 2**63) -> dict[int, Any]:
        return {row.table_id: row for row in self.names if row.from_ts <= ts}

    def rows(self, ts: int) -> dict[str, dict[bytes, bytes]]:
        """What a restore to `ts` has to give."""
        named = {i: row for i, row in self._last(ts).items() if i > 0 and row.action != "drop"}
        tables: dict[int, dict[bytes, bytes]] = {table_id: {} for table_id in named}
        values = {
            (row["table_id"], row["key"], row["start_ts"]): row["value"]
            for row in self.records
            if (row["cf"], row["op"]) == ("default", "put")
        }
        writes = [row for row in self.records if (row["cf"], row["op"]) == ("write", "put")]
        for row in sorted(writes, key=lambda row: (row["commit_ts"], row["seq"], row["sub"])):
            table = tables.get(row["table_id"])
            if table is None or row["commit_ts"] > ts:
                continue
            if row["type"] == "T":
                table.clear()
            elif row["type"] == "D":
                table.pop(row["key"], None)
            elif row["type"] == "P":
                own = row["value"]
                apart = (row["table_id"], row["key"], row["start_ts"])
                table[row["key"]] = values[apart] if own is None else own
        return {f"{named[i].db}.{named[i].name}": rows for i, rows in tables.items()}


@settings(max_examples=3 * settings.default.max_examples)
@given(STEPS)
def test_every_flush_knows_all_up_to_its_checkpoint(steps: list[Step]) -> None:
    story, log = Story(), Log([0, 0])
    told = 0
    for step in [*steps, ("flush", 0, 0, 0), ("end", 0, 0, 0)]:
        if step[0] == "end":
            story.finish()
        elif not story.play(step):
            continue
        reached = log.flush(story)
        for ts in range(told + 1, (reached or 0) + 1):
            assert log.rows(ts) == story.feed.rows(ts), ts
        told = reached or 0
    assert told == story.feed.now
    for ts in range(told + 1):
        assert log.rows(ts) == story.feed.rows(ts), ts
    event(f"{len(story.feed.rows(told))} tables")

"""After every flush of a change feed, its log gives what the database held at each ts up to the checkpoint.

Decoding, checkpoint and names are the real code, over events that are split anywhere into flushes. The model
looks values up in the simplest way.
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

    positions: list[int]
    records: list[dict[str, Any]] = field(default_factory=list)
    marks: Any = field(default_factory=region_marks.SCHEMA.empty_table)
    names: list[Any] = field(default_factory=list)
    checkpoint: int | None = None

    def flush(self, story: Story) -> int | None:
        """Read what reached the topic; returns the checkpoint."""
        marks = [self.marks]
        for partition, start in enumerate(self.positions):
            end = len(story.feed.delivered_events[partition])
            decoder = FEED.decoder(NOWHERE, Range("feed", partition, "", start, end), {})
            decoded = decoder.decode(story.feed.records(partition, start, end))
            self.records += decoded.records.to_pylist()
            new = region_marks.Marks()
            new.add(decoded.marks)
            marks.append(new.table())
            self.positions[partition] = end
        self.marks = region_marks.newest(pa.concat_tables(marks))
        regions = region_marks.mappings(self.marks)
        previous_ts, self.checkpoint = (
            self.checkpoint,
            FEED.checkpoint(NOWHERE, {}, iter(()), regions, self.checkpoint),
        )
        self.names += names_of(
            self._meta(),
            [{name: getattr(row, name) for name in row.__slots__} for row in self._last().values()],
            source="s",
            backup_id="b",
            old_checkpoint=previous_ts,
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
        """The rows that a restore to `ts` must give: table name -> key -> value."""
        live_tables = {i: row for i, row in self._last(ts).items() if i > 0 and row.action != "drop"}
        tables: dict[int, dict[bytes, bytes]] = {table_id: {} for table_id in live_tables}
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
                value_key = (row["table_id"], row["key"], row["start_ts"])
                table[row["key"]] = values[value_key] if own is None else own
        return {f"{live_tables[i].db}.{live_tables[i].name}": rows for i, rows in tables.items()}


@settings(max_examples=3 * settings.default.max_examples)
@given(STEPS)
def test_every_flush_has_all_changes_up_to_its_checkpoint(steps: list[Step]) -> None:
    story, log = Story(), Log([0, 0])
    checked_ts = 0
    for step in [*steps, ("flush", 0, 0, 0), ("end", 0, 0, 0)]:
        if step[0] == "end":
            story.finish()
        elif not story.play(step):
            continue
        checkpoint_ts = log.flush(story)
        for ts in range(checked_ts + 1, (checkpoint_ts or 0) + 1):
            assert log.rows(ts) == story.feed.rows(ts), ts
        checked_ts = checkpoint_ts or 0
    assert checked_ts == story.feed.last_ts
    for ts in range(checked_ts + 1):
        assert log.rows(ts) == story.feed.rows(ts), ts
    event(f"{len(story.feed.rows(checked_ts))} tables")

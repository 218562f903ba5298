"""The key-value change feed: the events that a transactional store writes below its transactions, in Avro.

docs/change-logs-feed.md describes the format of events and what producers promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Damaged
from lakebackup.formats.logs import events
from lakebackup.formats.logs.br_event import FAMILIES, KINDS, ROOT_REGION
from lakebackup.formats.logs.events import Domain
from lakebackup.formats.logs.meta_keys import CAPTURED_KEYS
from lakebackup.rules.patterns import compile_pattern, is_internal
from lakebackup.storage import Storage
from lakebackup_jobs.kafka.format.arrow import binary
from lakebackup_jobs.kafka.memory import Bytes, Longs
from lakebackup_jobs.logs.feeds import Decoded, Range
from lakebackup_jobs.logs.feeds import br_events as ev
from lakebackup_jobs.logs.skips import Skipped

_CF_NAMES = pa.array(FAMILIES[: ev.LOCK_CF])
_OP_NAMES = pa.array(KINDS[: ev.RESOLVED])
_LETTERS = pa.array([chr(code) for code in range(128)])


def _names_of(codes: Longs, names: Any) -> Any:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int8), names).cast(pa.string())


def _numbers(column: Longs) -> Any:
    missing = column == ev.MISSING
    return pa.array(column, mask=missing) if missing.any() else pa.array(np.ascontiguousarray(column))


@dataclass(slots=True)
class BrDecoder:
    """Decodes one partition. It has no state between batches."""

    of: Range

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See Decoder. Drops locks, and meta keys that describe no database or table. Raises Damaged."""
        values, offsets = records.column("value"), records.column("offset").to_numpy()
        if values.null_count:
            first = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise self._damaged(offsets, first, "it has no value")
        data, ends = _buffers(values)
        rows: Longs = np.empty((len(records), ev.WIDTH), np.int64)
        # Without room for successors they are only counted here. `_marks` reads them.
        bad, wrong = ev.read_events(data, ends, rows, np.empty(0, np.int64))
        if bad >= 0:
            raise self._damaged(offsets, bad, ev.WRONG[wrong])
        mark_rows = np.flatnonzero(rows[:, ev.KIND] >= ev.RESOLVED)
        changes = np.flatnonzero((rows[:, ev.KIND] < ev.RESOLVED) & (rows[:, ev.CF] != ev.LOCK_CF))
        captured = self._without_other_meta(data, rows, changes)
        return Decoded(
            self._records(data, rows, captured, offsets),
            self._marks(data, ends, rows, mark_rows, offsets),
        )

    def skip(self, records: pa.RecordBatch) -> None:
        """Does nothing: the changes and marks of skipped messages are lost."""

    def finish(self) -> None:
        """Returns None: the checkpoint is computed from the marks alone."""

    def _damaged(self, offsets: Longs, index: int, reason: str) -> Damaged:
        location = f"topic {self.of.topic}, partition {self.of.partition}, offset {offsets[index]}"
        return Damaged(
            f"The event at {location} cannot be read: {reason}.",
            hint="Its producer must send the byte 1, then the event in Avro. Debezium needs --feed debezium.",
        )

    @staticmethod
    def _without_other_meta(data: Bytes, rows: Longs, changes: Longs) -> Longs:
        is_meta = rows[changes, ev.TABLE] == events.META_TABLE
        if not is_meta.any():
            return changes
        meta_rows = rows[changes[is_meta]]
        keys = binary(data, meta_rows[:, ev.KEY], meta_rows[:, ev.KEY_LENGTH])
        is_captured = ~is_meta
        has_name: Any = pc.match_substring_regex(keys, CAPTURED_KEYS)
        is_captured[is_meta] = has_name.to_numpy(zero_copy_only=False)
        captured: Longs = changes[is_captured]
        return captured

    def _stores(self, data: Bytes, rows: Longs, indices: Longs, offsets: Longs) -> Any:
        names = binary(data, rows[indices, ev.STORE], rows[indices, ev.STORE_LENGTH])
        try:
            return names.cast(pa.string())
        except pa.ArrowInvalid:
            for index, name in zip(indices.tolist(), names.to_pylist(), strict=True):
                try:
                    name.decode()
                except UnicodeDecodeError:
                    raise self._damaged(offsets, index, ev.WRONG[ev.BAD_STORE]) from None
            raise

    def _records(self, data: Bytes, rows: Longs, indices: Longs, offsets: Longs) -> pa.RecordBatch:
        selected, count = rows[indices], len(indices)
        letters = selected[:, ev.LETTER]
        kinds = pa.DictionaryArray.from_arrays(pa.array(letters.astype(np.int8), mask=letters == 0), _LETTERS)
        return pa.RecordBatch.from_arrays(
            [
                self._stores(data, rows, indices, offsets),
                _numbers(selected[:, ev.REGION]),
                _numbers(selected[:, ev.TABLE]),
                _names_of(selected[:, ev.CF], _CF_NAMES),
                _names_of(selected[:, ev.KIND], _OP_NAMES),
                binary(data, selected[:, ev.KEY], selected[:, ev.KEY_LENGTH]),
                binary(data, selected[:, ev.VALUE], selected[:, ev.VALUE_LENGTH]),
                _numbers(selected[:, ev.START_TS]),
                _numbers(selected[:, ev.COMMIT_TS]),
                kinds.cast(pa.string()),
                # seq and sub are 0, as a key is written only once at a commit ts.
                pa.array(np.zeros(count, np.int64)),
                pa.array(np.zeros(count, np.int32)),
                pa.array(offsets[indices]),
            ],
            schema=events.captured_schema(),
        )

    def _marks(self, data: Bytes, ends: Longs, rows: Longs, indices: Longs, offsets: Longs) -> pa.RecordBatch:
        selected = rows[indices]
        successor_offsets = np.zeros(len(indices) + 1, np.int32)
        successor_offsets[1:] = np.cumsum(selected[:, ev.AFTER_COUNT])
        successors: Longs = np.empty(int(successor_offsets[-1]), np.int64)
        if len(successors):
            ev.find_successors(data, ends, rows, indices, successors)
        return pa.RecordBatch.from_arrays(
            [
                self._stores(data, rows, indices, offsets),
                _numbers(selected[:, ev.REGION]),
                _numbers(selected[:, ev.RESOLVED_TS]),
                pa.array(selected[:, ev.KIND] == ev.CLOSED),
                pa.ListArray.from_arrays(pa.array(successor_offsets), pa.array(successors)),
                pa.array(offsets[indices]),
            ],
            schema=events.marks_schema(),
        )


def _buffers(values: Any) -> tuple[Bytes, Longs]:
    """The bytes of a binary array, and the positions in them where its values begin and the last one ends."""
    if not len(values):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, ends, data = values.buffers()
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    positions = np.frombuffer(ends, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return np.frombuffer(data or b"", np.uint8), positions


@dataclass(frozen=True, slots=True)
class BrFeed:
    """The key-value change feed in some topics.

    `names`: topics, or regular expressions that match whole names. `skipped`: messages that a person told the
    task to skip.
    """

    names: tuple[str, ...]
    domain: Domain = "tso"
    skipped: Skipped = field(default_factory=dict)

    def topics(self, topic_names: Sequence[str]) -> list[str]:
        """The topics that `names` match. Internal topics match only by their full name."""
        patterns = [compile_pattern(name) for name in self.names]
        return sorted(
            topic
            for topic in topic_names
            if topic in self.names
            or (not is_internal(topic) and any(pattern.fullmatch(topic) for pattern in patterns))
        )

    def own_topics(self, names: Sequence[str]) -> list[str]:
        """Returns no topics."""
        return []

    def prepare(
        self, storage: Storage, folder: str, last_folder: str | None, resolved_ts: int | None
    ) -> Mapping[str, Any]:
        """Returns an empty context, as events are complete in themselves."""
        return {}

    def decoder(self, storage: Storage, of: Range, context: Mapping[str, Any]) -> BrDecoder:
        return BrDecoder(of)

    def checkpoint(
        self,
        storage: Storage,
        context: Mapping[str, Any],
        finished: Iterator[Mapping[str, Any]],
        regions: Iterator[Mapping[str, Any]],
        resolved_ts: int | None,
    ) -> int | None:
        """The least resolved ts of all regions, but never less than `resolved_ts`.

        A region counts until it is closed and all its successors are known. The root, whose resolved ts is 0,
        counts too.
        """
        resolved: dict[int, int] = {}
        closed: dict[int, list[int]] = {}
        for row in regions:
            region = int(row["region"])
            resolved[region] = row["resolved_ts"]
            if row["closed"]:
                closed[region] = row["successors"] or []
        if ROOT_REGION not in closed:
            return resolved_ts
        ended_regions = {
            region for region, successors in closed.items() if resolved.keys() >= set(successors)
        }
        least_ts = min((ts for region, ts in resolved.items() if region not in ended_regions), default=0)
        return max(least_ts, resolved_ts or 0) if least_ts else resolved_ts

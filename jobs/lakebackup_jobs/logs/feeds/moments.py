"""Finds the place among the transactions of messages that belong to none. Pure.

Such messages are rows of an incremental snapshot, truncates without a transaction, and schema changes. A
connector sends one message after the other, and Kafka's timestamps say when. So a message that was sent
between the ends of two transactions belongs after the first and before the second. Its ts is the time that it
names, limited to the span between the ts of those two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Moments:
    """The ends of the known transactions (`ends`: transactions.SCHEMA).

    `begin`: the ts just before the first transaction. `first_sent`: when the first end of all was sent, None:
    not known. `resolved_ts`: the checkpoint, up to which the log was promised to be complete; None: not yet.
    """

    ends: pa.Table
    begin: int | None = None
    first_sent: int | None = None
    resolved_ts: int | None = None

    def ends_before(self, sent_ms: Any) -> Any:
        """The number of ends that were sent before each of these instants (ms)."""
        # `sent` is when an end was sent the last time. So an end that was sent again makes later ends count
        # as sent after it, which can only place a message earlier.
        times = np.maximum.accumulate(self.ends["sent"].to_numpy())
        return np.searchsorted(times, sent_ms, "left")

    def is_initial(self, sent_ms: Any) -> Any:
        """Whether messages that were sent at these instants (ms) came before every transaction."""
        early = self.ends_before(sent_ms) == 0
        return early if self.first_sent is None else early & (sent_ms <= self.first_sent)

    def locate(self, sent_ms: Any, own_ms: Any) -> tuple[Any, Any, Any]:
        """The ts and seq of each message, and whether they are known, as an end was sent after the message.

        `own_ms`: the time that the message names. The ts is always after `resolved_ts`: every change that
        follows the message has its transaction after that ts too, and so stays behind the message.
        """
        count = len(self.ends)
        if not count:
            zeros = np.zeros(len(sent_ms), np.int64)
            return zeros, zeros, np.zeros(len(sent_ms), bool)
        ts, seq = (self.ends[name].to_numpy() for name in ("ts", "seq"))
        count_before = self.ends_before(sent_ms)
        earliest = np.where(count_before > 0, ts[np.maximum(count_before - 1, 0)], self.begin or 0)
        latest = ts[np.minimum(count_before, count - 1)]
        own_ts = np.minimum(np.maximum(own_ms, earliest), latest)
        if self.resolved_ts is not None:
            own_ts = np.maximum(own_ts, self.resolved_ts + 1)
        last_seq = np.where(count_before > 0, seq[np.maximum(count_before - 1, 0)], 0)
        return own_ts, last_seq, count_before < count

    def ts_before(self, sent_ms: int) -> int:
        """The ts of the last transaction whose end was sent before an instant (ms)."""
        count_before = int(self.ends_before(sent_ms))
        return int(self.ends["ts"][count_before - 1].as_py()) if count_before else self.begin or 0

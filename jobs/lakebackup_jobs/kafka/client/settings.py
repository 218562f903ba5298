"""Settings of librdkafka: what makes reading and writing right, and what makes them fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Seconds without any progress after which a client gives up.
PATIENCE = 60.0
#: What makes the reading right.
READING: Mapping[str, str] = {
    "enable.partition.eof": "true",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
}
#: What makes the writing right.
WRITING: Mapping[str, str] = {
    "enable.idempotence": "true",
    "acks": "all",
    "delivery.report.only.error": "true",
    "allow.auto.create.topics": "false",
}
#: What a user's own settings may change. The queue bounds memory; waiting before fetching again halved the
#: speed.
READING_TUNING: Mapping[str, str] = {
    "fetch.queue.backoff.ms": "0",
    "fetch.wait.max.ms": "10",
    "fetch.message.max.bytes": str(16 << 20),
    "fetch.max.bytes": str(64 << 20),
    "receive.message.max.bytes": str(1_100_000_000),
    "queued.min.messages": "10000000",
    "queued.max.messages.kbytes": str(64 << 10),
    "topic.metadata.propagation.max.ms": "5000",
    "check.crcs": "true",
}
#: What a user's own settings may change. A batch is bounded by bytes, below what topics allow by default,
#: so that many large records never make one too large; a single larger record still goes alone.
WRITING_TUNING: Mapping[str, str] = {
    "linger.ms": "100",
    "compression.type": "lz4",
    "batch.size": "900000",
    "batch.num.messages": "1000000",
    "queue.buffering.max.messages": "0",
    "queue.buffering.max.kbytes": str(64 << 10),
    "message.max.bytes": "1000000000",
    "transaction.timeout.ms": "120000",
    "message.timeout.ms": "120000",
}


def writing_tuning(patience: float) -> dict[str, str]:
    """WRITING_TUNING for one client. Left alone, librdkafka lets requests of a transaction wait for a dead
    broker as long as transaction.timeout.ms, whatever timeout the call itself is given."""
    return {**WRITING_TUNING, "socket.timeout.ms": str(min(int(patience * 1000), 300_000))}

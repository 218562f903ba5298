"""Finds the topics of a Debezium connector, and drops messages that are no changes of its tables. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import Refused, UsageProblem
from lakebackup.rules.patterns import compile_pattern
from lakebackup_jobs.logs.feeds.debezium_json import ask

#: The suffix of the topic of a connector's transactions, after the connector's prefix.
TRANSACTIONS = ".transaction"
#: The prefix of a pattern that excludes topics.
EXCLUDES = "!"

# Selects the offsets of messages that Debezium itself writes beside changes: the metadata of transactions,
# heartbeats, the schema history, schema changes and notifications. Each kind is recognised by several of its
# fields, because a row that a transform took out of its envelope may have a column of any name.
_BESIDE_CHANGES = r"""
    SELECT "offset" FROM (
        SELECT "offset",
            json_extract_string(value, [
                '/status', '/id', '/ts_ms', '/databaseName', '/ddl', '/tableChanges', '/source',
                '/aggregate_type', '/type', '/before', '/after', '/op'
            ]) AS x,
            json_extract_string(key, ['/serverName', '/id']) AS k,
            json_exists(value, '/event_count') AS counts
        FROM records
    )
    WHERE x[10] IS NULL AND x[11] IS NULL AND x[12] IS NULL AND (
        (x[1] IN ('BEGIN', 'END') AND x[2] = k[2] AND counts)
        OR (k[1] IS NOT NULL AND x[3] IS NOT NULL AND x[2] IS NULL)
        OR (x[4] IS NOT NULL AND x[7] IS NOT NULL AND (x[5] IS NOT NULL OR x[6] IS NOT NULL))
        OR (x[8] IS NOT NULL AND x[9] IS NOT NULL AND x[2] IS NOT NULL)
    )
"""


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector and its topics.

    `prefix`: its topic.prefix. `topics`: those that may have changes of its tables, and the topic of its
    schema changes, if there is one. `related`: prefixes of other connectors that begin with this prefix and a
    dot, or with which, and a dot, this prefix begins.
    """

    prefix: str
    topics: tuple[str, ...]
    related: tuple[str, ...] = ()


def connector_of(patterns: Sequence[str], topic_names: Sequence[str]) -> Connector:
    """The connector that `patterns` select by its prefix, or by expressions that match its topics.

    Expressions that begin with `!` exclude topics. Raises Refused without transaction metadata, UsageProblem
    for several connectors and for an invalid expression.
    """
    names = [text for text in patterns if not text.startswith(EXCLUDES)]
    excluded = [compile_pattern(text[1:]) for text in patterns if text.startswith(EXCLUDES)]
    prefixes = sorted(name.removesuffix(TRANSACTIONS) for name in topic_names if name.endswith(TRANSACTIONS))
    prefix = _prefix(names, topic_names, prefixes)
    topics = [name for name in topic_names if name == prefix or name.startswith(f"{prefix}.")]
    return Connector(
        prefix,
        tuple(
            sorted(
                name
                for name in topics
                if name != prefix + TRANSACTIONS and not any(e.fullmatch(name) for e in excluded)
            )
        ),
        tuple(name for name in prefixes if name.startswith(f"{prefix}.") or prefix.startswith(f"{name}.")),
    )


def _prefix(names: Sequence[str], topic_names: Sequence[str], prefixes: Sequence[str]) -> str:
    # A table may be called `transaction`. So such a topic only counts as a connector's if the prefix is named
    # in full.
    matching = [prefix for prefix in prefixes if prefix in names]
    if not matching:
        patterns = [compile_pattern(name) for name in names]
        matched = [name for name in topic_names if any(p.fullmatch(name) for p in patterns)]
        outer = [p for p in prefixes if not any(p.startswith(f"{prefix}.") for prefix in prefixes)]
        matching = [p for p in outer if any(name.startswith(f"{p}.") for name in matched)]
    if not matching:
        raise Refused(
            f"No Debezium connector with transaction metadata matches {', '.join(names)}: "
            f"there is no topic <topic.prefix>{TRANSACTIONS}.",
            hint="Set provide.transaction.metadata=true and a heartbeat.action.query in the connector. "
            "The topic appears with the first change.",
        )
    if len(matching) > 1:
        raise UsageProblem(
            f"These topics are of several connectors: {', '.join(matching)}.",
            hint="Start a task for each.",
        )
    return matching[0]


def own_changes(
    events: pa.Table, records: pa.RecordBatch, topic: str, origin: str, connector: Connector | None
) -> pa.Table:
    """Drop messages that Debezium writes beside changes, and changes of other connectors.

    `events`: the answer to debezium_json.EVENTS over `records` of `topic`. Messages of an unknown form stay.
    """
    if connector:
        names = [name for name in pc.unique(events["store"]).to_pylist() if name]
        related = [name for name in names if _is_other(name, topic, connector)]
        if related:
            events = events.filter(pc.invert(pc.is_in(events["store"], pa.array(related, pa.string()))))
    if not pc.any(events["op"].is_null()).as_py():
        return events
    unknown = events.filter(events["op"].is_null())["offset"].combine_chunks()
    messages = records.filter(pc.is_in(records["offset"], unknown))
    beside = ask(_BESIDE_CHANGES, messages, origin)["offset"].combine_chunks()
    return events.filter(pc.invert(pc.is_in(events["offset"], beside)))


def _is_other(name: str, topic: str, connector: Connector) -> bool:
    """Whether the source of an event is another connector, whose prefix the topic's name has."""
    below = name.startswith(f"{connector.prefix}.") and topic.startswith(f"{name}.")
    return name != connector.prefix and (below or name in connector.related)

"""Topics of a cluster that no policy and no backup protects."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from lakebackup.rows.topics import TopicSeen
from lakebackup.rules.patterns import compile_pattern, is_internal

if TYPE_CHECKING:
    from collections.abc import Collection

    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.writer import CatalogWriter


def record_unprotected(
    reader: CatalogReader,
    writer: CatalogWriter,
    source: str,
    existing: Collection[str],
    taken: Collection[str],
) -> list[str]:
    """Topics of a cluster that neither this backup takes nor another holds, and that no policy of the source
    names, sorted; they are recorded where they are others than before. The view: unprotected_topics."""
    owned = [compile_pattern(pattern) for pattern in owned_patterns(reader, source)]
    held = {row["scope"] for row in reader.rows("held_topics", source=source)}
    found = sorted(
        topic
        for topic in set(existing) - set(taken) - held
        if not is_internal(topic) and not any(one.fullmatch(topic) for one in owned)
    )
    if found != [row["scope"] for row in reader.rows("topics_seen", source=source)]:
        at = time.time_ns() // 1000
        writer.append([TopicSeen(source=source, at=at, scope=topic) for topic in found or [""]])
    return found


def owned_patterns(reader: CatalogReader, source: str) -> tuple[str, ...]:
    """The patterns of topics that the policy in force names; empty without one."""
    found = reader.one("policy_in_force", source=source)
    return tuple(json.loads(found["patterns"])) if found and found["patterns"] else ()
